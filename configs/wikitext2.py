"""Four objectives on WikiText-2 at equal FLOPs, with an 8k byte-level BPE.

    jaxpt compare --config configs/wikitext2.py:DIR --workdir runs/wikitext2

DIR has wiki.train.raw and wiki.valid.raw, plain or compressed. About 7 minutes on 2
cores. Expected at 1e13 FLOPs each: clm 270 steps, 2.20 bits per byte; mlm 660 steps,
cloze accuracy 6.8%; span_corruption 510 steps, loss 5.38; electra 600 steps, cloze
accuracy of its generator 5.6%. One seed gives no verdicts.

To train one objective for 400 steps, in 1 to 3 minutes:

    jaxpt train --config configs/wikitext2.py:DIR --config.objective=NAME --workdir RUN

NAME                expected on wiki.valid.raw
clm                 valid_loss 5.90, perplexity 363, 2.10 bits per byte
mlm                 valid_loss 6.60; held-out [MASK]s filled: 13.1 %, 23.5 % in five
span_corruption     valid_loss 5.44, accuracy 0.289
electra             16.5 % of held-out [MASK]s filled by the generator; discriminator
                    (loss 0.397, 13.6 % replaced) still calls every token original
bert                valid_mlm_loss 6.76; [MASK]s filled: 10.6 %, 21.1 % in five; whether
                    B follows A: 53.1 % (400 steps do not teach it)
spanbert            valid_loss 13.89: 6.71 in place, 7.18 from the edges; 14.2 % filled
bart                valid_loss 5.76, accuracy 0.152, of all tokens of the clean text
prefix_lm           valid_loss 6.04, accuracy 0.132, of what follows the prefix
ul2                 valid_loss 6.08, accuracy 0.149
clm_mlm             valid_clm_loss 6.25, valid_mlm_loss 6.31; 11.7 % of the cloze filled

Other masks for the masked objectives: --config.mlm.masking=words or spans;
--config.mlm.static_masks=10 (RoBERTa's); --config.mlm.mask_rate=0.3 with
--config.mlm.mask_rate_end=0.15.
"""

from jaxpt.config.settings import default_config

SPECIALS = ("pad", "unk", "mask", "eos")


def get_config(folder="."):
    """Articles as documents, rows of 128 tokens, the same for every objective."""
    config = default_config()
    data = config.data
    data.path = f"{folder}/wiki.train.raw*"
    data.valid_path = f"{folder}/wiki.valid.raw*"
    data.documents = "heading:^ = [^=]+ = $"
    data.row_length = 128
    tokenizer = config.tokenizer
    tokenizer.kind = "bpe"
    tokenizer.vocab_size = 8192
    tokenizer.specials = SPECIALS
    tokenizer.num_sentinels = 16

    model = config.model
    model.num_layers = 2
    model.d_model = 128
    model.num_heads = 4
    model.d_ff = 512
    model.max_len = 128
    model.positions = "relative"
    model.init_std = 0.05

    config.bilm.num_chars = 20
    config.bilm.filters = (16, 32, 64, 64)

    config.optim.lr = 2e-3
    config.optim.warmup_steps = 50
    config.optim.weight_decay = 0.01

    train = config.train
    train.batch_size = 32
    train.steps = 400
    train.log_every = 50
    train.eval_every = 100
    train.checkpoint_every = 100
    config.eval.num_rows = 512
    config.eval.batch_size = 32

    compare = config.compare
    compare.seeds = (0,)
    compare.budget = "flops"
    compare.amount = 1e13
    return config
