/** Text to ids and back. Plain text never becomes special tokens. */

import { Tokenizer } from "@huggingface/tokenizers";
import type { Manifest, TokenizerData } from "./types";

export interface TextTokenizer {
  encode(text: string): number[];
  decode(ids: readonly number[]): string;
  /** How many characters of a text it does not know. */
  countUnknown(text: string): number;
}

export function makeTokenizer(manifest: Manifest): TextTokenizer {
  const data = manifest.tokenizer;
  if (data.kind === "char") return new CharTokenizer(data);
  if (data.kind === "byte") return new ByteTokenizer(data);
  return new SubwordTokenizer(data.core);
}

function specialName(role: string): string {
  return `[${role.toUpperCase()}]`;
}

/** The name of each id that is no ordinary symbol. */
function nameSpecials(specials: string[], sentinels: number, size: number) {
  const names = new Map(specials.map((role, id) => [id, specialName(role)]));
  for (let i = 0; i < sentinels; i++) names.set(size - 1 - i, `<extra_id_${i}>`);
  return names;
}

class CharTokenizer implements TextTokenizer {
  private ids: Map<string, number>;
  private texts: string[];
  private unknown: number;

  constructor(data: Extract<TokenizerData, { kind: "char" }>) {
    const { specials, characters, num_sentinels } = data;
    const size = specials.length + characters.length + num_sentinels;
    const names = nameSpecials(specials, num_sentinels, size);
    this.ids = new Map(characters.map((text, i) => [text, specials.length + i]));
    this.texts = Array.from(
      { length: size },
      (_, id) => names.get(id) ?? characters[id - specials.length],
    );
    this.unknown = specials.indexOf("unk");
  }

  encode(text: string): number[] {
    return Array.from(text, (symbol) => this.ids.get(symbol) ?? this.unknown).filter(
      (id) => id >= 0,
    );
  }

  decode(ids: readonly number[]): string {
    return ids.map((id) => this.texts[id] ?? "").join("");
  }

  countUnknown(text: string): number {
    return Array.from(text).filter((symbol) => !this.ids.has(symbol)).length;
  }
}

class ByteTokenizer implements TextTokenizer {
  private first: number;
  private names: Map<number, string>;

  constructor(data: Extract<TokenizerData, { kind: "byte" }>) {
    this.first = data.specials.length;
    const size = this.first + 256 + data.num_sentinels;
    this.names = nameSpecials(data.specials, data.num_sentinels, size);
  }

  encode(text: string): number[] {
    return Array.from(new TextEncoder().encode(text), (byte) => byte + this.first);
  }

  decode(ids: readonly number[]): string {
    const encoder = new TextEncoder();
    const bytes = ids.flatMap((id) => {
      const name = this.names.get(id);
      return name === undefined ? [id - this.first] : [...encoder.encode(name)];
    });
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes));
  }

  countUnknown(): number {
    return 0;
  }
}

class SubwordTokenizer implements TextTokenizer {
  private encoder: Tokenizer;
  private decoder: Tokenizer;
  private unknown: number | undefined;

  constructor(core: any) {
    const config = { clean_up_tokenization_spaces: false };
    this.encoder = new Tokenizer(hideSpecials(core), config);
    this.decoder = new Tokenizer({ ...core, post_processor: null }, config);
    this.unknown = findUnknown(core, this.decoder);
  }

  encode(text: string): number[] {
    if (!text) return [];
    const { ids } = this.encoder.encode(text, { add_special_tokens: false });
    return ids.map(Number);
  }

  decode(ids: readonly number[]): string {
    if (!ids.length) return "";
    return this.decoder.decode([...ids], {
      skip_special_tokens: false,
      clean_up_tokenization_spaces: false,
    });
  }

  countUnknown(text: string): number {
    return this.encode(text).filter((id) => id === this.unknown).length;
  }
}

function findUnknown(core: any, tokenizer: Tokenizer): number | undefined {
  if (typeof core.model.unk_id === "number") return core.model.unk_id;
  return core.model.unk_token ? tokenizer.token_to_id(core.model.unk_token) : undefined;
}

/**
 * The tokenizer with its specials renamed to names with a space, which no text matches:
 * the library finds specials in plain text, and a Unigram model has "</s>" as a piece.
 */
export function hideSpecials(core: any): any {
  const hidden = new Map<string, string>();
  for (const token of core.added_tokens) {
    if (token.special) hidden.set(token.content, `special ${token.id}`);
  }
  const rename = (name: string) => hidden.get(name) ?? name;
  const model = { ...core.model };
  model.vocab = Array.isArray(model.vocab)
    ? model.vocab.map(([name, score]: [string, number]) => [rename(name), score])
    : Object.fromEntries(
        Object.entries(model.vocab).map(([name, id]) => [rename(name), id]),
      );
  if (model.unk_token) model.unk_token = rename(model.unk_token);
  if (model.merges) {
    model.merges = model.merges.filter(
      (pair: string | string[]) =>
        !hidden.has(typeof pair === "string" ? pair.replace(" ", "") : pair.join("")),
    );
  }
  // The specials are left out of the added tokens, so that nothing looks for them.
  const added_tokens = core.added_tokens.filter((token: any) => !token.special);
  return { ...core, post_processor: null, model, added_tokens };
}
