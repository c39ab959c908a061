"""Texts to rows: frames, pairs, cutting, words, and places in the text."""

import json
import unicodedata

import numpy as np
import pytest
from tasks.encoders import TOKENIZER, make_encoder, show
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from jaxpt.tasks.encoder import TextEncoder, cut_pair
from jaxpt.text.tokens.special_names import name_specials, read_json
from jaxpt.text.tokens.symbols import ByteTokenizer, CharTokenizer
from jaxpt.text.tokens.training import train_subword
from jaxpt.text_form import TextForm


def test_a_text_and_a_pair_are_framed():
    encoder = make_encoder()
    one = encoder.texts("abc")
    assert show(one.tokens) == "[abc|"
    assert one.type_ids.tolist() == [0] * 5
    assert one.places.tolist() == [-1, 0, 1, 2, -1]
    two = encoder.texts("ab", "c")
    assert show(two.tokens) == "[ab|c|"
    assert two.type_ids.tolist() == [0, 0, 0, 0, 1, 1]
    assert two.sources.tolist() == [0, 1, 1, 0, 2, 0]
    assert two.places.tolist() == [-1, 0, 1, -1, 0, -1]


def test_a_long_text_is_cut_and_its_frame_kept():
    encoder = make_encoder(max_len=6)
    assert show(encoder.texts("abcdefgh").tokens) == "[abcd|"
    assert show(encoder.texts("abcdef", "gh").tokens) == "[ab|g|"
    assert show(encoder.texts("a", "bcdefgh").tokens) == "[a|bc|"


def test_the_longer_text_loses_its_last_token():
    """As `_truncate_seq_pair` of google-research/bert, token by token."""
    for first in range(12):
        for second in range(12):
            for room in range(12):
                one, two = first, second
                while one + two > room:
                    one, two = (one - 1, two) if one > two else (one, two - 1)
                assert cut_pair(first, second, room) == (one, two)


def test_rows_too_short_for_a_pair_are_refused(refuses):
    with refuses("task.max_len=4", "at least 5"):
        make_encoder(max_len=4)


def test_an_empty_row_is_refused(refuses):
    encoder = make_encoder(form=TextForm())
    assert show(encoder.texts("a", "b").tokens) == "ab"
    with refuses("empty"):
        encoder.texts("")
    assert show(make_encoder().texts("").tokens) == "[|"


def test_words_have_the_ids_of_their_text():
    encoder = make_encoder()
    words = encoder.words(["ab", "c", "d."])
    assert show(words.ids) == "ab c d."
    assert words.word_ids.tolist() == [0, 0, 1, 1, 2, 2, 2]


WORDS = "The café's naïve cat, don't ( 中文 🙂 12 x .".split()


def make_core(kind):
    """A tokenizer of one of the forms in use, with the words' letters."""
    text = " ".join([*WORDS, "the cat sat"] * 20)
    if kind == "unigram":
        letters = sorted(set(text) - {" "})
        pieces = [("<unk>", 0.0), ("▁", -2.0), *((c, -3.0) for c in letters)]
        core = Tokenizer(models.Unigram([*pieces, ("▁cat", -1.0)], 0))
        core.pre_tokenizer = pre_tokenizers.Metaspace()
        return core
    if kind.startswith("wordpiece"):
        tokenizer = train_subword("wordpiece", [text], 80, ("unk",), 0, "un" in kind)
        return Tokenizer.from_str(json.dumps(tokenizer.to_json()["core"]))
    core = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    bytes_of = [f"<0x{byte:02X}>" for byte in range(256)]
    special, alphabet = ["<unk>"], []
    if kind.startswith("byte-level"):
        space = "prefix" in kind
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
        alphabet, special = pre_tokenizers.ByteLevel.alphabet(), ["<unk>"]
    elif kind.startswith("metaspace"):
        scheme = kind.split()[1]
        core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    elif kind in ("llama", "llama bytes"):
        steps = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        core.normalizer = normalizers.Sequence(steps)
    elif kind == "gemma":
        core.normalizer = normalizers.Replace(" ", "▁")
        core.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    else:
        core.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(
        vocab_size=700 if kind == "llama" else 330,
        special_tokens=special + bytes_of * ("bytes" in kind),
        initial_alphabet=alphabet,
        limit_alphabet=300 if "bytes" not in kind else 20,
        show_progress=False,
    )
    lines = [" ".join(pair) for pair in zip(WORDS, WORDS[1:])] * 3
    is_alone = kind in ("llama", "llama bytes", "gemma")  # words would merge
    core.train_from_iterator(WORDS if is_alone else lines, trainer)
    data = json.loads(core.to_str())
    if "bytes" in kind:
        data["model"]["byte_fallback"] = True
        data["added_tokens"] = data["added_tokens"][:1]
    return Tokenizer.from_str(json.dumps(data))


FORMS = [
    *("wordpiece cased", "wordpiece uncased", "byte-level", "byte-level prefix"),
    *(f"metaspace {scheme}" for scheme in ("always", "first", "never")),
    *("llama", "llama bytes", "gemma", "unigram", "whitespace", "char", "byte"),
]


@pytest.mark.parametrize("form", FORMS)
def test_words_have_the_ids_of_their_text_in_each_form(form):
    """And a word's first token is the first that is more than a space."""
    if form == "char":
        tokenizer = CharTokenizer(set(" ".join(WORDS)) - {"🙂"}, ("unk",))
    elif form == "byte":
        tokenizer = ByteTokenizer()
    else:
        tokenizer = name_specials(read_json(json.loads(make_core(form).to_str())))
    encoder = TextEncoder(tokenizer, TextForm(), 128)
    result = encoder.words(WORDS)
    np.testing.assert_array_equal(result.ids, encoder.ids(" ".join(WORDS)))
    assert (np.diff(result.word_ids) >= 0).all()
    firsts = np.flatnonzero(result.is_first)
    np.testing.assert_array_equal(result.word_ids[firsts], np.arange(len(WORDS)))
    pieces, vocab = tokenizer.vocab.pieces, tokenizer.vocab
    for place, word in zip(firsts, WORDS, strict=True):
        piece = pieces[result.ids[place]].strip()
        own = result.ids[result.word_ids == result.word_ids[place]]
        if vocab.unk in own.tolist():
            continue
        joined = b"".join(pieces[i] for i in own.tolist()).strip().decode()
        plain = unicodedata.normalize("NFD", word.lower()) if "unc" in form else word
        plain = "".join(c for c in plain if not unicodedata.combining(c))
        assert joined == (plain if "unc" in form else word)
        assert piece and joined.encode().startswith(piece)
    assert encoder.words([]).ids.size == 0
    assert encoder.words(["", "cat"]).word_ids.tolist()[-1:] == [1]


def test_a_word_without_ids_does_not_take_the_next_one_s():
    tokenizer = CharTokenizer(set(" abc"), ())
    words = TextEncoder(tokenizer, TextForm(), 32).words(["zz", "ab", "zc", "z"])
    assert [tokenizer.decode(words.ids[words.word_ids == i]).strip() for i in range(3)]
    firsts = words.ids[words.is_first].tolist()
    assert tokenizer.decode(np.array(firsts)).replace(" ", "") == "ac"


@pytest.mark.parametrize("text", ["ab c.", "é aé", " a  b"])
def test_spans_cut_the_text_at_its_tokens(text):
    ids, starts, ends = make_encoder().spans(text)
    results = [text[a:b] for a, b in zip(starts, ends)]
    assert results == [x.strip() for x in text]
    np.testing.assert_array_equal(ids, TOKENIZER.encode(text))


def test_frames_of_roberta():
    encoder = TextEncoder(TOKENIZER, TextForm((0,), (1,), between=(1, 1)), 32)
    assert show(encoder.texts("a", "b").tokens) == "[a||b|"
