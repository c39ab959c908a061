"""Each recipe of configs/recipe.py is the published one, and costs what it states."""

import functools
import re
import runpy
from pathlib import Path

import jax
import pytest

from jaxpt.cli.main import main
from jaxpt.config.config_files import read_config_file
from jaxpt.config.plan import make_plan
from jaxpt.hub.exportable import name_families
from jaxpt.runs.program import DEVICE_PEAKS
from jaxpt.runs.task import make_task
from jaxpt.text.tokens.vocab import Vocab

ROOT = Path(__file__).resolve().parents[1]
MFU = 0.4
# Parameters as counted by transformers or, rounded, as the paper states them, and how
# far ours may be; raw tokens of the whole run; settings.
PUBLISHED = {
    "bert-base": {
        "parameters": (110_106_428, 0),  # BertForPreTraining
        "tokens": 256 * 512 * 1e6,
        "vocabulary": ("wordpiece", 30_522, True),
        "optim": (1e-4, "bert_linear", 10_000, 0.9, 0.999, 1e-6, 0.01, 1.0),
        "train": (256, 1_000_000, 512),
        "objective": {"mask_rate": 0.15, "replace_mask": 0.8, "replace_random": 0.1},
        "dropout": 0.1,
    },
    "roberta-base": {
        "parameters": (124_697_433, 0),
        "tokens": 8192 * 512 * 5e5,
        "vocabulary": ("bpe", 50_265, False),
        "optim": (6e-4, "linear", 24_000, 0.9, 0.98, 1e-6, 0.01, 0.0),
        "train": (8192, 500_000, 512),
        "objective": {"mask_rate": 0.15, "replace_mask": 0.8, "replace_random": 0.1},
        "dropout": 0.1,
    },
    "electra-small": {
        "parameters": (14e6, 0.02),
        "tokens": 128 * 128 * 1e6,
        "vocabulary": ("wordpiece", 30_522, True),
        "optim": (5e-4, "electra_linear", 10_000, 0.9, 0.999, 1e-6, 0.01, 1.0),
        "train": (128, 1_000_000, 128),
        "objective": {
            "mask_rate": 0.15,
            "replace_mask": 0.85,
            "generator_size": 0.25,
            "generator_weight": 1.0,
            "discriminator_weight": 50.0,
            "temperature": 1.0,
            "num_masked": 19,
        },
        "dropout": 0.1,
    },
    "electra-base": {
        "parameters": (110e6, 0.1),  # without the generator, which is counted here
        "tokens": 256 * 512 * 766e3,
        "vocabulary": ("wordpiece", 30_522, True),
        "optim": (2e-4, "electra_linear", 10_000, 0.9, 0.999, 1e-6, 0.01, 1.0),
        "train": (256, 766_000, 512),
        "objective": {
            "mask_rate": 0.15,
            "replace_mask": 0.85,
            "generator_size": 1 / 3,
            "generator_weight": 1.0,
            "discriminator_weight": 50.0,
            "temperature": 1.0,
        },
        "dropout": 0.1,
    },
    "gpt2-small": {
        "parameters": (124_439_808, 0),
        "tokens": 491_520 * 600e3 * 1025 / 1024,  # a row's last token is a target
        "vocabulary": ("bpe", 50_257, False),
        "optim": (6e-4, "cosine", 2000, 0.9, 0.95, 1e-8, 0.1, 1.0),
        "train": (480, 600_000, 1024),
        "objective": {},
        "dropout": 0.0,
    },
    "t5-small": {
        "parameters": (60_506_624, 0),
        "tokens": 2048 * 568 * 1e6,
        "vocabulary": ("unigram", 32_100, False),
        "optim": (0.01, "inverse_sqrt", 10_000, 0.0, None, 1e-30, 0.0, 0.0),
        "train": (2048, 1_000_000, 512),
        "objective": {
            "noise_density": 0.15,
            "mean_span_length": 3.0,
            "lengths": {"encoder": 512, "decoder": 114},
        },
        "dropout": 0.1,
    },
    "t5-1.1-small": {
        "parameters": (76_961_152, 0),
        "tokens": 2048 * 568 * 1e6,
        "vocabulary": ("unigram", 32_100, False),
        "optim": (0.01, "inverse_sqrt", 10_000, 0.0, None, 1e-30, 0.0, 0.0),
        "train": (2048, 1_000_000, 512),
        "objective": {
            "noise_density": 0.15,
            "mean_span_length": 3.0,
            "lengths": {"encoder": 512, "decoder": 114},
        },
        "dropout": 0.0,
    },
    "bart-base": {
        "parameters": (139_420_416, 0),
        "tokens": 8000 * 512 * 5e5,
        "vocabulary": ("bpe", 50_265, False),
        "optim": (4e-4, "linear", 10_000, 0.9, 0.999, 1e-8, 0.01, 0.1),
        "train": (8000, 500_000, 512),
        "objective": {
            "infill_rate": 0.3,
            "poisson_mean": 3.0,
            "permute_sentences": 1.0,
            "rotate": 0.0,
        },
        "dropout": 0.1,
    },
    "modernbert-base": {
        "parameters": (149_655_232, 0),
        "tokens": 1.719e12,
        "vocabulary": ("bpe", 50_368, False),
        # The decay of a step at the peak rate is 1e-5, without the rate.
        "optim": (8e-4, "constant", 3815, 0.9, 0.98, 1e-6, 1e-5 / 8e-4, 1.0),
        "train": (4608, 374_900, 1024),
        "objective": {"mask_rate": 0.3, "replace_mask": 0.8, "replace_random": 0.1},
        "dropout": 0.0,
    },
    "gpt-bert-small": {
        "parameters": (30e6, 0.07),
        "tokens": 32768 * 128 * 7812 * 5 / 8,  # the batch rises from a quarter
        "vocabulary": ("bpe", 8192, False),
        "optim": (1.41e-2, "cosine", 124, 0.9, 0.98, 1e-8, 0.1, 2.0),
        "train": (8192, 7812, 512),
        "objective": {
            "mlm_share": 15 / 16,
            "mask_rate": 0.225,  # the mean of 0.3 and 0.15
            "replace_mask": 0.8,
            "replace_random": 0.1,
        },
        "dropout": 0.1,
    },
}
RECIPES = runpy.run_path(str(ROOT / "configs" / "recipe.py"))["RECIPES"]
PHASES = ["bert-base-phase1", "bert-base-phase2"]


@functools.cache
def load(name):
    """The task of a recipe, with a vocabulary of the tokenizer's size."""
    plan = make_plan(read_config_file(f"recipe:{name}"), is_run=True)
    spec = plan.text.tokenizer
    ids = {role: id_ for id_, role in enumerate(spec.specials)}
    last = spec.vocab_size - 1
    sentinels = tuple(range(last, last - spec.num_sentinels, -1))
    vocab = Vocab(size=spec.vocab_size, sentinels=sentinels, **ids)
    return make_task(plan, vocab)


def count_parameters(task) -> int:
    shapes = jax.eval_shape(task.model.init_params, jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def count_costs(task) -> tuple[float, float]:
    """FLOPs of the whole run, and days on one H100 at `MFU`."""
    flops = task.count_costs(task.plan.train.steps)["flops"]
    return flops, flops / (DEVICE_PEAKS["H100"] * MFU) / 86400


def test_every_recipe_is_tested_and_listed(refuses):
    assert {*PUBLISHED, *PHASES} == RECIPES.keys() == read_table().keys()
    with refuses("recipe:bert: must be one of bert-base, bert-base-phase1, "):
        read_config_file("recipe:bert")


@pytest.mark.parametrize("name", PUBLISHED)
def test_settings_are_the_published_ones(name):
    plan, expected = load(name).plan, PUBLISHED[name]
    assert not plan.filled  # nothing is missing
    tokenizer, optim, train = plan.text.tokenizer, plan.optim, plan.train
    vocabulary = tokenizer.kind, tokenizer.vocab_size, tokenizer.lowercase
    assert vocabulary == expected["vocabulary"]
    moments = optim.beta1, None if optim.name == "adafactor" else optim.beta2
    last = optim.epsilon, optim.weight_decay, optim.clip_norm
    values = optim.lr, optim.schedule, optim.warmup_steps, *moments, *last
    assert values == expected["optim"]
    length = max(plan.spec.lengths.values())
    length += name == "gpt-bert-small"  # a row's last token is a target
    assert (train.batch_size, train.steps, length) == expected["train"]
    for field, value in expected["objective"].items():
        assert getattr(plan.spec, field) == value, field
    rates = plan.model.dropout, plan.model.embed_dropout, plan.model.attention_dropout
    assert set(rates) == {expected["dropout"]}


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_are_the_published_ones(name):
    task, expected = load(name), PUBLISHED[name]
    number, tolerance = expected["parameters"]
    assert count_parameters(task) == pytest.approx(number, rel=tolerance, abs=0)
    costs = task.count_costs(task.plan.train.steps)
    assert costs["raw_tokens"] == pytest.approx(expected["tokens"], rel=1e-3)


EXPORTS = {"gpt2-small": "gpt2", "gpt-bert-small": "none"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_all_but_one_can_be_exported(name):
    line = name_families(load(name))
    family = EXPORTS.get(name, name.partition("-")[0])
    assert line.partition(";")[0] == family
    assert (" model.d_model" in line) is False
    assert ("(now relative)" in line) == (family == "none")


def test_the_optimizers_departures_from_adamw():
    assert {load(name).plan.optim.name for name in ("t5-small", "t5-1.1-small")} == {
        "adafactor"
    }
    for name in ("bert-base", "electra-small", "electra-base"):
        assert not load(name).plan.optim.bias_correction
    optim = load("gpt-bert-small").plan.optim
    assert (optim.name, optim.ema_decay, optim.min_lr_ratio) == ("lamb", 0.999, 0.1)
    assert load("gpt2-small").plan.optim.min_lr_ratio == 0.1
    assert load("t5-small").plan.optim.warmup_type == "flat"
    assert load("t5-1.1-small").plan.model.z_loss == 1e-4


def test_rows_have_the_special_tokens_of_the_family():
    for name in ("roberta-base", "electra-small", "electra-base", "modernbert-base"):
        assert load(name).plan.rows.add_special_tokens, name
    assert load("bert-base").plan.rows.rows == "pairs"
    # fairseq's positions are counted from the padding id, 1.
    assert all(load(name).vocab.pad == 1 for name in ("roberta-base", "bart-base"))


def test_the_two_phases_of_bert_are_the_whole_run():
    """Of 128 tokens, then 512, with the rate of one line."""
    whole, first, second = map(load, ("bert-base", *PHASES))
    assert (first.spec.row_length, second.spec.row_length) == (128, 512)
    steps = [task.plan.train.steps for task in (first, second)]
    assert steps == [900_000, 100_000] and sum(steps) == whole.plan.train.steps
    assert first.plan.optim.lr == 1e-4 and second.plan.optim.lr == 1e-5
    assert first.plan.optim.min_lr_ratio == 0.1
    assert first.model_spec == second.model_spec == whole.model_spec


def test_the_batches_of_modernbert_and_gpt_bert_rise():
    phases = load("modernbert-base").plan.train.phases
    assert [phase.batch_size for phase in phases] == [768 * k for k in range(1, 7)]
    train = load("gpt-bert-small").plan.train
    tasks = load("gpt-bert-small").phases
    lengths = [task.spec.row_length for task in tasks]
    assert set(lengths) == {128, 256, 512} and lengths == sorted(lengths)
    tokens = [p.batch_size * n for p, n in zip(train.phases, lengths, strict=True)]
    assert (
        tokens == sorted(tokens) and tokens[0] < 0.4 * 2**22 < 0.9 * 2**22 < tokens[-1]
    )


def read_table() -> dict[str, list[str]]:
    text = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.-]+)` \|(.*)\|$", text, re.MULTILINE)
    return {name: [cell.strip() for cell in row.split("|")] for name, row in rows}


@pytest.mark.parametrize("name", RECIPES)
def test_stated_costs(name):
    """Of the docstrings and of the table of docs/recipes.md."""
    task = load(name)
    flops, days = count_costs(task)
    last = RECIPES[name].__doc__.strip().splitlines()[-1]
    assert last.strip() == f"Cost: {flops:.2e} FLOPs, {days:.2g} days"
    train, optim = task.plan.train, task.plan.optim
    parameters = count_parameters(task)
    assert read_table()[name] == [
        task.plan.objective_name,
        f"{parameters / 1e6:.1f}M",
        f"{task.plan.text.tokenizer.vocab_size:,}",
        f"{train.batch_size:,} × {task.spec.row_length:,}",
        f"{train.steps:,}",
        f"{optim.lr:g}, {optim.warmup_steps:,}",
        f"{flops:.2e}",
        f"{days:.2g}",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_small_one_trains_and_is_exported(name, tmp_path):
    words = "the union is strong and free. we work for peace in every state."
    text = "\n\n".join(f"{words} {i} {words[::2]}." for i in range(400))
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    flags = {
        "data.path": tmp_path / "text.txt",
        "data.documents": "paragraph",
        "data.row_length": 32,
        "tokenizer.vocab_size": 400,
        "model.vocab_size": 0,
        "model.num_layers": 2,
        "model.d_model": 64,
        "model.num_heads": 4,
        "model.d_ff": 64,
        "train.steps": 2,
        "train.steps_per_call": 1,
        "train.batch_size": 16,
        "train.trackers": "()",
        "eval.num_rows": 8,
    }
    if name in ("t5-small", "t5-1.1-small", "bart-base"):
        flags["model.num_decoder_layers"] = 2
    run = tmp_path / "run"
    argv = [f"--config.{key}={value}" for key, value in flags.items()]
    argv = ["train", f"--config=recipe:{name}", f"--workdir={run}", *argv]
    assert main(argv) == 0
    code = main(["export", f"--workdir={run}", f"--to={tmp_path / 'out'}"])
    assert (code == 0) == (name != "gpt-bert-small")
