"""What comes back of an export, and what a user may ask of an import."""

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hub.test_families import Fixture
from hub.test_runs import make_tokenizer, settings, write_folder
from safetensors.numpy import load_file
from tiny import make_config, write_config

from jaxpt.cli import main
from jaxpt.hub.export import export_run
from jaxpt.hub.families import find_differences
from jaxpt.hub.imports import TOKENIZER, import_run
from jaxpt.learn.state import make_state
from jaxpt.nn.presets import get_preset
from jaxpt.objectives import OBJECTIVES
from jaxpt.run.build import default_config, make_plan, make_task, to_dict
from jaxpt.run.checkpoint import Checkpointer
from jaxpt.run.defaults import get_config
from jaxpt.run.parallel import Program
from jaxpt.run.workdir import claim, load_run
from jaxpt.text.dataset import load_text
from jaxpt.text.tokens import tokenizer as tokenizers

SIZES = {"num_layers": 1, "width": 16, "num_heads": 2, "mlp_width": 32, "max_len": 48}
T5, BART = {"num_decoder_layers": 1, "head_dim": 8}, {"num_decoder_layers": 1}
# Of each objective that exports: its model, and settings of its own.
RUNS = {
    "clm": ("gpt2", {}, {}),
    "mlm": ("bert-base", {}, {"mask_rate": 0.2, "masking": "words"}),
    "span_corruption": ("t5-small", T5, {"noise_density": 0.2}),
    "electra": ("electra-small", {}, {"generator_size": 0.3, "temperature": 0.9}),
    "bert": ("bert-base", {}, {"max_predictions": 3, "mask_rate": 0.2}),
    "spanbert": ("bert-base", {}, {"place_width": 12, "boundary_weight": 0.5}),
    "bart": ("bart-base", BART, {"infill_rate": 0.2, "mask_rate": 0.1}),
    "prefix_lm": ("gpt2", {}, {}),
    "prefix_lm/seq2seq": ("t5-small", T5, {}),
    "clm_mlm": ("gpt2", {}, {"mlm_share": 0.25}),
    "ul2": ("t5-small", T5, {"rates": (1.0, 1.0, 1.0), "random_roll": False}),
    "distillation": ("bert-base", {}, {"temperature": 3.0, "student_layers": (0,)}),
    "causal_distillation": ("gpt2", {}, {"clm_weight": 0.25}),
}


def name_of(run) -> str:
    return run.partition("/")[0]


def run_config(speech, run, **more):
    """The settings of one of `RUNS`."""
    preset, changes, section = RUNS[run]
    objective = name_of(run)
    config = make_config(speech, objective)
    spec = get_preset(preset, **SIZES, **changes, vocab_size=0)
    for name, value in dataclasses.asdict(spec).items():
        config.model[name] = value
    for name, value in (section | more).items():
        config[objective][name] = value
    return config


def make_run(folder, config, **known):
    """A run at step 0 with random parameters, but for those that are known."""
    plan = make_plan(config)
    tokenizer, corpora = load_text(plan.text)
    task = make_task(plan, tokenizer.vocab)
    rng = np.random.default_rng(0)
    shapes = Program(task, is_training=False).abstract_state().params
    draw = lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32)  # noqa: E731
    params = jax.tree.map(draw, shapes) | known
    claim(folder, task.plan, tokenizer, corpora)
    with Checkpointer(folder / "checkpoints") as checkpointer:
        checkpointer.save(0, make_state(params, task.optimizer))
    return params


def data_only(config):
    """The settings that an import cannot know: the text and how it is measured."""
    plain = default_config()
    for section in ("data", "train", "eval"):
        plain[section] = config[section]
    return plain


def same(one, two):
    jax.tree.map(np.testing.assert_array_equal, one, two)


@pytest.fixture(scope="module")
def speech(tmp_path_factory):
    """A text of some sentences, a document a line."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    lines = [f"The {n}th is here. It was {n * n} before, or so." for n in range(80)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture
def export(speech, tmp_path):
    """Exports one of `RUNS`; gives its settings, parameters and folder."""

    def make(run, **more):
        config, known = run_config(speech, run, **more), {}
        teacher = getattr(OBJECTIVES[name_of(run)], "TEACHER", None)
        if teacher:
            of = {"masked": "mlm", "causal": "clm"}[teacher]
            known["teacher"] = make_run(tmp_path / "teacher", run_config(speech, of))
            config[run].teacher = str(tmp_path / "teacher")
        params = make_run(tmp_path / "run", config, **known)
        export_run(tmp_path / "run", tmp_path / "theirs")
        return config, params, tmp_path / "theirs"

    return make


def flags(config, **changes):
    """A config with `section__field=value`, and the names of these as flags."""
    names = []
    for name, value in changes.items():
        *section, field = name.split("__")
        (config[section[0]] if section else config)[field] = value
        names.append(name.replace("__", "."))
    return config, names


@pytest.mark.parametrize("run", RUNS)
def test_an_exported_run_comes_back(run, export, tmp_path):
    config, params, theirs = export(run)
    lines = import_run(theirs, tmp_path / "again", data_only(config))
    assert len(lines) == 1 and f"again: {name_of(run)} from " in lines[0]
    one, two = (load_run(tmp_path / name) for name in ("run", "again"))
    same(two[2], params)
    old, new = one[0].task, two[0].task
    assert new.plan.objective == name_of(run)
    assert new.plan.config[name_of(run)] == old.plan.config[name_of(run)]
    assert new.spec == old.spec and new.plan.rows == old.plan.rows
    assert new.vocab == old.vocab
    assert not find_differences(new.model_spec, old.model_spec)


def test_every_objective_that_exports_is_tried():
    assert {name_of(run) for run in RUNS} == {
        name for name, module in OBJECTIVES.items() if module.HEADS
    }


def test_a_run_comes_back_to_the_same_numbers(speech, tmp_path, capsys):
    """All by commands, with a head that no model of transformers has."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps(to_dict(run_config(speech, "spanbert"))))
    run, theirs, again = (str(tmp_path / name) for name in ("run", "theirs", "again"))
    short = ["--config.train.steps=2", "--config.eval.probe_passages=8"]
    assert main(["train", f"--config={config}", *short, f"--workdir={run}"]) == 0
    assert main(["export", f"--workdir={run}", f"--to={theirs}"]) == 0
    asked = [f"--config.data.path={speech}", "--config.data.split=position"]
    asked += ["--config.data.row_length=24", "--config.eval.num_rows=16", *short[1:]]
    assert main(["import", f"--from={theirs}", f"--workdir={again}", *asked]) == 0
    capsys.readouterr()
    told = []
    for folder in (run, again):
        assert main(["evaluate", f"--workdir={folder}"]) == 0
        told.append(capsys.readouterr().out.splitlines()[1:])
    assert told[0] == told[1] and any("boundary" in line for line in told[0])


@pytest.fixture
def theirs(tmp_path):
    """Makes a folder of others; gives it with settings and the workdir to be."""

    def make(name, num_ids=30):
        write_folder(tmp_path / "theirs", Fixture(name), num_ids=num_ids)
        return tmp_path / "theirs", tmp_path / "run", settings(tmp_path)

    return make


def stored(run):
    return json.loads((run / "config.json").read_text())


@pytest.mark.parametrize(
    "name, first, other", [("gpt2", "clm", "clm_mlm"), ("bert", "mlm", "spanbert")]
)
def test_a_folder_of_others_is_what_the_flag_says(name, first, other, theirs, tmp_path):
    folder, run, config = theirs(name)
    import_run(folder, tmp_path / "plain", config)
    assert stored(tmp_path / "plain")["objective"] == first
    lines = import_run(folder, run, *flags(config, objective=other))
    assert stored(run)["objective"] == other
    same(
        {key: load_run(run)[2][key] for key in ("embed", "encoder")},
        {key: load_run(tmp_path / "plain")[2][key] for key in ("embed", "encoder")},
    )
    is_drawn = any("boundary is not in" in line for line in lines)
    assert is_drawn == (other == "spanbert")


@pytest.mark.parametrize(
    "objective, parts",
    [
        ("mlm", ["must be one of clm, prefix_lm, clm_mlm, ul2, causal_distillation"]),
        ("span_corruption", ["whose runs have a causal model"]),
        ("bilm", ["must be one of clm"]),
        ("nonesuch", ["must be one of clm"]),
        ("causal_distillation", ["causal_distillation.teacher=: must name"]),
    ],
)
def test_an_objective_that_does_not_fit_is_refused(objective, parts, theirs, refuses):
    folder, run, config = theirs("gpt2")
    is_named = objective != "causal_distillation"
    named = [f"--config.objective={objective}", str(folder)] if is_named else []
    with refuses(*named, *parts):
        import_run(folder, run, *flags(config, objective=objective))
    assert not run.exists()


def test_settings_of_the_objective_are_the_users_to_change(export, tmp_path, refuses):
    config, params, theirs = export("spanbert")
    plain, names = flags(data_only(config), spanbert__span_p=0.4)
    import_run(theirs, tmp_path / "again", plain, names)
    wanted = to_dict(config)["spanbert"] | {"span_p": 0.4}
    assert stored(tmp_path / "again")["spanbert"] == wanted
    plain, names = flags(data_only(config), spanbert__place_width=13)
    with refuses("boundary/", "spanbert"):
        import_run(theirs, tmp_path / "third", plain, names)
    plain, names = flags(data_only(config), objective="mlm")
    import_run(theirs, tmp_path / "mlm", plain, names)
    kept = {name: part for name, part in params.items() if name != "boundary"}
    same(load_run(tmp_path / "mlm")[2], kept)


def test_a_student_needs_its_teacher_or_another(export, speech, tmp_path, refuses):
    config, params, theirs = export("distillation")
    assert [path.name for path in (theirs / "jaxpt").iterdir()] == ["run.json"]
    shutil.move(tmp_path / "teacher", tmp_path / "elsewhere")
    with refuses(f"distillation.teacher={tmp_path / 'teacher'}", "run's folder"):
        import_run(theirs, tmp_path / "again", data_only(config))
    assert not (tmp_path / "again").exists()
    place = str(tmp_path / "elsewhere")
    plain, names = flags(data_only(config), distillation__teacher=place)
    plain.distillation.teacher_model = {"width": 99}  # as a config file may have it
    import_run(theirs, tmp_path / "again", plain, names)
    same(load_run(tmp_path / "again")[2], params)
    assert stored(tmp_path / "again")["distillation"]["teacher_model"]["width"] == 16
    plain, names = flags(data_only(config), objective="mlm")
    import_run(theirs, tmp_path / "mlm", plain, names)
    same(load_run(tmp_path / "mlm")[2], params["student"])


@pytest.mark.parametrize(
    "content, parts",
    [
        ("{", ["is not JSON"]),
        ('{"objective": "clm", "settings": {}}', ["format=None"]),
        ({"objective": "nonesuch"}, ["objective='nonesuch'", "clm"]),
        ({"objective": ["clm"]}, ["objective=['clm']"]),
        ({"settings": 3}, ["settings=3"]),
        ({"settings": {"mask_rat": 0.1}}, ["mlm.mask_rat: unknown setting"]),
        ({"settings": {"mask_rate": "x"}}, ["mlm.mask_rate='x'", "float"]),
        ({"settings": {"mask_rate": 7.0}}, ["mlm.mask_rate=7.0"]),
        ({"objective": "clm", "settings": {}}, ["a masked model: must be causal"]),
    ],
)
def test_a_bad_word_of_the_run_is_one_line(content, parts, theirs, refuses):
    folder, run, config = theirs("bert")
    (folder / "jaxpt").mkdir()
    if isinstance(content, dict):
        whole = {"format": 1, "objective": "mlm", "settings": {}} | content
        content = json.dumps(whole)
    (folder / "jaxpt" / "run.json").write_text(content)
    with refuses(*parts):
        import_run(folder, run, config)
    assert not run.exists()


# Of the fixture "bert": what it is, and what a flag may not make of it.
@pytest.mark.parametrize(
    "field, value, held",
    [
        ("num_layers", 3, "2"),
        ("width", 32, "16"),
        ("num_heads", 1, None),
        ("num_kv_heads", 1, "0"),
        ("activation", "relu", "'gelu'"),
        ("norm_epsilon", 1e-5, "1e-12"),
        ("norm_position", "pre", "'post'"),
        ("positions", "rotary", "'learned'"),
        ("max_len", 8, None),
        ("vocab_size", 40, "30"),
        ("num_decoder_layers", 1, "0"),
        ("tie_embeddings", False, "True"),
    ],
)
def test_a_flag_that_makes_another_model_is_refused(
    field, value, held, theirs, refuses
):
    folder, run, config = theirs("bert")
    more = [f"must be {held}"] if held else ["must be "]
    with refuses(f"--config.model.{field}={value}", str(folder), *more):
        import_run(folder, run, *flags(config, **{f"model__{field}": value}))
    assert not run.exists()


def test_flags_that_make_the_same_model_are_heeded(theirs, capsys):
    folder, run, config = theirs("bert")
    asked = {
        "dropout": 0.3,
        "embed_dropout": 0.0,
        "attention_dropout": 0.25,
        "init": "normal",
        "init_std": 0.5,
        "loss_chunk": 5,
        "scan_layers": True,
        "num_layers": 2,
        "vocab_size": 30,
        "num_kv_heads": Fixture("bert").config["num_attention_heads"],
        "relative_buckets": 16,  # of which its places know nothing
    }
    given = [f"--config.model.{name}={value}" for name, value in asked.items()]
    given += [f"--config.data.path={config.data.path}", "--config.data.seq_len=16"]
    argv = ["import", f"--from={folder}", f"--workdir={run}", *given]
    assert main(argv) == 0
    assert "gives way" not in capsys.readouterr().out
    found = stored(run)["model"]
    assert {name: found[name] for name in asked} == asked
    assert found["activation"] == "gelu" and found["norm_position"] == "post"
    assert load_run(run)


def test_what_a_config_file_says_gives_way_and_is_told(theirs, tmp_path, capsys):
    folder, run, config = theirs("bert")
    write_config(
        tmp_path / "config.py",
        config.data.path,
        objective="prefix_lm",
        model__dropout=0.5,
        train__init_from="somewhere",
        tokenizer__kind="byte",
        tokenizer__specials=("nlu",),
        bart__poisson_mean=2.0,
        data__row_length=16,
    )
    argv = ["import", f"--config={tmp_path / 'config.py'}", f"--from={folder}"]
    assert main([*argv, f"--workdir={run}"]) == 0
    told, last = capsys.readouterr().out.splitlines()
    for part in (
        "objective='prefix_lm' ('mlm')",
        "model.num_layers=1 (2)",
        "model.dropout=0.5 (0.1)",
        "train.init_from='somewhere' ('')",
        "tokenizer.kind='byte' ('file')",
        "tokenizer.specials=['nlu'] ([])",
    ):
        assert part in told
    assert "bart.poisson_mean" not in told and "mlm from bert" in last
    assert stored(run)["bart"]["poisson_mean"] == 2.0
    assert stored(run)["train"]["init_from"] == ""
    assert load_run(run)[1].vocab.nlu is None
    # A flag beside the file is not the file's.
    other = [*argv, f"--workdir={tmp_path / 'other'}", "--config.model.num_layers=1"]
    assert main(other) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "--config.model.num_layers=1: must be 2" in err


@pytest.mark.parametrize(
    "changes, size",
    [
        ({"num_sentinels": 3}, 30),
        ({"num_sentinels": 1}, 28),
        ({"specials": ("nlu", "nlg", "mask")}, 30),
        ({"specials": ("nlu",), "num_sentinels": 2}, 30),
        ({"kind": "file", "lowercase": False, "vocab_size": 28}, 28),
    ],
)
def test_specials_are_added_where_the_model_has_room(changes, size, theirs):
    folder, run, config = theirs("bert", 28)
    changes = {f"tokenizer__{name}": value for name, value in changes.items()}
    import_run(folder, run, *flags(config, **changes))
    program, tokenizer, _, _ = load_run(run)
    vocab, held = tokenizer.vocab, make_tokenizer(28).vocab
    assert vocab.size == size and program.task.model_spec.vocab_size == 30
    for name, value in changes.items():
        _, field = name.split("__")
        assert field != "num_sentinels" or vocab.num_sentinels == value
        for role in value if field == "specials" else ():
            assert getattr(vocab, role) is not None
        found = stored(run)["tokenizer"][field]
        assert found == (list(value) if isinstance(value, tuple) else value)
    assert vocab.pieces[:28] == held.pieces and vocab.mask == held.mask


@pytest.mark.parametrize(
    "changes, parts",
    [
        ({"num_sentinels": 4}, ["num_sentinels=4", "31 ids", "the model's 30"]),
        ({"specials": ("nlu", "nlg", "s2s")}, ["specials=", "31 ids", "30"]),
        ({"specials": ("cat",)}, ["specials has 'cat'"]),
        ({"kind": "wordpiece"}, ["kind=wordpiece", "must be 'file'"]),
        ({"lowercase": True}, ["lowercase=True", "must be False"]),
        ({"vocab_size": 400}, ["vocab_size=400", "must be 28"]),
        ({"path": "other.json"}, ["path=", "must be the same tokenizer"]),
        ({"path": "gone.json"}, ["gone.json", "No such file"]),
    ],
)
def test_another_tokenizer_is_refused(changes, parts, theirs, tmp_path, refuses):
    folder, run, config = theirs("bert", 28)
    tokenizers.export(make_tokenizer(29), tmp_path / "other.json")
    if "path" in changes:
        changes = {"path": str(tmp_path / changes["path"])}
    changes = {f"tokenizer__{name}": value for name, value in changes.items()}
    with refuses("tokenizer", *parts):
        import_run(folder, run, *flags(config, **changes))
    assert not run.exists()


def test_the_same_tokenizer_by_its_path_and_a_start_of_its_own(theirs, refuses):
    folder, run, config = theirs("bert", 28)
    with refuses("--config.train.init_from=runs/a", "must be ''"):
        import_run(folder, run, *flags(config, train__init_from="runs/a"))
    config.train.init_from = ""
    import_run(folder, run, *flags(config, tokenizer__path=str(folder)))
    assert load_run(run)[1].vocab.size == 28


def test_a_generators_share_is_the_folders(export, tmp_path, refuses):
    config, _, theirs = export("electra")
    plain, names = flags(data_only(config), electra__generator_size=0.5)
    with refuses("--config.electra.generator_size=0.5", "must be 0.3125"):
        import_run(theirs, tmp_path / "again", plain, names)
    plain, names = flags(data_only(config), electra__generator_size=0.3)
    plain, more = flags(plain, model__dropout=0.2)
    import_run(theirs, tmp_path / "again", plain, [*names, *more])
    assert stored(tmp_path / "again")["electra"]["generator_size"] == 0.3
    assert stored(tmp_path / "again")["model"]["dropout"] == 0.2


def use(run, tmp_path, capsys, *asks):
    """What each command that uses a run prints, and its export."""
    told = []
    for ask in asks:
        assert main([*ask, f"--workdir={run}"]) == 0
        out = capsys.readouterr().out
        told.append(out[out.find("step ") :])  # not that the text was prepared
    to = tmp_path / f"of-{run.name}-{len(list(tmp_path.iterdir()))}"
    assert main(["export", f"--workdir={run}", f"--to={to}"]) == 0
    capsys.readouterr()
    return told, load_file(to / "model.safetensors"), to / "tokenizer.json"


@pytest.mark.parametrize(
    "name, asks",
    [
        ("bert", [["evaluate"], ["fill", "--text=a [MASK] b"]]),
        ("gpt2", [["generate", "--prompt=a b", "--num_tokens=4"]]),
    ],
)
def test_an_imported_run_can_be_moved(name, asks, theirs, tmp_path, capsys):
    folder, run, config = theirs(name)
    import_run(folder, run, config)
    assert str(tmp_path) not in json.dumps(stored(run)["tokenizer"])
    before, tensors, _ = use(run, tmp_path, capsys, *asks)
    moved = tmp_path / "moved"
    shutil.move(run, moved)
    shutil.rmtree(folder)
    # What stands in its old place is nothing to it.
    run.mkdir()
    tokenizers.export(make_tokenizer(28), run / "tokenizer.json")
    after, again, tokenizer = use(moved, tmp_path, capsys, *asks)
    assert after == before
    same(again, tensors)
    found = tokenizers.load(tokenizer)
    assert tokenizers.fingerprint(found) == tokenizers.fingerprint(make_tokenizer())


def test_a_moved_run_goes_on_and_is_a_config(theirs, tmp_path):
    folder, run, config = theirs("bert")
    config.train.steps = config.train.steps_per_call = 2
    import_run(folder, run, config)
    (tmp_path / "deep").mkdir()
    moved = tmp_path / "deep" / "moved"
    shutil.move(run, moved)
    assert main(["train", f"--workdir={moved}"]) == 0
    assert load_run(moved)[3] == 2
    shutil.move(moved, run)
    more = ["train", f"--config={run / 'config.json'}"]
    assert main([*more, f"--workdir={run}"]) == 0  # finds that it is finished
    assert get_config(str(run / "config.json")).tokenizer.path == str(run / TOKENIZER)


def test_a_config_without_its_tokenizer_is_one_line(theirs, tmp_path, capsys):
    folder, run, config = theirs("gpt2")
    import_run(folder, run, config)
    shutil.copy(run / "config.json", tmp_path / "alone.json")
    argv = ["train", f"--config={tmp_path / 'alone.json'}", f"--workdir={tmp_path}/b"]
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "tokenizer.path=''" in err


def test_an_imported_run_can_teach(theirs):
    folder, run, config = theirs("gpt2")
    import_run(folder, run, config)
    config.objective = "causal_distillation"
    config.causal_distillation.teacher = str(run)
    teacher = make_plan(config).objective_spec.teacher_model
    assert (teacher.width, teacher.vocab_size) == (16, 30)
