"""What a run's network makes of host rows: compiled functions by name, on demand.

Plain text is read with the special tokens that training puts around it. A network has
the readers of its abilities (`jaxpt.nn.networks.abilities`):

    eval_step                      the objective's metrics
    features, pooled_layers        hidden states of plain text
    read_gap                       states at a gap between two sides
    choice_scores, pair_scores     scores of candidates for such a gap
    gap_scores, gap_fill_scores    scores of tokens at any position, given all others
    token_nll, nll_bound           the likelihood of plain text, or a bound of it
    fill_logits, fill_scores       predictions of masks
    next_logits                    predictions of the next token
    log_probs_VIEW                 log p of targets in the rows of a scoring rule
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpt.evaluation.readings import GAP_OFFSETS, pool_states, score_masked
from jaxpt.nn.networks.abilities import (
    VIEWS,
    BoundsLikelihood,
    DecodesAnswers,
    FillsMasks,
    Gap,
    HasLikelihood,
    PredictsNext,
    ResolvesRatio,
    ScoresCandidates,
    ScoresTexts,
    choose_by_fill,
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
                "gap_scores": of.gap_scores,
            },
            HasLikelihood: {"token_nll": of.token_nll},
            BoundsLikelihood: {"nll_bound": of.nll_bound},
            FillsMasks: {
                "fill_logits": of.fill_logits,
                "fill_scores": of.fill_scores,
                "gap_fill_scores": of.gap_fill_scores,
            },
            PredictsNext: {"next_logits": of.next_logits},
            ScoresTexts: {
                f"log_probs_{view}": functools.partial(of.target_log_probs, view)
                for view in VIEWS
            },
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
        return self._model.choice_scores(params, self._show_middle(rows))

    def pair_scores(self, params, rows: dict):
        """The same, but log p of a network that gives a ratio and can resolve it."""
        return self._gap_log_probs(params, self._show_middle(rows))

    def gap_scores(self, params, rows: dict):
        """log p [B, N] of "candidates" at "positions" [B] of "tokens", given the rest.

        Up to a constant for each row. A network without masks, which scores the whole
        text, reads what precedes a text, too.
        """
        tokens, positions = rows["tokens"], rows["positions"]
        if self._model.GAP_BY_LIKELIHOOD and not self._form.before:
            left = jnp.array(self._form.left, tokens.dtype)
            left = jnp.broadcast_to(left, (len(tokens), len(left)))
            tokens = jnp.concatenate([left, tokens], axis=1)
            positions = positions + left.shape[1]
        marks = self._form.shown_gap
        gap = self._show_gap(tokens, positions, rows["candidates"], marks)
        return self._gap_log_probs(params, gap)

    def gap_fill_scores(self, params, rows: dict):
        """`gap_scores` by the prediction of a mask."""
        asked = rows["tokens"], rows["positions"], rows["candidates"]
        gap = self._show_gap(*asked, self._form.gap)
        return choose_by_fill(self._model, params, gap)

    def _gap_log_probs(self, params, gap: Gap):
        model = self._model
        if isinstance(model, ResolvesRatio) and model.scores_ratio:
            return model.gap_log_probs(params, gap)
        return model.choice_scores(params, gap)

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

    def target_log_probs(self, view: str, params, rows: dict):
        """log p of targets at positions of rows that are read in a view."""
        return self._model.target_log_probs(params, rows, view)

    def next_logits(self, params, tokens):
        """Predictions of the token after each one, [B, T, V]."""
        return self._model.next_logits(params, tokens)

    def _mark_gap(self, left):
        """The ids that mark a gap, one row for each of `left`."""
        gap = jnp.array(self._form.shown_gap, left.dtype)
        return jnp.broadcast_to(gap, (len(left), len(gap)))

    def _show_middle(self, rows: dict) -> Gap:
        left, right, candidates = (rows[k] for k in ("left", "right", "candidates"))
        tokens = jnp.concatenate([left, candidates[:, :1], right], axis=1)
        marks = self._form.shown_gap
        return self._show_gap(tokens, left.shape[1], candidates, marks)

    def _show_gap(self, tokens, position, candidates, marks: tuple[int, ...]) -> Gap:
        """A gap at a position of each text, in which `marks` replace the token."""
        if marks:
            (mark,) = marks
            rows = jnp.arange(len(tokens))
            gapped = tokens.at[rows, position].set(mark)
        else:
            places = jnp.arange(tokens.shape[1] - 1)
            start = jnp.broadcast_to(jnp.asarray(position), len(tokens))[:, None]
            gapped = jnp.take_along_axis(tokens, places + (places >= start), axis=1)
        answer, place = self._form.whole_answer(tokens, position) or (None, 0)
        return Gap(
            self._form.wrap_read(tokens),
            len(self._form.opening) + position,
            self._form.wrap_read(gapped),
            candidates,
            answer,
            place,
            () if self._form.rewrites else self._form.gap_ends,
        )
