"""Prepares a text as tasks of a Ray cluster, one for each part, and merges them here.

Ray restarts a part whose machine or process was lost. All machines must have jaxpt, see
the text at the same path, and share the store's folder, unless that is a URL.
"""

import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from jaxpt import logs, trust
from jaxpt.comparison.on_ray import Cluster, connect, enter, make_options, wait_for
from jaxpt.config.plan import make_plan
from jaxpt.errors import (
    DataError,
    Spelling,
    UserError,
    argument,
    current_spelling,
    spelled,
)
from jaxpt.files import disk
from jaxpt.runs.progress_bars import make_reporter
from jaxpt.text.library import find_tokenizer
from jaxpt.text.parts import count_spans, merge_parts, prepare_part
from jaxpt.text.stores.parts import MAX_PARTS, Share
from jaxpt.text.stores.prepare import Reporter
from jaxpt.text.text_spec import TextSpec
from jaxpt.text.tokens.tokenizer import Tokenizer, load, make_tokenizer, save

# Of a part, unless the number of parts is set: 64 MiB, seconds to a minute of work.
SPANS_PER_PART = 4


def prepare_on_ray(
    cluster: Cluster, config: Any, to: str, num_parts: int | None = None
) -> None:
    """Prepares the config's text in the folder or URL `to`.

    Args:
      num_parts: None is a part for each SPANS_PER_PART spans of the text.
    """
    if num_parts is not None and not 1 <= num_parts <= MAX_PARTS:
        raise DataError(
            f"{argument('ray_parts')}={num_parts}: must be from 1 to {MAX_PARTS}"
        )
    spec, reporter = make_plan(config).text, make_reporter()
    num = num_parts or min(-(-count_spans(spec) // SPANS_PER_PART), MAX_PARTS)
    tokenizer = _make_tokenizer(spec, reporter)
    to = to if trust.is_url(to) else os.path.abspath(to)
    ray = connect(cluster)
    try:
        task = ray.remote(**make_options(ray, cluster))(_prepare_part)
        more = os.getcwd(), trust.list_trusted(), logs.is_quiet(), current_spelling()
        given = spec, to, _write(tokenizer), max(cluster.cpus, 1), *more
        start = partial(task.remote, *given)
        wait_for(
            ray,
            cluster,
            {start(f"{index}/{num}"): f"part {index}/{num}" for index in range(num)},
        )
    finally:
        ray.shutdown()
    merge_parts(spec, num, to, tokenizer=tokenizer, reporter=reporter)


def _make_tokenizer(spec: TextSpec, reporter: Reporter) -> Tokenizer:
    """The spec's tokenizer, which is trained if it is missing."""
    if spec.tokenizer.kind == "file":
        return make_tokenizer(spec.tokenizer, ())
    return find_tokenizer(spec, reporter)


def _write(tokenizer: Tokenizer) -> bytes:
    """The tokenizer's file, as the machines may share no cache."""
    with tempfile.TemporaryDirectory() as place:
        save(tokenizer, path := Path(place, "tokenizer.json"))
        return path.read_bytes()


def _read(data: bytes) -> Tokenizer:
    with tempfile.TemporaryDirectory() as place:
        disk.replace(path := Path(place, "tokenizer.json"), data)
        return load(path)


def _prepare_part(
    spec: TextSpec,
    to: str,
    tokenizer: bytes,
    workers: int,
    folder: str,
    trusted: list[str],
    is_quiet: bool,
    spelling: Spelling,
    part: str,
) -> tuple[str, str]:
    """Runs in a process of Ray: a text to print, and the message of a UserError."""
    try:
        enter(folder)
        trust.trust(trusted)
        with logs.terminal(is_quiet), spelled(spelling):
            prepare_part(
                spec,
                Share.read(part),
                to,
                tokenizer=_read(tokenizer),
                workers=workers,
                reporter=make_reporter(),
            )
            return "", ""
    except UserError as error:
        return "", str(error)
