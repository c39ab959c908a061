"""Settings of a run that trains in a second."""

import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxpt.config.settings import default_config

# One of each kind of objective, for tests of a run that compile much.
CORE = ("clm", "mlm", "span_corruption", "electra")
# What the model of an objective, or of a variant of one, has otherwise.
MODELS = {
    "span_corruption": {"num_decoder_layers": 1},
    "bert": {"num_types": 2},
    "bart": {"num_decoder_layers": 1},
    "mixture/seq2seq": {"num_decoder_layers": 1},
    "prefix_lm/seq2seq": {"num_decoder_layers": 1},
    "ul2/seq2seq": {"num_decoder_layers": 1},
}
# Objectives that are given an encoder and a decoder where a config says neither.
SEQ2SEQ = ("span_corruption", "bart", "ul2")
# What nothing fills in: pairs are of several documents.
TEXTS = {"bert": {"data__documents": "line"}}
# Rows of sentences, as a user asks for them.
ROWS = {
    "bert": {
        "data__rows": "pairs",
        "data__documents": "line",
        "data__sentences": "punctuation",
        "tokenizer__specials": ("pad", "unk", "mask", "eos", "cls", "sep"),
        "model__num_types": 2,
    },
    "bart": {"data__sentences": "punctuation", "data__sentence_ids": True},
}

# Forms of an objective for which all that holds for it must hold too: its name, and
# what is set.
VARIANTS = {
    "electra_15": (
        "electra",
        {"variant": "electra_15", "share_embeddings": "separate"},
    ),
    "disentangled": ("electra", {"share_embeddings": "disentangled"}),
    "replace_mlm": ("electra", {"variant": "replace_mlm"}),
    "all_tokens_mlm": ("electra", {"variant": "all_tokens_mlm"}),
    "parallel_heads": ("multi_token_heads", {"variant": "parallel"}),
    "diffusion_means": ("masked_diffusion", {"average": "row_mean", "rates": "cosine"}),
    "diffusion_by_rank": (
        "masked_diffusion",
        {"rates": "bimodal", "frequency_power": 0.5, "weight": "token"},
    ),
    "diffusion_from_causal": ("masked_diffusion", {"shift": True, "mask_anneal": 0.5}),
    "growing_blocks": ("block_diffusion", {"block_schedule": ((0.25, 1), (0.75, 2))}),
    "uniform_diffusion": ("hybrid_diffusion", {"noise": "uniform", "weight": "bound"}),
    "prefix_and_offsets": ("prefix_token", {"offset_weights": (0.5, 0.25)}),
    "random_selection": ("selective_clm", {"select": "random"}),
    "meap": ("masked_input_clm", {"passes": "masked", "hide_rate": 0.15}),
    "clm_then_mlm": ("clm_mlm", {"mlm_schedule": ((0.5, 0.0), (0.75, 1.0))}),
    "mixture_of_three": (
        "mixture",
        {
            "parts": ("clm", "masked_diffusion", "prefix_lm"),
            "schedule": ((0.5, (0.5, 0.25, 0.25)),),
        },
    ),
    "mixture/seq2seq": (
        "mixture",
        {"parts": ("span_corruption", "prefix_lm"), "has_decoder": True},
    ),
    "prefix_lm/seq2seq": ("prefix_lm", {"is_seq2seq": True}),
    "ul2/seq2seq": ("ul2", {"is_seq2seq": True}),
}

# Loss terms of a model that knows nothing: their values and how far off they may be;
# the tests' vocabulary has 40 ids.
LN_V, LN_2 = math.log(40), math.log(2)
UNIFORM, EVEN = (LN_V, 0.05 * LN_V), (LN_2, 0.05 * LN_2)
# Of 20 tokens 3 are replaced, and p is 1/2 1/V; else it is 1/2 + 1/2 1/V.
COPIED = 0.15 * math.log(80) + 0.85 * math.log(80 / 41)
# Two models that know nothing agree on that, and their states on nothing.
AGREED, APART = (0.0, 0.05), (1.0, 0.4)


@dataclasses.dataclass(frozen=True)
class Traits:
    """What the tests of every objective cannot ask of its spec and its network.

    Attributes:
      first_losses: of each loss term, what it is at first, and how far off it may be.
      drawn: the key of a batch in which it shows that the corruption is drawn; "" where
        nothing is drawn, and batches are always the same.
      specials: roles of special tokens that it needs; None leaves it to the spec.
      feature_widths: how wide its features are, in model widths.
      soft: loss terms whose targets are distributions.
      is_trained_by_progress: a term is in the loss of training alone, which has rows
        with the progress.
      selects: a step trains on some tokens of each microbatch, which it chooses by a
        second network.
    """

    first_losses: dict = dataclasses.field(default_factory=lambda: {"loss": UNIFORM})
    drawn: str = "inputs"
    specials: tuple[str, ...] | None = None
    feature_widths: int = 1
    soft: tuple[str, ...] = ()
    is_trained_by_progress: bool = False
    selects: bool = False


MASK = ("mask",)
SPOTS = {"generator_loss": UNIFORM, "discriminator_loss": EVEN}
# Of each objective, and of its variants, that is not as the most are.
TRAITS = {
    "clm": Traits(drawn="", specials=()),
    "mlm": Traits(specials=MASK),
    "span_corruption": Traits(specials=("pad", "eos")),
    "electra": Traits(SPOTS, specials=MASK),
    "electra_15": Traits(SPOTS, specials=MASK),
    "disentangled": Traits(SPOTS, specials=MASK),
    "replace_mlm": Traits(
        {"generator_loss": UNIFORM, "restoring_loss": UNIFORM}, specials=MASK
    ),
    "all_tokens_mlm": Traits(
        {"generator_loss": UNIFORM, "restoring_loss": (COPIED, 0.05 * COPIED)},
        specials=MASK,
    ),
    "bert": Traits(
        {"mlm_loss": UNIFORM, "nsp_loss": EVEN}, specials=("pad", "mask", "cls", "sep")
    ),
    "spanbert": Traits({"mlm_loss": UNIFORM, "boundary_loss": UNIFORM}, specials=MASK),
    "bart": Traits(specials=("pad", "mask")),
    "prefix_lm": Traits(drawn="is_prefix", specials=("pad",)),
    "prefix_lm/seq2seq": Traits(specials=("pad", "eos")),
    "clm_mlm": Traits({"clm_loss": UNIFORM, "mlm_loss": UNIFORM}, specials=MASK),
    "clm_then_mlm": Traits({"clm_loss": UNIFORM, "mlm_loss": UNIFORM}, specials=MASK),
    "mixture": Traits({"clm_loss": UNIFORM, "mlm_loss": UNIFORM}, specials=MASK),
    # An estimate: few masked tokens count much.
    "mixture_of_three": Traits(
        {
            "clm_loss": UNIFORM,
            "masked_diffusion_loss": (LN_V, 0.3 * LN_V),
            "prefix_lm_loss": UNIFORM,
        },
        specials=("mask", "pad"),
    ),
    "mixture/seq2seq": Traits(
        {"span_corruption_loss": UNIFORM, "prefix_lm_loss": UNIFORM},
        specials=("pad", "eos"),
    ),
    "ul2": Traits(specials=("pad", "eos", "nlu", "nlg", "s2s")),
    "ul2/seq2seq": Traits(specials=("pad", "eos", "nlu", "nlg", "s2s")),
    "distillation": Traits(
        {"kl_loss": AGREED, "mlm_loss": UNIFORM, "cosine_loss": APART}, specials=MASK
    ),
    "causal_distillation": Traits(
        {"kl_loss": AGREED, "clm_loss": UNIFORM}, drawn="", specials=()
    ),
    "selective_clm": Traits(drawn="", specials=(), selects=True),
    "random_selection": Traits(drawn="", specials=(), selects=True),
    "bilm": Traits(
        {"forward_loss": UNIFORM, "backward_loss": UNIFORM},
        drawn="",
        specials=(),
        feature_widths=2,
    ),
    # A pair and five negatives, one in 25 of which is the neighbour and left out.
    "skip_gram": Traits({"loss": (6 * LN_2, 0.3)}, drawn="negatives", specials=()),
    "adaptive_mlm": Traits(specials=MASK),
    "fill_in_the_middle": Traits(specials=("eos",)),
    "token_order": Traits(
        {"loss": UNIFORM, "order_loss": UNIFORM},
        drawn="",
        specials=(),
        soft=("order_loss",),
    ),
    # Evaluated as at the end of a run, where other offsets have faded.
    "multi_token": Traits(
        {"clm_loss": UNIFORM, "offset_loss": (0.0, 0.0)}, drawn="", specials=()
    ),
    "prefix_token": Traits(
        {"clm_loss": UNIFORM, "prefix_loss": (0.0, 0.0)}, drawn="", specials=()
    ),
    "prefix_and_offsets": Traits(
        {"clm_loss": UNIFORM, "prefix_loss": (0.0, 0.0), "offset_loss": (0.0, 0.0)},
        drawn="",
        specials=(),
    ),
    "future_summary": Traits(
        {"loss": UNIFORM, "summary_loss": EVEN},
        drawn="",
        specials=(),
        is_trained_by_progress=True,
    ),
    # A model that knows nothing is as far from its next state as states are apart.
    "next_latent": Traits(
        {"loss": UNIFORM, "latent_loss": (0.6, 0.6), "divergence_loss": (0.0, 0.1)},
        drawn="",
        specials=(),
        is_trained_by_progress=True,
    ),
    # Predictions are 0 at first, hence without a direction and a variance.
    "latent_prediction": Traits(
        # Predictions hardly vary at first: the hinge of their variance is near 1.
        {"loss": UNIFORM, "latent_loss": (1.0, 0.6), "variance_loss": (0.95, 0.05)},
        drawn="",
        specials=(),
        is_trained_by_progress=True,
    ),
    "masked_input_clm": Traits(
        {"loss": UNIFORM, "masked_loss": UNIFORM}, specials=MASK
    ),
    # Evaluated on clean text.
    "meap": Traits(drawn="", specials=MASK),
    # Estimates: few masked tokens count much.
    "dual": Traits(
        {"clm_loss": UNIFORM, "diffusion_loss": (LN_V, 0.3 * LN_V)}, specials=MASK
    ),
    "multi_token_heads": Traits(
        {"clm_loss": UNIFORM, "offset_2_loss": UNIFORM}, drawn="", specials=()
    ),
    "parallel_heads": Traits(
        {"clm_loss": UNIFORM} | {f"offset_{k}_loss": UNIFORM for k in (2, 3, 4)},
        drawn="",
        specials=(),
    ),
    # An estimate: few masked tokens count much.
    "masked_diffusion": Traits({"loss": (LN_V, 0.3 * LN_V)}, specials=MASK),
    "diffusion_means": Traits({"loss": (LN_V, 0.3 * LN_V)}, specials=MASK),
    "diffusion_by_rank": Traits({"loss": (LN_V, 0.3 * LN_V)}, specials=MASK),
    "block_diffusion": Traits({"loss": (LN_V, 0.3 * LN_V)}, specials=MASK),
    "diffusion_from_causal": Traits({"loss": (LN_V, 0.3 * LN_V)}, specials=MASK),
    "hybrid_diffusion": Traits(
        {"loss": (LN_V, 0.3 * LN_V)}, specials=MASK, is_trained_by_progress=True
    ),
    "uniform_diffusion": Traits(
        {"loss": (LN_V, 0.3 * LN_V)}, specials=MASK, is_trained_by_progress=True
    ),
    "growing_blocks": Traits({"loss": (LN_V, 0.3 * LN_V)}, specials=MASK),
}


def slow(*values):
    """A case to parametrize by that `make test` leaves out."""
    return pytest.param(*values, marks=pytest.mark.slow)


def slow_but(quick, cases):
    """Cases to parametrize by, of which `make test` runs only the quick ones."""

    def mark(case):
        values = case if isinstance(case, tuple) else (case,)
        return pytest.param(*values) if case in quick else slow(*values)

    return [mark(case) for case in cases]


def make_config(path, objective="clm", **changes):
    """A config that trains in a second: `changes` are section__field=value.

    What the objective needs beside is left to be filled in (`jaxpt.config.needs`).
    """
    config = default_config()
    config.objective = objective
    config.data.path = str(path)
    config.data.split = "position"
    config.data.row_length = 24
    config.tokenizer.specials = ("pad", "unk", "mask", "eos")
    config.tokenizer.num_sentinels = 4
    config.model.num_layers = 1
    config.model.d_model = 16
    config.model.num_heads = 2
    config.model.d_ff = 32
    config.model.max_len = 32
    config.electra.generator_size = 0.5
    config.train.batch_size = 8
    config.train.steps = 12
    config.train.steps_per_call = 2
    config.train.log_every = 2
    config.train.checkpoint_every = 4
    config.eval.num_rows = 16
    config.eval.batch_size = 8
    config.eval.probe_length = 8
    config.eval.samples = 0
    for name, value in (TEXTS.get(objective, {}) | changes).items():
        section, field = name.split("__")
        config[section][field] = value
    return config


def write_config(path, speech, **changes):
    """A config file that builds `make_config`'s config."""
    lines = ["import sys", f"sys.path.insert(0, {str(Path(__file__).parent)!r})"]
    lines.append("from tiny import make_config")
    lines.append(f"get_config = lambda: make_config({str(speech)!r}, **{changes!r})")
    path.write_text("\n".join(lines), encoding="utf-8")


def write_stored(path, config, **more):
    """A config as a run stores it, a file for --config too; `more` is put in."""
    from jaxpt.config.settings import to_dict
    from jaxpt.version import __version__

    stored = {"version": __version__} | to_dict(config) | more
    path.write_text(json.dumps(stored), encoding="utf-8")
    return path


def many_devices(num):
    """The environment of a process with so many CPU devices.

    The threads that run them are as many as the devices unless NPROC asks for more; any
    other work then takes the last one's, and an all-reduce waits for ever: one run in
    twelve on two busy cores. XLA ends such a process after 40 seconds.
    """
    return {
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} "
        f"--xla_force_host_platform_device_count={num}",
        "NPROC": "32",
    }


def run_on_devices(num, code):
    """What a program prints in a process with so many CPU devices."""
    root = str(Path(__file__).resolve().parents[1])
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | many_devices(num) | {"PYTHONPATH": root},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


def prepare(config, explicit_names=()):
    """A config's task, with the tokenizer and the corpora that it trains on.

    Args:
      explicit_names: the settings that are never filled in.
    """
    # Not above: a config that is read imports this file, and needs none of them.
    from jaxpt.config.plan import make_plan
    from jaxpt.runs.data import with_token_counts
    from jaxpt.runs.task import make_task
    from jaxpt.text.dataset import load_text

    plan = make_plan(config, explicit_names)
    tokenizer, corpora = load_text(plan.text)
    vocab = with_token_counts(plan, tokenizer.vocab, corpora["train"])
    return make_task(plan, vocab), tokenizer, corpora


def claim_run(config, folder):
    """What a run's folder says before it has a checkpoint; and its task."""
    from jaxpt.runs.workdir import lock_workdir

    task, tokenizer, corpora = prepare(config)
    lock_workdir(folder, task.plan, tokenizer, corpora)
    return task


def write_run(config, folder):
    """A run's folder as it stands before its first step, which compiles little."""
    from jaxpt.runs.checkpoint import Checkpointer
    from jaxpt.runs.program import Program

    task = claim_run(config, folder)
    with Checkpointer(folder / "checkpoints") as checkpointer:
        checkpointer.save(0, Program(task).init_state(task.plan.train.seed))
    return folder
