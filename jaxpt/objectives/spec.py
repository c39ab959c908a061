"""ObjectiveSpec: the base of every objective's settings, and its declarations.

Other packages know an objective by these declarations alone: the rows, special tokens
and networks it needs, its loss terms, the number of its predictions, and how text is
written for its network. docs/design.md prints the contract on one page.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jaxpt.by_name import load_place
from jaxpt.dims import PyTree
from jaxpt.errors import ConfigError
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.ops.packing import PredictionCounts, count_slots
from jaxpt.setting_types import Settings
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.text_form import TextForm

if TYPE_CHECKING:
    from jaxpt.nn.networks.network import Network


@dataclasses.dataclass(frozen=True)
class Term:
    """A loss term, for everything that adds up, names or draws terms.

    Attributes:
      label: what it predicts, in a few words.
      coefficient: factor of its mean in the loss.
      is_likelihood: its mean is -log p of a token of plain text in nats, so that exp of
        it is a perplexity.
      targets: batch key of the ids, or of the row labels, that it predicts; "" if it
        predicts no ids (a probability for each position, a teacher's state).
      positions: batch key of the positions [B, P] at which it predicts; "" for every
        position. `targets` then has P ids, or one for every position.
      answers: names of the values 0, 1, ... of a row label.
      selects: batch key, above 0 where the term predicts, if its weights are above 0
        elsewhere too.
      is_in_place: of a term with `positions`, whether it predicts the tokens of the
        text at these positions, which the inputs hide.
    """

    label: str
    coefficient: float = 1.0
    is_likelihood: bool = False
    targets: str = "targets"
    positions: str = ""
    answers: tuple[str, ...] = ()
    selects: str = ""
    is_in_place: bool = True


@dataclasses.dataclass(frozen=True)
class Teacher:
    """Another run from which the network learns.

    Attributes:
      head: the network it must hold, as `jaxpt.hub.families` names it.
      objective: trains a teacher if the user names none.
      run: its folder; "" if the user names none.
      layers: those of its layers that the student starts from; () is none.
      setting: the objective's setting that names the folder.
    """

    head: str
    objective: str
    run: str = ""
    layers: tuple[int, ...] = ()
    setting: str = "teacher"


@dataclasses.dataclass(frozen=True)
class Needs:
    """The requirements of an objective on the tokenizer, the rows and the model.

    Whatever of them a config lacks is filled in (`jaxpt.config.needs`), unless the user
    has set something else, which is an error.

    Attributes:
      specials: roles of the special tokens that the vocabulary must have.
      num_sentinels: the minimum number of sentinels.
      word_starts: if the tokenizer must know where words begin, the setting for which
        it must, its value and the other one: "mlm.masking=words: must be tokens".
      pieces: the tokenizer must know the text of each token.
      counts: the number of occurrences of each token in the training text.
      rows: the forms of rows that serve, the default first; () is any form whose keys
        the objective reads.
      sentence_ids: rows say which sentence each token is in.
      asked_by: the setting, with its value, that requires such rows.
      num_types: the minimum number of segment types of the model.
      teacher: the run to learn from.
    """

    specials: tuple[str, ...] = ()
    num_sentinels: int = 0
    word_starts: str = ""
    pieces: bool = False
    counts: bool = False
    rows: tuple[str, ...] = ()
    sentence_ids: bool = False
    asked_by: str = ""
    num_types: int = 0
    teacher: Teacher | None = None


@dataclasses.dataclass(frozen=True)
class Predictions:
    """How many positions of a training row are scored over the vocabulary.

    Attributes:
      most: the maximum.
      laws: of each loss term whose predictions are packed, or of several that are
        packed together ("a_loss+b_loss"), the distribution of their number in a row
        (`jaxpt.ops.packing`).
    """

    most: int
    laws: Mapping[str, PredictionCounts] = dataclasses.field(default_factory=dict)

    def mean(self, num_rows: int) -> float:
        """Positions per row that the vocabulary head computes: slots, if packed."""
        slots = sum(count_slots(num_rows, law) for law in self.laws.values())
        return slots / num_rows if slots else self.most


def filled_by(source: str, default: Any = dataclasses.MISSING) -> Any:
    """A field that other sections of the config determine, hence not a setting.

    Args:
      source: "row_length"; "batch_size", the rows of a batch over all devices;
        "max_documents", the most documents packed into a row, 0 if a row is one text;
        or "has_decoder", whether the model has a decoder.
    """
    return dataclasses.field(default=default, metadata={"source": source})


def model_of(setting: str) -> Any:
    """A field for the `model` section of the run that a setting names.

    It is written into the config, so that a run resumes without the other's folder.
    """
    return dataclasses.field(default_factory=dict, metadata={"model_of": setting})


def sections_of(setting: str) -> Any:
    """A field for the settings of the objectives that a setting names, by name.

    They are those of the objectives' own sections of the config.
    """
    metadata = {"source": "sections", "sections_of": setting}
    return dataclasses.field(default=(), metadata=metadata)


@dataclasses.dataclass(frozen=True)
class ObjectiveSpec(Settings):
    """The base of every objective's settings: declares, with defaults for most.

    Attributes:
      row_length: R, tokens of a row before corruption.
    """

    # The config's section, which is the name of the objective's module.
    SECTION: ClassVar[str]
    # The keys of rows that `corrupt` can read, and "progress" for `coefficients_at`.
    # "answers": hides and predicts nothing else (`objective.get_scored`).
    READS: ClassVar[frozenset[str]] = frozenset({"tokens", "index", "segment_ids"})
    # The networks it can train, the default first: with one stack, with a decoder.
    # Classes, or their names in `jaxpt.nn.networks`, which is imported when used.
    NETWORKS: ClassVar[tuple[Any, ...]]
    # Settings that do not define the loss: sizes of the network, its initial values.
    LOSS_FREE: ClassVar[frozenset[str]] = frozenset()
    # Whether a network of one stack reads an id before each text, which `corrupt` adds.
    ADDS_START: ClassVar[bool] = False
    # The fewest tokens of a row.
    MIN_LENGTH: ClassVar[int] = 1

    row_length: int = filled_by("row_length")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.row_length < self.MIN_LENGTH:
            raise ConfigError(
                f"data.row_length={self.row_length}: {self.SECTION} needs at least "
                f"{self.MIN_LENGTH}"
            )

    @classmethod
    def for_seq_len(cls, seq_len: int, **settings: Any) -> "ObjectiveSpec":
        """The spec of the longest rows whose first stack reads at most `seq_len`."""
        spec = cls(row_length=seq_len + 1, **settings)
        while next(iter(spec.lengths.values())) > seq_len:
            spec = dataclasses.replace(spec, row_length=spec.row_length - 1)
        return spec

    @property
    def lengths(self) -> dict[str, int]:
        """Positions that each stack of the network reads, in a training row."""
        return {"encoder": self.row_length}

    @property
    def predictions(self) -> Predictions:
        """How many positions of a training row are scored over the vocabulary."""
        return Predictions(list(self.lengths.values())[-1])

    @property
    def terms(self) -> dict[str, Term]:
        """The loss terms by name."""
        return {"loss": Term("target")}

    @property
    def needs(self) -> Needs:
        """The requirements on the tokenizer, the rows and the model."""
        return Needs()

    @property
    def evaluated(self) -> tuple["ObjectiveSpec", ...]:
        """The specs by which held-out rows are corrupted, and whose losses are added.

        Each reads all rows, so that the rows of a loss do not depend on its share.
        """
        return (self,)

    def controls(self) -> dict[str, dict[str, Any]]:
        """Settings next to which a comparison shows what the objective's parts do.

        By name, sections of settings as in `compare.overrides`, such as {"off":
        {"multi_token": {"offset_weights": (0.0,)}}}; with an "objective" it is another
        one. `jaxpt compare --controls` adds them (`jaxpt.comparison.controls`).
        """
        return {}

    def init_state(self, vocab: Vocab, params: PyTree) -> PyTree:
        """What the objective keeps from step to step, at the first one: arrays or None.

        It is `TrainState.objective_state`: `train_step` returns the next one, in the
        same shapes and dtypes and equal on all devices (counts of a batch are summed by
        `Update` if the loss returns them as a metric). Checkpoints hold it. Evaluation
        neither reads nor changes it.

        Args:
          params: the initial parameters. Arrays whose path ends with that of a
            parameter of their shape are sharded like it; what is kept must be a copy.
        """
        return None

    @property
    def floors(self) -> dict[str, str]:
        """Metrics of `train_step` below whose floor a run ends, as after a divergence.

        By name, the setting that has the floor.
        """
        return {}

    def text_form(self, vocab: Vocab) -> TextForm:
        """How a text, a gap and a continuation are written for the network.

        By default nothing is around a text. A gap is a [MASK], or else a sentinel after
        which a decoder writes what is missing, if the objective needs one of them.
        """
        needs = self.needs
        if "mask" in needs.specials:
            gap: tuple[int, ...] = (vocab.require("mask"),)
            return TextForm(gap=gap, mark=gap)
        if not needs.num_sentinels:
            return TextForm()
        gap, following = vocab.sentinels[:1], vocab.sentinels[: needs.num_sentinels][1:]
        # A span ends with [EOS], or with the sentinel of the next one.
        ends = (vocab.require("eos"), *following[:1])
        return TextForm(gap=gap, mark=gap, gap_ends=ends)

    def make_network(
        self, model_spec: ModelSpec, vocab: Vocab, **fields: Any
    ) -> "Network":
        """The network to train; a subclass passes on its network's own `fields`."""
        kind = self.check_network(model_spec, vocab)
        if laws := tuple(self.predictions.laws.items()):
            fields = {"packed": laws} | fields
        return kind(model_spec.direct(kind.READS_AHEAD), **fields)  # type: ignore[call-arg]

    # What follows is the same for every objective.

    @property
    def coefficients(self) -> dict[str, float]:
        """The factor of each loss term's mean in the loss."""
        return {name: term.coefficient for name, term in self.terms.items()}

    def coefficients_at(self, progress: Any) -> dict[str, Any]:
        """`coefficients` in training, if they change during it.

        Args:
          progress: the fraction of the training that is done, a number or a scalar
            array; of a spec that reads "progress".
        """
        return self.coefficients

    @property
    def lone_setting(self) -> str:
        """The setting with which it cannot be part of a mixture; "" if it can."""
        return ""

    @classmethod
    def networks(cls) -> "tuple[type[Network], ...]":
        """The classes of `NETWORKS`."""
        return tuple(
            load_place(f"jaxpt.nn.networks.{each.replace('.', ':')}")
            if isinstance(each, str)
            else each
            for each in cls.NETWORKS
        )

    @classmethod
    def kind(cls, num_decoder_layers: int) -> "type[Network] | None":
        """The network it trains with this number of decoder layers, if any."""
        has_decoder = num_decoder_layers > 0
        kinds = [kind for kind in cls.networks() if kind.HAS_DECODER == has_decoder]
        return kinds[0] if kinds else None

    @classmethod
    def heads(cls) -> set[str]:
        """The purposes of its networks, as `jaxpt.hub.families` names them."""
        return {head for kind in cls.networks() for head in kind.HEADS}

    def check_network(self, model_spec: ModelSpec, vocab: Vocab) -> "type[Network]":
        """The network's class, if vocabulary and model meet the requirements."""
        check_vocab(self.SECTION, self.needs, vocab)
        if vocab.num_sentinels < self.needs.num_sentinels:
            raise ConfigError(
                f"tokenizer.num_sentinels={vocab.num_sentinels}: must be at least "
                f"{self.needs.num_sentinels} for {self.SECTION} in rows of "
                f"{self.row_length} tokens; shorter rows (data.seq_len) need fewer"
            )
        kind = self.kind(model_spec.num_decoder_layers)
        if kind is None:
            allowed = "0" if model_spec.num_decoder_layers else "at least 1"
            raise ConfigError(
                f"model.num_decoder_layers={model_spec.num_decoder_layers}: must be "
                f"{allowed} for {self.SECTION}"
            )
        if model_spec.num_types < self.needs.num_types:
            raise ConfigError(
                f"model.num_types={model_spec.num_types}: must be at least "
                f"{self.needs.num_types} for {self.SECTION}"
            )
        return kind

    def check_rows(self, rows: Mapping[str, np.ndarray], vocab: Vocab) -> None:
        """Checks rows of the text before training: whether they can be corrupted.

        Args:
          rows: the first rows of training, arrays [B, ...] by name.
        """


def check_vocab(name: str, needs: Needs, vocab: Vocab) -> None:
    """Raises UserError unless a vocabulary has what an objective needs."""
    for role in needs.specials:
        vocab.require(role)
    if needs.word_starts and not vocab.word_starts:
        raise ConfigError(
            f"{needs.word_starts} with a tokenizer whose tokens do not mark where "
            "words begin; those of tokenizer.kind=bpe, wordpiece and unigram do"
        )
    if needs.pieces and not vocab.pieces:
        raise ConfigError(f"tokenizer: must know the text of its tokens, for {name}")
    counts = np.array(vocab.counts)[vocab.ordinary_ids] if vocab.counts else ()
    if needs.counts and not any(counts):
        raise ConfigError(
            f"{name}: must know how often each token occurs in the text, and some must"
        )
