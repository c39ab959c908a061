/** Writing in any order: all is hidden at first, and the surest tokens are settled. */

import { useMemo, useRef, useState } from "preact/hooks";
import { Button, NumberField, Slider, TextBox } from "../components/Field";
import { Fault, LoadStatus, ModelChooser, Note, Probability } from "../components/Model";
import { count } from "../format";
import { type State, announce, useModel } from "../hooks";
import { type Model, row } from "../model";
import type { Manifest } from "../types";
import { type Tried, countSteps, keepSurest, tryToken } from "../unmask";

export function canUnmask(model: Manifest): boolean {
  return model.writes === "unmasking" && model.mask !== null;
}

/** A position that is no longer hidden. */
interface Settled extends Tried {
  step: number;
}

/** The tokens that stay at one step. */
async function settle(
  model: Model,
  ids: number[],
  begin: number,
  temperature: number,
  number: number,
): Promise<Tried[]> {
  const { mask, banned, fill_offset } = model.manifest;
  const never = [...new Set([...banned, mask!])];
  const settings = { temperature, topK: 0, topP: 1 };
  const { logits } = await model.read(ids, ids.length);
  const tried: Tried[] = [];
  for (let position = begin; position < ids.length; position++) {
    if (ids[position] !== mask) continue;
    const given = row(logits, position - fill_offset);
    tried.push(tryToken(given, position, never, settings, Math.random));
  }
  return keepSurest(tried, number);
}

export function Unmask({ models }: { models: Manifest[] }) {
  const [name, setName] = useState(models[0].name);
  const manifest = models.find((model) => model.name === name)!;
  const [prompt, setPrompt] = useState(() => openingOf(models[0]));
  const [asked, setAsked] = useState({ tokens: 20, steps: 10 });
  const [temperature, setTemperature] = useState(0);
  const [settled, setSettled] = useState<Settled[]>([]);
  const [done, setDone] = useState(0); // steps
  const [isRunning, setRunning] = useState(false);
  const [fault, setFault] = useState("");
  const run = useRef(0); // a new start stops a run
  const loading = useModel(manifest);
  const { model } = loading;
  const first = useMemo(() => {
    const ids = model?.tokenizer.encode(prompt) ?? [];
    return model && ids.length ? model.wrap(ids) : [];
  }, [model, prompt]);
  const room = manifest.max_length - first.length;
  const tokens = Math.max(0, Math.min(asked.tokens, room));
  const steps = Math.min(asked.steps, tokens);
  const ids = [...first, ...new Array<number>(tokens).fill(manifest.mask!)];
  for (const { position, id } of settled) ids[position] = id;

  const restart = () => {
    run.current++;
    setSettled([]);
    setDone(0);
    setRunning(false);
    setFault("");
  };
  const go = async (most: number) => {
    const mine = ++run.current;
    const numbers = countSteps(tokens, steps);
    let [own, step, current] = [settled, done, ids];
    setRunning(true);
    try {
      for (let i = 0; i < most && step < steps; i++, step++) {
        const kept = await settle(
          model!,
          current,
          first.length,
          temperature,
          numbers[step],
        );
        if (run.current !== mine) return;
        own = [...own, ...kept.map((tried) => ({ ...tried, step: step + 1 }))];
        current = [...current];
        for (const { position, id } of kept) current[position] = id;
        setSettled(own);
        setDone(step + 1);
      }
      announce(`${count(own.length, "token")} of ${tokens} settled.`);
    } catch (error) {
      setFault(`The run failed: ${error}`);
    }
    setRunning(false);
  };
  const state: State =
    loading.fault || fault ? "error" : !model ? "loading" : isRunning ? "busy" : "ready";
  const isStuck = !model || !first.length || tokens < 1 || isRunning || done >= steps;
  return (
    <section
      data-applet="unmask"
      data-state={state}
      data-ids={model && first.length ? ids.join(" ") : ""}
      data-prompt-ids={first.join(" ")}
      data-tokens={tokens}
      data-steps={steps}
      data-done={done}
      data-model={name}
    >
      <h2>Writing in any order</h2>
      <p class="lead">
        All new tokens are hidden at first. At each step the model guesses all of them and
        keeps those of which it is surest, so that the text does not come from left to
        right.
      </p>
      <div class="controls">
        <ModelChooser
          id="unmask-model"
          models={models}
          chosen={name}
          onChoose={(next) => {
            setName(next);
            restart();
          }}
        />
        <NumberField
          id="unmask-tokens"
          label="New tokens"
          {...{ min: 1, max: Math.max(1, room), step: 1, value: tokens }}
          onChange={(value) => {
            setAsked({ ...asked, tokens: value });
            restart();
          }}
        />
        <NumberField
          id="unmask-steps"
          label="Steps"
          {...{ min: 1, max: Math.max(1, tokens), step: 1, value: steps }}
          onChange={(value) => {
            setAsked({ ...asked, steps: value });
            restart();
          }}
        />
        <Slider
          id="unmask-temperature"
          label="Temperature"
          {...{ min: 0, max: 2, step: 0.05, value: temperature }}
          onChange={setTemperature}
        />
      </div>
      <TextBox
        id="unmask-prompt"
        label="Beginning of the text"
        value={prompt}
        onChange={(next) => {
          setPrompt(next);
          restart();
        }}
      />
      <LoadStatus loading={loading} />
      <Fault text={fault} />
      <Note text={describeRoom(model, prompt, first, room)} />
      <div class="buttons">
        <Button id="unmask-step" isMain isOff={isStuck} onPress={() => go(1)}>
          Step
        </Button>
        <Button id="unmask-run" isOff={isStuck} onPress={() => go(steps)}>
          Run
        </Button>
        <Button id="unmask-restart" isOff={!done && !isRunning} onPress={restart}>
          Restart
        </Button>
      </div>
      {model && first.length > 0 && (
        <>
          <h3>
            The text after step {done} of {steps}
          </h3>
          <Text {...{ model, first, ids, settled, steps }} />
        </>
      )}
    </section>
  );
}

function Text(props: {
  model: Model;
  first: number[];
  ids: number[];
  settled: Settled[];
  steps: number;
}) {
  const { model, first, ids, settled, steps } = props;
  const { tokens } = model.manifest;
  const found = new Map(settled.map((each) => [each.position, each]));
  return (
    <>
      <ul class="unmasked" id="unmask-text">
        <li class="given">{model.tokenizer.decode(first)}</li>
        {ids.map((id, position) => {
          const own = found.get(position);
          if (position < first.length) return null;
          if (!own) {
            return (
              <li key={position} class="blank" data-position={position}>
                <span class="token" aria-label="hidden">
                  ?
                </span>
              </li>
            );
          }
          const depth = `${Math.round(15 + (45 * own.step) / steps)}%`;
          return (
            <li key={position} class="settled" style={{ "--weight": depth }}>
              <span class="token">{tokens[id]}</span>
              <span class="when">step {own.step}</span>
              <Probability
                value={own.confidence}
                token={id}
                position={position}
                when="settled"
              />
            </li>
          );
        })}
      </ul>
      <p class="hint">
        Below each new token: the step at which it was settled, and how sure the model
        was.
      </p>
      {settled.length === ids.length - first.length && settled.length > 0 && (
        <p class="result" id="unmask-result" data-text={model.tokenizer.decode(ids)}>
          {model.tokenizer.decode(ids)}
        </p>
      )}
    </>
  );
}

function openingOf(manifest: Manifest): string {
  const words = (manifest.examples[0] ?? "").trimStart().split(/(?=\s)/);
  return words.slice(0, 4).join("");
}

function describeRoom(
  model: Model | null,
  prompt: string,
  first: number[],
  room: number,
): string {
  if (!model) return "";
  const { name, max_length } = model.manifest;
  if (!first.length)
    return "Type a beginning: the model needs at least one token to go on from.";
  if (room < 1)
    return `This beginning leaves no room: ${name} reads at most ${count(max_length, "token")}.`;
  const unknown = model.tokenizer.countUnknown(prompt);
  return unknown
    ? `${name} does not know ${count(unknown, "character")} of this text.`
    : "";
}
