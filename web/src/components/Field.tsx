/** Inputs with their labels, and buttons. */

import type { ComponentChildren } from "preact";

/**
 * A button that keeps the focus while it cannot be used, so that it can be pressed again
 * and again from the keyboard; a disabled one would lose it.
 */
export function Button(props: {
  id: string;
  isOff: boolean;
  isMain?: boolean;
  onPress: () => void;
  children: ComponentChildren;
}) {
  const { id, isOff, isMain, onPress, children } = props;
  return (
    <button
      id={id}
      type="button"
      class={isMain ? "main" : undefined}
      aria-disabled={isOff}
      onClick={() => !isOff && onPress()}
    >
      {children}
    </button>
  );
}

interface NumberProps {
  id: string;
  label: string;
  value: number;
  min: number;
  max: number;
  step: number;
  hint?: string;
  onChange: (value: number) => void;
}

function clamp(text: string, { min, max, step }: NumberProps): number | null {
  const value = Number(text);
  if (text.trim() === "" || Number.isNaN(value)) return null;
  const whole = step >= 1 ? Math.round(value) : value;
  return Math.min(max, Math.max(min, whole));
}

/** A slider and the same number to type. */
export function Slider(props: NumberProps) {
  const { id, label, value, min, max, step, hint } = props;
  const set = (text: string) => {
    const found = clamp(text, props);
    if (found !== null) props.onChange(found);
  };
  const shared = { min, max, step, value };
  const hintId = hint ? `${id}-hint` : undefined;
  return (
    <div class="field slider">
      <label for={id}>{label}</label>
      <div class="pair">
        <input
          {...shared}
          id={id}
          type="range"
          aria-describedby={hintId}
          onInput={(e) => set(e.currentTarget.value)}
        />
        <input
          {...shared}
          id={`${id}-number`}
          type="number"
          aria-label={`${label}, as a number`}
          onChange={(e) => set(e.currentTarget.value)}
        />
      </div>
      {hint && (
        <p class="hint" id={hintId}>
          {hint}
        </p>
      )}
    </div>
  );
}

export function NumberField(props: NumberProps) {
  const { id, label, value, min, max, step } = props;
  return (
    <div class="field narrow">
      <label for={id}>{label}</label>
      <input
        id={id}
        type="number"
        {...{ min, max, step, value }}
        onChange={(e) => {
          const found = clamp(e.currentTarget.value, props);
          if (found !== null) props.onChange(found);
          else e.currentTarget.value = String(value);
        }}
      />
    </div>
  );
}

interface Option {
  value: string;
  text: string;
}

export function Choice(props: {
  id: string;
  label: string;
  value: string;
  options: Option[];
  onChange: (value: string) => void;
}) {
  const { id, label, value, options, onChange } = props;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={value} onChange={(e) => onChange(e.currentTarget.value)}>
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {option.text}
          </option>
        ))}
      </select>
    </div>
  );
}

export function TextBox(props: {
  id: string;
  label: string;
  value: string;
  rows?: number;
  onChange: (text: string) => void;
}) {
  const { id, label, value, rows = 2, onChange } = props;
  return (
    <div class="field wide">
      <label for={id}>{label}</label>
      <textarea
        id={id}
        rows={rows}
        value={value}
        spellcheck={false}
        onInput={(e) => onChange(e.currentTarget.value)}
      />
    </div>
  );
}

/** A sentence of one's own, or one of the held-out examples. */
export function SentenceBox(props: {
  id: string;
  label: string;
  value: string;
  examples: string[];
  onChange: (text: string) => void;
}) {
  const { id, label, value, examples, onChange } = props;
  const place = examples.indexOf(value);
  const options = examples.map((text, i) => ({
    value: String(i),
    text: text.length > 60 ? `${text.slice(0, 57).trim()}…` : text.trim(),
  }));
  return (
    <div class="sentence">
      <TextBox id={id} label={label} value={value} onChange={onChange} />
      {examples.length > 0 && (
        <Choice
          id={`${id}-example`}
          label="Or take a sentence that the model has not seen"
          value={String(place)}
          options={place < 0 ? [{ value: "-1", text: "your own" }, ...options] : options}
          onChange={(i) => Number(i) >= 0 && onChange(examples[Number(i)])}
        />
      )}
    </div>
  );
}
