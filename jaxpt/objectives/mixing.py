"""How the objectives of a mixture share one network and one pass of it.

parts            -> find_network   the class that all train; refuses what cannot share
rows of a batch  -> assign         the part of each row, in exact numbers
states of a pass -> Reader         each part's own `loss`, on the positions of its rows
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxpt.by_name import load_place
from jaxpt.dims import Batch, Rows
from jaxpt.nn.networks.one_stack import CausalLM
from jaxpt.objectives.objective import Objective, get_scored, get_segments
from jaxpt.objectives.spec import Needs, ObjectiveSpec, Predictions
from jaxpt.ops import edits
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.packing import PredictionCounts, exactly, mix
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.text_form import TextForm


class CausalPrefixLM(CausalLM):
    """A causal model of which some rows in training have a prefix that is seen by all.

    Texts are scored, continued and read causally.
    """

    READS_AHEAD = True


HERE, ONE = "jaxpt.objectives.mixing", "jaxpt.nn.networks.one_stack"
BOTH, DUAL = f"{ONE}:CausalMaskedLM", "jaxpt.objectives.dual:DualLM"
FIM = "jaxpt.objectives.fill_in_the_middle:FillInTheMiddleLM"
DIFFUSION = "jaxpt.nn.networks.diffusion:DiffusionLM"
# The class of network that trains parts of these classes.
JOINED = {
    frozenset(names.split()): place
    for names, place in {
        "CausalLM": f"{ONE}:CausalLM",
        "MaskedLM": f"{ONE}:MaskedLM",
        "PrefixLM": f"{ONE}:PrefixLM",
        "DiffusionLM": DIFFUSION,
        "FillInTheMiddleLM": FIM,
        "EncoderDecoder": "jaxpt.nn.networks.encoder_decoder:EncoderDecoder",
        "CausalLM MaskedLM": BOTH,
        "CausalLM DiffusionLM": DUAL,
        "CausalLM MaskedLM DiffusionLM": DUAL,
        "CausalLM PrefixLM": f"{HERE}:CausalPrefixLM",
        "CausalLM PrefixLM MaskedLM": BOTH,
        "CausalLM PrefixLM DiffusionLM": DUAL,
        "CausalLM PrefixLM MaskedLM DiffusionLM": DUAL,
        "CausalLM FillInTheMiddleLM": FIM,
        "MaskedLM DiffusionLM": DIFFUSION,
    }.items()
}
# Networks that predict a token at its own position, and those of mixtures.
IN_PLACE = ("MaskedLM", "DiffusionLM")
MIXED = ("CausalMaskedLM", "DualLM")
SAME = {"TwicePassedLM": "CausalLM"}  # but for its FLOPs in several passes


@dataclasses.dataclass(frozen=True)
class MixedPart:
    """An objective of a mixture.

    Attributes:
      has_decoder: whether the model has a decoder.
      is_moved: it predicts tokens in place, others at the position before, and so all.
    """

    name: str
    objective: Objective
    spec: ObjectiveSpec
    has_decoder: bool = False
    is_moved: bool = False

    @property
    def kind(self) -> type:
        """The class of its network, with another number of stacks if need be."""
        kinds = (self.spec.kind(n) for n in (self.has_decoder, not self.has_decoder))
        return next(kind for kind in kinds if kind)

    @property
    def has_two_stacks(self) -> bool:
        """Whether that has an encoder and a decoder."""
        return bool(self.kind.HAS_DECODER)  # type: ignore[attr-defined]

    @property
    def network(self) -> str:
        """The name of the class, as `JOINED` has it."""
        name = self.kind.__name__
        return SAME.get(name, name)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The positions of each stack."""
        return tuple(n - self.is_moved for n in self.spec.lengths.values())

    def corrupt(self, rng: Array, rows: Rows, vocab: Vocab) -> Batch:
        """The batch of the objective's `corrupt`, moved if its predictions are."""
        if not self.is_moved:
            return self.objective.corrupt(rng, rows, vocab, self.spec)
        rows = leave_out_first(rows)
        return move_back(self.objective.corrupt(rng, rows, vocab, self.spec))

    def mix_laws(self, share: float) -> dict[str, PredictionCounts]:
        """By loss terms, the number of predictions in a row that may be another's."""

        def dilute(law: PredictionCounts) -> PredictionCounts:
            return mix([(share, law), (1 - share, exactly(0))])

        own: Predictions = self.spec.predictions
        laws = own.laws or {"+".join(self.spec.terms): exactly(own.most)}
        return {name: dilute(law) for name, law in laws.items()}

    def rename(self, term: str) -> str:
        """A name of the mixture: "clm_loss", or of several terms "clm_a+clm_b"."""
        return "+".join(f"{self.name}_{each}" for each in term.split("+"))


def find_network(parts: Sequence[MixedPart]) -> tuple[type, str]:
    """The class of network that all parts train, or why two of them share none."""
    place = JOINED.get(frozenset(part.network for part in parts))
    for i, one in enumerate(parts):
        for two in parts[i + 1 :]:
            if reason := explain(one, two, is_joined=place is not None):
                return object, f"{one.name} and {two.name} do not, as {reason}"
    return load_place(place or JOINED[frozenset(("CausalLM",))]), ""


def explain(one: MixedPart, two: MixedPart, is_joined: bool = False) -> str:
    """Why two objectives cannot share a pass of a network; "" if they can.

    Args:
      is_joined: there is a network for both and their other parts.
    """
    for part, other in ((one, two), (two, one)):
        if reason := _explain_alone(part):
            return f"{part.name} {reason}"
        if frozenset((part.network,)) not in JOINED:
            network = part.kind.__name__
            return f"{part.name} has a head that {other.name} lacks ({network})"
    for part, other in ((one, two), (two, one)):
        if part.has_two_stacks < other.has_two_stacks:
            return f"{part.name} has one stack, {other.name} an encoder and a decoder"
    if is_joined or frozenset((one.network, two.network)) in JOINED:
        return ""
    for part, other in ((one, two), (two, one)):
        if part.network in IN_PLACE and other.network not in IN_PLACE:
            return (
                f"{part.name} predicts a token at its own position, {other.name} at "
                f"the one before"
            )
    return f"no network answers as {one.network} and {two.network} do"


def _explain_alone(part: MixedPart) -> str:
    """Why an objective is not a part of any mixture."""
    spec, needs = part.spec, part.spec.needs
    if name := spec.lone_setting:
        return f"has {spec.full_name(name)}={getattr(spec, name)}"
    if type(spec).init_state is not ObjectiveSpec.init_state:
        return "keeps a state from step to step"
    if needs.teacher is not None:
        return "learns from another run"
    if needs.rows:
        return f"needs rows of {' or '.join(needs.rows)}"
    if part.kind.__name__ in MIXED:
        return "is itself a mixture, whose parts can be named"
    if len(spec.lengths) != 1 + part.has_two_stacks:
        return f"reads a row in several passes ({', '.join(spec.lengths)})"
    return ""


def move_parts(parts: Sequence[MixedPart]) -> tuple[MixedPart, ...]:
    """The parts, those in place moved if others predict at the position before."""
    is_mixed = len({part.network in IN_PLACE for part in parts}) > 1
    return tuple(
        dataclasses.replace(part, is_moved=is_mixed and part.network in IN_PLACE)
        for part in parts
    )


def leave_out_first(rows: Rows) -> Rows:
    """Rows of which the first token of each document is neither hidden nor predicted.

    >>> rows = {"tokens": jnp.ones((1, 4)), "segment_ids": jnp.array([[1, 1, 2, 2]])}
    >>> leave_out_first(rows)["answers"].tolist()
    [[0, 1, 0, 1]]
    """
    segments = get_segments(rows)
    follows = jnp.pad(segments[:, 1:] == segments[:, :-1], ((0, 0), (1, 0)))
    is_scored = follows & (get_scored(rows) > 0)
    return rows | {"answers": is_scored.astype(jnp.int32)}


def move_back(batch: Batch) -> Batch:
    """A batch whose tokens are predicted at the position before their own.

    The last token is then no input.
    """
    inputs = {k: batch[k][:, :-1] for k in ("inputs", "segment_ids") if k in batch}
    rest = {k: v for k, v in batch.items() if k not in (*inputs, "index")}
    if "masked_positions" in rest:
        rest["masked_positions"] = jnp.maximum(batch["masked_positions"] - 1, 0)
    else:
        rest = jax.tree.map(lambda x: x[:, 1:], rest)
    return {"index": batch["index"]} | inputs | rest  # type: ignore[return-value]


def keep_own(batch: Batch, is_own: Bool[Array, "B"]) -> Batch:
    """The batch of a part, of which rows of other parts have weight 0."""

    def keep(x: Array) -> Array:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return x * is_own.reshape(-1, *[1] * (x.ndim - 1))

    kept: Batch = jax.tree.map(keep, batch)
    return kept


def join_batches(
    parts: Sequence[MixedPart],
    batches: Sequence[Batch],
    kind: Int[Array, "B"],
    lengths: Sequence[int],
) -> Batch:
    """The batch of a mixture, from those of its parts on the same rows.

    Args:
      batches: of which rows of other parts have weight 0 (`keep_own`).
      kind: the part of each row.
      lengths: positions [T] of each stack.
    """
    batch: Batch = {}
    for own in reversed(batches):
        batch |= own
    pairs = list(zip(parts, batches, strict=True))
    batch |= merge(batches, kind, parts, lengths)
    batch["kind"] = kind
    batch["weights"] = {
        part.rename(name): pad_weights(own, weights, lengths[-1])
        for part, own in pairs
        for name, weights in own["weights"].items()
    }
    batch["parts"] = {part.name: drop_weights(own) for part, own in pairs}
    return batch


def merge(
    batches: Sequence[Batch],
    kind: Int[Array, "B"],
    parts: Sequence[MixedPart],
    lengths: Sequence[int],
) -> Batch:
    """What the network reads, and the targets: of each row, those of its part.

    Rows of a shorter part are padded to the lengths [T] of the stacks. `is_prefix` is
    added if the parts attend in several directions.
    """

    def choose(arrays: Sequence[Array], length: int) -> Array:
        result, *others = (
            jnp.pad(x, ((0, 0), (0, length - x.shape[1]))) for x in arrays
        )
        for k, other in enumerate(others, 1):
            result = jnp.where((kind == k)[:, None], other, result)
        return result

    merged: dict[str, Array] = {}
    prefixes = ("", "dec_")[: len(lengths)]
    needs_ids = any("segment_ids" in batch for batch in batches)
    for prefix, length in zip(prefixes, lengths, strict=True):
        inputs = [batch[f"{prefix}inputs"] for batch in batches]  # type: ignore[literal-required]
        merged[f"{prefix}inputs"] = choose(inputs, length)
        needs_ids |= any(x.shape[1] < length for x in inputs)
    for prefix, length in zip(prefixes, lengths, strict=True):
        ids: list[Any] = [
            batch.get(f"{prefix}segment_ids", jnp.ones_like(batch[f"{prefix}inputs"]))  # type: ignore[literal-required]
            for batch in batches
        ]
        if needs_ids:
            merged[f"{prefix}segment_ids"] = choose(ids, length)
    merged["targets"] = choose([spread_targets(b) for b in batches], lengths[-1])
    if len(lengths) == 1:
        own = [
            part.objective.masks(batch)["self"]
            for part, batch in zip(parts, batches, strict=True)
        ]
        shapes = [batch["inputs"].shape for batch in batches]
        if visible := combine_masks(own, shapes):
            merged["is_prefix"] = choose(visible, lengths[0])
    return merged  # type: ignore[return-value]


def spread_targets(batch: Batch) -> Int[Array, "B T"]:
    """The targets of a batch, at the positions that predict them."""
    if "masked_positions" not in batch:
        return batch["targets"]
    (weights,) = batch["weights"].values()
    row = jnp.zeros_like(batch["inputs"])
    put = jax.vmap(edits.put)
    return put(row, batch["masked_positions"], batch["targets"], weights)


def combine_masks(
    own: Sequence[attention_masks.AttnMask], shapes: Sequence[tuple[int, ...]]
) -> list[Array] | None:
    """Of each part's mask, which inputs are visible to their whole document.

    None if the masks of all parts are equal but for their documents.

    Args:
      own: masks that are full or causal, the latter with a prefix or without.
      shapes: [B, T] of each part.
    """
    if len({mask.causal for mask in own}) == 1:
        if all(mask.prefix_keys is None for mask in own):
            return None
    return [
        jnp.full(shape, not mask.causal)
        if mask.prefix_keys is None
        else mask.prefix_keys
        for mask, shape in zip(own, shapes, strict=True)
    ]


def pad_weights(batch: Batch, weights: Float[Array, "B L"], length: int) -> Array:
    """The weights of a part at all positions of its rows, if it predicts at each."""
    if "masked_positions" in batch:
        return weights
    return jnp.pad(weights, ((0, 0), (0, length - weights.shape[1])))


def drop_weights(batch: Batch) -> Batch:
    """The batch of a part without its weights, which are those of the mixture."""
    return {k: v for k, v in batch.items() if k != "weights"}  # type: ignore[return-value]


def join_needs(parts: Sequence[MixedPart]) -> Needs:
    """All that any part needs."""
    needs = [part.spec.needs for part in parts]
    return Needs(
        specials=tuple(dict.fromkeys(role for n in needs for role in n.specials)),
        num_sentinels=max(n.num_sentinels for n in needs),
        word_starts=next((n.word_starts for n in needs if n.word_starts), ""),
        pieces=any(n.pieces for n in needs),
        counts=any(n.counts for n in needs),
        sentence_ids=any(n.sentence_ids for n in needs),
        asked_by=next((n.asked_by for n in needs if n.asked_by), ""),
        num_types=max(n.num_types for n in needs),
    )


def join_forms(
    parts: Sequence[MixedPart], shares: Sequence[float], vocab: Vocab
) -> TextForm:
    """How text is written: as for the first part, with the first gap of any part.

    Args:
      shares: of the rows of training.
    """
    first, *others = (part.spec.text_form(vocab) for part in parts)
    gaps = [form for form in (first, *others) if form.gap]
    if gaps and not first.gap:
        gap, ends, mark = gaps[0].gap, gaps[0].gap_ends, gaps[0].mark
        first = dataclasses.replace(first, gap=gap, gap_ends=ends, mark=mark)
    if len({part.network for part in parts}) == 1:
        return first
    pairs = zip(shares, parts, strict=True)
    listed = ", ".join(f"{share:g} {part.name}" for share, part in pairs)
    note = (
        f"Trained as a mixture of objectives, with these shares of the rows: {listed}."
    )
    if any(part.is_moved for part in parts):
        note += (
            " In rows with [MASK] every token attended to all and each masked token "
            "was predicted at the position before it. To fill a [MASK], let all "
            "positions attend to all."
        )
    return dataclasses.replace(first, mask_note=note)
