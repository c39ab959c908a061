"""Text embeddings: the hidden states of a trained network, without fine-tuning."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from jaxpt.errors import ConfigError
from jaxpt.runs.program import Program
from jaxpt.runs.text_encoder import make_encoder
from jaxpt.runs.workdir import LoadedRun
from jaxpt.setting_types import PositiveInt, check_value
from jaxpt.tasks.batches import choose_lengths, collate, count_lengths, cut_all
from jaxpt.tasks.encoder import Framed
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.zero_shot.embedded import to_unit

# What is read from the states [T, D] of a text, special tokens included.
POOLS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda states: states.mean(0),
    "first": lambda states: states[0],
    "last": lambda states: states[-1],
}
NO_POOL = "none"
BATCH_SIZE = 32
MIN_BATCHES = 16  # batches that justify compiling one more length


class TextEmbedder:
    """Embeds texts with a run, with the special tokens of its training.

    The states are those that a downstream task reads: of the encoder, of ELECTRA's
    discriminator, of a student, and of skip-gram and the biLM their vectors. Compiled
    programs are kept for the next texts.
    """

    def __init__(self, program: Program, tokenizer: Tokenizer, params) -> None:
        task = program.task
        self.encoder = make_encoder(task, tokenizer, "mean", 0)
        self.params = params
        self._read: Any = program.compile_reader(task.model.task_states)

    @classmethod
    def of_run(cls, run: LoadedRun) -> "TextEmbedder":
        """The embedder of a loaded run."""
        return cls(run.program, run.tokenizer, run.params)

    def with_params(self, params: Any) -> "TextEmbedder":
        """An embedder with other parameters, which shares the compiled functions."""
        other = copy.copy(self)
        other.params = params
        return other

    def embed(
        self,
        texts: Sequence[str],
        pool: str = "mean",
        batch_size: int = BATCH_SIZE,
        normalize: bool = False,
    ) -> np.ndarray | list[np.ndarray]:
        """A vector for each text, or for each token.

        Args:
          texts: truncated to the model's maximum length. The vector of a text without
            a token, in a network that adds no special tokens, is 0.
          pool: "mean" of all positions, special tokens included; the "first" or the
            "last" position; "none" returns the states of the tokens of
            `run.tokenizer.encode`, without special tokens.
          batch_size: texts that are read at once; changes no vector.
          normalize: divides each vector by its length.

        Returns:
          float32 [n, D]; with "none" a list of n arrays [T_i, D].
        """
        check_value("batch_size", batch_size, PositiveInt)
        if pool not in (*POOLS, NO_POOL):
            raise ConfigError(
                f"pool={pool}: must be one of {', '.join((*POOLS, NO_POOL))}"
            )
        if pool != NO_POOL:
            vectors = self.embed_pools(texts, (pool,), batch_size)[pool]
            return to_unit(vectors) if normalize else vectors
        rows = [self._encode(text) for text in texts]

        def read(states: np.ndarray, row: Framed) -> np.ndarray:
            return states[row.sources > 0]

        states = self._read_rows(rows, read, batch_size)
        return [to_unit(each) for each in states] if normalize else states

    def embed_pools(
        self, texts: Sequence[str], pools: Sequence[str], batch_size: int = BATCH_SIZE
    ) -> dict[str, Float[np.ndarray, "N D"]]:
        """The vectors of texts by pool, from one pass; as of `embed`."""

        def read(states: np.ndarray, row: Framed) -> np.ndarray:
            if not len(states):
                return np.zeros((len(pools), states.shape[1]), np.float32)
            return np.stack([POOLS[pool](states) for pool in pools])

        rows = [self._encode(text) for text in texts]
        vectors = self._read_rows(rows, read, batch_size)
        if not vectors:
            return {pool: np.zeros((0, self.width()), np.float32) for pool in pools}
        return dict(zip(pools, np.stack(vectors, axis=1), strict=True))

    def width(self) -> int:
        """The number of elements of a vector."""
        tokens = np.full((1, 1), self.encoder.pad, np.int32)
        inputs = {"inputs": tokens, "segment_ids": tokens * 0 + 1}
        states = self._read.trace(self.params, inputs | {"type_ids": tokens * 0})
        return int(states.shape[-1])

    def _encode(self, text: str) -> Framed:
        """The row of a text, which may have no token at all."""
        ids = self.encoder.ids(text)
        if len(ids) or self.encoder.form.opening or self.encoder.form.after:
            return self.encoder.row(ids)
        return Framed(ids, ids, ids.astype(np.int8), ids)

    def _read_rows(
        self,
        rows: list[Framed],
        read: Callable[[Float[np.ndarray, "T D"], Framed], np.ndarray],
        batch_size: int,
    ) -> list[np.ndarray]:
        """`read` of the states of each row, which are padded to few lengths."""
        if not rows:
            return []
        arrays_of = [{"tokens": row.tokens, "type_ids": row.type_ids} for row in rows]
        sizes = np.array([len(row.tokens) for row in rows])
        num = count_lengths(len(rows) // batch_size, MIN_BATCHES)
        # A row without tokens is read as one of padding.
        longest = np.maximum(sizes, 1).tolist()
        allowed = choose_lengths(longest, num, self.encoder.max_len)
        result: list = [None] * len(rows)
        for batch in cut_all(sizes, batch_size, allowed):
            chosen = [arrays_of[i] for i in batch.rows]
            count = min(batch_size, 1 << (len(chosen) - 1).bit_length())
            arrays = collate(chosen, batch.length, count, {}, self.encoder.pad)
            arrays["segment_ids"][:, 0] = 1  # no softmax is empty
            names = "inputs", "segment_ids", "type_ids"
            inputs = {name: arrays[name] for name in names}
            states = jax.device_get(self._read(self.params, inputs))
            for i, row_states in zip(batch.rows, states, strict=False):
                own = np.asarray(row_states[: sizes[i]], np.float32)
                result[i] = read(own, rows[i])
        return result
