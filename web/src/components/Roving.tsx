/** A row of buttons of which one is a tab stop; arrow keys move between them. */

import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";

export interface RovingItem {
  key: string | number;
  label?: string; // spoken instead of the text
  text: ComponentChildren;
  pressed?: boolean;
  class?: string;
  style?: Record<string, string>;
  data?: Record<string, string | number>;
  disabled?: boolean;
}

const STEPS: Record<string, number> = {
  ArrowRight: 1,
  ArrowDown: 1,
  ArrowLeft: -1,
  ArrowUp: -1,
  Home: -Infinity,
  End: Infinity,
};

export function Roving(props: {
  id: string;
  label: string;
  items: RovingItem[];
  onPress?: (index: number) => void;
  onLook?: (index: number) => void; // focused or under the pointer
}) {
  const { id, label, items, onPress, onLook } = props;
  const [stop, setStop] = useState(0);
  const root = useRef<HTMLDivElement>(null);
  const current = Math.min(stop, items.length - 1);
  const move = (event: KeyboardEvent) => {
    const step = STEPS[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = Math.min(items.length - 1, Math.max(0, current + step));
    root.current?.querySelectorAll("button")[next]?.focus();
  };
  return (
    <div
      class="roving"
      id={id}
      role="group"
      aria-label={label}
      ref={root}
      onKeyDown={move}
    >
      {items.map((item, i) => (
        <button
          key={item.key}
          type="button"
          class={`chip ${item.class ?? ""}`}
          style={item.style}
          tabIndex={i === current ? 0 : -1}
          aria-pressed={item.pressed}
          aria-label={item.label}
          aria-disabled={item.disabled || undefined}
          {...item.data}
          onFocus={() => {
            setStop(i);
            onLook?.(i);
          }}
          onMouseEnter={() => onLook?.(i)}
          onClick={() => !item.disabled && onPress?.(i)}
        >
          {item.text}
        </button>
      ))}
    </div>
  );
}
