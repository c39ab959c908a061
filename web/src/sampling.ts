/** From logits to the next token, by the rules of `jaxpt generate`. */

export interface Settings {
  temperature: number;
  topK: number; // 0 keeps all
  topP: number; // 1 keeps all
}

export const KEPT = 0;
export const CUT_BY_TOP_K = 1;
export const CUT_BY_TOP_P = 2;
export const BANNED = 3;

export interface Choice {
  before: Float64Array; // the model's own probabilities, at temperature 1
  after: Float64Array; // those that a token is drawn from
  fate: Uint8Array; // why a token can or cannot be drawn
  cut: { topK: Loss; topP: Loss };
}

/** How many tokens a setting cuts off, and their probability after the temperature. */
export interface Loss {
  count: number;
  probability: number;
}

/** Logits where some ids cannot be. */
export function ban(logits: ArrayLike<number>, banned: Iterable<number>): Float64Array {
  const out = Float64Array.from(logits);
  for (const id of banned) if (id < out.length) out[id] = -Infinity;
  return out;
}

export function softmax(logits: ArrayLike<number>): Float64Array {
  const out = Float64Array.from(logits);
  let largest = -Infinity;
  for (const value of out) largest = Math.max(largest, value);
  let sum = 0;
  for (let i = 0; i < out.length; i++) sum += out[i] = Math.exp(out[i] - largest);
  for (let i = 0; i < out.length; i++) out[i] /= sum;
  return out;
}

/** The id of the greatest value; of equals the first. */
export function argmax(values: ArrayLike<number>): number {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}

/** All ids, the greatest value first; of equals the lower id first. */
export function rank(values: ArrayLike<number>): number[] {
  const ids = Array.from({ length: values.length }, (_, i) => i);
  return ids.sort((a, b) => compare(values[b], values[a]) || a - b);
}

// The difference of two minus infinities is not a number, so values are compared.
function compare(a: number, b: number): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** The `count` likeliest ids, without those that cannot be. */
export function likeliest(probabilities: ArrayLike<number>, count: number): number[] {
  return rank(probabilities)
    .slice(0, count)
    .filter((id) => probabilities[id] > 0);
}

/** What settings make of the next token's logits. */
export function decide(
  logits: ArrayLike<number>,
  banned: readonly number[],
  settings: Settings,
): Choice {
  const allowed = ban(logits, banned);
  const before = softmax(allowed);
  const fate = new Uint8Array(allowed.length);
  for (const id of banned) fate[id] = BANNED;
  const none = { count: 0, probability: 0 };
  if (settings.temperature === 0) {
    const after = new Float64Array(allowed.length);
    after[argmax(allowed)] = 1;
    return { before, after, fate, cut: { topK: none, topP: none } };
  }
  const largest = allowed[argmax(allowed)];
  const scaled = allowed.map((value) => (value - largest) / settings.temperature);
  const tempered = softmax(scaled);
  const order = rank(scaled).filter((id) => fate[id] !== BANNED);
  const topK = keepBest(order, fate, tempered, settings.topK);
  const kept = new Set(order.slice(0, order.length - topK.count));
  const limited = scaled.map((value, id) => (kept.has(id) ? value : -Infinity));
  const topP = keepNucleus(order, fate, tempered, softmax(limited), settings.topP);
  const last = scaled.map((value, id) => (fate[id] === KEPT ? value : -Infinity));
  return { before, after: softmax(last), fate, cut: { topK, topP } };
}

/** Marks what stands behind the k best. */
function keepBest(
  order: number[],
  fate: Uint8Array,
  share: Float64Array,
  k: number,
): Loss {
  const cut = k > 0 ? order.slice(k) : [];
  return mark(cut, fate, CUT_BY_TOP_K, share);
}

/** Marks what stands behind the fewest tokens that hold probability p together. */
function keepNucleus(
  order: number[],
  fate: Uint8Array,
  share: Float64Array,
  probabilities: Float64Array,
  p: number,
): Loss {
  const cut: number[] = [];
  let sum = 0;
  for (const [place, id] of order.entries()) {
    if (fate[id] !== KEPT) continue;
    if (p < 1 && place > 0 && sum >= p) cut.push(id);
    sum += probabilities[id];
  }
  return mark(cut, fate, CUT_BY_TOP_P, share);
}

function mark(ids: number[], fate: Uint8Array, why: number, share: Float64Array): Loss {
  let probability = 0;
  for (const id of ids) {
    fate[id] = why;
    probability += share[id];
  }
  return { count: ids.length, probability };
}

/** The id where a random number in [0, 1) falls. */
export function draw(probabilities: ArrayLike<number>, random: number): number {
  let sum = 0;
  let last = 0;
  for (let id = 0; id < probabilities.length; id++) {
    if (probabilities[id] <= 0) continue;
    sum += probabilities[id];
    last = id;
    if (random < sum) return id;
  }
  return last; // the sum fell short of 1 by rounding
}
