"""Controls that objectives declare: in a comparison's settings and in its report."""

import pytest
from reports import make_report, make_runs
from tiny import make_config

import jaxpt
from jaxpt.cli import main as cli
from jaxpt.comparison.controls import add_controls
from jaxpt.config.plan import make_plans
from jaxpt.config.sections import CompareSpec
from jaxpt.errors import ConfigError
from jaxpt.objectives import OBJECTIVES
from jaxpt.report.summary import summarise
from jaxpt.report.terminal import list_verdicts

MEAP = {
    "objective": "masked_input_clm",
    "masked_input_clm": {"passes": "masked", "hide_rate": 0.15},
    "train": {"steps": 7},
}
NO_CONTROLS = ("clm", "skip_gram")  # they are controls of others


def test_controls_are_names_of_the_comparison(tmp_path):
    config = make_config(
        tmp_path / "text.txt",
        compare__objectives=("clm", "meap"),
        compare__amount=1e9,
        compare__overrides={"meap": MEAP},
    )
    compare = add_controls(config)["compare"]
    assert compare["objectives"] == [
        *("clm", "meap", "meap-clm", "meap-clm-dropout", "meap-both", "meap-random")
    ]
    controls = ["meap-clm", "meap-clm-dropout", "meap-both", "meap-random"]
    assert compare["controls"] == {"meap": controls}
    overrides = compare["overrides"]
    clm = {"objective": "clm", "train": {"steps": 7}}
    assert overrides["meap-clm"] == clm and overrides["meap"] == MEAP
    assert overrides["meap-clm-dropout"] == clm | {"model": {"dropout": 0.1}}
    # The objective's own settings, and the control's in addition.
    section = {"passes": "both", "hide_rate": 0.15}
    assert overrides["meap-both"] == MEAP | {"masked_input_clm": section}
    section = {"passes": "masked", "hide_rate": 0.15, "hide_by": "random"}
    assert overrides["meap-random"] == MEAP | {"masked_input_clm": section}
    # A second time adds nothing, nor controls of controls.
    once = add_controls(config)
    assert add_controls(once) == once


@pytest.mark.parametrize("name", OBJECTIVES)
def test_declared_controls_can_be_planned(name, tmp_path):
    """And differ from the objective, and from each other."""
    text = tmp_path / "text.txt"
    text.write_text("some words. more of them.\n" * 50)
    more = {"compare__objectives": (name,), "compare__amount": 1e9}
    config = add_controls(make_config(text, name, **more))
    names = config["compare"]["objectives"]
    plans = make_plans(config, names)
    kept = [
        {k: v for k, v in plan.config.items() if k != "compare"}
        for plan in plans.values()
    ]
    assert all(one not in kept[:i] for i, one in enumerate(kept))
    assert names[1:] == config["compare"]["controls"].get(name, [])
    assert (len(names) == 1) == (name in NO_CONTROLS)


def test_another_objective_has_the_same_model(tmp_path):
    """As a control: bart's two stacks are span_corruption's, one stack is not."""
    two_stacks = {"model": {"num_layers": 1, "num_decoder_layers": 1}}
    config = make_config(
        tmp_path / "text.txt",
        compare__objectives=("bart", "token_order"),
        compare__amount=1e9,
        compare__overrides={"bart": two_stacks | {"bart": {"mask_rate": 0.1}}},
    )
    compare = add_controls(config)["compare"]
    assert compare["controls"] == {
        "bart": ["bart-span_corruption"],
        "token_order": ["clm", "multi_token-constant"],
    }
    other = {"objective": "span_corruption"}
    assert compare["overrides"]["bart-span_corruption"] == two_stacks | other
    assert "clm" not in compare["overrides"]


def test_conversions_have_their_controls(tmp_path):
    """From scratch, without the anneal, without the shift; blocks of one size."""
    start = {"train": {"init_from": "runs/clm"}}
    settings = {"shift": True, "mask_anneal": 0.25}
    masked = start | {"masked_diffusion": settings}
    growing = {"block_diffusion": {"block_schedule": ((0.5, 1),)}}
    config = make_config(
        tmp_path / "text.txt",
        compare__objectives=("masked_diffusion", "block_diffusion"),
        compare__amount=1e9,
        compare__overrides={"masked_diffusion": masked, "block_diffusion": growing},
    )
    compare = add_controls(config)["compare"]
    shorts = {
        name: [each.removeprefix(f"{name}-") for each in names]
        for name, names in compare["controls"].items()
    }
    assert shorts == {
        "masked_diffusion": ["at_once", "unshifted", "scratch"],
        "block_diffusion": ["at_once"],
    }
    overrides = compare["overrides"]
    scratch = overrides["masked_diffusion-scratch"]
    assert scratch["train"] == {"init_from": ""}
    assert scratch["masked_diffusion"] == settings
    once = overrides["masked_diffusion-at_once"]
    assert once["masked_diffusion"] == settings | {"mask_anneal": 0.0}
    assert once["train"] == start["train"]
    plain = overrides["masked_diffusion-unshifted"]["masked_diffusion"]
    assert plain == settings | {"shift": False}


def test_the_flag_adds_them(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("some words. more of them.\n" * 50)
    flags = ["--config", "quickstart", f"--data={text}", f"--workdir={tmp_path}/runs"]
    flags += ["--config.compare.objectives=('masked_input_clm',)"]
    flags += ["--config.compare.seeds=(3,)", "--part=list"]
    assert cli.main(["compare", *flags]) == 0
    assert capsys.readouterr().out.split() == ["masked_input_clm-seed3"]
    assert cli.main(["compare", *flags, "--controls"]) == 0
    names = ("", "-masked", "-random")
    assert capsys.readouterr().out.split() == [
        "masked_input_clm-seed3",
        "clm-seed3",
        "clm-dropout-seed3",
        *(f"masked_input_clm{name}-seed3" for name in names[1:]),
    ]
    flags = [f"--workdir={tmp_path}/runs", "--part=runs", "--controls"]
    assert cli.main(["compare", *flags]) == 2
    assert "--controls: needs --config" in capsys.readouterr().err


def test_the_report_has_these_pairs_first():
    values = {
        name: [x, x + 0.01, x - 0.01, x, x]
        for name, x in (("clm", 0.5), ("meap", 0.7), ("off", 0.6), ("mlm", 0.9))
    }
    runs = make_runs(values)
    controls = {"meap": ["off", "clm"], "mlm": []}
    report = make_report(runs, metrics=summarise(runs))
    plain = list_verdicts(report)
    report = make_report(
        runs, metrics=summarise(runs), config={"compare": {"controls": controls}}
    )
    line, *rest = list_verdicts(report)
    assert rest == plain == []
    start = "meap and its controls: linear probe on frozen features: meap ahead of off "
    assert line.startswith(f"{start}by 0.100 [")
    assert "; meap ahead of clm by 0.200 [" in line and "mlm" not in line


@pytest.mark.parametrize(
    "controls", [{"clm": "mlm"}, {"clm": ["clm"]}, {"clm": ["bert"]}, {"a": []}, [3]]
)
def test_bad_controls_are_refused(controls):
    with pytest.raises(ConfigError, match=r"^compare\.controls="):
        CompareSpec(objectives=("clm", "mlm"), amount=1.0, controls=controls)


def test_python_adds_them(monkeypatch, tmp_path):
    seen = []

    def compare(config, workdir, explicit_names):
        seen.append((config["compare"]["objectives"], explicit_names))
        return {}

    monkeypatch.setattr("jaxpt.api.commands.compare_runs", compare)
    changes = {"compare.objectives": ("masked_input_clm",)}
    jaxpt.compare("quickstart", tmp_path / "runs", changes, controls=True)
    ((names, explicit_names),) = seen
    assert names[:2] == ["masked_input_clm", "clm"] and len(names) == 5
    assert explicit_names == ["compare.objectives"]
