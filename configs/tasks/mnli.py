"""MNLI: entailment, neutral or contradiction? (Williams et al. 2018, GLUE)

    jaxpt finetune --from RUN --config configs/tasks/mnli.py --to DIR

reads TFDS's glue/mnli, and the matched dev set. GLUE's files:

    --config configs/tasks/mnli.py:FOLDER    train.tsv, dev_matched.tsv

Labels are names, because the order of numbers differs by source.
"""

from jaxpt.config.finetuning import default_finetune_config


def get_config(folder=""):
    """The task and BERT's recipe."""
    config = default_finetune_config("classification")
    task, data = config.task, config.data
    task.labels = ("entailment", "neutral", "contradiction")
    if folder:
        task.text, task.pair, task.label = "sentence1", "sentence2", "gold_label"
        data.train, data.dev = f"{folder}/train.tsv", f"{folder}/dev_matched.tsv"
    else:
        task.text, task.pair = "premise", "hypothesis"
        data.train = "tfds:glue/mnli:train"
        data.dev = "tfds:glue/mnli:validation_matched"
    config.train.lr = (3e-5,)
    return config
