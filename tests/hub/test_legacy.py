"""Checkpoints as `bert-base-uncased` has them: TensorFlow's names, heads not used."""

import jax
import numpy as np
import pytest
from hub.conftest import same, stored
from hub.test_families import Fixture
from hub.test_pretraining import make_fixture, pair_settings
from hub.test_runs import settings, write_folder

from jaxpt.errors import UserError
from jaxpt.hub.convert import from_hf, modernise
from jaxpt.hub.export import export_run
from jaxpt.hub.files import read_tensors, write_tensors
from jaxpt.hub.imports import import_run
from jaxpt.hub.source_folder import read_networks
from jaxpt.runs.workdir import load_run

OLD = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}


def age(tensors):
    """The tensors by the names of a checkpoint converted from TensorFlow."""
    aged = {}
    for name, value in tensors.items():
        for new, old in OLD.items():
            name = name.replace(new, old)
        aged[name] = value
    assert sum("gamma" in name for name in aged) >= 5
    assert not any("LayerNorm.weight" in name for name in aged)
    return aged


def load_params(run):
    return jax.device_get(load_run(run).params)


def test_bert_base_uncased(tmp_path):
    """Its class is the masked model; its sentence head is left out, with a line."""
    plain, old = make_fixture(), make_fixture()
    for fixture in (plain, old):
        fixture.config["architectures"] = ["BertForMaskedLM"]
    old.tensors = age(old.tensors)
    write_folder(tmp_path / "plain", plain)
    write_folder(tmp_path / "old", old)
    import_run(tmp_path / "plain", tmp_path / "one", settings(tmp_path))
    lines = import_run(tmp_path / "old", tmp_path / "two", settings(tmp_path))
    same(load_params(tmp_path / "one"), load_params(tmp_path / "two"))
    assert stored(tmp_path / "two")["objective"] == "mlm"
    names = "bert.pooler.dense.bias, bert.pooler.dense.weight"
    names += ", cls.seq_relationship.bias, cls.seq_relationship.weight"
    output = f"{tmp_path / 'old'}: a masked model does not use {names}"
    assert lines[0] == output and len(lines) == 3


@pytest.mark.parametrize("prefix", ["bert.", ""])
@pytest.mark.parametrize("name", ["BertForMaskedLM", "BertForPreTraining", "BertModel"])
def test_names_with_and_without_the_models_prefix(name, prefix, tmp_path):
    """Also with a buffer of positions, whose integers are never read."""
    plain, old = make_fixture(), make_fixture()
    for fixture in (plain, old):
        fixture.config["architectures"] = [name]
    tensors = age(old.tensors) | {"bert.embeddings.position_ids": np.arange(20)[None]}
    old.tensors = {key.replace("bert.", prefix): each for key, each in tensors.items()}
    write_folder(tmp_path / "plain", plain)
    write_folder(tmp_path / "old", old)
    config = (settings if name == "BertForMaskedLM" else pair_settings)(tmp_path)
    import_run(tmp_path / "plain", tmp_path / "one", config)
    lines = import_run(tmp_path / "old", tmp_path / "two", config)
    same(load_params(tmp_path / "one"), load_params(tmp_path / "two"))
    unread = [line for line in lines if "does not use" in line]
    assert len(unread) == (name == "BertForMaskedLM")
    assert all(f" {prefix}pooler.dense.bias" in line for line in unread)


@pytest.mark.parametrize(
    "name", ["gpt2", "roberta", "electra-generator", "distilbert", "bart", "llama"]
)
def test_a_head_next_to_a_body_without_prefix(name):
    fixture = Fixture(name)
    ours, prefix = fixture.ours, fixture.ours.family.body
    bare = {key.removeprefix(prefix): each for key, each in fixture.tensors.items()}
    assert len(bare) == len(fixture.tensors) and bare.keys() != fixture.tensors.keys()
    same(from_hf(bare, ours.family, ours.spec, ours.head, ours.params), ours.params)


def test_a_bert_with_its_sentence_head(tmp_path):
    old = make_fixture()
    plain = dict(old.tensors)
    old.tensors = age(plain)
    write_folder(tmp_path / "old", old)
    config = pair_settings(tmp_path)
    assert len(import_run(tmp_path / "old", tmp_path / "run", config)) == 2
    params = load_params(tmp_path / "run")
    for ours, reference in (
        (params["pair_score"]["out"]["kernel"], "cls.seq_relationship.weight"),
        (params["embed"]["norm"]["scale"], "bert.embeddings.LayerNorm.weight"),
        (params["head"]["norm"]["bias"], "cls.predictions.transform.LayerNorm.bias"),
    ):
        np.testing.assert_array_equal(ours, plain[reference].T)


@pytest.mark.parametrize("name", ["roberta", "electra"])
def test_other_families_have_such_names_too(name, tmp_path):
    place = tmp_path / "theirs"
    if name == "roberta":
        write_folder(place, Fixture("roberta"))
        places = [place]
    else:
        config = settings(tmp_path)
        for head in ("generator", "discriminator"):
            fixture = Fixture(f"electra-{head}")
            write_folder(place / head, fixture)
        table = "electra.embeddings.word_embeddings.weight"
        shared = {
            key: value
            for key, value in read_tensors(place / "generator").items()
            if key.startswith("electra.embeddings.")
        }
        assert table in shared
        held = dict(read_tensors(place / "discriminator").items())
        write_tensors(place / "discriminator", held | shared)
        places = [place / "generator", place / "discriminator"]
    config = settings(tmp_path)
    import_run(place, tmp_path / "one", config)
    for each in places:
        write_tensors(each, age(dict(read_tensors(each).items())))
    import_run(place, tmp_path / "two", config)
    same(load_params(tmp_path / "one"), load_params(tmp_path / "two"))
    out = tmp_path / "back"
    export_run(tmp_path / "two", out)  # by present names
    tensors = read_tensors(out / "generator" if name == "electra" else out)
    assert any("LayerNorm.weight" in key for key in tensors)
    assert not any("gamma" in key for key in tensors)


def test_a_tensor_under_both_names_is_refused():
    one = np.zeros(2, np.float32)
    names = "a.LayerNorm.gamma", "a.LayerNorm.weight"
    with pytest.raises(UserError, match=r"a\.LayerNorm\.weight: appears twice"):
        modernise(dict.fromkeys(names, one))


@pytest.mark.peers
def test_transformers_reads_the_same(tmp_path):
    """The logits of a checkpoint with the old names."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    old = make_fixture()
    old.tensors = age(old.tensors)
    write_folder(tmp_path / "old", old)
    import_run(tmp_path / "old", tmp_path / "run", pair_settings(tmp_path))
    run = load_run(tmp_path / "run")
    ids = np.array([[1, 7, 4, 9, 2]])
    reference = transformers.BertForMaskedLM.from_pretrained(tmp_path / "old").eval()
    with torch.no_grad():
        expected = reference(input_ids=torch.tensor(ids)).logits.numpy()
    result = run.program.task.model.fill_logits(run.params, ids)
    np.testing.assert_allclose(result, expected, atol=1e-4)


def test_ernies_task_0_is_added_to_its_segment_types(tmp_path, refuses):
    fixture, names = Fixture("ernie"), "ernie.embeddings.{}_type_embeddings.weight"
    table = np.arange(48.0, dtype=np.float32).reshape(3, 16)
    plain = dict(fixture.tensors)
    fixture.config["use_task_id"] = True
    fixture.tensors[names.format("task")] = table
    write_folder(tmp_path / "tasks", fixture)
    network = read_networks(tmp_path / "tasks")["masked"]
    assert set(network.tensors) == set(plain)
    for name, value in network.tensors.items():
        added = table[0] if name == names.format("token") else 0
        np.testing.assert_array_equal(value, plain[name] + added)
    fixture.tensors = plain
    write_folder(tmp_path / "none", fixture)
    with refuses("embeddings.task_type_embeddings.weight: is missing"):
        read_networks(tmp_path / "none")
