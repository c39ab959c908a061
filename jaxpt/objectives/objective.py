"""What an objective is: a module with a Spec, corrupt, masks, loss and train_step.

    rows -> corrupt -> batch -> masks -> loss -> Update -> the state one step later

`Objective` states it as a type, which the modules of this folder satisfy and the type
checker holds them to. `ObjectiveSpec` is the base of every Spec: it says what the
objective reads and needs, and which kind of network it trains; a subclass overrides
what is different for it.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp

from jaxpt.errors import UserError
from jaxpt.learn.state import TrainState
from jaxpt.learn.update import Update, weigh_rows
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.network import Network
from jaxpt.ops import losses
from jaxpt.ops.packing import Law, count_slots
from jaxpt.rng import row_keys, split_step
from jaxpt.text.tokens.vocab import Vocab

# Loss terms or metrics: name -> (sum, weight).
Sums = dict[str, tuple[jax.Array, jax.Array]]


@dataclasses.dataclass(frozen=True)
class Needs:
    """What an objective needs of the tokenizer, the rows and the model.

    A config that lacks some of it gets it filled in (`jaxpt.config.needs`), unless the
    user has asked for something else, which is an error then.

    Attributes:
      specials: roles of the special tokens that the vocabulary must have.
      num_sentinels: the fewest sentinels of the vocabulary.
      rows: forms of rows of which any serves, the default first; () is any form whose
        keys the objective reads.
      sentence_ids: rows say which sentence each token is in.
      asked_by: the setting that asks for such rows, as errors name it.
      num_types: the fewest segment types of the model.
      counts: how often each token stands in the text to train on.
    """

    specials: tuple[str, ...] = ()
    num_sentinels: int = 0
    rows: tuple[str, ...] = ()
    sentence_ids: bool = False
    asked_by: str = ""
    num_types: int = 0
    counts: bool = False


@dataclasses.dataclass(frozen=True)
class ObjectiveSpec:
    """The base of every objective's settings.

    Attributes:
      row_length: R, tokens of a row before corruption.
    """

    SECTION: ClassVar[str]  # of the config: the objective's name
    # The keys of rows that the objective can read (`jaxpt.dims.ROW_KEYS`).
    READS: ClassVar[frozenset[str]] = frozenset({"tokens", "index", "segment_ids"})
    # The networks it can train: with one stack, or with an encoder and a decoder.
    NETWORKS: ClassVar[tuple[type[Network], ...]]
    PREFERS_DECODER: ClassVar[bool] = False  # of those, where a config says neither
    # The head (as `jaxpt.hub.families` names it) of another run that the network learns
    # from, and the objective that trains a teacher where the user names none.
    TEACHER: ClassVar[str] = ""
    TEACHER_OBJECTIVE: ClassVar[str] = ""
    # Settings that leave the loss and its predictions as they are: of the network or of
    # how it begins. Any other setting of a Spec defines what valid_loss measures.
    LOSS_FREE: ClassVar[frozenset[str]] = frozenset()
    # Whether a decoder writes the whole text, and not only what is missing.
    REWRITES: ClassVar[bool] = False
    # The fewest tokens of a row, and how many more than the model reads it has.
    MIN_LENGTH: ClassVar[int] = 1
    EXTRA_LENGTH: ClassVar[int] = 0

    row_length: int

    def __post_init__(self):
        if self.row_length < self.MIN_LENGTH:
            raise UserError(
                f"data.row_length={self.row_length}: {self.SECTION} needs at least "
                f"{self.MIN_LENGTH}"
            )

    @classmethod
    def for_seq_len(cls, seq_len: int, **settings) -> "ObjectiveSpec":
        """The spec whose rows let the model, or its encoder, read `seq_len` tokens."""
        return cls(row_length=seq_len + cls.EXTRA_LENGTH, **settings)

    @classmethod
    def kind(cls, num_decoder_layers: int) -> type[Network] | None:
        """The network it trains with so many decoder layers, if any."""
        has_decoder = num_decoder_layers > 0
        kinds = [kind for kind in cls.NETWORKS if kind.HAS_DECODER == has_decoder]
        return kinds[0] if kinds else None

    @classmethod
    def heads(cls) -> set[str]:
        """What its networks can be for, as `jaxpt.hub.families` names it."""
        return {head for kind in cls.NETWORKS for head in kind.HEADS}

    @property
    def lengths(self) -> dict[str, int]:
        """Positions that each stack of the network works on, in a training row."""
        return {"encoder": self.row_length - self.EXTRA_LENGTH}

    @property
    def num_predictions(self) -> int:
        """The most positions of a training row that meet the vocabulary."""
        return list(self.lengths.values())[-1]

    @property
    def prediction_laws(self) -> dict[str, Law]:
        """The law of the number of predictions in a row, of each packed loss term."""
        return {}

    def mean_predictions(self, num_rows: int) -> float:
        """Positions per row that pass through the vocabulary head: slots, if packed."""
        laws = self.prediction_laws.values()
        slots = sum(count_slots(num_rows, law) for law in laws)
        return slots / num_rows if slots else self.num_predictions

    @property
    def coefficients(self) -> dict[str, float]:
        """What each loss term counts for."""
        return {"loss": 1.0}

    @property
    def needs(self) -> Needs:
        """What it needs of the tokenizer, the rows and the model."""
        return Needs()

    def frame(self, vocab: Vocab) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids before and after a text that the network reads by itself."""
        return (), ()

    def feature_mode(self, vocab: Vocab) -> tuple[int, ...]:
        """The ids that say, before a text, what is to be done with it (UL2's mode)."""
        return ()

    def gap(self, vocab: Vocab) -> tuple[int, ...]:
        """What stands, in its network's inputs, for words that are hidden, if anything.

        A [MASK], or a sentinel; nothing where no input shows that something is missing.
        """
        if "mask" in self.needs.specials:
            return (vocab.require("mask"),)
        return vocab.sentinels[:1] if self.needs.num_sentinels else ()

    def continuation(self, vocab: Vocab) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What stands before a text that is to go on, and where the rest is missing.

        The second is also what a decoder that writes only what is missing begins with.
        """
        return self.feature_mode(vocab), self.gap(vocab)

    def answer_start(self, vocab: Vocab, left: jax.Array) -> jax.Array | None:
        """What a decoder has written [B, S] when it comes to a gap's word, if it does.

        A start and the gap's sentinel; None without sentinels.

        Args:
          left: int [B, C], the text before the gap.
        """
        if not self.needs.num_sentinels:
            return None
        ids = jnp.array([vocab.start, *self.gap(vocab)])
        return jnp.broadcast_to(ids, (len(left), len(ids)))

    def answer_ends(self, vocab: Vocab, right: jax.Array) -> jax.Array | None:
        """What a decoder writes [B, E, A] behind a gap's word (`Gap.ends`), if it does.

        A span ends with [EOS], or with the sentinel of the next span.

        Args:
          right: int [B, C], the text behind the gap.
        """
        if not self.needs.num_sentinels:
            return None
        after = vocab.sentinels[: self.needs.num_sentinels][1:2]
        ids = jnp.array([vocab.require("eos"), *after])
        return jnp.broadcast_to(ids, (len(right), 1, len(ids)))

    def describe_mask(self) -> str:
        """What one stack was trained to see, where that is no causal model's."""
        return ""

    def network_fields(self, vocab: Vocab) -> dict[str, Any]:
        """What the network must be told beside the model's sizes."""
        packed = tuple(self.prediction_laws.items())
        return {"packed": packed} if packed else {}

    def make_network(self, model_spec: ModelSpec, vocab: Vocab) -> Network:
        """The network that is trained.

        Raises:
          UserError: the vocabulary or the model is not what the objective needs.
        """
        kind = self.check_network(model_spec, vocab)
        directed = model_spec.direct(kind.READS_AHEAD)
        return kind(directed, **self.network_fields(vocab))  # type: ignore[call-arg]

    def check_network(self, model_spec: ModelSpec, vocab: Vocab) -> type[Network]:
        """The kind of the network, where vocabulary and model serve it.

        Raises:
          UserError: they do not.
        """
        needs = self.needs
        for role in needs.specials:
            vocab.require(role)
        vocab.require_sentinels(needs.num_sentinels)
        kind = self.kind(model_spec.num_decoder_layers)
        if kind is None:
            allowed = "0" if model_spec.num_decoder_layers else "at least 1"
            raise UserError(
                f"model.num_decoder_layers={model_spec.num_decoder_layers}: must be "
                f"{allowed} for {self.SECTION}"
            )
        if model_spec.num_types < needs.num_types:
            raise UserError(
                f"model.num_types={model_spec.num_types}: must be at least "
                f"{needs.num_types} for {self.SECTION}"
            )
        return kind

    def check(self, name: str, is_good: bool, allowed: str) -> None:
        """Raises UserError, naming the setting, unless its value is good."""
        if not is_good:
            value = getattr(self, name)
            raise UserError(f"{self.SECTION}.{name}={value}: must be {allowed}")

    def check_all(self, rules: Iterable[tuple[str, bool, str]]) -> None:
        """`check` of (name, is_good, allowed), one after the other."""
        for rule in rules:
            self.check(*rule)

    def check_rate(self, name: str) -> None:
        """Raises UserError unless 0 < rate < 1."""
        is_good = 0 < getattr(self, name) < 1
        self.check(name, is_good, "between 0 and 1, both excluded")


class Objective(Protocol):
    """All that an objective is; a module of functions, or anything that has them."""

    @property
    def Spec(self) -> type[ObjectiveSpec]: ...

    def corrupt(self, rng: jax.Array, rows: dict, vocab: Vocab, spec: Any) -> dict:
        """The batch of a step: static shapes, `batch["weights"]` for each loss term."""

    def masks(self, batch: dict) -> dict:
        """Who may see whom: "self", and for two stacks "dec_self" and "cross"."""

    def loss(
        self, params: Any, model: Any, batch: dict, masks: dict, rngs: dict
    ) -> tuple[Sums, Sums]:
        """The loss terms and further metrics; "dropout" in `rngs` switches it on."""

    def train_step(
        self,
        state: TrainState,
        rows: dict,
        rngs: dict,
        *,
        model: Any,
        vocab: Vocab,
        spec: Any,
        update: Update,
    ) -> tuple[TrainState, Sums]:
        """Corrupt, masks, loss, update: the state one step later, and its metrics."""


def eval_step(
    objective: Objective,
    params,
    rows: dict,
    rng: jax.Array,
    *,
    model: Network,
    vocab: Vocab,
    spec: ObjectiveSpec,
) -> Sums:
    """The loss terms and metrics of held-out rows, without dropout."""
    rngs = split_step(rng)
    batch = weigh_rows(objective.corrupt(rngs["corrupt"], rows, vocab, spec), rows)
    sample = {"sample": rngs["sample"]}
    terms, metrics = objective.loss(
        params, model, batch, objective.masks(batch), sample
    )
    return terms | metrics


def target_loss(
    params, model: Any, batch: dict, masks: dict, rngs: dict
) -> tuple[Sums, Sums]:
    """Cross-entropy of `batch["targets"]`, one for each position of the last stack."""
    targets, weights = batch["targets"], batch["weights"]["loss"]

    def predict(model):
        states = model.batch_states(batch, masks, deterministic="dropout" not in rngs)
        return model.score_term("loss", states, targets, weights)

    found = model.apply({"params": params}, rngs=rngs, method=predict)
    scores, weights, overflow = found
    hits = losses.rank_hits(scores.ranks, weights)
    return {"loss": scores.loss}, {"accuracy": hits} | overflow


def map_rows(corrupt_row, rng: jax.Array, rows: dict, *more: jax.Array) -> dict:
    """The batch of rows that are each corrupted by themselves, with a key of its own.

    Args:
      corrupt_row: (key, tokens [R], segment ids [R], ...) -> the row's part of the
        batch; a row without segment ids is one text.
      more: arrays [B, ...] that `corrupt_row` gets a row of, too.
    """
    keys, segments = row_keys(rng, rows["index"]), get_segments(rows)
    batch = jax.vmap(corrupt_row)(keys, rows["tokens"], segments, *more)
    return batch | keep_keys(rows)


def get_segments(rows: dict) -> jax.Array:
    """The segment ids [B, R] of rows; all 1 where each is one text."""
    return rows.get("segment_ids", jnp.ones_like(rows["tokens"]))


def keep_keys(rows: dict, *more: str) -> dict:
    """The keys of rows that a batch keeps: "index", "segment_ids" where there are."""
    kept = ("index", "segment_ids", *more)
    return {name: rows[name] for name in kept if name in rows}
