"""Parts of speech of UD English EWT (Silveira et al. 2014): accuracy over words.

    jaxpt finetune --from RUN --config configs/tasks/upos.py:FOLDER --to DIR

FOLDER has ewt-train.jsonl, ewt-dev.jsonl and ewt-test.jsonl, each line with "words" and
"tags"; results/tools/pretraining_pays_data.py makes them from the treebank's own files.
The 17 universal tags; BERT's recipe for tagging, a tag at each word's first token.
"""

from jaxpt.config.finetuning import default_finetune_config


def get_config(folder="."):
    """The task and BERT's recipe."""
    config = default_finetune_config("tagging")
    config.task.words, config.task.tags = "words", "tags"
    config.task.metric = "accuracy"
    for split in ("train", "dev", "test"):
        config.data[split] = f"{folder}/ewt-{split}.jsonl"
    config.train.lr = (5e-5,)
    return config
