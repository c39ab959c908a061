"""The command `fit`: a run on devices that are not here."""

from jaxpt.cli.flags import Command, command, parse_config
from jaxpt.cli.running import OUTPUT, show_result
from jaxpt.errors import ConfigError
from jaxpt.files import disk
from jaxpt.training.fit import environment


@command(
    "fit",
    example="""\
jaxpt fit --config recipe:gpt2-small --target h200:8
jaxpt fit --config family:gpt2 --config.model.vocab_size=50257 --target v5e --top 20""",
    flags=OUTPUT
    | {
        "target": (
            "h200",
            "devices: h100, h200, b200, v5e, v5p, v6e, tpu7x, cpu; "
            "h200:8 and v5e:8 are eight, v5e:2x4 is a topology",
        ),
        "top": (0, "list the operations that read and write the most bytes"),
        "hlo": ("", "file for the text of the compiled program"),
    },
    config="pretraining",
    common=("trust",),
)
def fit(command: Command, argv: list[str]) -> int:
    """Report whether a run fits a GPU or TPU that you do not have.

    Compiles a step of training with the device's own compiler, on a CPU, and prints its
    memory, kernels, collectives, the bytes that it reads and writes, and its FLOPs. It
    trains nothing and fits no curve: `jaxpt fit-scaling` fits scaling laws, and
    `jaxpt train --dry_run` measures a run on the devices of this machine.

    No text is read if model.vocab_size is set, or the tokenizer is one of subwords,
    whose size is tokenizer.vocab_size. The compilers are in the extra `fit`. The exit
    code is 1 if the run does not fit.
    """
    environment.set_up()
    config, values, explicit_names = parse_config(command, argv)
    from jaxpt.training.fit.target import read_target

    target = read_target(values.target)
    if values.top < 0:
        raise ConfigError(f"--top={values.top}: must be at least 0")
    from jaxpt.training.fit.estimate import estimate
    from jaxpt.training.fit.wording import format_fit, format_ops

    result = estimate(config, explicit_names, target)
    if values.hlo:
        disk.replace(values.hlo, result.text.encode())
    lines = format_ops(result.ops, values.top) if values.top else []
    show_result(values, result.fit.to_json(), [*lines, *format_fit(result.fit)])
    return 1 if result.fit.memory.fits is False else 0
