"""SST-2: is a phrase of a film review positive or negative? (Socher et al. 2013, GLUE)

    jaxpt finetune --from RUN --config configs/tasks/sst2.py --to DIR

reads TFDS's glue/sst2. Files with the columns `sentence` and `label`:

    --config configs/tasks/sst2.py:FOLDER    train.tsv.xz, dev.tsv, test-labeled.tsv

Training rows are phrases, dev and test whole sentences. BERT's recipe: 3 epochs, a
batch of 32, one of few learning rates.
"""

from jaxpt.config.finetuning import default_finetune_config


def get_config(folder=""):
    """The task and BERT's recipe."""
    config = default_finetune_config("classification")
    config.task.text = "sentence"
    names = ("negative", "positive")
    config.task.max_len = 128
    data = config.data
    if folder:
        config.task.labels, config.task.label_names = ("0", "1"), names
        data.train = f"{folder}/train.tsv.xz"
        data.dev = f"{folder}/dev.tsv"
        data.test = f"{folder}/test-labeled.tsv"
    else:
        config.task.labels = names
        data.train = "tfds:glue/sst2:train"
        data.dev = "tfds:glue/sst2:validation"
    config.train.lr = (3e-5,)
    return config
