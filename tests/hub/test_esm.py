"""ESM-2 as it is published: import, numbers, export, another tokenizer."""

import json

import numpy as np
import pytest
from hub.cases import Ours
from hub.test_families import Fixture
from hub.test_runs import make_tokenizer, settings, write_folder
from safetensors.numpy import load_file, save_file

from jaxpt.config.plan import make_plan
from jaxpt.hub.export import ExportOptions, export_run
from jaxpt.hub.imports import import_run
from jaxpt.hub.source_folder import read_networks
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.runs.task import make_task, with_vocab
from jaxpt.runs.workdir import load_run
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.training import train_subword
from jaxpt.text.tokens.vocab import Vocab

TOKENS = "<cls> <pad> <eos> <unk> <mask> L A G V S E R T I D P K Q N F".split()
TOKENS += "Y M H W C X B U Z <null_1>".split()
RATES = "rotary_embeddings.inv_freq"


def write(folder, change=lambda rates: rates):
    """A folder with the names of tensors that the Hub's have."""
    fixture = Fixture("esm")
    tensors = dict(fixture.tensors)
    rates = change(tensors.pop(f"esm.{RATES}"))
    for i in range(fixture.config["num_hidden_layers"]):
        tensors[f"esm.encoder.layer.{i}.attention.self.{RATES}"] = rates
    tensors["esm.embeddings.position_embeddings.weight"] = np.ones((20, 16))
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(fixture.config))
    (folder / "vocab.txt").write_text("\n".join(TOKENS))
    options = {"tokenizer_class": "EsmTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    return fixture


def test_a_published_folder_has_the_fixture_s_numbers(tmp_path):
    fixture = write(tmp_path / "esm")
    (network,) = read_networks(tmp_path / "esm").values()
    assert not any(name.endswith(RATES) for name in network.tensors)
    ours = Ours(network.config, network.tensors, "masked")
    assert ours.spec == fixture.ours.spec and ours.spec.token_dropout == 4
    for one, two in zip(
        ours.outputs(ours.params, fixture.batch),
        fixture.ours.outputs(fixture.ours.params, fixture.batch),
        strict=True,
    ):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    "change",
    [
        lambda rates: rates.astype(np.float16),
        lambda rates: rates[:1],
        lambda rates: rates * 0.5,
    ],
)
def test_other_frequencies_are_refused(change, tmp_path, refuses):
    write(tmp_path / "esm", change)
    with refuses(RATES, "2 frequencies of rope_theta=10000.0", "rounded"):
        read_networks(tmp_path / "esm")


@pytest.mark.slow
def test_an_import_fills_and_is_exported(tmp_path):
    fixture = write(tmp_path / "esm")
    lines = import_run(tmp_path / "esm", tmp_path / "run", settings(tmp_path))
    assert any("does not use esm.contact_head" in line for line in lines)
    program, tokenizer, params, _ = load_run(tmp_path / "run")
    assert program.task.model_spec.token_dropout == 4
    ids = tokenizer.encode_prompt("MK<mask>T<mask>")
    logits = program.task.model.fill_logits(params, ids[None])
    batch = {"input_ids": ids[None], "lengths": np.array([len(ids)])}
    expected = fixture.ours.outputs(fixture.ours.params, batch)[1]
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    export_run(tmp_path / "run", tmp_path / "back", "esm")
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert config["token_dropout"] and config["mask_token_id"] == 4
    back = load_file(tmp_path / "back" / "model.safetensors")
    for name, value in fixture.tensors.items():
        if "contact_head" not in name and RATES not in name:
            np.testing.assert_array_equal(back[name], value)
    import_run(tmp_path / "back", tmp_path / "again", settings(tmp_path))
    assert load_run(tmp_path / "again").program.task.model_spec.token_dropout == 4
    options = ExportOptions(dtype="bfloat16")  # whose rates are not rounded
    export_run(tmp_path / "run", tmp_path / "half", "esm", options=options)
    half = load_file(tmp_path / "half" / "model.safetensors")
    np.testing.assert_array_equal(half[f"esm.{RATES}"], back[f"esm.{RATES}"])
    assert str(half["lm_head.bias"].dtype) == "bfloat16"
    import_run(tmp_path / "half", tmp_path / "from-half", settings(tmp_path))


@pytest.mark.slow
def test_another_tokenizer_has_another_mask(tmp_path):
    changes = {"mask_token_id": make_tokenizer().vocab.mask}
    write_folder(tmp_path / "esm", Fixture("esm"), changes)
    names = json.loads((tmp_path / "esm" / "tokenizer_config.json").read_text())
    names["tokenizer_class"] = "PreTrainedTokenizerFast"
    (tmp_path / "esm" / "tokenizer_config.json").write_text(json.dumps(names))
    new = train_subword("wordpiece", ["ab cd ab cdab " * 9], 28, ("mask", "unk", "pad"))
    tokenizers.save(new, tmp_path / "new.json")
    config = settings(tmp_path)
    rest = config, (), str(tmp_path / "new.json")
    import_run(tmp_path / "esm", tmp_path / "run", *rest)
    spec = load_run(tmp_path / "run").program.task.model_spec
    assert spec.token_dropout == new.vocab.mask != changes["mask_token_id"]


@pytest.mark.parametrize(
    "mask, allowed", [(5, "5, the id of [MASK], or -1"), (None, "must be -1")]
)
def test_the_dropped_token_is_the_mask(mask, allowed, refuses):
    assert with_vocab(ModelSpec(token_dropout=5), Vocab(9, mask=5)).vocab_size == 9
    with refuses("model.token_dropout=4", allowed):
        with_vocab(ModelSpec(token_dropout=4), Vocab(9, mask=mask))


def test_an_objective_that_generates_has_no_token_dropout(tmp_path, refuses):
    config = settings(tmp_path)
    vocab = make_tokenizer().vocab
    config.objective, config.model.token_dropout = "clm_mlm", vocab.mask
    plan = make_plan(config.to_dict())
    with refuses(
        f"model.token_dropout={vocab.mask}", "-1 for clm_mlm, which generates"
    ):
        make_task(plan, vocab)
