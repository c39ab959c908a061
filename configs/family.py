"""A published model by its name, to pretrain on your text; see jaxpt/nn/presets.py.

    jaxpt train --config configs/family.py:bert-base --config.data.path=my.txt \\
        --workdir runs/bert

Any size can be made smaller: --config.model.num_layers=2 --config.model.d_model=128 ...
The objective follows the family: clm for gpt2, gpt3, llama, mistral, qwen, pythia and
tinystories; span_corruption for t5 and bart; electra for electra; mlm for the others.
With two layers of width 128, 400 steps take 1 to 4 minutes on 2 cores; no full size was
run.
"""

import dataclasses

from jaxpt.config.settings import default_config
from jaxpt.nn.presets import get_preset

OBJECTIVES = {
    "gpt": "clm",
    "llama": "clm",
    "mistral": "clm",
    "qwen": "clm",
    "pythia": "clm",
    "tinystories": "clm",
    "t5": "span_corruption",
    "bart": "span_corruption",
    "electra": "electra",
}


def get_config(name="gpt2"):
    """With an 8k BPE trained on the text."""
    config = default_config()
    begins = [key for key in OBJECTIVES if name.startswith(key)]
    config.objective = OBJECTIVES[begins[0]] if begins else "mlm"
    config.model.update(dataclasses.asdict(get_preset(name, vocab_size=0)))
    config.data.row_length = 128
    config.tokenizer.kind = "bpe"
    config.tokenizer.specials = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")
    config.tokenizer.num_sentinels = 100
    config.optim.lr = 5e-4
    config.compare.objectives = (config.objective,)
    config.compare.budget = "steps"
    return config
