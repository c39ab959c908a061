"""A published pretraining recipe by its name: sizes, text form, optimizer, schedule.

    jaxpt train --config configs/recipe.py:bert-base --config.data.path=my.txt \\
        --workdir runs/bert

`RECIPES` lists the names. Each recipe states its source, its departures from the source
and, on the last line, the FLOPs of the whole run and the days that they take on one
H100 at 40 % of its peak (computed from FLOPs; no full run was trained). docs/recipes.md
has the table. Any size can be made smaller: with --config.model.num_layers=2
--config.model.d_model=64 ... --config.train.steps=2, a recipe runs in about a minute on
2 cores.

Departures of all recipes: the text is yours (`data.path`), and the tokenizer is trained
on it with the published kind and size. Where documents are joined in rows, [EOS] ends
each of them.
"""

import dataclasses

from jaxpt.config.settings import default_config
from jaxpt.errors import ConfigError
from jaxpt.nn.presets import get_preset

BERT_SPECIALS = ("pad", "unk", "cls", "sep", "mask")
WORDPIECE = {
    "kind": "wordpiece",
    "vocab_size": 30_522,
    "lowercase": True,
    "specials": BERT_SPECIALS,
}
# Specials in the order of fairseq's ids: padding is 1. [EOS] separates documents.
FAIRSEQ_BPE = {
    "kind": "bpe",
    "vocab_size": 50_265,
    "specials": ("cls", "pad", "sep", "unk", "mask", "eos"),
}
# Of dropout, in the model's settings.
RATES = ("dropout", "embed_dropout", "attention_dropout")
# T5's learning rate: 1 / sqrt(max(step, 10,000)).
T5_OPTIM = {
    "name": "adafactor",
    "lr": 0.01,
    "schedule": "inverse_sqrt",
    "warmup_steps": 10_000,
    "warmup_type": "flat",
    "weight_decay": 0.0,
    "clip_norm": 0.0,
}


def adam(lr, schedule, warmup_steps, betas, epsilon, decay, clip):
    """The settings of an optimizer of Adam's kind."""
    return {
        "lr": lr,
        "schedule": schedule,
        "warmup_steps": warmup_steps,
        "beta1": betas[0],
        "beta2": betas[1],
        "epsilon": epsilon,
        "weight_decay": decay,
        "clip_norm": clip,
    }


def bert_adam(lr, schedule):
    """That of google-research/bert and google-research/electra, optimization.py."""
    settings = adam(lr, schedule, 10_000, (0.9, 0.999), 1e-6, 0.01, clip=1.0)
    return settings | {"bias_correction": False}


def start(objective, preset, tokenizer, optim, batch_size, steps, every=10_000):
    """What every recipe sets: the model, the tokenizer, the optimizer, the budget.

    Args:
      tokenizer, optim: settings of these sections. The model has the tokenizer's
        number of ids.
    """
    config = default_config()
    config.objective = objective
    config.data.path = ""
    config.model.update(dataclasses.asdict(get_preset(preset, vocab_size=0)))
    config.tokenizer.update(tokenizer)
    config.optim.update(optim)
    config.train.batch_size, config.train.steps = batch_size, steps
    config.train.log_every = 100
    config.train.eval_every = config.train.checkpoint_every = every
    config.compare.objectives = (objective,)
    config.compare.budget = "steps"
    return config


def bert_base():
    """BERT-base, uncased: Devlin et al. 2019, github.com/google-research/bert.

    1M steps of 256 rows; as in the paper's data, the text has 10 passes of pairs, each
    masked once. Departures: all steps read 512 tokens, while the paper's first 90 %
    read 128, which `bert-base-phase1` and `-phase2` do.

    Cost: 7.71e+19 FLOPs, 2.3 days
    """
    optim = bert_adam(1e-4, "bert_linear")
    config = start("bert", "bert-base", WORDPIECE, optim, 256, 1_000_000)
    config.data.row_length = 512
    config.data.rows = "pairs"
    config.data.sentences = "punctuation"
    config.data.dupe_factor = 10
    config.data.short_seq_prob = 0.1
    config.bert.mask_rate = 0.15
    config.bert.static_masks = 1
    return config


def bert_base_phase1():
    """BERT-base, the first 90 % of the steps: 128 tokens.

    The rate decreases from 1e-4 to 1e-5, as in a run of 1M steps. Departure: its line
    starts at the end of the warm-up.

    Cost: 1.61e+19 FLOPs, 0.47 days
    """
    config = bert_base()
    config.data.row_length = 128
    config.train.steps = 900_000
    config.optim.schedule = "linear"
    config.optim.min_lr_ratio = 0.1
    return config


def bert_base_phase2():
    """BERT-base, the last 10 %: 512 tokens, with --config.train.init_from=PHASE1.

    The rate decreases from 1e-5 to 0. Departure: the optimizer's moments start at 0.

    Cost: 7.71e+18 FLOPs, 0.23 days
    """
    config = bert_base()
    config.train.steps = 100_000
    config.optim.schedule = "linear"
    config.optim.lr = 1e-5
    config.optim.warmup_steps = 0
    return config


def roberta_base():
    """RoBERTa-base: Liu et al. 2019, table 9; github.com/facebookresearch/fairseq.

    Departures: rows are cut at any token of the joined documents and begin with [CLS]
    and end with [SEP] (FULL-SENTENCES ends them at sentences).

    Cost: 1.26e+21 FLOPs, 37 days
    """
    optim = adam(6e-4, "linear", 24_000, (0.9, 0.98), 1e-6, 0.01, clip=0.0)
    config = start("mlm", "roberta-base", FAIRSEQ_BPE, optim, 8192, 500_000)
    config.data.row_length = 512
    config.data.add_special_tokens = True
    config.mlm.mask_rate = 0.15
    return config


def electra(preset, lr, batch_size, steps, length, generator_size):
    """ELECTRA: Clark et al. 2020, github.com/google-research/electra."""
    optim = bert_adam(lr, "electra_linear")
    config = start("electra", preset, WORDPIECE, optim, batch_size, steps)
    config.data.row_length = length
    config.data.add_special_tokens = True
    config.electra.mask_rate = 0.15
    config.electra.replace_mask = 0.85
    config.electra.generator_size = generator_size
    config.electra.discriminator_weight = 50.0
    return config


def electra_small():
    """ELECTRA-small: Clark et al. 2020, github.com/google-research/electra.

    Its generator has a quarter of the width, as in the paper (that of the released
    model has the whole). Departures: a row is one stretch of joined documents between
    [CLS] and [SEP] (theirs are mostly two segments, 5 % of a random length).

    Cost: 1.15e+18 FLOPs, 0.034 days
    """
    return electra("electra-small", 5e-4, 128, 1_000_000, 128, 0.25)


def electra_base():
    """ELECTRA-base: Clark et al. 2020, github.com/google-research/electra.

    Departures: those of electra-small.

    Cost: 6.70e+19 FLOPs, 2 days
    """
    return electra("electra-base", 2e-4, 256, 766_000, 512, 1 / 3)


def gpt2_small():
    """GPT-2 small: Radford et al. 2019; github.com/karpathy/nanoGPT, train_gpt2.py.

    The paper gives sizes, vocabulary and length, and a batch of 512 rows; steps, rate,
    optimizer and dropout (0) are nanoGPT's, with its batch of 480. Departures from
    nanoGPT: layers have biases, as in GPT-2, and the vocabulary is not padded.

    Cost: 2.52e+20 FLOPs, 7.4 days
    """
    tokenizer = {"kind": "bpe", "vocab_size": 50_257, "specials": ("eos",)}
    optim = adam(6e-4, "cosine", 2000, (0.9, 0.95), 1e-8, 0.1, clip=1.0)
    optim["min_lr_ratio"] = 0.1
    config = start("clm", "gpt2", tokenizer, optim, 480, 600_000)
    config.data.seq_len = 1024
    config.data.rows = "windows"
    config.model.update(dict.fromkeys(RATES, 0.0))
    return config


def t5_small():
    """T5 1.0 small: Raffel et al. 2020, github.com/google-research/t5x.

    Dropout is that of the released config.json (0 in T5X). Departures: span corruption
    alone, without the supervised tasks of the released model; no z-loss.

    Cost: 2.18e+20 FLOPs, 6.4 days
    """
    tokenizer = {
        "kind": "unigram",
        "vocab_size": 32_100,
        "specials": ("pad", "eos", "unk"),
        "num_sentinels": 100,
    }
    preset = "t5-small"
    config = start("span_corruption", preset, tokenizer, T5_OPTIM, 2048, 1_000_000)
    config.model.vocab_size = 32_128  # more than the tokenizer's ids
    config.data.seq_len = 512
    config.span_corruption.noise_density = 0.15
    config.span_corruption.mean_span_length = 3.0
    return config


def t5_1_1_small():
    """T5 1.1 small: github.com/google-research/t5x, t5_1_1; released_checkpoints.md.

    1M steps are those of the released checkpoint, 2,048 rows those of T5X's comments on
    its loss (its example trains 10,000 steps of 256). Departures: none but those of all
    recipes.

    Cost: 2.18e+20 FLOPs, 6.4 days
    """
    config = t5_small()
    spec = get_preset("t5-v1.1-small", z_loss=1e-4)
    config.model.update(dataclasses.asdict(spec))
    config.model.update(dict.fromkeys(RATES, 0.0))
    return config


def bart_base():
    """BART-base: Lewis et al. 2020; the command in facebookresearch/fairseq#1899.

    The paper gives batch, steps and noise (spans of mean 3; the command: 3.5), of the
    large model; rate, warm-up, decay and clipping are the command's, which names no
    betas: fairseq's defaults. Departures: a hidden span is always a [MASK] (the command
    writes a random token for 10 %); dropout stays on in the last 10 % of the steps; no
    special tokens around a row.

    Cost: 1.87e+21 FLOPs, 55 days
    """
    optim = adam(4e-4, "linear", 10_000, (0.9, 0.999), 1e-8, 0.01, clip=0.1)
    config = start("bart", "bart-base", FAIRSEQ_BPE, optim, 8000, 500_000)
    config.data.row_length = 512
    config.data.sentences = "punctuation"
    config.data.sentence_ids = True
    config.bart.infill_rate = 0.3
    config.bart.poisson_mean = 3.0
    config.bart.permute_sentences = 1.0
    return config


def modernbert_base():
    """ModernBERT-base, the first phase: Warner et al. 2024, AnswerDotAI/ModernBERT.

    1.719e12 tokens in rows of 1,024, yamls/modernbert/modernbert-base-pretrain.yaml.
    The batch increases from 768 to 4,608 rows in the first 50e9 tokens, here in five
    steps. Departures: without the phases of 8,192 tokens and of decay that follow;
    AdamW with clipping in place of StableAdamW; no dropout (theirs: 0.1 after attention
    alone); rows of joined documents, which are not packed; evaluation masks 30 %, too.

    Cost: 1.42e+21 FLOPs, 41 days
    """
    specials = (*BERT_SPECIALS, "eos")
    tokenizer = {"kind": "bpe", "vocab_size": 50_368, "specials": specials}
    # The warm-up is 3e9 tokens, at 768 rows. Their decay is not multiplied by the rate:
    # 1e-5 a step at the peak.
    decay = 1e-5 / 8e-4
    optim = adam(8e-4, "constant", 3815, (0.9, 0.98), 1e-6, decay, clip=1.0)
    config = start("mlm", "modern-base", tokenizer, optim, 4608, 374_900)
    # 21,193 steps, on average half of the batch, read 50e9 tokens.
    rise = 21_193 / 374_900
    shares = tuple((rise * k / 5, k / 6) for k in range(1, 6))
    config.train.batch_schedule = shares
    config.model.max_len = 1024
    config.model.rotary_base = 10_000.0  # 160,000 from the next phase on
    config.model.init = "gpt2"  # full_megatron
    config.data.row_length = 1024
    config.data.add_special_tokens = True
    config.mlm.mask_rate = 0.3
    return config


def gpt_bert_small():
    """GPT-BERT small: Charpentier and Samuel 2024, ltgoslo/gpt-bert, train_10m.py.

    15 of 16 rows are masked. Lengths of 128, 256 and 512 with equal tokens; the batch
    increases from a quarter, here in four steps. Departures: the mask rate is 22.5 %
    throughout (theirs falls from 30 % to 15 %), of single tokens (theirs: spans of 1 to
    3); T5's relative positions and a plain pre-norm network (theirs: DeBERTa's
    positions, gated attention, more norms, weighted sums of layers); no last linear
    decrease of the rate from a tenth to 0; no [CLS] before a document.

    Cost: 3.39e+18 FLOPs, 0.099 days
    """
    specials = (*BERT_SPECIALS, "eos")
    tokenizer = {"kind": "bpe", "vocab_size": 8192, "specials": specials}
    # The warm-up is 1.6 % of the steps.
    optim = adam(1.41e-2, "cosine", 124, (0.9, 0.98), 1e-8, 0.1, clip=2.0)
    optim |= {"name": "lamb", "min_lr_ratio": 0.1, "ema_decay": 0.999}
    # In rows of 512 tokens: 32,768 rows of 128.
    config = start("clm_mlm", "modern-base", tokenizer, optim, 8192, 7812, 1000)
    config.train.length_schedule = ((0.7, 4), (0.9, 2))
    # The means of quarters of a line from 1/4 to 1.
    shares = (0.34375, 0.53125, 0.71875, 0.90625)
    config.train.batch_schedule = tuple(
        (k / 4, share) for k, share in enumerate(shares, 1)
    )
    config.data.row_length = 512
    config.clm_mlm.mlm_share = 15 / 16
    config.clm_mlm.mask_rate = 0.225
    config.model.update(
        num_layers=12,
        d_model=384,
        num_heads=6,
        d_ff=1280,
        max_len=512,
        window=0,
        global_every=0,
        positions="relative",
        relative_buckets=64,
        relative_max_distance=512,
        qkv_bias="yes",
        activation="gelu_tanh",
        z_loss=1e-4,
        init="truncated",
        init_std=0.0323,  # sqrt(2 / (5 x 384))
        **dict.fromkeys(RATES, 0.1),
    )
    return config


RECIPES = {
    "bert-base": bert_base,
    "bert-base-phase1": bert_base_phase1,
    "bert-base-phase2": bert_base_phase2,
    "roberta-base": roberta_base,
    "electra-small": electra_small,
    "electra-base": electra_base,
    "gpt2-small": gpt2_small,
    "t5-small": t5_small,
    "t5-1.1-small": t5_1_1_small,
    "bart-base": bart_base,
    "modernbert-base": modernbert_base,
    "gpt-bert-small": gpt_bert_small,
}


def get_config(name="bert-base"):
    """The recipe of a name in `RECIPES`."""
    if name not in RECIPES:
        raise ConfigError(f"recipe:{name}: must be one of {', '.join(RECIPES)}")
    return RECIPES[name]()
