"""Encodes texts, in parts and in sentences."""

import numpy as np
import pytest

from jaxpt.text.sources.documents import split_long
from jaxpt.text.stores.encode import _carry, encode_texts
from jaxpt.text.stores.sentences import cut_sentences
from jaxpt.text.tokens.symbols import CharTokenizer
from jaxpt.text.tokens.tokenizer import TokenizerSpec, make_tokenizer


def test_encode_by_hand():
    tokenizer = CharTokenizer("ab. ", ("unk",))
    texts = encode_texts(
        tokenizer,
        ["a. b", " X.", "", "b"],
        np.array([True, False, True, True]),
        np.array([True, False, True, True]),
        "punctuation",
        "<u2",
    )
    assert texts.tokens.dtype == np.uint16
    assert tokenizer.decode(texts.tokens) == "a. b [UNK].b"
    assert texts.counts.tolist() == [4, 3, 0, 1]
    assert texts.sentence_starts.tolist() == [0, 2, 7]
    assert texts.num_unknown == 1
    assert texts.sizes.tolist() == [1] * 8 and texts.sizes.dtype == np.uint32


def test_the_bytes_of_parts_without_a_token_are_the_next_tokens():
    parts = ["a ", "\n\x01", "\n\x02", "\nb"]
    sizes = [np.array(each, np.int64) for each in ([1], [], [], [2])]
    result = np.concatenate(_carry(parts, sizes))
    assert result.tolist() == [1, 1 + 2 + 2 + 2]


@pytest.mark.parametrize("kind", ["char", "byte", "bpe", "wordpiece", "unigram"])
def test_sentences_without_spaces_change_no_id(kind):
    text = "他说：“好。”我们走吧！真的 吗？ 是的。yes. No！"
    text += "次は「はい。」と言う。यह है।वह"
    spec = TokenizerSpec(kind, specials=("unk",))
    if kind not in ("char", "byte"):
        spec = TokenizerSpec(kind, vocab_size=320, specials=("unk",))
    tokenizer = make_tokenizer(spec, [text] * 5)
    one = np.ones(1, bool)
    made = encode_texts(tokenizer, [text], one, one, "punctuation", "<u2")
    assert made.tokens.tolist() == tokenizer.encode(text).tolist()
    sentences = cut_sentences(text, "punctuation")
    assert len(made.sentence_starts) == len(sentences) == 10
    # A token across a cut belongs to the sentence before it.
    parts = np.split(made.tokens, made.sentence_starts[1:])
    for ids, sentence in zip(parts, sentences, strict=True):
        if kind in ("char", "byte", "bpe"):
            assert tokenizer.decode(ids) == sentence


@pytest.mark.slow_except("babyberta/babyberta.json")
@pytest.mark.parametrize(
    "path",
    [
        "gpt2",
        "t5/sentencepiece.model",
        "bert/bert-base-uncased-vocab.txt",
        "babyberta/babyberta.json",  # puts a space before a text
    ],
)
def test_parts_and_sentences_change_no_id(tinyshakespeare, path):
    file = tinyshakespeare.parents[2] / "tokenizers" / path
    tokenizer = make_tokenizer(TokenizerSpec("file", path=str(file)), ())
    text = tinyshakespeare.read_text(encoding="utf-8")[:60_000]
    text += "  \n . ! \xa0\n¿Qué? ... (“So.”) 家。\n\t\u2028\n😀. \r\n" * 20
    expected = tokenizer.encode(text).tolist()
    parts = split_long(text, 5000)
    assert len(parts) > 10
    is_start = np.arange(len(parts)) == 0
    num_sentences = set()
    for mode in ("", "lines", "punctuation"):
        texts = encode_texts(tokenizer, parts, is_start, is_start, mode, "<u2")
        assert texts.tokens.tolist() == expected
        assert texts.num_unknown == tokenizer.count_unknown(text)
        num_sentences.add(len(texts.sentence_starts))
    assert len(num_sentences) == 3 and max(num_sentences) > 500
