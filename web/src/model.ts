/** A model of the site: its graphs as sessions, and what can be asked of it. */

import type { InferenceSession, Tensor } from "onnxruntime-web/wasm";
import { loadFile, loadedCharacters } from "./parts";
import { enqueue, floats, loadRuntime, makeSession, wholeNumbers } from "./runtime";
import { type TextTokenizer, makeTokenizer } from "./tokenizer";
import type { GraphName, Manifest } from "./types";

/** Numbers with their shape, the batch of one left out. */
export interface Block {
  data: Float32Array;
  dims: number[];
}

export interface Reading {
  logits: Block; // [T, V], or [T] of a discriminator
  attentions: Block; // [L, N, T, T]
}

export interface DecoderReading extends Reading {
  crossAttentions: Block; // [L, N, T, S]
}

type Feeds = Record<string, Tensor>;

export class Model {
  constructor(
    readonly manifest: Manifest,
    readonly tokenizer: TextTokenizer,
    private sessions: Partial<Record<GraphName, InferenceSession>>,
  ) {}

  /** The ids of a text with what the model reads around every text. */
  wrap(ids: readonly number[]): number[] {
    return [...this.manifest.before, ...ids, ...this.manifest.after];
  }

  /** How many tokens of a text the model can read. */
  get room(): number {
    const { max_length, before, after } = this.manifest;
    return max_length - before.length - after.length;
  }

  /** Logits and attention for ids; `prefixLength` tokens are seen by all others. */
  read(ids: readonly number[], prefixLength: number): Promise<Reading> {
    const graph = this.sessions.generator ? "generator" : "model";
    const feeds = this.feed(ids);
    if (this.manifest.kind === "prefix") {
      feeds.prefix_lengths = wholeNumbers([prefixLength], [1]);
    }
    return this.run(graph, feeds).then(asReading);
  }

  discriminate(ids: readonly number[]): Promise<Reading> {
    return this.run("discriminator", this.feed(ids)).then(asReading);
  }

  /** What the encoder makes of a source. */
  async encode(ids: readonly number[]): Promise<{ states: Block; attentions: Block }> {
    const found = await this.run("encoder", this.feed(ids));
    return {
      states: dropBatch(found.last_hidden_state, 0),
      attentions: dropBatch(found.attentions, 1),
    };
  }

  /** What the decoder makes of what was written so far, given the encoder's states. */
  async decode(ids: readonly number[], states: Block): Promise<DecoderReading> {
    const length = states.dims[0];
    const found = await this.run("decoder", {
      input_ids: wholeNumbers(ids),
      encoder_hidden_states: floats(states.data, [1, ...states.dims]),
      encoder_attention_mask: wholeNumbers(new Array(length).fill(1)),
    });
    return { ...asReading(found), crossAttentions: dropBatch(found.cross_attentions, 1) };
  }

  private feed(ids: readonly number[]): Feeds {
    const feeds: Feeds = {
      input_ids: wholeNumbers(ids),
      attention_mask: wholeNumbers(ids.map(() => 1)),
    };
    if (this.manifest.has_types) feeds.token_type_ids = wholeNumbers(ids.map(() => 0));
    return feeds;
  }

  private run(graph: GraphName, feeds: Feeds): Promise<Record<string, Tensor>> {
    const session = this.sessions[graph];
    if (!session) throw new Error(`${this.manifest.name} has no graph ${graph}`);
    return enqueue(() => session.run(feeds) as Promise<Record<string, Tensor>>);
  }
}

function asReading(found: Record<string, Tensor>): Reading {
  return {
    logits: dropBatch(found.logits, 0),
    attentions: dropBatch(found.attentions, 1),
  };
}

function dropBatch(tensor: Tensor, axis: number): Block {
  const dims = tensor.dims.filter((_, i) => i !== axis);
  return { data: tensor.data as Float32Array, dims };
}

/** One row of logits. */
export function row(logits: Block, position: number): Float32Array {
  const width = logits.dims[1];
  return logits.data.subarray(position * width, (position + 1) * width);
}

/** How much was loaded, and how long it took: for the page's foot. */
export const loads = { megabytes: 0, seconds: 0 };

const models = new Map<string, Promise<Model>>();

/** Loads a model at the first call; `tell` is told what is being loaded. */
export function loadModel(
  manifest: Manifest,
  tell: (status: string) => void,
): Promise<Model> {
  let model = models.get(manifest.name);
  if (!model) {
    model = fetchModel(manifest, tell);
    models.set(manifest.name, model);
  }
  return model;
}

async function fetchModel(
  manifest: Manifest,
  tell: (status: string) => void,
): Promise<Model> {
  const begin = performance.now();
  tell(`Loading the runtime (${RUNTIME_MEGABYTES} MB)…`);
  await loadRuntime();
  const graphs = Object.entries(manifest.graphs) as [GraphName, { bytes: number }][];
  const size = graphs.reduce((sum, [, graph]) => sum + graph.bytes, 0);
  tell(`Loading the model ${manifest.name} (${(size / 1e6).toFixed(1)} MB)…`);
  const sessions: Partial<Record<GraphName, InferenceSession>> = {};
  for (const [name] of graphs) {
    const { parts, bytes, crc32 } = manifest.graphs[name]!;
    sessions[name] = await makeSession(await loadFile(parts, bytes, crc32));
  }
  const tokenizer = makeTokenizer(manifest);
  loads.megabytes = loadedCharacters() / 1e6;
  loads.seconds += (performance.now() - begin) / 1000;
  return new Model(manifest, tokenizer, sessions);
}
