"""A run in EleutherAI's harness: the same numbers as its `hf` model on the export.

What needs the harness is marked peers; the rest asks the class without it.
"""

import importlib
import importlib.util
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
from hub.test_origin import RUNS, make_run, run_config
from hub.test_weights import make_llama_tokenizer, read_checkpoint
from safetensors.numpy import save_file
from shared import find_shared

from jaxpt.config.settings import default_config
from jaxpt.hub import lm_eval
from jaxpt.hub.export import export_run
from jaxpt.hub.imports import import_run
from jaxpt.hub.lm_eval import RunLM, cut_at, register
from jaxpt.objectives import OBJECTIVES
from jaxpt.text.tokens.symbols import CharTokenizer
from jaxpt.zero_shot.last_word import split_passage
from jaxpt.zero_shot.outcomes import EvalContext
from jaxpt.zero_shot.questions import plain
from jaxpt.zero_shot.text_tasks import evaluate_last_words, evaluate_questions

PASSAGES = [
    "Once upon a time, there was a little girl named Lily.",
    "Tom had a big red ball. Lily wanted to play with the ball",
    "One day, they went to the park. It was a sunny day",
    "The dog was happy. He said thank you to his friend",
    "They lived happily ever after",
    "She saw a bird in the tree",
]
QUESTIONS = [
    (
        "Lily was very sad. She began to",
        ["cry.", "drive.", "a.", "sing a happy song."],
        0,
    ),
    (
        "It was cold outside. Tom put on his",
        ["coat.", "the.", "very big warm coat."],
        2,
    ),
    ("The cat likes to drink", ["milk.", "stones."], 0),
    ("The sun is", ["bright.", "a fish.", "green and very cold."], 0),
]
TASKS = {
    "small_words": {
        "output_type": "loglikelihood",
        "doc_to_text": "{{text.split(' ')[:-1]|join(' ')}}",
        "doc_to_target": "{{' '+text.split(' ')[-1]}}",
        "metric_list": [{"metric": "perplexity"}, {"metric": "acc"}],
    },
    "small_choice": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{asked}}",
        "doc_to_choice": "{{options}}",
        "doc_to_target": "{{answer}}",
        "metric_list": [
            {"metric": name} for name in ("acc", "acc_norm", "acc_mutual_info")
        ],
    },
}


def make_requests(kind, all_args):
    """Requests as the harness makes them; plain objects if it is not installed."""
    if importlib.util.find_spec("lm_eval") is None:
        return [SimpleNamespace(args=args) for args in all_args]
    from lm_eval.api.instance import Instance

    return [Instance(kind, {}, args, i) for i, args in enumerate(all_args)]


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    """stories260K as a folder of transformers, and as a run."""
    shared = find_shared("weights/stories260K", "the harness's numbers of a real model")
    folder = tmp_path_factory.mktemp("stories")
    reference, run = folder / "theirs", folder / "run"
    reference.mkdir()
    config, tensors = read_checkpoint(shared / "stories260K.bin")
    made = make_llama_tokenizer(shared / "tok512.bin", config["vocab_size"])
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    names |= {"tokenizer_class": "PreTrainedTokenizerFast"}
    for name, values in (
        ("config", config),
        ("tokenizer", made),
        ("tokenizer_config", names),
    ):
        (reference / f"{name}.json").write_text(json.dumps(values))
    save_file(
        {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()},
        reference / "model.safetensors",
        {"format": "pt"},
    )
    import_run(reference, run, default_config())
    return reference, run, (shared / "golden.txt").read_text()


@pytest.fixture(scope="module")
def alone(stories):
    """The class without the harness."""
    return RunLM(str(stories[1]), batch_size=2)


@pytest.mark.slow
def test_a_text_goes_on_as_the_golden_one(alone, stories):
    golden = stories[2]
    start = "Once upon a time, there"
    stops = {"until": ["Lily", "."], "max_gen_toks": 40}
    long = {"until": [], "max_gen_toks": 40}
    requests = [(start, long), (start, stops), ("Tom", stops)]
    whole, cut, other = alone.generate_until(make_requests("generate_until", requests))
    assert len(whole) > 60 and golden.startswith(start + whole)
    assert cut == whole[: whole.index("Lily")]
    assert other and not other.endswith(".")


def test_what_is_likeliest_is_greedy(alone):
    """Each token behind a text that the run wrote itself, and one that it did not."""
    prompt = alone.tok_encode("Once upon a time, there was a little")
    girl, boy = (alone.tok_encode(t, add_special_tokens=False) for t in ("girl", "boy"))
    assert prompt[0] == 1  # <s>
    pairs = [(None, prompt, girl), (None, prompt, boy)]
    (first, is_greedy), (second, is_other) = alone._loglikelihood_tokens(pairs)
    assert is_greedy and not is_other and second < first < 0


def test_options_that_are_not_known(alone, stories, refuses):
    with refuses("num_beams"):
        requests = [("Tom", {"num_beams": 3})]
        alone.generate_until(make_requests("generate_until", requests))
    with refuses("max_gen_toks=600"):
        requests = [("Tom", {"max_gen_toks": 600})]
        alone.generate_until(make_requests("generate_until", requests))
    with refuses("batch_size=auto"):
        RunLM(str(stories[1]), batch_size="auto")
    with refuses("rule=pll", "causal"):
        RunLM(str(stories[1]), rule="pll")


def test_the_first_of_all_stops():
    assert cut_at("a b c", ["c", "b"]) == "a "
    assert cut_at("a b", ["x", ""]) == "a b"


def test_without_the_harness(monkeypatch, refuses, capsys):
    for name in [n for n in sys.modules if n.split(".")[0] == "lm_eval"] + ["lm_eval"]:
        monkeypatch.setitem(sys.modules, name, None)
    with refuses("pip install 'jaxpt[lm-eval]'"):
        register()
    assert lm_eval.main() == 2
    assert capsys.readouterr().err.startswith("jaxpt: error: ")


def make_both(run, folder):
    """Our class of a run, and the harness's own of its export."""
    pytest.importorskip("lm_eval")
    huggingface = importlib.import_module("lm_eval.models.huggingface")
    reference = huggingface.HFLM(
        pretrained=str(folder), device="cpu", dtype="float32", batch_size=4
    )
    return register()(workdir=str(run), batch_size=3), reference


def check_same(ours, reference, pairs, texts, tolerance=1e-4):
    """Both give the same log p, and find the same tokens greedy."""
    requests = make_requests("loglikelihood", pairs)
    result, expected = (
        each.loglikelihood(requests, True) for each in (ours, reference)
    )
    np.testing.assert_allclose(
        [x for x, _ in result], [x for x, _ in expected], atol=tolerance, rtol=1e-5
    )
    assert [greedy for _, greedy in result] == [greedy for _, greedy in expected]
    requests = make_requests("loglikelihood_rolling", [(text,) for text in texts])
    result, expected = (
        each.loglikelihood_rolling(requests, True) for each in (ours, reference)
    )
    np.testing.assert_allclose(result, expected, atol=tolerance, rtol=1e-5)


@pytest.mark.peers
def test_stories_as_the_hf_model_scores_them(stories):
    folder, run, golden = stories
    ours, reference = make_both(run, folder)
    pairs = [tuple(split_passage(text)) for text in PASSAGES]
    # White space at the border, nothing before, and more than the model reads.
    pairs += [("Once upon a time ", "there was a girl"), ("", "Once upon")]
    pairs += [("x " * 600, " the end")]
    check_same(ours, reference, pairs, [golden, golden * 4, "Tom."])
    stops = {"until": ["."], "max_gen_toks": 30}
    requests = make_requests("generate_until", [(text, stops) for text in PASSAGES[:3]])
    result, expected = (
        each.generate_until(requests, True) for each in (ours, reference)
    )
    # Theirs loses the space before a text's first token.
    assert [text.strip() for text in result] == [text.strip() for text in expected]


def write_tasks(folder):
    """The harness's files of the tasks above, next to their data."""
    rows = {
        "small_words": [{"text": text} for text in PASSAGES],
        "small_choice": [
            {"asked": question, "options": options, "answer": answer}
            for question, options, answer in QUESTIONS
        ],
    }
    for name, settings in TASKS.items():
        data = folder / f"{name}.jsonl"
        data.write_text("\n".join(map(json.dumps, rows[name])))
        task = {
            "task": name,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(data)}},
            "test_split": "test",
        }
        (folder / f"{name}.yaml").write_text(json.dumps(task | settings))


@pytest.mark.peers
def test_tasks_of_the_harness_and_our_own(stories, tmp_path, monkeypatch):
    """Three ways to the same accuracies: `hf`, our class, `jaxpt evaluate --tasks`."""
    harness = pytest.importorskip("lm_eval")
    from lm_eval.tasks import TaskManager

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    write_tasks(tmp_path)
    folder, run, _ = stories
    manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
    results = []
    for model in make_both(run, folder):
        result = harness.simple_evaluate(
            model=model, tasks=list(TASKS), task_manager=manager, bootstrap_iters=0
        )["results"]
        words, choice = result["small_words"], result["small_choice"]
        results.append(
            [words["acc,none"], words["perplexity,none"]]
            + [choice[f"{m},none"] for m in ("acc", "acc_norm", "acc_mutual_info")]
        )
    np.testing.assert_allclose(*results, rtol=1e-4)
    ours = register()(workdir=str(run))
    tokenizer, scorer = (
        ours.run_tokenizer,
        lm_eval.make_scorer(ours.program, ours.params),
    )
    asker = EvalContext(scorer, tokenizer.encode, tokenizer.encode_sized)
    passages = [split_passage(text) for text in PASSAGES]
    words = evaluate_last_words(asker, passages, ("causal",))["causal"].figures
    items = [plain(*question) for question in QUESTIONS]
    choice = evaluate_questions(asker, items, ("causal",))["causal"].figures
    figures = [words["accuracy"], words["perplexity"]]
    figures += [choice[name] for name in ("acc", "acc_norm", "acc_mutual_info")]
    np.testing.assert_allclose([f.value for f in figures], results[0], rtol=1e-4)
    assert 0 < words["accuracy"].value < 1


@pytest.mark.peers
def test_the_export_of_a_run(tmp_path):
    """A run that was trained here, without anything before its texts."""
    (tmp_path / "text.txt").write_text("The cat sat. A dog ran home again.\n" * 90)
    config = tiny.make_config(
        tmp_path / "text.txt",
        model__num_layers=2,
        tokenizer__kind="bpe",
        tokenizer__vocab_size=300,
        tokenizer__num_sentinels=0,
    )
    run = tiny.write_run(config, tmp_path / "run")
    for _ in export_run(run, tmp_path / "out"):
        pass
    ours, reference = make_both(run, tmp_path / "out")
    pairs = [("The cat", " sat."), ("", "A dog"), ("A dog ran " * 30, " home again.")]
    check_same(ours, reference, pairs, ["The cat sat. A dog ran home again." * 9])


# Objectives of one stack that reads from left to right in some way.
CAUSAL = [
    name
    for name in RUNS
    if "/" not in name and RUNS[name][0] == "gpt2" and name in OBJECTIVES.names
]


@pytest.mark.peers
@pytest.mark.parametrize("objective", CAUSAL)
def test_a_run_of_each_causal_objective(objective, tmp_path, monkeypatch):
    """Its class and `hf` on its export give equal scores, and equal task results."""
    harness = pytest.importorskip("lm_eval")
    from lm_eval.tasks import TaskManager

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    text = tmp_path / "text.txt"
    text.write_text("The cat sat. A dog ran home again.\n" * 90)
    config = run_config(text, objective)
    config.tokenizer.kind, config.model.num_layers, known = "byte", 2, {}
    if teacher := OBJECTIVES[objective].Spec(row_length=24).needs.teacher:
        other = run_config(text, teacher.objective)
        other.tokenizer.kind = "byte"
        known["teacher"] = make_run(tmp_path / "teacher", other)
        config[objective].teacher = str(tmp_path / "teacher")
    make_run(tmp_path / "run", config, **known)
    lines = export_run(tmp_path / "run", tmp_path / "out")
    ours, reference = make_both(tmp_path / "run", tmp_path / "out")
    alone = ours.tok_encode("\n men", add_special_tokens=False)
    pairs = [(None, context, alone) for context in ([], [ours.prefix_token_id])]
    assert len(set(ours._loglikelihood_tokens(pairs))) == 1
    if ours.rule != "causal":  # its context is read in both directions
        assert objective == "prefix_lm" and ours.rule == "prefix"
        assert any("reads every text causally" in line for line in lines)
        pair = make_requests("loglikelihood", [("The cat", " sat.")])
        (result,), (expected,) = (m.loglikelihood(pair) for m in (ours, reference))
        assert abs(result[0] - expected[0]) > 0.01
        return
    long = "A dog ran home. " * 9  # than the 48 positions
    pairs = [("The cat", " sat."), ("The cat ", "sat."), ("", "A dog"), ("", " A dog")]
    pairs += [(long, " home again."), (long, long[:40]), ("a", "b"), ("a\n\n", "\tx")]
    check_same(ours, reference, pairs, [long, "A", "The cat sat.", " home\n"], 1e-5)
    write_tasks(tmp_path)
    manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
    named = [
        (task, each["metric"]) for task in TASKS for each in TASKS[task]["metric_list"]
    ]
    results = []
    for model in (ours, reference):
        result = harness.simple_evaluate(
            model=model, tasks=list(TASKS), task_manager=manager, bootstrap_iters=0
        )["results"]
        results.append([result[task][f"{name},none"] for task, name in named])
    # A perplexity is e to a score of about 90.
    assert results[0] == pytest.approx(results[1], rel=1e-4)


def test_a_masked_run_is_scored_by_its_rule(speech, tmp_path, refuses):
    """Behind a context, behind none, and where the context is longer than the model."""
    run = RunLM(str(tiny.write_run(tiny.make_config(speech, "mlm"), tmp_path / "run")))
    assert run.rule == "pll_word_l2r" and run.prefix_token_id == -1
    context, rest = run.tok_encode("to the"), run.tok_encode(" men")
    pairs = [(None, context, rest), (None, [-1], rest), (None, context * 9, rest)]
    results = [value for value, _ in run._loglikelihood_tokens(pairs)]
    room = run.scorer.room(run.rule)
    texts = [[*context, *rest], rest, [*(context * 9), *rest][-room:]]
    starts = [len(text) - len(rest) for text in texts]
    arrays = [np.array(text) for text in texts]
    expected = run.scorer.token_log_probs(arrays, starts, run.rule)
    np.testing.assert_allclose(results, [each.sum() for each in expected], rtol=1e-5)
    with refuses("a mlm run cannot continue"):
        requests = [("to", {"until": []})]
        run.generate_until(make_requests("generate_until", requests))


def test_the_text_of_unknown_tokens_is_charged(monkeypatch):
    """As raw bytes: 8 bits for each, and 8 for the end."""
    utils = SimpleNamespace(
        get_rolling_token_windows=lambda ids, *args, **settings: [([], ids)],
        make_disjoint_window=lambda pair: pair,
    )
    monkeypatch.setitem(sys.modules, "lm_eval", SimpleNamespace(utils=utils))
    tokenizer = CharTokenizer("ab ", ("unk", "bos"))
    model = RunLM.__new__(RunLM)
    model.run_tokenizer, model.is_bare = tokenizer, False
    model._limit = lambda: 16
    model._loglikelihood_tokens = lambda windows: [(-1.0, True)] * len(windows)
    texts = ["ab ab", "ab ไท", "ไ"]
    lost = [0, 2 * 8 * (3 + 1), 8 * (3 + 1)]
    requests = [SimpleNamespace(args=(text,)) for text in texts]
    result = model.loglikelihood_rolling(requests)
    assert result == pytest.approx([-1 - bits * np.log(2) for bits in lost])
