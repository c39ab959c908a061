"""An exported run comes back as what it was."""

import dataclasses
import functools
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hub.conftest import flags, same, stored
from tiny import make_config, slow, slow_but

from jaxpt.cli.main import main
from jaxpt.config.plan import make_plan
from jaxpt.config.settings import default_config, to_dict
from jaxpt.files.folder import write_config
from jaxpt.hub.export import export_run
from jaxpt.hub.imports import import_run
from jaxpt.learn.state import make_state
from jaxpt.nn.model_differences import find_differences
from jaxpt.nn.presets import get_preset
from jaxpt.objectives import OBJECTIVES
from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.program import Program
from jaxpt.runs.task import make_task
from jaxpt.runs.workdir import load_run, lock_workdir
from jaxpt.text.dataset import load_text

SIZES = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 32, "max_len": 48}
T5, BART = {"num_decoder_layers": 1, "head_dim": 8}, {"num_decoder_layers": 1}
# Each objective that exports: its model and settings.
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
    "selective_clm": ("gpt2", {}, {"share": 0.5}),
    "adaptive_mlm": ("bert-base", {}, {"mask_rate": 0.3, "update_every": 50}),
    "fill_in_the_middle": ("gpt2", {}, {"rate": 0.75, "spm_share": 0.25}),
    "multi_token": ("gpt2", {}, {"offset_weights": (0.25,), "fade_end": 0.5}),
    "token_order": ("gpt2", {}, {"order_weight": 0.5}),
    "future_summary": ("gpt2", {}, {"horizon": 5, "summary_weight": 0.5}),
    "next_latent": ("gpt2", {}, {"horizon": 2, "latent_weight": 0.5}),
    "latent_prediction": ("gpt2", {}, {"horizon": 4, "target": "frozen"}),
    "prefix_token": ("gpt2", {}, {"prefix_weight": 0.5, "offset_weights": (0.25,)}),
    "masked_input_clm": ("gpt2", {}, {"max_rate": 0.3}),
    "mixture": ("gpt2", {}, {"shares": (0.75, 0.25)}),
    "dual": ("gpt2", {}, {"diffusion_share": 0.25, "min_rate": 0.01}),
    "multi_token_heads": (
        "gpt2",
        {},
        {"variant": "parallel", "num_extra": 2, "weight_schedule": ((1.0, 0.5),)},
    ),
    "masked_diffusion": ("bert-base", {}, {"min_rate": 0.01, "bound_samples": 2}),
    "masked_diffusion/shift": ("gpt2", {}, {"shift": True, "mask_anneal": 0.5}),
    "hybrid_diffusion": ("bert-base", {}, {"noise_shift": 1.0, "bound_samples": 2}),
    "block_diffusion": ("bert-base", {}, {"block_size": 8, "min_rate": 0.01}),
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
    rng = np.random.default_rng(len(plan.objective_name))  # a teacher's are others
    shapes = Program(task, is_training=False).abstract_state().params
    draw = lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32)  # noqa: E731
    params = jax.tree.map(draw, shapes) | known
    lock_workdir(folder, task.plan, tokenizer, corpora)
    with Checkpointer(folder / "checkpoints") as checkpointer:
        checkpointer.save(0, make_state(params, task.optimizer))
    return params


def data_only(config):
    """The settings that an import cannot know: the text and how it is measured."""
    plain = default_config()
    for section in ("data", "train", "eval"):
        plain[section] = config[section]
    return plain


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
        teacher = OBJECTIVES[name_of(run)].Spec(row_length=24).needs.teacher
        if teacher:
            of = teacher.objective
            known["teacher"] = make_run(tmp_path / "teacher", run_config(speech, of))
            config[run].teacher = str(tmp_path / "teacher")
        params = make_run(tmp_path / "run", config, **known)
        export_run(tmp_path / "run", tmp_path / "theirs")
        return config, params, tmp_path / "theirs"

    return make


SOME = ("clm", "span_corruption", "electra", "bert", "spanbert", "distillation")


@pytest.mark.slow_cases("clm", "electra", "spanbert", "distillation", "span_corruption")
@pytest.mark.parametrize("run", slow_but(SOME, RUNS))
def test_an_exported_run_comes_back(run, export, tmp_path):
    config, params, reference = export(run)
    lines = import_run(reference, tmp_path / "again", data_only(config))
    assert len(lines) == 2 and f"again: {name_of(run)} from " in lines[0]
    assert lines[1].startswith("for continued pretraining: optim.lr=")
    one, two = (load_run(tmp_path / name) for name in ("run", "again"))
    same(two[2], params)
    old, new = one[0].task, two[0].task
    assert new.plan.objective_name == name_of(run)
    assert new.plan.config[name_of(run)] == old.plan.config[name_of(run)]
    assert new.spec == old.spec and new.plan.rows == old.plan.rows
    assert dataclasses.replace(new.vocab, text_form=None) == old.vocab
    assert new.text_form == old.text_form
    assert not find_differences(new.model_spec, old.model_spec)


@pytest.mark.slow_cases("separate")
@pytest.mark.parametrize("sharing", ["separate", "disentangled"])
def test_embeddings_of_electras_networks_come_back(sharing, export, tmp_path):
    """Those of the discriminator as the sum with the generator's, to rounding."""
    config, params, reference = export("electra", share_embeddings=sharing)
    import_run(reference, tmp_path / "again", data_only(config))
    program, _, again, _ = load_run(tmp_path / "again")
    assert stored(tmp_path / "again")["electra"]["share_embeddings"] == sharing
    close = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-5)
    jax.tree.map(close, again, params)
    tokens = np.arange(24, dtype=np.int32).reshape(2, 12)
    two = [program.task.model.features(each, tokens) for each in (again, params)]
    np.testing.assert_allclose(*two, rtol=1e-4, atol=1e-4)


def test_every_objective_that_exports_is_tried():
    assert {name_of(run) for run in RUNS} == {
        name for name, module in OBJECTIVES.items() if module.Spec.heads()
    }


@pytest.mark.slow
def test_a_run_comes_back_to_the_same_numbers(speech, tmp_path, capsys):
    """All by commands, with a head that no model of transformers has."""
    config = tmp_path / "config.json"
    write_config(config, to_dict(run_config(speech, "spanbert")))
    run, reference, again = (
        str(tmp_path / name) for name in ("run", "theirs", "again")
    )
    short = ["--config.train.steps=2", "--config.eval.probe_passages=8"]
    assert main(["train", f"--config={config}", *short, f"--workdir={run}"]) == 0
    assert main(["export", f"--workdir={run}", f"--to={reference}"]) == 0
    flags = [f"--config.data.path={speech}", "--config.data.split=position"]
    flags += ["--config.data.row_length=24", "--config.eval.num_rows=16", *short[1:]]
    assert main(["import", f"--from={reference}", f"--workdir={again}", *flags]) == 0
    capsys.readouterr()
    output = []
    for folder in (run, again):
        assert main(["evaluate", f"--workdir={folder}"]) == 0
        output.append(capsys.readouterr().out.splitlines()[1:])
    assert output[0] == output[1] and any("boundary" in line for line in output[0])


def test_settings_of_the_objective_are_the_users_to_change(export, tmp_path, refuses):
    config, params, reference = export("spanbert")
    plain, names = flags(data_only(config), spanbert__span_p=0.4)
    import_run(reference, tmp_path / "again", plain, names)
    expected = to_dict(config)["spanbert"] | {"span_p": 0.4}
    assert stored(tmp_path / "again")["spanbert"] == expected
    plain, names = flags(data_only(config), spanbert__place_width=13)
    with refuses("boundary/", "spanbert"):
        import_run(reference, tmp_path / "third", plain, names)
    plain, names = flags(data_only(config), objective="mlm")
    import_run(reference, tmp_path / "mlm", plain, names)
    kept = {name: part for name, part in params.items() if name != "boundary"}
    same(load_run(tmp_path / "mlm")[2], kept)


def test_a_student_needs_its_teacher_or_another(export, speech, tmp_path, refuses):
    config, params, reference = export("distillation")
    names = {path.name for path in (reference / "jaxpt").iterdir()}
    assert names == {"run.json", "checksums.json"}
    shutil.move(tmp_path / "teacher", tmp_path / "elsewhere")
    with refuses(f"distillation.teacher={tmp_path / 'teacher'}", "run's folder"):
        import_run(reference, tmp_path / "again", data_only(config))
    assert not (tmp_path / "again").exists()
    place = str(tmp_path / "elsewhere")
    plain, names = flags(data_only(config), distillation__teacher=place)
    plain.distillation.teacher_model = {"d_model": 99}  # as a config file may have it
    import_run(reference, tmp_path / "again", plain, names)
    same(load_run(tmp_path / "again")[2], params)
    assert stored(tmp_path / "again")["distillation"]["teacher_model"]["d_model"] == 16
    plain, names = flags(data_only(config), objective="mlm")
    import_run(reference, tmp_path / "mlm", plain, names)
    same(load_run(tmp_path / "mlm")[2], params["student"])


@pytest.mark.parametrize(
    "content, parts",
    [
        ("{", ["not JSON"]),
        ('{"objective": "clm", "settings": {}}', ["format=None"]),
        ({"objective": "nonesuch"}, ["objective='nonesuch'", "clm"]),
        slow({"objective": ["clm"]}, ["objective=['clm']"]),
        ({"settings": 3}, ["settings=3"]),
        ({"settings": {"mask_rat": 0.1}}, ["mlm.mask_rat: unknown setting"]),
        ({"settings": {"mask_rate": "x"}}, ["mlm.mask_rate=x", "a number"]),
        ({"settings": {"mask_rate": 7.0}}, ["mlm.mask_rate=7.0"]),
        ({"objective": "clm", "settings": {}}, ["a masked model: must be causal"]),
    ],
)
def test_a_bad_word_of_the_run_is_one_line(content, parts, make_checkpoint, refuses):
    folder, run, config = make_checkpoint("bert")
    (folder / "jaxpt").mkdir()
    if isinstance(content, dict):
        whole = {"format": 1, "objective": "mlm", "settings": {}} | content
        content = json.dumps(whole)
    (folder / "jaxpt" / "run.json").write_text(content)
    with refuses(*parts):
        import_run(folder, run, config)
    assert not run.exists()


def test_a_generators_share_is_the_folders(export, tmp_path, refuses):
    config, _, reference = export("electra")
    plain, names = flags(data_only(config), electra__generator_size=0.5)
    with refuses("electra.generator_size=0.5", "must be 0.3125"):
        import_run(reference, tmp_path / "again", plain, names)
    plain, names = flags(data_only(config), electra__generator_size=0.3)
    plain, more = flags(plain, model__dropout=0.2)
    import_run(reference, tmp_path / "again", plain, [*names, *more])
    assert stored(tmp_path / "again")["electra"]["generator_size"] == 0.3
    assert stored(tmp_path / "again")["model"]["dropout"] == 0.2
