"""`jaxpt fit-scaling`: planted constants through a table, what is N, refusals."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from tiny import make_config, prepare

from jaxpt.cli import main as cli
from jaxpt.judge import scaling_laws as laws
from jaxpt.judge.scaling_laws import ScalingLaw
from jaxpt.report import scaling
from jaxpt.runs.finished_runs import FoundRun

LAW = ScalingLaw(A=406.4, B=410.7, E=1.69, alpha=0.34, beta=0.28)
BUDGETS = (1e18, 1e19, 1e20)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Fewer starts of the fits: all of them are tried in tests/judge."""
    monkeypatch.setattr(laws, "NUM_STARTS", 3)


def write_table(path, noise=0.0, name="", flops=True):
    rng = np.random.default_rng(0)
    lines = ["params,tokens,loss" + ",flops" * flops + ",name" * bool(name)]
    for budget in BUDGETS:
        for params in LAW.best(budget)[0] * np.geomspace(0.4, 2.5, 5):
            tokens = budget / 6 / params
            loss = LAW.loss(params, tokens) * np.exp(rng.normal(0, noise))
            cells = [params, tokens, loss, *[budget] * flops, *[name] * bool(name)]
            lines.append(",".join(map(str, cells)))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_planted_constants_come_through_the_command(tmp_path, capsys):
    table = write_table(tmp_path / "runs.csv", noise=1e-4, name="clm")
    to = tmp_path / "out"
    words = ["--csv", str(table), "--to", str(to), "--num_draws", "20"]
    assert cli.main(["fit-scaling", *words]) == 0
    stdout = capsys.readouterr().out
    assert "clm: 15 runs" in stdout and "C = 6 N D" in stdout
    fit = json.loads((to / "scaling.json").read_text())["fits"]["clm"]
    law = fit["parametric"]["law"]
    for name in ("E", "alpha", "beta"):
        assert law[name]["value"] == pytest.approx(getattr(LAW, name), rel=0.01)
        assert law[name]["low"] < law[name]["value"] < law[name]["high"]
    assert fit["parametric"]["exponent"]["value"] == pytest.approx(0.4516, abs=0.005)
    first, last, beyond = fit["parametric"]["best"]
    assert (first["flops"], last["flops"]) == pytest.approx((1e18, 1e20))
    assert beyond["flops"] == 1e21
    assert last["params"]["value"] == pytest.approx(LAW.best(1e20)[0], rel=0.02)
    valleys = fit["parabolas"]["valleys"]
    assert [valley["flops"] for valley in valleys] == pytest.approx(BUDGETS)
    for valley in valleys:
        best = LAW.best(valley["flops"])
        assert valley["params"] == pytest.approx(best[0], rel=0.05)
        assert valley["tokens"] == pytest.approx(best[1], rel=0.05)
    assert (to / "scaling.svg").read_text().startswith("<svg")


def test_without_flops_they_are_6nd(tmp_path):
    with_them = scaling.read_csv(write_table(tmp_path / "a.csv"))["runs"]
    without = scaling.read_csv(write_table(tmp_path / "b.csv", flops=False))["runs"]
    np.testing.assert_allclose(with_them.flops, without.flops)
    assert without.factor == pytest.approx(6)


@pytest.mark.parametrize(
    "text, output",
    [
        ("params,loss\n1,2\n", "has no column tokens"),
        ("params,tokens,loss\n", "has no rows"),
        ("", "not nothing"),
        ("params,tokens,loss\n1,2,3\n1,x,3\n", "line 3 has tokens='x'"),
        ("params,tokens,loss\n1,2,-3\n", "line 2 has loss='-3'"),
        ("params,tokens,loss\n1,2\n", "line 2 has loss=None"),
        ("params,tokens,loss\n1,2,3\n4,5,6\n", "cannot be fitted. Approach 3: 2 runs"),
    ],
)
def test_tables_that_are_refused_in_one_line(tmp_path, text, output, capsys):
    path, to = tmp_path / "runs.csv", tmp_path / "out"
    path.write_text(text, encoding="utf-8")
    assert cli.main(["fit-scaling", f"--csv={path}", f"--to={to}"]) == 2
    error = capsys.readouterr().err
    assert output in error and len(error.splitlines()) == 1
    assert not to.exists()


@pytest.mark.parametrize(
    "words, output",
    [
        ([], "--runs, --csv: exactly one"),
        (["--csv=a", "--runs=b"], "--runs, --csv: exactly one"),
        (["--csv=a", "--count=all"], "--count=all: is for --runs"),
        (["--csv=a", "--metric=x"], "--metric=x: is for --runs"),
        (["--csv=missing.csv"], "--csv=missing.csv: cannot be read"),
        (["--workdir=a"], "--workdir: unknown flag"),
    ],
)
def test_flags_that_are_refused(words, output, capsys):
    assert cli.main(["fit-scaling", *words]) == 2
    error = capsys.readouterr().err
    assert output in error and len(error.splitlines()) == 1


def test_few_draws_and_a_runs_folder_are_refused(tmp_path, refuses):
    groups = scaling.read_csv(write_table(tmp_path / "a.csv"))
    with refuses("num_draws=3", "at least 20"):
        scaling.fit_scaling(groups, None, 3)
    with refuses(f"to={tmp_path}", "holds other files"):
        scaling.fit_scaling(groups, tmp_path)
    with refuses(f"to={tmp_path / 'a.csv'}", "is a file"):
        scaling.fit_scaling(groups, tmp_path / "a.csv")


def read_files(folder):
    return {p.name: p.read_bytes() for p in folder.glob("**/*") if p.is_file()}


def test_a_stopped_fit_is_repeated_and_keeps_what_was_there(tmp_path, monkeypatch):
    """Stopped after the picture; other files of the user are kept."""

    def stop(*args):
        raise KeyboardInterrupt

    groups = scaling.read_csv(write_table(tmp_path / "a.csv"))
    to = tmp_path / "out"
    for _ in range(2):  # into a new folder, then into one with an earlier fit
        before = read_files(to)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(scaling, "write_json", stop)
            scaling.fit_scaling(groups, to, 20)
        assert read_files(to) == before
        scaling.fit_scaling(groups, to, 20)
        (to / "notes").mkdir(exist_ok=True)
        (to / "notes" / "mine.txt").write_text("mine")
    assert {path.name for path in to.iterdir()} == {
        *("scaling.json", "scaling.svg", "checksums.json", "notes")
    }
    assert (to / "notes" / "mine.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "out"]


@pytest.fixture(scope="module")
def make_found(speech):
    """`make_found("mlm", metrics)`: a finished run that was not trained."""

    def make(objective="clm", metrics=None, text="a", **changes):
        task, tokenizer, _ = prepare(make_config(speech, objective, **changes))
        result = {
            "objective": objective,
            "raw_tokens": 1000,
            "flops": 2e9,
            "metrics": {"valid_loss": 3.0} if metrics is None else metrics,
        }
        return FoundRun(
            Path("run"), "0", {}, result, {}, {"train": text}, task, tokenizer, "sha"
        )

    return make


def count(params, leaves=()):
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def test_what_counts_as_parameters(make_found):
    clm = make_found("clm").task.model
    shapes = jax.eval_shape(clm.init_params, jax.random.key(0))
    whole = count(shapes)
    tables = shapes["embed"]["tokens"].size + count(shapes["embed"].get("positions"))
    assert scaling.count_params(clm) == whole
    assert scaling.count_params(clm, "no_embeddings") == whole - tables
    untied = make_found("clm", model__tie_embeddings=False).task.model
    more = jax.eval_shape(untied.init_params, jax.random.key(0))["head"]
    assert scaling.count_params(untied) == whole + count(more)
    assert scaling.count_params(untied, "no_embeddings") == whole - tables
    valued = make_found("clm", model__value_embeddings=True).task.model
    attention = jax.eval_shape(valued.init_params, jax.random.key(0))["encoder"]
    table, gate = (
        attention["layer_0"]["attention"]["value_embed"][name].size
        for name in ("table", "gate")
    )
    assert scaling.count_params(valued) == whole + table + gate
    expected = whole + gate - tables
    assert scaling.count_params(valued, "no_embeddings") == expected
    electra = make_found("electra").task.model
    both = jax.eval_shape(electra.init_params, jax.random.key(0))
    assert scaling.count_params(electra) == count(both)
    left = scaling.count_params(electra, "no_embeddings")
    networks = count(both["generator"]["encoder"]) + count(both["discriminator"])
    assert networks <= left < count(both) - both["embed"]["tokens"].size + 1


def test_runs_are_grouped_and_their_numbers_taken(make_found):
    runs = [make_found("clm"), make_found("mlm"), make_found("clm", model__d_ff=64)]
    groups = scaling.read_runs(runs)
    assert {name: len(p.loss) for name, p in groups.items()} == {"clm": 2, "mlm": 1}
    points = groups["clm"]
    assert points.tokens.tolist() == [1000, 1000] and points.flops[0] == 2e9
    assert points.params[0] == scaling.count_params(runs[0].task.model)
    assert points.params[1] > points.params[0] and points.loss.tolist() == [3, 3]


def test_runs_that_do_not_fit_together_are_refused(make_found, refuses):
    one = make_found("clm")
    with refuses("metric=bits", "has only valid_loss"):
        scaling.read_runs([one], "bits")
    with refuses("valid_loss=nan", "above 0"):
        scaling.read_runs([make_found("clm", {"valid_loss": float("nan")})])
    with refuses("other text"):
        scaling.read_runs([one, make_found("clm", text="b")])
