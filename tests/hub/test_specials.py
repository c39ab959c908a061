"""The special ids of a checkpoint are read as transformers reads them."""

import json
import os
from pathlib import Path

import pytest
import transformers

from jaxpt.config.plan import make_plan
from jaxpt.config.settings import default_config
from jaxpt.hub.export import write_tokenizer
from jaxpt.hub.family import find_family
from jaxpt.hub.import_settings import ImportSettings, choose_objective
from jaxpt.hub.specials import read_generation, read_text_form
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.exported import export_tokenizer
from jaxpt.text.tokens.post_processor import read_template, write_template
from jaxpt.text.tokens.symbols import ByteTokenizer, make_byt5
from jaxpt.text.tokens.training import train_subword
from jaxpt.text_form import TextForm, from_json

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
ROLES = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")
TEXT = "the cat sat on the mat " * 20
CLS, SEP, BOS, EOS = 2, 3, 5, 6


@pytest.fixture(scope="module")
def wordpiece():
    return train_subword("wordpiece", [TEXT], 60, ROLES)


@pytest.fixture
def read(tmp_path, wordpiece):
    """`read(kind, config, **files)`: the form of a folder with these files."""

    def get(kind, config, form=None, num_ids=60, **files):
        export_tokenizer(wordpiece, tmp_path / "tokenizer.json", form)
        files.setdefault("config", {"model_type": kind})
        for name, values in files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(values))
        tokenizer = tokenizers.load(tmp_path)
        return read_text_form(
            tmp_path, find_family(kind).ids, config, tokenizer, num_ids
        )

    return get


def test_ids_of_config_and_of_generation_config(read):
    result = read("llama", {"eos_token_id": [4, 9], "bos_token_id": 1})
    assert result == TextForm(bos=1, ends=(4, 9))
    later = {"eos_token_id": 8, "bos_token_id": None}
    config = {"eos_token_id": 7, "bos_token_id": 1}
    result = read("llama", config, generation_config=later)
    assert result == TextForm(bos=1, ends=(8,))


def test_ids_at_the_model_s_size_are_not_its_ids(read):
    """A model with `num_ids` ids has those below it."""
    for name, field in (("eos", "ends"), ("bos", "bos")):
        for id_, is_kept in ((59, True), (60, False)):
            result = getattr(read("llama", {f"{name}_token_id": id_}), field)
            assert result == ((id_,) if name == "eos" else id_) or not is_kept
            assert is_kept or not result


def test_byt5_ends_a_text(tmp_path):
    """And its export is read as it was written."""
    ids = find_family("t5").ids
    form = read_text_form(tmp_path, ids, {}, make_byt5(), 384)
    assert form == TextForm((), (1,), start=0, ends=(1,))
    write_tokenizer(make_byt5(), tmp_path, ModelSpec(), form)
    assert tokenizers.load(tmp_path).to_json() == make_byt5().to_json()
    assert read_text_form(tmp_path, ids, {}, make_byt5(), 384) == form
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs("A")["input_ids"] == [68, 1]
    write_tokenizer(make_byt5(), tmp_path, ModelSpec(), TextForm())  # not ByT5's
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs("A")["input_ids"] == [68]
    assert read_text_form(tmp_path, ids, {}, make_byt5(), 384).after == ()


def test_what_a_config_leaves_out_is_its_class_s(read):
    assert read("gpt2", {}) == TextForm()  # 50256 is not one of the model's
    assert read("gpt2", {}, num_ids=50257) == TextForm(bos=50256, ends=(50256,))
    assert read("llama", {}) == TextForm(bos=1, ends=(2,))
    assert read("llama", {"eos_token_id": None}) == TextForm(bos=1)
    result = read("bart", {"forced_bos_token_id": 0})
    assert result == TextForm(
        (CLS,), (SEP,), bos=0, start=2, first=0, last=2, ends=(2,)
    )
    assert read("t5", {"vocab_size": 60}) == TextForm((), (EOS,), start=0, ends=(1,))


@pytest.mark.parametrize("kind", ["gpt2", "llama", "mistral", "t5", "bart"])
def test_defaults_are_those_of_the_classes(kind, read):
    config = pytest.importorskip("transformers").AutoConfig.for_model(kind).to_dict()
    names = ("bos", "eos", "decoder_start", "forced_bos", "forced_eos")
    output = {f"{n}_token_id": config.get(f"{n}_token_id") for n in names}
    if kind == "t5":  # its class leaves to the checkpoint what a decoder begins with
        output["decoder_start_token_id"] = 0
    assert read(kind, {}, num_ids=99999) == read(kind, output, num_ids=99999)


def test_a_tokenizer_class_that_is_no_name_is_refused(read, refuses):
    with refuses("tokenizer_config.json", "tokenizer_class=3", "name of a class"):
        read("bert", {}, tokenizer_config={"tokenizer_class": 3})


def test_ids_that_are_none_are_refused(read, refuses):
    with refuses("eos_token_id='</s>'", "must be an id, a list of ids or null"):
        read("llama", {"eos_token_id": "</s>"})
    with refuses("decoder_start_token_id=60", "vocab_size=60"):
        read("bart", {"decoder_start_token_id": 60})
    with refuses("forced_eos_token_id=[2, 3]", "must be one id"):
        read("bart", {"forced_eos_token_id": [2, 3]})
    with refuses("puts [2] and [3]", "vocab_size=3"):
        read("bert", {}, num_ids=3)


def test_a_template_is_read_whatever_wrote_it(read):
    plain = {"tokenizer_class": "PreTrainedTokenizerFast"}
    around = TextForm((CLS, BOS), (EOS,))
    result = read("gpt2", {}, around, tokenizer_config=plain)
    assert (result.before, result.after) == ((CLS, BOS), (EOS,))
    for post in (
        {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        {
            "type": "RobertaProcessing",
            "sep": ["[SEP]", 3],
            "cls": ["[CLS]", 2],
            "trim_offsets": True,
            "add_prefix_space": False,
        },
    ):
        assert read_template(post) == ((2,), (3,))
        byte = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False}
        both = {"type": "Sequence", "processors": [byte | {"use_regex": True}, post]}
        assert read_template(both) == ((2,), (3,))
    assert read_template(None) == ((), ())


def test_templates_that_cannot_be_kept_are_refused(refuses):
    typed = write_template(TextForm((CLS,), (SEP,)), {CLS: "[CLS]", SEP: "[SEP]"}, True)
    typed["single"][1]["Sequence"]["type_id"] = 1
    with refuses("type ids", "must be 0"):
        read_template(typed)
    with refuses("post_processor", "not one of tokenizers"):
        read_template({"type": "Other"})


def test_a_folder_s_class_counts_where_its_file_says_nothing(read):
    assert read("bert", {}).before == (CLS,) and read("bert", {}).after == (SEP,)
    plain = {"tokenizer_class": "PreTrainedTokenizerFast"}
    assert read("bert", {}, tokenizer_config=plain).before == ()


CLASSES = {
    "bert": {"tokenizer_class": "BertTokenizer"},
    "electra": {"tokenizer_class": "ElectraTokenizer"},
    "llama": {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": True},
    "gpt2": {"tokenizer_class": "PreTrainedTokenizerFast"},
}


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("has_template", [True, False])
def test_as_transformers_reads_the_folder(kind, has_template, read, tmp_path):
    auto = pytest.importorskip("transformers").AutoTokenizer
    names = {role: f"[{role.upper()}]" for role in ROLES}
    output = CLASSES[kind] | {f"{role}_token": name for role, name in names.items()}
    around = TextForm((CLS,), (SEP,)) if has_template else None
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    result = read(kind, {}, around, tokenizer_config=output)
    ids = auto.from_pretrained(tmp_path)("the cat")["input_ids"]
    plain = tokenizers.load(tmp_path).encode("the cat")
    assert result.wrap(plain).tolist() == ids


def test_a_form_comes_back_from_its_json(refuses):
    form = TextForm((1,), (2, 3), bos=1, start=2, first=0, last=None, ends=(2, 5))
    assert from_json(json.loads(json.dumps(form.to_json()))) == form
    for name, value in (("ends", 5), ("start", [2]), ("before", [-1]), ("bos", "x")):
        with refuses(f"{name} is {value!r}", "must be"):
            from_json(form.to_json() | {name: value})
    with refuses("must have before, after"):
        from_json({"before": []})


def test_a_vocabulary_without_sentinels_is_bart_s():
    mask, sentinels = ("pad", "mask", "eos"), ("pad", "eos")
    assert choose_objective("seq2seq", ByteTokenizer(mask, 0).vocab) == "bart"
    both = ByteTokenizer(mask, 4).vocab
    assert choose_objective("seq2seq", both) == "span_corruption"
    # Neither: what follows a prefix needs none of them.
    none = ByteTokenizer(sentinels, 0).vocab
    assert choose_objective("seq2seq", none) == "prefix_lm"
    # Nothing at all: the error names what the first lacks.
    assert choose_objective("seq2seq", ByteTokenizer((), 0).vocab) == "span_corruption"
    assert choose_objective("masked", both) == "mlm"
    assert choose_objective("causal", both) == "clm"


def test_what_bart_needs_of_rows_is_set_where_nobody_did(refuses):
    config = default_config()
    config.objective, config.model.num_decoder_layers = "bart", 1
    settings = ImportSettings(config, (), Path("theirs"))
    data = make_plan(settings.config, settings.fixed).config["data"]
    assert data["sentence_ids"] and data["sentences"] == "punctuation"
    config.data.sentences = "lines"  # of a config file
    settings = ImportSettings(config, (), Path("theirs"))
    assert (
        make_plan(settings.config, settings.fixed).config["data"]["sentences"]
        == "lines"
    )
    settings = ImportSettings(
        config, {"data.sentence_ids"}, Path("theirs")
    )  # of a flag
    with refuses("data.sentence_ids=False", "must be True"):
        make_plan(settings.config, settings.fixed)


@pytest.mark.parametrize(
    "options, least",
    [
        ({"min_length": 4}, 3),
        ({"min_length": 4, "min_new_tokens": 5}, 5),
        ({"min_length": 1}, None),
        ({"min_length": 0}, None),
    ],
)
def test_the_least_length_of_a_decoder_counts_its_first_input(options, least, tmp_path):
    (tmp_path / "generation_config.json").write_text(json.dumps(options))
    kept, ignored = read_generation(tmp_path, {}, True)
    assert dict(kept).get("min_new_tokens") == least
    assert ignored == []
    _, ignored = read_generation(tmp_path, {}, False)
    is_left_out = options["min_length"] > 0
    assert ignored == [f"min_length={options['min_length']}"] * is_left_out
