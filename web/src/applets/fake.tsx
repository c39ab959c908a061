/** Finding the tokens that a generator rewrote, against the model that learnt to. */

import { useMemo, useState } from "preact/hooks";
import { Button, Choice, NumberField, TextBox } from "../components/Field";
import { Fault, LoadStatus, ModelChooser, Note, Probability } from "../components/Model";
import { Roving, type RovingItem } from "../components/Roving";
import { count, percent } from "../format";
import { announce, stateOf, useLatest, useModel } from "../hooks";
import { type Model, row } from "../model";
import { choose, seeded } from "../random";
import { decide, draw } from "../sampling";
import {
  NO_SCORE,
  type Score,
  type Tally,
  addRound,
  judge,
  keepScore,
  readScore,
} from "../score";
import type { Manifest } from "../types";
import { putAt } from "../words";
import { describeText, readText, toggled } from "./masks";

const SHARE = 0.15; // of the tokens that the generator rewrites, as in training

export function canSpot(model: Manifest): boolean {
  return model.kind === "electra" && model.mask !== null;
}

interface Round {
  ids: number[]; // the text as it was
  masked: number[]; // what the generator read
  rewritten: number[]; // what the discriminator read
  isFake: boolean[]; // of each token of the text
  probabilities: number[]; // that it was replaced, by the discriminator
}

async function playRound(model: Model, ids: number[], seed: number): Promise<Round> {
  const { mask, nonwords, before, after, fake_temperature } = model.manifest;
  const random = seeded(seed);
  const number = Math.max(1, Math.round(SHARE * ids.length));
  const hidden = choose(Array.from(ids.keys()), number, random);
  const masked = model.wrap(putAt(ids, hidden, mask!));
  const { logits } = await model.read(masked, masked.length);
  const written = [...ids];
  // As in training, so that the second model meets fakes like those it has learnt from.
  const settings = { temperature: fake_temperature, topK: 0, topP: 1 };
  for (const position of hidden) {
    const here = row(logits, position + before.length);
    written[position] = draw(decide(here, nonwords, settings).after, random());
  }
  const rewritten = model.wrap(written);
  const judged = await model.discriminate(rewritten);
  const scores = judged.logits.data.subarray(
    before.length,
    rewritten.length - after.length,
  );
  return {
    ...{ ids, masked, rewritten },
    isFake: ids.map((id, i) => id !== written[i]),
    probabilities: Array.from(scores, (logit) => 1 / (1 + Math.exp(-logit))),
  };
}

export function Fake({ models }: { models: Manifest[] }) {
  const [name, setName] = useState(models[0].name);
  const manifest = models.find((model) => model.name === name)!;
  const [text, setText] = useState(manifest.examples[0] ?? "");
  const [seed, setSeed] = useState(() => Math.floor(Math.random() * 1e6));
  const [marks, setMarks] = useState<ReadonlySet<number>>(new Set());
  const [isShown, setShown] = useState(false);
  const [score, setScore] = useState(readScore);
  const loading = useModel(manifest);
  const { model } = loading;
  const { ids, left } = useMemo(() => readText(model, text), [model, text]);
  const key = model && ids.length ? `${name} ${seed} ${ids.join(" ")}` : null;
  const latest = useLatest(key, () => playRound(model!, ids, seed));
  const round = latest.isCurrent ? latest.value : null;

  const restart = () => {
    setMarks(new Set());
    setShown(false);
  };
  const take = (sentence: string) => {
    setText(sentence);
    restart();
  };
  const show = () => {
    if (!round) return;
    const mine = round.ids.map((_, i) => marks.has(i));
    const next = addRound(
      score,
      round.isFake,
      mine,
      round.probabilities.map((p) => p > 0.5),
    );
    setShown(true);
    setScore(next);
    keepScore(next);
    const { hits } = judge(round.isFake, mine);
    announce(
      `You found ${hits} of ${count(round.isFake.filter(Boolean).length, "fake")}.`,
    );
  };
  return (
    <section
      data-applet="fake"
      data-state={stateOf(loading, ...(key ? [latest] : []))}
      data-ids={round?.rewritten.join(" ") ?? ""}
      data-generator-ids={round?.masked.join(" ") ?? ""}
      data-model={name}
      data-shown={isShown}
    >
      <h2>Spot the fake</h2>
      <p class="lead">
        A small model rewrote some tokens of this sentence, and a second one learnt to
        find them. Mark the tokens that you think are not the original, then compare.
      </p>
      <div class="controls">
        <ModelChooser
          id="fake-model"
          models={models}
          chosen={name}
          onChoose={(next) => {
            setName(next);
            restart();
          }}
        />
        <NumberField
          id="fake-seed"
          label="Number of the round"
          {...{ min: 0, max: 999999, step: 1, value: seed }}
          onChange={(next) => {
            setSeed(next);
            restart();
          }}
        />
      </div>
      <Sentence text={text} examples={manifest.examples} onChange={take} />
      <LoadStatus loading={loading} />
      <Fault text={latest.fault} />
      <Note text={describeText(model, text, left)} />
      {round && (
        <>
          <h3>Which tokens are fake?</h3>
          <Tokens
            {...{ manifest, round, marks, isShown }}
            onPress={(i) => setMarks(toggled(marks, i))}
          />
        </>
      )}
      <div class="buttons">
        <Button id="fake-show" isMain isOff={!round || isShown} onPress={show}>
          Show
        </Button>
        <Button
          id="fake-new"
          isOff={!model}
          onPress={() => {
            setSeed(Math.floor(Math.random() * 1e6));
            // The next sentence, as this one is now known; one's own stays.
            const place = manifest.examples.indexOf(text);
            const next = manifest.examples[(place + 1) % manifest.examples.length];
            take(place < 0 ? text : next);
          }}
        >
          New round
        </Button>
        <Button
          id="fake-forget"
          isOff={!score.rounds}
          onPress={() => {
            setScore(NO_SCORE);
            keepScore(NO_SCORE);
            announce("The score is forgotten.");
          }}
        >
          Forget the score
        </Button>
      </div>
      {round && isShown && <Verdict {...{ manifest, round, marks }} />}
      {score.rounds > 0 && <ScoreTable score={score} />}
    </section>
  );
}

/** The choice of a sentence, which is not shown, as it would give the fakes away. */
function Sentence(props: {
  text: string;
  examples: string[];
  onChange: (text: string) => void;
}) {
  const { text, examples, onChange } = props;
  const place = examples.indexOf(text);
  const options = examples.map((_, i) => ({
    value: String(i),
    text: `sentence ${i + 1} of ${examples.length}`,
  }));
  return (
    <div class="sentence">
      {examples.length > 0 && (
        <Choice
          id="fake-text-example"
          label="A sentence that the model has not seen"
          value={String(place)}
          options={place < 0 ? [{ value: "-1", text: "your own" }, ...options] : options}
          onChange={(i) => Number(i) >= 0 && onChange(examples[Number(i)])}
        />
      )}
      <details class="own" id="fake-own">
        <summary>Write your own sentence (this shows the original)</summary>
        <TextBox
          id="fake-text"
          label="Sentence before it is rewritten"
          value={text}
          onChange={onChange}
        />
      </details>
    </div>
  );
}

function Tokens(props: {
  manifest: Manifest;
  round: Round;
  marks: ReadonlySet<number>;
  isShown: boolean;
  onPress: (index: number) => void;
}) {
  const { manifest, round, marks, isShown, onPress } = props;
  const written = writtenIds(manifest, round);
  const items = written.map((id, i): RovingItem => {
    const classes = [
      marks.has(i) ? "marked" : "",
      isShown && round.isFake[i] ? "is-fake" : "",
    ];
    return {
      key: i,
      text: manifest.tokens[id],
      pressed: marks.has(i),
      class: classes.join(" "),
      disabled: isShown,
    };
  });
  return (
    <Roving
      id="fake-tokens"
      label="Tokens; press those that you think are fake"
      items={items}
      onPress={onPress}
    />
  );
}

function writtenIds(manifest: Manifest, round: Round): number[] {
  const begin = manifest.before.length;
  return round.rewritten.slice(begin, begin + round.ids.length);
}

/** Each token with the truth, the player's mark and the model's. */
function Verdict(props: {
  manifest: Manifest;
  round: Round;
  marks: ReadonlySet<number>;
}) {
  const { manifest, round, marks } = props;
  const written = writtenIds(manifest, round);
  const tokens = manifest.tokens;
  return (
    <>
      <h3>What was fake, and what the model thought</h3>
      <p class="hint">
        The model marks a token when it holds it for fake with more than 50 %. The bar
        below each token shows this probability.
      </p>
      <ul class="verdict" id="fake-verdict">
        {written.map((id, i) => {
          const p = round.probabilities[i];
          const place = manifest.before.length + i;
          return (
            <li
              key={i}
              class={round.isFake[i] ? "is-fake" : ""}
              data-fake={round.isFake[i]}
            >
              <span class="token">{tokens[id]}</span>
              {round.isFake[i] && <span class="was">was {tokens[round.ids[i]]}</span>}
              <span class="meter" aria-hidden="true">
                <span style={{ width: `${p * 100}%` }} />
              </span>
              <Probability value={p} token={id} position={place} when="fake" />
              <span class="outcome">{outcome(round.isFake[i], marks.has(i), "You")}</span>
              <span class="outcome">{outcome(round.isFake[i], p > 0.5, "Model")}</span>
            </li>
          );
        })}
      </ul>
    </>
  );
}

function outcome(isFake: boolean, isMarked: boolean, who: string): string {
  if (isFake) return isMarked ? `${who}: found ✓` : `${who}: missed ✗`;
  return isMarked ? `${who}: false alarm ✗` : "";
}

function ScoreTable({ score }: { score: Score }) {
  const line = (who: string, tally: Tally) => (
    <tr>
      <th scope="row">{who}</th>
      <td>
        {tally.hits} of {score.fakes}
      </td>
      <td>{tally.alarms}</td>
      <td>{percent(tally.right / score.tokens)}</td>
    </tr>
  );
  return (
    <table class="score" id="fake-score">
      <caption>Score after {count(score.rounds, "round")}</caption>
      <thead>
        <tr>
          <th scope="col">Who</th>
          <th scope="col">Fakes found</th>
          <th scope="col">False alarms</th>
          <th scope="col">Tokens judged rightly</th>
        </tr>
      </thead>
      <tbody>
        {line("You", score.player)}
        {line("The model", score.model)}
      </tbody>
    </table>
  );
}
