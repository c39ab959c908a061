"""AG News with frozen features: logistic regression on the mean of the last states.

    jaxpt finetune --from RUN --config configs/tasks/ag_news_frozen.py:FOLDER --to DIR

FOLDER is that of ag_news.py. No parameter of the network is trained, so the result
measures the features that the network has. The penalty is chosen on the dev set.
"""

from jaxpt.config.finetuning import default_finetune_config


def get_config(folder="."):
    """The task, and the probe in place of a recipe."""
    config = default_finetune_config("classification")
    config.task.text = "text"
    config.task.labels = ("World", "Sports", "Business", "Sci/Tech")
    config.task.head = "mean"
    for split in ("train", "dev", "test"):
        config.data[split] = f"{folder}/ag_news-{split}.jsonl"
    config.adapt.method = "exact_probe"
    return config
