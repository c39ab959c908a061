/** How numbers and tokens are shown. */

export function percent(probability: number): string {
  const value = probability * 100;
  if (value === 0) return "0 %";
  if (value < 0.01) return "< 0.01 %";
  if (value > 99.99 && value < 100) return "> 99.99 %";
  return `${value.toFixed(value < 1 ? 2 : 1)} %`;
}

export function count(number: number, one: string, more = `${one}s`): string {
  return `${number.toLocaleString("en")} ${number === 1 ? one : more}`;
}

/** The text of a word for a button, its spaces made visible where it has nothing else. */
export function visible(text: string, fallback: string): string {
  const bare = text.trim();
  if (bare) return bare;
  return text ? text.replaceAll("\n", "⏎").replaceAll(" ", "␣") : fallback;
}
