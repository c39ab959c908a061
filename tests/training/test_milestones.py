"""Checkpoints at numbers of words: when they come, and that they are runs."""

import jax
import numpy as np
import pytest
from tiny import make_config, prepare

from jaxpt.cli.main import main
from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.workdir import load_run
from jaxpt.text.rows.corpus import Corpus
from jaxpt.text.tokens.tokenizer import ByteTokenizer
from jaxpt.training import loop, milestones


def test_words_are_separated_by_white_space_and_documents(monkeypatch):
    tokenizer = ByteTokenizer()
    texts = ["a bc\n d", "ef g", "  h"]
    ids = [tokenizer.encode(text) for text in texts]
    starts = np.cumsum([0, *map(len, ids)])
    corpus = Corpus.from_arrays(np.concatenate(ids), starts)
    assert milestones.count_words(corpus, tokenizer) == 6
    # A sample of every second piece: "a b" and "\n d" of "a b|c\n |d": words a, b, d.
    monkeypatch.setattr(milestones, "PIECE", 3)
    corpus = Corpus.from_arrays(tokenizer.encode("a bcd ef "))
    assert milestones.count_words(corpus, tokenizer, 5) == pytest.approx(3 / 6 * 9)


def test_a_run_writes_runs_of_its_own(speech, tmp_path, capsys):
    config = make_config(
        speech, "clm", train__checkpoint_every=2, train__keep_checkpoints=9
    )
    task, tokenizer, corpora = prepare(config)
    (part,) = corpora["train"].parts
    text = tokenizer.decode(part.read(0, part.num_tokens))
    # Rows of `windows` are sampled; 8 of them a step.
    per_step = 8 * 24 * len(text.split()) / part.num_tokens
    words = int(3 * per_step), int(11.9 * per_step)
    config.train.checkpoint_words = words
    task, tokenizer, corpora = prepare(config)
    loop.train(task, tokenizer, corpora, tmp_path / "run")
    assert Checkpointer(tmp_path / "run/checkpoints").steps() == [2, 4, 6, 8, 10, 12]
    for number, step in zip(words, (4, 12), strict=True):
        folder = tmp_path / "run/words" / str(number)
        program, _, params, found = load_run(folder)
        assert found == step
        with Checkpointer(tmp_path / "run/checkpoints") as checkpointer:
            state, _ = checkpointer.restore(program.abstract_state(), step)
        same = jax.tree.map(np.array_equal, params, state.params)
        assert jax.tree.all(same)
    capsys.readouterr()
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("good\tbad\nthe people\tpeople the\n")
    args = ["--workdir", folder, "--tasks", f"pairs:{pairs}"]
    assert main(["evaluate", *map(str, args)]) == 0
    assert "accuracy" in capsys.readouterr().out


def test_more_words_than_are_read_are_refused(speech, tmp_path, refuses):
    task, tokenizer, corpora = prepare(
        make_config(speech, "clm", train__checkpoint_words=(10, 10**6))
    )
    with refuses("train.checkpoint_words=(10, 1000000): must be at most", "steps=12"):
        loop.train(task, tokenizer, corpora, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "settings", [{"train__checkpoint_words": (2, 1)}, {"train__checkpoint_words": (0,)}]
)
def test_bad_numbers_are_refused(settings, speech, refuses):
    with refuses("train.checkpoint_words=(", "rising whole numbers above 0"):
        prepare(make_config(speech, "clm", **settings))


def test_words_and_a_budget_of_seconds_are_refused(speech, refuses):
    settings = {"train__checkpoint_words": (5,), "train__seconds": 2.0}
    with refuses("train.checkpoint_words=(5,): must be ()", "a budget of seconds"):
        prepare(make_config(speech, "clm", **settings))
