"""WNUT-17: emerging and rare names in tweets and posts (Derczynski et al. 2017).

    jaxpt finetune --from RUN --config configs/tasks/wnut17.py:FOLDER --to DIR

FOLDER has the task's own files: wnut17train.conll, emerging.dev.conll and
emerging.test.annotated. Six types of names; BERT's recipe for tagging, a label at each
word's first token, entity F1 as conlleval counts it (entity_f1) and strictly.
"""

from jaxpt.config.finetuning import default_finetune_config


def get_config(folder="."):
    """The task and BERT's recipe."""
    config = default_finetune_config("tagging")
    config.task.words, config.task.tags = "0", "1"
    config.task.max_len = 128
    config.data.format = "conll"
    config.data.train = f"{folder}/wnut17train.conll"
    config.data.dev = f"{folder}/emerging.dev.conll"
    config.data.test = f"{folder}/emerging.test.annotated"
    config.train.lr, config.train.epochs = (5e-5,), (3,)
    return config
