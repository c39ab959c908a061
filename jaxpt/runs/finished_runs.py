"""Finished runs for a report: found by folder or glob, read and verified."""

import dataclasses
import glob
import json
import os
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from jaxpt.errors import CheckpointError, ConfigError, UserError, argument
from jaxpt.files import checksums
from jaxpt.files.folder import CONFIG, load_config, load_json
from jaxpt.files.remote import localise
from jaxpt.judge.examples import Examples
from jaxpt.runs.metrics_file import METRICS_FILE
from jaxpt.runs.result import SCHEMA
from jaxpt.runs.task import Task
from jaxpt.runs.workdir import (
    DATA,
    DIVERGED,
    NAMES,
    list_settings,
    load_divergence,
    load_examples,
    load_task,
)
from jaxpt.text.text_spec import TextSpec
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.tokenizer import Tokenizer

RUNS = "must be folders of finished runs, which jaxpt train or jaxpt compare has made"
# Settings of the text, which its fingerprint covers.
OF_TEXT = {f"data.{f.name}" for f in dataclasses.fields(TextSpec)} - {"data.sentences"}

Item = TypeVar("Item")


class FoundRun(NamedTuple):
    """A finished run, read from its folder.

    Attributes:
      folder: as the user named it.
      version: of jaxpt when it was started.
      settings: by full name, those that its results depend on.
      result: its result.json, or its diverged.json if it diverged.
      examples: by metric, the value on each test example.
      text: the sha256 of each split's ids, by the split's name.
      tokenizer_sha256: of all that determines the ids of plain text.
    """

    folder: Path
    version: str
    settings: dict
    result: dict
    examples: dict[str, Examples]
    text: dict[str, str]
    task: Task
    tokenizer: Tokenizer
    tokenizer_sha256: str

    @property
    def objective(self) -> str:
        """The objective's name."""
        return self.result["objective"]

    @property
    def has_diverged(self) -> bool:
        """Whether it was stopped because a loss was not finite."""
        return "diverged_at" in self.result

    @property
    def seed(self) -> int:
        """The seed it was trained with."""
        return self.result["seed"]

    @property
    def text_settings(self) -> dict:
        """The settings that choose the text and its splits."""
        names = OF_TEXT - {"data.cache_dir", "data.tfds_data_dir"}
        return {name: v for name, v in self.settings.items() if name in names}


def is_same_tokenizer(one: FoundRun, other: FoundRun) -> bool:
    """Whether both tokenizers give the same ids for plain text."""
    return one.tokenizer_sha256 == other.tokenizer_sha256


def is_same_text(one: FoundRun, other: FoundRun, split: str = "") -> bool:
    """Whether both read the same text.

    With different tokenizers the fingerprints of one text differ. Then the settings of
    the text are compared.

    Args:
      split: the split to compare; "" for all.
    """
    if not is_same_tokenizer(one, other):
        return one.text_settings == other.text_settings
    if split:
        return one.text.get(split) == other.text.get(split)
    return one.text == other.text


def number_alike(
    items: Sequence[Item], is_alike: Callable[[Item, Item], bool]
) -> list[int]:
    """A group number for each item, by an equivalence; the first group is 0.

    >>> number_alike([1, 3, 2, 5], lambda a, b: a % 2 == b % 2)
    [0, 0, 1, 0]
    """
    firsts: list[Item] = []
    numbers = []
    for item in items:
        matches = [n for n, first in enumerate(firsts) if is_alike(first, item)]
        if not matches:
            firsts.append(item)
        numbers.append(matches[0] if matches else len(firsts) - 1)
    return numbers


def find_folders(words: Iterable[str]) -> list[Path]:
    """The folders that the argument `runs` names.

    Args:
      words: folders, comma-separated folders, or globs (files that match are ignored).
    """
    folders: list[Path] = []
    for word in words:
        parts = [word] if os.path.exists(word) else word.split(",")
        for part in filter(None, map(str.strip, parts)):
            part = localise(part)
            if os.path.exists(part) or glob.escape(part) == part:
                folders.append(Path(part))
                continue
            matches = [Path(path) for path in sorted(glob.glob(part))]
            matches = [path for path in matches if path.is_dir()]
            if not matches:
                raise CheckpointError(
                    f"{argument('runs')}={part}: matches no folder; {RUNS}"
                )
            folders += matches
    if not folders:
        raise ConfigError(
            f"{argument('runs')}: {RUNS}, such as {argument('runs')}=runs/a,runs/b"
        )
    return folders


def load_runs(folders: Iterable[Path], takes_diverged: bool = False) -> list[FoundRun]:
    """The finished runs of these folders.

    Args:
      takes_diverged: whether a run may have diverged (`FoundRun.has_diverged`).
    """
    places: dict[str, Path] = {}
    firsts: dict[str, FoundRun] = {}
    runs = []
    for folder in folders:
        place = os.path.realpath(folder)
        if place in places:
            raise CheckpointError(
                f"{argument('runs')}={folder}: is the same folder as {places[place]}; "
                "name each run once"
            )
        places[place] = folder
        run = _load_run(folder)
        if run.has_diverged and not takes_diverged:
            raise CheckpointError(
                f"{argument('runs')}={folder}: its run diverged at step "
                f"{run.result['diverged_at']} ({run.result['reason']}); leave it out"
            )
        runs.append(_share(run, firsts.setdefault(run.tokenizer_sha256, run)))
    return runs


def _share(run: FoundRun, first: FoundRun) -> FoundRun:
    """A run with the tokenizer and vocabulary objects of another, if they are equal.

    A tokenizer has megabytes, and a report may be of hundreds of runs.
    """
    task = run.task
    if task.vocab == first.task.vocab:
        task = dataclasses.replace(task, vocab=first.task.vocab)
    return run._replace(task=task, tokenizer=first.tokenizer)


def _load_run(folder: Path) -> FoundRun:
    _check_kind(folder)
    _check_sums(folder)
    try:
        stored = load_json(folder / "config.json", CONFIG, RUNS)
        settings = list_settings(load_config(folder / "config.json", RUNS))
        text = load_json(folder / "data.json", DATA, RUNS)
        divergence = load_divergence(folder)
        result = divergence or load_json(folder / "result.json", SCHEMA, RUNS)
        task, tokenizer = load_task(folder)
        examples = load_examples(folder)
    except UserError as error:
        is_named = str(folder) in str(error)
        raise (
            error
            if is_named
            else CheckpointError(f"{argument('runs')}={folder}: {error}")
        ) from None
    except (OSError, ValueError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        kind = type(error).__name__
        raise CheckpointError(
            f"{argument('runs')}={folder}: is damaged ({kind}: {error})"
        ) from None
    if not divergence:
        _check_result(folder, result, settings)
    return FoundRun(
        folder=folder,
        version=stored["version"],
        settings=json.loads(json.dumps(settings)),
        result=result,
        examples=examples,
        text=text,
        task=task,
        tokenizer=tokenizer,
        tokenizer_sha256=tokenizers.fingerprint(tokenizer),
    )


def _check_kind(folder: Path) -> None:
    """Raises UserError if a folder holds no run, or an unfinished one."""
    if not folder.exists():
        raise CheckpointError(f"{argument('runs')}={folder}: not found; {RUNS}")
    if not folder.is_dir():
        raise CheckpointError(f"{argument('runs')}={folder}: is a file; {RUNS}")
    if (folder / "compare.json").exists():
        raise CheckpointError(
            f"{argument('runs')}={folder}: holds a comparison; name its runs, "
            f"{folder / 'runs' / '*-seed*'}"
        )
    if not (folder / "config.json").exists():
        raise CheckpointError(f"{argument('runs')}={folder}: holds no run; {RUNS}")
    if not any((folder / name).exists() for name in ("result.json", DIVERGED)):
        raise CheckpointError(
            f"{argument('runs')}={folder}: its run is not finished (there is no "
            f"result.json); finish it with jaxpt train --workdir={folder}, or leave it "
            "out"
        )


def _check_sums(folder: Path) -> None:
    """Raises UserError if a file differs from its recorded checksum."""

    def check(path: Path, read: Callable[[Path], bytes]) -> None:
        try:
            read(path)
        except OSError as error:
            raise CheckpointError(
                f"{path}: cannot be read: {error.strerror}"
            ) from error

    for name in NAMES:
        path = folder / name
        if path.exists():
            check(path, checksums.read)
        elif checksums.has_checksum(path):
            raise CheckpointError(
                f"{argument('runs')}={folder}: {name} was removed after it was "
                f"written; {checksums.REMEDY}"
            )
    if (folder / METRICS_FILE).exists():
        check(folder / METRICS_FILE, checksums.read_log)


def _check_result(folder: Path, result: dict, settings: dict) -> None:
    """Raises UserError if a result does not belong to the folder's config."""
    path = folder / "result.json"
    for name, setting in (
        ("objective", "objective"),
        ("seed", "train.seed"),
        ("steps", "train.steps"),
    ):
        if name == "steps" and settings["train.seconds"]:
            continue  # a budget of seconds decides the number of steps
        if result[name] != settings[setting]:
            raise CheckpointError(
                f"{path}: is of {name}={result[name]}, but the run's config.json has "
                f"{setting}={settings[setting]}; finish the run with "
                f"jaxpt train --workdir={folder}, or leave it out"
            )
