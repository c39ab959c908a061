"""Planted cheats in a record of a speedrun: each is refused by its name."""

import copy
import json
import shutil
from pathlib import Path

import cheats
import exchange
import numpy as np
import pytest
import speedruns
from speedruns import check_folder, check_record, judge_records, list_records

from jaxpt.comparison.record import identify_code, make_record
from jaxpt.comparison.studies import load_study
from jaxpt.comparison.study_files import write_study
from jaxpt.errors import UserError

ROOT = Path(__file__).parents[2]
SPEEDRUNS = ROOT / "results" / "speedruns"
METRIC = "choice_bayes_accuracy"


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """A new record of mlm, with the facts of `jaxpt archive --record`."""
    root = tmp_path_factory.mktemp("results") / "speedruns"
    shutil.copytree(SPEEDRUNS / "cpu" / "mlm" / "adamw", root / "cpu" / "mlm" / "adamw")
    shutil.copytree(root / "cpu" / "mlm" / "adamw", root / "cpu" / "mlm" / "mine")
    for name in ("targets.json", "accepted.json", "curve.json"):
        shutil.copy(SPEEDRUNS / name, root)
    forge(root / "cpu" / "mlm" / "mine", lambda stored, values: None)
    return root


@pytest.fixture
def mine(honest, tmp_path):
    """The folder of a copy of the new record."""
    root = shutil.copytree(honest, tmp_path / "speedruns")
    return root / "cpu" / "mlm" / "mine"


def forge(folder, change, **facts):
    """Writes a record again, with new checksums, after a change of what it stores."""
    study = load_study(folder)
    stored, values = copy.deepcopy(study.stored), copy.deepcopy(dict(study.values))
    change(stored, values)
    record = make_record(study.report, stored["text"], study.tokenizer)
    record |= study.facts.get("record", {}) | {"text": stored["text"]}
    stored.pop("values")
    write_study(folder, study.facts | {"record": record} | facts, stored, values)


def refuse(folder, name, words=""):
    with pytest.raises(UserError, match=f"refused, {name}: .*{words}") as error:
        check_record(folder)
    assert "\n" not in str(error.value)


def of_plan(stored):
    return stored["plans"]["plans"]["mlm"]["config"]


def runs_of(stored):
    return stored["report"]["runs"]


def test_an_honest_record_is_valid(mine):
    record = check_record(mine)
    assert record.study.facts["record"]["code_sha256"] == identify_code()
    assert "valid record" in check_folder(mine)
    names = [
        each.study.folder.name for each in list_records(mine.parents[2], "cpu")["mlm"]
    ]
    assert sorted(names) == ["adamw", "mine"]


def test_every_check_has_a_planted_cheat():
    """The names that the tests of this file plant are those of the checks."""
    text = Path(__file__).read_text(encoding="utf-8")
    missing = [n for n in (*cheats.FIRST, *cheats.THEN) if f'"{n}"' not in text]
    assert not missing and len({*cheats.FIRST, *cheats.THEN}) >= 15


def train_on_validation(stored, values):
    stored["text"]["train"] = stored["text"]["valid"]


def train_on_both(stored, values):
    """The split of validation is the same, and training reads more."""
    stored["text"]["train"] = "0" * 64


def name_validation_as_training(stored, values):
    of_plan(stored)["data"]["valid_path"] = "sotu"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (train_on_validation, "the training text is the validation text"),
        (train_on_both, "it may contain the validation text"),
        (name_validation_as_training, "trains on data.valid_path=sotu"),
    ],
)
def test_validation_text_in_training(mine, change, words):
    forge(mine, change)
    refuse(mine, "validation-in-training", words)


def drop_seed(number, declared):
    def change(stored, values):
        report = stored["report"]
        report["runs"] = [run for run in report["runs"] if run["seed"] != number]
        values.pop(("mlm", number))
        if declared:
            stored["compare"]["compare"]["seeds"] = [0, 1, 2, 3][:declared]

    return change


@pytest.mark.parametrize(
    ("number", "declared", "words"),
    [
        (1, 0, r"has the seeds \[0, 2, 3\]; must have 0, 1"),
        (3, 0, r"has the seeds \[0, 1, 2\], and its comparison \[0, 1, 2, 3\]"),
    ],
)
def test_chosen_seeds(mine, number, declared, words):
    """The worst seed is left out, in the middle or at the end."""
    forge(mine, drop_seed(number, declared))
    refuse(mine, "chosen-seeds", words)


def test_too_few_seeds(mine):
    for number in (3, 2):
        forge(mine, drop_seed(number, number))
    refuse(mine, "chosen-seeds", "at least 3")


def test_a_seed_that_diverged(mine):
    def change(stored, values):
        report = stored["report"]
        run = report["runs"].pop()
        values.pop(("mlm", run["seed"]))
        own = {k: run[k] for k in ("name", "objective", "workdir", "seed", "steps")}
        report["diverged"] = [own | {"diverged_at": 7}]

    forge_without_record(mine, change)
    refuse(mine, "diverged-run", "must have no diverged run")


def forge_without_record(folder, change):
    """As `forge`, with the record facts as they were."""
    study = load_study(folder)
    stored, values = copy.deepcopy(study.stored), copy.deepcopy(dict(study.values))
    change(stored, values)
    stored.pop("values")
    write_study(folder, study.facts, stored, values)


def test_a_changed_target(mine):
    path = mine.parents[2] / "targets.json"
    rules = json.loads(path.read_text())
    rules["scales"]["cpu"]["objectives"]["mlm"]["above"] = 0.5
    path.write_text(json.dumps(rules))
    with pytest.raises(UserError, match="refused, changed-rules: targets.json"):
        check_folder(mine)


def test_another_metric(mine):
    """Runs that do not have the metric, for example after a change of the package."""

    def change(stored, values):
        for run in runs_of(stored):
            del run["metrics"][METRIC]
            del values["mlm", run["seed"]][METRIC]

    forge(mine, change)
    refuse(mine, "other-metric", f"a run has no {METRIC}")


def test_an_edited_file(mine):
    path = mine / "runs.json.gz"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    refuse(mine, "edited-values", "was altered")


def raise_mean(stored, values):
    for run in runs_of(stored):
        run["metrics"][METRIC] += 0.1


def raise_values(stored, values):
    """Values and their means agree, and no example can have such a value."""
    for run in runs_of(stored):
        own = values["mlm", run["seed"]]
        own[METRIC] = own[METRIC]._replace(totals=own[METRIC].totals * 2)
        run["metrics"][METRIC] = own[METRIC].mean


def lower_loss(stored, values):
    for run in runs_of(stored):
        run["metrics"]["valid_loss"] -= 0.1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (raise_mean, "the mean of its values by example"),
        (raise_values, "values of choice_bayes_accuracy that are not possible"),
        (lower_loss, "at the end of its curve"),
    ],
)
def test_edited_values(mine, change, words):
    """With new checksums."""
    forge(mine, change)
    refuse(mine, "edited-values", words)


@pytest.mark.parametrize("name", ["tokenizer_sha256", "text"])
def test_facts_that_are_not_those_of_the_runs(mine, name):
    study = load_study(mine)
    wrong = {"train": "1", "valid": "2"} if name == "text" else "1"
    stored = {k: v for k, v in study.stored.items() if k != "values"}
    record = study.facts["record"] | {name: wrong}
    write_study(mine, study.facts | {"record": record}, stored, study.values)
    refuse(mine, "edited-values", "the stated hash")


def test_another_tokenizer_by_its_settings(mine):
    forge(mine, lambda s, v: of_plan(s)["tokenizer"].update(vocab_size=512))
    refuse(mine, "other-tokenizer", "tokenizer.vocab_size=512; must be 8192")


def test_another_tokenizer_by_its_content(mine):
    """The settings are those of the rules, and the last character is another one."""

    def change(stored, values):
        ids = stored["tokenizer"]["model"]["vocab"]
        last = max(name for name in ids if len(name) == 1)
        ids[chr(ord(last) + 1)] = ids.pop(last)

    forge(mine, change)
    refuse(mine, "other-tokenizer", "the tokenizer has the hash")


def ask_fewer(stored, values):
    of_plan(stored)["eval"]["choice_questions"] = 500


def ask_easier(stored, values):
    of_plan(stored)["eval"]["word_context"] = 31


@pytest.mark.parametrize("change", [ask_fewer, ask_easier])
def test_a_changed_evaluation(mine, change):
    forge(mine, change)
    refuse(mine, "changed-evaluation", "; must be .* in a speedrun")


def drop_questions(stored, values):
    for run in runs_of(stored):
        own = values["mlm", run["seed"]]
        own[METRIC] = type(own[METRIC])(*(array[:1000] for array in own[METRIC]))
        run["metrics"][METRIC] = own[METRIC].mean


def test_fewer_questions_under_the_same_settings(mine):
    forge(mine, drop_questions)
    refuse(
        mine, "changed-evaluation", "its 1000 examples .* are not those of the rules"
    )


def test_a_declared_start(mine):
    forge(mine, lambda s, v: of_plan(s)["train"].update(init_from="runs/longer"))
    refuse(mine, "undeclared-start", "must start at random, not from train.init_from")


def start_trained(stored, values):
    for run in runs_of(stored):
        run["curve"][0]["valid_loss"] = 2.5


def hide_start(stored, values):
    for run in runs_of(stored):
        del run["curve"][0]


def know_much(stored, values):
    name = f"{METRIC}_random"
    for run in runs_of(stored):
        own = values["mlm", run["seed"]]
        own[name] = own[name]._replace(totals=0.7 * own[name].weights)
        run["metrics"][name] = own[name].mean


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (start_trained, "the loss before the first step is 2.5"),
        (hide_start, "the loss before the first step"),
        (know_much, "a random network chooses 0.7"),
    ],
)
def test_an_undeclared_start(mine, change, words):
    forge(mine, change)
    refuse(mine, "undeclared-start", words)


def test_another_text(mine):
    def change(stored, values):
        stored["text"] = {"train": "1", "valid": "2"}

    forge(mine, change)
    refuse(mine, "other-text", "the text of train has another hash")


def test_another_split(mine):
    forge(mine, lambda s, v: of_plan(s)["data"].update(valid_fraction=0.01))
    refuse(mine, "other-text", "data.valid_fraction=0.01; must be 0.1")


def test_other_code(mine):
    """The record was archived by a package in which something was changed."""
    record = load_study(mine).facts["record"] | {"code_sha256": "1" * 64}
    forge(mine, lambda s, v: None, record=record)
    refuse(mine, "other-code", "this checkout has")


def test_other_version(mine):
    def change(stored, values):
        for run in runs_of(stored):
            run["versions"]["jaxpt"] = "0.1.0"

    forge(mine, change)
    refuse(mine, "other-code", "has runs of jaxpt 0.1.0")


def test_the_hash_of_code_follows_every_file(tmp_path):
    package = tmp_path / "package"
    shutil.copytree(ROOT / "jaxpt" / "objectives", package)
    before = identify_code(package)
    path = package / "mlm.py"
    path.write_text(path.read_text() + "\n# changed\n")
    changed = identify_code(package)
    path.rename(package / "other.py")
    assert len({before, changed, identify_code(package)}) == 3


def test_an_unknown_objective(mine):
    def change(stored, values):
        for run in runs_of(stored):
            run["objective"] = "my_package.mlm"

    forge(mine, change)
    refuse(mine, "unknown-objective", "my_package.mlm is not one of the package")


def test_runs_of_another_objective(mine):
    other = mine.parents[1] / "clm" / "mine"
    shutil.copytree(mine, other)
    refuse(other, "mixed-runs", "must have runs of clm and no other")


def test_runs_of_several_settings(mine):
    def change(stored, values):
        (plan,) = stored["plans"]["plans"].values()
        stored["plans"]["plans"]["better"] = copy.deepcopy(plan)
        stored["dtypes"]["better"] = "float32"
        runs_of(stored)[2]["name"] = "better"
        values["better", 2] = values.pop(("mlm", 2))

    forge_without_record(mine, change)
    refuse(mine, "mixed-runs", "must have runs that differ only in their seed")


def repeat_run(stored, values):
    """The best run takes the place of another, under its seed."""
    runs = runs_of(stored)
    runs[1] = copy.deepcopy(runs[0]) | {"seed": 1}
    values["mlm", 1] = values["mlm", 0]


def repeat_curve(stored, values):
    """Its values are shuffled, so that only the curve shows it."""
    repeat_run(stored, values)
    own = values["mlm", 0][METRIC]
    rolled = own._replace(totals=np.roll(own.totals, 1))
    values["mlm", 1] = values["mlm", 0] | {METRIC: rolled}


@pytest.mark.parametrize("change", [repeat_run, repeat_curve])
def test_one_run_under_two_seeds(mine, change):
    forge(mine, change)
    refuse(mine, "duplicated-runs", "the seeds 0 and 1 have the same values")


def halve_flops(stored, values):
    for run in runs_of(stored):
        run["flops"] /= 2


def halve_curve(stored, values):
    for run in runs_of(stored):
        run["curve"][-1]["flops"] /= 2


def halve_seconds(stored, values):
    for run in runs_of(stored):
        run["train_seconds"] /= 2


def halve_steps(stored, values):
    """Also in the plan; the number of tokens is that of all steps."""
    of_plan(stored)["train"]["steps"] //= 2
    for run in runs_of(stored):
        run["steps"] //= 2
        run["curve"][-1]["step"] //= 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (halve_flops, "has 1.95594e.11 flops; its settings give 3.91187e.11"),
        (halve_curve, "the end of its curve: has 1.95594e.11 flops"),
        (halve_seconds, "its steps per second give"),
        (halve_steps, "flops; its settings give 1.9"),
    ],
)
def test_an_understated_cost(mine, change, words):
    forge(mine, change)
    refuse(mine, "understated-cost", words)


def stop_early(stored, values):
    for run in runs_of(stored):
        run["steps"] = run["curve"][-1]["step"] = 300


def report_best(stored, values):
    """Two more steps were trained; the value before them is reported."""
    for run in runs_of(stored):
        last = run["curve"][-1]
        run["curve"].insert(1, last | {"step": last["step"] - 10})
        last["valid_loss"] += 0.1


def stop_by_clock(stored, values):
    of_plan(stored)["train"]["seconds"] = 60.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (stop_early, "has 300 of 320 steps"),
        (report_best, "its valid_loss is that of an earlier step"),
        (stop_by_clock, "train.seconds=60.0; must have fixed steps"),
    ],
)
def test_early_stopping_on_the_validation_loss(mine, change, words):
    forge(mine, change)
    refuse(mine, "early-stopping", words)


def train_longer(stored, values):
    for run in runs_of(stored):
        run["train_seconds"] *= 100
        run["steps_per_second"] /= 100


def use_devices(stored, values):
    for run in runs_of(stored):
        run["device"] = "8 x NVIDIA H100"


@pytest.mark.parametrize(
    ("change", "words"),
    [(train_longer, "must be at most 600"), (use_devices, "must be at most 1 x cpu")],
)
def test_more_time_or_devices(mine, change, words):
    forge(mine, change)
    refuse(mine, "over-limit", words)


def test_an_accepted_record_that_was_altered(mine):
    """Consistently, with new checksums."""
    accepted = mine.parent / "adamw"
    facts = load_study(accepted).facts | {"note": "nothing to see here"}
    study = load_study(accepted)
    stored = {k: v for k, v in study.stored.items() if k != "values"}
    write_study(accepted, facts, stored, study.values)
    refuse(accepted, "altered-record", "accepted was 80cb7fe08b8c")


def test_a_study_without_a_record(mine):
    shutil.rmtree(mine)
    shutil.copytree(mine.parent / "adamw", mine)
    refuse(mine, "altered-record", "repeat jaxpt archive with --record")


def rerun(mine, change=lambda stored, values: None):
    record = load_study(mine).facts["record"] | {"rerun_of": "adamw"}
    forge(mine, change, record=record)
    return check_record(mine)


def lower_values(stored, values):
    """Every second hit is a miss."""
    for run in runs_of(stored):
        own = values["mlm", run["seed"]]
        totals = own[METRIC].totals.copy()
        totals[::2] = 0
        own[METRIC] = own[METRIC]._replace(totals=totals)
        run["metrics"][METRIC] = own[METRIC].mean


def test_a_rerun_is_a_result_whatever_it_shows(mine):
    assert "repeats adamw" in rerun(mine).describe()
    record = rerun(mine, lower_values)
    assert not record.is_repeated and "does NOT repeat adamw" in record.describe()


def test_a_rerun_has_the_settings_of_the_record(mine):
    with pytest.raises(UserError, match="refused, other-settings"):
        rerun(mine, lambda s, v: of_plan(s)["optim"].update(lr=0.01))


def test_rates_are_those_of_the_curve():
    """Against the derivative of another parametrization, and its resampled spread."""
    curves = exchange.load_curves(SPEEDRUNS)
    rates = exchange.load_rates(SPEEDRUNS)
    rules = speedruns.load_targets(SPEEDRUNS)["scales"]["cpu"]["objectives"]
    assert rates.keys() == rules.keys() == curves.keys()
    rng = np.random.default_rng(0)
    for name, rate in rates.items():
        flops, seeds, y = np.array(curves[name]["points"], float).T
        x, place = np.log(flops), np.log(rate.flops)
        middle = x.mean()
        fit = np.polyfit(x - middle, y, 2)
        assert set(seeds) >= {0, 1, 2} and x.min() <= place <= x.max()
        assert np.polyval(fit, place - middle) == pytest.approx(
            rules[name].get("below", rules[name].get("above"))
        )
        slope = np.polyval(np.polyder(fit), place - middle)
        assert rate.slope == pytest.approx(slope)
        clean = np.polyval(fit, x - middle)
        noise = np.sqrt(((y - clean) ** 2).sum() / rate.dof)
        drawn = [
            np.polyval(
                np.polyder(
                    np.polyfit(x - middle, clean + rng.normal(0, noise, len(x)), 2)
                ),
                place - middle,
            )
            for _ in range(2000)
        ]
        assert rate.error == pytest.approx(np.std(drawn), rel=0.1)
        is_loss = curves[name]["metric"] == "bits_per_byte"
        assert (rate.slope < 0) == is_loss and rate.sigma > 0


def test_a_curve_must_reach_the_target():
    points = [(c, s, 3.0 - np.log(c) + s / 10) for c in (1, 2, 4) for s in (0, 1)]
    with pytest.raises(UserError, match="must reach the target 0.5 within its budgets"):
        exchange.fit_rate("bits_per_byte", points, 0.5)
    with pytest.raises(UserError, match="needs 3 budgets with 2 seeds each"):
        exchange.fit_rate("bits_per_byte", points[:5], 2.5)


RATE = exchange.Rate("bits_per_byte", -0.4, 0.02, 6, 0.02, 1e11)


def test_an_exchange_of_loss_and_cost():
    """0.4 ln 1.5 bits are worth 1.5 times the cost, and no value more than twice."""
    values = [2.8 - 0.4 * np.log(1.5), 2.8, 2.8 - 4.0]
    costs = exchange.list_costs(values, [9.0, 9.0, 9.0], 2.8, RATE)
    np.testing.assert_allclose(np.exp(costs), [6.0, 9.0, 4.5])


def test_the_test_of_an_exchange_has_its_level():
    """Of equally good records, at most about p are significant at p (simulated)."""
    rng = np.random.default_rng(0)
    count, num = 0, 4000
    for _ in range(num):
        one, other = rng.normal(10, 0.05, 4), rng.normal(10, 0.05, 4)
        count += exchange.compare(one, other, 0.0, RATE).p < 0.05
    assert 0.03 < count / num < 0.06


def test_the_error_of_the_rate_widens_the_interval():
    one, other = [9.9, 10.0, 10.1], [10.9, 11.0, 11.1]
    sure = exchange.compare(one, other, 0.0, RATE)
    unsure = exchange.compare(one, other, -0.4, RATE._replace(error=0.2))
    assert (
        sure.low < sure.ratio == pytest.approx(np.exp(-1)) == unsure.ratio < sure.high
    )
    assert unsure.high > 2 * sure.high and unsure.p > sure.p


def test_records_are_compared_at_the_target():
    one, other = (
        check_record(SPEEDRUNS / "cpu" / "mlm" / name)
        for name in ("muon-rotary", "adamw")
    )
    judged = judge_records(one, other)
    assert judged.high < 1 and judged.p < 0.01
    back = judge_records(other, one)
    assert back.ratio == pytest.approx(1 / judged.ratio)
    assert "muon-rotary is better than adamw" in speedruns.exchange_records(one, other)
    electra = check_record(SPEEDRUNS / "cpu" / "electra" / "muon-rotary")
    with pytest.raises(UserError, match="must be of one scale and objective"):
        judge_records(one, electra)


def test_finished_comparisons_are_added_to_a_curve(tmp_path):
    shutil.copy(SPEEDRUNS / "curve.json", tmp_path)
    entry = {"objective": "mlm", "seed": 9, "flops": 1e10, "metrics": {METRIC: 0.3}}
    report = tmp_path / "run" / "report.json"
    report.parent.mkdir()
    report.write_text(json.dumps({"runs": [entry]}))
    before = len(exchange.load_curves(tmp_path)["mlm"]["points"])
    for _ in range(2):
        curves = exchange.add(tmp_path, [report.parent])
    assert len(curves["mlm"]["points"]) == before + 1
    assert curves["mlm"]["points"][0] == [1e10, 9, 0.3]
    report.write_text(json.dumps({"runs": [entry | {"objective": "bart"}]}))
    with pytest.raises(UserError, match="bart: must be an objective"):
        exchange.add(tmp_path, [report.parent])
