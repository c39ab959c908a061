"""Every setting with hostile values: each is refused in one line, or can be used.

    python tests/trials/settings.py           # prints "tried N, held M"; fails if less
    python tests/trials/settings.py --show    # also every case that did not hold

A case is one setting of one section with one value, in process, up to where training
would begin: the checked specs, the text, the network and its memory; nothing is
compiled. It holds if it is refused by a `UserError` of one line that names the setting,
or, unless no such setting may have the value, if all of that is made; within 10 seconds
of the processor and 8 GB.
"""

import contextlib
import dataclasses
import functools
import json
import logging
import math
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SECONDS, BYTES = 10, 8_000_000_000
LARGE = 2**20  # the memory of such sizes is counted
NESTED = [[[]]]
DEEP: list = []
for _ in range(2000):
    DEEP = [DEEP]
NUMBERS = [-1, 0, 1, 2, 1000, 2**24, 2**31 - 1, 2**31]
HUGE = [2**63, -(2**63), 10**40, 10**400]
FLOATS = [-0.5, 0.5, 1e-30, 1e-45, 1e9, 3e38, -3e38, 1e39]
TEXTS = ["", " ", "3", "nan", "true", "auto", "../..", "é\n"]
TEXTS += ["x" * 10_000, "/proc/self/mem", "a\0b", "\ud800"]
COLLECTIONS: list = [[], {}, {"a": 1}, NESTED, DEEP, [None], [{}], [[]], [True], [b"a"]]
NO_NUMBERS = [math.nan, math.inf, -math.inf]
SCALARS = [None, True, False, *NO_NUMBERS, *HUGE]
# Values to try, by the type of a setting's default.
VALUES: dict[type, list] = {
    bool: [*SCALARS, 0, 1, 1.0, *TEXTS, *COLLECTIONS],
    int: [*SCALARS, *NUMBERS, 1.0, 1.5, *TEXTS, *COLLECTIONS, [1]],
    float: [*SCALARS, *NUMBERS, *FLOATS, *TEXTS, *COLLECTIONS, [0.5]],
    str: [*SCALARS, 0, 1, 1.5, *TEXTS, *COLLECTIONS, ["a"]],
    tuple: [
        *(*SCALARS, 0, 1, 1.5, *TEXTS, *COLLECTIONS, [0], [1], [0.5], [1, 1], ["a"]),
        *(["a", "a"], ["a\0b"], ["x" * 10_000], [[0.5, 1]], [-1], [2**31], [2**63]),
        *([1e39], [10**400], [0.5, "a"], [0, 1, 2], [1] * 10_000, [{"a": []}]),
        *([math.nan], [math.inf], [object()], [{1, 2}]),
    ],
    dict: [
        *(*SCALARS, 0, 1.5, *TEXTS, *COLLECTIONS, [1], {1: {}}, {"mlm": {"x": {}}}),
        *({"a": object()}, {"a": {"b": {1, 2}}}, {"clm": {"train": 3}}),
        *({"clm": {"train": {"steps": math.nan}}}, {"train": {"lr": object()}}),
    ],
}


def may_have(default: Any, value: Any) -> bool:
    """Whether any setting with such a default may have a value."""
    if isinstance(default, bool):
        return isinstance(value, bool)
    if isinstance(default, str):
        return isinstance(value, str) and not {"\0", "\ud800"} & {*value}
    if isinstance(default, int | float):
        kinds = (int,) if isinstance(default, int) else (int, float)
        return type(value) in kinds and abs(value) < (
            2**63 if kinds == (int,) else 1e39
        )
    if isinstance(default, dict):
        return isinstance(value, dict) and _is_plain(value)
    return isinstance(value, list) and all(map(_may_list, value))


def _may_list(value: Any) -> bool:
    """Whether a list of settings may have an element, such as a pair."""
    if isinstance(value, list):
        return len(value) > 0 and all(type(each) in (int, float) for each in value)
    return may_have("", value) or may_have(0.5, value)


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, dict) or all(
        isinstance(each, dict) for each in value.values()
    )


# Values of another type: the student's own model.
OTHERS = {"teacher_model": (None,)}
# What a comparison needs to be one, a fine-tuning to have data.
NEEDED = {"compare": {"amount": 1e9}}
PASSAGE = "It was a bright cold day in April, and the clocks were striking thirteen. "


@dataclasses.dataclass(frozen=True)
class Case:
    """A setting with a value, and whether it must be refused."""

    kind: str  # pretraining, finetuning:TASK or generation
    section: str
    field: str
    value: Any
    is_never: bool

    def __str__(self) -> str:
        value = "[" * 9 + "..." if self.value is DEEP else f"{self.value!r:.60}"
        kind = "" if self.kind == "pretraining" else f"{self.kind} "
        return f"{kind}{self.section}.{self.field}={value}"


def list_defaults() -> Iterator[tuple[str, str, str, Any]]:
    """Every setting: kind of config, section, name, default."""
    from jaxpt.config.finetuning import default_finetune_config
    from jaxpt.config.settings import add_sections, default_config
    from jaxpt.evaluation.scores import SampleSpec
    from jaxpt.tasks import TASKS

    for section, fields in add_sections(default_config()).to_dict().items():
        if section == "objective":
            yield "pretraining", "", "objective", fields
            continue
        for name, default in fields.items():
            yield "pretraining", section, name, default
    for number, task in enumerate(TASKS):
        for section, fields in default_finetune_config(task).to_dict().items():
            for name, default in fields.items():
                if section == "task" or not number:
                    yield f"finetuning:{task}", section, name, default
    for field in dataclasses.fields(SampleSpec):
        yield "generation", "--", field.name, field.default
    for name, default in (
        ("num_samples", 1),
        ("seed", 0),
        ("num_tokens", 0),
        ("num_steps", 0),
    ):
        yield "generation", "--", name, default


def make_case(setting: tuple[str, str, str, Any], value: Any) -> Case:
    """A case of a setting of `list_defaults`."""
    *names, default = setting
    is_other = any(value is each for each in OTHERS.get(names[-1], ()))
    return Case(*names, value, not (may_have(default, value) or is_other))


def list_cases() -> Iterator[Case]:
    """Every setting with each of its values."""
    for kind, section, name, default in list_defaults():
        for value in VALUES[type(default)]:
            yield make_case((kind, section, name, default), value)


def begin(case: Case, text: Path) -> None:
    """Makes all that training with the case's setting would begin with."""
    kind, _, task = case.kind.partition(":")
    if kind == "generation":
        _begin_generation(case)
    elif kind == "finetuning":
        _begin_finetuning(case, task)
    elif case.section == "compare":
        _begin_comparison(case, text)
    else:
        _begin_training(case, text)


def _begin_generation(case: Case) -> None:
    from jaxpt.evaluation.scores import SampleSpec
    from jaxpt.runs.predictions import check_draws

    is_field = case.field in {field.name for field in dataclasses.fields(SampleSpec)}
    (SampleSpec if is_field else check_draws)(**{case.field: case.value})


def _begin_finetuning(case: Case, task: str) -> None:
    from jaxpt.config.finetuning import default_finetune_config, make_finetune_plan

    config = default_finetune_config(task).to_dict()
    config["data"]["train"] = "train.tsv"
    config[case.section][case.field] = case.value
    make_finetune_plan(config)


@functools.cache
def _read_defaults() -> str:
    from jaxpt.config.settings import add_sections, default_config

    return json.dumps(add_sections(default_config()).to_dict())


def _config(case: Case, text: Path) -> dict:
    from jaxpt.objectives import OBJECTIVES

    config = json.loads(_read_defaults())
    config["data"] |= {"path": str(text), "seq_len": 32, "documents": "line"}
    config["model"] |= {"d_model": 32, "d_ff": 64, "num_layers": 1, "num_heads": 2}
    config["train"]["trackers"] = []
    config["eval"] |= {"probe_passages": 0}
    if case.section in list(OBJECTIVES):
        config["objective"] = case.section
    if case.section == "bert":
        config["data"]["sentences"] = "punctuation"
    if case.section == "compare":
        config["compare"] |= NEEDED["compare"]
    if case.section:
        config[case.section][case.field] = case.value
    else:
        config[case.field] = case.value
    return config


def _begin_comparison(case: Case, text: Path) -> None:
    from jaxpt.config.plan import make_compare_spec, make_plans

    config = _config(case, text)
    spec = make_compare_spec(config)
    make_plans(config, spec.objectives)


def _begin_training(case: Case, text: Path) -> None:
    from jaxpt.config.plan import make_plan
    from jaxpt.runs.program import Program
    from jaxpt.runs.task import make_task
    from jaxpt.text.dataset import load_text
    from jaxpt.training.memory import check_memory

    name = f"{case.section}.{case.field}"
    plan = make_plan(_config(case, text), {name}, is_run=True)
    if case.section == "data" or plan.lacks_teacher:
        return  # which text there is, or which teacher, is not the setting's
    tokenizer, _ = load_text(plan.text)
    vocab = tokenizer.vocab
    if plan.spec.needs.counts:
        vocab = type(vocab)(**vars(vocab) | {"counts": (1,) * vocab.size})
    task = make_task(plan, vocab)
    if isinstance(case.value, int) and case.value >= LARGE:
        check_memory(Program(task))


class TooSlow(BaseException):
    """A case took longer than it may."""


def run_case(case: Case, text: Path) -> str:
    """The outcome of a case: "refused" or "accepted", or what did not hold."""
    from jaxpt.errors import UserError

    def stop(*args: Any) -> None:
        raise TooSlow

    # Of this process: other processes of a busy machine are not the case's.
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        begin(case, text)
    except TooSlow:
        return "slow"
    except UserError as error:
        message = str(error)
        is_named = case.field in message or f"{case.section}." in message
        return "refused" if is_named and len(message) < 4000 else f"unclear: {message}"
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        return f"traceback: {type(error).__name__} at {place}: {error!s:.80}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return "accepted nonsense" if case.is_never else "accepted"


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """A text, and an empty cache of texts, in a new current folder."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        cache, os.environ["JAXPT_CACHE"] = os.environ.get("JAXPT_CACHE"), folder
        path = Path(folder) / "text.txt"
        path.write_text((PASSAGE * 2 + "\n") * 40)
        try:
            yield path
        finally:
            del os.environ["JAXPT_CACHE"]
            if cache is not None:
                os.environ["JAXPT_CACHE"] = cache


def main() -> int:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    logging.disable(logging.CRITICAL)
    outcomes: Counter[str] = Counter()
    begun, slowest = time.process_time(), (0.0, "")
    with workplace() as text:
        for case in list_cases():
            start = time.process_time()
            outcome = run_case(case, text)
            slowest = max(slowest, (time.process_time() - start, str(case)))
            outcomes[outcome.partition(":")[0]] += 1
            if "--show" in sys.argv and outcome not in ("refused", "accepted"):
                print(f"{case}: {outcome}", flush=True)
    tried, held = outcomes.total(), outcomes["refused"] + outcomes["accepted"]
    listed = ", ".join(f"{num} {name}" for name, num in sorted(outcomes.items()))
    print(f"settings: tried {tried}, held {held} ({listed})")
    print(
        f"{time.process_time() - begun:.0f} s; the slowest case {slowest[0]:.1f} s: "
        f"{slowest[1]:.80}"
    )
    return int(held < tried)


if __name__ == "__main__":
    sys.exit(main())
