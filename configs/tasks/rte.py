"""RTE: does the first text entail the second? (GLUE)

    jaxpt finetune --from RUN --config configs/tasks/rte.py --to DIR

reads TFDS's glue/rte, where 0 is entailment. ELECTRA's and RoBERTa's recipes train it
for 10 epochs: it has 2,490 examples, and half of the answers are right by chance.
"""

from jaxpt.config.finetuning import default_finetune_config


def get_config():
    """The task and RoBERTa's recipe."""
    config = default_finetune_config("classification")
    config.task.text, config.task.pair = "sentence1", "sentence2"
    config.task.labels = ("0", "1")
    config.task.label_names = ("entailment", "not_entailment")
    config.task.max_len = 256
    data = config.data
    data.train, data.train_split = "tfds:glue/rte", "train"
    data.dev, data.dev_split = "tfds:glue/rte", "validation"
    config.train.lr = (2e-5,)
    config.train.batch_size = (16,)
    config.train.epochs = (10,)
    config.train.warmup_share = 0.06
    config.train.seeds = (0, 1, 2, 3, 4)
    return config
