"""A tiny run of any objective, and a task that can be learned from few examples."""

import random

import pytest
from tiny import make_config, write_run

from jaxpt.config.finetuning import default_finetune_config, make_finetune_plan

WORDS = "the cat sat on a mat and dog ran to it".split()
MODELS = {
    "bart": {"model__num_decoder_layers": 1},
    "span_corruption": {"model__num_decoder_layers": 1},
}


def write_split(path, num, seed):
    """Phrases that are right (1) where they hold "good", wrong where "bad"."""
    draw = random.Random(seed)
    lines = ["sentence\tlabel"]
    for _ in range(num):
        label = draw.random() < 0.5
        words = [draw.choice(WORDS) for _ in range(draw.randint(1, 3))]
        words.insert(draw.randint(0, len(words)), "good" if label else "bad")
        lines.append(f"{' '.join(words)}\t{int(label)}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="session")
def splits(tmp_path_factory):
    """A folder with train.tsv, dev.tsv and test.tsv."""
    folder = tmp_path_factory.mktemp("splits")
    for seed, (name, num) in enumerate((("train", 40), ("dev", 16), ("test", 16))):
        write_split(folder / f"{name}.tsv", num, seed)
    return folder


@pytest.fixture(scope="session")
def make_base(tmp_path_factory):
    """`make_base("mlm")`: the folder of a run that was not trained."""
    folder = tmp_path_factory.mktemp("bases")
    text = "the cat sat on a mat and the dog ran to it, what a good or bad day. "
    (folder / "text.txt").write_text(text * 40, encoding="utf-8")

    def make(objective, **changes):
        place = folder / "-".join([objective, *map(str, changes.values())])
        if not place.exists():
            more = MODELS.get(objective, {}) | {"model__dropout": 0.1} | changes
            write_run(make_config(folder / "text.txt", objective, **more), place)
        return place

    return make


@pytest.fixture
def make_tune(splits):
    """`make_tune(train__lr=(1e-2,))`: a plan that trains in a second."""

    def make(task="classification", **changes):
        config = default_finetune_config(task)
        for name in ("train", "dev", "test"):
            config.data[name] = str(splits / f"{name}.tsv")
        config.task.max_len = 32
        values = {
            "train__lr": (1e-2,),
            "train__batch_size": (8,),
            "train__epochs": (2,),
            "train__num_lengths": 1,
            "train__eval_batch_size": 16,
        }
        for name, value in (values | changes).items():
            section, field = name.split("__")
            config[section][field] = value
        return make_finetune_plan(config)

    return make
