"""Block diffusion: masked diffusion within a block, given the blocks before it.

BD3-LM (Arriola et al. 2025, arXiv 2503.09573); kuleshov-group/bd3lms. A text is cut
into blocks of `block_size` tokens. Each block has a mask rate t, uniform in (0, 1]; its
masked tokens are predicted from the rest of the block and from the clean blocks before
it. To train all blocks in one pass, the network reads the row twice, noised and clean:

    half     tokens             attends to
    noised   the [M] | [M] [M]  its own block, and the clean half of earlier blocks
    clean    the cat | sat on   its own block and earlier blocks, all clean

    loss = mean over i of [i is masked] / t * -log p(x_i | noised block, earlier blocks)

The loss is read in the noised half, at the masked tokens. Its expectation is an upper
bound of -log p of the text. With one block for the whole row it is the loss of
`masked_diffusion`. With blocks of one token and t = 1 it is exactly -log p from left to
right, read at each token's own [MASK]. Positions are those of the text in both halves.
Text is written block by block, and each block by unmasking.

The layers compute twice the positions of a row, the vocabulary head those of one half.
The controls are the two limits at equal FLOPs.

A causal model (`train.init_from`) becomes a block diffusion model with blocks that grow
from one token, in which every token attends to its past only:

    block_schedule=((0.25, 1), (0.5, 2)) and block_size=4    blocks of 1, then 2, then 4

In evaluation, blocks have `block_size` tokens. A token is predicted at its own [MASK],
a causal model predicts it one position before: the first steps learn the difference.

Departures: bd3lms also chooses a narrower range of rates by the variance of the loss,
and never masks the first token; here rates have the whole range, and all tokens but
special ones may be masked. Attention takes the mask as an array, without a fused
kernel. Writing reads the whole text at every step, without a cache.

Controls: `block_size=1`, one token a block; `masked_diffusion`, one block a text.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.dims import Batch, Rows
from jaxpt.errors import ConfigError
from jaxpt.nn import flops
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.diffusion import DiffusionLM, bound_nll
from jaxpt.objectives import masked_diffusion
from jaxpt.objectives.masked_diffusion import spread_evenly
from jaxpt.objectives.objective import (
    Masks,
    get_scored,
    get_segments,
    keep_keys,
    make_train_step,
)
from jaxpt.objectives.spec import Predictions
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.packing import add, uniform_rate
from jaxpt.ops.segments import segment_positions
from jaxpt.rng import row_keys
from jaxpt.setting_types import Fraction, PositiveInt, Rule, is_schedule
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.text_form import TextForm

if TYPE_CHECKING:
    from jaxpt.nn.networks.abilities import Gap
    from jaxpt.nn.networks.network import Network

# Spreads the rates of a row's blocks evenly: the fraction of another irrational number
# than `masked_diffusion.GOLDEN`, which spreads those of the rows.
SILVER = 2**0.5 - 1
ROUNDING = 5e-7  # of progress, a float32


class BlockDiffusionLM(DiffusionLM):
    """A masked model in which blocks of tokens attend to themselves and to the past."""

    block_size: int = 1

    @property
    def feature_mask(self) -> attention_masks.Mask:
        """As clean text is read in training."""
        return attention_masks.causal_blocks(self.block_size)

    def task_mask(self, batch: dict) -> attention_masks.Mask:
        """As clean text is read in training."""
        return attention_masks.causal_blocks(self.block_size, batch["segment_ids"])

    def fill_logits(self, params: Any, tokens: Array) -> Array:
        """From the block of a [MASK] and the blocks before it."""
        return self._logits(params, tokens, self.feature_mask)

    def target_log_probs(
        self, params: Any, batch: dict, view: str, with_ranks: bool = False
    ) -> Any:
        """From the block of a [MASK] and the blocks before it.

        In the view "blocks", every block is noised after the clean ones before it.
        """
        attn_masks = {"self": self.task_mask(batch)}
        if view == "blocks":
            numbers = self._number_blocks(batch["inputs"])
            noised: Batch = {**batch, "blocks": numbers}  # type: ignore[typeddict-item]
            attn_masks = masks(noised)
        return self._target_log_probs(params, batch, attn_masks, with_ranks)

    def _number_blocks(self, tokens: Array) -> Array:
        """The number of each token's block [B, T] in rows that are one text each."""
        places = jnp.arange(tokens.shape[1]) // self.block_size
        return jnp.broadcast_to(places, tokens.shape)

    def batch_states(
        self, batch: Mapping[str, Any], masks: Masks, *, deterministic: bool
    ) -> Array:
        """Of a batch with `original`, which is read twice, those of the noised half."""
        if "original" not in batch:
            return super().batch_states(batch, masks, deterministic=deterministic)
        positions = segment_positions(find_documents(batch))
        halves = [
            self.embed(batch[key], positions, deterministic=deterministic)
            for key in ("inputs", "original")
        ]
        states, _ = self.encoder(
            self._project(jnp.concatenate(halves, axis=1)),
            jnp.concatenate([batch["inputs"], batch["original"]], axis=1),
            masks["self"],
            position_ids=jnp.concatenate([positions, positions], axis=1),
            deterministic=deterministic,
            num_copies=2,
        )
        return states[:, : positions.shape[1]]

    def read_noised(self, params: Any, noised: Array, tokens: Array) -> Array:
        """-log p [B, T] of each token of a text, given the noised one."""
        blocks = self._number_blocks(tokens)
        batch: Batch = {"inputs": noised, "original": tokens, "blocks": blocks}

        def predict(model: BlockDiffusionLM) -> Array:
            states = model.batch_states(batch, masks(batch), deterministic=True)
            return model.nll(states, tokens)

        return self.apply({"params": params}, method=predict)

    def nll_bound(
        self, params: Any, tokens: Array, is_text: Array, rngs: Array
    ) -> Array:
        """The sum of the bounds of all blocks, each with its own draws."""
        count, length = tokens.shape
        num = -(-length // self.block_size)

        def cut(x: Array) -> Array:
            padded = jnp.pad(x, ((0, 0), (0, num * self.block_size - length)))
            return padded.reshape(count * num, self.block_size)

        def join(x: Array) -> Array:
            return x.reshape(count, -1)[:, :length]

        def read(blocks: Array) -> Array:
            return cut(self.read_noised(params, join(blocks), tokens))

        fold = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))
        keys = fold(rngs, jnp.arange(num)).reshape(-1)
        samples = self.mask_id, self.bound_samples
        return join(bound_nll(read, cut(tokens), cut(is_text), keys, *samples))

    def choice_scores(self, params: Any, gap: "Gap") -> Array:
        """log p of a candidate in its block, and of the masked blocks after it.

        With blocks of one token it is the likelihood of the text, with one block the
        probability of the candidate at a [MASK].
        """
        places, position = jnp.arange(gap.tokens.shape[1]), gap.positions[:, None]
        is_later = places // self.block_size > position // self.block_size
        is_read = (places == position) | is_later

        def score(tokens: Array) -> Array:
            noised = jnp.where(is_read, self.mask_id, tokens)
            nll = self.read_noised(params, noised, tokens)
            return -jnp.where(is_read, nll, 0).sum(1)

        return gap.score_each(score)

    def count_flops(self, lengths: dict[str, int], num_predictions: float) -> float:
        """Of both halves, which are one sequence with the distances of one half."""
        whole = sum(lengths.values())
        total = super().count_flops({"encoder": whole}, num_predictions)
        one, both = (
            flops.distance_flops(self.spec, self.spec.num_layers, length)
            for length in (whole // 2, whole)
        )
        return total + flops.TRAIN_FACTOR * (2 * one - both)


@dataclasses.dataclass(frozen=True)
class Spec(masked_diffusion.BoundSpec):
    """The blocks; their rates and the bound as in `masked_diffusion`.

    Attributes:
      block_size: tokens of a block; the last block of a text may be shorter.
      block_schedule: pairs (until, size): until this fraction of the training, blocks
        have `size` tokens, as in ((0.25, 1), (0.5, 2)); then `block_size`.
    """

    SECTION: ClassVar[str] = "block_diffusion"
    NETWORKS: ClassVar = (BlockDiffusionLM,)
    READS: ClassVar = masked_diffusion.BoundSpec.READS | {"progress"}

    block_size: PositiveInt = 4
    block_schedule: Annotated[
        tuple[tuple[Fraction, PositiveInt], ...],
        Rule(
            is_schedule,
            "pairs (until, size) such as ((0.5, 1),): until above 0, increasing, at "
            "most 1; size at least 1",
        ),
    ] = ()

    def sizes_at(self, progress: Array) -> Array:
        """The size of blocks after each fraction of the training.

        >>> spec = Spec(8, block_size=4, block_schedule=((0.25, 1), (0.5, 2)))
        >>> spec.sizes_at(jnp.array([0.0, 0.25, 0.4, 0.5, 1.0])).tolist()
        [1, 2, 2, 4, 4]
        """
        sizes = jnp.full_like(progress, self.block_size, jnp.int32)
        for until, size in reversed(self.block_schedule):
            sizes = jnp.where(progress < until - ROUNDING, size, sizes)
        return sizes

    @property
    def lengths(self) -> dict[str, int]:
        """Of the two halves."""
        return {"noised": self.row_length, "clean": self.row_length}

    @property
    def predictions(self) -> Predictions:
        """As in blocks with independent rates; a batch's sum varies less.

        The number varies most in the largest blocks.
        """
        sizes = self.block_size, *(size for _, size in self.block_schedule)
        size = min(max(sizes), self.row_length)
        num, rest = divmod(self.row_length, size)
        laws = [uniform_rate(size, self.min_rate)] * num
        laws += [uniform_rate(rest, self.min_rate)] * (rest > 0)
        return Predictions(self.row_length, {"loss": add(laws)})

    def controls(self) -> dict[str, dict[str, Any]]:
        if self.block_schedule:
            return {"at_once": {self.SECTION: {"block_schedule": ()}}}
        controls: dict[str, dict[str, Any]] = {
            "masked_diffusion": {"objective": "masked_diffusion"}
        }
        if self.block_size > 1:
            controls["one-token"] = {self.SECTION: {"block_size": 1}}
        return controls

    def text_form(self, vocab: Vocab) -> TextForm:
        note = (
            f"Trained with blocks of {self.block_size} tokens: a token attended to its "
            "block and to the blocks before it. Use this mask for all text."
        )
        form = super().text_form(vocab)
        return dataclasses.replace(form, block_size=self.block_size, mask_note=note)

    def make_network(
        self, model_spec: ModelSpec, vocab: Vocab, **fields: Any
    ) -> "Network":
        refused = (
            ("smear", model_spec.smear, "False"),
            ("window", model_spec.window > 0, "0"),
            ("token_dropout", model_spec.token_dropout >= 0, "-1"),
        )
        for name, is_set, allowed in refused:
            if is_set:  # a token's neighbours are not all next to it in the array
                raise ConfigError(
                    f"model.{name}={getattr(model_spec, name)}: must be {allowed} for "
                    f"block_diffusion, which reads the noised and the clean tokens of "
                    f"a row as one row"
                )
        fields |= {"block_size": self.block_size}
        return super().make_network(model_spec, vocab, **fields)


def find_documents(batch: Mapping[str, Any]) -> Array:
    """The segment ids [B, R] of a batch; all 1 if a row is one text."""
    return batch.get("segment_ids", jnp.ones_like(batch["inputs"]))


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Masks each ordinary token with the probability of its block.

    >>> rows = {"tokens": jnp.array([[7, 8, 9]]), "index": jnp.array([0])}
    >>> spec = Spec(row_length=3, block_size=2, min_rate=0.999)
    >>> batch = corrupt(jax.random.key(0), rows, Vocab(size=10, mask=4), spec)
    >>> [batch[key].tolist() for key in ("inputs", "original", "blocks")]
    [[[4, 4, 4]], [[7, 8, 9]], [[0, 0, 1]]]
    """
    rng_rate, rng_mask = jax.random.split(rng)
    is_special, mask_id = jnp.asarray(vocab.is_special), vocab.require("mask")
    tokens, segments = rows["tokens"], get_segments(rows)
    places, size = segment_positions(segments), jnp.int32(spec.block_size)
    if "progress" in rows and spec.block_schedule:  # absent in evaluation
        size = spec.sizes_at(rows["progress"])[:, None]
    is_first = (places % size == 0).astype(jnp.float32)
    number = jnp.cumsum(is_first, axis=1)  # of a row's blocks
    spread = spread_evenly(rng_rate, rows["index"])[:, None] + number * SILVER
    rates = spec.min_rate + (1 - spec.min_rate) * (spread % 1)
    keys = row_keys(rng_mask, rows["index"])
    draws = jax.vmap(lambda key: jax.random.uniform(key, tokens.shape[1:]))(keys)
    is_text = (get_scored(rows) > 0) & ~is_special[tokens]
    noise_mask = is_text & (draws < rates)
    return keep_keys(rows) | {
        "inputs": jnp.where(noise_mask, mask_id, tokens),
        "original": tokens,
        "targets": tokens,
        "blocks": places // size,
        "inverse_rates": noise_mask / rates,
        "weights": {"loss": is_text.astype(jnp.float32)},
    }


def masks(batch: Batch) -> Masks:
    """Noised tokens see their noised block and the clean past, clean ones the clean.

    Four tokens in blocks of two, noised and clean:

    >>> blocks = jnp.array([[0, 0, 1, 1]])
    >>> mask = masks({"inputs": blocks, "blocks": blocks})["self"][0, 0].astype(int)
    >>> ["".join(map(str, row)) for row in mask[::2].tolist()]
    ['11000000', '00111100', '00001100', '00001111']
    """
    blocks, documents = (
        jnp.concatenate([x, x], axis=1)
        for x in (batch["blocks"], find_documents(batch))
    )
    is_clean = jnp.arange(blocks.shape[1]) >= batch["blocks"].shape[1]
    query, key = blocks[:, :, None], blocks[:, None, :]
    sees_noised = ~is_clean[:, None] & ~is_clean & (query == key)
    # Clean tokens see their own clean block, too.
    sees_clean = is_clean & (key < query + is_clean[:, None])
    is_same = documents[:, :, None] == documents[:, None, :]
    is_same &= documents[:, :, None] > 0
    return {"self": ((sees_noised | sees_clean) & is_same)[:, None]}


loss = masked_diffusion.loss
train_step = make_train_step(corrupt, masks, loss)
