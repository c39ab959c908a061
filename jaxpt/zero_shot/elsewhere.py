"""Where known tasks are that have no name in `jaxpt.zero_shot.names`."""

# Tasks that are known by these names: fine-tuned here, as configs/tasks/NAME.py, or
# multiple choice, which the task `choice` reads.
FINETUNED = (
    *("ag_news", "ag_news_frozen", "babylm", "babylm_2026", "choice", "cola"),
    *("dialogsum", "mnli"),
    *("mrpc", "rte", "sst2", "stsb", "subjqa", "upos", "wikisplit", "wnut17"),
)
MULTIPLE_CHOICE = (
    *("hellaswag", "mmlu", "race", "swag", "siqa", "social_iqa", "commonsense_qa"),
    *("commonsenseqa", "truthfulqa", "logiqa", "medmcqa"),
)


def find_elsewhere(name: str) -> str:
    """Where a task is that has no such name in `NAMES`; "" if it is not known.

    >>> find_elsewhere("SST-2")
    'is fine-tuned: jaxpt finetune --config tasks/sst2'
    >>> find_elsewhere("hellaswag")[:50]
    'is multiple choice: choice:FILE.json reads any tab'
    """
    plain = name.lower().replace("-", "").removeprefix("glue/")
    if plain in FINETUNED:
        return f"is fine-tuned: jaxpt finetune --config tasks/{plain}"
    if plain in MULTIPLE_CHOICE:
        return (
            "is multiple choice: choice:FILE.json reads any table of it, a file or "
            "hf:NAME (docs/downstream.md); to fine-tune: jaxpt finetune --config "
            "tasks/choice"
        )
    return ""
