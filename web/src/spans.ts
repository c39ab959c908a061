/** Hidden runs of a text as an encoder-decoder reads them, and its answer put back. */

import type { Manifest } from "./types";
import type { Word } from "./words";

/** The id that stands for each run: sentinels in order, or else the mask. */
export function standIns(manifest: Manifest, count: number): number[] {
  if (manifest.sentinels.length) return manifest.sentinels.slice(0, count);
  return manifest.mask === null ? [] : new Array(count).fill(manifest.mask);
}

/** The text with each run replaced by one id. */
export function hideRuns(
  ids: readonly number[],
  runs: readonly Word[],
  marks: readonly number[],
): number[] {
  const out: number[] = [];
  let from = 0;
  runs.forEach((run, i) => {
    out.push(...ids.slice(from, run.start), marks[i]);
    from = run.end;
  });
  return [...out, ...ids.slice(from)];
}

/** The id that a decoder must write as its output number `index`, or null. */
export function forcedOutput(manifest: Manifest, index: number): number | null {
  if (index === manifest.max_length - 1 && manifest.last !== null) return manifest.last;
  return index === 0 ? manifest.first : null;
}

/** Whether a decoder's outputs are complete. */
export function isComplete(manifest: Manifest, outputs: readonly number[]): boolean {
  if (!outputs.length) return false;
  const ended = manifest.ends.includes(outputs[outputs.length - 1]);
  return ended || outputs.length >= manifest.max_length;
}

/** What was written behind each sentinel. */
export function readAnswers(
  outputs: readonly number[],
  sentinels: readonly number[],
  ends: readonly number[],
): Map<number, number[]> {
  const answers = new Map<number, number[]>();
  let current: number[] | null = null;
  for (const id of outputs) {
    if (ends.includes(id)) break;
    if (sentinels.includes(id)) {
      current = answers.get(id) ?? [];
      answers.set(id, current);
    } else current?.push(id);
  }
  return answers;
}

export interface Piece {
  ids: number[];
  isNew: boolean;
}

/** The text with the answers in the places of the hidden runs. */
export function fillIn(
  ids: readonly number[],
  runs: readonly Word[],
  marks: readonly number[],
  answers: ReadonlyMap<number, number[]>,
): Piece[] {
  const pieces: Piece[] = [];
  let from = 0;
  runs.forEach((run, i) => {
    pieces.push({ ids: ids.slice(from, run.start), isNew: false });
    pieces.push({ ids: answers.get(marks[i]) ?? [], isNew: true });
    from = run.end;
  });
  pieces.push({ ids: ids.slice(from), isNew: false });
  return pieces.filter((piece) => piece.ids.length || piece.isNew);
}

/** What was written, without the ids that only begin or end a text. */
export function bareText(manifest: Manifest, outputs: readonly number[]): number[] {
  const bare = [...outputs];
  if (bare.length && bare[0] === manifest.first) bare.shift();
  const last = bare[bare.length - 1];
  if (bare.length && (manifest.ends.includes(last) || last === manifest.last)) bare.pop();
  return bare;
}
