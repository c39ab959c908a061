"""Every config loads, documents its command, and trains any objective.

What a config lacks for an objective is filled in (tests/config/test_needs.py).
"""

import gzip
import importlib.util
import inspect
import json
from pathlib import Path

import pytest
from tiny import SEQ2SEQ

from jaxpt.cli.compare import compare
from jaxpt.cli.flags import parse_config
from jaxpt.comparison.budget import fit_warmup
from jaxpt.comparison.plan_runs import make_compared_plans
from jaxpt.config.config_files import read_config_file
from jaxpt.config.finetuning import make_finetune_plan
from jaxpt.config.plan import make_compare_spec, make_plan, make_plans
from jaxpt.config.settings import to_dict
from jaxpt.errors import UserError
from jaxpt.finetuning.data import read_splits
from jaxpt.objectives import OBJECTIVES

ROOT = Path(__file__).resolve().parents[1]
FOLDER, STUDIES = ROOT / "configs", ROOT / "results" / "configs"
CONFIGS = sorted([*FOLDER.glob("*.py"), *STUDIES.glob("*.py")])
TASK_CONFIGS = sorted(FOLDER.glob("tasks/*.py"))


def load(name):
    """The module of a config file, as the command line imports it."""
    (path,) = [p for p in (FOLDER, STUDIES) if (p / f"{name}.py").exists()]
    spec = importlib.util.spec_from_file_location(name, path / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def beside(monkeypatch):
    """A config may import one that lies beside it."""
    monkeypatch.syspath_prepend(FOLDER)


def test_there_is_none_for_an_objective_alone():
    """Which is a flag, --config.objective=NAME, of any of them."""
    assert 8 <= len(list(FOLDER.glob("*.py"))) <= 16
    assert len(list(FOLDER.rglob("*.py"))) <= 32


@pytest.mark.parametrize("path", STUDIES.glob("*.py"), ids=lambda path: path.name)
def test_a_study_starts_from_a_recipe_in_any_folder(path, monkeypatch, tmp_path):
    """Also in one with a file of the recipe's name."""
    (tmp_path / "quickstart").mkdir()
    (tmp_path / "wikitext2").mkdir()
    config = to_dict(load(path.stem).get_config())
    monkeypatch.chdir(tmp_path)
    assert to_dict(read_config_file(str(path))) == config


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_config(path):
    module = load(path.stem)
    assert f"--config {path.relative_to(ROOT)}" in module.__doc__
    assert "minute" in module.__doc__  # how long it takes
    config = to_dict(module.get_config())
    plan, spec = make_plan(config), make_compare_spec(config)
    assert plan.objective_name == config["objective"]
    plans = make_plans(config, spec.objectives)
    for name in spec.objectives:
        objective = spec.overrides.get(name, {}).get("objective", name)
        assert plans[name].objective_name == objective
        assert plans[name].objective is OBJECTIVES[objective]


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("name", ["quickstart", "shakespeare_char", "wikitext2"])
def test_each_text_trains_every_objective_by_itself(name, objective):
    config = load(name).get_config()
    config.objective = objective
    plan = make_plan(config, explicit_names=["objective"])
    assert plan.objective_name == objective
    assert bool(plan.model.num_decoder_layers) == (objective in SEQ2SEQ)
    # Text and model are the config's, except for what the objective needs.
    assert plan.text.path == config.data.path
    assert plan.config["train"] == to_dict(config)["train"]
    for field in ("num_layers", "d_model", "num_heads", "d_ff", "positions"):
        assert getattr(plan.model, field) == config.model[field]


def test_families_of_objectives_share_one_tokenizer():
    """Each is of all objectives but word vectors, each in at least one family."""
    module, texts, compared = load("objectives_30"), set(), set()
    for family, (control, others) in module.FAMILIES.items():
        config = module.get_config(f"texts,{family}")
        plans = make_plans(to_dict(config), config.compare.objectives)
        assert list(plans) == [control, *others]
        texts |= {plan.text for plan in plans.values()}
        compared |= {plan.objective_name for plan in plans.values()}
    assert len(texts) == 1 and compared == {*OBJECTIVES} - {"skip_gram"}


@pytest.mark.parametrize(
    ("family", "name", "teacher"),
    [
        ("masked", "distillation", "mlm"),
        ("causal", "causal_distillation", "clm"),
        ("causal", "selective_clm", "clm"),
    ],
)
def test_students_have_teachers(family, name, teacher):
    config = load("objectives_30").get_config(f"texts,{family},runs/teachers")
    overrides = make_compare_spec(config).overrides
    assert overrides[name][name]["teacher"] == f"runs/teachers/{teacher}"


def test_the_founding_experiment_is_as_published():
    config = load("shakespeare_char").get_config()
    plan = make_plan(config)
    model = plan.model
    sizes = (model.num_layers, model.d_model, model.num_heads, model.d_ff)
    assert sizes == (2, 96, 4, 256) and model.dropout == 0.1
    assert (model.positions, model.activation) == ("sinusoidal", "relu")
    assert (plan.optim.lr, plan.optim.schedule) == (3e-3, "cosine")
    assert (plan.optim.clip_norm, plan.optim.weight_decay) == (1.0, 0.0)
    assert plan.train.batch_size == 64 and plan.spec.row_length == 49
    overrides = config.compare.overrides
    assert overrides.clm.train.steps == 600 and overrides.mlm.train.steps == 1500


def test_a_flag_chooses_among_what_the_quickstart_compares():
    """With another number of steps, too: overrides of the others are ignored."""
    file = f"--config={FOLDER / 'quickstart.py'}"
    changes = ["--config.compare.objectives=('mlm','clm')", "--config.train.steps=40"]
    config, _, explicit_names = parse_config(compare, [file, *changes])
    spec, plans, _ = make_compared_plans(to_dict(config), explicit_names)
    assert spec.objectives == tuple(plans) == ("mlm", "clm")
    assert all(plan.train.steps == 40 for plan in plans.values())
    # A default warm-up is shortened.
    assert [fit_warmup(plan, ()).optim.warmup_steps for plan in plans.values()] == [
        4,
        4,
    ]


@pytest.mark.parametrize("argument", ["clm", "span_corruption"])
def test_the_quickstart_compares_the_same_models_whatever_it_is_called_with(argument):
    """With an objective as its argument, `jaxpt train` gets that objective's model."""
    config = to_dict(load("quickstart").get_config(argument))
    plans = make_plans(config, make_compare_spec(config).objectives)
    sizes = {
        name: (plan.model.num_layers, plan.model.num_decoder_layers)
        for name, plan in plans.items()
    }
    one_stack = dict.fromkeys(("clm", "mlm", "electra"), (2, 0))
    assert sizes == one_stack | {"span_corruption": (1, 1)}
    assert make_plan(config).model == plans[argument].model


def test_the_quickstart_measures_a_shared_metric_along_each_run():
    config = load("quickstart").get_config()
    assert config.eval.probe_every_eval and config.eval.pair_questions
    assert config.compare.num_evals > 1 and len(config.compare.seeds) >= 3


def test_the_tuned_quickstart_tries_the_rates_of_the_quickstart():
    """Otherwise its choice says nothing about them."""
    optim = load("quickstart").get_config().optim
    spec = make_compare_spec(load("quickstart_tuned").get_config())
    rates = {f"optim.{name}": optim[name] for name in ("muon_lr", "lr")}
    for name in spec.objectives:
        assert rates in spec.list_trials(name)


def test_the_orderings_tune_four_settings_at_once_and_share_the_error_rate():
    module = load("orderings")
    spec = make_compare_spec(module.get_config("folder"))
    trials = spec.list_trials(spec.objectives[0])
    assert all(spec.list_trials(name) == trials for name in spec.objectives)
    tuned = {"optim.muon_lr", "optim.lr", "optim.weight_decay", "model.dropout"}
    assert len(trials) == 8 and all(trial.keys() == tuned for trial in trials)
    assert all(len({trial[name] for trial in trials}) > 1 for name in tuned)
    assert spec.alpha * len(module.BUDGETS) == pytest.approx(0.05)


def test_gpt2_small_takes_the_rates_that_were_found(tmp_path):
    module = load("gpt2_small")
    small = to_dict(module.get_config("folder,small"))
    spec = make_compare_spec(small)
    widths = {
        name: {"config": {"model": {"d_model": plan.model.d_model}}}
        for name, plan in make_plans(small, spec.objectives).items()
    }
    chosen = {
        name: {"chosen": spec.list_trials(name)[-1]} for name in module.OBJECTIVES
    }
    found = {"tuning": chosen, "plans": widths}
    (tmp_path / "plans.json").write_text(json.dumps(found))
    full = to_dict(module.get_config(f"folder,full,{tmp_path}"))
    rates = {"lr": 6e-3, "muon_lr": 0.04, "lr_width": 256}
    for name, plan in make_plans(full, module.OBJECTIVES).items():
        assert full["compare"]["overrides"][name]["optim"] == rates
        assert plan.model.d_model == 768 and plan.optim.lr < 6e-3
        is_stacked = plan.objective_name == "span_corruption"
        assert plan.model.num_layers == (6 if is_stacked else 12)


def test_the_short_study_of_gpt2_small_has_seeds_for_its_registered_verdicts():
    config = to_dict(load("gpt2_small").get_config("folder,short"))
    spec = make_compare_spec(config)
    assert len(spec.seeds) == 4 and not spec.tune and len(spec.expected) == 5
    plans = make_plans(config, spec.objectives)
    assert {plan.model.d_model for plan in plans.values()} == {512}
    assert spec.amount * len(spec.seeds) * len(plans) == pytest.approx(4e16)


def test_the_sizes_of_the_orderings_differ_in_width_alone():
    config = to_dict(load("orderings").get_config("folder,sizes"))
    spec = make_compare_spec(config)
    plans = make_plans(config, spec.objectives)
    widths = {}
    for name, plan in plans.items():
        width = plan.model.d_model
        assert name == f"{plan.objective_name}-{width}"
        assert plan.model.d_ff == 4 * width and plan.text.path.startswith("folder/")
        widths.setdefault(plan.objective_name, []).append(width)
    assert widths.keys() == {"clm", "mlm"} and widths["clm"] == widths["mlm"]
    assert not spec.list_trials("clm-64")


def test_multi_token_prediction_is_tuned_like_next_token_prediction():
    module = load("multi_token")
    amounts = {}
    for budget, by_width in module.BUDGETS.items():
        for width in by_width:
            config = to_dict(module.get_config(f"{width},{budget}"))
            spec = make_compare_spec(config)
            plans = make_plans(config, spec.objectives)
            assert len(spec.seeds) == 10 and spec.alpha == pytest.approx(0.05 / 6)
            assert {plan.model.d_model for plan in plans.values()} == {int(width)}
            trials = [spec.list_trials(name) for name in spec.objectives]
            assert len(trials[0]) == 4 and all(each == trials[0] for each in trials)
            amounts.setdefault(spec.budget, []).append(spec.amount)
    assert list(amounts) == ["flops", "seconds"]
    assert all(sorted(each) == each for each in amounts.values())
    variants = {name: plan.spec for name, plan in plans.items() if name != "clm"}
    assert variants["sequential"].variant == "sequential"
    assert variants["parallel"].variant == "parallel"


def test_repetition_reads_the_same_rows_in_every_epoch():
    module = load("repetition")
    for epochs in module.EPOCHS:
        config = to_dict(module.get_config(str(epochs)))
        spec = make_compare_spec(config)
        plan = make_plan(config)
        assert (spec.budget, spec.amount) == ("raw_tokens", module.CHARS * epochs)
        assert plan.text.limit_chars == module.CHARS
        assert plan.rows.rows == "chunks"
        assert spec.alpha * len(module.EPOCHS) == pytest.approx(0.05)
        decays = [trial["optim.weight_decay"] for trial in spec.list_trials("mlm")]
        assert decays == [0.01, 0.1, 0.3, 1.0]


@pytest.mark.parametrize("path", TASK_CONFIGS, ids=lambda path: path.name)
def test_config_of_a_task(path):
    """Its docstring has its command, and its settings are a whole plan."""
    module = load(f"tasks/{path.stem}")
    assert f"--config configs/tasks/{path.name}" in module.__doc__
    plan = make_finetune_plan(module.get_config())
    assert plan.data.table("train") is not None
    for argument in inspect.signature(module.get_config).parameters:
        task_plan = make_finetune_plan(module.get_config("folder"))
        assert task_plan.data.train.startswith("folder"), argument


def write_rows(path, header, rows):
    path.parent.mkdir(exist_ok=True)
    lines = ["\t".join(row) for row in ([header] if header else []) + rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_task(name, folder):
    config = load(f"tasks/{name}").get_config(str(folder))
    return read_splits(make_finetune_plan(config)).splits


def test_stsb_reads_the_official_files(tmp_path):
    """Tabs under the suffix .csv, no header, quotes as they are, sources after some."""
    start = ["main-news", "headlines", "2015", "0001"]
    rows = [
        [*start, "5.000", 'He said "no', "He said no, \u2028."],
        [*start, "0.800", "A", "B", "a source", "another"],
    ]
    for split in ("train", "dev", "test"):
        write_rows(tmp_path / f"sts-{split}.csv", None, rows)
    splits = read_task("stsb", tmp_path)
    assert list(splits) == ["train", "dev", "test"]
    output = [(x.text, x.pair, x.value) for x in splits["test"]]
    assert output == [('He said "no', "He said no, \u2028.", 5.0), ("A", "B", 0.8)]


def test_glues_folders_are_read(tmp_path):
    names = "index genre filename year old_index source1 source2 sentence1 sentence2"
    start = ["0", "main-captions", "MSRvid", "2012test", "0001", "none", "none"]
    rows = [[*start, '"A plane', 'A "plane" is', "5.000"]]
    for split in ("train", "dev"):
        write_rows(tmp_path / f"sts/{split}.tsv", [*names.split(), "score"], rows)
    splits = read_task("stsb", tmp_path / "sts")
    (example,) = splits["dev"]
    assert (example.text, example.pair) == ('"A plane', 'A "plane" is')
    header = ["index", "sentence1", "sentence2", "label"]
    rows = [["0", "a", 'b "', "not_entailment"], ["1", "c", "d", "entailment"]]
    for split in ("train", "dev"):
        write_rows(tmp_path / f"rte/{split}.tsv", header, rows)
    assert [x.labels for x in read_task("rte", tmp_path / "rte")["dev"]] == [(1,), (0,)]
    header = ["index", "sentence1", "sentence2", "label1", "gold_label"]
    rows = [["0", "a", "b", "-", x] for x in ("neutral", "contradiction", "entailment")]
    for split in ("train", "dev_matched"):
        write_rows(tmp_path / f"mnli/{split}.tsv", header, rows)
    labels = [x.labels for x in read_task("mnli", tmp_path / "mnli")["dev"]]
    assert labels == [(1,), (2,), (0,)]


def test_a_table_of_ones_own_needs_no_setting(tmp_path):
    rows = [f'"{word}, a film",{word}' for word in ("good", "bad") * 10]
    path = tmp_path / "own.csv"
    path.write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    splits = read_task("classification", path)
    texts = [{x.text for x in splits[name]} for name in ("train", "dev")]
    assert texts == [{"good, a film", "bad, a film"}] * 2
    assert [len(splits[name]) for name in ("train", "dev")] == [18, 2]


def test_labels_of_tfds_are_its_names():
    """Which the tables of its data sets hold in place of numbers."""
    from tensorflow_datasets.text import glue

    for each in glue.Glue.BUILDER_CONFIGS:
        if each.name in ("cola", "mnli", "mrpc", "rte", "sst2"):
            task = load(f"tasks/{each.name}").get_config().task
            assert list(task.labels) == each.label_classes, each.name
            assert not task.label_names


@pytest.mark.parametrize("name", ["rte", "stsb", "sst2", "ag_news"])
def test_a_flag_replaces_a_data_set_of_tfds_by_a_file(name, tmp_path, refuses):
    """Without a second flag for its split."""
    config = load(f"tasks/{name}").get_config()
    config.data.train = config.data.dev = str(tmp_path / "a.tsv")
    config.data.test = ""
    task = config.task
    header = [x for x in (task.text, task.get("pair"), task.label) if x]
    values = task.get("labels") or ("0.5", "2")
    rows = [["a"] * (len(header) - 1) + [value] for value in values]
    write_rows(tmp_path / "a.tsv", header, rows)
    splits = read_splits(make_finetune_plan(config)).splits
    assert len(splits["dev"]) == len(values)
    config.data.dev_split = "validation"
    with refuses("data.dev_split=validation: must be ''", "data.dev=", "a.tsv"):
        read_splits(make_finetune_plan(config))


def test_errors_of_data_name_the_flag(monkeypatch, refuses):
    def fail(path, *args):
        raise UserError(f"{path}: no network")

    monkeypatch.setattr("jaxpt.text.sources.tfds_datasets.open_tfds", fail)
    with refuses("tfds:glue/rte:train: no network", "data.train=FILE"):
        read_splits(make_finetune_plan(load("tasks/rte").get_config()))
    output = f"{FOLDER / 'tasks/choice.py'}:FOLDER"
    with refuses("choice.py:FOLDER: ", "'FOLDER' after the colon", "data.dev"):
        read_config_file(output)


def write_conllu(path, sentences):
    """Sentences whose first word has the tag X, with a multiword and an empty token."""
    blocks = []
    for text in sentences:
        tags = "XYYY"
        words = [f"{i + 1}\t{w}\t_\t{tags[i]}" for i, w in enumerate(text.split())]
        others = ["1-2\tboth\t_\t_", "2.1\tempty\t_\tY"]
        blocks.append("\n".join([f"# text = {text}", *others, *words]))
    path.write_text("\n\n".join(blocks) + "\n\n")


def test_the_data_of_pretraining_pays(tmp_path, monkeypatch):
    """No text of a dev or test row is in the text for pretraining."""
    path = ROOT / "results" / "tools" / "pretraining_pays_data.py"
    spec = importlib.util.spec_from_file_location("pays_data", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "NUM_DEV", 2)
    monkeypatch.setattr(script, "NUM_TEST", 1)
    rows = [f"Row {i}, it #39;s {i}.\t{script.TOPICS[i % 4]}" for i in range(9)]
    (tmp_path / "train.tsv").write_text("\n".join([*rows, *rows[:4]]))
    (tmp_path / "test.csv").write_text('"4","a title","Row 3,\\it\'s 3."\n')
    for split, first in (("train", "a b c"), ("dev", "a b c"), ("test", "d e")):
        others = ["f g h", "i j k", "l m"] if split == "train" else []
        write_conllu(tmp_path / f"en_ewt-ud-{split}.conllu", [first, *others])
    monkeypatch.chdir(tmp_path)
    flags = "--ag_train train.tsv --ag_test test.csv --ewt . --to out".split()
    monkeypatch.setattr("sys.argv", ["script", *flags])
    script.main()
    texts = {
        name: {json.loads(line)["text"] for line in Path(f"out/{name}.jsonl").open()}
        for name in ("ag_news-train", "ag_news-dev", "ag_news-test")
    }
    assert texts["ag_news-test"] == {"Row 3, it's 3."}
    assert len(texts["ag_news-train"]) == 7  # of 9: row 1 is in dev, row 3 in test
    assert not texts["ag_news-train"] & (texts["ag_news-dev"] | texts["ag_news-test"])
    for task in ("ag_news", "ag_news_frozen"):
        splits = read_task(task, "out")
        assert [len(splits[name]) for name in ("dev", "test")] == [2, 1]
        assert {x.text for x in splits["train"]} == texts["ag_news-train"]
    words = {
        name: [x.words for x in own] for name, own in read_task("upos", "out").items()
    }
    assert words["train"] == [("f", "g", "h"), ("i", "j", "k"), ("l", "m")]
    assert words["dev"] == [("a", "b", "c")] and words["test"] == [("d", "e")]


def test_pretraining_pays_reads_the_text_of_the_training_sets():
    module = load("pretraining_pays")
    plan = make_plan(to_dict(module.get_config("folder")))
    assert plan.text.path == "folder/*-train.jsonl" and plan.text.text_field == "text"
    spec = make_compare_spec(module.get_config("folder"))
    assert len(spec.seeds) >= 5 and len(spec.task_sizes) == 5
    plans = make_plans(to_dict(module.get_config()), spec.objectives)
    # The parts that are fine-tuned have one size.
    assert {plan.model.num_layers for plan in plans.values()} == {2}


@pytest.mark.parametrize("name", load("tasks/babylm").TEXTS)
def test_babylms_recipe(name):
    """That of the challenge's eval_finetuning.sh."""
    plan = make_finetune_plan(load("tasks/babylm").get_config(f"folder,{name}"))
    train = plan.train
    assert (train.lr, train.warmup_share, train.keep) == ((3e-5,), 0.06, "best")
    assert (plan.optim.schedule, plan.optim.min_lr_ratio) == ("cosine", 0.1)
    assert train.epochs == ((30,) if name == "wsc" else (10,))
    assert train.batch_size == ((16,) if name in ("boolq", "multirc") else (32,))
    metric = "f1" if name in ("mrpc", "qqp") else "accuracy"
    assert plan.spec.main_metric == metric
    assert plan.data.dev == f"folder/{name}.valid.jsonl"


def test_babylms_texts_are_templates(tmp_path, refuses):
    row = {"text": "Ann met Bo as she left.", "span1_text": "Ann", "span2_text": "she"}
    lines = "".join(json.dumps(row | {"label": x}) + "\n" for x in (1, 0))
    for split in ("train", "valid"):
        (tmp_path / f"wsc.{split}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    first, second = read_task("babylm", f"{tmp_path},wsc")["dev"]
    assert first.text == 'Does "she" refer to "Ann" in this passage?'
    assert (first.pair, first.labels, second.labels) == (row["text"], (1,), (0,))
    with refuses("folder,cola: cola: must be one of boolq, mnli,"):
        load("tasks/babylm").get_config("folder,cola")
