"""BabyLM's fine-tuning: seven tasks of GLUE and SuperGLUE, cut down.

    jaxpt finetune --from RUN --config configs/tasks/babylm.py:FOLDER,TASK --to DIR
    jaxpt babylm --workdir RUN --glue FOLDER

TASK is boolq, mnli, mrpc, multirc, qqp, rte (the default) or wsc; the second command
trains all.
FOLDER is glue_filtered of the challenge's data: TASK.train.jsonl and TASK.valid.jsonl,
perhaps with .xz or .gz.

The recipe is that of babylm/evaluation-pipeline-2025 (eval_finetuning.sh): a learning
rate of 3e-5 with 6 % of warm-up and a cosine to a tenth, batches of 32 (16 for BoolQ
and MultiRC), 10 epochs (30 for WSC), and the epoch that is best on the validation data
by accuracy (by F1 for MRPC and QQP), which has no separate test data: results are
therefore optimistic.

Departures: the head is that of the network's family (task.head), where the pipeline has
its own two layers with layer norm; texts are truncated to the model's length, there to
512 tokens; weights decay except biases and norms.
"""

from pathlib import Path

from jaxpt.config.finetuning import default_finetune_config
from jaxpt.errors import ConfigError

# The columns of the two texts, or templates of columns.
TEXTS = {
    "boolq": ("question", "passage"),
    "mnli": ("premise", "hypothesis"),
    "mrpc": ("sentence1", "sentence2"),
    "multirc": ("Question: {question} Answer: {answer}", "paragraph"),
    "qqp": ("question1", "question2"),
    "rte": ("sentence1", "sentence2"),
    "wsc": ('Does "{span2_text}" refer to "{span1_text}" in this passage?', "text"),
}


def find_file(folder, name):
    """The file, or a compressed one in its place."""
    paths = [Path(folder, f"{name}.jsonl{ending}") for ending in ("", ".xz", ".gz")]
    return str(next((path for path in paths if path.exists()), paths[0]))


def get_config(argument="."):
    """The task and the recipe."""
    folder, _, name = argument.partition(",")
    name = name or "rte"
    if name not in TEXTS:
        raise ConfigError(f"{argument}: {name}: must be one of {', '.join(TEXTS)}")
    config = default_finetune_config("classification")
    config.task.text, config.task.pair = TEXTS[name]
    config.task.max_len = 0
    config.task.metric = "f1" if name in ("mrpc", "qqp") else "accuracy"
    config.data.train = find_file(folder, f"{name}.train")
    config.data.dev = find_file(folder, f"{name}.valid")
    config.optim.schedule, config.optim.min_lr_ratio = "cosine", 0.1
    config.train.warmup_share = 0.06
    config.train.lr = (3e-5,)
    config.train.batch_size = (16,) if name in ("boolq", "multirc") else (32,)
    config.train.epochs = (30,) if name == "wsc" else (10,)
    config.train.keep = "best"
    return config
