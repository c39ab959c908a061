"""A run as a judge of text: likelihood in windows, and vectors."""

import hashlib
import math
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Float, Int

from jaxpt.runs.embedding import TextEmbedder
from jaxpt.runs.scorer import make_scorer
from jaxpt.runs.workdir import LoadedRun
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.zero_shot.sliding_window import CHUNK, cut_windows, pick_rule


class RunJudge:
    """Judges text by the first rule of a run that is in `sliding_window.ALLOWED`.

    Long texts are read in windows of the model's size that overlap by half. The text
    that unknown tokens replace is charged (`Vocab.unknown_bits`). Vectors are the means
    of the last hidden states; Pillutla et al. (2021) take the last position's.

    Args:
      name: in its description.
    """

    def __init__(self, run: LoadedRun, name: str) -> None:
        self._scorer = make_scorer(run.program, run.params)
        self._tokenizer = run.tokenizer
        self._embedder = TextEmbedder.of_run(run)
        self._rule = pick_rule(self._scorer.rules)
        self._run = run
        objective = run.program.task.plan.objective_name
        self.description = f"{name} ({objective}, step {run.step}, {self._rule})"

    def fingerprint(self) -> str:
        """sha256 in hex of its settings, tokenizer and parameters."""
        run = self._run
        parts = [tokenizers.fingerprint(run.tokenizer), self._rule]
        digest = hashlib.sha256(repr([*parts, run.program.task.plan.config]).encode())
        for leaf in jax.tree.leaves(run.params):
            digest.update(np.ascontiguousarray(leaf).tobytes())
        return digest.hexdigest()

    def encode(self, text: str) -> Int[np.ndarray, "T"]:
        """The tokens of a text, without special tokens."""
        return self._tokenizer.encode(text)

    def embed(self, texts: Sequence[str]) -> Float[np.ndarray, "N D"]:
        """The mean of the states of each text."""
        vectors = self._embedder.embed(texts)
        assert isinstance(vectors, np.ndarray)  # one for each text
        return vectors

    def score(
        self, texts: Sequence[str]
    ) -> tuple[Float[np.ndarray, "N"], Int[np.ndarray, "N"]]:
        """-log p in nats of each text, and the number of its scored tokens.

        The first token is scored if the judge's rows put an id before a text.
        """
        has_start = self._scorer.is_first_scored(self._rule)
        parts, starts, owners = [], [], []
        nats, counts = np.zeros(len(texts)), np.zeros(len(texts), int)
        for i, text in enumerate(texts):
            ids, sizes = self._tokenizer.encode_sized(text)
            window = self._scorer.room(self._rule) or max(len(ids), 2)
            bits = self._tokenizer.vocab.unknown_bits(ids, sizes)
            for begin, scored, end in cut_windows(
                len(ids), window, max(1, window // 2), has_start
            ):
                parts.append(ids[begin:end])
                starts.append(scored - begin)
                owners.append(i)
                counts[i] += end - scored
                nats[i] += float(bits[scored:end].sum()) * math.log(2)
        for at in range(0, len(parts), CHUNK):
            piece = slice(at, at + CHUNK)
            rows = self._scorer.score(parts[piece], starts[piece], (self._rule,))
            for i, values in zip(owners[piece], rows[self._rule], strict=True):
                nats[i] -= float(values.sum(dtype=np.float64))
        return nats, counts
