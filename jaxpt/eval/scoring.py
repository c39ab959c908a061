"""How likely a network finds a text, token by token, by the rules of its own kind.

Every kind of network names the rules that it can be scored by (`Network.SCORING`);
`jaxpt.eval.score_rows` says what each makes of a text. All masked copies of many texts
go through the network together, in few shapes, and only what is read meets the
vocabulary.
"""

import dataclasses
import functools
import zlib
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jaxtyping import Float, Int

from jaxpt.errors import UserError
from jaxpt.eval.score_rows import DRAWN, NEED_LEFT, RULES, Rows, TextForm
from jaxpt.nn.networks.network import Network

AUTO = "auto"  # the first of a network's rules
MAX_LOGITS = 1 << 26  # in memory at the same time: 256 MiB
CPU_TOKENS, TOKENS = 4096, 1 << 16  # of a batch
PENDING = 4  # batches whose results are not fetched yet
ROW_NAMES = ("inputs", "dec_inputs")  # padded to the length of their bucket


class TextScorer:
    """Scores tokens of texts by the rules of a network.

    Args:
      network: a kind with `SCORING`.
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
        network: Network,
        params,
        form: TextForm,
        name: str = "this",
        compile_reader: Callable = jax.jit,
        batch_tokens: int = 0,
    ):
        self.network, self.params, self.form, self.name = network, params, form, name
        self.rules = list_rules(network, form)
        if not self.rules:
            raise UserError(
                f"a {name} run: gives no token of a text a probability that depends on "
                f"the order of the others; texts cannot be scored by it"
            )
        self._compile, self._functions = compile_reader, dict[str, Callable]()
        is_cpu = jax.default_backend() == "cpu"
        self._batch_tokens = batch_tokens or (CPU_TOKENS if is_cpu else TOKENS)

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
        probe = np.zeros(2, np.int32)
        plan = RULES[self.find_rule(rule)][0]
        rows = plan(probe, 0, self.form, (self.find_rule(rule),), 0)
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
    ) -> dict[str, list[Float[np.ndarray, "N"]]]:
        """What each token adds to its text's score, by rule, in nats.

        A softmax over all ids of the model, in float32. Texts that are alike are scored
        once, so that their numbers are the same.

        Args:
          texts: ids of the text alone, without what a run puts around it.
          starts: of each text, the first token that is scored; those before it are
            given. None is 0 throughout.
          seeds: of what is drawn (rule bound); None makes them of the texts.

        Returns:
          Of each text float32 [len(text) - start]; a first token that a rule leaves out
          (`is_first_scored`) has 0.

        Raises:
          UserError: a rule that the network lacks, or a text that it cannot read whole.
        """
        rules = tuple(dict.fromkeys(self.find_rule(rule) for rule in rules))
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
        found = self._score_unique(unique, rules)
        return {rule: [found[rule][i] for i in index] for rule in rules}

    def _score_unique(self, unique, rules) -> dict[str, list[np.ndarray]]:
        sizes = np.array([len(text) - first for text, first, _ in unique], int)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        sums = {rule: np.zeros(offsets[-1] + 1) for rule in rules}
        run = _Batches(self, sums)
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
        return {
            rule: np.split(total[:-1].astype(np.float32), cuts)
            for rule, total in sums.items()
        }

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
        vocab_size = self.network.spec.vocab_size  # type: ignore[attr-defined]
        by_logits = MAX_LOGITS // (shape.num_read * vocab_size)
        most = min(self._batch_tokens // per_row, by_logits)
        return 1 << max(most, 1).bit_length() - 1

    def read(self, view: str, arrays: dict[str, np.ndarray]):
        """log p [B, P] of a batch, on the device."""
        if view not in self._functions:
            function = functools.partial(self.network.target_log_probs, view=view)
            self._functions[view] = self._compile(function)
        return self._functions[view](self.params, arrays)


def list_rules(network: Network, form: TextForm) -> tuple[str, ...]:
    """The rules of a network; one that reads a gap needs what stands for it."""
    needs_gap = {"pll", "pll_word_l2r", "mntp", "mntp_word_l2r", "infill", "bound"}
    return tuple(rule for rule in network.SCORING if form.gap or rule not in needs_gap)


@dataclasses.dataclass(frozen=True)
class _Shape:
    """What rows of one batch share: how they are read, and their padded lengths."""

    view: str
    length: int
    dec_length: int
    num_read: int


class _Batches:
    """Collects rows by shape and runs them through the network a batch at a time."""

    def __init__(self, scorer: TextScorer, sums: dict[str, np.ndarray]):
        self.scorer, self.sums = scorer, sums
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
        shape = _Shape(rows.view, length, dec_length, _round_up(rows.places.shape[1]))
        waiting = self.waiting.setdefault(shape, [])
        waiting.append((rows, offset))
        self.counts[shape] = self.counts.get(shape, 0) + len(rows.places)
        size = self.scorer.count_rows(shape)
        if self.counts[shape] >= size:
            self.run(shape, size)

    def finish(self) -> None:
        """Runs what is left, and fetches every result."""
        for shape in self.waiting:
            size = self.scorer.count_rows(shape)
            if self.counts[shape]:
                self.run(shape, size)
        while self.running:
            self.fetch()

    def run(self, shape: _Shape, size: int) -> None:
        """Runs all rows of a shape, in batches of `size`."""
        arrays, index, weights, owners = _join(self.waiting[shape], shape, self.codes)
        self.waiting[shape], self.counts[shape] = [], 0
        num = len(index)
        for start in range(0, num, size):
            left = min(num - start, size)
            if left < size and shape not in self.is_whole:
                size_now = 1 << (left - 1).bit_length()
            else:
                size_now = size
                self.is_whole.add(shape)
            picked = np.minimum(np.arange(start, start + size_now), num - 1)
            part = {name: values[picked] for name, values in arrays.items()}
            found = self.scorer.read(shape.view, part)
            held = slice(start, start + left)
            self.running.append((found, index[held], weights[held], owners[held]))
            if len(self.running) > PENDING:
                self.fetch()

    def fetch(self) -> None:
        """Adds the oldest result to the sums of its rules."""
        found, index, weights, owners = self.running.pop(0)
        scores = np.asarray(found, np.float64)[: len(index)] * weights
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
