"""STS-B: how alike are two sentences, from 0 to 5? (Cer et al. 2017, GLUE)

    jaxpt finetune --from RUN --config configs/tasks/stsb.py --to DIR

reads TFDS's glue/stsb.
"""

from jaxpt.config.finetuning import default_finetune_config


def get_config():
    """The task and BERT's recipe."""
    config = default_finetune_config("regression")
    config.task.text, config.task.pair = "sentence1", "sentence2"
    config.task.label, config.task.low, config.task.high = "label", 0.0, 5.0
    data = config.data
    data.train, data.train_split = "tfds:glue/stsb", "train"
    data.dev, data.dev_split = "tfds:glue/stsb", "validation"
    config.train.lr = (5e-5,)
    return config
