"""Runs as StableHLO functions: without jaxpt, JAX computes the run's logits.

The program of an export's README runs in a process that cannot import jaxpt, and is
compared with the network of the run: other masks, scanned layers, its own precision.
"""

import importlib.util
import json
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from safetensors.numpy import load_file
from tiny import make_config, slow_but, write_run

import jaxpt
from jaxpt.cli.main import main
from jaxpt.hub import stablehlo_export
from jaxpt.hub.stablehlo_export import export_stablehlo
from jaxpt.nn.heads import TokenScore
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import masks

HAS_FLATBUFFERS = importlib.util.find_spec("flatbuffers") is not None
needs_flatbuffers = pytest.mark.skipif(
    not HAS_FLATBUFFERS, reason="jax.export needs flatbuffers (the stablehlo extra)"
)
# Runs of each kind of network and of special inputs.
RUNS = (
    *("clm", "mlm", "bert", "electra", "replace_mlm", "disentangled"),
    *("span_corruption", "bart", "ul2", "prefix_lm"),
    *("clm_mlm", "masked_diffusion", "block_diffusion", "hybrid_diffusion"),
    *("diffusion_from_causal", "distillation", "spanbert", "multi_token_heads"),
)
QUICK = ("clm", "bert", "electra", "span_corruption", "prefix_lm", "masked_diffusion")
FUNCTIONS = {
    "electra": {"generator", "discriminator"},
    "disentangled": {"generator", "discriminator"},
    "replace_mlm": {"generator", "restorer"},
}
LONGEST = 32  # tokens, of `make_config`
BLOCK = "import sys; sys.modules['jaxpt'] = None\n"
# After the program of a README, whose variables are used.
MORE = """
import json
given = np.load("given.npz")
sizes = json.load(open("given.json"))
results = {"example": outputs["logits"]}
for size in sizes:
    inputs = [given[f"{size}/{i}"] for i in range(len(sizes[size]))]
    results[size] = model.call(weights, *inputs)["logits"]
np.savez("results.npz", **results)
try:
    import jaxpt
except ImportError:
    print("jaxpt cannot be imported")
"""


def read_programs(folder):
    """The programs of an export's README, by the file that they load."""
    text = (folder / "README.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = [re.search(r'"(\w+)\.jax_export"', code)[1] for code in programs]
    return dict(zip(names, programs, strict=True))


def draw(inputs, batch, rng):
    """Inputs of a function: texts of several lengths, padded; by name."""
    lengths = {"length": int(rng.integers(2, LONGEST + 1)), "source_length": 9}
    drawn = {}
    for name, axes in inputs.items():
        shape = [batch if axis == "batch" else lengths[axis] for axis in axes]
        if name.endswith("input_ids"):
            values = rng.integers(0, 40, shape)
        elif name == "attention_mask":
            ends = rng.integers(1, shape[1] + 1, (batch, 1))
            ends[0] = shape[1]
            values = np.arange(shape[1]) < ends
        elif name == "token_type_ids":
            values = rng.integers(0, 2, shape)
        else:
            values = rng.integers(0, drawn["input_ids"].shape[1], shape)
        drawn[name] = np.asarray(values, np.int32)
    return drawn


def expect(run, name, given):
    """The logits of the run's own network, and where they are compared."""
    parts = run.model.export_parts(run.params)
    head = {"restorer": "masked"}.get(name, name)
    spec, params = parts.get(head) or next(iter(parts.values()))
    ids, segments = given["input_ids"], jnp.asarray(given["attention_mask"])
    batch = {"inputs": ids, "segment_ids": segments}
    if "decoder_input_ids" in given:
        written = given["decoder_input_ids"]
        batch["dec_inputs"] = written
        attn_masks = {
            "self": masks.segments(segments),
            "dec_self": masks.causal(),
            "cross": masks.segments(jnp.ones_like(written), segments),
        }
        compared = np.ones(written.shape, bool)
    else:
        compared = given["attention_mask"] > 0
        mask = masks.segments(segments)
        if "causal" in parts:
            mask = masks.causal(segments)
            if "prefix_lengths" in given:
                lengths = jnp.asarray(given["prefix_lengths"])[:, None]
                is_prefix = jnp.arange(ids.shape[1]) < lengths
                mask = masks.prefix_keys(is_prefix, segments)
        attn_masks = {"self": mask}
    if "token_type_ids" in given:
        batch["type_ids"] = given["token_type_ids"]

    def predict(model):
        states = model.batch_states(batch, attn_masks, deterministic=True)
        return states if head == "discriminator" else model.logits(states)

    logits = Transformer(spec).apply({"params": params}, method=predict)
    if head == "discriminator":
        logits = TokenScore(spec).apply({"params": params["score"]}, logits)
    return np.asarray(logits), compared


def run_program(program, folder, given):
    """What a README's program computes without jaxpt, for further inputs, too."""
    arrays = {
        f"{size}/{i}": values
        for size, inputs in given.items()
        for i, values in enumerate(inputs.values())
    }
    np.savez(folder / "given.npz", **arrays)
    names = {size: list(inputs) for size, inputs in given.items()}
    (folder / "given.json").write_text(json.dumps(names))
    result = subprocess.run(
        [sys.executable, "-c", BLOCK + program + MORE],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert "jaxpt cannot be imported" in result.stdout
    with np.load(folder / "results.npz") as results:
        return dict(results)


@needs_flatbuffers
@pytest.mark.parametrize("name", slow_but(QUICK, RUNS))
def test_the_readmes_program_gives_the_runs_logits_without_jaxpt(name, runs, tmp_path):
    folder = tmp_path / "to"
    export_stablehlo(runs(name), folder)
    run, description = (
        jaxpt.load(runs(name)),
        json.loads((folder / "model.json").read_text()),
    )
    programs = read_programs(folder)
    assert programs.keys() == FUNCTIONS.get(name, {"model"})
    assert programs.keys() == description["functions"].keys()
    rng = np.random.default_rng(0)
    for function, program in programs.items():
        listed = description["functions"][function]["inputs"]
        inputs = {each["name"]: each["shape"] for each in listed}
        given = {str(batch): draw(inputs, batch, rng) for batch in (1, 3, 7)}
        results = run_program(program, folder, given)
        assert results["example"].shape[:2] == (2, 3)
        for batch, each in given.items():
            expected, compared = expect(run, function, each)
            np.testing.assert_allclose(
                results[batch][compared], expected[compared], atol=1e-5, rtol=0
            )
            assert np.abs(expected).max() > 0.01


@needs_flatbuffers
def test_scanned_layers_windows_and_a_masked_head_are_exported(speech, tmp_path):
    config = make_config(
        speech,
        "clm",
        model__init_std=0.3,
        model__num_layers=3,
        model__scan_layers=True,
        model__window=3,
        model__norm="rmsnorm",
        model__positions="rotary",
        model__num_kv_heads=1,
    )
    workdir = write_run(config, tmp_path / "run")
    export_stablehlo(workdir, tmp_path / "to")
    (program,) = read_programs(tmp_path / "to").values()
    inputs = {"input_ids": ["batch", "length"], "attention_mask": ["batch", "length"]}
    given = draw(inputs, 5, np.random.default_rng(1))
    results = run_program(program, tmp_path / "to", {"5": given})
    expected, compared = expect(jaxpt.load(workdir), "model", given)
    np.testing.assert_allclose(
        results["5"][compared], expected[compared], atol=1e-5, rtol=0
    )


@needs_flatbuffers
def test_a_function_is_for_all_platforms_and_refuses_too_long_a_text(runs, tmp_path):
    export_stablehlo(runs("clm"), tmp_path / "to")
    data = (tmp_path / "to" / "model.jax_export").read_bytes()
    model, weights = (
        export.deserialize(bytearray(data)),
        load_file(tmp_path / "to" / "model.safetensors"),
    )
    assert model.platforms == ("cpu", "cuda", "tpu")
    for length in (1, LONGEST):
        ids = np.ones((1, length), np.int32)
        assert model.call(weights, ids, ids)["logits"].shape[1] == length
    ids = np.ones((1, LONGEST + 1), np.int32)
    with pytest.raises(ValueError, match="shapes"):
        model.call(weights, ids, ids)


@needs_flatbuffers
def test_the_weights_are_those_that_the_functions_read(runs, tmp_path):
    """Heads that only training reads are left out, and names are the run's."""
    export_stablehlo(runs("spanbert"), tmp_path / "to")
    run = jaxpt.load(runs("spanbert"))
    paths = {
        "/".join(key.key for key in path)
        for path, _ in jax.tree_util.tree_leaves_with_path(run.params)
    }
    names = load_file(tmp_path / "to" / "model.safetensors").keys()
    assert names < paths
    assert any(name.startswith("embed/") for name in names)


@needs_flatbuffers
def test_the_card_says_that_a_causal_function_has_no_cache(runs, tmp_path):
    for name, has_note in (("clm", True), ("bert", False)):
        export_stablehlo(runs(name), tmp_path / name)
        text = (tmp_path / name / "README.md").read_text()
        assert ("no key-value cache" in text) == has_note
        assert "library_name: jax\n" in text


@needs_flatbuffers
def test_a_function_that_differs_from_the_run_is_not_written(
    runs, tmp_path, monkeypatch, refuses
):
    convert = stablehlo_export.convert

    def convert_wrongly(network, graph, tensors):
        exported = convert(network, graph, tensors)
        name = "embed/tokens"
        tensors[name] = 1.01 * tensors[name]
        return exported

    monkeypatch.setattr(stablehlo_export, "convert", convert_wrongly)
    with refuses(r"model.jax_export is wrong: logits differs"):
        export_stablehlo(runs("clm"), tmp_path / "to")
    assert not (tmp_path / "to").exists()


@needs_flatbuffers
@pytest.mark.parametrize("name", ["bilm", "skip_gram"])
def test_a_run_without_a_transformer_is_refused(name, tmp_path, speech, refuses):
    settings = {"bilm__filters": (4, 4), "bilm__num_chars": 4} if name == "bilm" else {}
    workdir = write_run(make_config(speech, name, **settings), tmp_path / "run")
    with refuses(f"StableHLO: a {name} run has no Transformer"):
        export_stablehlo(workdir, tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_a_missing_package_is_named(tmp_path, monkeypatch, refuses):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with refuses("needs flatbuffers: pip install 'jaxpt[stablehlo]'"):
        export_stablehlo(tmp_path, tmp_path / "to")


@pytest.mark.parametrize(
    "flag", ["--precision=int8", "--dtype=bfloat16", "--push=a/b", "--attentions"]
)
def test_flags_of_other_formats_are_refused(flag, tmp_path, capsys):
    argv = ["export", "--workdir", str(tmp_path), "--to", str(tmp_path / "to")]
    assert main([*argv, "--format", "stablehlo", flag]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "must be left out with --format=stablehlo" in line
