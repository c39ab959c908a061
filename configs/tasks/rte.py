"""RTE: does the first text entail the second? (GLUE)

    jaxpt finetune --from RUN --config configs/tasks/rte.py --to DIR

reads TFDS's glue/rte. GLUE's files:

    --config configs/tasks/rte.py:FOLDER    train.tsv, dev.tsv

Other files are set by --config.data.train=FILE and --config.data.dev=FILE; labels that
are numbers also by --config.task.labels='("0","1")', where 0 is entailment. ELECTRA's
and RoBERTa's recipes train for 10 epochs: RTE has 2,490 examples, and half of the
answers are right by chance.
"""

from jaxpt.config.finetuning import default_finetune_config


def get_config(folder=""):
    """The task and RoBERTa's recipe."""
    config = default_finetune_config("classification")
    config.task.text, config.task.pair = "sentence1", "sentence2"
    config.task.labels = ("entailment", "not_entailment")
    config.task.max_len = 256
    data = config.data
    if folder:
        data.train, data.dev = f"{folder}/train.tsv", f"{folder}/dev.tsv"
    else:
        data.train, data.dev = "tfds:glue/rte:train", "tfds:glue/rte:validation"
    config.train.lr = (2e-5,)
    config.train.batch_size = (16,)
    config.train.epochs = (10,)
    config.train.warmup_share = 0.06
    config.train.seeds = (0, 1, 2, 3, 4)
    return config
