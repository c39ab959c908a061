"""BabyLM 2026, multilingual track: fine-tuning on eight kinds of tasks.

    jaxpt finetune --from RUN --to DIR \\
        --config configs/tasks/babylm_2026.py:FOLDER,nl,arc
    jaxpt babylm --workdir RUN --year 2026 --glue FOLDER

FOLDER is multilingual/finetune/data/multilingual of babylm-org/babylm-eval:
LANGUAGE/TASK/TASK_LANGUAGE.train.jsonl and .valid.jsonl; LANGUAGE is en, nl or zh, and
TASK one of arc (the default), belebele, bmlama, include, mnli, sib200, truthfulqa and
xnli. The second command trains all. Multiple choice is classification here: the text
lists the options, and the label is the letter of the correct one.

The recipe is that of its finetune_model.sh: a learning rate of 5e-5 that decays
linearly to 0, batches of 64, 10 epochs, the parameters of the last epoch, accuracy on
the validation data.

Departures: there is no early stopping after three epochs without a better accuracy; the
head is that of the network's family (task.head); texts are truncated to the model's
length, there to 128 tokens; all validation examples count, where
the script leaves out the last ones that do not fill a batch.
"""

from jaxpt.config.finetuning import default_finetune_config
from jaxpt.errors import ConfigError

PAIRS = ("mnli", "xnli")
TASKS = ("arc", "belebele", "bmlama", "include", "sib200", "truthfulqa", *PAIRS)
LANGUAGES = ("en", "nl", "zh")


def get_config(argument="."):
    """FOLDER,LANGUAGE,TASK: the task and the recipe."""
    folder, _, rest = argument.partition(",")
    language, _, name = rest.partition(",")
    language, name = language or "en", name or "arc"
    for value, allowed in ((language, LANGUAGES), (name, TASKS)):
        if value not in allowed:
            raise ConfigError(
                f"{argument}: {value}: must be one of {', '.join(allowed)}"
            )
    config = default_finetune_config("classification")
    if name in PAIRS:
        config.task.text, config.task.pair = "premise", "hypothesis"
    else:
        config.task.text = "sentence"
    config.task.max_len = 0
    config.task.metric = "accuracy"
    start = f"{folder}/{language}/{name}/{name}_{language}"
    config.data.train, config.data.dev = f"{start}.train.jsonl", f"{start}.valid.jsonl"
    config.optim.schedule, config.optim.min_lr_ratio = "linear", 0.0
    config.train.warmup_share = 0.0
    config.train.lr, config.train.batch_size = (5e-5,), (64,)
    config.train.epochs = (10,)
    config.train.keep = "last"
    return config
