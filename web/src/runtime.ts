/** ONNX Runtime: loaded once, and used by one run at a time. */

import * as ort from "onnxruntime-web/wasm";
import { loadFile } from "./parts";

let ready: Promise<void> | null = null;
let last: Promise<unknown> = Promise.resolve();

/** Loads the runtime at the first call. */
export function loadRuntime(): Promise<void> {
  ready ??= startRuntime();
  return ready;
}

async function startRuntime(): Promise<void> {
  const bytes = await loadFile(["runtime.js"], RUNTIME_BYTES, RUNTIME_CRC32);
  // One thread: several need headers that a plain file server does not send.
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.proxy = false;
  ort.env.wasm.wasmBinary = bytes.buffer;
  ort.env.logLevel = "error";
}

export async function makeSession(bytes: Uint8Array): Promise<ort.InferenceSession> {
  const options = { executionProviders: ["wasm"], logSeverityLevel: 3 } as const;
  return enqueue(() => ort.InferenceSession.create(bytes, options));
}

/** Does one thing after another, as a session cannot do two at once. */
export function enqueue<T>(task: () => Promise<T>): Promise<T> {
  const run = last.then(task, task);
  last = run.catch(() => undefined);
  return run;
}

/** A tensor of whole numbers, [1, n]. */
export function wholeNumbers(values: readonly number[], dims = [1, values.length]) {
  return new ort.Tensor("int64", BigInt64Array.from(values, BigInt), dims);
}

export function floats(values: Float32Array, dims: readonly number[]) {
  return new ort.Tensor("float32", values, dims);
}
