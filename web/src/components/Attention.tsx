/** What each token looks at: a picture of one head, and the same on the sentence. */

import { useState } from "preact/hooks";
import type { Block } from "../model";
import { likeliest } from "../sampling";
import { percent } from "../format";
import { Choice } from "./Field";
import { HeatMap, greatest } from "./HeatMap";
import { Roving } from "./Roving";

interface Props {
  id: string;
  block: Block; // [L, N, rows, columns]
  rows: string[]; // the tokens that look
  columns: string[]; // the tokens that are looked at
  across?: boolean; // rows and columns are of two texts
}

export function Attention({ id, block, rows, columns, across = false }: Props) {
  const [layers, heads] = block.dims;
  const [layer, setLayer] = useState(layers - 1);
  const [head, setHead] = useState(0);
  const [focus, setFocus] = useState(0);
  const at = Math.min(focus, rows.length - 1);
  const weights = cutHead(block, Math.min(layer, layers - 1), Math.min(head, heads - 1));
  const width = block.dims[3];
  const most = greatest(weights) || 1;
  const own = weights.subarray(at * width, (at + 1) * width);
  return (
    <div class="attention">
      <div class="controls">
        <Numbered
          id={`${id}-layer`}
          label="Layer"
          from={layers}
          value={layer}
          onChange={setLayer}
        />
        <Numbered
          id={`${id}-head`}
          label="Head"
          from={heads}
          value={head}
          onChange={setHead}
        />
      </div>
      <p class="hint">
        {across
          ? "Choose a written token: the deeper the colour of a token of the source, the more it was looked at."
          : "Point at a token or move to it with the arrow keys: the deeper the colour of another, the more it looks there."}
      </p>
      {across && (
        <Roving
          id={`${id}-written`}
          label="Written tokens"
          items={rows.map((text, i) => ({
            key: i,
            text,
            class: i === at ? "looking" : "",
          }))}
          onLook={setFocus}
        />
      )}
      {across ? (
        <p class="chips" id={`${id}-source`}>
          {columns.map((text, i) => (
            <span key={i} class="chip plain" style={shade(own[i] / most)}>
              {text}
            </span>
          ))}
        </p>
      ) : (
        <Roving
          id={`${id}-strip`}
          label="Tokens of the sentence"
          items={columns.map((text, i) => ({
            key: i,
            text,
            class: i === at ? "looking" : "",
            style: shade(own[i] / most),
          }))}
          onLook={setFocus}
        />
      )}
      <LooksAt row={rows[at]} own={own} columns={columns} />
      <HeatMap
        id={`${id}-map`}
        weights={weights}
        rows={rows}
        columns={columns}
        marked={at}
        onRow={setFocus}
      />
    </div>
  );
}

function Numbered(props: {
  id: string;
  label: string;
  from: number;
  value: number;
  onChange: (value: number) => void;
}) {
  const { id, label, from, value, onChange } = props;
  const options = Array.from({ length: from }, (_, i) => ({
    value: String(i),
    text: `${i + 1} of ${from}`,
  }));
  return (
    <Choice
      {...{ id, label, options }}
      value={String(Math.min(value, from - 1))}
      onChange={(text) => onChange(Number(text))}
    />
  );
}

/** The same in words, for those who do not see the colours. */
function LooksAt(props: { row: string; own: Float32Array; columns: string[] }) {
  const { row, own, columns } = props;
  const best = likeliest(own, 4);
  return (
    <p class="looks">
      <b class="token">{row}</b> looks most at{" "}
      {best.map((place, i) => (
        <span key={place}>
          {i > 0 && ", "}
          <span class="token">{columns[place]}</span> (place {place + 1},{" "}
          {percent(own[place])})
        </span>
      ))}
      .
    </p>
  );
}

function cutHead({ data, dims }: Block, layer: number, head: number): Float32Array {
  const size = dims[2] * dims[3];
  const begin = (layer * dims[1] + head) * size;
  return data.subarray(begin, begin + size);
}

function shade(weight: number) {
  return { "--weight": `${Math.round(Math.sqrt(weight || 0) * 55)}%` };
}
