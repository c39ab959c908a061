"""MRPC: do two sentences say the same? (Dolan and Brockett 2005, GLUE)

    jaxpt finetune --from RUN --config configs/tasks/mrpc.py --to DIR

reads TFDS's glue/mrpc. Microsoft's files, whose quotes are characters as any other:

    --config configs/tasks/mrpc.py:FOLDER    msr-para-train.tsv, -val.tsv, -test.tsv

BERT's recipe. Two thirds of the pairs are paraphrases: always saying so has an F1 of
0.82 on the dev set.
"""

from jaxpt.config.finetuning import default_finetune_config


def get_config(folder=""):
    """The task and BERT's recipe."""
    config = default_finetune_config("classification")
    config.task.text, config.task.pair = "sentence1", "sentence2"
    names = ("not_equivalent", "equivalent")
    config.task.metric = "f1"
    config.task.max_len = 128
    data = config.data
    if folder:
        config.task.labels, config.task.label_names = ("0", "1"), names
        config.task.text, config.task.pair = "#1 String", "#2 String"
        config.task.label = "Quality"
        data.train = f"{folder}/msr-para-train.tsv"
        data.dev = f"{folder}/msr-para-val.tsv"
        data.test = f"{folder}/msr-para-test.tsv"
    else:
        config.task.labels = names
        data.train = "tfds:glue/mrpc:train"
        data.dev = "tfds:glue/mrpc:validation"
        data.test = "tfds:glue/mrpc:test"
    config.train.lr = (5e-5,)
    return config
