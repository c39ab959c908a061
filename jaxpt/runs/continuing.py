"""Continuations of prompts by any run that writes, next to the real text.

    one stack           reads the prompt, writes what follows, token by token
    unmasking           fills masks after the prompt
    encoder, decoder    the encoder reads the prompt and a gap, the decoder fills it;
                        one that rewrites its input (BART) writes the prompt first,
                        which is cut by its number of tokens

All prompts are cut at their beginning to the tokens of the shortest, so that few shapes
are compiled.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from jaxpt.errors import ConfigError
from jaxpt.evaluation.scores import SampleSpec
from jaxpt.evaluation.unmasking import cut_rows
from jaxpt.nn.networks.abilities import Unmasks, name_writing
from jaxpt.runs.random_parts import check_language_model
from jaxpt.runs.task import Task
from jaxpt.runs.workdir import LoadedRun
from jaxpt.runs.writer import Writer

BATCH = 64  # texts that are written at once
Ids = Int[np.ndarray, "T"]


def check_writes(task: Task) -> None:
    """Raises ConfigError for a run that cannot write text."""
    if not name_writing(task.model):
        raise ConfigError(
            f"the run's objective={task.plan.objective_name}: must be that of a model "
            "that writes text, for generation"
        )


class TextContinuer:
    """Continues prompts with a run."""

    def __init__(self, run: LoadedRun) -> None:
        check_writes(run.program.task)
        check_language_model(run.program.task, "generate")
        self._run, self._task = run, run.program.task
        self._encode, self._decode = run.tokenizer.encode, run.tokenizer.decode

    def __call__(
        self,
        prompts: Sequence[str],
        truths: Sequence[str],
        sampling: SampleSpec,
        seed: int,
        num_steps: int,
    ) -> list[tuple[str, str]]:
        """What is written after each prompt, and the true text cut to the same room.

        Both are shorter than the truth if the model has no positions for all of it.
        """
        ids = [self._encode(prompt) for prompt in prompts]
        real = [self._encode(truth) for truth in truths]
        shortest = min(map(len, ids))
        ids = [each[len(each) - shortest :] for each in ids]
        num_tokens = max(1, max(map(len, real)))
        written: list[Ids] = []
        for number, start in enumerate(range(0, len(ids), BATCH)):
            batch = ids[start : start + BATCH]
            num_added = min(BATCH, len(ids)) - len(batch)
            rows = np.stack([*batch, *[batch[-1]] * num_added])
            options = sampling, seed + number
            new = self._write(rows, num_tokens, num_steps, *options)
            written += new[: len(batch)]
        room = self._room(shortest, num_tokens, num_steps)
        pairs = []
        for prompt, tokens, true in zip(ids, written, real, strict=True):
            kept = true[:room]
            text = self._spell(prompt, tokens[: len(kept)])
            pairs.append((text, self._spell(prompt, kept)))
        return pairs

    def _spell(self, prompt: Ids, new: Ids) -> str:
        """The text of new tokens, whose first may depend on the one before it."""
        whole = self._decode(np.concatenate([prompt, new]))
        return whole[len(self._decode(prompt)) :]

    def _is_unmasking(self, num_steps: int) -> bool:
        has_decoder = self._run.program.decoder is not None
        is_unmasking = isinstance(self._task.model, Unmasks)
        if num_steps and not is_unmasking:
            raise ConfigError(
                f"num_steps={num_steps}: must be 0 for a "
                f"{self._task.plan.objective_name} run, which does not unmask"
            )
        return is_unmasking and (bool(num_steps) or not has_decoder)

    def _room(self, num_prompt: int, num_tokens: int, num_steps: int) -> int:
        """The new tokens that the model has positions for."""
        task, form = self._task, self._task.text_form
        limit = task.model_spec.max_len
        if self._is_unmasking(num_steps):
            limit = min(limit, task.read_length) - num_prompt
            limit -= len(form.before) + len(form.after)
        elif task.model.HAS_DECODER:
            limit -= (num_prompt if form.rewrites else 0) + 2
            source = num_prompt + len(form.lead) + len(form.mark) + len(form.after)
            limit = limit if source <= task.model_spec.max_len else 0
        else:
            return num_tokens  # beyond its positions it reads the last tokens
        if limit < 1:
            raise ConfigError(
                f"prompt_words: the {num_prompt} tokens of the prompt leave no room "
                f"among the model's {task.model_spec.max_len} positions; must be fewer"
            )
        return min(num_tokens, limit)

    def _write(
        self,
        rows: Int[np.ndarray, "B T"],
        num_tokens: int,
        num_steps: int,
        sampling: SampleSpec,
        seed: int,
    ) -> list[Ids]:
        """The new tokens of each row, without what ends them."""
        run, form = self._run, self._task.text_form
        num_tokens = self._room(rows.shape[1], num_tokens, num_steps)
        writer = Writer(run.program, run.tokenizer, sampling, seed)
        if self._is_unmasking(num_steps):
            shown = form.wrap(rows)
            tokens = writer.unmask(run.params, shown, num_tokens, num_steps)
            return cut_rows(tokens, writer.stops)
        if not self._task.model.HAS_DECODER:
            shown = np.stack([form.wrap(row) for row in rows])
            return writer.write(run.params, list(shown), num_tokens)
        return self._answer(writer, rows, num_tokens)

    def _answer(
        self, writer: Writer, rows: Int[np.ndarray, "B T"], num_tokens: int
    ) -> list[Ids]:
        """A decoder's continuations: after the mark that the encoder reads."""
        form, vocab = self._task.text_form, self._task.vocab
        around = (form.lead, (*form.mark, *form.after))
        shown = [np.concatenate([around[0], row, around[1]]) for row in rows]
        skipped = rows.shape[1] if form.rewrites else len(form.mark)
        first = form.mark[0] if form.mark and not form.rewrites else None
        tokens, counts = writer.decode(
            self._run.params,
            [each.astype(np.int32) for each in shown],
            num_tokens + skipped,
            first=first,
        )
        ends = {*form.ends, *form.gap_ends, *vocab.sentinels}
        texts = []
        for row, count in zip(tokens, counts, strict=True):
            new = row[:count]
            if form.rewrites and len(new) and new[0] == form.first:
                new = new[1:]
            new = new[skipped:]
            stops = np.flatnonzero(np.isin(new, list(ends)))
            texts.append(new[: stops[0]] if len(stops) else new)
        return texts
