"""One of ELECTRA's networks without the other: the discriminator, or the generator."""

import json
import lzma
import warnings

import numpy as np
import pytest
from hub.test_families import Fixture
from hub.test_runs import make_tokenizer, settings, write_folder
from safetensors.numpy import load_file

import jaxpt
from jaxpt.cli.main import main
from jaxpt.finetuning.base import load_base
from jaxpt.hub import onnx_files
from jaxpt.hub.export import export_run
from jaxpt.hub.family import find_family
from jaxpt.hub.imports import import_run
from jaxpt.hub.onnx_export import export_onnx
from jaxpt.hub.task_heads import TEXTS
from jaxpt.runs.workdir import load_run
from jaxpt.text.tokens.exported import export_tokenizer

LACKS = "the checkpoint has no generator; its weights were drawn at random"
BOTH = "a folder with the folders 'generator' and 'discriminator'"


def write(folder, name, changes=None, prefix=""):
    """A folder of one network; `prefix` is left out of its tensors' names."""
    fixture = Fixture(f"electra-{name}")
    fixture.tensors = {
        key.removeprefix(prefix): value for key, value in fixture.tensors.items()
    }
    write_folder(folder, fixture, changes)
    return fixture


@pytest.fixture
def detector(tmp_path):
    """The folder of a discriminator."""
    write(tmp_path / "theirs", "discriminator")
    return tmp_path / "theirs"


def check_tensors(folder, expected):
    """A folder's tensors are the expected ones, bit for bit; copies may be missing."""
    written = load_file(folder / "model.safetensors")
    assert set(expected) - set(written) <= set(find_family("electra").copies)
    assert set(written) <= set(expected)
    for key, value in written.items():
        np.testing.assert_array_equal(value, expected[key])


def test_a_discriminator_comes_back(detector, tmp_path):
    """Twice: an export also has the run's settings."""
    expected = load_file(detector / "model.safetensors")
    source = detector
    for number in range(2):
        run, out = tmp_path / f"run{number}", tmp_path / f"out{number}"
        lines = import_run(source, run, settings(tmp_path))
        assert lines[0] == f"{run}: generator is not in {source}: initialised at random"
        assert len(lines) == 2 and "electra from electra" in lines[1]  # no recipe
        export_run(run, out)
        config = json.loads((out / "config.json").read_text())
        assert config["architectures"] == ["ElectraForPreTraining"]
        assert not (out / "generator").exists()
        assert not list((out / "jaxpt").glob("*.safetensors"))
        check_tensors(out, expected)
        source = out


def test_a_discriminator_detects_and_embeds(detector, refuses):
    with pytest.warns(jaxpt.RandomWeightsWarning) as caught:
        run = jaxpt.load(detector)
    assert [str(each.message) for each in caught] == [f"{detector}: {LACKS}"]
    assert run.embed(["a b"]).shape == (1, 16)
    assert run.rules == ("discriminator",)
    text = "a b c"
    (scores,) = run.token_log_probs(text)
    ids = run.task.vocab.text_form.wrap(run.tokenizer.encode(text))
    logits = run.model.replaced_logits(run.params, ids[None])[0]
    around = len(run.task.vocab.text_form.before)
    inner = np.asarray(logits)[around : around + len(scores)]
    np.testing.assert_allclose(scores, -np.logaddexp(0, inner), atol=1e-5)
    with refuses("rule=pll", "discriminator"):
        run.token_log_probs(text, rule="pll")
    with refuses(f"fill: {LACKS}", BOTH):
        run.fill("a [MASK] b")


def test_a_discriminator_is_not_trained_by_its_objective(detector, tmp_path, capsys):
    run = tmp_path / "run"
    import_run(detector, run, settings(tmp_path))
    assert main(["train", f"--workdir={run}"]) == 2
    assert f"error: train: {LACKS}; import both" in capsys.readouterr().err
    flags = [f"--config={run / 'config.json'}", f"--workdir={tmp_path / 'other'}"]
    flags += [f"--config.train.init_from={run}"]
    flags += [f"--config.tokenizer.path={run / 'tokenizer.json'}"]
    assert main(["train", *flags]) == 2
    assert f"train.init_from={run}: {LACKS}; import" in capsys.readouterr().err


def test_a_discriminator_has_no_graphs(detector, tmp_path, refuses, monkeypatch):
    monkeypatch.setattr(onnx_files, "require", lambda precision: None)
    import_run(detector, tmp_path / "run", settings(tmp_path))
    with refuses(f"ONNX: {LACKS}", BOTH):
        export_onnx(tmp_path / "run", tmp_path / "out")


def test_a_discriminator_is_fine_tuned(detector, tmp_path):
    rows = "a b\tx\nc\ty\n" * 4
    for name in ("train.tsv.xz", "dev.tsv", "test-labeled.tsv"):
        opener = lzma.open if name.endswith(".xz") else open
        with opener(tmp_path / name, "wt") as file:
            file.write(f"sentence\tlabel\n{rows}".replace("x", "0").replace("y", "1"))
    tuned, out = tmp_path / "tuned", tmp_path / "out"
    flags = ["--config.train.epochs=(1,)", "--config.task.max_len=8", f"--to={tuned}"]
    config = f"--config=tasks/sst2:{tmp_path}"
    assert main(["finetune", f"--from={detector}", config, *flags]) == 0
    base = load_base(str(tuned / "base"), "auto", 8, 0.0, TEXTS)
    expected = load_run(tuned / "base").params
    assert base.form == "electra_dense"  # which can be exported
    np.testing.assert_array_equal(
        base.params["embed"]["tokens"], expected["embed"]["tokens"]
    )
    assert main(["export", f"--workdir={tuned}", f"--to={out}"]) == 0
    config = json.loads((out / "config.json").read_text())
    assert config["architectures"] == ["ElectraForSequenceClassification"]


@pytest.mark.parametrize(
    "changes, prefix, missing",
    [
        ({"architectures": ["ElectraModel"]}, "", "generator"),
        ({"architectures": None}, "", "generator"),
        ({"architectures": ["ElectraModel"]}, "electra.", "generator"),
    ],
)
def test_a_discriminators_body(changes, prefix, missing, tmp_path):
    write(tmp_path / "theirs", "discriminator", changes, prefix)
    with pytest.warns(jaxpt.RandomWeightsWarning, match=f"no {missing}; its"):
        run = jaxpt.load(tmp_path / "theirs")
    assert run.rules == ("discriminator",)


def test_a_body_without_the_score_detects_nothing(tmp_path, refuses):
    fixture = Fixture("electra-discriminator")
    fixture.tensors = {
        key.removeprefix("electra."): value
        for key, value in fixture.tensors.items()
        if key.startswith("electra.")
    }
    write_folder(tmp_path / "theirs", fixture, {"architectures": ["ElectraModel"]})
    with pytest.warns(jaxpt.RandomWeightsWarning, match="no generator and no score"):
        run = jaxpt.load(tmp_path / "theirs")
    assert run.embed(["a b"]).shape == (1, 16)
    with refuses("the likelihood of a text", "no generator and no score"):
        run.nll("a b")


def test_a_generator_is_a_masked_language_model(tmp_path):
    """Its embeddings are narrower than its layers, which BERT's are not."""
    fixture = write(tmp_path / "theirs", "generator")
    with warnings.catch_warnings():
        warnings.simplefilter("error", jaxpt.RandomWeightsWarning)
        run = jaxpt.load(tmp_path / "theirs")
    assert run.objective == "mlm" and run.task.model_spec.embedding_size == 8
    ((best, *_),) = run.fill("a [MASK] b")
    assert 0 < best[1] < 1
    import_run(tmp_path / "theirs", tmp_path / "run", settings(tmp_path))
    export_run(tmp_path / "run", tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architectures"] == ["ElectraForMaskedLM"]
    check_tensors(tmp_path / "out", fixture.tensors)


def test_one_of_two_folders_names_the_other(tmp_path, refuses):
    write(tmp_path / "theirs" / "generator", "generator")
    with refuses("lacks the folder 'discriminator'", "theirs/generator"):
        import_run(tmp_path / "theirs", tmp_path / "run", settings(tmp_path))


@pytest.mark.peers
@pytest.mark.parametrize("name", ["discriminator", "generator"])
def test_transformers_loads_what_comes_back(name, tmp_path):
    """The same outputs from the original and the export, and by jaxpt's own run."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from hub.peers import make_theirs

    model = make_theirs(f"electra-{name}")
    model.save_pretrained(tmp_path / "theirs")
    export_tokenizer(make_tokenizer(), tmp_path / "theirs" / "tokenizer.json")
    import_run(tmp_path / "theirs", tmp_path / "run", settings(tmp_path))
    export_run(tmp_path / "run", tmp_path / "out")
    again, info = type(model).from_pretrained(
        tmp_path / "out", output_loading_info=True, attn_implementation="eager"
    )
    assert not any(info.values()), info
    check_tensors(tmp_path / "out", load_file(tmp_path / "theirs/model.safetensors"))
    reader = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    ids = reader("a b c d", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        one, two = (each(ids).logits.numpy() for each in (model, again.eval()))
    np.testing.assert_allclose(one, two, rtol=1e-6)  # of equal tensors
    program, _, params, _ = load_run(tmp_path / "run")
    network, tokens = program.task.model, ids.numpy().astype(np.int32)
    read = network.fill_logits if name == "generator" else network.replaced_logits
    np.testing.assert_allclose(read(params, tokens), one, atol=1e-4)
