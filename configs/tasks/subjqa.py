"""SubjQA: questions about reviews, answered by a span of one or not at all.

    jaxpt finetune --from RUN --config configs/tasks/subjqa.py:FOLDER --to DIR

FOLDER has a folder for each domain (electronics/splits/train.csv ...), as in the
repository of Bjerva et al. 2020. Questions without an answer have the span of a mark at
the end of the review; the mark is removed. Rows with the same `q_review_id` are one
question with the answers of several people. The threshold of "no answer" is chosen on
the dev set.
"""

from jaxpt.config.finetuning import default_finetune_config


def get_config(folder="."):
    """The task, and BERT's recipe for SQuAD 2.0."""
    config = default_finetune_config("span_qa")
    task = config.task
    task.context, task.answers, task.spans = "review", "", "human_ans_indices"
    task.null_mark, task.has_null = "ANSWERNOTFOUND", True
    task.group = "q_review_id"
    task.max_len, task.stride = 256, 128
    for split in ("train", "dev", "test"):
        config.data[split] = f"{folder}/*/splits/{split}.csv"
    config.train.lr, config.train.epochs = (5e-5,), (2,)
    return config
