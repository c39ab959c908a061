/** The likeliest next tokens as bars, and what the settings cut off. */

import { percent, count } from "../format";
import {
  BANNED,
  CUT_BY_TOP_K,
  CUT_BY_TOP_P,
  type Choice,
  type Settings,
  likeliest,
} from "../sampling";
import { Probability } from "./Model";

const SHOWN = 15;

const FATES: Record<number, { name: string; text: string }> = {
  [CUT_BY_TOP_K]: { name: "cut-k", text: "cut off by top-k" },
  [CUT_BY_TOP_P]: { name: "cut-p", text: "cut off by top-p" },
  [BANNED]: { name: "banned", text: "never written" },
};

export function Bars(props: {
  id: string;
  choice: Choice;
  tokens: string[];
  onTake?: (id: number) => void;
}) {
  const { id, choice, tokens, onTake } = props;
  const shown = likeliest(choice.before, SHOWN);
  // Long tails are still to be seen where no token is likely.
  const longest = Math.max(...shown.flatMap((i) => [choice.before[i], choice.after[i]]));
  return (
    <>
      <p class="legend">
        <span class="swatch before" aria-hidden="true" /> the model's own probability{" "}
        <span class="swatch after" aria-hidden="true" /> after your settings
        {onTake && ". Press a row to take its token."}
      </p>
      <ol class="bars" id={id}>
        {shown.map((token, i) => (
          // By place, so that the focus stays where it was when a row is pressed.
          <Bar key={i} {...{ token, choice, longest, onTake }} name={tokens[token]} />
        ))}
      </ol>
    </>
  );
}

function Bar(props: {
  token: number;
  name: string;
  choice: Choice;
  longest: number;
  onTake?: (id: number) => void;
}) {
  const { token, name, choice, longest, onTake } = props;
  const [before, after] = [choice.before[token], choice.after[token]];
  const fate = FATES[choice.fate[token]];
  const inside = (
    <>
      <span class="name token">{name}</span>
      <span class="tracks" aria-hidden="true">
        <span
          class={`bar before ${fate?.name ?? ""}`}
          style={{ width: width(before, longest) }}
        />
        <span class="bar after" style={{ width: width(after, longest) }} />
      </span>
      <span class="numbers">
        <Probability value={before} token={token} when="before" />
        <span aria-hidden="true"> → </span>
        <Probability value={after} token={token} when="after" />
        {fate && <span class="fate">{fate.text}</span>}
      </span>
    </>
  );
  return (
    <li>
      {onTake ? (
        <button type="button" class="row" data-take={token} onClick={() => onTake(token)}>
          {inside}
        </button>
      ) : (
        <div class="row">{inside}</div>
      )}
    </li>
  );
}

function width(probability: number, longest: number): string {
  return `${((100 * probability) / longest).toFixed(2)}%`;
}

/** How much of the probability is kept, as a bar and in words. */
export function CutSummary(props: { id: string; choice: Choice; settings: Settings }) {
  const { id, choice, settings } = props;
  const { topK, topP } = choice.cut;
  if (settings.temperature === 0) {
    return <p id={id}>At temperature 0 the likeliest token is always taken.</p>;
  }
  const kept = Math.max(0, 1 - topK.probability - topP.probability);
  const shares = [
    { name: "kept", share: kept },
    { name: "cut-p", share: topP.probability },
    { name: "cut-k", share: topK.probability },
  ];
  return (
    <div id={id} class="summary">
      <div class="stack" aria-hidden="true">
        {shares.map(({ name, share }) => (
          <span key={name} class={`share ${name}`} style={{ width: `${share * 100}%` }} />
        ))}
      </div>
      <p data-top-k-count={topK.count} data-top-p-count={topP.count}>
        {topK.count + topP.count === 0 && "No token is cut off."}
        {topK.count > 0 && describeCut("k", "Top-k", topK.count, topK.probability)}
        {topP.count > 0 && describeCut("p", "Top-p", topP.count, topP.probability)}
      </p>
    </div>
  );
}

function describeCut(key: string, name: string, number: number, probability: number) {
  return (
    <span class="cut" key={key}>
      <span class={`swatch cut-${key}`} aria-hidden="true" /> {name} cuts off{" "}
      {count(number, "token")} with {percent(probability)} of the probability.{" "}
    </span>
  );
}
