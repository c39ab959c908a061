"""A mixture of objectives: the seven things that must hold, and what it refuses."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from products import count_products
from tiny import make_config, run_on_devices

from jaxpt.config.plan import make_plan
from jaxpt.errors import ConfigError
from jaxpt.learn.update import weigh
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.objectives import clm, clm_mlm, dual, mixture, mlm
from jaxpt.ops.masks import materialise
from jaxpt.ops.packing import count_slots, exactly, mix
from jaxpt.ops.shares import assign, find_step
from jaxpt.rng import split_step
from jaxpt.text.tokens.vocab import Vocab

check_equal = functools.partial(jax.tree.map, np.testing.assert_array_equal)
norm = optax.tree.norm


def at(rows, progress):
    return rows | {"progress": jnp.full(len(rows["index"]), progress, jnp.float32)}


def numbered(rows):
    """As in training: from 0 on."""
    return rows | {"index": jnp.arange(len(rows["index"]))}


def test_1_each_part_is_a_term_whose_mean_is_its_own(make_case):
    """Shares .75 and .25, 10 and 2 predictions a row, losses 2 and 4: not pooled."""
    spec = make_case("mixture", shares=(0.75, 0.25)).spec
    sums = {"clm_loss": (2.0 * 30, 30.0), "mlm_loss": (4.0 * 2, 2.0)}
    totals = {name: weight for name, (_, weight) in sums.items()}
    assert weigh(sums, totals, spec.coefficients) == 2.5
    assert sum(total for total, _ in sums.values()) / 32 == 2.125
    assert spec.coefficients == {"clm_loss": 0.75, "mlm_loss": 0.25}
    assert [term.label for term in spec.terms.values()] == [
        "next token",
        "masked token",
    ]


@pytest.mark.parametrize("size", [2, 4, 7, 8, 24, 64])
def test_2_every_batch_has_the_rows_of_each_share(size):
    """Rounded down or up, and in mean exactly; none lacks a part."""
    shares = jnp.array([0.5, 0.3, 0.2])[:, None]
    keys = jax.random.split(jax.random.key(0), 4000)
    index = jnp.arange(size)
    draw = lambda key: assign(key, index, shares, size)  # noqa: E731
    kinds = np.asarray(jax.jit(jax.vmap(draw))(keys))
    for k, share in enumerate((0.5, 0.3, 0.2)):
        counts = (kinds == k).sum(1)
        assert counts.min() >= np.floor(size * share + 1e-6)
        assert counts.max() <= np.ceil(size * share - 1e-6)
        of_row = (kinds == k).mean(0)  # each row may be of any part
        assert np.abs(of_row - share).max() < 4 * (share * (1 - share) / 4000) ** 0.5


def test_2_a_batch_of_four_in_equal_shares_has_two_rows_of_each(make_case, make_rows):
    case = make_case("mixture", batch_size=4)
    rows = numbered(make_rows(case, 4))
    keys = jax.random.split(jax.random.key(0), 300)
    run = lambda key: mixture.corrupt(key, rows, VOCAB, case.spec)["kind"]  # noqa: E731
    assert (np.asarray(jax.jit(jax.vmap(run))(keys)).sum(1) == 2).all()


VOCAB = Vocab(size=40, pad=0, unk=1, cls=2, sep=3, mask=4, bos=5, eos=6)


def test_2_a_share_of_less_than_a_row_is_refused(refuses, tmp_path):
    config = make_config(tmp_path / "x", "mixture", mixture__shares=(0.95, 0.05))
    with pytest.raises(ConfigError) as error:
        make_plan(config)
    expected = "mixture.shares=(0.95, 0.05): a share of 0.05 of train.batch_size=8 rows"
    assert str(error.value).startswith(expected)
    config.train.batch_size = 20
    assert make_plan(config).spec.batch_size == 20
    config.train.batch_schedule = ((0.5, 0.5),)
    with pytest.raises(ConfigError, match=r"shares.* of train.batch_size=10 rows"):
        make_plan(config)
    config.mixture.schedule = ((0.5, (0.0, 1.0)),)  # 0 is no share
    config.train.batch_schedule = ()
    make_plan(config)


def test_3_a_share_is_in_the_loss_once(make_case, make_rows, vocab):
    """The gradient is that of the sum of s_k mean_k, each mean over its own rows."""
    case = make_case("mixture", shares=(0.25, 0.75), weights=(1.0, 2.0), batch_size=8)
    rows = at(numbered(make_rows(case, 8)), 0.3)
    grads, metrics = case.gradients(rows)
    rng = split_step(jax.random.key(0))["corrupt"]
    batch = mixture.corrupt(rng, rows, vocab, case.spec)
    assert (batch["kind"] == 0).sum() == 2

    @jax.jit
    @jax.grad
    def run(params):
        masks = mixture.masks(batch)
        terms, _ = mixture.loss(params, case.model, batch, masks, {})
        means = {name: total / weight for name, (total, weight) in terms.items()}
        return 0.25 * means["clm_loss"] + 2 * 0.75 * means["mlm_loss"]

    expected = run(case.params)
    gap = norm(jax.tree.map(jnp.subtract, grads, expected))
    assert gap < 1e-5 * norm(expected)
    assert metrics["clm_loss"][1] == 2 * 20 and metrics["mlm_loss"][1] == 6 * 3


def test_4_the_divisor_is_the_whole_batchs(make_case, make_rows):
    """Although a microbatch may lack a part."""
    case = make_case("mixture", batch_size=8)
    rows = at(numbered(make_rows(case, 8)), 0.0)
    expected, sums = case.gradients(rows)
    grads, metrics = case.gradients(rows, num_microbatches=8)
    gap = norm(jax.tree.map(jnp.subtract, grads, expected))
    assert gap < 1e-6 * norm(expected)
    for name in case.spec.terms:
        np.testing.assert_allclose(metrics[name], sums[name], rtol=1e-5)


def test_4_microbatches_have_equal_numbers_of_each_part():
    shares = jnp.array([[0.5], [0.5]])
    for seed in range(20):
        kinds = assign(jax.random.key(seed), jnp.arange(64), shares, 64)
        for num in (2, 4, 8, 16):
            counts = np.asarray(kinds).reshape(-1, num).sum(0)
            assert (counts == 64 // num // 2).all()
        # Adjacent rows, as a device has them.
        assert np.abs(np.asarray(kinds).reshape(8, -1).sum(1) - 4).max() <= 1


def test_5_the_largest_share_sets_the_slots(make_case):
    """Each part's law, of the rows that it may have at any time of the run."""
    settings = {"shares": (0.5, 0.5), "schedule": ((0.5, (0.8, 0.2)),)}
    spec = make_case("mixture", **settings).spec
    laws, none = spec.predictions.laws, exactly(0)
    assert spec.lengths == {"decoder": 20} and list(laws) == ["clm_loss", "mlm_loss"]
    causal, masked = mix([(0.8, exactly(20)), (0.2, none)]), laws["mlm_loss"]
    np.testing.assert_allclose(laws["clm_loss"].probabilities, causal.probabilities)
    expected = mix([(0.5, exactly(3)), (0.5, none)])
    np.testing.assert_allclose(masked.probabilities, expected.probabilities)
    slots = count_slots(256, causal) + count_slots(256, expected)
    assert spec.predictions.mean(256) == slots / 256 < 20
    assert spec.mean_shares == pytest.approx((0.65, 0.35))


def test_5_flops_are_those_of_the_products_of_a_step():
    num_rows = 128
    vocab = Vocab(size=600, pad=0, eos=1, mask=2)
    spec = mixture.Spec(97, shares=(0.75, 0.25), batch_size=num_rows)
    sizes = {"vocab_size": 600, "d_model": 64, "num_heads": 2, "d_ff": 128}
    model = spec.make_network(ModelSpec(**sizes, num_layers=1), vocab)
    params = jax.eval_shape(model.init_params, jax.random.key(0))
    row = jax.ShapeDtypeStruct((num_rows,), jnp.int32)
    rows = {"tokens": jax.ShapeDtypeStruct((num_rows, 97), jnp.int32), "index": row}

    def run(params, rows, rng):
        batch = mixture.corrupt(rng, rows, vocab, spec)
        terms, _ = mixture.loss(params, model, batch, mixture.masks(batch), {})
        return sum(total for total, _ in terms.values())

    counted = model.count_flops(spec.lengths, spec.predictions.mean(num_rows))
    step = jax.grad(run)
    products = count_products(step, params, rows, jax.random.key(0)) / num_rows
    assert products == counted
    whole = model.count_flops(spec.lengths, 96 + 14)  # of unpacked predictions
    assert counted < 0.95 * whole


def test_6_a_row_is_of_a_part_by_its_number_and_the_step(make_case, make_rows):
    """Not by the rows next to it, so that any devices and a resumed run agree."""
    case = make_case("mixture", batch_size=8)
    rows = at(numbered(make_rows(case, 8)), 0.25)
    whole = case.corrupt(rows)
    parts = [
        case.corrupt({key: value[half] for key, value in rows.items()})
        for half in (slice(0, 4), slice(4, 8))
    ]
    check_equal(whole, jax.tree.map(lambda *x: jnp.concatenate(x), *parts))
    assert (whole["kind"] != case.corrupt(rows, seed=2)["kind"]).any()


@pytest.mark.slow
def test_6_eight_devices_train_as_one(make_case, make_rows):
    code = """
import sys
sys.path[:0] = ["tests"]
import jax, jax.numpy as jnp, numpy as np, optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from objectives.conftest import make
case = make("mixture", batch_size=16)
draw = np.random.default_rng(0)
rows = {"tokens": draw.integers(7, 32, (16, 21)).astype("i4"), "index": np.arange(16)}
rows["progress"] = np.zeros(16, "f4")
step = jax.jit(case.make_step(optax.sgd(0.1)))
state = case.init_state(optax.sgd(0.1))
one, of_one = step(state, rows, jax.random.key(0))
mesh = Mesh(np.array(jax.devices()).reshape(8, 1, 1), ("data", "fsdp", "tensor"))
with jax.sharding.set_mesh(mesh):
    place = NamedSharding(mesh, PartitionSpec(("data", "fsdp")))
    many, of_many = jax.jit(case.make_step(optax.sgd(0.1)))(
        state, jax.device_put(rows, place), jax.random.key(0)
    )
for name in ("clm_loss", "mlm_loss"):
    np.testing.assert_allclose(of_one[name], of_many[name], rtol=1e-5)
gaps = jax.tree.map(lambda a, b: np.abs(a - b).max(), one.params, many.params)
assert max(jax.tree.leaves(gaps)) < 1e-5
print("equal", len(jax.devices()))
"""
    assert run_on_devices(8, code).strip() == "equal 8"


def test_7_rows_have_the_length_of_the_longest_part(make_case, make_rows):
    """The rest is padding, which no token sees, with the specials of all parts."""
    case = make_case("mixture", parts=("clm", "prefix_lm", "mlm"), batch_size=6)
    spec = case.spec
    assert spec.lengths == {"decoder": 20} and spec.row_length == 20
    assert set(spec.needs.specials) == {"pad", "mask"}
    rows = at(numbered(make_rows(case, 6)), 0.0)
    batch = case.corrupt(rows)
    ids, kinds = np.asarray(batch["segment_ids"]), np.asarray(batch["kind"])
    assert (ids.sum(1) == np.array([19, 20, 19])[kinds]).all()
    seen = np.asarray(materialise(mixture.masks(batch)["self"], 20, 20))[:, 0]
    for row, kind in enumerate(kinds):
        if kind == 0:
            np.testing.assert_array_equal(seen[row][:19, :19], np.tri(19))
        if kind == 1:
            num = int(batch["parts"]["prefix_lm"]["is_prefix"][row].sum())
            expected = np.tri(20, dtype=bool) | (np.arange(20) < num)
            np.testing.assert_array_equal(seen[row], expected)
        if kind == 2:
            assert seen[row][:19, :19].all()
    assert not seen[kinds != 1][:, :19, 19].any()  # the padding


PAIRS = {
    "clm": ("clm", "mlm"),
    "mlm": ("mlm", "masked_diffusion"),
    "masked_diffusion": ("masked_diffusion", "mlm"),
    "prefix_lm": ("prefix_lm", "clm"),
}


@pytest.mark.slow_except("clm", "mlm")
@pytest.mark.parametrize("name", PAIRS)
def test_a_share_of_one_is_the_part_alone_to_the_bit(name, make_case, make_rows):
    """Batch, losses, metrics and gradients, in training."""
    parts = PAIRS[name]
    case = make_case("mixture", parts=parts, shares=(1.0, 0.0), batch_size=8)
    other = make_case(name)
    assert case.spec.row_length == other.spec.row_length
    rows = at(make_rows(other, 8, lengths=8 * [18]), 0.4)
    batch, expected = case.corrupt(rows), other.corrupt(rows)
    alone = {k: v for k, v in expected.items() if k != "weights"}
    check_equal({k: batch[k] for k in alone}, alone)
    grads, metrics = case.gradients(rows)
    of_other, sums = other.gradients(rows)
    check_equal(grads, of_other)
    names = {k: f"{name}_{k}" for k in sums if k not in ("grad_norm", "overflow")}
    check_equal({new: metrics[new] for new in names.values()}, {
        new: sums[old] for old, new in names.items()
    })  # fmt: skip
    check_equal(metrics[f"{parts[1]}_loss"], (0.0, 0.0))


def test_clm_mlm_has_the_same_losses_of_the_same_batch(make_case, make_rows):
    """Bit for bit, in slots of the same sizes."""
    case = make_case("mixture", shares=(0.75, 0.25), batch_size=8)
    other = make_case("clm_mlm", mlm_share=0.25)
    assert case.spec.row_length == other.spec.row_length
    assert [*case.spec.predictions.laws.values()] == [
        *other.spec.predictions.laws.values()
    ]
    rows = at(numbered(make_rows(case, 8, lengths=8 * [19])), 0.1)
    batch = case.corrupt(rows)
    masked = batch["parts"]["mlm"]["masked_positions"]
    kept = ("index", "inputs", "targets", "segment_ids", "weights", "is_prefix")
    theirs = {key: batch[key] for key in kept} | {"masked_positions": masked}
    causal = jnp.where((batch["kind"] == 0)[:, None], batch["targets"], 0)
    clean = rows["tokens"][:, 1:]
    np.testing.assert_array_equal(jnp.where(causal > 0, clean, 0), causal)
    terms, metrics = case.loss(batch)
    expected, of_theirs = other.loss(theirs | {"targets": clean})
    check_equal(terms, expected)
    check_equal(metrics["mlm_masked_accuracy"], of_theirs["masked_accuracy"])
    check_equal(metrics["overflow"], of_theirs["overflow"])


def test_dual_has_the_same_losses_of_the_same_batch_to_rounding(make_case, make_rows):
    parts = ("clm", "masked_diffusion")
    case = make_case("mixture", parts=parts, batch_size=8)
    other = make_case("dual")
    rows = at(numbered(make_rows(case, 8)), 0.1)
    batch = case.corrupt(rows)
    of_diffusion = batch["parts"]["masked_diffusion"]
    theirs = {k: batch[k] for k in ("index", "inputs", "is_prefix")} | {
        "targets": rows["tokens"][:, 1:],
        "inverse_rates": of_diffusion["inverse_rates"],
        "weights": {
            "clm_loss": batch["weights"]["clm_loss"],
            "diffusion_loss": batch["weights"]["masked_diffusion_loss"],
        },
    }
    terms, _ = case.loss(batch)
    expected, _ = other.loss(theirs)
    for name, term in expected.items():
        same = name.replace("diffusion", "masked_diffusion")
        np.testing.assert_allclose(terms[same], term, rtol=1e-6)
    assert type(case.model).__mro__[1] is dual.DualLM and case.model.mask_id == 4


def test_rates_of_diffusion_rows_are_evenly_spread(make_case):
    """The draws of rows and of their rates do not go together."""
    case = make_case("mixture", parts=("clm", "masked_diffusion"), batch_size=64)
    rows = {"tokens": jnp.full((64, 21), 9), "index": jnp.arange(64)}
    rows = at(rows, 0.0)
    keys = jax.random.split(jax.random.key(0), 50)
    run = lambda key: mixture.corrupt(key, rows, VOCAB, case.spec)  # noqa: E731
    batch = jax.jit(jax.vmap(run))(keys)
    inverse = np.asarray(batch["parts"]["masked_diffusion"]["inverse_rates"]).max(-1)
    for one in inverse:
        rates = 1 / one[one > 0]
        quarters = np.histogram(rates, 4, (0, 1))[0]
        assert quarters[1:].min() >= 5 and len(rates) >= 28  # 8 in mean


def test_a_hidden_token_is_read_one_place_before(make_case, make_rows):
    """Never the first of a document, nor the last as an input."""
    shown = {"mlm": {"replace_mask": 1.0, "replace_random": 0.0, "mask_rate": 0.3}}
    case = make_case("mixture", sections=Frozen(shown), batch_size=12)
    rows = at(numbered(make_rows(case, 12, lengths=[20, 15] * 6)), 0.0)
    batch = jax.tree.map(np.asarray, case.corrupt(rows))
    tokens, ids = np.asarray(rows["tokens"]), np.asarray(rows["segment_ids"])
    assert (batch["kind"] == 1).sum() == 6
    for row in np.flatnonzero(batch["kind"] == 1):
        weights = batch["weights"]["mlm_loss"][row]
        places = batch["masked_positions"][row][weights > 0]
        assert len(places) >= 3 and (ids[row][places] == ids[row][places + 1]).all()
        inputs = np.append(batch["inputs"][row], tokens[row][-1])
        hidden = np.flatnonzero(inputs == VOCAB.mask)
        np.testing.assert_array_equal(hidden, np.sort(places[places < 19]) + 1)
        targets = batch["targets"][row][places]
        np.testing.assert_array_equal(targets, tokens[row][places + 1])


class Frozen(dict):
    """Sections that can be a key of a cache."""

    def __hash__(self):
        return hash(json.dumps(self, sort_keys=True))


def test_the_loss_of_a_part_reaches_its_own_rows_alone(make_case, make_rows):
    """Tokens of causal rows do not change the masked loss, and the reverse."""
    case = make_case("mixture", batch_size=8)
    rows = at(numbered(make_rows(case, 8)), 0.0)
    batch = case.corrupt(rows)
    is_causal = (batch["kind"] == 0)[:, None]
    other = batch | {"inputs": jnp.where(is_causal, batch["inputs"], 8)}
    terms, changed = case.loss(batch)[0], case.loss(other)[0]
    np.testing.assert_allclose(terms["clm_loss"], changed["clm_loss"], rtol=1e-6)
    assert abs(terms["mlm_loss"][0] - changed["mlm_loss"][0]) > 1e-4


def test_evaluation_is_of_each_part_on_all_rows(make_case, make_rows):
    """With the losses of the part alone, although the share of a phase is small."""
    case = make_case("mixture", shares=(0.75, 0.25), batch_size=8)
    rows = make_rows(case, 8)
    result = case.evaluate(case.params, rows, jax.random.key(1))
    alone = make_case("clm")
    expected = alone.evaluate(case.params, rows, jax.random.key(1))
    check_equal(result["clm_loss"], expected["loss"])
    assert result["clm_loss"][1] == 8 * 20 and result["mlm_loss"][1] == 8 * 3


def test_a_schedule_has_its_phases():
    phases = ((0.25, (1.0, 0.0)), (0.5, (0.25, 0.75)))
    spec = mixture.Spec(8, shares=(0.0, 1.0), schedule=phases)
    shares = [spec.shares_at(p) for p in (0, 0.24, 0.25, 0.49, 0.5, 1)]
    assert [causal for causal, _ in shares] == [1, 1, 0.25, 0.25, 0, 0]
    assert all(sum(each) == 1 for each in shares)
    assert spec.coefficients_at(0.3) == {"clm_loss": 0.25, "mlm_loss": 0.75}
    assert spec.coefficients == {"clm_loss": 0, "mlm_loss": 1}
    controls = spec.controls()
    assert list(controls) == ["clm", "mlm", "constant", "reverse"]
    even = controls["constant"]["mixture"]["shares"]
    assert even == spec.mean_shares == pytest.approx((0.3125, 0.6875))
    order = controls["reverse"]["mixture"]["schedule"]
    assert order == ((0.5, (0.0, 1.0)), (0.75, (0.25, 0.75)), (1.0, (1.0, 0.0)))
    back = dataclasses.replace(spec, schedule=order)
    assert back.mean_shares == pytest.approx(spec.mean_shares)


def test_settings_of_a_part_are_those_of_its_section(tmp_path):
    config = make_config(tmp_path / "x", "mixture", mlm__mask_rate=0.4)
    plan = make_plan(config)
    masked = plan.spec.members[1].spec
    assert isinstance(masked, mlm.Spec) and masked.mask_rate == 0.4
    assert isinstance(plan.spec.members[0].spec, clm.Spec)
    assert plan.config["mlm"]["mask_rate"] == 0.4 and "clm" in plan.config
    again = make_plan(plan.config, is_stored=True)
    assert again.spec == plan.spec and hash(again.spec) == hash(plan.spec)
    assert list(plan.spec.controls()) == ["clm", "mlm-same"]


REFUSED = {
    "electra": ("clm", "electra reads a row in several passes (generator, discrimina"),
    "span_corruption": ("clm", "clm has one stack, span_corruption an encoder and a"),
    "prefix_lm": ("mlm", "mlm predicts a token at its own position, prefix_lm at the"),
    "fill_in_the_middle": ("mlm", "mlm predicts a token at its own position, fill_in"),
    "spanbert": ("mlm", "spanbert has a head that mlm lacks (SpanMaskedLM)"),
    "token_order": ("clm", "token_order has a head that clm lacks (TokenOrderLM)"),
    "next_latent": ("mlm", "next_latent has a head that mlm lacks (NextLatentLM)"),
    "hybrid_diffusion": ("mlm", "hybrid_diffusion has a head that mlm lacks (Hyb"),
    "multi_token_heads": ("clm", "multi_token_heads has a head that clm lacks (Mul"),
    "skip_gram": ("clm", "skip_gram has a head that clm lacks (SkipGram)"),
    "bilm": ("clm", "bilm reads a row in several passes (forward, backward)"),
    "block_diffusion": ("clm", "block_diffusion reads a row in several passes (noi"),
    "masked_input_clm": ("clm", "masked_input_clm reads a row in several passes (cl"),
    "bert": ("mlm", "bert needs rows of pairs"),
    "distillation": ("mlm", "distillation learns from another run"),
    "selective_clm": ("clm", "selective_clm has selective_clm.share=0.6"),
    "adaptive_mlm": ("mlm", "adaptive_mlm keeps a state from step to step"),
    "latent_prediction": ("clm", "latent_prediction keeps a state from step to step"),
    "clm_mlm": ("clm", "clm_mlm is itself a mixture, whose parts can be named"),
    "dual": ("clm", "dual is itself a mixture, whose parts can be named"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("is_first", [True, False])
def test_parts_that_cannot_share_are_named_with_the_reason(name, is_first):
    other, reason = REFUSED[name]
    parts = (name, other) if is_first else (other, name)
    with pytest.raises(ConfigError) as error:
        mixture.Spec(24, parts=parts)
    start = "must be objectives that share a network and a reading position"
    expected = (
        f"mixture.parts={parts!r}: {start}; {parts[0]} and {parts[1]} do not, as "
    )
    assert str(error.value).startswith(expected + reason)


@pytest.mark.parametrize("own", [{"shift": True}, {"mask_anneal": 0.5}])
def test_a_conversion_is_no_part(own):
    """A mixture moves predictions itself, and its attention does not change."""
    ((name, value),) = own.items()
    reason = f"as masked_diffusion has masked_diffusion.{name}={value}"
    with pytest.raises(ConfigError, match=reason):
        mixture.Spec(
            24,
            parts=("clm", "masked_diffusion"),
            sections={"masked_diffusion": own},
        )


def test_other_forms_of_refused_parts_are_mixed(tmp_path):
    """ul2 with one stack; one pass of masked inputs; MLM and prefixes next to clm."""
    for parts, more in (
        (("clm", "ul2"), {}),
        (("clm", "masked_input_clm"), {"masked_input_clm__passes": "masked"}),
        (("clm", "prefix_lm", "mlm"), {}),
        (("bart", "span_corruption"), {}),
    ):
        config = make_config(tmp_path / "x", "mixture", mixture__parts=parts, **more)
        plan = make_plan(config)
        has_two = "bart" in parts
        assert (plan.model.num_decoder_layers > 0) == has_two
        assert plan.spec.kind(plan.model.num_decoder_layers).HAS_DECODER == has_two


def test_steps_have_no_common_factor():
    assert all(np.gcd(find_step(size), size) == 1 for size in range(1, 300))
    spec = clm_mlm.Spec(20)  # the two that are parts of nothing have their own draws
    assert spec.READS == mixture.Spec(20).READS
