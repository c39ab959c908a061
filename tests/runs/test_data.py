"""The rows that measurements read, and the bytes of text that they stand for."""

import math

import jax
import numpy as np
import pytest
from tiny import make_config, prepare

from jaxpt.evaluation.likelihood import measure_likelihood
from jaxpt.judge.examples import means
from jaxpt.objectives import mlm
from jaxpt.runs.data import (
    held_rows,
    likelihood_bytes,
    likelihood_rows,
    make_feed,
)

# Each ends in what most tokenizers have no token for. Every second one is held out.
DOCUMENTS = [
    f"A {word} Cafe\u0301, ﬁrst  and\tlast; naïve № {i} \u200b"
    for i, word in enumerate(
        ["cat", "Äpfel", "家家", "½ of it", "x" * 40, "the END"] * 3
    )
]
KINDS = {
    "char": {},
    "byte": {},
    "bpe": {"vocab_size": 320},
    "wordpiece": {"vocab_size": 160, "lowercase": True},
    "unigram": {"vocab_size": 100},
}


def load(folder, kind, row_length=24, **settings):
    """A task of `clm` and the splits of DOCUMENTS."""
    path = folder / "text.txt"
    path.write_text("\n".join(DOCUMENTS), encoding="utf-8")
    config = make_config(
        path,
        data__documents="line",
        data__split="documents",
        data__valid_fraction=0.5,
        data__row_length=row_length,
        model__max_len=4096,
        data__cache_dir=str(folder / "cache"),
        tokenizer__kind=kind,
        **{f"tokenizer__{name}": value for name, value in KINDS[kind].items()},
        **settings,
    )
    task, tokenizer, splits = prepare(config)
    return task, splits, tokenizer


@pytest.mark.parametrize("kind", KINDS)
def test_a_uniform_model_has_its_tokens_bits_over_the_texts_bytes(kind, tmp_path):
    num = load(tmp_path, kind)[1]["valid"].num_tokens
    task, splits, _ = load(tmp_path, kind, row_length=num)
    rows = likelihood_rows(task, splits["valid"], 0)
    sizes = likelihood_bytes(task, splits["valid"], 0)
    assert rows.shape == sizes.shape == (1, num)
    likelihood = measure_likelihood(
        lambda params, tokens: np.full((len(tokens), num - 1), math.log(1000)),
        None,
        rows,
        sizes,
        1,
        task.vocab,
    )
    # By documents: the second of two is held out; the first token is given.
    held_out = [text.encode() for text in DOCUMENTS[1::2]]
    num_tokens = num - len(held_out) - 1  # each ends in [EOS]
    assert (rows == task.vocab.eos).sum() == len(held_out)
    first = 0 if kind == "unigram" else 1  # "▁" is no text, "A" is a byte
    expected = math.log2(1000) * num_tokens / (sum(map(len, held_out)) - first)
    assert means(likelihood) == {"bits_per_byte": pytest.approx(expected, rel=1e-12)}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_have_the_bytes_of_their_own_text(kind, tmp_path):
    task, splits, tokenizer = load(tmp_path, kind, row_length=7)
    rows = likelihood_rows(task, splits["train"], 11)
    sizes = likelihood_bytes(task, splits["train"], 11)
    assert rows.shape == sizes.shape == (11, 7)
    # Documents one after the other, token by token: ids, bytes.
    ids, num_bytes = [], []
    for text in DOCUMENTS[::2]:
        result, of_text = tokenizer.encode_sized(text)
        ids += [*result.tolist(), task.vocab.eos]
        of_text[-1] += len(text.encode()) - of_text.sum()
        num_bytes += [*of_text.tolist(), 0]
    starts = np.arange(11) * (len(ids) - 7) // 10
    for start, row, size in zip(starts.tolist(), rows, sizes, strict=True):
        assert row.tolist() == ids[start : start + 7]
        assert size.tolist() == num_bytes[start : start + 7]


@pytest.mark.parametrize("objective", ["mlm", "electra", "clm"])
def test_special_tokens_around_rows(objective, tmp_path):
    """In training, validation and the run's use; a masked model never hides them."""
    path = tmp_path / "text.txt"
    path.write_text("\n".join(DOCUMENTS * 9), encoding="utf-8")
    config = make_config(path, objective, data__add_special_tokens=True)
    task, _, splits = prepare(config)
    vocab = task.vocab
    form = task.text_form
    assert (form.before, form.after) == ((vocab.cls,), (vocab.sep,))
    feed = make_feed(task, splits["train"])
    held = held_rows(task, splits["valid"], 3)["tokens"]
    for tokens in (feed.stack(0, 1)["tokens"][0], held):
        assert tokens.shape[1] == task.spec.row_length
        assert set(tokens[:, 0]) == {vocab.cls} and set(tokens[:, -1]) == {vocab.sep}
    assert len(held) == 3
    if objective == "mlm":
        rows = {"tokens": held, "index": np.arange(len(held))}
        batch = mlm.corrupt(jax.random.key(0), rows, vocab, task.spec)
        assert (np.asarray(batch["inputs"])[:, [0, -1]] == held[:, [0, -1]]).all()
        assert not np.isin(batch["targets"], [vocab.cls, vocab.sep])[
            np.asarray(batch["weights"]["loss"]) > 0
        ].any()
