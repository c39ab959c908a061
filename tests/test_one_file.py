"""The example without a config and a loop trains as `jaxpt train` does."""

import ast
import importlib.util
import json
import random
from pathlib import Path

import pytest

import jaxpt

ROOT = Path(__file__).resolve().parents[1]
PATH = ROOT / "examples" / "one_file.py"
ROOMS = {"ops", "nn", "learn", "objectives", "text", "rng"}
WORDS = "the state of union and people have we shall government congress law".split()


@pytest.fixture(scope="module")
def one_file():
    spec = importlib.util.spec_from_file_location("one_file", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path, draw = tmp_path_factory.mktemp("one_file") / "my.txt", random.Random(0)
    lines = [" ".join(draw.choice(WORDS) for _ in range(12)) for _ in range(200)]
    path.write_text("\n".join(lines))
    return path


def test_its_losses_are_those_of_jaxpt_train_and_it_fills_a_mask(one_file, text):
    num_steps = 24
    config = jaxpt.default_config()
    config.objective = "mlm"
    config.data.update(path=str(text), row_length=one_file.ROW_LENGTH)
    config.tokenizer.specials = ("mask",)
    config.model.update(one_file.MODEL, dtype="float32")
    config.optim.update(lr=one_file.OPTIM.lr, warmup_steps=one_file.OPTIM.warmup_steps)
    config.optim.schedule = one_file.OPTIM.schedule
    config.train.update(
        steps=num_steps,
        steps_per_call=1,
        log_every=1,
        batch_size=one_file.BATCH_SIZE,
        seed=one_file.SEED,
        trackers=(),
    )
    config.eval.update(samples=0, probe_passages=0, pair_questions=0)
    settings = {"optim.warmup_steps": one_file.OPTIM.warmup_steps}  # as it is
    jaxpt.train(config, text.parent / "run", settings, quiet=True)
    lines = (text.parent / "run" / "metrics.jsonl").read_text().splitlines()
    logged = [json.loads(line) for line in lines]
    expected = [line["loss"] for line in logged if "loss" in line]

    tokenizer, corpora = one_file.read(str(text))
    feed = one_file.make_feed(corpora["train"], tokenizer.vocab, num_steps)
    steps = list(one_file.train(feed, tokenizer.vocab, num_steps))
    assert [loss for *_, loss in steps] == expected and len(expected) == num_steps
    assert len(set(expected)) > num_steps / 2

    model, params, _ = steps[-1]
    masked = "the st[MASK]te of"
    filled = one_file.fill(model, params, tokenizer, masked)
    assert (filled[:6], filled[7:]) == ("the st", "te of")
    ((best, *_),) = jaxpt.load(text.parent / "run").fill(masked, top_k=1)
    assert best[0].replace("\N{OPEN BOX}", " ") == filled[6]


def test_it_is_short_and_imports_the_science_and_the_text_alone():
    source = PATH.read_text()
    assert len(source.splitlines()) <= 150
    modules = {
        node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("jaxpt")
    }
    assert {module.split(".")[1] for module in modules} <= ROOMS


def test_the_architecture_page_prints_it_and_contributing_names_it_first():
    page = (ROOT / "docs" / "design.md").read_text()
    assert "\n<!-- source: examples/one_file.py -->\n" in page
    assert "on_page_markdown" in (ROOT / "docs" / "hooks.py").read_text()
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert contributing.partition("](")[2].startswith("examples/one_file.py)")
