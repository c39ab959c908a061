"""A causal model becomes a diffusion model or an encoder and decoder."""

import functools

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stops import check_stopped_run, run
from tiny import make_config, slow, write_run

from jaxpt.config.plan import make_plan
from jaxpt.hub.export import export_run
from jaxpt.ops import masks as attention_masks
from jaxpt.runs.initial_state import check_start, make_start
from jaxpt.runs.predictions import fill_text, generate_texts
from jaxpt.runs.program import Program
from jaxpt.runs.task import make_task
from jaxpt.runs.workdir import load_run
from jaxpt.text.dataset import load_text

ROTARY = {"model__positions": "rotary", "model__num_layers": 2, "model__init_std": 0.3}
LLAMA = ROTARY | {
    "model__norm": "rmsnorm",
    "model__gated_mlp": True,
    "model__tie_embeddings": False,
}
PAST = ROTARY | {"model__positions": "relative", "model__relative_directions": "past"}
BOTH = PAST | {"model__relative_directions": "both"}
LEARNED = ROTARY | {"model__positions": "learned"}
DIFFUSION = {"masked_diffusion__shift": True, "masked_diffusion__mask_anneal": 0.5}
TWO = {"model__num_decoder_layers": 2}


def flat(params):
    return flax.traverse_util.flatten_dict(jax.device_get(params), sep="/")


@pytest.fixture(scope="module")
def source(tmp_path_factory, speech):
    """`source(objective, **settings)`: the folder of a run at step 0; made once."""
    folder = tmp_path_factory.mktemp("sources")

    @functools.cache
    def make(objective="clm", **settings):
        into = folder / str(len(list(folder.iterdir())))
        return write_run(make_config(speech, objective, **settings), into)

    return make


def start_from(speech, folder, objective, **settings):
    """The program of a run that starts from another one, and its parameters."""
    settings = settings | {"train__init_from": str(folder)}
    plan = make_plan(make_config(speech, objective, **settings))
    tokenizer, _ = load_text(plan.text)
    task = make_task(plan, tokenizer.vocab)
    check_start(task, tokenizer)
    program = Program(task)
    return program, make_start(program, plan.train).params


def test_a_diffusion_run_begins_with_the_causal_distribution(source, speech):
    """At its first step, before the mask opens, of a text without masks."""
    folder = source(**LEARNED)
    reader, _, params, _ = load_run(folder)
    program, start = start_from(
        speech, folder, "masked_diffusion", **LEARNED, **DIFFUSION
    )
    jax.tree.map(np.testing.assert_array_equal, start, params)
    task = program.task
    tokens = np.arange(72, dtype=np.int32).reshape(3, 24) % task.vocab.size
    rows = {"tokens": jnp.asarray(tokens), "index": jnp.arange(3)}
    rows |= {"progress": jnp.zeros(3)}
    batch = task.objective.corrupt(jax.random.key(0), rows, task.vocab, task.spec)
    masks = task.objective.masks(batch)

    def read(model):
        states = model.encode(tokens, masks["self"], deterministic=True)
        return model.logits(states)

    result = task.model.apply({"params": start}, method=read)
    expected = reader.readers["next_logits"](params, tokens)
    result, expected = map(jax.nn.softmax, (result, expected))
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "objective, settings",
    [
        ("mlm", {}),
        ("clm_mlm", {"clm_mlm__mlm_schedule": ((0.25, 0.0),), "clm_mlm__mlm_share": 1}),
        ("masked_diffusion", {}),
        ("block_diffusion", {"block_diffusion__block_schedule": ((0.5, 1),)}),
    ],
)
def test_one_stack_starts_from_a_causal_one(objective, settings, source, speech):
    folder = source(**LEARNED)
    _, start = start_from(speech, folder, objective, **LEARNED, **settings)
    expected = load_run(folder).params
    jax.tree.map(np.testing.assert_array_equal, start, expected)


def test_larger_blocks_start_from_single_tokens(source, speech):
    one = {"block_diffusion__block_size": 1}
    folder = source("block_diffusion", **one)
    _, start = start_from(speech, folder, "block_diffusion")
    jax.tree.map(np.testing.assert_array_equal, start, load_run(folder).params)


@pytest.mark.parametrize(
    "settings", [LLAMA, PAST, LLAMA | {"model__scan_layers": True}]
)
@pytest.mark.parametrize("objective", ["prefix_lm", slow("span_corruption")])
def test_both_stacks_start_from_a_causal_one(objective, settings, source, speech):
    folder = source(**settings)
    program, start = start_from(speech, folder, objective, **settings, **TWO)
    held, result = flat(load_run(folder).params), flat(start)
    places = flat(program.abstract_state().params)
    assert result.keys() == places.keys()
    copied = set()
    for path, value in result.items():
        name = path.replace("decoder/", "encoder/").replace("/cross", "/attention")
        np.testing.assert_array_equal(value, held[name], err_msg=path)
        copied.add(name)
    assert copied == held.keys()
    assert sum("/cross/" in path for path in result) >= 4


def test_without_its_cross_attention_the_decoder_is_the_causal_model(source, speech):
    folder = source(**LLAMA)
    reader, _, params, _ = load_run(folder)
    program, start = start_from(speech, folder, "prefix_lm", **LLAMA, **TWO)
    cut = {
        path: np.zeros_like(value) if "/cross/out/" in path else value
        for path, value in flat(start).items()
    }
    cut = flax.traverse_util.unflatten_dict(cut, sep="/")
    tokens = np.arange(40, dtype=np.int32).reshape(2, 20) % program.task.vocab.size
    masks = {"self": attention_masks.full(), "cross": attention_masks.full()}
    masks["dec_self"] = attention_masks.causal()

    def read(params, sources):
        model = program.task.model
        return model.apply(
            {"params": params}, sources, masks, tokens, deterministic=True
        )

    expected = reader.readers["next_logits"](params, tokens)
    for sources in (tokens, tokens[::-1, :7]):
        result = read(cut, sources)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(read(start, tokens) - expected).max() > 1e-3


@pytest.mark.parametrize(
    "objective, held, settings, output",
    [
        (
            "clm",
            LEARNED,
            TWO,
            ("model.positions=learned must be rotary, relative, alibi or",),
        ),
        (
            "clm",
            ROTARY | {"model__positions": "sinusoidal"},
            TWO,
            ("model.positions=sinusoidal must be rotary, relative, alibi or none",),
        ),
        (
            "clm",
            ROTARY,
            {"model__num_decoder_layers": 1},
            ("model.num_decoder_layers=1 must be model.num_layers=2",),
        ),
        ("clm", BOTH, TWO, ("model.relative_directions=both must be past",)),
        (
            "clm",
            ROTARY,
            TWO | {"model__norm_epsilon": 1e-3},
            ("its clm model has model.norm_epsilon=", "this prefix_lm one 0.001"),
        ),
        ("clm", ROTARY, TWO | {"model__d_ff": 48}, ("/mlp/", "32", "48")),
        # Parameters that the network has not, or that the source has not.
        ("future_summary", ROTARY, TWO, ("has summary/", "not at all")),
        ("clm", ROTARY | {"model__embed_norm": True}, TWO, ("layer_0/cross_norm",)),
    ],
)
def test_what_two_stacks_cannot_start_from_is_one_line(
    objective, held, settings, output, source, speech, refuses
):
    folder = source(objective, **held)
    with refuses(f"train.init_from={folder}: ", *output):
        start_from(speech, folder, "prefix_lm", **held | settings)


def test_one_stack_does_not_start_from_two(source, speech, refuses):
    folder = source("prefix_lm", **ROTARY, **TWO)
    with refuses(f"train.init_from={folder}: its prefix_lm model has decoder/"):
        start_from(speech, folder, "clm", **ROTARY)


ANNEAL = {"masked_diffusion__shift": True, "masked_diffusion__mask_anneal": 0.75}


@pytest.mark.parametrize(
    "objective, settings",
    [
        ("masked_diffusion", ANNEAL),
        slow(
            "block_diffusion",
            {"block_diffusion__block_schedule": ((0.25, 1), (0.75, 2))},
        ),
    ],
)
def test_a_run_resumes_within_its_anneal_bit_for_bit(
    objective, settings, source, speech, tmp_path, monkeypatch
):
    """Steps 0 to 8 of 12 anneal; it stops after the sixth."""
    start = {"train__init_from": str(source(model__init_std=0.3))}
    config = make_config(speech, objective, model__dropout=0.1, **settings, **start)
    whole = tmp_path / "whole", *run(config, tmp_path / "whole")
    check_stopped_run(config, 2, whole, tmp_path / "parts", monkeypatch)


@pytest.fixture(scope="module")
def shifted(source):
    return source("masked_diffusion", **LEARNED, **DIFFUSION)


def test_a_shifted_run_writes_by_unmasking(shifted, refuses):
    """Not from left to right, which its training has left."""
    loaded = load_run(shifted)
    assert loaded.program.decoder is None
    (text,) = generate_texts(loaded, ["First"], 8, temperature=0.0)
    assert text.startswith("First") and len(text) > 5
    with refuses("num_tokens", "1 at least"):
        generate_texts(loaded, [""], 8)
    with refuses("num_beams"):
        generate_texts(loaded, ["First"], 8, num_beams=2)


def test_a_shifted_run_fills_from_the_position_before(shifted):
    loaded = load_run(shifted)
    program, tokenizer, params, _ = loaded
    (filled,) = fill_text(loaded, "Fi[MASK]st", 3)
    ids = tokenizer.encode_prompt("Fi[MASK]st")
    place = ids.tolist().index(program.task.vocab.mask)

    def read(model):
        states = model.encode(ids[None], attention_masks.full(), deterministic=True)
        return model.logits(states)[0, place - 1]

    logits = np.array(program.task.model.apply({"params": params}, method=read))
    logits[program.task.nonwords] = -np.inf
    best = np.argsort(-logits)[:3].tolist()
    assert [tokenizer.decode(np.array([i])) for i in best] == [t for t, _ in filled]


def test_an_export_says_how_its_masks_are_filled(shifted, tmp_path, refuses):
    export_run(shifted, tmp_path / "theirs", "gpt2")
    card = (tmp_path / "theirs" / "README.md").read_text()
    assert "predicted at the position before it" in card
    with refuses("bert"):
        export_run(shifted, tmp_path / "other", "bert")
