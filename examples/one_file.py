"""Masked language modelling in one file: from a text to a filled mask.

    python examples/one_file.py my.txt "the [MASK] of"

No config, no loop class: the parts of jaxpt in the order in which `jaxpt train` uses
them. The losses are those of `jaxpt train` with the same settings, bit for bit
(tests/test_one_file.py).

    text -> tokens -> rows -> corrupt -> masks -> loss -> update -> fill
"""

import sys
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.learn.optimizer import make_optimizer
from jaxpt.learn.state import TrainState, make_state
from jaxpt.learn.update import Update
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.network import Network
from jaxpt.objectives import mlm
from jaxpt.ops import edits, losses, masks
from jaxpt.rng import split_step, stream
from jaxpt.text.dataset import Split, load_text
from jaxpt.text.feed import Feed, FeedSpec
from jaxpt.text.phases import make_phases
from jaxpt.text.rows.forms import make_rows
from jaxpt.text.rows.rows_spec import RowsSpec
from jaxpt.text.text_spec import TextSpec
from jaxpt.text.tokens.tokenizer import Tokenizer, TokenizerSpec
from jaxpt.text.tokens.vocab import Vocab

SEED = 0
STEPS, BATCH_SIZE, ROW_LENGTH = 200, 16, 64  # B and R: tokens of a row
MODEL = {"num_layers": 2, "d_model": 64, "num_heads": 4, "d_ff": 192, "max_len": 64}
OPTIM = OptimSpec(name="adamw", lr=3e-3, warmup_steps=20)
SPEC = mlm.Spec(row_length=ROW_LENGTH, mask_rate=0.15)


def read(path: str) -> tuple[Tokenizer, dict[str, Split]]:
    """Characters as tokens; the ids of the text are stored once, on disk."""
    tokenizer = TokenizerSpec(kind="char", specials=("mask",))
    return load_text(TextSpec(path=path, tokenizer=tokenizer))


def make_feed(train: Split, vocab: Vocab, num_steps: int) -> Feed:
    """`feed[step]`: {"tokens": int32 [B, R], "index": int32 [B]}, no iterator state."""
    form = RowsSpec(ROW_LENGTH, seed=SEED)
    rows = [make_rows(part, form, vocab) for part in train.parts]
    spec = FeedSpec(make_phases(num_steps, 1, BATCH_SIZE), SEED)
    return Feed(list(zip(rows, train.fractions, strict=True)), spec)


def masked_loss(params, batch: dict, rngs: dict, model: Network) -> tuple[dict, dict]:
    """Cross-entropy at the P masked positions, which alone meet the vocabulary.

    As `mlm.loss`, without its metrics. Losses are (sum, weight); dividing comes last.
    """
    attn_masks = {"self": masks.segments(batch.get("segment_ids"))}  # all see all

    def predict(model: Network) -> losses.Scores:
        states_BTD = model.batch_states(batch, attn_masks, deterministic=True)
        states_BPD = edits.gather(states_BTD, batch["masked_positions"])
        return model.score(states_BPD, batch["targets"], batch["weights"]["loss"])

    scores = model.apply({"params": params}, rngs=rngs, method=predict)
    return {"loss": scores.loss}, {}


def train(feed: Feed, vocab: Vocab, num_steps: int) -> Iterator[tuple]:
    """Yields the network, its parameters after each step, and the loss of the step."""
    spec = ModelSpec(vocab_size=vocab.size, **MODEL)
    model = SPEC.make_network(spec, vocab)
    optim = OPTIM.scale_rates(spec.d_model, BATCH_SIZE * ROW_LENGTH)
    optimizer = make_optimizer(optim, num_steps)
    update = Update(optimizer)

    @jax.jit
    def init() -> TrainState:
        return make_state(model.init_params(stream(SEED, 0, "init")), optimizer)

    @jax.jit
    def train_step(state: TrainState, rows: dict) -> tuple[TrainState, dict]:
        rngs = split_step(stream(SEED, state.step, "train"))  # a function of the step
        batch = mlm.corrupt(rngs["corrupt"], rows, vocab, SPEC)

        def loss_fn(params, batch, rngs):
            return masked_loss(params, batch, rngs, model)

        return update(state, batch, loss_fn, rngs, {"loss": 1.0})

    state = init()
    for step in range(num_steps):
        state, metrics = train_step(state, feed[step])
        total, weight = metrics["loss"]
        yield model, state.params, float(total) / float(weight)


def fill(model: Network, params: dict, tokenizer: Tokenizer, text: str) -> str:
    """The text with the likeliest ordinary token in place of each [MASK]."""
    ids = tokenizer.encode_prompt(text)
    logits_TV = model.fill_logits(params, jnp.asarray(ids)[None])[0]
    words = np.asarray(tokenizer.vocab.ordinary_ids)
    best = words[np.asarray(logits_TV)[:, words].argmax(-1)]
    is_mask = ids == tokenizer.vocab.require("mask")
    return tokenizer.decode(np.where(is_mask, best, ids))


def main(path: str, text: str) -> None:
    """Trains on a text file, prints losses, and fills the masks of a text."""
    tokenizer, corpora = read(path)
    feed = make_feed(corpora["train"], tokenizer.vocab, STEPS)
    for step, (model, params, loss) in enumerate(train(feed, tokenizer.vocab, STEPS)):
        if (step + 1) % 20 == 0:
            print(f"step {step + 1}: loss {loss:.4f}")
    print(fill(model, params, tokenizer, text))


if __name__ == "__main__":
    main(*sys.argv[1:])
