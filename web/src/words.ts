/** Words of a text of tokens, and what is hidden of it. */

export interface Word {
  start: number;
  end: number; // the first token behind it
}

/** Runs of tokens of which only the first begins a word. */
export function groupWords(ids: readonly number[], wordStarts: string): Word[] {
  const words: Word[] = [];
  for (let i = 0; i < ids.length; i++) {
    if (!words.length || wordStarts[ids[i]] === "1") words.push({ start: i, end: i + 1 });
    else words[words.length - 1].end = i + 1;
  }
  return words;
}

/** The positions of the tokens of hidden words, in order. */
export function hiddenPositions(
  words: readonly Word[],
  hidden: ReadonlySet<number>,
): number[] {
  return words.flatMap(({ start, end }, index) =>
    hidden.has(index) ? Array.from({ length: end - start }, (_, i) => start + i) : [],
  );
}

/** The ids with another one at some positions. */
export function putAt(ids: readonly number[], positions: readonly number[], id: number) {
  const places = new Set(positions);
  return ids.map((own, i) => (places.has(i) ? id : own));
}

/** Neighbouring hidden words as one run of tokens. */
export function hiddenRuns(words: readonly Word[], hidden: ReadonlySet<number>): Word[] {
  const runs: Word[] = [];
  words.forEach((word, index) => {
    if (!hidden.has(index)) return;
    const last = runs[runs.length - 1];
    if (last?.end === word.start) last.end = word.end;
    else runs.push({ ...word });
  });
  return runs;
}
