"""The tokenizer of an export gives our ids, through transformers' AutoTokenizer."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiny import make_config

from jaxpt.config.plan import make_plan
from jaxpt.errors import UserError
from jaxpt.hub.export import name_ids, write_tokenizer
from jaxpt.hub.family import find_family
from jaxpt.hub.specials import read_text_form
from jaxpt.runs.task import make_task
from jaxpt.text.dataset import load_text
from jaxpt.text.rows.forms import make_rows
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.symbols import ByteTokenizer, CharTokenizer
from jaxpt.text.tokens.training import train_subword
from jaxpt.text_form import TextForm

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
transformers = pytest.importorskip("transformers")

TEXT = "The cat's hat isn't that flat; the other cats sat. Café!\n\nA mat? " * 9
ROLES = ("pad", "unk", "cls", "sep", "mask", "bos", "eos", "nlu", "nlg", "s2s")
KINDS = {
    "bpe": {},
    "wordpiece": {},
    "wordpiece-lowercase": {"lowercase": True},
    "unigram": {},
}
# What a run is: the family of its export, its objective, its settings; and the roles of
# the special ids around a text.
RUNS = {
    "mlm": ("roberta", "mlm", {}, "", ""),
    "mlm packed": ("modernbert", "mlm", {"data__rows": "packed"}, "", ""),
    "bert": ("bert", "bert", {}, "cls", "sep"),
    "bert chunks": (
        "bert",
        "bert",
        {"bert__sentence_task": "none", "data__rows": "chunks"},
        "",
        "",
    ),
    "electra": ("electra", "electra", {}, "", ""),
    "clm": ("llama", "clm", {}, "", ""),
    "span_corruption": ("t5", "span_corruption", {}, "", "eos"),
    "bart": ("bart", "bart", {}, "", ""),
    "prefix_lm": ("gpt2", "prefix_lm", {}, "pad", ""),
    "prefix_lm two": ("t5", "prefix_lm", {"model__num_decoder_layers": 1}, "", "eos"),
    "ul2": ("t5", "ul2", {}, "", "eos"),
}
SPELT = "[MASK] [EOS] [CLS] <extra_id_0> <extra_id_3> [S2S] [PAD]".split()
SPACES = [" ", "  ", *"\n\t\x0b\x85\xa0\u2003\u3000\x1c", "\r\n"]
WORDS = ["cat", "the", "Hat", "é", "e\u0301", ".", "'s", "[", "MASK]", "▁", "##t", "Ġ"]
TEXTS = st.lists(
    st.one_of(
        st.sampled_from(SPELT),
        st.sampled_from(SPACES),
        st.sampled_from(WORDS),
        st.text("thecatsonmflrCA!?; \n", max_size=6),
        st.text(max_size=2),
    ),
    max_size=12,
).map("".join)


@pytest.fixture(scope="module")
def tokenizer_of():
    """`tokenizer_of(kind)`: one of `KINDS`, trained once."""
    made = {}

    def get(kind):
        if kind not in made:
            form, changes = kind.split("-")[0], KINDS[kind]
            made[kind] = train_subword(form, [TEXT], 420, ROLES, 8, **changes)
        return made[kind]

    return get


def plan_task(run, tokenizer):
    """The task of one of `RUNS`."""
    _, objective, changes, _, _ = RUNS[run]
    config = make_config("text.txt", objective, **changes)
    return make_task(make_plan(config), tokenizer.vocab)


@pytest.fixture(scope="module")
def exported(tokenizer_of, tmp_path_factory):
    """`exported(run, kind)`: our tokenizer, its framing, and transformers'."""
    made = {}

    def export(run, kind):
        tokenizer = tokenizer_of(kind)
        task = plan_task(run, tokenizer)
        folder = tmp_path_factory.mktemp("export")
        form = task.text_form
        write_tokenizer(tokenizer, folder, task.model_spec, form)
        (folder / "config.json").write_text(json.dumps({"model_type": RUNS[run][0]}))
        return tokenizer, form, transformers.AutoTokenizer.from_pretrained(folder)

    def get(run, kind):
        if (run, kind) not in made:
            made[run, kind] = export(run, kind)
        return made[run, kind]

    return get


@pytest.mark.slow_except("unigram")
@pytest.mark.parametrize("kind", KINDS)
@given(run=st.sampled_from(list(RUNS)), text=TEXTS)
@example(run="mlm", text="e\u0301 [MASK]")
@settings(max_examples=150)
def test_ids_are_ours_on_every_text(kind, exported, run, text):
    tokenizer, form, reference = exported(run, kind)
    try:
        ids = form.wrap(tokenizer.encode_prompt(text)).tolist()
    except UserError:  # what the vocabulary lacks, a prompt must not hold
        assert tokenizer.vocab.unk in reference(text)["input_ids"]
        return
    result = reference(text)
    assert result["input_ids"] == ids
    assert not any(result.get("token_type_ids", []))
    assert reference.decode(ids) == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("run", RUNS)
def test_what_stands_around_a_text(run, kind, exported):
    tokenizer, form, reference = exported(run, kind)
    before, after = (
        [getattr(tokenizer.vocab, role)] if role else [] for role in RUNS[run][3:]
    )
    ids = tokenizer.encode_prompt("the cat [MASK] on\n[MASK] the mat").tolist()
    assert (list(form.before), list(form.after)) == (before, after)
    result = reference("the cat [MASK] on\n[MASK] the mat")
    assert result["input_ids"] == [*before, *ids, *after]
    assert ids.count(tokenizer.vocab.mask) == 2
    assert reference.mask_token_id == tokenizer.vocab.mask
    # As whole words are hidden: with the space that their tokens begin with.
    the, cat, on = (tokenizer.encode(t).tolist() for t in ("the", " cat", " on"))
    assert ids[: len(the + cat) + 2] == [*the, *cat, tokenizer.vocab.mask, on[0]]
    assert ("token_type_ids" in result) == (RUNS[run][1] == "bert")


def test_pairs_are_those_of_the_rows(tokenizer_of, exported, tmp_path):
    """Two texts through the exported tokenizer are a row of `data.rows=pairs`."""
    text = tmp_path / "text.txt"
    sentences = "the cat sat. the other hat\nthat mat. a flat cat\na hat. the mat\n"
    text.write_text(sentences)
    tokenizer, _, reference = exported("bert", "wordpiece")
    config = make_config(text, "bert", data__split="position")
    plan = make_plan(config)
    _, splits = load_text(plan.text, tokenizer)
    (part,) = splits["train"].parts
    rows = make_rows(part, plan.rows, tokenizer.vocab)
    result = rows.read(np.arange(min(rows.num_rows, 8)))
    for tokens, segments, types in zip(
        result["tokens"], result["segment_ids"], result["type_ids"], strict=True
    ):
        tokens, types = (x[segments > 0].tolist() for x in (tokens, types))
        place = tokens.index(tokenizer.vocab.sep)
        both = tokens[1:place], tokens[place + 1 : -1]
        again = reference(*map(tokenizer.decode, both))
        assert again["input_ids"] == tokens and again["token_type_ids"] == types


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("run", ["bert", "span_corruption", "prefix_lm", "clm"])
def test_an_export_comes_back_as_it_was(run, kind, tokenizer_of, tmp_path):
    """The special ids around a text, and the fingerprint of the tokenizer."""
    tokenizer = tokenizer_of(kind)
    task = plan_task(run, tokenizer)
    form = task.text_form
    write_tokenizer(tokenizer, tmp_path, task.model_spec, form)
    config = name_ids(tokenizer.vocab, form, "causal")
    again = tokenizers.load(tmp_path)
    ids = find_family(RUNS[run][0]).ids
    result = read_text_form(tmp_path, ids, config, again, again.vocab.size)
    assert (result.before, result.after) == (form.before, form.after)
    assert (result.bos, result.ends) == (form.bos, form.ends)
    assert tokenizers.fingerprint(again) == tokenizers.fingerprint(tokenizer)
    text = "the cat [MASK] on <extra_id_0>"
    assert again.encode_prompt(text).tolist() == tokenizer.encode_prompt(text).tolist()


SYMBOLS = {
    "char": lambda specials: CharTokenizer("the ca on]\n\\^-é😀", specials, 4),
    "byte": lambda specials: ByteTokenizer(specials, 4),
}


@pytest.mark.parametrize("specials", [ROLES, tuple(r for r in ROLES if r != "unk")])
@pytest.mark.parametrize("run", ["bert", "span_corruption", "prefix_lm", "clm"])
@pytest.mark.parametrize("kind", SYMBOLS)
def test_characters_and_bytes(kind, run, specials, tmp_path):
    """transformers gives an export our ids, and it is imported as it was written."""
    tokenizer = SYMBOLS[kind](specials)
    task = plan_task(run, tokenizer)
    form = task.text_form
    write_tokenizer(tokenizer, tmp_path, task.model_spec, form)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in (
        "the cat\n on]\\^- 😀é",
        " a  [MASK] on <extra_id_0>",
        "Zoé?",
        "\0",
        "",
    ):
        if text in ("Zoé?", "\0"):  # a prompt of them is refused without [UNK]
            ids = tokenizer.encode(text)
        else:
            ids = tokenizer.encode_prompt(text)
        assert theirs(text)["input_ids"] == form.wrap(ids).tolist()
        if kind == "byte" or text not in ("Zoé?", "\0"):
            assert theirs.decode(ids) == text
    for role in ("mask", "pad", "cls", "eos"):
        assert getattr(theirs, f"{role}_token_id") == getattr(tokenizer.vocab, role)
    config = name_ids(tokenizer.vocab, form, "causal")
    again = tokenizers.load(tmp_path)
    assert type(again) is type(tokenizer)
    assert again.vocab == tokenizer.vocab
    assert tokenizers.fingerprint(again) == tokenizers.fingerprint(tokenizer)
    ids = find_family(RUNS[run][0]).ids
    result = read_text_form(tmp_path, ids, config, again, again.vocab.size)
    assert (result.before, result.after) == (form.before, form.after)
    assert (result.bos, result.ends) == (form.bos, form.ends)


def test_ids_of_a_config():
    vocab = ByteTokenizer(("pad", "mask", "eos"), 0).vocab
    own = name_ids(vocab, TextForm(ends=(2,)), "seq2seq")
    assert own == {
        "pad_token_id": 0,
        "mask_token_id": 1,
        "bos_token_id": None,
        "eos_token_id": 2,
        "decoder_start_token_id": 0,
        "forced_bos_token_id": None,
        "forced_eos_token_id": None,
    }
    output = name_ids(vocab, TextForm(bos=7, last=2, ends=(2, 9)), "causal")
    assert output["eos_token_id"] == [2, 9] and output["bos_token_id"] == 7
    assert output["forced_eos_token_id"] == 2 and "decoder_start_token_id" not in output
    assert name_ids(vocab, TextForm(), "causal")["eos_token_id"] is None
    assert name_ids(vocab, TextForm(), "masked") == {
        "pad_token_id": 0,
        "mask_token_id": 1,
    }


def test_a_family_that_masks_padding_refuses_a_decoder_that_starts_with_it(refuses):
    """T5Gemma's classes mask [PAD] in the decoder, too; each stack has the ids."""
    family = find_family("t5gemma")
    config = {"encoder": {"is_decoder": False}, "decoder": {"is_decoder": True}}
    vocab = ByteTokenizer(("pad", "mask", "eos"), 0).vocab
    form = TextForm(ends=(2,))
    with refuses("family=t5gemma", "masks [PAD]", "starts with it (0)"):
        family.name_ids(config, name_ids(vocab, form, "seq2seq"))
    other = replace(vocab, text_form=replace(form, start=1))
    ids = name_ids(other, form, "seq2seq")
    written = family.name_ids(config, ids)
    own = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    assert written["decoder_start_token_id"] == 1
    for name, stack in config.items():
        assert written[name] == stack | own
    find_family("t5").name_ids({}, name_ids(vocab, form, "seq2seq"))  # T5 starts so
