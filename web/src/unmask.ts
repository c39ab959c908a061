/** Writing by unmasking: at each step the surest of the tried tokens stay. */

import { argmax, ban, decide, draw, softmax, type Settings } from "./sampling";

export interface Tried {
  position: number;
  id: number;
  confidence: number;
}

/** How many tokens stay at each step, as even as can be, the larger first. */
export function countSteps(tokens: number, steps: number): number[] {
  const least = Math.floor(tokens / steps);
  const more = tokens % steps;
  return Array.from({ length: steps }, (_, i) => least + (i < more ? 1 : 0));
}

/** The token tried at a mask, and how sure the model is of it. */
export function tryToken(
  logits: ArrayLike<number>,
  position: number,
  never: readonly number[],
  settings: Settings,
  random: () => number,
): Tried {
  const allowed = ban(logits, never);
  const id =
    settings.temperature === 0
      ? argmax(allowed)
      : draw(decide(logits, never, settings).after, random());
  return { position, id, confidence: softmax(allowed)[id] };
}

/** The `count` surest; of equals the first position. */
export function keepSurest(tried: readonly Tried[], count: number): Tried[] {
  return [...tried]
    .sort((a, b) => b.confidence - a.confidence || a.position - b.position)
    .slice(0, count);
}
