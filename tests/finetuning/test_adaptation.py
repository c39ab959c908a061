"""Fine-tuning with every method, end to end on runs of a second."""

import json

import jax
import numpy as np
import pytest
from tiny import make_config, slow_but, write_run

from jaxpt.config.finetuning import default_finetune_config, make_finetune_plan
from jaxpt.errors import UserError
from jaxpt.evaluation.linear_probe import fit_probe
from jaxpt.finetuning.base import load_base
from jaxpt.finetuning.data import read_data
from jaxpt.finetuning.evaluation import measure
from jaxpt.finetuning.exact_probe import make_head
from jaxpt.finetuning.grid import finetune, make_program
from jaxpt.finetuning.results import find_model
from jaxpt.finetuning.reuse import Reuse
from jaxpt.finetuning.summary import format_summary
from jaxpt.nn.adaptation.adapt import merge
from jaxpt.nn.adaptation.adapt_spec import METHODS
from jaxpt.runs.checkpoint import Checkpointer

SIZES = {"lora": {"rank": 2}, "houlsby": {"size": 4}, "pfeiffer": {"size": 4}}
SIZES["prompt"] = {"prompt_length": 4, "prompt_init": "labels"}
TWO = {"model__num_decoder_layers": 1}


@pytest.fixture(scope="session")
def runs(speech, tmp_path_factory):
    """`runs("mlm")`: the folder of a run of an objective, before its first step."""
    made = {}

    def make(objective):
        if objective not in made:
            folder = tmp_path_factory.mktemp(objective)
            changes = TWO if objective in ("bart", "span_corruption") else {}
            write_run(make_config(speech, objective, **changes), folder)
            made[objective] = folder
        return made[objective]

    return make


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """Forty texts whose first word determines the label."""
    draw = np.random.default_rng(0)
    words = "the union states congress year great public their been war".split()
    lines = ["text\tlabel"]
    for i in range(40):
        rest = " ".join(draw.choice(words, draw.integers(1, 5)))
        lines.append(f"{('peace', 'money')[i % 2]} {rest}\t{('good', 'bad')[i % 2]}")
    path = tmp_path_factory.mktemp("texts") / "train.tsv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def make_plan(texts, method="full", **values):
    config = default_finetune_config("classification")
    config.data.train = config.data.dev = str(texts)
    config.task.text, config.task.max_len = "text", 16
    config.train.lr, config.train.batch_size = (1e-2,), (16,)
    config.train.epochs, config.train.num_lengths = (1,), 1
    config.adapt.method = method
    for name, value in SIZES.get(method, {}).items():
        config.adapt[name] = value
    for name, value in values.items():
        section, field = name.split("__")
        config[section][field] = value
    return make_finetune_plan(config)


def load_program(plan, source, folder):
    """The program of a finished fine-tuning, its parameters, and its dev examples."""
    data = read_data(plan)
    base = load_base(str(source), plan.spec.head, plan.spec.max_len, -1)
    splits = Reuse().encode_splits(plan, data, base.encoder)
    program = make_program(plan, base, data.labels, splits["train"])
    first = program.init_params(0)
    trained, kept = program.split(first)
    step = find_model(folder)["model_step"]
    with Checkpointer(folder / "model", keep=2) as checkpointer:
        restored, _ = checkpointer.restore({"trained": trained}, step)
    return program, first, program.join(restored["trained"], kept), splits["dev"]


CASES = [("mlm", method) for method in METHODS if method != "exact_probe"]
CASES += [("clm", "lora"), ("clm", "prompt"), ("electra", "houlsby")]
CASES += [("bart", "lora"), ("bart", "prompt"), ("span_corruption", "pfeiffer")]
CASES += [("bilm", "bitfit"), ("bilm", "linear_probe"), ("skip_gram", "full")]


@pytest.mark.slow_cases("mlm-lora")
@pytest.mark.parametrize("objective, method", slow_but([("mlm", "lora")], CASES))
def test_a_method_on_a_run(objective, method, runs, texts, tmp_path):
    """The counts are reported; only the adapter and the head are trained and stored."""
    source, folder, lines = runs(objective), tmp_path / "out", []
    plan = make_plan(texts, method)
    result = finetune(plan, str(source), folder, lines.append)
    program, first, params, dev = load_program(plan, source, folder)
    counts = result["parameters"]
    (output,) = (line for line in lines if line.startswith("trained:"))
    assert f"{counts['trained']:,} of {counts['total']:,}" in output
    kept, results = program.split(first)[1], program.split(params)[1]
    for name in kept:
        np.testing.assert_array_equal(kept[name], results[name])
    parts = {part for part in ("network", "head", "extra") if counts[part]}
    old, new = (program.split(tree)[0] for tree in (first, params))
    moved = {k.split("/")[0] for k in old if np.any(np.asarray(old[k] != new[k]))}
    assert moved == parts
    assert measure(program, params, dev, dev).metrics == result["cells"][0]["dev"]
    if method == "lora":
        network = merge(plan.adapt, params["network"], params["extra"])
        merged = params | {"network": network, "extra": {}}
        batch = program.batch
        np.testing.assert_allclose(
            jax.jit(program._outputs)(merged, batch),
            program.outputs(params, batch),
            atol=1e-5,
        )


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lora", "houlsby"])
def test_killed_and_started_again_it_is_bit_equal(
    method, runs, texts, tmp_path, monkeypatch
):
    plan = make_plan(
        texts, method, train__checkpoint_every=1, train__epochs=(3,), groups__unfreeze=1
    )
    source = str(runs("mlm"))
    whole = finetune(plan, source, tmp_path / "whole", print)

    class Killed(Exception):
        pass

    save, num = Checkpointer.save, []

    def save_some(self, *args):
        save(self, *args)
        num.append(1)
        if len(num) == 5:
            self.wait()
            raise Killed

    monkeypatch.setattr(Checkpointer, "save", save_some)
    with pytest.raises(Killed):
        finetune(plan, source, tmp_path / "parts", print)
    monkeypatch.setattr(Checkpointer, "save", save)
    parts = finetune(plan, source, tmp_path / "parts", print)
    for name in ("settings", "parameters"):
        assert parts[name] == whole[name]
    trained = [
        load_program(plan, source, tmp_path / name)[2] for name in ("whole", "parts")
    ]
    jax.tree.map(np.testing.assert_array_equal, *trained)


@pytest.mark.parametrize(
    "objective, method, parts",
    [
        pytest.param(
            "bilm",
            "houlsby",
            ("adapt.method=houlsby", "no layers of attention"),
            marks=pytest.mark.slow,
        ),
        ("skip_gram", "bitfit", ("adapt.method=bitfit", "no biases")),
        ("skip_gram", "prompt", ("adapt.method=prompt", "no table")),
        ("skip_gram", "lora", ("adapt.targets", "it has none")),
    ],
)
def test_what_a_network_lacks_is_refused_before_anything_is_written(
    objective, method, parts, runs, texts, tmp_path, refuses
):
    values = {} if method != "prompt" else {"adapt__prompt_init": "vocab"}
    plan = make_plan(texts, method, **values)
    with refuses(*parts):
        finetune(plan, str(runs(objective)), tmp_path / "out", print)
    assert not (tmp_path / "out" / "identity.json").exists()


def test_groups_are_of_what_is_trained(texts, refuses):
    for values in ({"groups__decay": 0.5}, {"groups__unfreeze": 1}):
        with refuses("adapt.method=linear_probe", "groups.decay", "groups.unfreeze"):
            make_plan(texts, "linear_probe", train__epochs=(3,), **values)


def test_a_prompt_without_room_is_refused(runs, texts, tmp_path, refuses):
    plan = make_plan(texts, "prompt", adapt__prompt_length=17)
    with refuses("adapt.prompt_length=17", "task.max_len", "model.max_len=32"):
        finetune(plan, str(runs("mlm")), tmp_path / "out", print)


@pytest.mark.slow
def test_ulmfits_recipe(runs, texts, tmp_path):
    """Pooling, rates by layer, the triangle and one group more every epoch."""
    plan = make_plan(
        texts,
        task__head="ulmfit",
        optim__schedule="slanted_triangle",
        groups__decay=1 / 2.6,
        groups__unfreeze=2,
        train__warmup_share=0.0,
        train__epochs=(3,),
    )
    result = finetune(plan, str(runs("clm")), tmp_path / "out", print)
    assert result["head"] == "ulmfit"
    history = json.loads((tmp_path / "out" / "result.json").read_text())["cells"][0]
    assert len(history["history"]) == 3
    with pytest.raises(UserError, match="groups.unfreeze=3: must be below"):
        make_plan(texts, groups__unfreeze=3, train__epochs=(3,))


def test_an_exact_probe_is_a_head(runs, texts, tmp_path, refuses):
    """Of its own task: what scikit-learn predicts, the network's head does."""
    source, folder = runs("mlm"), tmp_path / "out"
    with refuses("adapt.method=exact_probe", "the head bert", "electra"):
        plan = make_plan(texts, "exact_probe", task__head="bert")
        finetune(plan, str(source), folder, print)
    with refuses("train.lr=(0.1, 0.2)", "must be one value"):
        plan = make_plan(texts, "exact_probe", train__lr=(0.1, 0.2))
        finetune(plan, str(source), folder, print)
    plan = make_plan(texts, "exact_probe", task__head="mean")
    result = finetune(plan, str(source), folder, print)
    (table,) = [line for line in format_summary(result).splitlines() if "*" in line[:9]]
    assert table.split()[:4] == ["-*", "-", "-", "1"]  # it took no steps
    (cell,) = result["cells"]
    best = max(cell["dev_by_strength"].values())
    assert cell["dev"]["accuracy"] == pytest.approx(best)
    assert cell["dev_by_strength"][str(cell["strength"])] == best > 0.6
    program, first, params, dev = load_program(plan, source, folder)
    assert measure(program, params, dev, dev).metrics == cell["dev"]
    jax.tree.map(np.testing.assert_array_equal, params["network"], first["network"])


def test_a_fitted_head_of_three_labels_one_of_which_was_not_seen():
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(60, 4)) * 5 + 2
    for seen in ([0, 2], [0, 1, 3]):
        labels = np.array(seen)[np.argmax(vectors[:, : len(seen)], 1)]
        probe = fit_probe(vectors, labels, vectors, labels)
        head = make_head(probe, 4)
        predictions = np.argmax(vectors @ head["kernel"] + head["bias"], axis=1)
        np.testing.assert_array_equal(predictions, probe.predict(vectors))
