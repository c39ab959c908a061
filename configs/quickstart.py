"""placeholder"""

from jaxpt.run.build import default_config


def get_config():
    """Four objectives, three seeds, the same rows and the same FLOPs."""
    config = default_config()
    config.data.row_length = 64
    config.tokenizer.specials = ("pad", "unk", "mask", "eos")
    config.tokenizer.num_sentinels = 8

    model = config.model
    model.num_layers = 2
    model.width = 96
    model.num_heads = 4
    model.mlp_width = 256
    model.max_len = 64
    model.activation = "relu"

    config.optim.lr = 2e-3
    config.optim.warmup_steps = 50
    config.optim.weight_decay = 0.01
    config.train.batch_size = 64
    config.train.log_every = 100
    config.eval.num_rows = 512
    config.eval.probe_length = 56
    config.eval.probe_windows = 8
    config.eval.probe_passages = 600

    compare = config.compare
    compare.budget = "flops"
    compare.amount = 1e12
    compare.overrides = {"span_corruption": {"model": {"num_decoder_layers": 2}}}
    return config
