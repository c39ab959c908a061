"""What the tests of the objectives share: a vocabulary, rows, and small models."""

import dataclasses
import functools
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny import MODELS, VARIANTS

from jaxpt.learn.state import make_state
from jaxpt.learn.update import Update
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.objectives import OBJECTIVES, objective
from jaxpt.rng import split_step
from jaxpt.text.tokens.vocab import Vocab

SEQ_LEN = 20
# Ids 7 to 31 are ordinary, 32 to 34 modes, 39 down to 35 sentinels; each is a word.
VOCAB = Vocab(
    size=40,
    pad=0,
    unk=1,
    cls=2,
    sep=3,
    mask=4,
    bos=5,
    eos=6,
    word_starts=(True,) * 40,
    nlu=32,
    nlg=33,
    s2s=34,
    sentinels=tuple(range(39, 34, -1)),
    pieces=tuple(f"w{i}".encode() for i in range(40)),
    counts=tuple(range(1, 41)),
)
# Of an objective for which tokens must be prefixes of others: numbers in binary.
PREFIXES = dataclasses.replace(
    VOCAB, pieces=tuple(f"{i:b}".encode() for i in range(40))
)
MODEL = ModelSpec(
    vocab_size=40, num_layers=1, d_model=32, num_heads=2, d_ff=64, max_len=32
)
# Settings that an objective's case has otherwise.
SETTINGS = {
    # Spans that leave room for an edge on either side, and for several, in short rows.
    "spanbert": {"mask_rate": 0.3, "max_span_length": 2, "place_width": 8},
    # T5's own numbers give one span, always the last.
    "span_corruption": {"noise_density": 0.3, "mean_span_length": 2.0},
    "skip_gram": {"subsample": 0.02},
    # The covariance of predictions is 0 at first, when they are.
    "latent_prediction": {"horizon": 4, "covariance_weight": 0.0},
    "future_summary": {"horizon": 4},  # within documents of ten tokens
    "bilm": {"num_chars": 6, "char_width": 4, "filters": (4, 8, 4)},
}
# What rows carry for an objective that needs it, from their tokens.
CARRIED = {
    "type_ids": lambda tokens: (
        (np.arange(tokens.size) % tokens.shape[1] > 8)
        .reshape(tokens.shape)
        .astype(np.int32)
    ),
    "is_random_next": lambda tokens: np.arange(len(tokens), dtype=np.int32) % 2,
    "sentence_ids": lambda tokens: np.tile(
        np.arange(tokens.shape[1], dtype=np.int32) // 3 + 1, (len(tokens), 1)
    ),
    "is_swapped": lambda tokens: np.arange(len(tokens), dtype=np.int32) // 2 % 2,
}
# How far parameters are drawn apart: where no norm makes up for it, further.
SPREADS = {"bilm": 0.3}


def carry(spec, tokens):
    """The keys of rows that a spec needs, except the tokens."""
    return {key: CARRIED[key](np.asarray(tokens)) for key in needed_keys(spec)}


def needed_keys(spec):
    """Keys of rows that a spec requires, except "tokens" and "index"."""
    form = {"pairs": "is_random_next", "ordered_pairs": "is_swapped"}
    keys = [key for rows in spec.needs.rows for key in ("type_ids", form[rows])]
    return keys + ["sentence_ids"] * spec.needs.sentence_ids


def vocab_of(module):
    """The vocabulary of an objective's cases."""
    return PREFIXES if module.Spec.SECTION == "prefix_token" else VOCAB


def module_of(name):
    """The module of an objective, or of a variant of one."""
    objective, _ = VARIANTS.get(name, (name, {}))
    return OBJECTIVES[objective]


@dataclasses.dataclass(frozen=True)
class Case:
    """An objective with a small model."""

    module: ModuleType
    spec: Any
    model_spec: ModelSpec
    model: Any
    params: Any

    def corrupt(self, rows, seed=0):
        """The batch of rows, compiled."""
        return corrupt(self.module, self.spec)(jax.random.key(seed), rows)

    def loss(self, batch, params=None, **rngs):
        """Terms and metrics of a batch, without dropout."""
        params = self.params if params is None else params
        return loss(self.module, self.model)(params, batch, rngs)

    def init_state(self, optimizer, params=None):
        """The state before the first step."""
        params = self.params if params is None else params
        return init_state(self.spec, optimizer, params)

    def make_step(self, optimizer, num_microbatches=1, spec=None):
        """step(state, rows, rng) -> state, metrics, as a run compiles it."""
        update = Update(optimizer, num_microbatches, frozen=self.model.frozen)
        return make_step(self.module, self.model, spec or self.spec, update)

    def evaluate(self, params, rows, rng):
        """The metrics of an evaluation step."""
        return eval_step(self.module, self.model, self.spec)(params, rows, rng)

    def gradients(self, rows, num_microbatches=1, seed=0, spec=None):
        """What one train step hands to its optimizer, and its metrics."""
        step = train_step(self.module, self.model, spec or self.spec, num_microbatches)
        state = self.init_state(KEEP)
        state, metrics = step(state, rows, jax.random.key(seed))
        return state.opt_state.trace, metrics


KEEP = optax.trace(decay=0.0)  # an optimizer whose state is the last gradient


def init_state(spec, optimizer, params, vocab=VOCAB):
    """The state of a run with these parameters before the first step."""
    return make_state(params, optimizer, objective_state=spec.init_state(vocab, params))


def make_step(module, model, spec, update, vocab=None):
    """step(state, rows, rng) of a module, uncompiled."""
    vocab = vocab or vocab_of(module)

    def step(state, rows, rng):
        context = {"model": model, "vocab": vocab, "spec": spec, "update": update}
        return module.train_step(state, rows, split_step(rng), **context)

    return step


@functools.cache
def train_step(module, model, spec, num_microbatches):
    update = Update(KEEP, num_microbatches, frozen=model.frozen)
    return jax.jit(make_step(module, model, spec, update))


@functools.cache
def eval_step(module, model, spec):
    step = functools.partial(objective.eval_step, module)
    vocab = vocab_of(module)
    return jax.jit(functools.partial(step, model=model, vocab=vocab, spec=spec))


@functools.cache
def loss(module, model):
    def run(params, batch, rngs):
        """Terms, and the metrics with them, as a step returns these."""
        terms, metrics = module.loss(params, model, batch, module.masks(batch), rngs)
        return terms, terms | metrics

    return jax.jit(run)


@functools.cache
def corrupt(module, spec):
    vocab = vocab_of(module)
    return jax.jit(lambda rng, rows: module.corrupt(rng, rows, vocab, spec))


def make(name, model_values=(), **settings):
    module, (_, changes) = module_of(name), VARIANTS.get(name, (name, {}))
    spec = module.Spec.for_seq_len(
        SEQ_LEN, **SETTINGS.get(name, {}) | changes | settings
    )
    return make_of_spec(name, model_values, spec)


@functools.cache
def make_of_spec(name, model_values, spec):
    module = module_of(name)
    values = MODELS.get(name, {}) | dict(model_values)
    model_spec = dataclasses.replace(MODEL, **values)
    size = model_spec.vocab_size
    vocab = dataclasses.replace(VOCAB, size=size, counts=tuple(range(1, size + 1)))
    model = spec.make_network(model_spec, vocab)
    # Drawn by NumPy, for compiling `init_params` takes longer than a test.
    draw = np.random.default_rng(0)

    def fill(path, leaf):
        if leaf.ndim == 1:
            return jnp.full(leaf.shape, float(path[-1].key == "scale"))
        spread = SPREADS.get(name, 0.02)
        return jnp.asarray(draw.normal(0, spread, leaf.shape), jnp.float32)

    shapes = jax.eval_shape(model.init_params, jax.random.key(0))
    params = jax.tree_util.tree_map_with_path(fill, shapes)
    return Case(module, spec, model_spec, model, params)


def teach(name, case, rows, seed=3, num_steps=300):
    """The case with a teacher that has overfitted these rows, if it has a teacher.

    The terms pull apart unless the teacher knows the answers, which it learns by what
    would have trained it.
    """
    teacher = case.spec.needs.teacher
    if teacher is None:
        return case
    own = f"{teacher.objective}_weight"
    others = [n for n in vars(case.spec) if n.endswith("_weight") and n != own]
    spec = dataclasses.replace(case.spec, **dict.fromkeys(others, 1e-9))
    # The learning rate ends at 0. At a constant one Adam jumps now and then near zero
    # loss, at steps that depend on how the CPU rounds, and the teacher is as good as
    # its last step.
    optimizer = optax.adam(optax.cosine_decay_schedule(1e-2, num_steps))
    step = case.make_step(optimizer, spec=spec)

    @jax.jit
    def learn(state, rows):
        def body(state, _):
            return step(state, rows, jax.random.key(seed))[0], None

        return jax.lax.scan(body, state, None, num_steps)[0]

    learnt = learn(make_state(case.params, optimizer), rows).params["student"]
    return dataclasses.replace(case, params=case.params | {"teacher": learnt})


@pytest.fixture
def make_taught():
    """`make_taught("distillation", case, rows)`: its teacher knows them by heart."""
    return teach


@pytest.fixture
def learn_rows():
    """`learn_rows(case, rows, steps)`: parameters trained on rows, corrupted anew."""

    def learn(case, rows, num_steps):
        optimizer = optax.adam(optax.cosine_decay_schedule(1e-2, num_steps))
        step = case.make_step(optimizer)

        @jax.jit
        def run(state):
            def body(state, key):
                return step(state, rows, key)[0], None

            keys = jax.random.split(jax.random.key(5), num_steps)
            return jax.lax.scan(body, state, keys)[0]

        return run(make_state(case.params, optimizer)).params

    return learn


@pytest.fixture
def vocab():
    """Ids 7 to 31 are ordinary, the others special."""
    return VOCAB


@pytest.fixture
def make_case():
    """`make_case("mlm", mask_rate=0.3)`: the objective with a small model."""
    return make


@pytest.fixture
def make_packed():
    """`make_packed("mlm")`: the same for rows of at most two documents."""

    def make_for_two(name, model_values=(), **settings):
        fields = {field.name for field in dataclasses.fields(module_of(name).Spec)}
        if "max_documents" in fields:
            settings["max_documents"] = 2
        return make(name, model_values, **settings)

    return make_for_two


@pytest.fixture
def make_rows():
    """`make_rows(case, 4)`: rows of random ordinary tokens."""

    def make(case, num_rows, seed=0, lengths=None, specials=0.0, with_eos=False):
        """Rows; with `lengths`, two documents each that end there, then padding.

        `with_eos`, the documents of every other row end in [EOS].
        """
        draw = np.random.default_rng(seed)
        shape = num_rows, case.spec.row_length
        tokens = draw.integers(7, 32, shape)
        tokens = np.where(draw.random(shape) < specials, 3, tokens)
        rows = {"tokens": tokens.astype(np.int32), "index": np.arange(num_rows) + 5}
        rows |= carry(case.spec, tokens)
        if lengths is not None:
            places = np.arange(shape[1])
            ends = np.array(lengths)[:, None]
            segments = np.where(places < ends // 2, 1, 2) * (places < ends)
            rows["segment_ids"] = segments.astype(np.int32)
            is_end = (places == ends // 2 - 1) | (places == ends - 1)
            is_end &= (np.arange(num_rows) % 2 == 0)[:, None] & with_eos
            rows["tokens"] = np.where(is_end, VOCAB.eos, rows["tokens"])
        return jax.tree.map(jnp.asarray, rows)

    return make
