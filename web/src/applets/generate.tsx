/** Writing from left to right, one token at a time. */

import { useMemo, useRef, useState } from "preact/hooks";
import { Button, Slider, TextBox } from "../components/Field";
import { Fault, LoadStatus, ModelChooser, Note } from "../components/Model";
import { Bars, CutSummary } from "../components/Bars";
import { count } from "../format";
import { announce, stateOf, useLatest, useModel } from "../hooks";
import { type Model, row } from "../model";
import { type Choice, type Settings, argmax, decide, draw } from "../sampling";
import type { Manifest } from "../types";

const MORE = 20;

export function canGenerate(model: Manifest): boolean {
  const isLeftToRight = model.kind === "causal" || model.kind === "prefix";
  return isLeftToRight && model.writes === "left_to_right";
}

/** What a model reads for a prompt and what was written after it. */
function readContext(model: Model, prompt: string, written: number[]) {
  const asked = model.tokenizer.encode(prompt);
  const first = asked.length ? model.wrap(asked) : model.manifest.before;
  return { first, ids: [...first, ...written] };
}

/** The logits of the token behind ids, of which a prefix may see all of itself. */
async function readNext(
  model: Model,
  ids: number[],
  prompt: number,
): Promise<Float32Array> {
  const prefix = model.manifest.generation_prefix === "prompt" ? prompt : 0;
  const { logits } = await model.read(ids, prefix);
  return row(logits, ids.length - 1);
}

/** Why nothing more can be written, or "". */
function findStop(manifest: Manifest, ids: number[], hasWritten: boolean): string {
  const last = ids[ids.length - 1];
  if (hasWritten && manifest.ends.includes(last)) {
    return `The model ended its text here, with ${manifest.tokens[last]}.`;
  }
  if (ids.length >= manifest.max_length) {
    return `This is the end: the model reads at most ${count(manifest.max_length, "token")}.`;
  }
  return "";
}

export function Generate({ models }: { models: Manifest[] }) {
  const [name, setName] = useState(models[0].name);
  const [besideName, setBeside] = useState("");
  const [prompt, setPrompt] = useState(() => openingOf(models[0]));
  const [history, setHistory] = useState<number[][]>([]);
  const [isWriting, setWriting] = useState(false);
  const [settings, setSettings] = useState<Settings>({
    temperature: 1,
    topK: 0,
    topP: 1,
  });
  const [fault, setFault] = useState("");
  const run = useRef(0); // a new text stops one that is being written
  const manifest = models.find((model) => model.name === name)!;
  const loading = useModel(manifest);
  const { model } = loading;

  const written = history[history.length - 1] ?? [];
  const { first, ids } = useMemo(
    () => (model ? readContext(model, prompt, written) : { first: [], ids: [] }),
    [model, prompt, written],
  );
  const isTooLong = first.length > manifest.max_length;
  const canRead = model !== null && ids.length > 0 && !isTooLong;
  const key = canRead ? `${name} ${first.length} ${ids.join(" ")}` : null;
  const latest = useLatest(key, async () => ({
    logits: await readNext(model!, ids, first.length),
    of: manifest,
  }));
  // The last bars stay while the next are computed, unless they are of another model.
  const known = latest.value?.of === manifest ? latest.value.logits : null;
  const choice = useMemo(
    () => known && decide(known, manifest.banned, settings),
    [known, settings],
  );
  const stop = isTooLong ? "" : findStop(manifest, ids, written.length > 0);

  const start = (text = prompt) => {
    run.current++;
    setPrompt(text);
    setHistory([]);
    setWriting(false);
    setFault("");
  };
  const take = (id: number) => {
    setHistory([...history, [...written, id]]);
    announce(`Added ${manifest.tokens[id]}.`);
  };
  const writeMore = async () => {
    const mine = ++run.current;
    const earlier = history;
    let own = written;
    setWriting(true);
    try {
      for (let i = 0; i < MORE; i++) {
        if (findStop(manifest, [...first, ...own], own.length > 0)) break;
        const logits = await readNext(model!, [...first, ...own], first.length);
        if (run.current !== mine) return;
        own = [
          ...own,
          draw(decide(logits, manifest.banned, settings).after, Math.random()),
        ];
        setHistory([...earlier, own]); // one step to undo
      }
    } catch (error) {
      setFault(`The run failed: ${error}`);
    }
    setWriting(false);
    announce(`Added ${count(own.length - written.length, "token")}.`);
  };
  const state = stateOf(loading, ...(key ? [latest] : []));
  const isStopped = stop !== "" || !choice || !latest.isCurrent || isWriting;
  return (
    <section
      data-applet="generate"
      data-state={isWriting ? "busy" : state}
      data-ids={ids.join(" ")}
      data-prompt-length={first.length}
      data-model={name}
    >
      <h2>Writing, one token at a time</h2>
      <p class="lead">
        The model gives every possible next token a probability, and one of them is drawn.
        Change how it is drawn, or choose yourself, and see where the text goes.
      </p>
      <div class="controls">
        <ModelChooser
          id="generate-model"
          models={models}
          chosen={name}
          onChoose={(chosen) => {
            setName(chosen);
            setBeside("");
            start();
          }}
        />
        {models.length > 1 && (
          <ModelChooser
            id="generate-beside"
            label="A second model beside it"
            none="none"
            models={models.filter((other) => other.name !== name)}
            chosen={besideName}
            onChoose={setBeside}
          />
        )}
      </div>
      <TextBox
        id="generate-prompt"
        label="Beginning of the text"
        value={prompt}
        onChange={start}
      />
      <LoadStatus loading={loading} />
      <Fault text={latest.fault || fault} />
      <Note text={describePrompt(model, prompt, first, isTooLong)} />
      <div class="sliders">
        <Slider
          id="generate-temperature"
          label="Temperature"
          hint="Low: the likeliest tokens only. High: more surprises."
          {...{ min: 0, max: 2, step: 0.05, value: settings.temperature }}
          onChange={(temperature) => setSettings({ ...settings, temperature })}
        />
        <Slider
          id="generate-top-k"
          label="Top-k"
          hint="Keep only the k likeliest tokens; 0 keeps all."
          {...{ min: 0, max: 50, step: 1, value: settings.topK }}
          onChange={(topK) => setSettings({ ...settings, topK })}
        />
        <Slider
          id="generate-top-p"
          label="Top-p"
          hint="Keep the fewest tokens that together have this probability; 1 keeps all."
          {...{ min: 0.05, max: 1, step: 0.01, value: settings.topP }}
          onChange={(topP) => setSettings({ ...settings, topP })}
        />
      </div>
      <div class="buttons">
        <Button
          id="generate-sample"
          isMain
          isOff={isStopped}
          onPress={() => take(draw(choice!.after, Math.random()))}
        >
          Sample a token
        </Button>
        <Button
          id="generate-likeliest"
          isOff={isStopped}
          onPress={() => take(argmax(choice!.before))}
        >
          Take the likeliest
        </Button>
        <Button id="generate-more" isOff={isStopped} onPress={writeMore}>
          Write {MORE} more
        </Button>
        <Button
          id="generate-undo"
          isOff={!history.length || isWriting}
          onPress={() => setHistory(history.slice(0, -1))}
        >
          Undo
        </Button>
        <Button id="generate-restart" isOff={!history.length} onPress={() => start()}>
          Start again
        </Button>
      </div>
      <h3>The text so far</h3>
      <p
        class="chips"
        id="generate-text"
        data-text={model ? model.tokenizer.decode(ids) : ""}
      >
        {ids.map((id, i) => (
          <span key={i} class={`chip plain ${i >= first.length ? "new" : ""}`}>
            {manifest.tokens[id]}
          </span>
        ))}
        {!ids.length && <span class="hint">Type a beginning above.</span>}
      </p>
      {stop && (
        <p class="stop" id="generate-stop" role="status">
          {stop}
        </p>
      )}
      {!stop && choice && (
        <div class="columns">
          <NextToken
            id="generate-next"
            manifest={manifest}
            choice={choice}
            settings={settings}
            onTake={(id) => !isStopped && take(id)}
          />
          {besideName && model && (
            <Beside
              key={besideName}
              manifest={models.find((other) => other.name === besideName)!}
              main={model}
              {...{ first, written, prompt, settings }}
            />
          )}
        </div>
      )}
    </section>
  );
}

function NextToken(props: {
  id: string;
  manifest: Manifest;
  choice: Choice;
  settings: Settings;
  onTake?: (id: number) => void;
}) {
  const { id, manifest, choice, settings, onTake } = props;
  return (
    <div class="next">
      <h3>The next token, by {manifest.name}</h3>
      <CutSummary id={`${id}-cut`} choice={choice} settings={settings} />
      <Bars id={`${id}-bars`} choice={choice} tokens={manifest.tokens} onTake={onTake} />
    </div>
  );
}

/** What another model says of the same text, which it may cut into other tokens. */
function Beside(props: {
  manifest: Manifest;
  main: Model;
  first: number[];
  written: number[];
  prompt: string;
  settings: Settings;
}) {
  const { manifest, main, written, prompt, settings } = props;
  const loading = useModel(manifest);
  const { model } = loading;
  const hasSameTokens = model && sameTokens(manifest, main.manifest);
  const context = useMemo(() => {
    if (!model) return { first: [], ids: [] };
    if (hasSameTokens) return readContext(model, prompt, written);
    // The text is read anew, as a token of one model is none of the other.
    return readContext(model, prompt + main.tokenizer.decode(written), []);
  }, [model, prompt, written]);
  const { first, ids } = context;
  const fits = ids.length > 0 && ids.length <= manifest.max_length;
  const key = model && fits ? `${manifest.name} ${first.length} ${ids.join(" ")}` : null;
  const latest = useLatest(key, () => readNext(model!, ids, first.length));
  const choice = latest.value && decide(latest.value, manifest.banned, settings);
  return (
    <div
      class="beside"
      data-beside={manifest.name}
      data-state={stateOf(loading, ...(key ? [latest] : []))}
      data-ids={ids.join(" ")}
      data-prompt-length={first.length}
    >
      <LoadStatus loading={loading} />
      <Fault text={latest.fault} />
      {model && !fits && <Note text={`The text is too long for ${manifest.name}.`} />}
      {fits && choice && (
        <NextToken id="generate-beside-next" {...{ manifest, choice, settings }} />
      )}
    </div>
  );
}

export function sameTokens(one: Manifest, other: Manifest): boolean {
  return (
    one.tokens.length === other.tokens.length &&
    one.tokens.every((token, id) => token === other.tokens[id])
  );
}

/** The first words of an example, as a beginning to go on from. */
function openingOf(manifest: Manifest): string {
  const words = (manifest.examples[0] ?? "").trimStart().split(/(?=\s)/);
  return words.slice(0, 3).join("");
}

function describePrompt(
  model: Model | null,
  prompt: string,
  first: number[],
  isTooLong: boolean,
): string {
  if (!model) return "";
  const { name, max_length } = model.manifest;
  if (isTooLong) {
    return `This beginning has ${count(first.length, "token")}; ${name} reads at most ${max_length}. Make it shorter.`;
  }
  const unknown = model.tokenizer.countUnknown(prompt);
  return unknown
    ? `${name} does not know ${count(unknown, "character")} of this text.`
    : "";
}
