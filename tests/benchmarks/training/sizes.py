"""What is measured: an objective with a published model, made smaller or not."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Case:
    """One line of the table.

    Attributes:
      preset: of `jaxpt.nn.presets`; `changes` are its fields made otherwise.
      length: R, raw tokens a row (span corruption: T5's encoder reads `length`).
      batch: rows a step.
      settings: of our config, by full name: how it computes, not what.
    """

    objective: str
    preset: str
    length: int
    batch: int
    changes: dict = dataclasses.field(default_factory=dict)
    settings: dict = dataclasses.field(default_factory=dict)


def _cut(layers: int, width: int, heads: int, vocab: int, **more) -> dict:
    return {
        "num_layers": layers,
        "d_model": width,
        "num_heads": heads,
        "d_ff": 4 * width,
        "vocab_size": vocab,
        **more,
    }


_SMALL = _cut(4, 256, 4, 8192, max_len=512)
_MIDDLE = _SMALL | {"num_layers": 2}
_DEEP = {"model.scan_layers": True}
CASES = {
    # 4 layers x 256, T 128: what fits a CPU.
    "clm-4x256": Case("clm", "gpt2", 128, 16, _SMALL),
    "mlm-4x256": Case("mlm", "bert-base", 128, 16, _SMALL),
    "span_corruption-4x256": Case(
        "span_corruption",
        "t5-v1.1-small",
        128,
        16,
        _MIDDLE | {"num_decoder_layers": 2, "d_ff": 682, "head_dim": 64},
    ),
    "electra-4x256": Case(
        "electra", "electra-small", 128, 16, _SMALL | {"embedding_size": 128}
    ),
    # Published sizes, for a GPU.
    "clm-gpt2": Case("clm", "gpt2", 1024, 32, {"vocab_size": 50304}),
    "mlm-bert-base-128": Case("mlm", "bert-base", 128, 256),
    "mlm-bert-base-512": Case("mlm", "bert-base", 512, 64),
    "span_corruption-t5-base": Case("span_corruption", "t5-v1.1-base", 512, 64),
    "electra-small": Case("electra", "electra-small", 128, 512),
    "electra-base": Case("electra", "electra-base", 512, 64),
    "clm-gpt2-xl": Case(
        "clm",
        "gpt2-xl",
        1024,
        16,
        {"vocab_size": 50304},
        _DEEP | {"model.remat": "full"},
    ),
}
GROUPS = {
    "cpu": [name for name in CASES if name.endswith("4x256")],
    "gpu": [name for name in CASES if not name.endswith("4x256")],
}
ELECTRA_SHARE = 0.25  # the generator's width beside the discriminator's
