"""Scores of texts compared with minicons (Misra 2022), on the same weights.

minicons 0.3.39; `make test-peers` runs it.
"""

import numpy as np
import pytest
from zero_shot.peer_models import write_byte_bpe, write_model, write_wordpiece

from jaxpt.config.settings import default_config
from jaxpt.hub.imports import import_run
from jaxpt.runs.scorer import make_scorer
from jaxpt.runs.workdir import load_run

transformers = pytest.importorskip("transformers")
reference = pytest.importorskip("minicons.scorer")

pytestmark = pytest.mark.peers

TEXTS = [
    "The unbelievable dogs, who barked loudly, were running.",
    "The unbelievable dog, who barked loudly, were running.",
    "Who should Derek hug after shocking Richard?",
    "Katherine can't help herself.",
    "Katherine can't help himself.",
    "No.",
]
# What their tokenizers learn from, so that many words are of several tokens.
LEARNT = ["the dogs barked and were running after a believable hug", "who can help"]


def make_peer(kind, folder):
    """A scorer of theirs, on a folder of transformers."""
    made = transformers.AutoTokenizer.from_pretrained(folder)
    made.batch_encode_plus = made.__call__  # transformers 5 has only this name
    return kind(str(folder), "cpu", tokenizer=made)


def total(scores):
    return scores.sum(0).item()


def read(folder, tmp_path):
    run = tmp_path / "run"
    import_run(folder, run, default_config())
    program, tokenizer, params, _ = load_run(run)
    scorer = make_scorer(program, params)
    return scorer, [tokenizer.encode(text) for text in TEXTS]


def sums(scores):
    return [each.sum(dtype=np.float64) for each in scores]


def test_pseudo_log_likelihoods_are_those_of_minicons(tmp_path):
    folder = tmp_path / "theirs"
    size = write_wordpiece(folder, LEARNT, 90)
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    sizes |= {"num_hidden_layers": 2, "vocab_size": size}
    write_model(folder, "bert", 0.2, **sizes)
    peer = make_peer(reference.MaskedLMScorer, folder)
    scorer, texts = read(folder, tmp_path)
    assert scorer.rules == ("pll", "pll_word_l2r")
    result = scorer.score(texts, rules=scorer.rules)
    for rule, metric in (("pll", "original"), ("pll_word_l2r", "within_word_l2r")):
        expected = peer.sequence_score(TEXTS, reduction=total, PLL_metric=metric)
        np.testing.assert_allclose(sums(result[rule]), expected, atol=1e-4)
    # The rules differ, for there are words of several tokens.
    assert not np.allclose(sums(result["pll"]), sums(result["pll_word_l2r"]), atol=0.1)


def test_causal_sums_are_those_of_minicons(tmp_path):
    folder = tmp_path / "theirs"
    size = write_byte_bpe(folder, LEARNT, 320)
    sizes = {"n_embd": 32, "n_head": 2, "n_layer": 2, "n_positions": 128}
    sizes |= {"vocab_size": size, "bos_token_id": 0, "eos_token_id": 0}
    write_model(folder, "gpt2", 0.2, **sizes)
    peer = make_peer(reference.IncrementalLMScorer, folder)
    scorer, texts = read(folder, tmp_path)
    assert scorer.rules == ("causal",) and scorer.is_first_scored()
    expected = peer.sequence_score(TEXTS, reduction=total, bos_token=True)
    result = sums(scorer.token_log_probs(texts))
    np.testing.assert_allclose(result, expected, atol=1e-4)
