"""A run may begin with another's parameters, and a config with another's settings."""

import functools
import json
import shutil

import jax
import numpy as np
import pytest
from tiny import claim_run, make_config, prepare, slow, write_run, write_stored

from jaxpt.cli.main import main
from jaxpt.comparison.compare import compare
from jaxpt.config.plan import make_plan
from jaxpt.report import figures
from jaxpt.runs.initial_state import check_start, make_start
from jaxpt.runs.program import Program
from jaxpt.runs.task import make_task
from jaxpt.runs.workdir import load_run
from jaxpt.text.dataset import load_text
from jaxpt.training import loop


def run(config, workdir):
    """The result of training."""
    task, tokenizer, corpora = prepare(config)
    return loop.train(task, tokenizer, corpora, workdir)


@pytest.fixture(scope="module")
def first(tmp_path_factory, speech):
    """The folder of a short masked run."""
    folder = tmp_path_factory.mktemp("start")
    config_path = write_stored(folder / "given.json", make_config(speech, "mlm"))
    flags = ["--config", str(config_path), "--workdir", str(folder / "run")]
    assert main(["train", *flags]) == 0
    return folder / "run"


@pytest.mark.slow
def test_a_run_begins_where_another_ended(first, tmp_path, capsys):
    flags = [
        f"--config={first / 'config.json'}",
        f"--config.train.init_from={first}",
        "--config.train.steps=2",
        "--config.optim.lr=1e-12",
        f"--config.tokenizer.path={first / 'tokenizer.json'}",
        "--config.tokenizer.kind=file",
    ]
    assert main(["train", *flags, "--workdir", str(tmp_path / "run")]) == 0
    _, _, old, old_step = load_run(first)
    program, _, new, step = load_run(tmp_path / "run")
    assert (old_step, step) == (12, 2)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-9), old, new)
    start = make_start(program, program.task.plan.train)
    assert int(start.step) == 0 and not jax.tree.leaves(start.opt_state)[0].any()
    jax.tree.map(np.testing.assert_array_equal, start.params, old)


@pytest.mark.slow
def test_one_objective_goes_on_where_another_ended(first, tmp_path, speech):
    """mlm, then clm_mlm, then clm: one tree of parameters."""
    _, _, held, _ = load_run(first)
    start = first
    for objective in ("clm_mlm", "clm"):
        config = make_config(
            speech,
            objective,
            train__init_from=str(start),
            train__steps=2,
            train__checkpoint_every=0,
            optim__lr=1e-12,
        )
        start = tmp_path / objective
        metrics = run(config, start)["metrics"]
        _, _, result, _ = load_run(start)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=1e-9), result, held
        )
        assert metrics["bits_per_byte"] > 0 and metrics["val_perplexity"] > 1
    assert set(metrics) & {"valid_loss", "valid_clm_loss"} == {"valid_loss"}


@pytest.fixture
def no_figures(monkeypatch):
    """Of a comparison; they are looked at in tests/report."""
    monkeypatch.setattr(figures, "draw", lambda *args: {})


@pytest.mark.slow
def test_objectives_are_compared_from_one_start(first, tmp_path, speech, no_figures):
    config = make_config(
        speech,
        "mlm",
        train__init_from=str(first),
        train__steps=2,
        optim__lr=1e-12,
        compare__objectives=("mlm", "clm"),
        compare__seeds=(0, 1),
        compare__budget="steps",
    )
    report = compare(config, tmp_path / "both")
    held = json.loads((first / "result.json").read_text())["metrics"]["valid_loss"]
    by_name = {(run["objective"], run["seed"]): run for run in report["runs"]}
    assert len(by_name) == 4
    for seed in (0, 1):
        loss = by_name["mlm", seed]["metrics"]["valid_loss"]
        assert loss == pytest.approx(held, rel=1e-5)


@pytest.mark.parametrize(
    "objective, changes, output",
    [
        slow("mlm", {"model__d_model": 32}, ("mlm model has embed/", "16]", "32]")),
        slow("electra", {}, ("mlm model has", "electra one", "not at all")),
        ("mlm", {"tokenizer__kind": "byte"}, ("its tokenizer is another",)),
    ],
)
def test_another_model_or_tokenizer_is_refused(
    first, tmp_path, speech, refuses, objective, changes, output
):
    config = make_config(
        speech,
        objective,
        train__init_from=str(first),
        compare__objectives=(objective,),
        compare__budget="steps",
        **changes,
    )
    with refuses(f"train.init_from={first}", *output):
        compare(config, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.fixture(scope="module")
def bare(tmp_path_factory, speech):
    """`bare("clm", model__norm="rmsnorm")`: a run's folder without its parameters."""
    folder = tmp_path_factory.mktemp("bare")

    @functools.cache
    def make(objective, **changes):
        into = folder / str(len(list(folder.iterdir())))
        plan = claim_run(make_config(speech, objective, **changes), into).plan
        (into / "checkpoints").mkdir()
        return into, load_text(plan.text)[0]

    return make


ROTARY, RELATIVE = {"model__positions": "rotary"}, {"model__positions": "relative"}


@pytest.mark.parametrize(
    "objective, held, values",
    [
        ("mlm", {}, {"norm_epsilon": 1e-12}),
        ("clm", {}, {"num_heads": 4}),
        ("clm", {}, {"activation": "relu"}),
        ("clm", {}, {"scale_attention": False}),
        ("clm", {}, {"scale_logits": True}),
        ("clm", {}, {"position_offset": 2, "max_len": 30}),
        ("clm", {"model__norm_bias": False}, {"norm": "rmsnorm", "norm_bias": False}),
        ("mlm", ROTARY, {"rotary_base": 500.0}),
        ("mlm", ROTARY, {"positions": "sinusoidal"}),
        ("mlm", RELATIVE, {"relative_max_distance": 64}),
        ("mlm", RELATIVE, {"relative_directions": "past"}),
        slow("electra", {}, {"norm_epsilon": 1e-12}),
        slow("bilm", {"bilm__num_chars": 12}, {}),
        ("bilm", {"bilm__cell_clip": 1.0}, {}),
    ],
)
def test_a_model_that_reads_the_same_parameters_otherwise_is_refused(
    objective, held, values, bare, speech, refuses
):
    """Their shapes are the same, the numbers are not."""
    folder, tokenizer = bare(objective, **held)
    changes = {f"model__{name}": value for name, value in values.items()}
    changes = {k: v for k, v in held.items() if k.startswith("model")} | changes
    changes["train__init_from"] = str(folder)
    plan = make_plan(make_config(speech, objective, **changes))
    task = make_task(plan, tokenizer.vocab)
    output = (
        [f"model.{next(iter(values))}="] if values else [f"{next(iter(held))[6:]}="]
    )
    with refuses(f"train.init_from={folder}: its {objective} model has ", *output):
        check_start(task, tokenizer)


@pytest.mark.parametrize(
    "objective, held, changes",
    [
        ("clm", {}, {"model__dropout": 0.1, "model__init": "gpt2"}),
        ("clm", {}, {"model__loss_chunk": 8, "model__remat": "full"}),
        # What is read in training may be longer now; the parameters know no length.
        ("clm", ROTARY, {"model__max_len": 64}),
        ("clm", RELATIVE, {"model__rotary_base": 7.0, "model__max_len": 64}),
        ("mlm", RELATIVE, {"objective": "clm_mlm"}),
        ("clm_mlm", {}, {"objective": "clm"}),
        # It reads as the other does.
        (
            "clm_mlm",
            RELATIVE,
            {"objective": "clm", "model__relative_directions": "both"},
        ),
        (
            "clm",
            RELATIVE,
            {"objective": "clm_mlm", "model__relative_directions": "past"},
        ),
    ],
)
def test_what_makes_no_number_differ_may(objective, held, changes, bare, speech):
    folder, tokenizer = bare(objective, **held)
    changes = held | changes | {"train__init_from": str(folder)}
    objective = changes.pop("objective", objective)
    plan = make_plan(make_config(speech, objective, **changes))
    check_start(make_task(plan, tokenizer.vocab), tokenizer)


@pytest.mark.parametrize("one, two", [("clm_mlm", "clm"), ("clm", "prefix_lm")])
def test_distances_that_are_counted_otherwise_are_refused(
    one, two, bare, speech, refuses
):
    """The buckets of a causal model are not those of one that reads ahead."""
    folder, tokenizer = bare(one, **RELATIVE)
    config = make_config(speech, two, **RELATIVE, train__init_from=str(folder))
    plan = make_plan(config)
    directions = ("past", "both")[:: 1 if two == "clm" else -1]
    assert plan.model.relative_directions == directions[0]
    assert plan.config["model"]["relative_directions"] == "auto"
    output = (
        f"its {one} model has model.relative_directions={directions[1]}, this {two}"
    )
    with refuses(f"train.init_from={folder}: {output} one {directions[0]}"):
        check_start(make_task(plan, tokenizer.vocab), tokenizer)


def test_who_goes_on_reads_as_the_other_did(tmp_path, speech):
    """A causal run from one that read both ways: the same scores of what follows."""
    held = write_run(make_config(speech, "clm_mlm", **RELATIVE), tmp_path / "held")
    program, _, params, _ = load_run(held)
    tokens = np.arange(40, dtype=np.int32).reshape(2, 20) % program.task.vocab.size
    expected = program.readers["next_logits"](params, tokens)
    both = {"model__relative_directions": "both", "train__init_from": str(held)}
    config = make_config(speech, "clm", **RELATIVE, **both)
    own = Program(make_task(make_plan(config), program.task.vocab))
    start = make_start(own, own.task.plan.train).params
    result = own.readers["next_logits"](start, tokens)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_run_that_is_older_than_a_setting_is_still_its_own(first, tmp_path, capsys):
    """What its config does not say stands at its default, in every command."""
    shutil.copytree(first, tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    for name in ("relative_directions", "init_std"):
        config["model"].pop(name, None)
    path.write_text(json.dumps(config))
    (tmp_path / "run" / "checksums.json").unlink()  # nor had they any
    assert main(["train", f"--workdir={tmp_path / 'run'}"]) == 0
    assert main(["evaluate", f"--workdir={tmp_path / 'run'}"]) == 0
    held = json.loads((first / "result.json").read_text())["metrics"]["valid_loss"]
    output = capsys.readouterr().out.splitlines()
    losses = [line.split()[1] for line in output if line.startswith("valid_loss")]
    assert losses == [f"{held:.4f}"] * 2


def test_embeddings_that_are_shared_otherwise_are_refused(bare, speech, refuses):
    """Disentangled ones have tables that shared ones lack."""
    folder, tokenizer = bare("electra", electra__share_embeddings="disentangled")
    start = {"train__init_from": str(folder)}
    same = make_config(
        speech, "electra", electra__share_embeddings="disentangled", **start
    )
    check_start(make_task(make_plan(same), tokenizer.vocab), tokenizer)
    other = make_plan(make_config(speech, "electra", **start))
    with refuses("its electra model has discriminator/embed/", "not at all"):
        check_start(make_task(other, tokenizer.vocab), tokenizer)


def test_a_folder_without_a_run_is_refused(tmp_path, speech, capsys):
    path = write_stored(tmp_path / "given.json", make_config(speech))
    flags = ["train", f"--config={path}", f"--workdir={tmp_path / 'run'}"]
    assert main([*flags, f"--config.train.init_from={tmp_path}"]) == 2
    assert "config.json: not found" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "text, output",
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object: []"),
        ('{"version": "0.2", "model": {"widht": 3}}', "model.widht: unknown setting"),
        (
            '{"version": "0.2", "modle": {}}',
            "modle: unknown section (did you mean model?)",
        ),
        ('{"version": "0.2", "model": {"d_model": "wide"}}', "d_model"),
        (
            '{"model": {"d_model": 8}}',
            "version=None: jaxpt ",
        ),
        ('{"version": "0.1.9", "model": {}}', "version='0.1.9': jaxpt "),
        ('{"version": "0.3.0", "model": {}}', "version='0.3.0': jaxpt "),
        ('{"version": "0.20.0", "model": {}}', "version='0.20.0': jaxpt "),
        ('{"version": [], "model": {}}', "version is []; must be a string"),
    ],
)
def test_a_bad_stored_config_is_one_line(tmp_path, capsys, text, output):
    path = tmp_path / "config.json"
    path.write_text(text)
    assert main(["train", f"--config={path}", f"--workdir={tmp_path / 'run'}"]) == 2
    error = capsys.readouterr().err
    assert output in error and error.count("\n") == 1


def test_the_start_needs_a_checkpoint(first, tmp_path, speech, refuses):
    (tmp_path / "bare").mkdir()
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / "bare" / name).write_bytes((first / name).read_bytes())
    config = make_config(speech, "mlm", train__init_from=str(tmp_path / "bare"))
    _, tokenizer, _, _ = load_run(first)
    program = Program(make_task(make_plan(config), tokenizer.vocab))
    with refuses("train.init_from", "no finished checkpoint"):
        make_start(program, program.task.plan.train)


@pytest.mark.slow
def test_runs_of_one_program_begin_by_their_own_seeds(tmp_path, speech, no_figures):
    config = make_config(
        speech,
        train__steps=2,
        train__checkpoint_every=0,
        compare__objectives=("clm",),
        compare__seeds=(0, 1),
        compare__budget="steps",
    )
    runs = compare(config, tmp_path / "two")["runs"]
    first, second = (run["curve"][0] for run in runs)
    assert first["step"] == second["step"] == 0
    assert first["valid_loss"] != second["valid_loss"]
