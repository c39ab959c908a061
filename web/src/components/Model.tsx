/** Choosing a model, and what is said of the chosen one. */

import type { Loading } from "../hooks";
import { percent } from "../format";
import type { Manifest } from "../types";

interface ChooserProps {
  id: string;
  label?: string;
  models: Manifest[];
  chosen: string;
  none?: string; // the name of choosing no model
  onChoose: (name: string) => void;
}

export function ModelChooser(props: ChooserProps) {
  const { id, models, chosen, none, onChoose, label = "Model" } = props;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={chosen} onChange={(e) => onChoose(e.currentTarget.value)}>
        {none !== undefined && <option value="">{none}</option>}
        {models.map((model) => (
          <option key={model.name} value={model.name}>
            {describe(model)}
          </option>
        ))}
      </select>
    </div>
  );
}

function describe({ name, objective, parameters }: Manifest): string {
  const size = `${parameters.toLocaleString("en")} parameters`;
  return name === objective ? `${name} (${size})` : `${name} (${objective}, ${size})`;
}

/** What is being loaded, or why it cannot be. */
export function LoadStatus({ loading }: { loading: Loading }) {
  if (loading.fault) return <Fault text={loading.fault} />;
  if (loading.model || !loading.status) return null;
  return (
    <p class="status" role="status">
      {loading.status}
    </p>
  );
}

export function Fault({ text }: { text: string }) {
  if (!text) return null;
  return (
    <div class="fault" role="alert">
      {text}
    </div>
  );
}

export function Note({ text }: { text: string }) {
  return text ? <p class="note">{text}</p> : null;
}

/** A probability with its full number for tests and for the pointer. */
export function Probability(props: {
  value: number;
  token: number;
  position?: number;
  when?: string;
}) {
  const { value, token, position, when } = props;
  return (
    <span
      class="number"
      data-probability={value}
      data-token-id={token}
      data-position={position}
      data-when={when}
    >
      {percent(value)}
    </span>
  );
}
