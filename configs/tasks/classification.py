"""Classification: which label has a text of your table?

    jaxpt finetune --from RUN --config configs/tasks/classification.py:mine.csv --to DIR

reads the columns `text` and `label` of a CSV, TSV, JSON lines or Parquet file. Other
names are --config.task.text and --config.task.label; pairs of texts have
--config.task.pair. The labels are those of the file. A tenth of it is the dev set
unless --config.data.dev names a file, and --config.data.test names a test set.
"""

from jaxpt.config.finetuning import default_finetune_config


def get_config(file="train.csv"):
    """The task and BERT's recipe."""
    config = default_finetune_config("classification")
    config.task.text = "text"
    config.data.train = file
    config.train.lr = (3e-5, 1e-4, 3e-4)
    return config
