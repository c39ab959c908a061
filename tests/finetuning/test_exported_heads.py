"""Heads of ELECTRA, GPT-2 and others as transformers has them: there and back."""

import jax
import numpy as np
import pytest
from tiny import slow_but

from jaxpt.config.settings import default_config
from jaxpt.finetuning.base import load_base
from jaxpt.finetuning.evaluation import LabelledRows, read_outputs
from jaxpt.finetuning.export import export_finetuned, load_finetuned
from jaxpt.finetuning.grid import make_program
from jaxpt.hub.convert import HEAD, flatten
from jaxpt.hub.family import find_family
from jaxpt.hub.files import read_json, read_tensors, write_json
from jaxpt.hub.imports import import_run
from jaxpt.hub.task_heads import (
    CHOICES,
    QUESTIONS,
    TEXTS,
    TOKENS,
    find_names,
    name_class,
    task_from_hf,
    write_labels,
)
from jaxpt.runs.stored_form import NAME
from jaxpt.runs.workdir import load_run
from jaxpt.text_form import TextForm
from tests.finetuning.exported import TASKS, make_export, make_family, same, tune

# Family, task, head, and the class of transformers.
CASES = {
    ("electra", "classification", "electra_dense"): "ElectraForSequenceClassification",
    ("electra", "regression", "electra_dense"): "ElectraForSequenceClassification",
    ("electra", "choice", "electra_dense"): "ElectraForMultipleChoice",
    ("electra", "tagging", "auto"): "ElectraForTokenClassification",
    ("electra", "span_qa", "auto"): "ElectraForQuestionAnswering",
    ("gpt2", "classification", "gpt2"): "GPT2ForSequenceClassification",
    ("gpt2", "regression", "gpt2"): "GPT2ForSequenceClassification",
    ("roberta", "classification", "auto"): "RobertaForSequenceClassification",
    ("distilbert", "classification", "distilbert"): (
        "DistilBertForSequenceClassification"
    ),
    ("bart", "classification", "auto"): "BartForSequenceClassification",
    ("modernbert", "classification", "auto"): "ModernBertForSequenceClassification",
    ("modernbert", "regression", "modernbert_mean"): (
        "ModernBertForSequenceClassification"
    ),
    ("modernbert", "choice", "auto"): "ModernBertForMultipleChoice",
    ("modernbert", "tagging", "auto"): "ModernBertForTokenClassification",
    ("modernbert", "span_qa", "auto"): "ModernBertForQuestionAnswering",
    ("gpt2", "tagging", "auto"): "GPT2ForTokenClassification",
    ("gpt2", "span_qa", "auto"): "GPT2ForQuestionAnswering",
}
QUICK = (list(CASES)[0], list(CASES)[-1])
# A BART without its run's file comes back as what its vocabulary serves, any objective.
BACK = [case for case in CASES if case[0] != "bart"]

MODERN = ["head.dense", "head.norm", "classifier"]

# What is not in an export: ELECTRA's generator and score, a masked model's own head.
DRAWN = {"electra": 2, "roberta": 1, "distilbert": 1, "modernbert": 1}


@pytest.fixture(scope="session")
def exports(tmp_path_factory):
    """`exports(family, task, head)`: made once."""
    made = {}

    def get(*case):
        if case not in made:
            made[case] = make_export(tmp_path_factory.mktemp("heads"), *case)
        return made[case]

    return get


@pytest.mark.parametrize(
    "family, what, form, layers",
    [
        (
            "electra",
            TEXTS,
            "electra_dense",
            ["classifier.dense", "classifier.out_proj"],
        ),
        (
            "electra",
            CHOICES,
            "electra_dense",
            ["sequence_summary.summary", "classifier"],
        ),
        ("electra", TOKENS, "electra", ["classifier"]),
        ("electra", QUESTIONS, "mean", ["qa_outputs"]),
        ("modernbert", TEXTS, "modernbert_mean", MODERN),
        ("modernbert", TOKENS, "modernbert", MODERN),
        ("gpt2", TEXTS, "gpt2", ["score"]),
        ("gpt2", TOKENS, "gpt", ["classifier"]),
        ("gpt2", QUESTIONS, "gpt", ["qa_outputs"]),
    ],
)
def test_the_names_of_a_head(family, what, form, layers):
    names = find_names(find_family(family), what, form)
    assert list(names.layers) == layers
    tensors = {f"{layer}.weight": np.ones((2, 3)) for layer in layers}
    biased = {"score": [], "head.dense": ["classifier"]}.get(layers[0], layers)
    tensors |= {f"{layer}.bias": np.zeros(2) for layer in biased}
    params = task_from_hf(tensors, names)
    assert params["out"]["kernel"].shape == (3, 2)
    with_bias = [layer for layer in params if "bias" in params[layer]]
    assert with_bias == [names.layers[layer] for layer in biased]


@pytest.mark.parametrize(
    "family, what, form, allowed",
    [
        ("electra", TEXTS, "electra", "electra_dense"),
        ("electra", CHOICES, "electra", "electra_dense"),
        ("gpt2", TEXTS, "gpt", "gpt2"),
        ("bert", TEXTS, "mean", "bert"),
        ("bert", TOKENS, "modernbert", "auto"),
        ("modernbert", TOKENS, "bert", "modernbert or modernbert_mean"),
    ],
)
def test_a_refusal_names_the_head_to_choose(family, what, form, allowed, refuses):
    kind = find_family(family)
    output = f"must be fine-tuned with task.head={allowed}, the head of "
    with refuses(f"task.head={form} has no", output + name_class(kind, what)):
        find_names(kind, what, form)


def test_what_a_family_lacks_is_refused_with_what_there_is(refuses):
    with refuses(
        "a gpt2 with task.head=gpt2", "bert (bert)", "electra (electra_dense)"
    ):
        find_names(find_family("gpt2"), CHOICES, "gpt2")


@pytest.mark.slow_cases("electra-classification*")
@pytest.mark.parametrize("family, task, head", slow_but(QUICK, BACK))
def test_an_export_comes_back_with_all_its_numbers(
    family, task, head, exports, tmp_path
):
    case = family, task, head
    made = exports(*case)
    result, config = made.finetuned, read_json(made.out, "config.json")
    assert config["architectures"] == [CASES[case]] and CASES[case] in made.lines[0]
    plan, base = result.program.plan, result.program.base
    assert config["pad_token_id"] == base.tokenizer.vocab.pad
    expected = getattr(plan.spec, "label_names", ()) or result.program.labels
    output = write_labels(expected, plan.spec.EXPORT, plan.spec.problem_type)
    assert {name: config[name] for name in output} == output
    lines = import_run(made.out, tmp_path / "run", default_config())
    drawn = [line for line in lines if "initialised at random" in line]
    assert len(drawn) == DRAWN.get(family, 0)
    again = load_base(str(tmp_path / "run"), "auto", plan.spec.max_len, 0.0)
    same(again.head.params, result.params["head"])
    params, reference = flatten(again.params), flatten(result.params["network"])
    assert params.keys() >= {path for path in reference if not HEAD.match(path)}
    for path, value in reference.items():
        held = params.get(path)
        if path == "embed/positions/table":  # no token reads those before the first
            held, value = held[-128:], value[-128:]
        if not HEAD.match(path):
            np.testing.assert_array_equal(held, value, path)
    assert again.encoder.form == base.encoder.form
    assert again.head.form in ("", again.form)
    program = make_program(
        plan, again, result.program.labels, LabelledRows([], made.rows)
    )
    assert program.keeps_head
    ours = read_outputs(program, program.init_params(0), LabelledRows([], made.rows))
    same(ours, made.outputs)


def test_modernberts_head_begins_as_pretraining_left_it(tmp_path):
    run = make_family(tmp_path, "modernbert", framed=True)
    layers = load_run(run).params["head"]
    for task, head in (("regression", "modernbert_mean"), ("tagging", "auto")):
        result = load_finetuned(tune(run, task, head, tmp_path / task))
        same(result.params["head"]["pool"], layers["transform"])
        same(result.params["head"]["norm"], layers["norm"])


def test_settings_of_modernberts_pooling(exports, tmp_path, refuses):
    made = exports("modernbert", "regression", "modernbert_mean")
    config = read_json(made.out, "config.json")
    assert config["classifier_pooling"] == "mean"
    for path in made.out.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    write_json(tmp_path, "config.json", config | {"classifier_pooling": "max"})
    with refuses("classifier_pooling='max'", "must be 'cls' or 'mean'"):
        import_run(tmp_path, tmp_path / "run", default_config())
    del config["classifier_pooling"]
    write_json(tmp_path, "config.json", config)
    import_run(tmp_path, tmp_path / "run", default_config())
    assert load_base(str(tmp_path / "run"), "auto", 48, 0.0).form == "modernbert"


def test_a_head_of_another_form_does_not_go_on(exports, tmp_path):
    made = exports(*QUICK[0])
    import_run(made.out, tmp_path / "run", default_config())
    plan = made.finetuned.program.plan
    base = load_base(str(tmp_path / "run"), "electra", plan.spec.max_len, 0.0)
    labels = made.finetuned.program.labels
    program = make_program(plan, base, labels, LabelledRows([], made.rows))
    assert not program.keeps_head


@pytest.mark.slow
def test_settings_that_make_another_head_are_refused(exports, tmp_path, refuses):
    made = exports("electra", "choice", "electra_dense")
    config = read_json(made.out, "config.json")
    for path in made.out.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    write_json(tmp_path, "config.json", config | {"summary_activation": "tanh"})
    with refuses("summary_activation='tanh'", "must be 'gelu'"):
        import_run(tmp_path, tmp_path / "run", default_config())


# What transformers' class cannot have: OpenAI GPT's own head; a BART whose texts end
# with no id of which all know that it is the last.
REFUSED = {
    ("gpt2", "classification"): (
        "task.head=gpt has no",
        "must be fine-tuned with task.head=gpt2",
    ),
    ("bart", "regression"): ("BartForSequenceClassification", "last [EOS]"),
}


@pytest.mark.parametrize("case", REFUSED, ids="-".join)
def test_a_head_that_transformers_lacks_is_refused(case, tmp_path, refuses):
    family, task = case
    run = make_family(tmp_path, family, framed=False)
    tuned = tune(run, task, "auto", tmp_path / "tuned")
    with refuses(*REFUSED[case]):
        export_finetuned(tuned, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_network_that_reads_ahead_is_no_gpt2(tmp_path, refuses, monkeypatch):
    from tests.finetuning import exported

    ahead = ("prefix_lm", *exported.FAMILIES["gpt2"][1:])
    monkeypatch.setitem(exported.FAMILIES, "gpt2", ahead)
    run = make_family(tmp_path, "gpt2", framed=False)
    tuned = tune(run, "tagging", "auto", tmp_path / "tuned")
    with refuses("both directions", "gpt2"):
        export_finetuned(tuned, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_gpt2_needs_an_id_that_no_text_ends_with(tmp_path, refuses):
    """Without a [PAD] it is [EOS], unless texts end with [EOS]."""
    specials = {"tokenizer__specials": ("unk", "mask", "eos", "sep")}
    run = make_family(tmp_path, "gpt2", framed=False, **specials)
    task = "regression"
    tuned = tune(run, task, "gpt2", tmp_path / "one")
    export_finetuned(tuned, tmp_path / "out")
    eos = load_run(run)[1].vocab.eos
    assert eos > 0 and read_json(tmp_path / "out", "config.json")["pad_token_id"] == eos
    write_json(run, NAME, TextForm((), (eos,), ends=(eos,)).to_json())
    tuned = tune(run, task, "gpt2", tmp_path / "two")
    with refuses("GPT2ForSequenceClassification", "'pad'"):
        export_finetuned(tuned, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.peers
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_transformers_gives_the_same_outputs(case, exports):
    """Its tokenizer the same ids, its class the same logits, on padded rows."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    made, (_, task, _) = exports(*case), case
    examples = TASKS[task][0]
    reader = transformers.AutoTokenizer.from_pretrained(made.out)
    model, output = getattr(transformers, CASES[case]).from_pretrained(
        made.out, output_loading_info=True
    )
    assert not any(output.values()), output
    if task == "choice":
        pairs = [(x["question"], o) for x in examples for o in x["choices"]]
    elif task == "tagging":
        pairs = [(" ".join(x["0"]), None) for x in examples]
    else:
        names = {"classification": "ab", "span_qa": ("question", "context")}
        columns = names.get(task, "a")
        pairs = [tuple(x[name] for name in columns) for x in examples]
    first = [pair[0] for pair in pairs]
    second = [pair[1] for pair in pairs] if len(pairs[0]) > 1 else None
    second = None if task == "tagging" else second
    batch = reader(first, second, return_tensors="pt", padding=True)
    lengths = batch["attention_mask"].sum(-1).numpy()
    assert len(set(lengths)) > 1
    ours = [ids for row in made.rows for ids in np.atleast_2d(row["tokens"])]
    for value, reference, length in zip(ours, batch["input_ids"].numpy(), lengths):
        assert task == "choice" or len(value) == length  # options are padded in a row
        np.testing.assert_array_equal(value[:length], reference[:length])
    if task == "choice":
        batch = {name: x.reshape(len(examples), 2, -1) for name, x in batch.items()}
    with torch.no_grad():
        reference = model.eval()(**batch)
    if task == "span_qa":
        logits = torch.stack([reference.start_logits, reference.end_logits], -1).numpy()
    else:
        logits = reference.logits.numpy()
    assert np.ptp(logits) > 0.1
    for value, each, length in zip(made.outputs, logits, np.resize(lengths, 4)):
        if task in ("tagging", "span_qa"):
            value, each = value[:length], each[:length]
        each = each[0] if task == "regression" else each
        np.testing.assert_allclose(value, each, atol=1e-4)
    program = made.finetuned.program
    expected = getattr(program.plan.spec, "label_names", ()) or program.labels
    if expected:
        assert tuple(model.config.id2label.values()) == expected


def test_what_is_written_is_what_is_read(exports):
    """The tensors of a head without a bias: one, of the outputs' shape."""
    made = exports("gpt2", "regression", "gpt2")
    names = {n for n in read_tensors(made.out) if not n.startswith("transformer.")}
    assert names == {"score.weight"}
    assert jax.tree.map(np.shape, made.finetuned.params["head"]) == {
        "out": {"kernel": (32, 1)}
    }
