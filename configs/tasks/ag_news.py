"""AG News: world, sports, business or technology? (Zhang et al. 2015)

    jaxpt finetune --from RUN --config configs/tasks/ag_news.py --to DIR

reads TFDS's ag_news_subset: descriptions, without titles. A tenth of the training data
is the dev set; only the selected setting is tested. For a file of descriptions and
names of classes, separated by a tab, without a header:

    --config configs/tasks/ag_news.py:train.tsv

It has no test set. A folder has ag_news-train.jsonl, ag_news-dev.jsonl and
ag_news-test.jsonl, each line with "text" and "label", as
results/tools/pretraining_pays_data.py makes them:

    --config configs/tasks/ag_news.py:FOLDER
"""

from pathlib import Path

from jaxpt.config.finetuning import default_finetune_config


def get_config(file=""):
    """The task and BERT's recipe."""
    config = default_finetune_config("classification")
    config.task.text = "description"
    config.task.labels = ("World", "Sports", "Business", "Sci/Tech")
    data = config.data
    if file and not Path(file).suffix:
        config.task.text = "text"
        for split in ("train", "dev", "test"):
            data[split] = f"{file}/ag_news-{split}.jsonl"
    elif file:
        config.task.text, config.task.label, data.header = "0", "1", False
        data.train = file
    else:
        data.train = "tfds:ag_news_subset:train"
        data.test = "tfds:ag_news_subset:test"
    config.train.lr = (3e-5,)
    return config
