import assert from "node:assert/strict";
import { test } from "node:test";
import { hideSpecials, makeTokenizer } from "../src/tokenizer";
import type { Manifest, TokenizerData } from "../src/types";

const make = (tokenizer: TokenizerData) => makeTokenizer({ tokenizer } as Manifest);

test("characters: specials, then characters, then sentinels from the last id down", () => {
  const made = make({
    kind: "char",
    specials: ["pad", "unk"],
    num_sentinels: 2,
    characters: [" ", "a", "é", "😀"],
  });
  assert.deepEqual(made.encode("a😀 éz"), [3, 5, 2, 4, 1]);
  assert.equal(made.decode([3, 5, 7, 6, 0]), "a😀<extra_id_0><extra_id_1>[PAD]");
  assert.equal(made.countUnknown("azz"), 2);
});

test("characters: an unknown one is left out where there is no [UNK]", () => {
  const made = make({ kind: "char", specials: [], num_sentinels: 0, characters: ["a"] });
  assert.deepEqual(made.encode("zaz"), [0]);
});

test("characters: names of specials are plain text", () => {
  const characters = [..."[]AMKS"].sort();
  const made = make({ kind: "char", specials: ["mask"], num_sentinels: 0, characters });
  assert.equal(made.encode("[MASK]").length, 6);
});

test("bytes of UTF-8 behind the specials", () => {
  const made = make({ kind: "byte", specials: ["pad", "mask"], num_sentinels: 1 });
  assert.deepEqual(made.encode("é"), [0xc3 + 2, 0xa9 + 2]);
  assert.equal(made.decode([0xc3 + 2, 0xa9 + 2, 1, 258]), "é[MASK]<extra_id_0>");
  assert.equal(made.decode([0xc3 + 2]), "\ufffd");
});

const special = (id: number, content: string) => ({
  ...{ id, content, special: true, normalized: false },
  ...{ lstrip: false, rstrip: false, single_word: false },
});

const bpe = {
  version: "1.0",
  added_tokens: [special(0, "<mask>")],
  normalizer: null,
  pre_tokenizer: {
    type: "ByteLevel",
    add_prefix_space: false,
    trim_offsets: true,
    use_regex: true,
  },
  post_processor: null,
  decoder: {
    type: "ByteLevel",
    add_prefix_space: true,
    trim_offsets: true,
    use_regex: true,
  },
  model: {
    type: "BPE",
    ...{ dropout: null, unk_token: null, fuse_unk: false, byte_fallback: false },
    vocab: Object.fromEntries(
      ["<mask>", ..."<mask>Ġtheo", "th", "the", "Ġthe"].map((name, i) => [name, i]),
    ),
    merges: [
      ["t", "h"],
      ["th", "e"],
      ["Ġ", "the"],
    ],
  },
};

test("subwords: merges, and spaces come back", () => {
  const made = make({ kind: "bpe", core: bpe });
  const { vocab } = bpe.model;
  const ids = made.encode("the the");
  assert.deepEqual(ids, [vocab["the"], vocab["Ġthe"]]);
  assert.equal(made.decode([...ids, 0]), "the the<mask>");
  assert.deepEqual(made.encode(""), []);
});

test("subwords: plain text never becomes a special token", () => {
  const ids = make({ kind: "bpe", core: bpe }).encode("<mask>");
  assert.ok(!ids.includes(0));
  assert.equal(ids.length, 6);
});

test("hiding specials changes neither ids nor the given data", () => {
  const given = JSON.stringify(bpe);
  const hidden = hideSpecials(bpe);
  assert.equal(hidden.model.vocab["special 0"], 0);
  assert.equal(JSON.stringify(bpe), given);
});

const unigram = {
  ...bpe,
  added_tokens: [special(0, "</s>"), special(1, "<unk>")],
  pre_tokenizer: {
    type: "Metaspace",
    replacement: "▁",
    prepend_scheme: "always",
    split: true,
  },
  decoder: { type: "Metaspace", replacement: "▁", prepend_scheme: "always", split: true },
  model: {
    type: "Unigram",
    unk_id: 1,
    byte_fallback: false,
    vocab: [
      ["</s>", 0],
      ["<unk>", 0],
      ["▁a", -1],
      ["b", -2],
      ["▁", -3],
      ["<", -4],
      ["/", -4],
      ["s", -4],
      [">", -4],
    ],
  },
};

test("subwords: a piece of a Unigram model named as a special is not found in text", () => {
  const ids = make({ kind: "unigram", core: unigram }).encode("ab </s>");
  assert.deepEqual(ids, [2, 3, 4, 5, 6, 7, 8]);
});
