"""What a run's network makes of host rows: compiled functions by name, on demand.

Plain text is read with the special tokens that training puts around it. A network has
the readers of its abilities (`jaxpt.nn.networks.abilities`):

    eval_step                      the objective's metrics
    features, pooled_layers        hidden states of plain text
    read_gap                       states at a gap between two sides
    choice_scores, pair_scores     scores of candidates for such a gap
    token_nll, nll_bound           the likelihood of plain text, or a bound of it
    fill_logits, fill_scores       predictions of masks
    next_logits                    predictions of the next token
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpt.evaluation.readings import GAP_OFFSETS, pool_states, score_masked
from jaxpt.nn.networks.abilities import (
    BoundsLikelihood,
    DecodesAnswers,
    FillsMasks,
    Gap,
    HasLikelihood,
    PredictsNext,
    ResolvesRatio,
    ScoresCandidates,
)
from jaxpt.objectives.objective import eval_step
from jaxpt.rng import row_keys
from jaxpt.runs.task import Task

Reader = Callable[..., Any]


class Readers(Mapping[str, Reader]):
    """A task's readers: those of the network's abilities; each is compiled when used.

    Args:
      compile_reader: compiles a function of parameters and host rows.
    """

    def __init__(self, task: Task, compile_reader: Callable[[Callable], Reader]):
        self._compile, self._done = compile_reader, dict[str, Reader]()
        of = _Functions(task)
        # By the ability of the network without which a reader is missing.
        table: dict[type, dict[str, Reader]] = {
            object: {
                "eval_step": of.eval_step,
                "features": of.features,
                "pooled_layers": of.pooled_layers,
                "read_gap": of.read_gap,
            },
            ScoresCandidates: {
                "choice_scores": of.choice_scores,
                "pair_scores": of.pair_scores,
            },
            HasLikelihood: {"token_nll": of.token_nll},
            BoundsLikelihood: {"nll_bound": of.nll_bound},
            FillsMasks: {"fill_logits": of.fill_logits, "fill_scores": of.fill_scores},
            PredictsNext: {"next_logits": of.next_logits},
        }
        if task.model.HAS_DECODER and not task.text_form.gap:
            del table[ScoresCandidates]  # its training shows it no gaps
        self._functions = {
            name: function
            for ability, functions in table.items()
            if isinstance(task.model, ability)
            for name, function in functions.items()
        }

    def __getitem__(self, name: str) -> Reader:
        if name not in self._done:
            self._done[name] = self._compile(self._functions[name])
        return self._done[name]

    def __contains__(self, name: object) -> bool:
        return name in self._functions

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)


class _Functions:
    """What the readers compute, of parameters and rows; not compiled."""

    def __init__(self, task: Task):
        self._form = task.text_form
        self._model: Any = task.model  # with the abilities of the method that is called
        context: dict[str, Any] = {"vocab": task.vocab, "spec": task.spec}
        self.eval_step = functools.partial(
            eval_step, task.objective, model=task.model, **context
        )

    def features(self, params, tokens):
        """Hidden states of plain text, framed as in training."""
        states = self._model.features(params, self._form.wrap_read(tokens))
        return states[:, len(self._form.opening) :][:, : tokens.shape[1]]

    def pooled_layers(self, params, tokens):
        """Every layer's pooled states of plain text, [B, L + 1, P, D].

        One vector for each of `evaluation.readings.POOLINGS`.
        """
        states = self._model.layer_features(params, self._form.wrap_read(tokens))
        text_states = states[:, :, len(self._form.opening) :][:, :, : tokens.shape[1]]
        return pool_states(text_states)

    def read_gap(self, params, rows: dict):
        """States at a gap between "left" and "right" [B, C], one row each.

        For a decoder also its state just before it writes the missing tokens.
        """
        left, right = rows["left"], rows["right"]
        tokens = jnp.concatenate([left, self._mark_gap(left), right], axis=1)
        beside = left.shape[1] + np.array(GAP_OFFSETS)
        states = self.features(params, tokens)[:, beside]
        start = self._form.answer_before(left)
        if isinstance(self._model, DecodesAnswers) and start is not None:
            framed = self._form.wrap_read(tokens)
            answer = self._model.answer_states(params, framed, start)[:, -1:]
            states = jnp.concatenate([states, answer.astype(states.dtype)], axis=1)
        return states.reshape(len(left), -1)

    def choice_scores(self, params, rows: dict):
        """Scores [B, N] of "candidates" for a gap between "left" and "right" [B, C]."""
        return self._model.choice_scores(params, self._show_gap(rows))

    def pair_scores(self, params, rows: dict):
        """The same, but log p of a network that gives a ratio and can resolve it."""
        model = self._model
        if isinstance(model, ResolvesRatio) and model.scores_ratio:
            return model.gap_log_probs(params, self._show_gap(rows))
        return model.choice_scores(params, self._show_gap(rows))

    def token_nll(self, params, tokens):
        """-log p of each token but the first, [B, T - 1]."""
        return self._model.token_nll(params, tokens)

    def nll_bound(self, params, rows: dict, rng):
        """An upper bound of -log p, drawn with a key for each row."""
        read = rows["tokens"], rows["is_text"], row_keys(rng, rows["index"])
        return self._model.nll_bound(params, *read)

    def fill_logits(self, params, tokens):
        """Predictions of masked tokens, [B, T, V]."""
        return self._model.fill_logits(params, tokens)

    def fill_scores(self, params, rows: dict, allowed):
        """Scores of the true tokens at masked "positions"."""
        logits = self._model.fill_logits(params, rows["tokens"])
        return score_masked(logits, rows["positions"], rows["targets"], allowed)

    def next_logits(self, params, tokens):
        """Predictions of the token after each one, [B, T, V]."""
        return self._model.next_logits(params, tokens)

    def _mark_gap(self, left):
        """The ids that mark a gap, one row for each of `left`."""
        gap = jnp.array(self._form.shown_gap, left.dtype)
        return jnp.broadcast_to(gap, (len(left), len(gap)))

    def _show_gap(self, rows: dict) -> Gap:
        left, right, candidates = (rows[k] for k in ("left", "right", "candidates"))
        whole, gapped = (
            self._form.wrap_read(jnp.concatenate([left, between, right], axis=1))
            for between in (candidates[:, :1], self._mark_gap(left))
        )
        index = len(self._form.opening) + left.shape[1]
        answer, ends = self._form.answer_before(left), self._form.answer_after(right)
        return Gap(whole, index, gapped, candidates, answer, ends)
