"""DialogSum: a dialogue's summary, written out (Chen et al. 2021).

    jaxpt finetune --from RUN --config configs/tasks/dialogsum.py:FOLDER --to DIR

FOLDER has dialogsum.dev.jsonl.xz and dialogsum.test.jsonl.xz; for a network that writes
from left to right. It learns from four fifths of the dev set and is measured on the
rest; --config.data.train sets another training file. The test set has three
summaries of each dialogue, `summary1` to `summary3`, of which ROUGE's best counts.
"""

from jaxpt.config.finetuning import default_finetune_config


def get_config(folder="."):
    """T5's prefix; greedy search."""
    config = default_finetune_config("text_to_text")
    task = config.task
    task.kind, task.prefix = "text", "summarize:"
    task.inputs, task.keys, task.target = ("dialogue",), ("",), "summary*"
    task.max_len, task.max_target = 512, 96
    task.metric = "rougeL"
    config.data.train = f"{folder}/dialogsum.dev.jsonl.xz"
    config.data.test = f"{folder}/dialogsum.test.jsonl.xz"
    config.data.dev_share = 0.2
    config.train.lr, config.train.batch_size = (3e-4,), (16,)
    config.train.epochs = (5,)
    return config
