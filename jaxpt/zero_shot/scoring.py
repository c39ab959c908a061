"""Scores of texts, token by token, by the scoring rules of a network.

Network classes name their rules (`ScoresTexts.SCORING`); `zero_shot.score_rows` defines
them. All masked copies of many texts are run in batches of few shapes, and the
vocabulary head is computed at scored positions only.
"""

import copy
import dataclasses
import functools
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from jaxpt.errors import ConfigError, DataError, argument
from jaxpt.nn.networks.abilities import ScoresTexts
from jaxpt.nn.networks.network import Network
from jaxpt.text_form import TextForm
from jaxpt.zero_shot.score_rows import (
    NEED_LEFT,
    RANDOM_RULES,
    RULES,
    ScoredRows,
    ScoredText,
)

AUTO = "auto"  # the first of a network's rules
BEST = "best"  # the name of the result that marks the likeliest tokens
# Rules that add several scores of a token, or do not score over the vocabulary.
NO_BEST = frozenset({"both", "backward", "discriminator", "bound"})
MAX_LOGITS = 1 << 26  # in memory at once: 256 MiB
CPU_TOKENS, TOKENS = 4096, 1 << 16  # of a batch
PENDING = 4  # the maximum number of batches whose results are not fetched yet
ROW_NAMES = ("inputs", "dec_inputs")  # padded to the length of their bucket


class TextScorer:
    """Scores tokens of texts by the rules of a network.

    Args:
      network: a network with `SCORING`.
      params: its parameters.
      form: the form in which it is shown a text.
      name: its name in errors.
      compile_reader: compiles a function of parameters and host rows.
      batch_tokens: the positions of a batch; 0 chooses by device.
      unusable: rules that its parameters do not allow.
    """

    def __init__(
        self,
        network: Network | ScoresTexts,
        params: PyTree,
        form: TextForm,
        name: str = "this",
        compile_reader: Callable = jax.jit,
        batch_tokens: int = 0,
        unusable: Collection[str] = (),
    ) -> None:
        self.network: Any = network
        self.params, self.form, self.name = params, form, name
        self._unusable = unusable
        self.rules = list_rules(network, form, unusable)
        if not self.rules:
            raise DataError(
                f"a {name} run: cannot score texts, as its probabilities of tokens do "
                f"not depend on the order of the other tokens"
            )
        self._compile, self._functions = compile_reader, dict[tuple, Callable]()
        is_cpu = jax.default_backend() == "cpu"
        self._batch_tokens = batch_tokens or (CPU_TOKENS if is_cpu else TOKENS)

    def with_form(self, form: TextForm) -> "TextScorer":
        """A scorer of the same network with another form of texts."""
        other = copy.copy(self)  # shares the compiled functions
        other.form = form
        other.rules = list_rules(self.network, form, self._unusable)
        return other

    def with_params(self, params: PyTree) -> "TextScorer":
        """A scorer with other parameters of the same network."""
        other = copy.copy(self)  # shares the compiled functions
        other.params = params
        return other

    def find_rule(self, rule: str = AUTO) -> str:
        """The rule of this name; `auto` is the first rule."""
        if rule == AUTO:
            return self.rules[0]
        if rule not in self.rules:
            raise ConfigError(
                f"{argument('rule')}={rule}: must be one of "
                f"{', '.join((AUTO, *self.rules))} for a {self.name} run"
            )
        return rule

    def check_best(self, rules: Sequence[str]) -> None:
        """Raises UserError if none of these rules determines a likeliest token."""
        if NO_BEST.issuperset(rules):
            allowed = [name for name in self.rules if name not in NO_BEST]
            raise ConfigError(
                f"{argument('rule')}={rules[0]}: has no likeliest token; must be one "
                f"of {', '.join(allowed)}"
            )

    def is_first_scored(self, rule: str = AUTO) -> bool:
        """Whether the first token of a text without context is scored."""
        return self.find_rule(rule) not in NEED_LEFT or bool(self.form.left)

    def describe(self, rule: str = AUTO) -> str:
        """A one-line description of a rule."""
        rule = self.find_rule(rule)
        note = ""
        if not self.is_first_scored(rule):
            note = "; a text's first token is not scored, as it has no context"
        return f"{rule}: {RULES[rule][1]}{note}"

    def room(self, rule: str = AUTO) -> int:
        """The maximum number of tokens of a text; 0 means unlimited."""
        probe, rules = np.zeros(2, np.int32), (self.find_rule(rule),)
        plan = RULES[rules[0]][0]
        # Given tokens may be in the encoder only.
        texts = [ScoredText(probe, start, self.form, rules, 0) for start in (0, 1)]
        rows = [each for text in texts for each in plan(text)]
        most = max(_lengths(each.arrays)[0] for each in rows)
        return self.form.max_len and self.form.max_len - (most - len(probe))

    def token_log_probs(
        self,
        texts: Sequence[Int[np.ndarray, "T"]],
        starts: Sequence[int] | None = None,
        rule: str = AUTO,
        seeds: Sequence[int] | None = None,
    ) -> list[Float[np.ndarray, "N"]]:
        """`score` by one rule."""
        rule = self.find_rule(rule)
        return self.score(texts, starts, (rule,), seeds)[rule]

    def score(
        self,
        texts: Sequence[Int[np.ndarray, "T"]],
        starts: Sequence[int] | None = None,
        rules: Sequence[str] = (AUTO,),
        seeds: Sequence[int] | None = None,
        with_best: bool = False,
    ) -> dict[str, list[Float[np.ndarray, "N"]]]:
        """The score of each token by rule, in nats.

        The softmax is over all ids of the model, in float32. Equal texts are scored
        once, so that their scores are equal.

        Args:
          texts: the ids of each text, without special tokens.
          starts: the first token of each text that is scored, after the given ones;
            None means 0.
          seeds: the seeds of random masks (rule bound); None derives them from the
            texts.
          with_best: for one rule, also return as `BEST` which tokens have a higher
            score than all others, bool [len(text) - start]. A tie does not count.

        Returns:
          float32 [len(text) - start] for each text; 0 for a first token that a rule
          does not score (`is_first_scored`).
        """
        rules = tuple(dict.fromkeys(self.find_rule(rule) for rule in rules))
        if with_best:
            self.check_best(rules)
            if len(rules) > 1:
                raise ValueError("with_best is of one rule")
        firsts = [0] * len(texts) if starts is None else starts
        is_sampled = bool(RANDOM_RULES & set(rules))
        places: dict[tuple[bytes, int, int], int] = {}
        index = []
        for i, (text, first) in enumerate(zip(texts, firsts, strict=True)):
            data = np.ascontiguousarray(text, np.int32).tobytes()
            seed = zlib.crc32(data) if seeds is None else seeds[i]
            key = data, int(first), seed if is_sampled else 0
            index.append(places.setdefault(key, len(places)))
        unique = [
            ScoredText(np.frombuffer(data, np.int32), first, self.form, rules, seed)
            for data, first, seed in places
        ]
        scores = self._score_unique(unique, rules, with_best)
        return {name: [values[i] for i in index] for name, values in scores.items()}

    def _score_unique(
        self, texts: list[ScoredText], rules: tuple[str, ...], with_best: bool
    ) -> dict[str, list[np.ndarray]]:
        sizes = np.array([len(text.tokens) - text.start for text in texts], int)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        sums = {rule: np.zeros(offsets[-1] + 1) for rule in rules}
        hits = np.zeros(offsets[-1] + 1, bool) if with_best else None
        run = RowBatches(self, sums, hits)
        planners: dict[Callable, list[str]] = {}
        for rule in rules:
            planners.setdefault(RULES[rule][0], []).append(rule)
        order = np.argsort([len(text.tokens) for text in texts], kind="stable")
        for i in order.tolist():
            for plan, planner_rules in planners.items():
                for rows in plan(texts[i]._replace(rules=tuple(planner_rules))):
                    self.check(rows, len(texts[i].tokens), planner_rules[0])
                    run.add(rows, offsets[i] - texts[i].start)
        run.finish()
        cuts = offsets[1:-1]
        scores = {
            rule: np.split(total[:-1].astype(np.float32), cuts)
            for rule, total in sums.items()
        }
        return scores if hits is None else scores | {BEST: np.split(hits[:-1], cuts)}

    def check(self, rows: ScoredRows, size: int, rule: str) -> None:
        """Raises UserError if a stack has too few positions for the rows."""
        longest, _ = _lengths(rows.arrays)
        if self.form.max_len and longest > self.form.max_len:
            raise DataError(
                f"a text of {size} tokens: needs {longest} positions by the rule "
                f"{rule}; the model has model.max_len={self.form.max_len}"
            )

    def count_rows(self, shape: "_Shape") -> int:
        """The number of rows of a shape in a batch."""
        per_row = shape.length + shape.dec_length
        vocab_size = self.network.spec.vocab_size
        by_logits = MAX_LOGITS // (shape.num_read * vocab_size)
        most = min(self._batch_tokens // per_row, by_logits)
        return 1 << max(most, 1).bit_length() - 1

    def read(
        self, view: str, arrays: dict[str, np.ndarray], with_ranks: bool
    ) -> tuple[Array, Array | None]:
        """log p [B, P] of a batch and, `with_ranks`, ranks; on the device."""
        key = view, with_ranks
        if key not in self._functions:
            function = functools.partial(self.network.target_log_probs, view=view)
            if with_ranks:
                function = functools.partial(function, with_ranks=True)
            self._functions[key] = self._compile(function)
        result = self._functions[key](self.params, arrays)
        return result if with_ranks else (result, None)


def list_rules(
    network: Network | ScoresTexts, form: TextForm, unusable: Collection[str] = ()
) -> tuple[str, ...]:
    """The rules of a network; those with a gap need a form that has one.

    Args:
      unusable: rules to leave out.
    """
    if not isinstance(network, ScoresTexts):
        return ()
    needs_gap = {"pll", "pll_word_l2r", "mntp", "mntp_word_l2r", "infill", "bound"}
    left_out = {*unusable, *(() if form.gap else needs_gap)}
    return tuple(rule for rule in network.SCORING if rule not in left_out)


@dataclasses.dataclass(frozen=True)
class _Shape:
    """The view and the padded lengths of the rows of a batch."""

    view: str
    length: int
    dec_length: int
    num_read: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The padded lengths."""
        return self.dec_length, self.length, self.num_read


class RowBatches:
    """Collects rows by shape and runs them through the network in batches."""

    def __init__(
        self,
        scorer: TextScorer,
        sums: dict[str, np.ndarray],
        hits: np.ndarray | None = None,
        least: Mapping[str, int] | None = None,
    ) -> None:
        self.scorer, self.sums, self.hits = scorer, sums, hits
        self.least = least or {}  # lengths to which rows are padded
        # The codes of the sets of rules.
        self.codes: dict[tuple[str, ...], int] = {}
        self.waiting: dict[_Shape, list[tuple]] = {}
        self.counts: dict[_Shape, int] = {}
        self.running: list[tuple] = []
        self.is_whole: set[_Shape] = set()  # shapes of which a full batch was run

    def add(self, rows: ScoredRows, offset: int) -> None:
        """Adds rows to those of their shape; runs full batches.

        Args:
          offset: the offset of the text's tokens among those of all texts.
        """
        most = self.scorer.form.max_len
        length, dec_length = (
            _round_up(max(rows.arrays[name].shape[1], self.least.get(name, 0)), most)
            if name in rows.arrays
            else 0
            for name in ROW_NAMES
        )
        num_read = _round_reads(rows.places.shape[1], dec_length or length)
        shape = _Shape(rows.view, length, dec_length, num_read)
        self.waiting.setdefault(shape, [])
        size = self.scorer.count_rows(shape)
        while self.counts.setdefault(shape, 0) + len(rows.places) >= size:
            space = size - self.counts[shape]
            self._put(shape, rows.pick(slice(space)), offset)
            self.run(shape)
            rows = rows.pick(slice(space, None))
        if len(rows.places):
            self._put(shape, rows, offset)

    def _put(self, shape: _Shape, rows: ScoredRows, offset: int) -> None:
        self.waiting[shape].append((rows, offset))
        self.counts[shape] += len(rows.places)

    def finish(self) -> None:
        """Runs the remaining rows and fetches all results."""
        order = sorted(self.waiting, key=lambda s: (s.view, *s.sizes))
        for i, shape in enumerate(order):
            longer = next((s for s in order[i + 1 :] if self.can_join(shape, s)), None)
            if longer is not None:
                self.waiting[longer] += self.waiting.pop(shape)
                self.counts[longer] += self.counts.pop(shape)
            elif self.counts[shape]:
                self.run(shape)
        while self.running:
            self.fetch()

    def can_join(self, shape: _Shape, longer: _Shape) -> bool:
        """Whether the last rows of a shape fit a batch of a longer one.

        Their padding costs less than compiling a program for them.
        """
        fits = shape.view == longer.view and all(
            size <= longer_size
            for size, longer_size in zip(shape.sizes, longer.sizes, strict=True)
        )
        num = self.counts[shape] + self.counts[longer]
        return fits and num <= self.scorer.count_rows(longer)

    def run(self, shape: _Shape) -> None:
        """Runs the rows of a shape, which are at most a batch."""
        arrays, index, weights, owners = _join(self.waiting[shape], shape, self.codes)
        self.waiting[shape], self.counts[shape] = [], 0
        num, size = len(index), self.scorer.count_rows(shape)
        if num < size and shape not in self.is_whole:
            size = 1 << (num - 1).bit_length()
        else:
            self.is_whole.add(shape)
        picked = np.minimum(np.arange(size), num - 1)
        arrays = {name: values[picked] for name, values in arrays.items()}
        scores = self.scorer.read(shape.view, arrays, self.hits is not None)
        self.running.append((scores, index, weights, owners))
        if len(self.running) > PENDING:
            self.fetch()

    def fetch(self) -> None:
        """Adds the oldest result to the sums of its rules."""
        (log_probs, ranks), index, weights, owners = self.running.pop(0)
        scores = np.asarray(log_probs, np.float64)[: len(index)] * weights
        if self.hits is not None:
            is_best = np.asarray(ranks)[: len(index)] == 1
            self.hits[index[is_best]] = True
        for rules, code in self.codes.items():
            is_theirs = owners == code
            if is_theirs.any():
                for rule in rules:
                    np.add.at(self.sums[rule], index[is_theirs], scores[is_theirs])


def _join(
    waiting: list[tuple], shape: _Shape, codes: dict[tuple[str, ...], int]
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    """Pads rows of one shape: arrays; index, weights and owners of the scores.

    Args:
      codes: the codes of sets of rules; new sets are added.
    """
    lengths = {"inputs": shape.length, "dec_inputs": shape.dec_length}
    lengths["original"] = shape.length
    segments = {"inputs": "segment_ids", "dec_inputs": "dec_segment_ids"}
    num = sum(len(rows.places) for rows, _ in waiting)
    names = waiting[0][0].arrays
    widths = {name: lengths.get(name, shape.num_read) for name in names}
    arrays = {
        name: np.zeros(num if rows.ndim == 1 else (num, widths[name]), np.int32)
        for name, rows in names.items()
    }
    arrays |= {
        segments[name]: np.zeros((num, lengths[name]), np.int32)
        for name in ROW_NAMES
        if name in names
    }
    index = np.full((num, shape.num_read), -1)
    weights = np.zeros((num, shape.num_read))
    owners, start = np.zeros(num, int), 0
    for rows, offset in waiting:
        stop = start + len(rows.places)
        for name, values in rows.arrays.items():
            if values.ndim == 1:
                arrays[name][start:stop] = values
                continue
            arrays[name][start:stop, : values.shape[1]] = values
            if name in segments:
                arrays[segments[name]][start:stop, : values.shape[1]] = 1
        index[start:stop, : rows.places.shape[1]] = rows.places + offset
        weights[start:stop, : rows.places.shape[1]] = rows.weights
        owners[start:stop] = codes.setdefault(rows.rules, len(codes))
        start = stop
    return arrays, index, weights, owners


def _lengths(arrays: dict[str, np.ndarray]) -> tuple[int, int]:
    """The length of the longer stack's rows, and how many rows there are."""
    shapes = [arrays[name].shape for name in ROW_NAMES if name in arrays]
    return max(shape[1] for shape in shapes), shapes[0][0]


def _round_reads(num: int, length: int) -> int:
    """The padded number of scored positions of a row: one, a quarter, or all.

    >>> [_round_reads(n, 32) for n in (1, 3, 8, 9, 32, 40)]
    [1, 8, 8, 32, 32, 40]
    """
    return next((n for n in (1, max(1, length // 4), length) if num <= n), num)


def _round_up(length: int, most: int = 0) -> int:
    """The length of a bucket, at most a quarter longer from 16 on; 1 remains 1.

    >>> [_round_up(n) for n in (1, 2, 5, 16, 17, 33, 65, 129)]
    [1, 4, 8, 16, 20, 40, 80, 160]
    """
    if length <= 1:
        return length
    step = max(4, 1 << max(length.bit_length() - 3, 0))
    rounded = -(-length // step) * step
    return min(rounded, most) if most else rounded
