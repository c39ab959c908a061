"""`jaxpt tokenizer train` and `jaxpt prepare`."""

import resource
import time
from pathlib import Path

from jaxpt.config.plan import make_plan
from jaxpt.errors import CheckpointError, ConfigError, argument
from jaxpt.runs.progress_bars import make_reporter
from jaxpt.text.library import open_stores, train_tokenizer
from jaxpt.text.parts import merge_parts, prepare_part
from jaxpt.text.stores.parts import Share
from jaxpt.text.tokens import tokenizer as tokenizers


def write_tokenizer(config, path: Path) -> None:
    """Trains the config's tokenizer and writes it as a `tokenizer.json`."""
    spec, reporter = make_plan(config).text, make_reporter()
    if spec.tokenizer.kind == "file":
        raise ConfigError(
            "tokenizer.kind='file': is loaded, must be one that is trained"
        )
    if path.exists():
        raise CheckpointError(
            f"{argument('to')}={path}: exists already; must be a new file"
        )
    start = time.perf_counter()
    tokenizer = train_tokenizer(spec, reporter)
    seconds = time.perf_counter() - start
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        tokenizers.save(tokenizer, path)
    except OSError as error:
        raise CheckpointError(f"{argument('to')}={path}: {error.strerror}") from error
    vocab = tokenizer.vocab
    named = ", ".join(
        f"{text} {id_}" for id_, text in list(vocab.special_names.items())[:8]
    )
    reporter.log(
        f"{path}: {spec.tokenizer.kind}, {vocab.size} tokens "
        f"({named or 'no specials'}), {seconds:.1f} s, peak {_peak_mb():.0f} MB"
    )


def prepare_text(config, folder: Path | None, workers: int) -> None:
    """Prepares every text of the config that is not prepared yet."""
    _check_workers(workers)
    open_stores(
        make_plan(config).text,
        folder=folder,
        workers=workers,
        reporter=(reporter := make_reporter()),
    )
    reporter.log(f"prepared; {_describe_memory()}")


def prepare_text_part(config, part: str, to: str, workers: int) -> None:
    """Prepares part "I/N" of the config's text for the store at a path or URL."""
    _check_workers(workers)
    share, reporter = Share.read(part), make_reporter()
    spec = make_plan(config).text
    prepare_part(spec, share, to, workers=workers, reporter=reporter)
    reporter.log(f"part {part} is prepared; {_describe_memory()}")


def merge_text_parts(config, num: int, to: str) -> None:
    """Merges the parts of the config's text into the store at a path or URL."""
    reporter = make_reporter()
    merge_parts(make_plan(config).text, num, to, reporter=reporter)
    reporter.log(f"{to}: {num} parts are merged; {_describe_memory()}")


def _check_workers(workers: int) -> None:
    if workers < 0:
        raise ConfigError(f"{argument('workers')}={workers}: must be at least 0")


def _describe_memory() -> str:
    of_workers = _peak_mb(True)
    more = f", workers {of_workers:.0f} MB each" if of_workers else ""
    return f"peak memory {_peak_mb():.0f} MB{more}"


def _peak_mb(of_children: bool = False) -> float:
    processes = resource.RUSAGE_CHILDREN if of_children else resource.RUSAGE_SELF
    return resource.getrusage(processes).ru_maxrss / 1024
