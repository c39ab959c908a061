import assert from "node:assert/strict";
import { test } from "node:test";
import { choose, seeded } from "../src/random";
import {
  BANNED,
  CUT_BY_TOP_K,
  CUT_BY_TOP_P,
  KEPT,
  argmax,
  ban,
  decide,
  draw,
  likeliest,
  softmax,
} from "../src/sampling";

const logits = [0.5, 0.3, 0.15, 0.05].map(Math.log);
const open = { temperature: 1, topK: 0, topP: 1 };

function near(found: ArrayLike<number>, wanted: number[]): void {
  assert.equal(found.length, wanted.length);
  wanted.forEach((value, i) =>
    assert.ok(Math.abs(found[i] - value) < 1e-9, `${found[i]} at ${i}`),
  );
}

test("without settings the probabilities are the model's own", () => {
  const { before, after, fate, cut } = decide(logits, [], open);
  near(before, [0.5, 0.3, 0.15, 0.05]);
  near(after, [0.5, 0.3, 0.15, 0.05]);
  assert.deepEqual([...fate], [KEPT, KEPT, KEPT, KEPT]);
  assert.deepEqual([cut.topK.count, cut.topP.count], [0, 0]);
});

test("banned ids have no probability before or after", () => {
  const { before, after, fate } = decide(logits, [0], open);
  near(before, [0, 0.6, 0.3, 0.1]);
  near(after, [0, 0.6, 0.3, 0.1]);
  assert.equal(fate[0], BANNED);
});

test("temperature 0 takes the likeliest; of equals the first", () => {
  near(decide([1, 3, 3, 2], [], { ...open, temperature: 0 }).after, [0, 1, 0, 0]);
  near(decide([1, 3, 3, 2], [1], { ...open, temperature: 0 }).after, [0, 0, 1, 0]);
});

test("a temperature divides the logits", () => {
  const squares = [0.25, 0.09, 0.0225, 0.0025];
  const sum = squares.reduce((a, b) => a + b);
  near(
    decide(logits, [], { ...open, temperature: 0.5 }).after,
    squares.map((p) => p / sum),
  );
});

test("top-k keeps the k best; of equals the lower id", () => {
  const { after, fate, cut } = decide([1, 2, 1, 1], [], { ...open, topK: 2 });
  assert.deepEqual([...fate], [KEPT, KEPT, CUT_BY_TOP_K, CUT_BY_TOP_K]);
  near(after, [1 / (1 + Math.E), Math.E / (1 + Math.E), 0, 0]);
  assert.equal(cut.topK.count, 2);
});

test("top-k above the number of tokens keeps all", () => {
  near(decide(logits, [], { ...open, topK: 50 }).after, [0.5, 0.3, 0.15, 0.05]);
});

test("top-p keeps where the sum before a token is below p", () => {
  const { after, fate, cut } = decide(logits, [], { ...open, topP: 0.6 });
  near(after, [0.625, 0.375, 0, 0]);
  assert.deepEqual([...fate], [KEPT, KEPT, CUT_BY_TOP_P, CUT_BY_TOP_P]);
  assert.ok(Math.abs(cut.topP.probability - 0.2) < 1e-9);
});

test("top-p always keeps the best", () => {
  near(decide(logits, [], { ...open, topP: 0.05 }).after, [1, 0, 0, 0]);
});

test("top-p is taken of what top-k keeps", () => {
  // Of the two best, 0.625 and 0.375: the first alone reaches 0.6.
  const { fate, cut } = decide(logits, [], { ...open, topK: 2, topP: 0.6 });
  assert.deepEqual([...fate], [KEPT, CUT_BY_TOP_P, CUT_BY_TOP_K, CUT_BY_TOP_K]);
  assert.ok(Math.abs(cut.topK.probability - 0.2) < 1e-9);
  assert.ok(Math.abs(cut.topP.probability - 0.3) < 1e-9);
});

test("draw follows the cumulative probabilities and skips what cannot be", () => {
  const given = [0, 0.25, 0, 0.75, 0];
  assert.deepEqual(
    [0, 0.249, 0.25, 0.999, 1].map((r) => draw(given, r)),
    [1, 1, 3, 3, 3],
  );
});

test("likeliest leaves out what cannot be", () => {
  assert.deepEqual(likeliest(softmax(ban([1, 2, 3, 2], [2])), 5), [1, 3, 0]);
});

test("argmax of equals is the first", () => assert.equal(argmax([-Infinity, 2, 2]), 1));

test("a seed repeats its numbers, and another gives others", () => {
  const three = (seed: number) => Array.from({ length: 3 }, seeded(seed));
  assert.deepEqual(three(5), three(5));
  assert.notDeepEqual(three(5), three(6));
  assert.ok(three(7).every((value) => value >= 0 && value < 1));
});

test("choose gives different numbers in order, each as likely as another", () => {
  const random = seeded(1);
  const seen = new Array(6).fill(0);
  for (let i = 0; i < 3000; i++) {
    const found = choose([0, 1, 2, 3, 4, 5], 2, random);
    assert.ok(found.length === 2 && found[0] < found[1]);
    for (const each of found) seen[each]++;
  }
  assert.ok(
    seen.every((times) => Math.abs(times - 1000) < 120),
    seen.join(" "),
  );
});
