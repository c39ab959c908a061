/** What the site's writer says about each model: see `window.jaxptModels`. */

export type Kind = "causal" | "prefix" | "masked" | "electra" | "seq2seq";
export type GraphName = "model" | "generator" | "discriminator" | "encoder" | "decoder";

export interface GraphFiles {
  parts: string[];
  bytes: number;
  crc32: number;
}

export type TokenizerData =
  | { kind: "char"; specials: string[]; num_sentinels: number; characters: string[] }
  | { kind: "byte"; specials: string[]; num_sentinels: number }
  | { kind: "bpe" | "wordpiece" | "unigram"; core: any };

export interface Manifest {
  name: string;
  objective: string;
  kind: Kind;
  writes: "left_to_right" | "unmasking" | "";
  fills: boolean;
  fill_offset: number;
  generation_prefix: "none" | "prompt";
  fake_temperature: number;
  parameters: number;
  step: number;
  precision: string;
  difference: number;
  probability_difference?: number;
  max_length: number;
  vocab_size: number;
  before: number[];
  after: number[];
  start: number | null;
  first: number | null;
  last: number | null;
  ends: number[];
  banned: number[];
  nonwords: number[];
  mask: number | null;
  sentinels: number[];
  has_types: boolean;
  tokens: string[];
  word_starts: string;
  tokenizer: TokenizerData;
  examples: string[];
  graphs: Partial<Record<GraphName, GraphFiles>>;
}

declare global {
  interface Window {
    jaxptModels?: Manifest[];
    jaxptPart?: (key: string, text: string) => void;
  }
  /** Set by the build: the runtime's length, checksum and size as it is loaded. */
  const RUNTIME_BYTES: number;
  const RUNTIME_CRC32: number;
  const RUNTIME_MEGABYTES: string;
}
