/** Hidden words, what the model fills in, and what its tokens look at. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { Attention } from "../components/Attention";
import { Button, SentenceBox } from "../components/Field";
import { Fault, LoadStatus, ModelChooser, Note, Probability } from "../components/Model";
import { Roving } from "../components/Roving";
import { count, percent, visible } from "../format";
import { type Loading, announce, stateOf, useLatest, useModel } from "../hooks";
import { type Model, type Reading, row } from "../model";
import { ban, likeliest, softmax } from "../sampling";
import type { Manifest } from "../types";
import { type Word, groupWords, hiddenPositions, putAt } from "../words";
import { canGenerate, sameTokens } from "./generate";

const BEST = 5;

export function canFill(model: Manifest): boolean {
  return model.fills && model.mask !== null;
}

/** A text's ids as far as the model can read them, and its words. */
export function readText(model: Model | null, text: string) {
  if (!model) return { ids: [], words: [], left: 0 };
  const all = model.tokenizer.encode(text);
  const ids = all.slice(0, Math.max(0, model.room));
  const words = groupWords(ids, model.manifest.word_starts);
  return { ids, words, left: all.length - ids.length };
}

/** The words as buttons. */
export function WordButtons(props: {
  id: string;
  model: Model;
  ids: number[];
  words: Word[];
  hidden: ReadonlySet<number>;
  onToggle: (index: number) => void;
}) {
  const { id, model, ids, words, hidden, onToggle } = props;
  const items = words.map(({ start, end }, i) => {
    const name = model.manifest.tokens[ids[start]];
    const text = visible(model.tokenizer.decode(ids.slice(start, end)), name);
    const isHidden = hidden.has(i);
    return { key: i, text, pressed: isHidden, class: isHidden ? "hidden-word" : "" };
  });
  return (
    <Roving
      id={id}
      label="Words; press one to hide it or show it"
      items={items}
      onPress={onToggle}
    />
  );
}

export function toggled(set: ReadonlySet<number>, item: number): Set<number> {
  const next = new Set(set);
  if (!next.delete(item)) next.add(item);
  return next;
}

export function describeText(model: Model | null, text: string, left: number): string {
  if (!model) return "";
  const { name } = model.manifest;
  const unknown = model.tokenizer.countUnknown(text);
  return [
    left
      ? `The last ${count(left, "token")} of this text are left out: ${name} reads at most ${model.manifest.max_length}. `
      : "",
    unknown ? `${name} does not know ${count(unknown, "character")} of this text.` : "",
  ].join("");
}

/** The first guess in words, for those who do not see the page. */
function describeGuess(
  model: Model,
  found: { reading: Reading; positions: number[] },
): string {
  const { manifest } = model;
  const place = manifest.before.length + found.positions[0];
  const fills = fillsAt(found.reading, place, manifest);
  const number = count(found.positions.length, "hidden token");
  if (!fills) return `${number}.`;
  const [best] = likeliest(fills, 1);
  return `${number}; the first is most likely ${manifest.tokens[best]}, ${percent(fills[best])}.`;
}

/** The probabilities of what stands at a position of what the model read. */
function fillsAt(reading: Reading, position: number, manifest: Manifest) {
  const from = position - manifest.fill_offset;
  if (from < 0) return null;
  return softmax(ban(row(reading.logits, from), manifest.nonwords));
}

export function Masks({ models, all }: { models: Manifest[]; all: Manifest[] }) {
  const [name, setName] = useState(models[0].name);
  const manifest = models.find((model) => model.name === name)!;
  const [text, setText] = useState(manifest.examples[0] ?? "");
  const [chosen, setChosen] = useState<ReadonlySet<number> | null>(null);
  const [besideName, setBeside] = useState("");
  const loading = useModel(manifest);
  const { model } = loading;
  const { ids, words, left } = useMemo(() => readText(model, text), [model, text]);
  // One word is hidden at first, so that there is something to see.
  const hidden = useMemo(() => {
    return chosen ?? new Set(words.length ? [Math.floor(words.length / 2)] : []);
  }, [chosen, words]);
  const positions = hiddenPositions(words, hidden);
  const input =
    model && ids.length ? model.wrap(putAt(ids, positions, manifest.mask!)) : [];
  const key = input.length ? `${name} ${input.join(" ")}` : null;
  const latest = useLatest(key, async () => ({
    reading: await model!.read(input, input.length),
    ...{ model: model!, ids, positions, input },
  }));
  const found = latest.value;
  useEffect(() => {
    if (found?.positions.length) announce(describeGuess(found.model, found));
  }, [found]);
  const others = all.filter((other) => canGenerate(other) && sameTokens(other, manifest));
  const restart = () => setChosen(null);
  return (
    <section
      data-applet="masks"
      data-state={stateOf(loading, ...(key ? [latest] : []))}
      data-ids={input.join(" ")}
      data-model={name}
    >
      <h2>Filling in hidden words</h2>
      <p class="lead">
        Hide words of a sentence, and the model guesses them from all the words around
        them. Below you see what each token looks at while it does so.
      </p>
      <div class="controls">
        <ModelChooser
          id="masks-model"
          models={models}
          chosen={name}
          onChoose={(next) => {
            setName(next);
            setBeside("");
            restart();
          }}
        />
        {others.length > 0 && (
          <ModelChooser
            id="masks-beside"
            label="Beside it, a model that sees only what is to the left"
            none="none"
            models={others}
            chosen={besideName}
            onChoose={setBeside}
          />
        )}
      </div>
      <SentenceBox
        id="masks-text"
        label="Sentence"
        value={text}
        examples={manifest.examples}
        onChange={(next) => {
          setText(next);
          restart();
        }}
      />
      <LoadStatus loading={loading} />
      <Fault text={latest.fault} />
      <Note text={describeText(model, text, left)} />
      {model && words.length > 0 && (
        <>
          <h3>Press a word to hide it</h3>
          <WordButtons
            id="masks-words"
            {...{ model, ids, words, hidden }}
            onToggle={(i) => setChosen(toggled(hidden, i))}
          />
          <div class="buttons">
            <Button
              id="masks-clear"
              isOff={!hidden.size}
              onPress={() => setChosen(new Set())}
            >
              Show all words
            </Button>
          </div>
        </>
      )}
      {model && found?.model === model && (
        <Found
          {...{ model, others, besideName }}
          found={found}
          isCurrent={latest.isCurrent}
        />
      )}
    </section>
  );
}

interface FoundProps {
  model: Model;
  others: Manifest[];
  besideName: string;
  isCurrent: boolean;
  found: { reading: Reading; ids: number[]; positions: number[]; input: number[] };
}

function Found({ model, others, besideName, found, isCurrent }: FoundProps) {
  const { manifest } = model;
  const { reading, ids, positions, input } = found;
  const beside = others.find((other) => other.name === besideName) ?? null;
  const names = input.map((id) => manifest.tokens[id]);
  return (
    <div class={isCurrent ? "" : "stale"}>
      {positions.length > 0 ? (
        <Guesses {...{ model, beside, reading, ids, positions }} />
      ) : (
        <p>No word is hidden. Press one above.</p>
      )}
      <h3>What the tokens look at</h3>
      <Attention
        id="masks-attention"
        block={reading.attentions}
        rows={names}
        columns={names}
      />
    </div>
  );
}

function Guesses(props: {
  model: Model;
  beside: Manifest | null;
  reading: Reading;
  ids: number[];
  positions: number[];
}) {
  const { model, beside, reading, ids, positions } = props;
  const { manifest } = model;
  const loading = useModel(beside);
  const other = loading.model;
  const key = other ? `${beside!.name} ${ids.join(" ")}` : null;
  const latest = useLatest(key, () => other!.read(other!.wrap(ids), 0));
  return (
    <>
      <h3>What the model fills in</h3>
      {beside && <BesideStatus {...{ beside, loading }} fault={latest.fault} />}
      <ul
        class="guesses"
        id="masks-guesses"
        data-beside={beside?.name}
        data-beside-state={
          beside ? stateOf(loading, ...(key ? [latest] : [])) : undefined
        }
        data-beside-ids={other ? other.wrap(ids).join(" ") : undefined}
      >
        {positions.map((position) => {
          const place = manifest.before.length + position;
          const fills = fillsAt(reading, place, manifest);
          return (
            <li key={position} data-place={place}>
              <Guess
                title={`Mask at place ${place + 1}`}
                {...{ fills, place }}
                truth={ids[position]}
                tokens={manifest.tokens}
              />
              {other && latest.isCurrent && latest.value && (
                <LeftGuess model={other} reading={latest.value} {...{ position, ids }} />
              )}
            </li>
          );
        })}
      </ul>
    </>
  );
}

function BesideStatus(props: { beside: Manifest; loading: Loading; fault: string }) {
  return (
    <>
      <p class="hint">
        {props.beside.name} reads the sentence as it is, without hidden words, but
        predicts each token only from the tokens before it.
      </p>
      <LoadStatus loading={props.loading} />
      <Fault text={props.fault} />
    </>
  );
}

/** What a left-to-right model predicts where a token is hidden. */
function LeftGuess(props: {
  model: Model;
  reading: Reading;
  position: number;
  ids: number[];
}) {
  const { model, reading, position, ids } = props;
  const { manifest } = model;
  const place = manifest.before.length + position;
  const fills =
    place > 0 ? softmax(ban(row(reading.logits, place - 1), manifest.banned)) : null;
  return (
    <div data-from-left={manifest.name}>
      <Guess
        title={`${manifest.name}, from the left`}
        {...{ fills, place }}
        truth={ids[position]}
        tokens={manifest.tokens}
      />
    </div>
  );
}

function Guess(props: {
  title: string;
  fills: Float64Array | null;
  place: number;
  truth: number;
  tokens: string[];
}) {
  const { title, fills, place, truth, tokens } = props;
  if (!fills) {
    return (
      <p class="hint">
        {title}: nothing stands before this token, so nothing can be said.
      </p>
    );
  }
  return (
    <>
      <h4>{title}</h4>
      <ol class="fills">
        {likeliest(fills, BEST).map((id) => (
          <li key={id} class={id === truth ? "truth" : ""}>
            <span class="token">{tokens[id]}</span>{" "}
            <Probability value={fills[id]} token={id} position={place} when="fill" />
          </li>
        ))}
      </ol>
      <p class="true-token">
        True: <span class="token">{tokens[truth]}</span>{" "}
        <Probability value={fills[truth]} token={truth} position={place} when="true" />
      </p>
    </>
  );
}
