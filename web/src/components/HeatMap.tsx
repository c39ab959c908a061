/** A matrix of weights as a picture, with the tokens along its sides. */

import { useEffect, useRef } from "preact/hooks";
import { percent } from "../format";

interface Props {
  id: string;
  weights: Float32Array; // [rows, columns], each row adds up to 1
  rows: string[];
  columns: string[];
  marked: number;
  onRow: (row: number) => void;
}

const LONGEST = 11; // characters of a token's name that are shown

export function HeatMap(props: Props) {
  const { id, rows, columns, onRow } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const cell = cellSize(Math.max(rows.length, columns.length));
  const margin = marginFor([...rows, ...columns]);
  useEffect(() => {
    const draw = () => canvas.current && paint(canvas.current, props, cell, margin);
    draw();
    const theme = window.matchMedia("(prefers-color-scheme: dark)");
    theme.addEventListener("change", draw);
    return () => theme.removeEventListener("change", draw);
  });
  const find = (event: MouseEvent) => {
    const row = Math.floor((event.offsetY - margin) / cell);
    if (row >= 0 && row < rows.length) onRow(row);
  };
  return (
    <figure class="heat">
      <div class="scroll" tabIndex={0} role="region" aria-label="Heat map of attention">
        <canvas
          id={id}
          ref={canvas}
          role="img"
          aria-label={`Attention of ${rows.length} tokens (rows) to ${columns.length} tokens (columns); the sentence above tells the numbers of one row.`}
          onMouseMove={find}
        />
      </div>
      <figcaption>
        Each row is a token that looks, each column a token that is looked at. Rows add up
        to 100 %; the deepest colour stands for {percent(greatest(props.weights))}.
      </figcaption>
    </figure>
  );
}

function cellSize(count: number): number {
  return Math.max(7, Math.min(22, Math.floor(640 / count)));
}

/** Room for the tokens' names along the sides. */
function marginFor(names: string[]): number {
  const longest = Math.max(...names.map((name) => Math.min(name.length, LONGEST)));
  return 14 + 7.5 * longest;
}

export function greatest(weights: Float32Array): number {
  return weights.reduce((most, weight) => Math.max(most, weight), 0);
}

function paint(
  canvas: HTMLCanvasElement,
  props: Props,
  cell: number,
  margin: number,
): void {
  const { weights, rows, columns, marked } = props;
  const width = margin + columns.length * cell + 2;
  const height = margin + rows.length * cell + 2;
  const scale = window.devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  if (!pen) return;
  const style = getComputedStyle(canvas);
  const [ink, deep] = ["--ink", "--deep"].map((name) => style.getPropertyValue(name));
  pen.scale(scale, scale);
  pen.fillStyle = deep;
  const most = greatest(weights) || 1;
  for (let row = 0; row < rows.length; row++) {
    for (let column = 0; column < columns.length; column++) {
      // The root makes small weights visible.
      pen.globalAlpha = Math.sqrt(weights[row * columns.length + column] / most);
      pen.fillRect(margin + column * cell, margin + row * cell, cell - 1, cell - 1);
    }
  }
  pen.globalAlpha = 1;
  pen.strokeStyle = ink;
  pen.strokeRect(margin - 0.5, margin - 0.5, columns.length * cell, rows.length * cell);
  pen.strokeRect(margin - 0.5, margin + marked * cell - 1, columns.length * cell, cell);
  nameSides(pen, props, cell, margin, ink);
}

function nameSides(
  pen: CanvasRenderingContext2D,
  { rows, columns, marked }: Props,
  cell: number,
  margin: number,
  ink: string,
): void {
  pen.fillStyle = ink;
  pen.textBaseline = "middle";
  const every = Math.max(1, Math.ceil(10 / cell));
  const size = Math.min(13, Math.max(9, cell - 2));
  rows.forEach((text, i) => {
    if (i % every && i !== marked) return;
    pen.font = `${i === marked ? "bold " : ""}${size}px monospace`;
    pen.textAlign = "right";
    pen.fillText(cut(text), margin - 5, margin + (i + 0.5) * cell);
  });
  pen.font = `${size}px monospace`;
  pen.textAlign = "left";
  columns.forEach((text, i) => {
    if (i % every) return;
    pen.save();
    pen.translate(margin + (i + 0.5) * cell, margin - 5);
    pen.rotate(-Math.PI / 2);
    pen.fillText(cut(text), 0, 0);
    pen.restore();
  });
}

function cut(text: string): string {
  return text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text;
}
