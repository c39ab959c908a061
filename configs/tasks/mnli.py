"""MNLI: entailment, neutral or contradiction? (Williams et al. 2018, GLUE)

    jaxpt finetune --from RUN --config configs/tasks/mnli.py --to DIR

reads TFDS's glue/mnli, and the matched dev set. The order of the labels differs by
source: 0, 1, 2 is entailment, neutral, contradiction here.
"""

from jaxpt.config.finetuning import default_finetune_config


def get_config():
    """The task and BERT's recipe."""
    config = default_finetune_config("classification")
    config.task.text, config.task.pair = "premise", "hypothesis"
    config.task.labels = ("0", "1", "2")
    config.task.label_names = ("entailment", "neutral", "contradiction")
    data = config.data
    data.train, data.train_split = "tfds:glue/mnli", "train"
    data.dev, data.dev_split = "tfds:glue/mnli", "validation_matched"
    config.train.lr = (3e-5,)
    return config
