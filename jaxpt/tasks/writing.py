"""How a network generates an answer: its rows in training, and special tokens.

    two stacks     encoder  before A after         decoder  start [first] answer end
    one stack      before A between answer end     a prefix LM reads A bidirectionally

The loss covers the answer and its end (Raffel et al. 2020; Radford et al. 2019).
"""

import dataclasses

import numpy as np
from jaxtyping import Int

from jaxpt.errors import ConfigError
from jaxpt.text_form import TextForm

Row = dict[str, np.ndarray]
IGNORED = -1  # the target of positions without a prediction


@dataclasses.dataclass(frozen=True)
class Writing:
    """How a network reads an input and writes an answer.

    Attributes:
      has_decoder: a decoder generates the answer; else it follows in the same row.
      sees_all: attention within the input is bidirectional, in one stack.
      form: the special tokens around the input and the answer.
      end: the id that ends an answer in training; any of `form.ends` stops generation.
      max_len: the number of the model's positions.
      banned: ids that are never generated.
    """

    has_decoder: bool
    sees_all: bool
    form: TextForm
    end: int
    max_len: int
    banned: tuple[int, ...] = ()
    pad: int = 0

    def longest(self, max_len: int, max_target: int) -> int:
        """The maximum length of the input, special tokens included.

        Args:
          max_len: `task.max_len`; 0 is the model's.
        """
        return (max_len or self.max_len) - (0 if self.has_decoder else max_target)

    def room(self, max_len: int, max_target: int) -> int:
        """The maximum number of tokens of a text in the input."""
        if max_target >= self.max_len + self.has_decoder:
            allowed = "at most" if self.has_decoder else "below"
            raise ConfigError(
                f"task.max_target={max_target}: must be {allowed} the model's "
                f"{self.max_len} positions (model.max_len)"
            )
        room = self.longest(max_len, max_target) - self.form.num_special()
        if room < 1:
            raise ConfigError(
                f"task.max_len={max_len}: must be above {max_len - room}, the special "
                f"tokens and, in one stack, task.max_target={max_target}"
            )
        return room

    def read_row(self, ids: Int[np.ndarray, "n"], room: int) -> Row:
        """A row of the input alone: "tokens", truncated to the room."""
        return {"tokens": self.form.wrap_read(ids[:room]).astype(np.int32)}

    def train_row(
        self, ids: Int[np.ndarray, "n"], target: Int[np.ndarray, "m"], room: int
    ) -> Row:
        """A row of the input and the answer to learn.

        With a decoder, "answer" is its output; else "targets" has the length of
        "tokens", with -1 at positions without a prediction.
        """
        row, first = self.read_row(ids, room), self.form.first
        opening = [] if first is None or not self.has_decoder else [first]
        answer = np.concatenate([opening, target, [self.end]]).astype(np.int32)
        if self.has_decoder:
            return row | {"answer": answer}
        num, num_more = len(row["tokens"]), len(answer) - 1
        is_prefix = np.repeat([self.sees_all, False], [num, num_more])
        ignored = np.full(num - 1, IGNORED)
        return {
            "tokens": np.concatenate([row["tokens"], answer[:-1]]),
            "is_prefix": is_prefix.astype(np.int32),
            "targets": np.concatenate([ignored, answer]).astype(np.int32),
        }


def pad_answers(rows: list[Row], size: int) -> list[Row]:
    """Pads the "answer" of each row with -1 to [size]."""
    padded = []
    for row in rows:
        answer = np.full(size, IGNORED, np.int32)
        answer[: len(row["answer"])] = row["answer"]
        padded.append(row | {"answer": answer})
    return padded
