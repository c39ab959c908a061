"""Four objectives at the size of GPT-2 small on 100 English novels, for one GPU.

    jaxpt compare --config configs/gpt2_small.py:DIR,small --workdir runs/small
    jaxpt compare --config configs/gpt2_small.py:DIR,full,runs/small --workdir runs/full
    jaxpt compare --config configs/gpt2_small.py:DIR,short --workdir runs/s --register
    jaxpt compare --config configs/gpt2_small.py:DIR,short --workdir runs/s

DIR has one .txt file for each novel (78 MB); every tenth is held out. The first command
tunes the learning rates of each objective at width 256; the second takes them over for
width 768, AdamW's with `optim.lr_width`, and trains two seeds at equal FLOPs
(means without verdicts, which need four).
`tests/benchmarks/gpt2_small.sh` runs both in pieces of 9 minutes.

Both are 4.3e17 FLOPs: 18 minutes of an H100 at 40 % of its 989 TFLOP/s in bfloat16,
and evaluations. No GPU has run it yet. With `tiny` in the place of `small` and `full`,
every part runs on a CPU in a few minutes.

The last two commands are a study for a quarter of an hour: four seeds at width 512 with
fixed rates, 4e16 FLOPs in all (2 minutes at that rate; compilation and evaluations take
longer), with verdicts, and its expected outcomes registered before the first run. They
are those of WikiText-2 at 9e12 FLOPs (docs/results/orderings.md).
"""

import json
from pathlib import Path

from jaxpt.config.settings import default_config

OBJECTIVES = ("clm", "mlm", "span_corruption", "electra")
# Layers, width, heads, length of a row, rows, vocabulary, FLOPs of a run.
SIZES = {
    "tiny": (2, 32, 2, 64, 8, 512, 3e10),
    "small": (6, 256, 4, 512, 64, 16384, 2e15),
    "full": (12, 768, 12, 512, 64, 16384, 5e16),
    "short": (12, 512, 8, 512, 64, 16384, 2.5e15),
}
EXPECTED = tuple(
    f"pair_accuracy: {ahead} > {behind}"
    for ahead, behind in (
        ("clm", "mlm"),
        ("clm", "span_corruption"),
        ("clm", "electra"),
        ("mlm", "span_corruption"),
        ("mlm", "electra"),
    )
)
RATES = ("optim.lr", "optim.muon_lr")


def get_config(arguments=".,small"):
    """DIR,SIZE tunes learning rates; DIR,SIZE,WORKDIR takes those found in WORKDIR.

    DIR,short tunes none.
    """
    folder, _, rest = arguments.partition(",")
    size, _, tuned = rest.partition(",")
    layers, width, heads, length, rows, vocabulary, amount = SIZES[size]
    config = default_config()
    data = config.data
    data.path = f"{folder}/*.txt"
    data.documents = "file"
    data.row_length = length
    if size == "tiny":
        data.limit_chars = 300_000
    tokenizer = config.tokenizer
    tokenizer.kind = "bpe"
    tokenizer.vocab_size = vocabulary
    tokenizer.specials = ("pad", "unk", "mask", "eos")
    tokenizer.num_sentinels = 100

    model = config.model
    model.num_layers, model.d_model, model.num_heads = layers, width, heads
    model.d_ff, model.max_len = 4 * width, length
    model.positions = "rotary"
    model.qk_norm = "unscaled"

    config.optim.name = "muon"
    config.optim.warmup_steps = 100
    config.optim.weight_decay = 0.1
    config.train.batch_size = rows
    config.train.checkpoint_every = 200
    config.train.keep_checkpoints = 1
    config.eval.num_rows = 512
    config.eval.batch_size = 32
    config.eval.probe_passages = 0
    config.eval.pair_questions = 2000

    compare = config.compare
    compare.objectives = OBJECTIVES
    compare.amount = amount
    compare.num_evals = 8
    half = {"num_layers": layers // 2, "num_decoder_layers": layers // 2}
    overrides = {"span_corruption": {"model": half}}
    if tuned:
        compare.seeds = (0, 1)
        found = json.loads((Path(tuned) / "plans.json").read_text(encoding="utf-8"))
        for name in OBJECTIVES:
            chosen = found["tuning"][name]["chosen"]
            rates = {key.removeprefix("optim."): float(chosen[key]) for key in RATES}
            rates["lr_width"] = found["plans"][name]["config"]["model"]["d_model"]
            overrides.setdefault(name, {})["optim"] = rates
    elif size == "short":
        compare.seeds = (0, 1, 2, 3)
        config.optim.lr, config.optim.muon_lr = 6e-3, 0.02
        compare.expected = EXPECTED
    else:
        compare.seeds = (0,)
        compare.tune = "optim.lr=2e-3,6e-3; optim.muon_lr=0.01,0.02,0.04"
        compare.tune_share = 0.5
    compare.overrides = overrides
    return config
