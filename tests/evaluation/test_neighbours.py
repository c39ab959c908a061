"""A word's neighbours: at each occurrence, and of its mean vector."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from tiny import slow, write_config

from jaxpt.cli.main import main
from jaxpt.evaluation import neighbours
from jaxpt.text.tokens.symbols import CharTokenizer

TEXT = " a bank pays, the river bank! a Bank lends "


def read(features):
    tokenizer = CharTokenizer(set(TEXT))
    tokens = tokenizer.encode(TEXT)[None]
    starts = np.array(tokenizer.vocab.word_starts)
    words = neighbours.cut_words(tokens, starts, tokenizer.decode)
    vectors = neighbours.word_vectors(features, None, tokens, words, batch_size=2)
    return words, vectors


def one_hot(params, tokens):
    """The vector of a character does not depend on its position."""
    return jnp.eye(40)[tokens]


def by_place(params, tokens):
    """The vector of a token depends on its position."""
    places = jnp.arange(tokens.shape[1]) / 20.0
    return jnp.broadcast_to(
        jnp.stack([jnp.cos(places), jnp.sin(places)], -1), (*tokens.shape, 2)
    )


def test_words_are_cut_without_their_marks():
    words, vectors = read(one_hot)
    expected = ["a", "bank", "pays", "the", "river", "bank", "a", "Bank", "lends"]
    assert [word.text for word in words] == expected[:9]
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1, rtol=1e-6)


def test_static_vectors_have_one_list_and_contextual_ones_many():
    result = neighbours.find_neighbours(*read(by_place), "bank", 3, 2, str)
    assert result.num_occurrences == 3
    near = [[text for text, _ in best] for _, best in result.occurrences]
    assert set(near[0]) == {"a", "pays"} and near[1][0] in ("river", "a")
    assert near[0] != near[1] != near[2] and "bank" not in sum(near, [])
    assert "Bank" not in sum(near, [])
    # The mean of the three is in the middle.
    assert result.overall[0][0] in ("the", "river", "a")


def test_vectors_are_means_over_a_words_tokens():
    words, vectors = read(one_hot)
    tokenizer = CharTokenizer(set(TEXT))
    letters = tokenizer.encode(" the")
    expected = np.zeros(40)
    expected[letters] = 0.5
    np.testing.assert_allclose(vectors[3], expected, atol=1e-6)
    with pytest.raises(ValueError, match="does not occur"):
        neighbours.find_neighbours(words, vectors, "money", 3, 2, str)


def test_places_are_spread_and_the_one_vector_is_their_mean():
    words = [neighbours.Word("ab"[i % 2], 0, i, i + 1) for i in range(10)]
    vectors = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    result = neighbours.find_neighbours(
        words, vectors, "b", 3, 1, lambda word: str(word.start)
    )
    assert [text for text, _ in result.occurrences] == ["1", "5", "9"]
    of_word, others = vectors[1::2].sum(0), vectors[::2].sum(0)
    cosine = of_word @ others / np.linalg.norm(of_word) / np.linalg.norm(others)
    assert result.overall == [("a", pytest.approx(float(cosine), abs=1e-3))]
    assert result.num_occurrences == 5


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("neighbours")
    text = "the old bank of the river . a bank pays the old man . " * 60
    (folder / "text.txt").write_text(text)
    for name in ("skip_gram", "clm"):
        write_config(folder / "given.py", folder / "text.txt", objective=name)
        flags = [f"--config={folder / 'given.py'}", f"--workdir={folder / name}"]
        assert main(["train", *flags]) == 0
    return folder


@pytest.mark.slow
def test_a_runs_neighbours(runs, capsys):
    similar = {}
    for name in ("skip_gram", "clm"):
        argv = ["neighbours", f"--workdir={runs / name}", "--word=bank"]
        assert main([*argv, "--sentences=3", "--top_k=2"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 8 and lines[6].startswith("mean vector of all")
        assert all("[bank" in line for line in lines[:6:2])
        similar[name] = [[part.split()[0] for part in line.split("  ") if part.strip()]
                       for line in lines[1:6:2]]  # fmt: skip
    assert similar["skip_gram"][0] == similar["skip_gram"][1] == similar["skip_gram"][2]
    assert len(similar["clm"]) == 3


@pytest.mark.slow
def test_counts_are_the_runs_own(runs, capsys):
    held = json.loads((runs / "skip_gram" / "counts.json").read_text())["counts"]
    assert sum(held) > 2000 and not (runs / "clm" / "counts.json").exists()
    assert main(["evaluate", f"--workdir={runs / 'skip_gram'}"]) == 0
    first = capsys.readouterr().out
    assert main(["evaluate", f"--workdir={runs / 'skip_gram'}"]) == 0
    assert capsys.readouterr().out == first and "valid_recall" in first
    flags = [f"--workdir={runs / 'skip_gram'}", f"--to={runs / 'out'}"]
    assert main(["export", *flags]) == 2
    assert "no model of transformers" in capsys.readouterr().err
    path = runs / "skip_gram" / "counts.json"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"1", b"2"))
    try:
        assert main(["evaluate", f"--workdir={runs / 'skip_gram'}"]) == 2
    finally:
        path.write_bytes(whole)
    assert f"{path}: was altered" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags, output",
    [
        slow(["--word=zebra"], "--word='zebra': must occur in the"),
        (["--word= "], "--word=' ': must be a word"),
        (["--word=bank", "--top_k=0"], "--top_k=0"),
        (["--word=bank", "--sentences=0"], "--sentences=0"),
    ],
)
def test_what_cannot_be_shown_is_one_line(flags, output, runs, capsys):
    assert main(["neighbours", f"--workdir={runs / 'clm'}", *flags]) == 2
    error = capsys.readouterr().err
    assert output in error and error.count("\n") == 1
