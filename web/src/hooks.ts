/** What the applets share in keeping state. */

import { useEffect, useRef, useState } from "preact/hooks";
import { type Model, loadModel } from "./model";
import { Damaged } from "./parts";
import type { Manifest } from "./types";

export type State = "loading" | "ready" | "busy" | "error";

export interface Loading {
  model: Model | null;
  status: string;
  fault: string;
}

/** Loads a model when it is chosen. */
export function useModel(manifest: Manifest | null): Loading {
  const [loading, setLoading] = useState<Loading & { of: Manifest | null }>(nothing);
  useEffect(() => {
    if (!manifest) return;
    let isCurrent = true;
    const put = (found: Partial<Loading>) => {
      if (isCurrent) setLoading({ ...nothing, ...found, of: manifest });
    };
    loadModel(manifest, (status) => put({ status })).then(
      (model) => put({ model, status: `The model ${manifest.name} is ready.` }),
      (error: unknown) => put({ fault: describeFault(manifest, error) }),
    );
    return () => {
      isCurrent = false;
    };
  }, [manifest]);
  return loading.of === manifest ? loading : nothing;
}

const nothing = { model: null, status: "", fault: "", of: null };

function describeFault(manifest: Manifest, error: unknown): string {
  const reason = error instanceof Error ? error.message : String(error);
  const what = `The model ${manifest.name} cannot be used: ${reason}.`;
  const remedy = "Write the site again with `jaxpt applet`, or copy it again completely.";
  const other = "The other models can still be used.";
  return error instanceof Damaged ? `${what} ${remedy} ${other}` : `${what} ${remedy}`;
}

export interface Latest<T> {
  value: T | null;
  isCurrent: boolean; // the value is of the present key
  fault: string;
}

/**
 * The result of a task for the present key. A new key waits a moment, so that typing does
 * not start a run for each letter; results of old keys are dropped.
 */
export function useLatest<T>(
  key: string | null,
  task: () => Promise<T>,
  delay = 150,
): Latest<T> {
  const [held, setHeld] = useState<{ key: string; value: T | null; fault: string }>();
  const run = useRef(task);
  run.current = task;
  useEffect(() => {
    if (key === null || held?.key === key) return;
    let isWanted = true;
    const start = () =>
      run.current().then(
        (value) => isWanted && setHeld({ key, value, fault: "" }),
        (error: unknown) =>
          isWanted && setHeld({ key, value: null, fault: `The run failed: ${error}` }),
      );
    const timer = setTimeout(start, held ? delay : 0);
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  }, [key]);
  const isCurrent = key !== null && held?.key === key;
  return { value: held?.value ?? null, isCurrent, fault: isCurrent ? held!.fault : "" };
}

/** The state of an applet, as its section shows it. */
export function stateOf(loading: Loading, ...results: Latest<unknown>[]): State {
  if (loading.fault || results.some((result) => result.fault)) return "error";
  if (!loading.model) return "loading";
  return results.every((result) => result.isCurrent) ? "ready" : "busy";
}

const listeners = new Set<(text: string) => void>();
let isOdd = false;

/** Tells those who listen to the page rather than see it. */
export function announce(text: string): void {
  isOdd = !isOdd;
  // The same words twice are no change, and would not be read out.
  for (const listener of listeners) listener(isOdd ? text : `${text}\u00a0`);
}

export function useAnnouncements(): string {
  const [text, setText] = useState("");
  useEffect(() => {
    listeners.add(setText);
    return () => void listeners.delete(setText);
  }, []);
  return text;
}
