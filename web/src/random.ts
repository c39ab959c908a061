/** Random numbers in [0, 1) that a seed repeats. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/** `count` different numbers of `from`, in the order of `from`. */
export function choose<T>(from: readonly T[], count: number, random: () => number): T[] {
  const places = from.map((_, i) => i);
  for (let i = 0; i < Math.min(count, places.length); i++) {
    const other = i + Math.floor(random() * (places.length - i));
    [places[i], places[other]] = [places[other], places[i]];
  }
  return places
    .slice(0, count)
    .sort((a, b) => a - b)
    .map((i) => from[i]);
}
