"""CoLA: is a sentence acceptable English? (Warstadt et al. 2019, GLUE), by MCC.

    jaxpt finetune --from RUN --config configs/tasks/cola.py --to DIR

reads TFDS's glue/cola. The public files, which have no header:

    --config configs/tasks/cola.py:FOLDER    in_domain_train.tsv, *_domain_dev.tsv

Seven of ten sentences are acceptable; the majority baseline has an MCC of 0.
"""

from jaxpt.config.finetuning import default_finetune_config


def get_config(folder=""):
    """The task and BERT's recipe."""
    config = default_finetune_config("classification")
    config.task.text = "sentence"
    names = ("unacceptable", "acceptable")
    config.task.metric = "mcc"
    config.task.max_len = 64
    data = config.data
    if folder:
        config.task.labels, config.task.label_names = ("0", "1"), names
        config.task.text, config.task.label, data.header = "3", "1", False
        data.train = f"{folder}/in_domain_train.tsv"
        data.dev = f"{folder}/*_domain_dev.tsv"
    else:
        config.task.labels = names
        data.train = "tfds:glue/cola:train"
        data.dev = "tfds:glue/cola:validation"
    config.train.lr = (5e-5,)
    return config
