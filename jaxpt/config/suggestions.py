"""Suggestions for names of flags and configs that are known from elsewhere."""

from jaxpt.config.shipped import list_configs
from jaxpt.errors import suggest
from jaxpt.zero_shot.elsewhere import find_elsewhere

# What other projects call flags that have no name like theirs here.
FLAGS = {
    **dict.fromkeys(("max_new_tokens", "max_tokens", "max_length"), "num_tokens"),
    **dict.fromkeys(("model", "model_name_or_path", "checkpoint"), "workdir"),
    **dict.fromkeys(("output_dir", "out_dir", "to"), "workdir"),
    "do_sample": "temperature",
    "num_return_sequences": "num_samples",
}
# The same of commands that read a run and no config; a training is not `--from` a run.
READERS_FLAGS = {"from": "workdir"}


def suggest_config(source: str) -> str:
    """The end of an error: a config of almost this name, or where a known task is.

    >>> suggest_config("SST-2"), suggest_config("quikstart:mlm")
    (' (did you mean tasks/sst2?)', ' (did you mean quickstart?)')
    """
    word, known = source.partition(":")[0], list_configs()
    name = word.rpartition("/")[2].lower().replace("-", "")
    if f"tasks/{name}" in known:
        return f" (did you mean tasks/{name}?)"
    elsewhere = find_elsewhere(name)
    return f"; {word} {elsewhere}" if elsewhere else suggest(word, known)
