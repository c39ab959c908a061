"""How likely a network finds a text, token by token, by the rules of its own kind.

Every kind of network names the rules that it can be scored by (`ScoresTexts.SCORING`);
`zero_shot.score_rows` says what each makes of a text. All masked copies of many texts
go through the network together, in few shapes, and only what is read meets the
vocabulary.
"""

import dataclasses
import functools
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from jaxpt.errors import UserError
from jaxpt.nn.networks.abilities import ScoresTexts
from jaxpt.nn.networks.network import Network
from jaxpt.nn.text_form import TextForm
from jaxpt.zero_shot.score_rows import DRAWN, NEED_LEFT, RULES, Rows

AUTO = "auto"  # the first of a network's rules
BEST = "best"  # beside the rules: which tokens are the likeliest ones
# Rules whose scores add up several looks at a token, or are not over the vocabulary.
NO_BEST = frozenset({"both", "backward", "discriminator", "bound"})
MAX_LOGITS = 1 << 26  # in memory at the same time: 256 MiB
CPU_TOKENS, TOKENS = 4096, 1 << 16  # of a batch
PENDING = 4  # batches whose results are not fetched yet
ROW_NAMES = ("inputs", "dec_inputs")  # padded to the length of their bucket


class TextScorer:
    """Scores tokens of texts by the rules of a network.

    Args:
      network: one with `SCORING`.
      params: its parameters.
      form: what its run puts around a text.
      name: what errors call it.
      compile_reader: (function of parameters and host rows) -> the same, compiled.
      batch_tokens: positions of a batch; 0 chooses by the device.

    Raises:
      UserError: the network has no rule.
    """

    def __init__(
        self,
        network: Network | ScoresTexts,
        params,
        form: TextForm,
        name: str = "this",
        compile_reader: Callable = jax.jit,
        batch_tokens: int = 0,
    ):
        self.network: Any = network
        self.params, self.form, self.name = params, form, name
        self.rules = list_rules(network, form)
        if not self.rules:
            raise UserError(
                f"a {name} run: gives no token of a text a probability that depends on "
                f"the order of the others; texts cannot be scored by it"
            )
        self._compile, self._functions = compile_reader, dict[tuple, Callable]()
        is_cpu = jax.default_backend() == "cpu"
        self._batch_tokens = batch_tokens or (CPU_TOKENS if is_cpu else TOKENS)

    def with_form(self, form: TextForm) -> "TextScorer":
        """A scorer of the same network that is shown texts in another form."""
        other = TextScorer(
            self.network,
            self.params,
            form,
            self.name,
            self._compile,
            self._batch_tokens,
        )
        other._functions = self._functions  # compiled once for both
        return other

    def find_rule(self, rule: str = AUTO) -> str:
        """The rule of this name; `auto` is the first.

        Raises:
          UserError: the network has no such rule.
        """
        if rule == AUTO:
            return self.rules[0]
        if rule not in self.rules:
            raise UserError(
                f"--rule={rule}: must be one of {', '.join((AUTO, *self.rules))} for a "
                f"{self.name} run"
            )
        return rule

    def check_best(self, rules: Sequence[str]) -> None:
        """Raises UserError where none of these rules names a likeliest token."""
        if NO_BEST.issuperset(rules):
            allowed = [name for name in self.rules if name not in NO_BEST]
            raise UserError(
                f"--rule={rules[0]}: names no likeliest token; must be one of "
                f"{', '.join(allowed)}"
            )

    def is_first_scored(self, rule: str = AUTO) -> bool:
        """Whether a text's first token has a score, with nothing given before it."""
        return self.find_rule(rule) not in NEED_LEFT or bool(self.form.left)

    def describe(self, rule: str = AUTO) -> str:
        """One line on what a rule sums up."""
        rule = self.find_rule(rule)
        note = ""
        if not self.is_first_scored(rule):
            note = "; a text's first token is not scored: nothing stands before it"
        return f"{rule}: {RULES[rule][1]}{note}"

    def room(self, rule: str = AUTO) -> int:
        """The most tokens of a text that fit the model; 0 is any number."""
        probe, asked = np.zeros(2, np.int32), (self.find_rule(rule),)
        plan = RULES[asked[0]][0]
        # What is given may be the encoder's alone.
        rows = [each for i in (0, 1) for each in plan(probe, i, self.form, asked, 0)]
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
        """What each token adds to its text's score, by rule, in nats.

        A softmax over all ids of the model, in float32. Texts that are alike are scored
        once, so that their numbers are the same.

        Args:
          texts: ids of the text alone, without what a run puts around it.
          starts: of each text, the first token that is scored; those before it are
            given. None is 0 throughout.
          seeds: of what is drawn (rule bound); None makes them of the texts.
          with_best: of one rule, also which tokens score higher than any other in their
            place, as `BEST`: bool [len(text) - start]. A tie is no hit.

        Returns:
          Of each text float32 [len(text) - start]; a first token that a rule leaves out
          (`is_first_scored`) has 0.

        Raises:
          UserError: a rule that the network lacks, or a text that it cannot read whole.
        """
        rules = tuple(dict.fromkeys(self.find_rule(rule) for rule in rules))
        if with_best:
            self.check_best(rules)
            if len(rules) > 1:
                raise ValueError("with_best is of one rule")
        firsts = [0] * len(texts) if starts is None else starts
        drawn = bool(DRAWN & set(rules))
        asked: dict[tuple[bytes, int, int], int] = {}
        index = []
        for i, (text, first) in enumerate(zip(texts, firsts, strict=True)):
            told = np.ascontiguousarray(text, np.int32).tobytes()
            seed = zlib.crc32(told) if seeds is None else seeds[i]
            key = told, int(first), seed if drawn else 0
            index.append(asked.setdefault(key, len(asked)))
        unique = [
            (np.frombuffer(told, np.int32), first, seed) for told, first, seed in asked
        ]
        found = self._score_unique(unique, rules, with_best)
        return {name: [values[i] for i in index] for name, values in found.items()}

    def _score_unique(self, unique, rules, with_best) -> dict[str, list[np.ndarray]]:
        sizes = np.array([len(text) - first for text, first, _ in unique], int)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        sums = {rule: np.zeros(offsets[-1] + 1) for rule in rules}
        hits = np.zeros(offsets[-1] + 1, bool) if with_best else None
        run = _Batches(self, sums, hits)
        planners: dict[Callable, list[str]] = {}
        for rule in rules:
            planners.setdefault(RULES[rule][0], []).append(rule)
        order = np.argsort([len(text) for text, *_ in unique], kind="stable")
        for i in order.tolist():
            text, first, seed = unique[i]
            for plan, own in planners.items():
                for rows in plan(text, first, self.form, tuple(own), seed):
                    self._check(rows, len(text), own[0])
                    run.add(rows, offsets[i] - first)
        run.finish()
        cuts = offsets[1:-1]
        found = {
            rule: np.split(total[:-1].astype(np.float32), cuts)
            for rule, total in sums.items()
        }
        return found if hits is None else found | {BEST: np.split(hits[:-1], cuts)}

    def _check(self, rows: Rows, size: int, rule: str) -> None:
        """Raises UserError where a stack has too few positions for the rows."""
        longest, _ = _lengths(rows.arrays)
        if self.form.max_len and longest > self.form.max_len:
            raise UserError(
                f"a text of {size} tokens: takes {longest} positions by the rule "
                f"{rule}; the model has model.max_len={self.form.max_len}"
            )

    def count_rows(self, shape: "_Shape") -> int:
        """How many rows of a shape make a batch."""
        per_row = shape.length + shape.dec_length
        vocab_size = self.network.spec.vocab_size
        by_logits = MAX_LOGITS // (shape.num_read * vocab_size)
        most = min(self._batch_tokens // per_row, by_logits)
        return 1 << max(most, 1).bit_length() - 1

    def read(self, view: str, arrays: dict[str, np.ndarray], with_ranks: bool):
        """log p [B, P] of a batch, and ranks if they are asked for; on the device."""
        key = view, with_ranks
        if key not in self._functions:
            function = functools.partial(self.network.target_log_probs, view=view)
            if with_ranks:
                function = functools.partial(function, with_ranks=True)
            self._functions[key] = self._compile(function)
        found = self._functions[key](self.params, arrays)
        return found if with_ranks else (found, None)


def list_rules(network: Network | ScoresTexts, form: TextForm) -> tuple[str, ...]:
    """The rules of a network; one that reads a gap needs what stands for it."""
    if not isinstance(network, ScoresTexts):
        return ()
    needs_gap = {"pll", "pll_word_l2r", "mntp", "mntp_word_l2r", "infill", "bound"}
    return tuple(rule for rule in network.SCORING if form.gap or rule not in needs_gap)


@dataclasses.dataclass(frozen=True)
class _Shape:
    """What rows of one batch share: how they are read, and their padded lengths."""

    view: str
    length: int
    dec_length: int
    num_read: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        """What rows are padded to."""
        return self.dec_length, self.length, self.num_read


class _Batches:
    """Collects rows by shape and runs them through the network a batch at a time."""

    def __init__(
        self,
        scorer: TextScorer,
        sums: dict[str, np.ndarray],
        hits: np.ndarray | None = None,
    ):
        self.scorer, self.sums, self.hits = scorer, sums, hits
        # The sets of rules that rows belong to, by number.
        self.codes: dict[tuple[str, ...], int] = {}
        self.waiting: dict[_Shape, list[tuple]] = {}
        self.counts: dict[_Shape, int] = {}
        self.running: list[tuple] = []
        self.is_whole: set[_Shape] = set()  # of which a whole batch was run

    def add(self, rows: Rows, offset: int) -> None:
        """Puts rows to those of their shape; runs them when they fill a batch.

        Args:
          offset: of the text's tokens among those of all texts.
        """
        most = self.scorer.form.max_len
        length, dec_length = (
            _round_up(rows.arrays[name].shape[1], most) if name in rows.arrays else 0
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

    def _put(self, shape: _Shape, rows: Rows, offset: int) -> None:
        self.waiting[shape].append((rows, offset))
        self.counts[shape] += len(rows.places)

    def finish(self) -> None:
        """Runs what is left, and fetches every result."""
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
        """Whether a shape's last rows fit a batch of a longer one.

        Their padding costs less than to compile a program for them.
        """
        fits = shape.view == longer.view and all(
            own <= other for own, other in zip(shape.sizes, longer.sizes, strict=True)
        )
        num = self.counts[shape] + self.counts[longer]
        return fits and num <= self.scorer.count_rows(longer)

    def run(self, shape: _Shape) -> None:
        """Runs the rows of a shape, of which there is at most a batch."""
        arrays, index, weights, owners = _join(self.waiting[shape], shape, self.codes)
        self.waiting[shape], self.counts[shape] = [], 0
        num, size = len(index), self.scorer.count_rows(shape)
        if num < size and shape not in self.is_whole:
            size = 1 << (num - 1).bit_length()
        else:
            self.is_whole.add(shape)
        picked = np.minimum(np.arange(size), num - 1)
        arrays = {name: values[picked] for name, values in arrays.items()}
        found = self.scorer.read(shape.view, arrays, self.hits is not None)
        self.running.append((found, index, weights, owners))
        if len(self.running) > PENDING:
            self.fetch()

    def fetch(self) -> None:
        """Adds the oldest result to the sums of its rules."""
        found, index, weights, owners = self.running.pop(0)
        log_probs, ranks = found
        scores = np.asarray(log_probs, np.float64)[: len(index)] * weights
        if self.hits is not None:
            is_best = np.asarray(ranks)[: len(index)] == 1
            self.hits[index[is_best]] = True
        for rules, code in self.codes.items():
            is_theirs = owners == code
            if is_theirs.any():
                for rule in rules:
                    np.add.at(self.sums[rule], index[is_theirs], scores[is_theirs])


def _join(waiting: list[tuple], shape: _Shape, codes: dict[tuple[str, ...], int]):
    """Rows of one shape, padded: arrays; index, weights and owners of what is read.

    Args:
      codes: by a set of rules its number; a new one gets the next.
    """
    lengths = {"inputs": shape.length, "dec_inputs": shape.dec_length}
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
    found = [arrays[name].shape for name in ROW_NAMES if name in arrays]
    return max(shape[1] for shape in found), found[0][0]


def _round_reads(num: int, length: int) -> int:
    """Positions that are read of rows of a length: one, a quarter of them, or all.

    >>> [_round_reads(n, 32) for n in (1, 3, 8, 9, 32)]
    [1, 8, 8, 32, 32]
    """
    return next(most for most in (1, max(1, length // 4), length) if num <= most)


def _round_up(length: int, most: int = 0) -> int:
    """The length of a bucket: at most a quarter longer from 16 on; 1 stays 1.

    >>> [_round_up(n) for n in (1, 2, 5, 16, 17, 33, 65, 129)]
    [1, 4, 8, 16, 20, 40, 80, 160]
    """
    if length <= 1:
        return length
    step = max(4, 1 << max(length.bit_length() - 3, 0))
    rounded = -(-length // step) * step
    return min(rounded, most) if most else rounded
