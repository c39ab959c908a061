"""Several budgets in one comparison: branches, what they cost, what is refused."""

import json

import pytest
from reports import without_times
from tiny import make_config, prepare

from jaxpt.comparison import budgets, plan_runs, train_runs
from jaxpt.comparison import compare as comparison
from jaxpt.comparison.archive import archive
from jaxpt.comparison.compare import Part, do_part
from jaxpt.errors import DivergedError
from jaxpt.report import figures
from jaxpt.report.types import Report
from jaxpt.training import loop

AMOUNTS = (2e7, 4e7, 8e7)
SETTINGS = {
    "compare__objectives": ("clm",),
    "compare__seeds": (0, 1),
    "compare__amounts": AMOUNTS,
    "compare__num_evals": 2,
    "optim__schedule": "wsd",
    "optim__decay_fraction": 0.25,
    "train__checkpoint_every": 4,
}


@pytest.fixture(autouse=True, scope="module")
def quick():
    """No pictures, and no look ahead at what will be measured: both compile much."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw", lambda *args: {})
        patch.setattr(plan_runs, "check_run", lambda *args: None)
        yield


def make(path, **changes):
    return make_config(path, **(SETTINGS | changes))


@pytest.fixture(scope="module")
def compared(speech, tmp_path_factory):
    """The folder of a comparison at three budgets, done in parts."""
    workdir, config = tmp_path_factory.mktemp("budgets"), make(speech)
    do_part(Part("prepare"), config, workdir)
    do_part(Part("runs", run_index=1), config, workdir)
    do_part(Part("runs"), config, workdir)
    return workdir, do_part(Part("report"), config, workdir)


def read(folder):
    return json.loads((folder / "report.json").read_text())


def test_each_budget_is_the_comparison_at_that_amount(compared, speech, tmp_path):
    """Its runs, curves and verdicts are those of a comparison of this amount alone."""
    workdir, _ = compared
    alone = make(
        speech, compare__amounts=(), compare__amount=4e7, compare__alpha=0.05 / 3
    )
    comparison.compare(alone, tmp_path)
    one, other = read(workdir / "budgets" / "4e07"), read(tmp_path)
    assert without_times(one) == without_times(other)
    assert one["alpha"] == pytest.approx(0.05 / 3) and one["budget"]["amount"] == 4e7


def test_costs_of_a_run_are_whole_and_those_of_all_are_what_was_spent(compared):
    workdir, text = compared
    whole = read(workdir)
    assert whole["alpha"] == pytest.approx(0.05 / 3)
    over = whole["budgets"]
    pages = ["budgets/2e07/report.html", "budgets/4e07/report.html", "report.html"]
    assert [level["page"] for level in over["levels"]] == pages
    assert [level["amount"] for level in over["levels"]] == list(AMOUNTS)
    assert all((workdir / page).exists() for page in pages)
    folders = [(workdir / page).parent for page in pages]
    runs = [run for folder in folders for run in read(folder)["runs"]]
    assert len(runs) == 6
    for key in ("flops", "operations", "raw_tokens", "train_seconds"):
        assert over["separate"][key] == pytest.approx(sum(run[key] for run in runs))
        assert over["spent"][key] < over["separate"][key]
    shared = 0
    for folder in folders[:2]:
        for run in read(folder)["runs"]:
            step = json.loads((folder / run["workdir"] / "branch.json").read_text())
            decay = int(0.25 * run["steps"])
            assert step["step"] == (run["steps"] - decay) // 2 * 2 > 0
            shared += step["step"]
    steps = sum(run["steps"] for run in runs)
    for key in ("flops", "operations", "raw_tokens"):
        share = over["spent"][key] / over["separate"][key]
        assert share == pytest.approx(1 - shared / steps)
    assert f"all runs have spent {1 - shared / steps:.0%} of the FLOPs" in text
    means = over["levels"][0]["metrics"]["bits_per_byte"]["by_name"]["clm"]
    assert means["n"] == 2  # runs, not budgets
    page = (workdir / "report.html").read_text()
    assert "<h2" in page and "Budgets" in page and "are not over budgets" in page
    lines = (workdir / "budgets.csv").read_text().splitlines()
    assert lines[0] == "amount,metric,name,mean,std,seeds,is_ahead"
    assert sum(",bits_per_byte,clm," in line for line in lines) == 3
    assert Report.from_json(whole).to_json() == whole


def test_a_finished_comparison_is_not_trained_again(compared, speech, monkeypatch):
    workdir, text = compared
    monkeypatch.setattr(loop, "_train", None)
    monkeypatch.setattr("jaxpt.comparison.train_runs.train", None)
    do_part(Part("runs"), make(speech), workdir)
    assert do_part(Part("report"), make(speech), workdir) == text


def test_the_largest_budget_is_archived_alone(compared, tmp_path):
    workdir, _ = compared
    study = archive(workdir, tmp_path / "study", "t", "q")
    section = study.stored["compare"]["compare"]
    assert section["amount"] == AMOUNTS[-1] and not section["amounts"]
    assert section["alpha"] == pytest.approx(0.05 / 3) == study.report["alpha"]
    assert "budgets" not in study.report and len(study.report["runs"]) == 2


def test_branches_follow_a_trunk_also_if_it_diverged(speech, tmp_path, monkeypatch):
    prepared = comparison.store_plans(make(speech, compare__seeds=(0,)), tmp_path)
    calls = []

    def diverge(task, tokenizer, corpora, folder, program, label, branching):
        calls.append((label, task.plan.train.steps, folder, branching))
        raise DivergedError("the loss is nan")

    monkeypatch.setattr(train_runs, "train", diverge)
    monkeypatch.setattr(train_runs, "Program", lambda task: None)
    monkeypatch.setattr(train_runs, "load_divergence", lambda folder: {"seed": 0})
    entry = train_runs.Trainer(prepared, tmp_path).train("clm", 0)
    assert entry == {"name": "clm", "seed": 0, "workdir": "runs/clm-seed0"}
    labels, steps, folders, branchings = zip(*calls, strict=True)
    assert labels == ("clm seed 0", "clm seed 0 at 2e+07", "clm seed 0 at 4e+07")
    trunk, *branches = branchings
    assert trunk.trunk is None and [x.trunk for x in branches] == [folders[0]] * 2
    ends = [(n - int(n / 4)) // 2 * 2 for n in steps[1:]]
    assert list(trunk.kept) == ends == [x.until for x in branches]
    assert trunk.evaluated >= {*ends[:1]} and max(trunk.evaluated) <= ends[-1]
    assert folders[1] == tmp_path / "budgets" / "2e07" / "runs" / "clm-seed0"


def test_the_list_says_what_it_costs(speech, capsys):
    """Four budgets of 1, 2, 4 and 8 with a decay of a tenth: 8.7 instead of 15."""
    amounts = (1e9, 2e9, 4e9, 8e9)
    config = make(speech, compare__amounts=amounts, optim__decay_fraction=0.1)
    text = do_part(Part("list"), config, None)
    *runs, share = text.splitlines()
    assert runs == ["clm-seed0", "clm-seed1"]
    assert share == (
        "budgets: 1e+09, 2e+09, 4e+09, 8e+09 flops, branches of one trunk for each "
        "run: 58% of the cost of separate runs"
    )


@pytest.mark.parametrize(
    "changes, parts",
    [
        (
            {"optim__schedule": "cosine", "optim__decay_fraction": 0.2},
            ["optim.schedule=cosine: must be wsd"],
        ),
        ({"compare__amount": 1e8}, ["compare.amount=100000000.0: must be 0"]),
        ({"compare__amounts": (1e8,)}, ["compare.amounts=", "two or more rising"]),
        ({"compare__amounts": (2e8, 1e8)}, ["compare.amounts=", "two or more rising"]),
        ({"compare__budget": "seconds"}, ["compare.budget=seconds: must be one of"]),
        ({"compare__budget": "steps"}, ["compare.budget=steps: must be one of"]),
        ({"compare__tune": "optim.lr=1e-3,3e-3"}, ["compare.tune=", "share one trunk"]),
        (
            {"train__batch_schedule": ((0.5, 0.25),)},
            ["train.batch_schedule=", "must be ()"],
        ),
        (
            {"train__checkpoint_words": (10,)},
            ["train.checkpoint_words=(10,): must be ()"],
        ),
        (
            {
                "data__path": "",
                "data__mixture": ("a.txt=1", "b.txt=1"),
                "data__mixture_stages": ((0, (1, 0)), (0.5, (0, 1))),
            },
            ["data.mixture_stages=", "must be () with compare.amounts="],
        ),
        ({"optim__warmup_steps": 3}, ["optim.warmup_steps=3 ", "at 2e+07"]),
        ({"optim__decay_fraction": 0.01}, ["optim.decay_fraction=0.01", "at least 1"]),
        ({"train__steps_per_call": 10, "train__checkpoint_every": 10}, ["call"]),
        (
            {"compare__objectives": ("mlm",), "mlm__mask_rate_end": 0.3},
            ["compare.amounts=", "mlm must not change with the progress of a run"],
        ),
    ],
)
def test_what_cannot_share_a_trunk_is_refused(
    changes, parts, speech, tmp_path, refuses
):
    with refuses(*parts):
        comparison.store_plans(
            make(speech, **changes), tmp_path, ["optim.warmup_steps"]
        )


# Whether training depends on the progress, by objective.
READING = {
    ("clm", ""): False,
    ("mlm", ""): False,
    ("mlm", "mask_rate_end=0.3"): True,
    ("adaptive_mlm", ""): True,
    ("adaptive_mlm", "mask_rate_end=0.0"): False,
    ("masked_input_clm", ""): False,
    ("next_latent", ""): False,
    ("latent_prediction", ""): False,
    ("future_summary", ""): False,
    ("multi_token", ""): True,
    ("masked_diffusion", ""): False,
    ("clm_mlm", ""): False,
    ("prefix_token", ""): True,
}


@pytest.mark.parametrize("objective, setting", READING)
def test_only_the_value_of_the_progress_counts(objective, setting, speech):
    name, _, value = setting.partition("=")
    changes = {f"{objective}__{name}": float(value)} if name else {}
    task, _, _ = prepare(make_config(speech, objective, **changes))
    assert budgets.reads_progress(task) == READING[objective, setting]
