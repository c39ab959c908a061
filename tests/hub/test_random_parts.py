"""An imported body without a language model's head: no answer by random weights."""

import shutil
import warnings

import pytest
from hub.test_families import Fixture
from hub.test_runs import settings, write_folder

import jaxpt
from jaxpt.cli.main import main
from jaxpt.files.folder import write_json
from jaxpt.hub.imports import import_run
from jaxpt.runs.program import Program
from jaxpt.runs.random_parts import NAME
from jaxpt.runs.workdir import load_run

LACKS = "the checkpoint has no head"
RANDOM = "its weights were drawn at random"


def write_body(folder, name, kind):
    """The fixture's model without its head, as transformers saves a body."""
    fixture = Fixture(name)
    heads = ("cls.", "lm_head.")
    fixture.tensors = {
        key: value
        for key, value in fixture.tensors.items()
        if not key.startswith(heads)
    }
    write_folder(folder, fixture, {"architectures": [kind]})


@pytest.fixture
def bert(tmp_path):
    write_body(tmp_path / "bert", "bert", "BertModel")
    return tmp_path / "bert"


def test_load_warns_and_predictions_are_refused(bert, refuses):
    with pytest.warns(jaxpt.RandomWeightsWarning) as caught:
        run = jaxpt.load(bert)
    (warning,) = caught
    assert str(warning.message) == f"{bert}: {LACKS}; {RANDOM}"
    assert warning.filename == __file__
    with refuses(f"fill: {LACKS}", RANDOM, "train the run first"):
        run.fill("a [MASK] b")
    for ask in (run.nll, run.token_log_probs):
        with refuses(f"the likelihood of a text: {LACKS}"):
            ask("a b")
    assert run.embed(["a b"]).shape == (1, 16)  # which reads no head


def test_random_weights_come_without_an_optimizers_state(bert, monkeypatch):
    monkeypatch.setattr(Program, "init_state", None)
    with pytest.warns(jaxpt.RandomWeightsWarning, match=LACKS):
        jaxpt.load(bert)


def test_random_weights_predict_only_if_they_are_allowed(bert):
    with pytest.warns(jaxpt.RandomWeightsWarning, match=LACKS):
        run = jaxpt.load(bert, allow_random=True)
    ((best, *_),) = run.fill("a [MASK] b")
    assert 0 < best[1] < 1 and run.nll("a b").shape == (1,)


def test_a_random_head_writes_no_gap(tmp_path, refuses):
    write_body(tmp_path / "mistral", "mistral", "MistralModel")
    config = settings(tmp_path)
    config.objective = "fill_in_the_middle"
    run = tmp_path / "run"
    import_run(tmp_path / "mistral", run, config, ["objective"])
    with pytest.warns(jaxpt.RandomWeightsWarning, match=LACKS):
        run = jaxpt.load(run)
    with refuses(f"fill: {LACKS}", RANDOM):
        run.fill("a [MASK] b")


def test_an_untied_decoder_does_not_write(tmp_path, refuses):
    write_body(tmp_path / "mistral", "mistral", "MistralModel")
    with pytest.warns(jaxpt.RandomWeightsWarning, match=LACKS):
        run = jaxpt.load(tmp_path / "mistral")
    with refuses(f"generate: {LACKS}", RANDOM):
        run.generate("a")
    with refuses(f"the likelihood of a text: {LACKS}"):
        run.nll("a b")


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_a_model_with_its_head_says_nothing(name, tmp_path):
    """GPT-2's head is its embeddings, also of its body."""
    if name == "bert":
        write_folder(tmp_path / name, Fixture(name))
    else:
        write_body(tmp_path / name, name, "GPT2Model")
    with warnings.catch_warnings():
        warnings.simplefilter("error", jaxpt.RandomWeightsWarning)
        run = jaxpt.load(tmp_path / name)
    assert run.task.random_parts == ()
    assert run.nll("a b").shape == (1,)


def test_commands_refuse_until_it_is_trained(bert, tmp_path, capsys):
    """The sentence head alone, which no word is predicted by, does not matter."""
    run = tmp_path / "run"
    config = settings(tmp_path)
    config.train.steps, config.eval.probe_length = 2, 8
    import_run(bert, run, config)
    argv = ["fill", f"--workdir={run}", "--text=a [MASK] b"]
    assert main(argv) == 2
    assert f"error: fill: {LACKS}" in capsys.readouterr().err
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("good\tbad\na b\tb a\n")
    assert main(["evaluate", f"--workdir={run}", f"--tasks=pairs:{pairs}"]) == 2
    assert f"the likelihood of a text: {LACKS}" in capsys.readouterr().err
    assert main(["evaluate", f"--workdir={run}"]) == 0
    assert f"warning: {LACKS}" in capsys.readouterr().err
    shutil.copytree(run, tmp_path / "pair")
    write_json(tmp_path / "pair" / NAME, {"parts": ["pair_score"]})
    assert main(["fill", f"--workdir={tmp_path / 'pair'}", *argv[2:]]) == 0
    assert main(["train", f"--workdir={run}"]) == 0
    assert load_run(run).program.task.random_parts == ()
    assert main(argv) == 0
