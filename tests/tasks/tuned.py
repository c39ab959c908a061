"""Fine-tuning of runs that have not been trained, on a few examples, until they fit."""

import json

from tiny import make_config, write_run

from jaxpt.config.finetuning import default_finetune_config, make_finetune_plan
from jaxpt.finetuning.grid import finetune

TEXT = "the lower lowest slower slowest newer newest wide wider cat sat on the mat\n"
TOKENIZER = {
    "tokenizer__kind": "wordpiece",
    "tokenizer__vocab_size": 60,
    "tokenizer__specials": ("pad", "unk", "mask", "eos", "cls", "sep"),
}


def make_run(folder, objective, **changes):
    """A run's folder before its first step."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_text(TEXT * 40)
    model = {"model__d_model": 32, "model__d_ff": 64, "model__max_len": 64}
    config = make_config(
        folder / "text.txt", objective, **(TOKENIZER | model | changes)
    )
    return write_run(config, folder / "run")


def fit(run, task, path, folder, epochs=60, lr=3e-3, for_export=False, **changes):
    """The result of fine-tuning on a file that is the development data, too."""
    config = default_finetune_config(task)
    config.data.train = config.data.dev = config.data.test = str(path)
    config.train.lr, config.train.epochs = (lr,), (epochs,)
    config.train.batch_size, config.train.eval_batch_size = (4,), 4
    config.train.evals, config.train.num_lengths = 1, 1
    config.train.dropout = 0.0
    config.optim.schedule = "constant"
    for name, value in changes.items():
        section, field = name.split("__")
        config[section][field] = value
    plan = make_finetune_plan(config)
    lines = []
    result = finetune(plan, str(run), folder, lines.append, for_export=for_export)
    return result | {"lines": lines}


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
