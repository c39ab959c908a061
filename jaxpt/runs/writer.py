"""Writer: the tokens that a run's network writes, from left to right or by unmasking.

Samples during training, `jaxpt generate`, gaps that are filled and the harness of
lm-eval all write with it. Its functions are compiled once for equal shapes and options.
"""

import functools
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from jaxpt.errors import ConfigError, UserError, argument
from jaxpt.evaluation.sampling import generate, pad_left
from jaxpt.evaluation.scores import SampleSpec
from jaxpt.evaluation.unmasking import unmask
from jaxpt.rng import stream
from jaxpt.runs.program import Program
from jaxpt.text.tokens.tokenizer import Tokenizer


def _decode(params, rows, seed, *, decoder, **options):
    rng, pair = stream(seed, 0, "sample"), (rows["prompts"], rows["lengths"])
    return generate(decoder, params, *pair, rng=rng, **options)


def _unmask(params, rows, seed, *, model, **options):
    rng = stream(seed, 0, "sample")
    return unmask(model.fill_logits, params, rows, rng=rng, **options)


class Writer:
    """Writes tokens after prompts.

    Args:
      stop: a string that ends a text; "" for none.
    """

    def __init__(
        self,
        program: Program,
        tokenizer: Tokenizer,
        spec: SampleSpec,
        seed: int = 0,
        stop: str = "",
    ):
        self.program, self.task, self.tokenizer = program, program.task, tokenizer
        self.spec, self.stop = spec, stop
        self.seed = np.int64(seed).astype(np.int32)  # JAX reads 32 bits of a key

    @property
    def is_answer(self) -> bool:
        """Whether a decoder writes an answer to a prompt, not its continuation."""
        return self.task.model.HAS_DECODER

    def room(self, length: int) -> int:
        """The model's positions for new tokens after a prompt of this length."""
        decoder = self.program.decoder
        assert decoder is not None  # the network writes from left to right
        return decoder.max_len - (0 if self.is_answer else length)

    @functools.cached_property
    def stops(self) -> tuple[int, ...]:
        """Ids that end a text: those of the run, and `stop` if it is one token."""
        ids = list(self.task.text_form.ends)
        if self.stop:
            try:
                named = self.tokenizer.encode_prompt(self.stop, allow_unknown=False)
            except UserError:
                raise ConfigError(
                    f"{argument('stop')}={self.stop!r}: must have characters of the "
                    "tokenizer's vocabulary"
                ) from None
            ids += named.tolist() if len(named) == 1 else []
        return tuple(sorted(set(ids)))

    def decode(
        self,
        params: Any,
        prompts: list[Int[np.ndarray, "T"]],
        num_tokens: int,
        has_sentinels: bool = False,
        first: int | None = None,
    ) -> tuple[Int[np.ndarray, "B L"], Int[np.ndarray, "B"]]:
        """The new tokens of each prompt, from left to right, and their number.

        Args:
          prompts: with the special tokens around a text.
          num_tokens: the maximum; a continuation may exceed the model's positions.
          has_sentinels: whether a continuation may have sentinels, as an answer may.
          first: a forced first token, in place of the form's.
        """
        padded, lengths = pad_left(prompts)
        form = self.task.text_form
        written = self.program.write(
            _decode,
            *(params, {"prompts": padded, "lengths": lengths}, self.seed),
            decoder=self.program.decoder,
            num_tokens=num_tokens,
            spec=self.spec,
            stop=self.stops,
            banned=self.task.find_banned(self.is_answer or has_sentinels),
            first=form.first if first is None else first,
            last=form.last,
        )
        return jax.device_get(written)

    def write(self, *args: Any, **options: Any) -> list[Int[np.ndarray, "L"]]:
        """`decode` with the same arguments; the tokens up to the end of each text."""
        tokens, counts = self.decode(*args, **options)
        cut = self.task.text_form.cut_answer
        return [cut(row[:count]) for row, count in zip(tokens, counts, strict=True)]

    def unmask(
        self,
        params: Any,
        prompts: Int[np.ndarray, "B T"],
        num_tokens: int,
        num_steps: int = 0,
    ) -> Int[np.ndarray, "B L"]:
        """The new tokens of prompts of one length, in any order."""
        model: Any = self.task.model
        tokens = self.program.write(
            _unmask,
            *(params, prompts, self.seed),
            model=model,
            num_tokens=num_tokens,
            spec=self.spec,
            mask_id=self.task.vocab.require("mask"),
            banned=self.task.find_banned(is_answer=False),
            num_steps=num_steps,
            block_size=model.block_size,
        )
        return jax.device_get(tokens)
