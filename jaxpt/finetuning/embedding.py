"""Text embeddings: the hidden states of a trained network, without fine-tuning."""

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Float

from jaxpt.errors import ConfigError
from jaxpt.finetuning.base import make_encoder
from jaxpt.finetuning.batches import choose_lengths, collate, count_lengths, cut_all
from jaxpt.runs.workdir import LoadedRun
from jaxpt.tasks.encoder import Framed

POOLS = ("mean", "first", "last", "none")
BATCH_SIZE = 32
MIN_BATCHES = 16  # batches that justify compiling one more length


class TextEmbedder:
    """Embeds texts with a run, with the special tokens of its training.

    Compiled programs are kept for the next texts.
    """

    def __init__(self, run: LoadedRun) -> None:
        task = run.program.task
        self.encoder = make_encoder(task, run.tokenizer, "mean", 0)
        self.params = run.params
        self._read = run.program.compile_reader(task.model.task_states)

    def embed(
        self, texts: Sequence[str], pool: str = "mean"
    ) -> np.ndarray | list[np.ndarray]:
        """A vector for each text, or for each token.

        Args:
          texts: truncated to the model's maximum length.
          pool: "mean" of all positions, special tokens included; the "first" or the
            "last" position; "none" returns the states of the tokens of
            `run.tokenizer.encode`, without special tokens.

        Returns:
          float32 [n, D]; with "none" a list of n arrays [T_i, D].
        """
        if pool not in POOLS:
            raise ConfigError(f"pool={pool}: must be one of {', '.join(POOLS)}")
        rows = [self.encoder.texts(text) for text in texts]
        states = self._read_rows(rows)
        if pool == "none":
            return [
                row_states[row.sources > 0]
                for row_states, row in zip(states, rows, strict=True)
            ]
        pick = {"mean": lambda x: x.mean(0), "first": lambda x: x[0]}
        read = pick.get(pool, lambda x: x[-1])
        if not rows:
            return np.zeros((0, 0), np.float32)
        return np.stack([read(row_states) for row_states in states])

    def _read_rows(self, rows: list[Framed]) -> list[Float[np.ndarray, "T D"]]:
        """The states of each row, padded to few lengths."""
        if not rows:
            return []
        arrays_of = [{"tokens": row.tokens, "type_ids": row.type_ids} for row in rows]
        sizes = np.array([len(row.tokens) for row in rows])
        num = count_lengths(len(rows) // BATCH_SIZE, MIN_BATCHES)
        allowed = choose_lengths(sizes.tolist(), num, self.encoder.max_len)
        result: list = [None] * len(rows)
        for batch in cut_all(sizes, BATCH_SIZE, allowed):
            chosen = [arrays_of[i] for i in batch.rows]
            count = min(BATCH_SIZE, 1 << (len(chosen) - 1).bit_length())
            arrays = collate(chosen, batch.length, count, {}, self.encoder.pad)
            names = "inputs", "segment_ids", "type_ids"
            inputs = {name: arrays[name] for name in names}
            states = jax.device_get(self._read(self.params, inputs))
            for i, row_states in zip(batch.rows, states, strict=False):
                result[i] = np.asarray(row_states[: sizes[i]], np.float32)
        return result
