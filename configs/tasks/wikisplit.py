"""WikiSplit: splitting a long sentence into two (Botha et al. 2018).

    jaxpt finetune --from RUN --config configs/tasks/wikisplit.py:FOLDER --to DIR

FOLDER has tune.tsv.xz, validation.tsv.xz and test.tsv.xz, of 5,000 rows each; for a
network that generates text. The mark between the two sentences is removed. Copying the
sentence already has a high BLEU: compare the result with that baseline, too.
"""

from jaxpt.config.finetuning import default_finetune_config


def get_config(folder="."):
    """Text to text; greedy search."""
    config = default_finetune_config("text_to_text")
    task = config.task
    task.kind, task.prefix = "text", "split:"
    task.inputs, task.keys, task.target = ("0",), ("",), "1"
    task.drop = " <::::>"
    task.max_len, task.max_target = 160, 80
    task.metric = "bleu"
    config.data.header = False
    config.data.train = f"{folder}/tune.tsv.xz"
    config.data.dev = f"{folder}/validation.tsv.xz"
    config.data.test = f"{folder}/test.tsv.xz"
    config.train.lr, config.train.batch_size = (3e-4,), (16,)
    return config
