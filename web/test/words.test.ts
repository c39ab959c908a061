import assert from "node:assert/strict";
import { test } from "node:test";
import { NO_SCORE, addRound, judge } from "../src/score";
import {
  bareText,
  fillIn,
  forcedOutput,
  hideRuns,
  isComplete,
  readAnswers,
  standIns,
} from "../src/spans";
import type { Manifest } from "../src/types";
import { countSteps, keepSurest, tryToken } from "../src/unmask";
import { groupWords, hiddenPositions, hiddenRuns, putAt } from "../src/words";

// Ids 0 and 1 begin words, 2 and 3 do not.
const STARTS = "1100";

test("words begin where ids say so, and the first token always does", () => {
  assert.deepEqual(groupWords([2, 3, 0, 2, 1], STARTS), [
    { start: 0, end: 2 },
    { start: 2, end: 4 },
    { start: 4, end: 5 },
  ]);
  assert.deepEqual(groupWords([], STARTS), []);
});

test("hidden words hide all of their tokens", () => {
  const words = groupWords([0, 2, 1, 0, 3], STARTS);
  const positions = hiddenPositions(words, new Set([0, 2]));
  assert.deepEqual(positions, [0, 1, 3, 4]);
  assert.deepEqual(putAt([0, 2, 1, 0, 3], positions, 9), [9, 9, 1, 9, 9]);
});

test("neighbouring hidden words are one run", () => {
  const words = groupWords([0, 2, 1, 0, 3, 1], STARTS);
  assert.deepEqual(hiddenRuns(words, new Set([0, 1, 3])), [
    { start: 0, end: 3 },
    { start: 5, end: 6 },
  ]);
});

const t5 = {
  sentinels: [99, 98],
  mask: 5,
  max_length: 6,
  first: null,
  last: null,
  ends: [1],
} as unknown as Manifest;
const bart = { ...t5, sentinels: [], first: 7, last: 1 } as unknown as Manifest;

test("runs become sentinels in order, or a mask each", () => {
  const runs = [
    { start: 1, end: 3 },
    { start: 4, end: 5 },
  ];
  assert.deepEqual(
    hideRuns([10, 11, 12, 13, 14], runs, standIns(t5, 2)),
    [10, 99, 13, 98],
  );
  assert.deepEqual(
    hideRuns([10, 11, 12, 13, 14], runs, standIns(bart, 2)),
    [10, 5, 13, 5],
  );
  assert.equal(standIns(t5, 3).length, 2);
});

test("answers are put back in the places of the gaps", () => {
  const answers = readAnswers([99, 20, 21, 98, 1, 30], [99, 98], [1]);
  assert.deepEqual(
    [...answers],
    [
      [99, [20, 21]],
      [98, []],
    ],
  );
  const runs = [
    { start: 1, end: 3 },
    { start: 4, end: 5 },
  ];
  const pieces = fillIn([10, 11, 12, 13, 14], runs, [99, 98], answers);
  assert.deepEqual(
    pieces.flatMap((piece) => piece.ids),
    [10, 20, 21, 13],
  );
  assert.deepEqual(
    pieces.map((piece) => piece.isNew),
    [false, true, false, true],
  );
});

test("outputs are forced first and at the longest length, and end at an end", () => {
  assert.equal(forcedOutput(bart, 0), 7);
  assert.equal(forcedOutput(bart, 5), 1);
  assert.equal(forcedOutput(bart, 3), null);
  assert.equal(forcedOutput(t5, 0), null);
  assert.equal(isComplete(t5, []), false);
  assert.equal(isComplete(t5, [2, 1]), true);
  assert.equal(isComplete(t5, [2, 2, 2, 2, 2, 2]), true);
  assert.deepEqual(bareText(bart, [7, 20, 21, 1]), [20, 21]);
});

test("steps are as even as can be, the larger first", () => {
  assert.deepEqual(countSteps(7, 3), [3, 2, 2]);
  assert.deepEqual(countSteps(4, 4), [1, 1, 1, 1]);
});

test("the surest tokens stay; of equals the first position", () => {
  const tried = [0.2, 0.9, 0.9, 0.1].map((confidence, position) => ({
    position,
    id: 1,
    confidence,
  }));
  assert.deepEqual(
    keepSurest(tried, 1).map((each) => each.position),
    [1],
  );
  assert.deepEqual(
    keepSurest(tried, 3).map((each) => each.position),
    [1, 2, 0],
  );
});

test("confidence is that of the model, whatever the temperature", () => {
  const logits = [0.5, 0.3, 0.2].map(Math.log);
  const greedy = { temperature: 0, topK: 0, topP: 1 };
  const best = tryToken(logits, 4, [0], greedy, Math.random);
  assert.equal(best.id, 1);
  assert.ok(Math.abs(best.confidence - 0.6) < 1e-9);
  const hot = tryToken(logits, 4, [0], { ...greedy, temperature: 2 }, () => 0.99);
  assert.equal(hot.id, 2);
  assert.ok(Math.abs(hot.confidence - 0.4) < 1e-9);
});

test("marks are judged against the truth, and rounds add up", () => {
  const isFake = [true, true, false, false];
  const mine = [true, false, true, false];
  assert.deepEqual(judge(isFake, mine), { hits: 1, alarms: 1, right: 2 });
  const once = addRound(NO_SCORE, isFake, mine, isFake);
  const twice = addRound(once, isFake, mine, isFake);
  assert.deepEqual([twice.rounds, twice.tokens, twice.fakes], [2, 8, 4]);
  assert.deepEqual(twice.player, { hits: 2, alarms: 2, right: 4 });
  assert.deepEqual(twice.model, { hits: 4, alarms: 0, right: 8 });
});
