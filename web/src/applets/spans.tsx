/** Hidden runs of words, written anew by an encoder-decoder. */

import { useMemo, useRef, useState } from "preact/hooks";
import { Attention } from "../components/Attention";
import { Button, SentenceBox } from "../components/Field";
import { Fault, LoadStatus, ModelChooser, Note, Probability } from "../components/Model";
import { count } from "../format";
import { announce, stateOf, useLatest, useModel } from "../hooks";
import { type Block, type DecoderReading, type Model, row } from "../model";
import { argmax, ban, likeliest, softmax } from "../sampling";
import {
  type Piece,
  bareText,
  fillIn,
  forcedOutput,
  hideRuns,
  isComplete,
  readAnswers,
  standIns,
} from "../spans";
import type { Manifest } from "../types";
import { type Word, groupWords, hiddenRuns } from "../words";
import { WordButtons, describeText, toggled } from "./masks";

const BEST = 5;

export function canInfill(model: Manifest): boolean {
  const hasMarks = model.sentinels.length > 0 || model.mask !== null;
  return model.kind === "seq2seq" && model.start !== null && hasMarks;
}

/** One written token, and what else might have been. */
interface Step {
  id: number;
  isForced: boolean;
  best: { id: number; probability: number }[];
}

async function writeToken(model: Model, states: Block, outputs: number[]) {
  const { manifest } = model;
  const reading = await model.decode([manifest.start!, ...outputs], states);
  const logits = ban(row(reading.logits, outputs.length), manifest.banned);
  const probabilities = softmax(logits);
  const forced = forcedOutput(manifest, outputs.length);
  const best = likeliest(probabilities, BEST);
  const step: Step = {
    id: forced ?? argmax(logits),
    isForced: forced !== null,
    best: best.map((id) => ({ id, probability: probabilities[id] })),
  };
  return { step, reading };
}

/** The text as the encoder reads it. */
function readSource(
  model: Model | null,
  text: string,
  hidden: ReadonlySet<number> | null,
) {
  if (!model) return null;
  const all = model.tokenizer.encode(text);
  const ids = all.slice(0, Math.max(0, model.room));
  const words = groupWords(ids, model.manifest.word_starts);
  const middle = Math.floor(words.length / 2);
  const chosen = hidden ?? new Set(words.length > 2 ? [middle - 1, middle] : []);
  const runs = hiddenRuns(words, chosen);
  const marks = standIns(model.manifest, runs.length);
  const source = model.wrap(hideRuns(ids, runs.slice(0, marks.length), marks));
  return {
    ids,
    words,
    runs,
    marks,
    source,
    hidden: chosen,
    left: all.length - ids.length,
  };
}

export function Spans({ models }: { models: Manifest[] }) {
  const [name, setName] = useState(models[0].name);
  const manifest = models.find((model) => model.name === name)!;
  const [text, setText] = useState(manifest.examples[0] ?? "");
  const [chosen, setChosen] = useState<ReadonlySet<number> | null>(null);
  const [steps, setSteps] = useState<Step[]>([]);
  const [reading, setReading] = useState<DecoderReading | null>(null);
  const [isWriting, setWriting] = useState(false);
  const [fault, setFault] = useState("");
  const run = useRef(0); // a new source stops what is being written
  const loading = useModel(manifest);
  const { model } = loading;
  const source = useMemo(() => readSource(model, text, chosen), [model, text, chosen]);
  const isTooMany = source !== null && source.runs.length > source.marks.length;
  const canRun = source !== null && source.source.length > 0 && !isTooMany;
  const key = canRun ? `${name} ${source.source.join(" ")}` : null;
  const latest = useLatest(key, () => model!.encode(source!.source));
  const outputs = steps.map((step) => step.id);
  const isDone = isComplete(manifest, outputs);

  const restart = () => {
    run.current++;
    setSteps([]);
    setReading(null);
    setWriting(false);
    setFault("");
  };
  const write = async (most: number) => {
    const mine = ++run.current;
    let own = steps;
    setWriting(true);
    try {
      for (let i = 0; i < most; i++) {
        const before = own.map((step) => step.id);
        if (isComplete(manifest, before)) break;
        const found = await writeToken(model!, latest.value!.states, before);
        if (run.current !== mine) return;
        own = [...own, found.step];
        setSteps(own);
        setReading(found.reading);
      }
      announce(`Written: ${own.map((step) => manifest.tokens[step.id]).join(" ")}`);
    } catch (error) {
      setFault(`The run failed: ${error}`);
    }
    setWriting(false);
  };
  const isStuck = !latest.isCurrent || !latest.value || isWriting || isDone;
  const state = stateOf(loading, ...(key ? [latest] : []));
  return (
    <section
      data-applet="spans"
      data-state={isWriting ? "busy" : state}
      data-ids={source?.source.join(" ") ?? ""}
      data-decoder-ids={[manifest.start!, ...outputs].join(" ")}
      data-done={isDone}
      data-model={name}
    >
      <h2>Filling gaps of several words</h2>
      <p class="lead">
        Hide one or more runs of words. One half of the model reads what is left, and the
        other writes, token by token, what it thinks was there.
      </p>
      <div class="controls">
        <ModelChooser
          id="spans-model"
          models={models}
          chosen={name}
          onChoose={(next) => {
            setName(next);
            setChosen(null);
            restart();
          }}
        />
      </div>
      <SentenceBox
        id="spans-text"
        label="Sentence"
        value={text}
        examples={manifest.examples}
        onChange={(next) => {
          setText(next);
          setChosen(null);
          restart();
        }}
      />
      <LoadStatus loading={loading} />
      <Fault text={latest.fault || fault} />
      <Note text={describeText(model, text, source?.left ?? 0)} />
      {isTooMany && (
        <Note
          text={`This model knows only ${count(source.marks.length, "gap")}; show some words again.`}
        />
      )}
      {model && source && source.words.length > 0 && (
        <>
          <h3>Press words to hide them</h3>
          <WordButtons
            id="spans-words"
            {...{ model, ids: source.ids, words: source.words, hidden: source.hidden }}
            onToggle={(i) => {
              setChosen(toggled(source.hidden, i));
              restart();
            }}
          />
          <h3>What the model reads</h3>
          <p class="hint">
            {manifest.sentinels.length
              ? `Each gap has a sign of its own, such as ${manifest.tokens[manifest.sentinels[0]]}. The model writes this sign and then what it thinks belongs there.`
              : `Each gap is one ${manifest.tokens[manifest.mask!]}. The model writes the whole sentence anew.`}
          </p>
          <Chips manifest={manifest} ids={source.source} special={source.marks} />
          <div class="buttons">
            <Button id="spans-next" isMain isOff={isStuck} onPress={() => write(1)}>
              Next token
            </Button>
            <Button
              id="spans-run"
              isOff={isStuck}
              onPress={() => write(manifest.max_length)}
            >
              Run all
            </Button>
            <Button id="spans-restart" isOff={!steps.length} onPress={restart}>
              Start again
            </Button>
          </div>
        </>
      )}
      {steps.length > 0 && <Steps manifest={manifest} steps={steps} />}
      {model && source && isDone && <Result {...{ model, source, outputs }} />}
      {reading && source && reading.crossAttentions.dims[3] === source.source.length && (
        <>
          <h3>What each written token looked at in the sentence</h3>
          <Attention
            id="spans-attention"
            across
            block={reading.crossAttentions}
            rows={outputs
              .slice(0, reading.crossAttentions.dims[2])
              .map((id) => manifest.tokens[id])}
            columns={source.source.map((id) => manifest.tokens[id])}
          />
        </>
      )}
    </section>
  );
}

function Chips(props: { manifest: Manifest; ids: number[]; special: number[] }) {
  const { manifest, ids, special } = props;
  return (
    <p class="chips" id="spans-source">
      {ids.map((id, i) => (
        <span key={i} class={`chip plain ${special.includes(id) ? "gap" : ""}`}>
          {manifest.tokens[id]}
        </span>
      ))}
    </p>
  );
}

function Steps({ manifest, steps }: { manifest: Manifest; steps: Step[] }) {
  return (
    <>
      <h3>What the model writes</h3>
      <div
        class={steps.length > 15 ? "tall" : ""}
        role="region"
        aria-label="Written tokens and what else was likely"
        tabIndex={steps.length > 15 ? 0 : undefined}
      >
        <ol class="guesses" id="spans-steps">
          {steps.map((step, i) => (
            <li key={i} data-step={i} data-written={step.id} data-forced={step.isForced}>
              <h4>
                {i + 1}. <span class="token">{manifest.tokens[step.id]}</span>
              </h4>
              {step.isForced && <p class="hint">This model must begin or end so.</p>}
              <ol class="fills">
                {step.best.map(({ id, probability }) => (
                  <li key={id} class={id === step.id ? "truth" : ""}>
                    <span class="token">{manifest.tokens[id]}</span>{" "}
                    <Probability
                      value={probability}
                      token={id}
                      position={i}
                      when="step"
                    />
                  </li>
                ))}
              </ol>
            </li>
          ))}
        </ol>
      </div>
    </>
  );
}

/** The sentence with what was written; a model without numbered gaps writes all of it. */
function Result(props: {
  model: Model;
  source: { ids: number[]; runs: Word[]; marks: number[] };
  outputs: number[];
}) {
  const { model, source, outputs } = props;
  const { manifest, tokenizer } = model;
  const { sentinels, ends } = manifest;
  const pieces: Piece[] = sentinels.length
    ? fillIn(source.ids, source.runs, source.marks, readAnswers(outputs, sentinels, ends))
    : [{ ids: bareText(manifest, outputs), isNew: true }];
  const text = tokenizer.decode(pieces.flatMap((piece) => piece.ids));
  return (
    <>
      <h3>
        {sentinels.length
          ? "The sentence filled in"
          : "The sentence as the model wrote it"}
      </h3>
      <p class="chips result" id="spans-result" data-text={text}>
        {pieces.map((piece, i) =>
          piece.isNew && sentinels.length ? (
            <mark key={i}>
              {piece.ids.length ? tokenizer.decode(piece.ids) : "(nothing)"}
            </mark>
          ) : (
            <span key={i}>{tokenizer.decode(piece.ids)}</span>
          ),
        )}
      </p>
    </>
  );
}
