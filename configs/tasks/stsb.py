"""STS-B: how similar are two sentences, from 0 to 5? (Cer et al. 2017, GLUE)

    jaxpt finetune --from RUN --config configs/tasks/stsb.py --to DIR

reads TFDS's glue/stsb. The official files, or GLUE's:

    --config configs/tasks/stsb.py:FOLDER    sts-train.csv, sts-dev.csv, sts-test.csv;
                                             or train.tsv, dev.tsv

Other files are set by --config.data.train=FILE and --config.data.dev=FILE.
"""

from pathlib import Path

from jaxpt.config.finetuning import default_finetune_config


def get_config(folder=""):
    """The task and BERT's recipe."""
    config = default_finetune_config("regression")
    task, data = config.task, config.data
    task.text, task.pair, task.label = "sentence1", "sentence2", "score"
    task.low, task.high = 0.0, 5.0
    if not folder:
        task.label = "label"
        data.train, data.dev = "tfds:glue/stsb:train", "tfds:glue/stsb:validation"
    elif Path(folder, "sts-train.csv").exists():
        data.format = "sts"
        for split in ("train", "dev", "test"):
            data[split] = f"{folder}/sts-{split}.csv"
    else:
        data.train, data.dev = f"{folder}/train.tsv", f"{folder}/dev.tsv"
    config.train.lr = (5e-5,)
    return config
