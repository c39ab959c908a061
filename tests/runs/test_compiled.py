"""What is compiled for a run is compiled once, and kept in JAX's cache."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from tiny import make_config, write_run

import jaxpt
from jaxpt.hub.lm_eval import RunLM
from jaxpt.runs import passage_samples

EVENT = "/jax/core/compile/backend_compile_duration"


@pytest.fixture(scope="module")
def compilations():
    """A list that grows by one with each program that JAX compiles."""
    names = []

    def note(name, *_, **__):
        if name == EVENT:
            names.append(name)

    jax.monitoring.register_event_duration_secs_listener(note)
    yield names
    jax.monitoring.unregister_event_duration_listener(note)


@pytest.fixture(scope="module")
def load(speech, tmp_path_factory):
    """A run of an objective before its first step, loaded anew."""
    folders = {}

    def get(objective):
        if objective not in folders:
            folder = tmp_path_factory.mktemp("compiled") / objective
            folders[objective] = write_run(make_config(speech, objective), folder)
        return jaxpt.load(folders[objective])

    return get


def until(run, text):
    request = type("Request", (), {"args": (text, {"until": ["q"], "max_gen_toks": 4})})
    harness = RunLM(str(run.workdir))
    return lambda: harness.generate_until([request])


GENERATE = {
    "sampled": {"num_tokens": 4, "num_samples": 2, "top_k": 3},
    "greedy": {"num_tokens": 4, "temperature": 0},
    "beams": {"num_tokens": 4, "num_beams": 2},
    "beyond": {"num_tokens": 40},
    "stop": {"num_tokens": 4, "stop": "e"},
}
CALLS = {
    **{
        f"clm {name}": ("clm", lambda run, o=options: lambda: run.generate("the ", **o))
        for name, options in GENERATE.items()
    },
    "answer": (
        "span_corruption",
        lambda run: lambda: run.generate("the men", num_tokens=4),
    ),
    "unmasking": (
        "masked_diffusion",
        lambda run: lambda: run.generate("the ", num_tokens=4, num_steps=2),
    ),
    "blocks": (
        "block_diffusion",
        lambda run: lambda: run.generate("the ", num_tokens=4),
    ),
    "gap": ("fill_in_the_middle", lambda run: lambda: run.fill("the [MASK]en")),
    "fill": ("mlm", lambda run: lambda: run.fill("the [MASK]en")),
    "generate_until": ("clm", lambda run: until(run, "the ")),
    "likelihood": ("mlm", lambda run: lambda: run.nll(["the men", "a"])),
    "embedding": ("mlm", lambda run: lambda: run.embed(["the men", "a"])),
}


SAMPLED = ("clm", "span_corruption", "bart", "fill_in_the_middle", "block_diffusion")


@pytest.mark.parametrize("objective", SAMPLED)
def test_samples_and_texts_share_a_writer(objective, load, compilations):
    """Samples of equal shape compile once, and the second time nothing."""
    run = load(objective)
    program, params = run._loaded.program, run._loaded.params
    length = passage_samples.passage_length(program.task)
    passages = np.random.default_rng(0).integers(4, 9, (2, length)).astype(np.int32)
    form = passage_samples.list_forms(program.task)[0]
    counts = []
    for _ in range(2):
        before = len(compilations)
        args = form, program, run.tokenizer, passages
        passage_samples.make_taker(*args)(params)
        counts.append(len(compilations) - before)
    assert counts[0] >= 1 and counts[1] == 0


@pytest.mark.parametrize("name", CALLS)
def test_equal_calls_compile_once(name, load, compilations):
    objective, make = CALLS[name]
    call, counts, results = make(load(objective)), [], []
    for _ in range(3):
        before = len(compilations)
        results.append(call())
        counts.append(len(compilations) - before)
    first, *rest = counts
    assert rest == [0, 0]
    # Logits of a [MASK] are read by a few operations of their own.
    assert first == 1 or name in ("gap", "fill")
    assert str(results[0]) == str(results[1]) == str(results[2])


def test_a_seed_compiles_nothing_and_other_settings_do(load, compilations):
    run = load("clm")
    texts, counts = [], []
    for options in ({"seed": 1}, {"seed": 2}, {"seed": 1}, {"seed": 1, "top_k": 2}):
        before = len(compilations)
        texts += run.generate("the men", num_tokens=8, **options)
        counts.append(len(compilations) - before)
    assert counts == [1, 0, 0, 1]
    assert texts[0] == texts[2] != texts[1]


def run_code(code, tmp_path, **variables):
    """What a program prints in a process whose home is `tmp_path`."""
    names = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
    environment = {k: v for k, v in os.environ.items() if k not in names}
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"HOME": str(tmp_path)} | variables,
        text=True,
        capture_output=True,
        cwd=Path(__file__).parents[2],
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


CODE = """
import jax, jax.numpy as jnp
print(float(jax.jit(jnp.sin)(0.0)))  # JAX has compiled before
import jaxpt
print(jaxpt.load({!r}).generate("the ", num_tokens=2, seed=3))
print(jax.config.jax_persistent_cache_min_compile_time_secs)
"""


def test_load_uses_the_commands_cache_or_the_users_own(load, tmp_path):
    code = CODE.format(str(load("clm").workdir))
    *_, limit = run_code(code, tmp_path).split()
    cache = tmp_path / ".cache" / "jaxpt" / "xla"
    assert any("_decode" in each.name for each in cache.iterdir()) and limit == "0"
    own, home = tmp_path / "own", tmp_path / "home"
    variables = {
        "JAX_COMPILATION_CACHE_DIR": str(own),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1000",
    }
    *_, limit = run_code(code, home, **variables).split()
    assert limit == "1000.0" and not (home / ".cache" / "jaxpt" / "xla").exists()
    assert not own.exists() or not list(own.glob("*-cache"))
