"""Multiple choice: which option answers the question?

    jaxpt finetune --from RUN --config configs/tasks/choice.py --to DIR \
        --config.data.train=train.jsonl --config.data.dev=dev.jsonl

Lines of JSON with a `question`, a list of `choices`, and an `answer`: the number of the
right one from 0 on, or its letter. `--config.task.options='("A","B")'` names columns of
options instead.
"""

from jaxpt.config.finetuning import default_finetune_config


def get_config():
    """The task and BERT's recipe for SWAG."""
    config = default_finetune_config("choice")
    config.data.train, config.data.dev = "train.jsonl", "dev.jsonl"
    config.train.lr = (2e-5,)
    config.train.batch_size = (16,)
    return config
