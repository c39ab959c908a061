"""A comparison of all four objectives: equal cost, the same rows, a whole report."""

import html
import json
import logging
import shutil
import types

import jaxlib
import numpy as np
import pytest
from tiny import make_config, slow

from jaxpt.comparison import budget, collect_runs, plan_runs
from jaxpt.comparison import compare as comparison
from jaxpt.comparison.countdown import Countdown
from jaxpt.config.plan import make_plan
from jaxpt.config.settings import to_dict
from jaxpt.errors import UserError
from jaxpt.evaluation import cloze
from jaxpt.report import figures
from jaxpt.report.task_charts import list_probed
from jaxpt.report.types import Report
from jaxpt.runs import train_calls
from jaxpt.runs.data import likelihood_rows
from jaxpt.runs.predictions import fill_text, generate_texts
from jaxpt.runs.train_calls import TrainCalls
from jaxpt.runs.workdir import load_corpora, load_examples, load_run, lock_workdir
from jaxpt.runs.xla_flops import count_operations
from jaxpt.text.dataset import load_text
from jaxpt.text.feed import Feed
from jaxpt.text.tokens.encoding import make_visible
from jaxpt.training import clock as clock_module
from jaxpt.training import loop, setup
from jaxpt.training.measure import measure


def make_comparison(path, **changes):
    settings = {
        "data__label_field": "era",
        "data__split": "documents",
        "data__valid_fraction": 0.25,
        "train__checkpoint_every": 0,
        "compare__seeds": (0, 1),
        "compare__amount": 2e8,
    }
    return make_config(path, **(settings | changes))


@pytest.fixture(scope="module")
def report(labelled, made_once, tmp_path_factory):
    """The folder of a comparison, its report, and the rows that its runs have read."""
    made = made_once("four_by_two", lambda folder: compare_four(labelled, folder))
    workdir = shutil.copytree(made / "all", tmp_path_factory.mktemp("compare") / "all")
    seen = {}
    with np.load(made / "rows.npz") as rows:
        for name in rows.files:
            seed, step, _ = map(int, name.split("-"))
            seen.setdefault((seed, step), []).append(rows[name])
    return workdir, json.loads((workdir / "report.json").read_text()), seen


def compare_four(labelled, folder):
    """Compares all four in `all`; writes the rows as SEED-STEP-NUMBER."""
    rows, original = {}, Feed.stack

    def spy(self, step, num_steps):
        stack = original(self, step, num_steps)
        rows[f"{self.spec.seed}-{step}-{len(rows)}"] = stack["tokens"]
        return stack

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Feed, "stack", spy)
        comparison.compare(make_comparison(labelled), folder / "all")
    np.savez(folder / "rows.npz", **rows)


def test_every_run_is_there_with_its_numbers(report):
    _, written, _ = report
    assert written["alpha"] == 0.05 and "before any result" in written["seeds_note"]
    names = ["clm", "mlm", "span_corruption", "electra"]
    assert [r["objective"] for r in written["runs"]] == [
        n for n in names for _ in (0, 1)
    ]
    assert [r["seed"] for r in written["runs"]] == [0, 1] * 4
    for run in written["runs"]:
        for key in ("params", "raw_tokens", "model_tokens", "flops", "train_seconds"):
            assert run[key] > 0
        assert run["first_step_seconds"] > 0 and run["steps_per_second"] > 0
        assert 0 < run["flops_left_out"] < 0.5
        assert {"valid_loss", "probe_accuracy", "probe_accuracy_random"} <= set(
            run["metrics"]
        )
    by_name = {r["objective"]: r["metrics"] for r in written["runs"]}
    assert "bits_per_byte" in by_name["clm"] and "bits_per_byte" not in by_name["mlm"]
    assert {"masked_accuracy", "masked_top5_accuracy_random"} <= set(by_name["mlm"])


def test_the_report_says_what_was_read_and_spent(report, labelled):
    _, written, _ = report
    plan = make_plan(make_comparison(labelled))
    tokenizer, corpora = load_text(plan.text)
    data = written["data"]
    assert data["path"] == str(labelled)
    assert data["documents"] == 21  # three of 24 are empty: the speech has ended
    assert data["vocab_size"] == tokenizer.vocab.size
    numbers = [corpora[split].num_tokens for split in ("train", "valid")]
    assert [data["train_tokens"], data["valid_tokens"]] == numbers
    assert numbers[0] > 2 * numbers[1] > 0
    assert "whole_cost" not in written  # without teachers and tuning
    note = "for every run, in whole calls; every objective reads the same rows of 24"
    assert written["budget"]["note"].startswith(note)


def test_verdicts_are_also_given_at_other_equal_costs(report):
    """Each shared metric is on every curve, and each curve has every cost."""
    workdir, written, _ = report
    shared = {y["metric"] for y in written["metrics"] if y["pairs"]}
    assert {"probe_accuracy", "cloze_accuracy", "cloze_bits"} <= shared
    for run in written["runs"]:
        assert 4 <= len(run["curve"]) - 1 <= 8
        for point in run["curve"]:
            assert shared & run["metrics"].keys() <= point.keys()
            assert point["operations"] >= point["flops"]
        last = run["curve"][-1]
        assert [last["flops"], last["operations"]] == [run["flops"], run["operations"]]
        for metric in shared & run["metrics"].keys():
            assert last[metric] == pytest.approx(run["metrics"][metric])
    kinds = {"flops", "operations", "raw_tokens", "seconds"}
    for entry in written["metrics"]:
        for pair in entry["pairs"]:
            assert set(pair["under"]) == kinds
            assert pair["under"]["flops"] == pair["outcome"]
            assert None not in pair["under"].values()
    assert "conventions" not in written  # two seeds give no verdicts
    assert f"jaxlib {jaxlib.__version__}" in written["notes"]["operations"]
    page = (workdir / "report.html").read_text()
    assert "at other equal costs" in page and "operations" in page


def test_a_budget_of_operations(labelled, tmp_path):
    """Each trains for the most calls that XLA's count allows."""
    amount = 1e8
    config = make_comparison(
        labelled,
        compare__budget="operations",
        compare__amount=amount,
        compare__seeds=(0,),
        compare__objectives=("clm", "mlm"),
        compare__tune="optim.lr=1e-3,3e-3",
        compare__overrides={"clm": {"optim": {"name": "muon"}}},
    )
    prepared = comparison.store_plans(config, tmp_path)
    for name in prepared.plans:
        task = prepared.make_task(name, 0)
        steps, size = task.plan.train.steps, task.plan.train.steps_per_call
        assert steps % size == 0
        spent, more = (count_operations(task, n) for n in (steps, steps + size))
        assert 0 < spent <= amount < more
        trials = prepared.tuning[name]
        one_trial = max(trial["operations"] for trial in trials["trials"])
        assert one_trial <= amount / 4 and trials["operations"] <= 2 * one_trial
    note = collect_runs._describe_budget(prepared)["note"]
    assert note.startswith(f"by XLA of jaxlib {jaxlib.__version__}, jax ")


def test_those_that_fill_masks_answer_one_question(report):
    _, written, _ = report
    judged = {y["metric"]: y for y in written["metrics"]}
    for name in ("cloze_accuracy", "cloze_bits"):
        assert set(judged[name]["by_name"]) == {"mlm", "electra"}
        verdict = "no verdict from 2 seeds (4 are needed)"
        assert judged[name]["is_common"] and judged[name]["verdict"] == verdict


def test_the_cloze_is_what_the_model_fills_in(report):
    workdir, written, _ = report
    run = next(r for r in written["runs"] if r["objective"] == "mlm")
    program, tokenizer, params, _ = load_run(workdir / run["workdir"])
    task = program.task
    valid = load_corpora(workdir / run["workdir"], task, tokenizer)["valid"]
    rows = likelihood_rows(task, valid, task.plan.eval.num_rows)
    size = task.plan.eval.batch_size
    rows = rows[: max(len(rows) // size, 1) * size]  # what is left over is not asked
    places, counts = cloze.sample_positions(rows, np.array(task.nonwords))
    places = [p[is_asked] for p, is_asked in zip(places, counts, strict=True)]
    hits = []
    for row, hidden in zip(rows, places, strict=True):
        read = row.copy()
        read[hidden] = task.vocab.mask
        logits = np.array(program.readers["fill_logits"](params, read[None])[0, hidden])
        logits[:, task.nonwords] = -np.inf
        hits.extend(logits.argmax(-1) == row[hidden])
    assert run["metrics"]["cloze_accuracy"] == pytest.approx(np.mean(hits))
    assert 0 < np.mean(hits) < 1


@pytest.mark.slow
def test_each_objective_shows_its_work_on_the_same_passages(report):
    workdir, written, _ = report
    taken = written["samples"]
    assert {name: list(own["forms"]) for name, own in taken.items()} == {
        "clm": ["continuation"],
        "mlm": ["fills"],
        "span_corruption": ["spans"],
        "electra": ["fakes", "fills"],
    }
    # The input, and the target where they differ, is the held-out text.
    texts = {}
    for name, own in taken.items():
        for form, of_passages in own["forms"].items():
            for number, pieces in enumerate(of_passages):
                output = [p for p in pieces if p[1] != "written"]
                spelt = "".join(truth or text for text, _, truth in output)
                texts.setdefault(number, set()).add(spelt)
    assert [len(result) for _, result in sorted(texts.items())] == [1, 1, 1]
    folder = workdir / "runs/clm-seed0"
    program, tokenizer, _params, _ = load_run(folder)
    valid = load_corpora(folder, program.task, tokenizer)["valid"]
    length = len(tokenizer.encode_prompt(min(texts[0])))
    assert texts[0] == {tokenizer.decode(valid.parts[0].read(0, length))}
    # Twice the same question: what `jaxpt generate` and `jaxpt fill` answer.
    drawn = {"temperature": 0.8, "top_p": 0.95}
    samples = taken["clm"]["forms"]["continuation"]
    prompts = [prompt[0] for prompt, *_ in samples]
    texts = generate_texts(load_run(folder), prompts, length - length // 2, **drawn)
    assert texts == [prompt[0] + new[0] for prompt, new, _ in samples]
    pieces = taken["mlm"]["forms"]["fills"][0]
    masked = "".join(t if kind == "given" else "[MASK]" for t, kind, _ in pieces)
    filled = fill_text(load_run(workdir / "runs/mlm-seed0"), masked, 1)
    guesses = [text for text, kind, _ in pieces if kind != "given"]
    assert [make_visible(text) for text in guesses] == [best[0][0] for best in filled]
    assert len(guesses) >= 3


@pytest.mark.slow
def test_one_objective_is_compared_with_itself(labelled, tmp_path, quick, caplog):
    settings = {
        "compare__objectives": ("mlm", "words"),
        "compare__seeds": (0,),
        "compare__overrides": {
            "words": {"objective": "mlm", "mlm": {"masking": "words"}},
        },
    }
    with caplog.at_level(logging.INFO, "jaxpt"):
        report = comparison.compare(
            make_comparison(labelled, **settings), tmp_path / "c"
        )
    assert "1 of 2 runs finished; the last one takes about" in caplog.text
    assert [(run["name"], run["objective"]) for run in report["runs"]] == [
        ("mlm", "mlm"),
        ("words", "mlm"),
    ]
    losses = {run["name"]: run["metrics"]["valid_loss"] for run in report["runs"]}
    assert losses["mlm"] != losses["words"]
    stored = json.loads((tmp_path / "c/runs/words-seed0/config.json").read_text())
    assert stored["objective"] == "mlm" and stored["mlm"]["masking"] == "words"
    page = (tmp_path / "c/report.html").read_text()
    assert "settings of words only</strong>: mlm.masking=words, objective=mlm" in page


def test_what_was_found_on_each_example_is_kept_and_judged(report):
    workdir, written, _ = report
    for run in written["runs"]:
        result = load_examples(workdir / run["workdir"])
        assert {"probe_accuracy", "probe_accuracy_random"} <= result.keys()
        for name, examples in result.items():
            assert examples.mean == pytest.approx(run["metrics"][name])
            assert len(np.unique(examples.groups)) > 1
    judged = {y["metric"]: y for y in written["metrics"]}
    (pair,) = judged["cloze_bits"]["pairs"]
    assert pair["documents"] > 1 and pair["examples_error"] > 0
    assert len(judged["probe_accuracy"]["pairs"]) == 6
    held = judged["probe_accuracy"]["baselines"]
    against = [{pair["better"], pair["worse"]} for pair in held]
    assert all(len(pair & {"(untrained)", "(reference)"}) == 1 for pair in against)
    assert len(held) == 8


def test_what_the_probe_read_is_told_and_drawn(report):
    workdir, written, _ = report
    for run in written["runs"]:
        stored = json.loads((workdir / run["workdir"] / "result.json").read_text())
        assert stored["probe"] == run["probe"]
        assert set(run["probe"]) == {"trained", "untrained"}
        for record in run["probe"].values():
            shape = (record["num_layers"] + 1, len(record["poolings"]))
            assert np.shape(record["accuracies"]) == shape
    page = (workdir / "report.html").read_text()
    lines = list_probed(Report.from_json(written).runs)
    assert len(lines) == 5 and lines[-1].startswith("note: probe_accuracy has ")
    assert all(html.escape(line) in page for line in lines)
    assert page.count("Probe accuracy by layer, ") == 2 * 3


def test_untrained_controls_are_the_seeds_own(report, monkeypatch):
    workdir, written, _ = report
    run = next(r for r in written["runs"] if r["objective"] == "mlm" and r["seed"] == 1)
    program, tokenizer, params, _ = load_run(workdir / run["workdir"])
    corpora = load_corpora(workdir / run["workdir"], program.task, tokenizer)
    seeds, init_params = [], program.init_params
    monkeypatch.setattr(
        program, "init_params", lambda seed: seeds.append(seed) or init_params(seed)
    )
    result = measure(program, params, corpora, seed=1).metrics
    assert seeds == [1]
    for name in ("masked_top5_accuracy_random", "probe_accuracy_random"):
        assert result[name] == run["metrics"][name]


def test_every_run_costs_the_same(report):
    _, written, _ = report
    per_call = written["config"]["train"]["steps_per_call"]
    for run in written["runs"]:
        one_call = run["flops"] / run["steps"] * per_call
        assert 2e8 - one_call < run["flops"] <= 2e8


def test_every_objective_reads_the_same_rows(report):
    _, _, seen = report
    shared = [stacks for stacks in seen.values() if len(stacks) == 4]
    assert shared
    for stacks in shared:
        for other in stacks[1:]:
            np.testing.assert_array_equal(stacks[0], other)
    first = {key[0]: stacks[0] for key, stacks in seen.items() if key[1] == 0}
    assert (first[0] != first[1]).any()  # another seed, another order


def test_the_page_is_self_contained(report):
    workdir, written, _ = report
    page = (workdir / "report.html").read_text()
    assert "http://" not in page and "https://" not in page
    assert (
        page.count("data:image/svg+xml;base64,") == len(written["figures"]) - 2
    )  # SVG
    expected = {"learning_curves", "shared_metrics", "attention_masks"}
    expected |= {"temperature_effect_clm", "mask_fill_mlm", "pretrained_vs_random_mlm"}
    assert expected <= set(written["figures"])
    for name in written["figures"].values():
        assert (workdir / name).stat().st_size > 1000


@pytest.mark.slow
def test_finished_runs_are_not_repeated(report, labelled, monkeypatch, quick, caplog):
    workdir, written, _ = report
    monkeypatch.setattr(loop, "prefetch", None)  # would raise if it trained
    counted = []
    monkeypatch.setattr(
        comparison, "Countdown", lambda *args: counted.append(args) or Countdown(*args)
    )
    config = make_comparison(labelled, compare__control="clm")
    with caplog.at_level(logging.INFO, "jaxpt"):
        changed = comparison.compare(config, workdir)
    ((runs, weights),) = counted
    assert runs == [(run["name"], run["seed"]) for run in written["runs"]]
    assert weights == [run["flops"] for run in written["runs"]]
    assert "runs finished" not in caplog.text
    pairs = [pair for entry in changed["metrics"] for pair in entry["pairs"]]
    assert pairs and all("clm" in (p["better"], p["worse"]) for p in pairs)
    again = comparison.compare(make_comparison(labelled), workdir)
    assert json.loads(json.dumps(again["runs"])) == written["runs"]


@pytest.mark.slow_except("compare.json", "checksums.json", "runs/clm-steps.json")
@pytest.mark.parametrize(
    "name",
    [
        *("compare.json", "runs/clm-steps.json", "checksums.json"),
        *("runs/clm-seed0/result.json", "runs/electra-seed1/config.json"),
        *("runs/mlm-seed1/metrics.jsonl", "report.json"),
    ],
)
def test_damage_is_found_as_the_runs_are_collected(
    name, report, labelled, monkeypatch, refuses, quick
):
    workdir, written, _ = report
    monkeypatch.setattr(loop, "prefetch", None)
    path = workdir / name
    whole = path.read_bytes()
    place = len(whole) // 2
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    try:
        if name == "report.json":  # nothing reads it; it is rewritten
            comparison.compare(make_comparison(labelled), workdir)
            assert json.loads(path.read_text())["runs"] == written["runs"]
        else:
            with refuses(f"{path}: was altered"):
                comparison.compare(make_comparison(labelled), workdir)
    finally:
        path.write_bytes(whole)


def test_runs_and_comparisons_do_not_share_a_folder(report, labelled, tmp_path):
    workdir, _, _ = report
    with pytest.raises(UserError, match="holds a training run"):
        comparison.compare(make_comparison(labelled), workdir / "runs" / "clm-seed0")
    plan = make_plan(make_comparison(labelled))
    tokenizer, corpora = load_text(plan.text)
    with pytest.raises(UserError, match="holds a comparison"):
        lock_workdir(workdir, plan, tokenizer, corpora)


def test_another_comparison_is_refused(report, labelled):
    workdir, _, _ = report
    with pytest.raises(UserError, match="compare.amount"):
        comparison.compare(make_comparison(labelled, compare__amount=3e8), workdir)


PAIRS = {
    "compare__objectives": ("clm", "bert", "bart"),
    "compare__seeds": (0,),
    "compare__amount": 1e8,
}


@pytest.fixture
def quick(monkeypatch):
    """A comparison without its pictures, and without looking ahead at what it measures.

    Both compile much; test_check.py and the comparison of four have them.
    """
    monkeypatch.setattr(figures, "draw", lambda *args: {})
    monkeypatch.setattr(plan_runs, "check_run", lambda *args: None)


@pytest.mark.slow  # three objectives and their pictures
def test_pairs_beside_rows_of_running_text(labelled, tmp_path):
    """On the same text, in rows of the same length and at the same cost."""
    report = comparison.compare(make_comparison(labelled, **PAIRS), tmp_path / "c")
    causal, pairs, noised = report["runs"]
    assert pairs["objective"] == "bert" and pairs["row_length"] == causal["row_length"]
    assert noised["objective"] == "bart" and 0 < noised["flops"] <= 1e8
    assert pairs["flops"] <= 1e8 and causal["flops"] <= 1e8
    assert 0 <= pairs["metrics"]["valid_nsp_accuracy"] <= 1
    terms = [pairs["metrics"][f"valid_{name}_loss"] for name in ("mlm", "nsp")]
    assert pairs["metrics"]["valid_loss"] == pytest.approx(sum(terms))
    assert {"masked_top5_accuracy", "probe_accuracy_random"} <= set(pairs["metrics"])
    assert "24 tokens of the same text: chunks, pairs" in report["budget"]["note"]
    assert {"mask_fill_bert", "attention_masks"} <= set(report["figures"])


@pytest.mark.parametrize(
    "rows, named",
    [
        ("chunks", "data.rows=chunks: must be pairs with bert.sentence_task=nsp"),
        ("ordered_pairs", "data.rows=ordered_pairs: must be pairs .*for bert"),
    ],
)
def test_rows_that_an_objective_cannot_read_are_refused_first(
    rows, named, labelled, tmp_path
):
    """Before any other objective has been trained."""
    changes = PAIRS | {"compare__overrides": {"bert": {"data": {"rows": rows}}}}
    with pytest.raises(UserError, match=named):
        comparison.compare(make_comparison(labelled, **changes), tmp_path / "c")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"compare__overrides": {"gpt": {}}}, "compare.overrides.gpt"),
        ({"compare__overrides": {"mlm": {"optim": {"lrr": 1.0}}}}, "optim.lrr"),
        ({"compare__overrides": {"mlm": {"optim": {"lr": "x"}}}}, "must be a number"),
        slow(
            {
                "compare__overrides": {
                    "span_corruption": {"model": {"num_decoder_layers": 0}}
                }
            },
            r"model.num_decoder_layers=0: .*\(for span_corruption\)",
        ),
        ({"compare__seeds": (0, 0)}, "compare.seeds"),
        ({"compare__objectives": ("clm", "gpt")}, "compare.objectives"),
        slow({"compare__amount": 1.0}, "fewer than the 2 steps of one call"),
        slow({"optim__warmup_steps": 999}, r"optim.warmup_steps=999: .*\(for clm\)"),
        (
            {"compare__objectives": ("clm", "words")},
            "compare.objectives=.*compare.overrides.words.objective",
        ),
        (
            {"compare__overrides": {"mlm": {"objective": "electra"}}},
            "compare.objectives=",
        ),
        (
            {
                "compare__objectives": ("a/b",),
                "compare__overrides": {"a/b": {"objective": "mlm"}},
            },
            "letters, digits",
        ),
        (
            {
                "compare__objectives": ("words",),
                "compare__overrides": {"words": {"objective": ["mlm"]}},
            },
            "compare.overrides=.*must be names with sections of settings",
        ),
        ({"compare__overrides": {"mlm": {"optim": 3}}}, "compare.overrides=.*must be"),
        ({"compare__overrides": {"mlm": 3}}, "compare.overrides=.*must be"),
        ({"compare__budget": "dollars"}, "compare.budget"),
        ({"compare__num_evals": -1}, "compare.num_evals=-1"),
        ({"compare__control": "gpt"}, "compare.control=gpt: must be one of"),
        (
            {"compare__overrides": {"mlm": {"data": {"valid_fraction": 0.5}}}},
            "compare.overrides.mlm",
        ),
    ],
)
def test_bad_comparisons(changes, named, labelled, tmp_path):
    config, explicit_names = (
        make_comparison(labelled, **changes),
        {"optim.warmup_steps"},
    )
    with pytest.raises(UserError, match=named):
        comparison.compare(config, tmp_path / "out", explicit_names)
    assert not (tmp_path / "out").exists()  # so a corrected setting may use the folder


def test_overrides_of_what_is_not_compared_are_not_read(labelled):
    """So that a flag may choose some of a config's objectives."""
    named = {"words": {"objective": "mlm", "mlm": {"masking": "words"}}}
    overrides = {"span_corruption": {"model": {"num_decoder_layers": 0}}} | named
    config = make_comparison(
        labelled, compare__objectives=("clm", "mlm"), compare__overrides=overrides
    )
    _, plans, _ = plan_runs.make_compared_plans(to_dict(config), ())
    assert list(plans) == ["clm", "mlm"] and plans["mlm"].spec.masking == "tokens"


def test_a_warm_up_that_nobody_asked_for_fits_the_steps(labelled):
    plan = make_plan(make_comparison(labelled, optim__warmup_steps=999))
    short = budget.fit_warmup(plan, ())
    assert short.optim.warmup_steps == plan.train.steps // 10
    assert f"optim.warmup_steps={plan.train.steps // 10}" in short.filled
    assert plan.config["optim"]["warmup_steps"] == 999
    assert budget.fit_warmup(plan, {"optim.warmup_steps"}) is plan


@pytest.mark.slow
def test_the_warm_up_is_held_against_the_steps_that_are_bought(
    labelled, tmp_path, quick
):
    config = make_comparison(
        labelled,
        train__steps=4,
        optim__warmup_steps=5,
        compare__budget="raw_tokens",
        compare__amount=8 * 24 * 6.5,
        compare__objectives=("clm",),
        compare__overrides={},
        compare__seeds=(0,),
    )
    report = comparison.compare(config, tmp_path / "out")
    assert [run["steps"] for run in report["runs"]] == [6]


@pytest.mark.slow_cases("steps-0.0-evals1")
@pytest.mark.parametrize(
    "kind, amount, evals",
    [("raw_tokens", 8 * 24 * 7.5, [0, 4, 6]), ("steps", 0.0, [0, 2, 4])],
)
def test_budgets(kind, amount, evals, labelled, tmp_path, quick):
    config = make_comparison(
        labelled,
        compare__budget=kind,
        compare__amount=amount,
        compare__objectives=("clm",),
        compare__overrides={"clm": {"train": {"steps": 4}}},
        compare__seeds=(3,),
        compare__num_evals=2,
    )
    report = comparison.compare(config, tmp_path)
    (run,) = report["runs"]
    assert run["steps"] == evals[-1]
    is_matched = "not matched" not in report["budget"]["note"]
    assert is_matched == (kind != "steps")
    assert [point["step"] for point in run["curve"]] == evals


def test_a_budget_of_seconds_is_kept_by_the_runs_clock(
    labelled, tmp_path, monkeypatch, quick
):
    """With a clock on which each call of two steps takes a second, the first longer.

    That is before the run, whose own calls take two: it has fewer steps than planned.
    """
    config = make_comparison(
        labelled,
        train__steps=4,
        optim__warmup_steps=5,  # longer than that: the budget buys more steps
        compare__budget="seconds",
        compare__amount=7.3,
        compare__objectives=("clm",),
        compare__overrides={},
        compare__seeds=(0,),
    )
    clock, calls, train_call = [0.0], [], TrainCalls.__call__

    def timed_call(self, *args):
        calls.append(None)
        clock[0] += 100.0 if len(calls) == 1 else 1.0 if len(calls) <= 6 else 2.0
        return train_call(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(TrainCalls, "__call__", timed_call)
        stopped = types.SimpleNamespace(perf_counter=lambda: clock[0])
        for module in (budget, clock_module, setup, train_calls):
            patch.setattr(module, "time", stopped)
        report = comparison.compare(config, tmp_path)
    (run,) = report["runs"]
    assert (run["steps"], run["train_seconds"]) == (8, 8.0)
    assert "by its own clock" in report["budget"]["note"]
    stored = json.loads((tmp_path / "runs" / "clm-steps.json").read_text())
    assert stored == {"steps": 14}
    monkeypatch.setattr(budget, "_seconds_per_step", None)  # would raise
    again = comparison.compare(config, tmp_path)
    assert json.loads(json.dumps(again["runs"])) == json.loads(
        json.dumps(report["runs"])
    )


def test_a_run_has_one_budget(labelled, tmp_path):
    config = make_comparison(labelled, train__seconds=5.0)
    with pytest.raises(UserError, match="^train.seconds=5.0: must be 0 with compare.b"):
        comparison.compare(config, tmp_path / "c")
    assert not (tmp_path / "c" / "compare.json").exists()


@pytest.mark.slow
def test_rows_of_an_objectives_own_length_are_said(labelled, tmp_path, quick):
    """If the length is that of the model's input, clm's rows have one more token."""
    config = make_comparison(
        labelled,
        data__row_length=0,
        data__seq_len=20,
        compare__objectives=("clm", "mlm"),
        compare__overrides={},
        compare__seeds=(0,),
        compare__budget="steps",
        compare__amount=0.0,
        train__steps=2,
        optim__warmup_steps=0,
    )
    report = comparison.compare(config, tmp_path)
    assert [run["row_length"] for run in report["runs"]] == [21, 20]
    assert report["budget"]["note"].endswith(
        "each objective reads rows of a different length"
    )
