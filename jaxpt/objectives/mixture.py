"""A mixture of objectives: each row of a batch is read as one of them.

Any objectives that share a network and the position at which it predicts a token. With
K of them, p the fraction of the run that is done and s_k(p) the share of objective k:

    text            the cat  sat  on   mat     s = (0.5, 0.25, 0.25)
    rows 1, 3       the cat  sat  on           clm         cat  sat  on   mat
    row 2           the [M]  sat  on           mlm         cat
    row 4           [P] the  cat  sat  on      prefix_lm             on   mat

    loss = sum over k of c_k s_k(p) mean_k,    sum over k of s_k = 1

mean_k is the loss of objective k over its own rows, with its own divisor: a share is
the number of rows and the weight of their mean, not twice one of them. c_k are
`weights`, 1 by default. The objective of a row depends on its number and the step. Each
batch has B s_k rows of objective k, rounded down or up. A share of less than a row is
refused, so that no batch lacks an objective; in mean the gradient is that of
sum s_k loss_k.

    parts                           network           predicted at
    clm, mlm                        GPT-BERT's        the position before, in both
    clm, masked_diffusion           that of `dual`    the position before, in both
    clm, prefix_lm                  causal            the position before
    clm, mlm, prefix_lm             GPT-BERT's        the position before, in all
    mlm, masked_diffusion           diffusion's       the token's own position
    span_corruption, bart, ...      encoder-decoder   the decoder's position

An objective that predicts hidden tokens at their own position does so at the one before
if another part does, where the last token is no input and the first one is never
hidden. So no phase of a schedule unlearns the shift, as in `clm_mlm`. Other pairs are
refused with the reason: extra heads, several passes, another number of stacks.

In a step the network reads all rows once, as long as the longest part's; each row has
a separate mask, one bit for each input (causal, full, or a prefix). The predictions of
each part have the slots (`jaxpt.ops.packing`) of its largest share in the run, which
FLOPs count. A part's settings are those of its section. Evaluation reads all held-out
rows under each part (`valid_clm_loss`, `valid_mlm_loss`), with one pass for each; their
sum by shares, `valid_loss`, is comparable for equal mixtures only. Special tokens
around a text are those of the first part.

GPT-BERT (Charpentier and Samuel 2024) mixes two of them, dual-objective models (Samuel
and Charpentier 2025, arXiv 2512.14549) two others. The latter find that over 50 models
no mixture is worse than the better of its parts alone.

Departures from `clm_mlm` (`parts=("clm", "mlm")`): there the kind of each row is drawn
independently, here evenly, and tokens are drawn by other keys. The losses of the same
corrupted batch are equal bit for bit. From `dual` (`clm`, `masked_diffusion`): there
one draw is the kind and the rate of a row, and the predictions of both kinds share
slots; the losses of the same batch are equal to rounding. A mixture whose share of one
part is 1 is that part alone, bit for bit.

Controls: each part alone; of a schedule, the constant mixture with its mean shares, and
the reverse order.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxpt.dims import Batch, Rows
from jaxpt.errors import ConfigError
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.network import TransformerNetwork
from jaxpt.objectives import OBJECTIVES, mixing, shared_pass, span_corruption
from jaxpt.objectives.mixing import MixedPart, drop_weights
from jaxpt.objectives.objective import Keys, Masks, Sums, make_train_step
from jaxpt.objectives.spec import (
    Needs,
    ObjectiveSpec,
    Predictions,
    Term,
    filled_by,
    sections_of,
)
from jaxpt.ops import masks as attention_masks
from jaxpt.ops import shares as shares_of
from jaxpt.ops.metrics import add
from jaxpt.setting_types import (
    Fraction,
    Length,
    PositiveFloat,
    Rule,
    is_schedule,
    show_value,
)
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.text_form import TextForm

if TYPE_CHECKING:
    from jaxpt.nn.networks.network import Network

Shares = tuple[Fraction, ...]
READ = ("inputs", "segment_ids", "dec_inputs", "dec_segment_ids")  # by the network


@dataclasses.dataclass(frozen=True)
class Spec(ObjectiveSpec):
    """Which objectives, and the share of each in the rows of a batch.

    Attributes:
      parts: names of objectives. The settings of each are those of its section.
      shares: of each part, the fraction of rows and the weight of its loss; () divides
        evenly.
      schedule: pairs (until, shares): until this fraction of the training, these shares
        replace `shares`, as in ((0.25, (1.0, 0.0)),) for the first part alone at first.
        After the last pair, and in evaluation, `shares` applies.
      weights: of the loss of each part, in addition to its share; () is 1 for all.
      sections: the settings of each part by its name.
      batch_size: rows in a batch, over all devices; 0 if that is not known.
      max_documents, has_decoder: as the parts read them.
    """

    SECTION: ClassVar[str] = "mixture"
    MIN_LENGTH: ClassVar[int] = 2
    # Those of a spec depend on its parts.
    NETWORKS: ClassVar = (
        "one_stack.CausalMaskedLM",
        "encoder_decoder.EncoderDecoder",
        "one_stack.MaskedLM",
    )
    READS: ClassVar = ObjectiveSpec.READS | {"progress", "answers"}

    parts: Annotated[tuple[str, ...], Length(2, is_distinct=True)] = ("clm", "mlm")
    shares: Shares = ()
    schedule: Annotated[
        tuple[tuple[Fraction, Shares], ...],
        Rule(
            is_schedule,
            "pairs (until, shares) such as ((0.25, (1.0, 0.0)),): until above 0, "
            "increasing, at most 1; shares from 0 to 1",
        ),
    ] = ()
    weights: tuple[PositiveFloat, ...] = ()
    _: dataclasses.KW_ONLY
    sections: Any = sections_of("parts")
    batch_size: int = filled_by("batch_size", 0)
    max_documents: int = filled_by("max_documents", 0)
    has_decoder: bool = filled_by("has_decoder", False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.sections, Mapping):  # hashable
            pairs = [(k, tuple(v.items())) for k, v in self.sections.items()]
            object.__setattr__(self, "sections", tuple(pairs))
        known = [name for name in OBJECTIVES if name != self.SECTION]
        is_good = all(name in known for name in self.parts)
        self.check("parts", is_good, f"two or more of {', '.join(known)}")
        num = len(self.parts)
        if not self.shares:
            object.__setattr__(self, "shares", (1 / num,) * num)
        self.check("weights", len(self.weights) in (0, num), f"() or {num} numbers")
        for name, shares in [("shares", self.shares)] + [
            ("schedule", shares) for _, shares in self.schedule
        ]:
            self._check_shares(name, shares)
        _, reason = mixing.find_network(self.members)
        allowed = f"objectives that share a network and a reading position; {reason}"
        self.check("parts", not reason, allowed)
        # Instead of those of the class.
        for name, value in (("kind", self._find_kind), ("READS", self._find_reads())):
            object.__setattr__(self, name, value)

    def _check_shares(self, name: str, shares: tuple[float, ...]) -> None:
        is_whole = len(shares) == len(self.parts) and abs(sum(shares) - 1) < 1e-6
        allowed = f"of {len(self.parts)} parts, with the sum 1"
        self.check(name, is_whole, f"shares {allowed}")
        least = min(share for share in shares if share > 0)
        if self.batch_size and least * self.batch_size < 1 - 1e-6:
            shown = show_value(getattr(self, name))
            raise ConfigError(
                f"mixture.{name}={shown}: a share of {least:g} of train.batch_size="
                f"{self.batch_size} rows is less than one; must be 0, or at least "
                f"{1 / self.batch_size:g} so that no batch lacks a part"
            )

    @classmethod
    def for_seq_len(cls, seq_len: int, **settings: Any) -> "Spec":
        """The spec of the longest rows with which no part's input is too long."""
        spec = cls(row_length=max(seq_len, 3), **settings)
        lengths = [
            part.objective.Spec.for_seq_len(seq_len, **spec.read(part.name)).row_length
            + part.is_moved
            for part in spec.members
        ]
        return dataclasses.replace(spec, row_length=min(lengths))

    def read(self, name: str) -> dict[str, Any]:
        """The settings of a part, with what other sections determine."""
        own = {"max_documents": self.max_documents, "has_decoder": self.has_decoder}
        fields = dataclasses.fields(OBJECTIVES[name].Spec)
        sources = {f.name: f.metadata.get("source") for f in fields}
        filled = {n: own[source] for n, source in sources.items() if source in own}
        return dict(dict(self.sections).get(name, ())) | filled

    @functools.cached_property
    def members(self) -> tuple[MixedPart, ...]:
        """The parts, in the order of `parts`."""
        return mixing.move_parts(
            [
                MixedPart(
                    name,
                    OBJECTIVES[name],
                    OBJECTIVES[name].Spec(self.row_length, **self.read(name)),
                    self.has_decoder,
                )
                for name in self.parts
            ]
        )

    def _find_kind(self, num_decoder_layers: int) -> "type[Network] | None":
        kind: Any = mixing.find_network(self.members)[0]
        return kind if kind.HAS_DECODER == (num_decoder_layers > 0) else None

    def _find_reads(self) -> frozenset[str]:
        """What any part reads; answers and ends of sentences only if all do."""
        reads = [part.spec.READS for part in self.members]
        common = frozenset.intersection(*reads)
        basic = ObjectiveSpec.READS | {"progress"}
        return basic | common | (frozenset.union(*reads) & {"sentence_ids"})

    @property
    def phases(self) -> shares_of.Phases:
        """Pairs (until, shares) of the whole training."""
        return shares_of.add_last(self.schedule, self.shares)

    @property
    def mean_shares(self) -> tuple[float, ...]:
        """The shares of the parts in the whole training."""
        return shares_of.find_means(self.phases)

    @property
    def most_shares(self) -> tuple[float, ...]:
        """The largest share of each part at any time."""
        shares = [self.shares, *(each for _, each in self.phases)]
        return tuple(map(max, zip(*shares, strict=True)))

    @property
    def alone(self) -> MixedPart | None:
        """The part that all rows are of, if there is one."""
        if self.schedule or max(self.shares) < 1:
            return None
        return self.members[self.shares.index(max(self.shares))]

    @property
    def evaluated(self) -> tuple["Spec", ...]:
        """Each part on all rows."""
        num = len(self.parts)
        hot = [tuple(float(i == k) for i in range(num)) for k in range(num)]
        return tuple(dataclasses.replace(self, shares=s, schedule=()) for s in hot)

    def shares_at(self, progress: Any) -> list[Any]:
        """The share of each part after this fraction of the training."""
        return shares_of.find_shares(self.phases, progress)

    @property
    def lengths(self) -> dict[str, int]:
        """Of each stack, those of the part that needs most."""
        parts = self.members
        sizes = [
            max(each) for each in zip(*(part.sizes for part in parts), strict=True)
        ]
        is_in_place = all(part.network in mixing.IN_PLACE for part in parts)
        names = ("encoder",) if is_in_place else ("encoder", "decoder")
        return dict(zip(names[-len(sizes) :], sizes, strict=True))

    @property
    def predictions(self) -> Predictions:
        """Those of each part, in the rows of its largest share, which are drawn."""
        parts = self.members
        if self.alone:
            own = self.alone.spec.predictions
            laws = {self.alone.rename(name): law for name, law in own.laws.items()}
            return Predictions(own.most, laws)
        most = sum(part.spec.predictions.most for part in parts)
        laws = {
            part.rename(name): law
            for part, share in zip(parts, self.most_shares, strict=True)
            for name, law in part.mix_laws(share).items()
            if share > 0
        }
        return Predictions(most, laws)

    @property
    def terms(self) -> dict[str, Term]:
        """Those of each part, after its name, with the weight of its share."""
        factors = self._weigh(list(self.shares))
        return {
            part.rename(name): dataclasses.replace(
                term,
                coefficient=term.coefficient * factor,
                is_in_place=term.is_in_place and not part.is_moved,
            )
            for part, factor in zip(self.members, factors, strict=True)
            for name, term in part.spec.terms.items()
        }

    def _weigh(self, shares: list[Any]) -> list[Any]:
        weights = self.weights or (1.0,) * len(self.parts)
        return [c * s for c, s in zip(weights, shares, strict=True)]

    def coefficients_at(self, progress: Any) -> dict[str, Any]:
        factors = self._weigh(self.shares_at(progress))
        return {
            part.rename(name): coefficient * factor
            for part, factor in zip(self.members, factors, strict=True)
            for name, coefficient in part.spec.coefficients_at(progress).items()
        }

    @property
    def needs(self) -> Needs:
        return mixing.join_needs(self.members)

    def controls(self) -> dict[str, dict[str, Any]]:
        controls: dict[str, dict[str, Any]] = {}
        for part in self.members:
            own = dict(dict(self.sections).get(part.name, ()))
            plain = {f.name: f.default for f in dataclasses.fields(type(part.spec))}
            is_plain = all(plain[name] == value for name, value in own.items())
            control: dict[str, Any] = {"objective": part.name}
            if not is_plain:
                control[part.name] = own
            controls[part.name if is_plain else f"{part.name}-same"] = control
        if self.schedule:
            even = {"schedule": (), "shares": self.mean_shares}
            controls["constant"] = {self.SECTION: even}
            starts = [0.0, *(until for until, _ in self.phases)]
            phases = [
                (round(1 - start, 9), shares)
                for start, (_, shares) in zip(starts, self.phases, strict=False)
            ][::-1]
            controls["reverse"] = {self.SECTION: {"schedule": tuple(phases)}}
        return controls

    def text_form(self, vocab: Vocab) -> TextForm:
        return mixing.join_forms(self.members, self.mean_shares, vocab)

    def make_network(
        self, model_spec: ModelSpec, vocab: Vocab, **fields: Any
    ) -> "Network":
        """The network of all parts, with that of each part on the same parameters."""
        kind: Any = self.check_network(model_spec, vocab)
        spec, shared = model_spec.direct(kind.READS_AHEAD), []
        for part, share in zip(self.members, self.most_shares, strict=True):
            alone: Any = part.spec.make_network(model_spec, vocab)
            shared.append(shared_pass.share(part, alone.clone(spec=spec), share))
            known = {field.name for field in dataclasses.fields(alone)}
            more = known - {f.name for f in dataclasses.fields(TransformerNetwork)}
            fields = {name: getattr(alone, name) for name in more} | fields
        allowed = {field.name for field in dataclasses.fields(kind)}
        fields = {name: value for name, value in fields.items() if name in allowed}
        fields |= {"packed": tuple(self.predictions.laws.items())}
        network: Network = shared_pass.add_parts(kind)(
            spec, parts=tuple(shared), **fields
        )
        return network

    def check_rows(self, rows: Mapping[str, np.ndarray], vocab: Vocab) -> None:
        for part in self.members:
            part.spec.check_rows(rows, vocab)


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Corrupts each row as its part does, with the key that the part alone would use.

    >>> rows = {"tokens": jnp.array(4 * [[7, 8, 9]]), "index": jnp.arange(4)}
    >>> spec = Spec(3, batch_size=4)
    >>> batch = corrupt(jax.random.key(1), rows, Vocab(10, mask=4), spec)
    >>> batch["kind"].tolist(), batch["targets"].tolist()
    ([1, 0, 0, 1], [[0, 9], [8, 9], [8, 9], [8, 0]])
    >>> batch["weights"]["clm_loss"].tolist()
    [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    """
    known: Any = {key: rows[key] for key in spec.READS if key in rows}  # type: ignore[literal-required]
    rows = known
    if part := spec.alone:
        own = part.corrupt(rng, rows, vocab)
        nothing = jnp.zeros(own["inputs"].shape)
        weights = dict.fromkeys(spec.terms, nothing)
        weights |= {part.rename(name): w for name, w in own["weights"].items()}
        return own | {"weights": weights, "parts": {part.name: drop_weights(own)}}
    shares: list[Any] = list(spec.shares)
    if "progress" in rows:  # absent in evaluation
        shares = spec.shares_at(rows["progress"])
    shares_KB = jnp.stack([jnp.broadcast_to(s, rows["index"].shape) for s in shares])
    rng_kind = jax.random.fold_in(rng, len(spec.parts))
    kind = shares_of.assign(rng_kind, rows["index"], shares_KB, spec.batch_size)
    batches = [
        mixing.keep_own(part.corrupt(rng, rows, vocab), kind == k)
        for k, part in enumerate(spec.members)
    ]
    lengths = list(spec.lengths.values())
    return mixing.join_batches(spec.members, batches, kind, lengths)


def masks(batch: Batch) -> Masks:
    """Each row has the mask of its part."""
    (name, own), *others = batch["parts"].items()
    if not others:
        return OBJECTIVES[name].masks(own)
    if "dec_inputs" in batch:
        return span_corruption.masks(batch)
    segments = batch.get("segment_ids")
    if "is_prefix" in batch:
        return {"self": attention_masks.prefix_keys(batch["is_prefix"], segments)}
    is_causal = OBJECTIVES[name].masks(own)["self"].causal
    make = attention_masks.causal if is_causal else attention_masks.segments
    return {"self": make(segments)}


def loss(
    params: Any, model: "Network", batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """The loss of each part on its rows, by the states of one pass of all rows."""
    own, weights, states = batch["parts"], batch["weights"], None
    if len(own) > 1:
        module: Any = model
        read = {k: batch[k] for k in READ if k in batch}  # type: ignore[literal-required]
        call = {"deterministic": "dropout" not in rngs, "method": "batch_states"}
        states = module.apply({"params": params}, read, masks, rngs=rngs, **call)
    zero = jnp.zeros(())
    terms: Sums = dict.fromkeys(weights, (zero, zero))
    metrics, overflows = dict[str, tuple[Array, Array]](), []
    for shared in model.parts:  # type: ignore[attr-defined]
        part = shared.part
        if part.name not in own:
            continue
        num = own[part.name]["targets"].shape[1]
        of_terms = {k: weights[part.rename(k)][:, :num] for k in part.spec.terms}
        one: Batch = own[part.name] | {"weights": of_terms}
        network = shared.network
        if states is not None:
            length = one.get("dec_inputs", one["inputs"]).shape[1]
            network = shared_pass.Reader(shared, states[:, :length])
            overflows.append(network.overflows)
        objective = part.objective
        found, more = objective.loss(params, network, one, objective.masks(one), rngs)
        terms |= {part.rename(name): pair for name, pair in found.items()}
        if "overflow" in more:
            overflows.append([more.pop("overflow")])
        metrics |= {part.rename(name): pair for name, pair in more.items()}
    left_out = [{"overflow": pair} for pairs in overflows for pair in pairs]
    return terms, metrics | (functools.reduce(add, left_out) if left_out else {})


train_step = make_train_step(corrupt, masks, loss)
