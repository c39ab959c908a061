"""An objective of the user's own, named by its module: it does all that others do."""

import json
import re
import sys
from pathlib import Path

import pytest
from tiny import write_config

import jaxpt
from jaxpt import trust
from jaxpt.cli.main import main
from jaxpt.objectives import OBJECTIVES
from jaxpt.report import figures

MODULE = '''"""Half of the tokens are masked."""

import dataclasses
from typing import ClassVar

from jaxpt.objectives import mlm
from jaxpt.objectives.mlm import corrupt, loss, masks, train_step


@dataclasses.dataclass(frozen=True)
class Spec(mlm.Spec):
    SECTION: ClassVar[str] = "half"
    mask_rate: float = 0.5
'''


PAGE = Path(__file__).resolve().parents[2] / "docs" / "own-objective.md"
# Terms of odd names, and no metric.
ODD = '''"""Masked tokens of both halves of a row."""

import dataclasses

import jax.numpy as jnp

from jaxpt.nn.networks.one_stack import MaskedLM
from jaxpt.objectives.objective import make_train_step
from jaxpt.objectives.spec import Needs, ObjectiveSpec, Term
from jaxpt.ops import masks as attention_masks


@dataclasses.dataclass(frozen=True)
class Spec(ObjectiveSpec):
    SECTION = "odd"
    READS = frozenset({"tokens", "index"})
    NETWORKS = (MaskedLM,)

    @property
    def needs(self):
        return Needs(specials=("mask",))

    @property
    def terms(self):
        return {"left.half": Term("left"), "Ω-2": Term("right", 0.5, True)}


def corrupt(rng, rows, vocab, spec):
    tokens = rows["tokens"]
    is_left = jnp.arange(tokens.shape[1]) < tokens.shape[1] // 2
    is_masked = jnp.arange(tokens.shape[1]) % 5 == 0
    inputs = jnp.where(is_masked, vocab.mask, tokens)
    weights = [is_masked & is_left, is_masked & ~is_left]
    weights = [jnp.broadcast_to(w, tokens.shape).astype("f4") for w in weights]
    batch = {"index": rows["index"], "inputs": inputs, "targets": tokens}
    return batch | {"weights": dict(zip(spec.terms, weights, strict=True))}


def masks(batch):
    return {"self": attention_masks.full()}


def loss(params, model, batch, masks, rngs):
    def predict(model):
        states = model.batch_states(batch, masks, deterministic="dropout" not in rngs)
        weights = batch["weights"].items()
        return {n: model.score(states, batch["targets"], w).loss for n, w in weights}

    return model.apply({"params": params}, rngs=rngs, method=predict), {}


train_step = make_train_step(corrupt, masks, loss)
'''


def read_page():
    """The objective that the documentation prints."""
    return re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)[1]


@pytest.fixture
def place(tmp_path, speech, monkeypatch):
    """A folder with the package `own` and a config, as the current one."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "half.py").write_text(MODULE)
    (tmp_path / "own" / "skip.py").write_text(read_page())
    (tmp_path / "own" / "odd.py").write_text(ODD, encoding="utf-8")
    write_config(tmp_path / "config.py", speech, train__steps=4)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, ""])
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "own"]:
        del sys.modules[name]


def test_it_trains_resumes_and_is_used(place, capsys):
    flags = ["--config", "config.py", "--config.objective=own.half"]
    whole = ["train", *flags, "--config.half.replace_mask=0.9", "--workdir", "whole"]
    assert main(whole) == 0
    stored = json.loads((place / "whole" / "config.json").read_text())
    assert stored["objective"] == "own.half"
    assert stored["half"]["mask_rate"] == 0.5 and stored["half"]["replace_mask"] == 0.9
    result = (place / "whole" / "result.json").read_text()
    trust._trusted.clear()  # another process
    assert main(["train", "--workdir", "whole"]) == 2  # the folder alone does not do
    assert "add --trust=own.half " in capsys.readouterr().err
    own = ["--trust", "own.half"]
    assert main(["train", "--workdir", "whole", *own]) == 0  # resumed, and is finished
    assert (place / "whole" / "result.json").read_text() == result
    argv = ["train", "--config", "whole/config.json", "--workdir", "again", *own]
    assert main(argv) == 0
    again = json.loads((place / "again" / "result.json").read_text())
    assert again["metrics"] == json.loads(result)["metrics"]
    assert main(["evaluate", "--workdir", "whole", *own]) == 0
    assert main(["fill", "--workdir", "whole", "--text", "the [MASK]en", *own]) == 0
    trust._trusted.clear()
    assert "own.half" in repr(jaxpt.load("whole", trust="own.half"))
    # Other settings in the same folder are refused.
    capsys.readouterr()
    assert main([*whole[:-2], "--config.half.mask_rate=0.4", "--workdir=whole"]) == 2
    assert "half.mask_rate=0.5, not 0.4" in capsys.readouterr().err


def test_its_settings_are_python_s_too(place):
    """As flags are, in a config that does not know of it."""
    settings = {"objective": "own.half", "half.mask_rate": 0.4, "train.steps": 2}
    jaxpt.train("config.py", "run", settings)
    stored = json.loads((place / "run" / "config.json").read_text())
    assert stored["half"]["mask_rate"] == 0.4 and stored["half"]["replace_mask"] == 0.8
    compared = {"compare.objectives": ("mlm", "own.half"), "half.mask_rate": 0.3}
    assert jaxpt.read_config("config.py", compared)["half"]["mask_rate"] == 0.3
    with pytest.raises(jaxpt.UserError, match="half.rate: unknown setting"):
        jaxpt.read_config("config.py", {"objective": "own.half", "half.rate": 0.4})
    with pytest.raises(jaxpt.UserError, match="objective=own.haf: cannot be imported"):
        jaxpt.read_config("config.py", {"objective": "own.haf"})


def test_it_is_compared(place, monkeypatch):
    monkeypatch.setattr(figures, "draw", lambda *args: {})  # which compiles much
    argv = ["compare", "--config", "config.py", "--workdir", "compared"]
    argv += ["--config.compare.objectives=('own.half','mlm')"]
    argv += ["--config.compare.budget=steps", "--config.compare.seeds=(0,)"]
    assert main(argv) == 0
    report = json.loads((place / "compared" / "report.json").read_text())
    assert [run["objective"] for run in report["runs"]] == ["own.half", "mlm"]
    page = (place / "compared" / "report.html").read_text()
    assert "Half of the tokens" in page or "own.half" in page
    trust._trusted.clear()
    kept = ["compare", "--workdir", "compared", "--part=report"]
    assert main(kept) == 2
    assert main([*kept, "--trust=own.half"]) == 0


def test_it_is_exported_and_names_no_code_in_the_folder(place):
    config = jaxpt.read_config("config.py", {"objective": "own.half"})
    config["model"] |= {"num_types": 1, "norm_position": "post", "max_len": 128}
    config["model"] |= {"head_bias": True, "head_transform": True}
    jaxpt.train(config, "run")
    assert main(["export", "--workdir", "run", "--to", "hf"]) == 0
    assert not any("own.half" in x.read_text() for x in place.glob("hf/**/*.json"))
    assert jaxpt.load("hf").objective == "mlm"


@pytest.mark.parametrize(
    "old, new, error",
    [
        ("", "", "objective=own.haf: cannot be imported: ModuleNotFoundError"),
        ('"half"', '"other"', "its Spec must have SECTION = 'half'"),
        ("corrupt, loss", "corrupt", "objective=own.half: must have loss"),
        ("class Spec", "1 / 0\nclass Spec", "cannot be imported: SyntaxError"),
    ],
)
def test_what_is_no_objective_is_one_line(old, new, error, place, capsys):
    (place / "own" / "half.py").write_text(MODULE.replace(old, new))
    name = "own.half" if old else "own.haf"
    argv = ["train", "--config", "config.py", f"--config.objective={name}"]
    assert main([*argv, "--workdir", "run"]) == 2
    stderr = capsys.readouterr().err
    assert error in stderr and len(stderr.splitlines()) == 1
    assert not (place / "run").exists()
    assert name not in list(OBJECTIVES)  # nothing was registered


@pytest.mark.slow_cases("odd")
@pytest.mark.parametrize("name", ["skip", "odd"])
def test_one_with_nothing_but_the_contract_does_all_that_others_do(name, place, capsys):
    """The one in the documentation, and one with odd terms, in every command."""
    assert len(read_page().splitlines()) < 40
    flags = ["--config", "config.py", f"--config.objective=own.{name}"]
    flags += ["--config.eval.num_choices=3", "--config.eval.word_context=3"]
    own = ["--trust", f"own.{name}"]
    assert main(["train", *flags, "--workdir", "run"]) == 0
    metrics = json.loads((place / "run" / "result.json").read_text())["metrics"]
    terms = {"skip": {"valid_loss"}, "odd": {"valid_left.half", "valid_Ω-2"}}[name]
    assert terms | {"valid_loss", "choice_bayes_accuracy"} <= metrics.keys()
    assert ("val_perplexity" in metrics) == (name == "odd")
    assert ("cloze_accuracy" in metrics) == (name == "odd")
    assert not any(key.startswith("masked_") for key in metrics)
    assert main(["evaluate", "--workdir", "run", *own]) == 0
    page = ["--to=page", "--length=12", f"--objectives=mlm,own.{name}"]
    page += [f"--config.compare.objectives=('mlm','own.{name}')"]
    for more in ([], page):
        assert main(["inspect", *flags, *more]) == 0
    stdout = capsys.readouterr().out
    assert all(f"{term.removeprefix('valid_')} weights" in stdout for term in terms)
    argv = ["compare", *flags, "--workdir", "compared"]
    argv += [f"--config.compare.objectives=('own.{name}','clm')"]
    argv += ["--config.compare.budget=steps", "--config.compare.seeds=(0,)"]
    assert main(argv) == 0
    report = json.loads((place / "compared" / "report.json").read_text())
    assert {run["objective"] for run in report["runs"]} == {f"own.{name}", "clm"}
    assert main(["compare", "--workdir", "compared", "--part=report", *own]) == 0
