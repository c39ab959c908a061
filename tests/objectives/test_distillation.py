"""Distillation: the three losses by hand, a teacher that never moves, exact copies."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.learn.optimizer import make_optimizer
from jaxpt.learn.state import make_state
from jaxpt.learn.update import average_params
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks import student_teacher
from jaxpt.nn.scan import stack_layers, unstack_layers
from jaxpt.objectives import causal_distillation, distillation
from jaxpt.ops import chunked_loss, losses
from jaxpt.ops.segments import segment_positions
from jaxpt.text.tokens.vocab import Vocab

R = 20
VOCAB = Vocab(size=40, pad=0, cls=2, sep=3, mask=4, sentinels=tuple(range(39, 31, -1)))
NAMES = ("distillation", "causal_distillation")
# Deeper than the student, and otherwise as it.
DEEP = {"num_layers": 3, "d_model": 32, "num_heads": 2, "d_ff": 64, "max_len": 32}
both = pytest.mark.parametrize("name", NAMES)


def norm(tree):
    return float(optax.tree.norm(tree))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@given(st.integers(0, 2**31), st.floats(0.5, 4.0), st.floats(0.1, 5.0))
@settings(max_examples=30, deadline=None)
def test_divergence_is_that_of_the_definition(seed, temperature, scale):
    """Guards against a KL turned round, or without T squared (the source has it)."""
    logits, teacher = np.random.default_rng(seed).normal(0, scale, (2, 3, 7))
    p, q = softmax(teacher / temperature), softmax(logits / temperature)
    expected = temperature**2 * (p * np.log(p / q)).sum(-1)
    result = losses.divergences(*map(jnp.float32, (logits, teacher)), temperature)
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-5)
    # Equal logits, or logits that differ by a constant: 0.
    same = losses.divergences(
        jnp.float32(teacher + 3), jnp.float32(teacher), temperature
    )
    np.testing.assert_allclose(same, 0, atol=1e-5)


def test_gradient_of_the_divergence_does_not_fall_with_temperature():
    """T (p_s - p_t): what the T squared is for (Hinton et al. 2015, section 2)."""
    logits, teacher = np.random.default_rng(0).normal(0, 1, (2, 5)).astype(np.float32)
    for temperature in (1.0, 2.0, 8.0):
        grad = jax.grad(lambda x, t=temperature: losses.divergences(x, teacher, t))
        gap = softmax(logits / temperature) - softmax(teacher / temperature)
        np.testing.assert_allclose(grad(logits), temperature * gap, atol=1e-5)


def test_cosine_is_0_on_scaled_copies():
    x = jnp.float32(np.random.default_rng(0).normal(0, 1, (4, 6)))
    for scale in (1e-2, 1.0, 50.0):
        total, weight = losses.cosine_distance(x, scale * x, jnp.ones(4))
        assert float(total) == pytest.approx(0, abs=1e-5) and weight == 4
    total, _ = losses.cosine_distance(x, -x, jnp.array([1.0, 0.0, 1.0, 0.0]))
    assert float(total) == pytest.approx(4.0)  # target +1: opposite is 2 apart


@pytest.mark.slow
@pytest.mark.parametrize("bias", [False, True])
def test_chunks_of_teaching_are_the_whole(bias):
    draw = np.random.default_rng(0)
    x, teacher_x = jnp.float32(draw.normal(0, 1, (2, 3, 5, 4)))
    kernels = jnp.float32(draw.normal(0, 1, (2, 4, 9)))
    biases = jnp.float32(draw.normal(0, 1, (2, 9))) if bias else (None, None)
    targets = jnp.asarray(draw.integers(0, 9, (3, 5)))

    def run(made, chunk):
        teacher = teacher_x, kernels[1], biases[1]
        result = chunked_loss.distillation_loss(made, teacher, targets, 2.0, chunk)
        weights = jnp.arange(15.0).reshape(3, 5)
        total = jnp.sum(weights * (result.nll + 3 * result.divergences))
        return total, result

    student = x, kernels[0], biases[0]
    grad = jax.value_and_grad(run, has_aux=True)
    expected, result = grad(student, 15), grad(student, 4)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        expected,
        result,
    )


@pytest.mark.slow_cases("distillation")
@both
def test_a_student_like_its_teacher_has_nothing_to_learn_from_it(
    name, make_packed, make_rows
):
    case = make_packed(name)
    rows = make_rows(case, 4, lengths=[18, 12, 15, 9])
    batch = case.corrupt(rows)
    params = case.params | {"student": case.params["teacher"]}
    terms, _ = case.loss(batch, params)
    assert terms["kl_loss"][0] == pytest.approx(0, abs=1e-5)
    if name == "distillation":
        assert terms["cosine_loss"][0] == pytest.approx(0, abs=1e-4)
    other = case.loss(batch, case.params)[0]
    assert other["kl_loss"][0] > 1e-3


@pytest.mark.slow_cases("distillation")
@both
def test_the_losses_by_hand(name, make_packed, make_rows):
    case = make_packed(name, (("init_std", 0.3),))
    params = jax.tree.map(lambda x: 5 * x, case.params)  # far from uniform
    rows = make_rows(case, 3, lengths=[18, 12, 15])
    batch = case.corrupt(rows)
    terms, _ = case.loss(batch, params)

    @jax.jit
    def logits(batch):
        mask = case.module.masks(batch)["self"]
        places = segment_positions(batch["segment_ids"])

        def run(model):
            both = model.student, model.teacher
            seen = batch["inputs"], mask, places
            states = [each.encode(*seen, deterministic=True) for each in both]
            scores = [each.logits(x) for each, x in zip(both, states, strict=True)]
            return states, scores

        return case.model.apply({"params": params}, method=run)

    (h_s, h_t), (s, t) = jax.device_get(logits(batch))
    p, q = softmax(t / 2), softmax(s / 2)
    kl = 4 * (p * np.log(p / q)).sum(-1)
    if name == "causal_distillation":
        read = np.asarray(batch["weights"]["clm_loss"])
    else:
        read = np.asarray(batch["segment_ids"] > 0).astype(float)  # all but padding
        cosine = (h_s * h_t).sum(-1)
        cosine /= np.linalg.norm(h_s, axis=-1) * np.linalg.norm(h_t, axis=-1)
        result = terms["cosine_loss"]
        assert float(result[0]) == pytest.approx((read * (1 - cosine)).sum(), rel=1e-3)
        assert float(result[1]) == read.sum()
    result = terms["kl_loss"]
    assert float(result[0]) == pytest.approx((read * kl).sum(), rel=1e-3)
    assert float(result[1]) == read.sum()  # batchmean: over tokens, not times V


def test_the_weights_are_distilberts():
    spec = distillation.Spec(R)
    assert spec.temperature == 2.0
    expected = {"kl_loss": 5.0, "mlm_loss": 2.0, "cosine_loss": 1.0}
    assert spec.coefficients == expected
    assert not spec.restrict_kl  # the source's default: all tokens but padding
    # The code's own defaults, for GPT-2.
    causal = causal_distillation.Spec(R)
    expected = {"kl_loss": 0.5, "clm_loss": 0.5}
    assert causal.coefficients == expected


@pytest.mark.slow_cases("distillation")
@both
def test_no_gradient_reaches_the_teacher(name, make_packed, make_rows):
    case = make_packed(name)
    rows = make_rows(case, 4, lengths=[18, 12, 15, 9])
    grads, _ = case.gradients(rows)
    assert norm(grads["teacher"]) == 0 and norm(grads["student"]) > 0
    # Nor is there one that the step throws away.
    batch = case.corrupt(rows)

    @jax.jit
    @jax.grad
    def pull(params):
        terms, _ = case.module.loss(
            params, case.model, batch, case.module.masks(batch), {}
        )
        return sum(total for total, _ in terms.values())

    pulled = pull(case.params)
    assert norm(pulled["teacher"]) == 0
    pulled = jax.tree_util.tree_leaves_with_path(pulled["student"])
    assert all(jnp.abs(leaf).max() > 0 for _, leaf in pulled)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adamw", "adafactor", "lamb", "lion", "muon"])
def test_the_teacher_has_no_moments_and_never_moves(
    optimizer, make_case, make_rows, vocab
):
    """Under weight decay and a mean of the parameters too; -0.0 stays -0.0."""
    case = make_case("distillation", freeze_positions=True)
    frozen = case.model.frozen
    spec = OptimSpec(name=optimizer, weight_decay=0.1, ema_decay=0.9)
    made = make_optimizer(spec, 100, frozen)
    params = jax.tree.map(lambda x: x.at[..., 0].set(-0.0), case.params)
    state = make_state(params, made, has_ema=True)
    paths = jax.tree_util.tree_leaves_with_path(state.opt_state)
    names = [jax.tree_util.keystr(path) for path, _ in paths]
    assert any("student" in name for name in names)
    assert not any("teacher" in name or "positions" in name for name in names)
    step, rows = case.make_step(made), make_rows(case, 4)

    @jax.jit
    def go(state, rng):
        return average_params(step(state, rows, rng)[0], 0.9, frozen)

    after = state
    for i in range(3):
        after = go(after, jax.random.key(i))
    for tree in (after.params, after.ema):
        expected = params["teacher"], params["student"]["embed"]["positions"]
        result = tree["teacher"], tree["student"]["embed"]["positions"]
        jax.tree.map(
            lambda a, b: np.testing.assert_array_equal(
                np.asarray(a).view(np.uint32), np.asarray(b).view(np.uint32)
            ),
            expected,
            result,
        )
        tokens = tree["student"]["embed"]["tokens"]
        assert jnp.abs(tokens - params["student"]["embed"]["tokens"]).max() > 0


@pytest.mark.slow_cases("distillation")
@both
def test_no_optimizer_moves_the_teacher(name, make_case, make_rows, vocab):
    """Not even one that decays whatever it is given."""
    case, optimizer = make_case(name), optax.adamw(1e-2, weight_decay=0.5)
    step = case.make_step(optimizer)
    state = make_state(case.params, optimizer)
    after, _ = jax.jit(step)(state, make_rows(case, 4), jax.random.key(0))
    before, after = case.params, after.params
    jax.tree.map(np.testing.assert_array_equal, after["teacher"], before["teacher"])
    assert norm(jax.tree.map(jnp.subtract, after["student"], before["student"])) > 0


@pytest.mark.slow
def test_without_that_setting_positions_are_trained(make_case, make_rows):
    case = make_case("distillation")
    grads, _ = case.gradients(make_rows(case, 4))
    assert norm(grads["student"]["embed"]["positions"]) > 0
    held = make_case("distillation", freeze_positions=True)
    grads, _ = held.gradients(make_rows(held, 4))
    assert norm(grads["student"]["embed"]["positions"]) == 0


@pytest.mark.slow_except("True")
@pytest.mark.parametrize("is_scanned", [False, True])
def test_the_students_layers_are_copies(is_scanned, vocab):
    """DistilBERT's: 0 2 4 7 9 11 of 12, with embeddings, norms and head."""
    layers = (0, 2, 4, 7, 9, 11)
    teacher = DEEP | {"num_layers": 12, "num_types": 2, "head_transform": True}
    spec = distillation.Spec(R, teacher_model=teacher, student_layers=layers)
    student = ModelSpec(**teacher, vocab_size=40, scan_layers=is_scanned)
    student = dataclasses.replace(student, num_layers=6, num_types=0)
    model = spec.make_network(student, vocab)
    draw = np.random.default_rng(0).normal
    shapes = jax.eval_shape(model.init_params, jax.random.key(0))
    fresh = jax.tree.map(lambda x: jnp.float32(draw(0, 1, x.shape)), shapes)
    teacher_params = jax.tree.map(lambda x: jnp.float32(draw(0, 1, x.shape)), shapes)[
        "teacher"
    ]
    plain = unstack_layers(teacher_params)
    begun = student_teacher.begin(fresh, plain, layers)
    assert jax.tree.map(jnp.shape, begun) == jax.tree.map(lambda x: x.shape, shapes)
    jax.tree.map(np.testing.assert_array_equal, begun["teacher"], teacher_params)
    result = unstack_layers(begun["student"])
    for i, layer in enumerate(layers):
        jax.tree.map(
            np.testing.assert_array_equal,
            result["encoder"][f"layer_{i}"],
            plain["encoder"][f"layer_{layer}"],
        )
    rest = ("tokens", "positions")
    for name in rest:
        jax.tree.map(
            np.testing.assert_array_equal, result["embed"][name], plain["embed"][name]
        )
    jax.tree.map(np.testing.assert_array_equal, result["head"], plain["head"])
    # Without layers to take, the student is as it was drawn.
    begun = student_teacher.begin(fresh, stack_layers(plain), ())
    jax.tree.map(np.testing.assert_array_equal, begun["student"], fresh["student"])
    jax.tree.map(np.testing.assert_array_equal, begun["teacher"], teacher_params)


@pytest.mark.slow_cases("True")
@pytest.mark.parametrize("is_restricted", [False, True])
def test_which_places_meet_the_vocabulary(is_restricted, make_case, make_rows):
    case = make_case("distillation", restrict_kl=is_restricted)
    batch = case.corrupt(make_rows(case, 3))

    def total(params):
        terms, _ = distillation.loss(
            params, case.model, batch, distillation.masks(batch), {}
        )
        return terms["kl_loss"][0]

    program = jax.jit(jax.grad(total)).lower(case.params).as_text()
    few = "tensor<3x3x40xf32>" in program or "tensor<9x40xf32>" in program  # P is 3
    many = "tensor<3x20x40xf32>" in program or "tensor<60x40xf32>" in program
    assert (few, many) == (is_restricted, not is_restricted)
    assert batch["weights"]["kl_loss"].sum() == (9 if is_restricted else 60)


@pytest.mark.slow_except("True")
@pytest.mark.parametrize("is_restricted", [False, True])
def test_the_teacher_reads_what_the_student_reads(is_restricted, make_case, make_rows):
    """No leak: what is hidden is hidden from the teacher too."""
    case = make_case("distillation", restrict_kl=is_restricted, replace_mask=1.0,
                     replace_random=0.0)  # fmt: skip
    batch = case.corrupt(make_rows(case, 3))
    other = batch | {"targets": (batch["targets"] - 7 + 3) % 25 + 7}
    (terms, _), (others, _) = case.loss(batch), case.loss(other)
    assert terms["kl_loss"] == others["kl_loss"]
    assert terms["cosine_loss"] == others["cosine_loss"]
    assert terms["mlm_loss"] != others["mlm_loss"]


SPECS = [distillation.Spec(R, mask_rate=rate) for rate in (0.05, 0.15, 0.5)]


@jax.jit
def corrupt_all(rng, rows):
    return [distillation.corrupt(rng, rows, VOCAB, spec) for spec in SPECS]


@given(
    st.lists(st.integers(0, 39), min_size=2 * R, max_size=2 * R),
    st.lists(st.integers(0, R), min_size=2, max_size=2),
    st.integers(0, 2**31 - 1),
)
@settings(max_examples=40, deadline=None)
def test_counts_are_exact_and_the_text_comes_back(tokens, lengths, seed):
    tokens = np.array(tokens, np.int32).reshape(2, R)
    real = np.arange(R) < np.array(lengths)[:, None]
    rows = {"tokens": tokens, "segment_ids": real.astype(int), "index": np.arange(2)}
    for spec, batch in zip(SPECS, corrupt_all(jax.random.key(seed), rows), strict=True):
        batch = jax.tree.map(np.asarray, batch)
        np.testing.assert_array_equal(batch["weights"]["cosine_loss"], real)
        np.testing.assert_array_equal(batch["weights"]["kl_loss"], real)
        for i in range(2):
            drawn = batch["weights"]["mlm_loss"][i] > 0
            eligible = real[i] & np.isin(tokens[i], VOCAB.ordinary_ids)
            count = max(1, round(spec.mask_rate * lengths[i])) if lengths[i] else 0
            assert drawn.sum() == min(count, eligible.sum())
            places = batch["masked_positions"][i][drawn]
            assert eligible[places].all() and len(set(places.tolist())) == len(places)
            restored = batch["inputs"][i].copy()
            restored[places] = batch["targets"][i][drawn]
            np.testing.assert_array_equal(restored, tokens[i])


@both
@pytest.mark.parametrize(
    "teacher, more, output",
    [
        ({"vocab_size": 41}, {}, "same vocabulary"),
        ({"max_len": 8}, {}, "reads 8 tokens at once"),
        ({}, {"student_layers": (0, 1)}, "must be model.num_layers=1"),
        ({}, {"student_layers": (3,)}, "from 0 to 2"),
    ],
)
def test_a_teacher_that_does_not_fit_is_refused(
    name, teacher, more, output, make_case, refuses
):
    with refuses(name, output):
        make_case(name, teacher_model=DEEP | teacher, **more)


def test_another_width_needs_no_cosine(make_case, refuses):
    wide = DEEP | {"d_model": 64}
    with refuses("model.d_model=32", "distillation.cosine_weight"):
        make_case("distillation", teacher_model=wide)


def test_a_student_with_more_than_its_teacher_is_refused(make_case, refuses):
    """A student's parameter is a copy or the run is refused; none is drawn quietly."""
    values = {"teacher_model": DEEP, "student_layers": (2,), "cosine_weight": 0.0}
    for changed in (("d_ff", 48), ("head_bias", True)):
        case = make_case("distillation", (changed,), **values)
        with refuses("student_layers=(2,)", "the teacher"):
            student_teacher.begin(case.params, case.params["teacher"], (2,))
