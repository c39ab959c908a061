"""The tokenizer of an export gives our ids, through transformers' AutoTokenizer."""

import dataclasses
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import make_config

from jaxpt.errors import UserError
from jaxpt.hub.export import name_ids, write_tokenizer
from jaxpt.hub.families import write_config
from jaxpt.hub.files import write_json
from jaxpt.run.build import make_plan, make_task
from jaxpt.run.framing import find_framing
from jaxpt.text.tokens.framing import Framing
from jaxpt.text.tokens.training import train_subword

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
# What a run is: its settings, and the family of its export.
RUNS = {
    "mlm": ("mlm", {}),
    "mlm-packed": ("mlm", {"data__rows": "packed"}),
    "bert": ("bert", {}),
    "bert-chunks": ("bert", {"bert__sentence_task": "none", "data__rows": "chunks"}),
    "electra": ("electra", {}),
    "clm": ("clm", {}),
    "span_corruption": ("span_corruption", {}),
    "bart": ("bart", {}),
    "prefix_lm": ("prefix_lm", {}),
    "prefix_lm-two": ("prefix_lm", {"model__num_decoder_layers": 1}),
    "ul2": ("ul2", {}),
}
AROUND = {
    "bert": ("cls", "sep"),
    "span_corruption": (None, "eos"),
    "prefix_lm": ("pad", None),
    "prefix_lm-two": (None, "eos"),
    "ul2": (None, "eos"),
}
# Among whitespace, line ends and what a normalizer takes apart.
NASTY = st.sampled_from(
    ["[MASK]", "[EOS]", "[CLS]", "<extra_id_0>", "<extra_id_3>", "[S2S]", "[PAD]"]
    + [" ", "  ", "\n", "\t", "\r\n", "\x0b", "\x85", "\xa0", "\u2003", "\u3000", "\x1c"]
    + ["cat", "Hat", "é", "e\u0301", "É", ".", "'s", "[", "MASK]", "▁", "##t", "Ġ", "ﬁ"]
)
TEXTS = st.lists(st.one_of(NASTY, st.text(max_size=5)), max_size=12).map("".join)


@pytest.fixture(scope="module")
def tokenizer_of():
    made = {}

    def get(kind):
        if kind not in made:
            form, settings = kind.split("-")[0], KINDS[kind]
            made[kind] = train_subword(form, [TEXT], 420, ROLES, 8, **settings)
        return made[kind]

    return get


@pytest.fixture(scope="module")
def exported(tokenizer_of, tmp_path_factory):
    """`exported(run, kind)`: our tokenizer, the run's framing, and transformers'."""
    made = {}

    def export(run, kind):
        objective, changes = RUNS[run]
        tokenizer = tokenizer_of(kind)
        config = make_config("text.txt", objective, **changes)
        task = make_task(make_plan(config), tokenizer.vocab)
        framing = find_framing(task)
        folder = tmp_path_factory.mktemp("export")
        write_tokenizer(tokenizer, folder, task.model_spec, framing)
        return tokenizer, framing, transformers.AutoTokenizer.from_pretrained(folder)

    def get(run, kind):
        if (run, kind) not in made:
            made[run, kind] = export(run, kind)
        return made[run, kind]

    return get


def encode(tokenizer, framing, text):
    """Our ids, or None where we refuse the text."""
    try:
        return framing.wrap(tokenizer.encode_prompt(text)).tolist()
    except UserError:
        return None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("run", RUNS)
@given(text=TEXTS)
@settings(max_examples=60)
def test_ids_are_ours_on_every_text(run, kind, exported, text):
    tokenizer, framing, theirs = exported(run, kind)
    ids = encode(tokenizer, framing, text)
    if ids is None:
        return
    found = theirs(text)
    assert found["input_ids"] == ids
    assert not any(found.get("token_type_ids", []))
    assert theirs.decode(ids) == tokenizer.decode(ids)
