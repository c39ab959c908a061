"""What a fine-tuning's folder has found."""

import json


def silent(line):
    pass


def read_all(folder):
    """All that a folder has found, without its seconds."""
    result = json.loads((folder / "result.json").read_text())
    for entry in result["cells"]:
        for each in (entry, *entry["history"]):
            del each["seconds"], each["examples_per_second"]
    return result
