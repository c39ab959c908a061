"""Embeddings of texts by the states of any network."""

import jax
import numpy as np
import pytest
from tiny import MODELS, ROWS, make_config, prepare

from jaxpt.objectives import OBJECTIVES
from jaxpt.runs.embedding import TextEmbedder
from jaxpt.runs.program import Program

TEXTS = ["the people", "", "we have a strong and just government of men " * 3, "of"]


def make_embedder(path, name):
    settings = {f"model__{k}": v for k, v in MODELS.get(name, {}).items()}
    task, tokenizer, _ = prepare(
        make_config(path, name, **settings | ROWS.get(name, {}))
    )
    params = task.model.init_params(jax.random.key(0))
    return TextEmbedder(Program(task), tokenizer, params)


@pytest.mark.slow_except("clm", "skip_gram", "electra", "bart")
@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_embeds_each_text_by_itself(name, labelled):
    """In any order and company: padding and other rows change no number."""
    embedder = make_embedder(labelled, name)
    vectors = embedder.embed_pools(TEXTS, ("mean", "first", "last"))
    for pool, found in vectors.items():
        assert found.shape == (len(TEXTS), embedder.width()), pool
        assert found.dtype == np.float32 and np.isfinite(found).all()
        others = embedder.embed(TEXTS[::-1], pool, batch_size=1)[::-1]
        np.testing.assert_allclose(found, others, atol=2e-6)
        has_specials = bool(
            embedder.encoder.form.opening or embedder.encoder.form.after
        )
        assert found[1].any() == has_specials
        unit = embedder.embed(TEXTS, pool, normalize=True)
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        np.testing.assert_allclose(
            unit, found / np.where(lengths, lengths, 1), atol=1e-6
        )


@pytest.fixture(scope="module")
def embedder(labelled):
    return make_embedder(labelled, "mlm")


def test_long_texts_are_truncated_to_the_models_window(embedder):
    text = TEXTS[2]
    ids = embedder.encoder.ids(text)
    num_special = embedder.encoder.form.num_special()
    kept = embedder.encoder.tokenizer.decode(
        ids[: embedder.encoder.max_len - num_special]
    )
    assert len(ids) > embedder.encoder.max_len and len(kept) < len(text)
    whole, cut, less = embedder.embed([text, kept, kept[:-1]])
    np.testing.assert_allclose(whole, cut, atol=1e-6)
    assert np.abs(whole - less).max() > 1e-4


def test_no_text_has_a_width_and_tokens_have_vectors(embedder):
    assert embedder.embed([]).shape == (0, embedder.width()) == (0, 16)
    assert embedder.embed([], "none") == []
    vectors = embedder.embed(["the men", ""], "none", normalize=True)
    assert [len(each) for each in vectors] == [7, 0]
    np.testing.assert_allclose(np.linalg.norm(vectors[0], axis=1), 1, atol=1e-6)


def test_wrong_arguments_are_one_line(embedder, refuses):
    with refuses("batch_size=0: must be at least 1"):
        embedder.embed(["a"], batch_size=0)
    with refuses("pool=max: must be one of mean, first, last, none"):
        embedder.embed(["a"], "max")
