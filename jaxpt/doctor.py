"""Verifies the files of a run, comparison, fine-tuning, report, study, store or export.

Uses the checks that each reader makes: `checksums.json`, the manifests of checkpoints,
the card of a store. Only reads.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from jaxpt.distributed.processes import set_up_jax
from jaxpt.errors import CheckpointError, ConfigError, UserError
from jaxpt.files import checksums, disk, schema
from jaxpt.files.folder import LOCK
from jaxpt.runs import manifest
from jaxpt.text.stores import draft, store

LOG = "metrics.jsonl"  # grows: its checksum is that of a prefix
RESULT, CELLS = "result.json", "cells/*/result.json"


class Kind(NamedTuple):
    """A kind of folder that jaxpt writes.

    Attributes:
      name: as messages name it.
      markers: one of these files or subfolders identifies it.
      needs: files without which it cannot be used, if it does not record its files.
      remedy: the advice about a damaged file, if none is more specific.
    """

    name: str
    markers: tuple[str, ...]
    needs: tuple[str, ...]
    remedy: str


STORE = Kind(
    "prepared store",
    (store.CARD,),
    (),
    "delete the store and prepare the text again",
)
UNFINISHED = Kind(
    "unfinished store",
    (draft.JOURNAL,),
    (),
    "repeat the jaxpt prepare that was stopped; it resumes",
)
STUDY = Kind(
    "archived study",
    ("study.json",),
    (),
    "restore it from version control, or repeat jaxpt archive",
)
# The first that has a marker applies.
KINDS = (
    STUDY,
    Kind(
        "comparison",
        ("compare.json", "plans.json"),
        ("compare.json",),
        "repeat the jaxpt compare that wrote it: finished runs are not trained again",
    ),
    Kind("report", ("runs.json",), (), "repeat jaxpt report"),
    STORE,
    UNFINISHED,
    STORE._replace(markers=(store.DOC_STARTS, store.LABELS)),
    Kind(
        "fine-tuning",
        ("identity.json", "cells"),
        ("config.json", "identity.json"),
        "restore it, or fine-tune again in a new folder",
    ),
    Kind(
        "run of a fine-tuning",
        ("predictions.jsonl", "history.json"),
        (),
        "delete {folder}: the same jaxpt finetune trains it again",
    ),
    Kind(
        "training run",
        ("checkpoints", "data.json", LOG),
        ("config.json", "tokenizer.json"),
        "restore it from a copy: the run cannot be read without it",
    ),
    Kind(
        "export",
        (
            *("model.safetensors", "model.safetensors.index.json", "model.json"),
            *("generator", "discriminator", "models.js"),
        ),
        (),
        "export again",
    ),
    Kind("analysis", ("analysis.json", "scaling.json"), (), "repeat the command"),
)
# The advice about files that a command writes again.
MEASURED = (
    "delete it: jaxpt train --workdir={folder} evaluates the last checkpoint again"
)
REMEDIES = {
    ("training run", "result.json"): MEASURED,
    ("training run", "examples.npz"): MEASURED,
    ("training run", LOG): (
        "restore it from a copy; the checkpoints can be used, also as train.init_from"
    ),
    ("export", "README.md"): "the model can be used: this is only its card",
}
SUMS_REMEDY = (
    "restore it from a copy; without it no other file of this folder can be verified"
)
# Files of these types are recorded by whatever writes them.
RECORDED = {".json", ".jsonl", ".npz", ".csv", ".safetensors", ".onnx"}
# Folders that other programs write.
FOREIGN = {"tensorboard", "wandb", "mlruns", "profile"}


class Fault(NamedTuple):
    """A damaged file, and what to do about it.

    Attributes:
      path: relative to the examined folder.
      remedy: what still works, and what to do.
    """

    path: str
    problem: str
    remedy: str


class Examination(NamedTuple):
    """The state of a folder.

    Attributes:
      kind: the name of its `Kind`.
      num_files: the number of verified files.
      num_bytes: their size.
      notes: what is no damage but should be known.
      unverified: files without a checksum, relative to the folder.
    """

    kind: str
    num_files: int
    num_bytes: int
    faults: list[Fault]
    notes: list[str]
    unverified: list[str]


def examine(root: Path) -> Examination:
    """Verifies everything in a folder that has a checksum."""
    if not root.is_dir():
        problem = "is not a folder" if root.exists() else "not found"
        raise ConfigError(f"{root}: {problem}; must be {list_kinds()}")
    if not (kind := find_kind(root)):
        raise ConfigError(f"{root}: is none of: {list_kinds()}")
    return _Examiner(root, kind).examine()


def list_kinds() -> str:
    """The folders that can be examined, for a message."""
    return ", ".join(dict.fromkeys(kind.name for kind in KINDS))


def find_kind(folder: Path) -> Kind | None:
    """What a folder holds, by its names and those that it recorded."""
    try:
        names = set(os.listdir(folder)) | checksums.list_recorded(folder)
    except OSError as error:
        raise CheckpointError(f"{folder}: {error.strerror}") from error
    return next((kind for kind in KINDS if names.intersection(kind.markers)), None)


class _Examiner:
    """Collects what `examine` returns."""

    def __init__(self, root: Path, kind: Kind):
        self._root, self._kind = root, kind
        self._faults: list[Fault] = []
        self._notes: list[str] = []
        self._unverified: list[str] = []
        self._num_files = self._num_bytes = 0

    def examine(self) -> Examination:
        for folder in self._walk(self._root):
            self._check_folder(folder)
        return Examination(
            self._kind.name,
            self._num_files,
            self._num_bytes,
            self._faults,
            self._notes,
            self._unverified,
        )

    def _walk(self, folder: Path) -> Iterator[Path]:
        """A folder and those below it, without links and the steps of checkpoints."""
        yield folder
        steps = {path.name for path in manifest.list_unfinished(folder)}
        steps |= set(map(str, manifest.list_finished(folder)))
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            self._add(folder, f"cannot be read: {error.strerror}", "make it readable")
            return
        for entry in entries:
            is_skipped = entry.name in steps | FOREIGN
            if entry.is_dir(follow_symlinks=False) and not is_skipped:
                yield from self._walk(Path(entry.path))

    def _check_folder(self, folder: Path) -> None:
        kind = find_kind(folder)
        if kind is UNFINISHED:
            self._notes.append(f"{self._name(folder)}: unfinished: {kind.remedy}")
            return
        # Before the checks, as a run that trains saves more checkpoints meanwhile.
        present = {path.name for path in folder.iterdir() if path.is_file()}
        verified = self._check_sums(folder)
        if kind and kind.name == STORE.name:
            verified |= self._check_store(folder)
        if kind is STUDY:
            verified |= self._check_study(folder)
        verified |= self._check_steps(folder)
        if kind:
            for name in kind.needs:
                if not (folder / name).exists() and name not in verified:
                    self._add(folder / name, "is missing", self._advise(folder, name))
            if kind.name in ("training run", "fine-tuning"):
                self._check_last_step(folder, kind)
        rest = sorted(present - verified - {checksums.FILE, LOCK})
        rest = [name for name in rest if (folder / name).exists()]
        recorded = [name for name in rest if Path(name).suffix in RECORDED]
        if recorded and not (folder / checksums.FILE).exists():
            self._add(
                folder / checksums.FILE,
                f"is missing: {', '.join(recorded)} cannot be verified",
                "restore it from a copy",
            )
        self._unverified += [self._name(folder / name) for name in rest]

    def _check_sums(self, folder: Path) -> set[str]:
        """Compares the recorded files; their names."""
        recorded = checksums.list_recorded(folder)
        faults = checksums.find_faults(folder, (LOG,))
        for name, problem in faults.items():
            self._add(folder / name, problem, self._advise(folder, name))
        self._count(folder / name for name in {*recorded, checksums.FILE})
        return recorded | faults.keys()

    def _check_store(self, folder: Path) -> set[str]:
        for error in store.list_faults(folder):
            message = str(error).removeprefix("store file ")
            path, _, problem = message.partition(": ")
            self._add(Path(path), problem, STORE.remedy)
        try:
            names = {store.CARD, *store.read_card(folder)["files"]}
        except UserError:
            names = {path.name for path in folder.iterdir()}
        self._count(folder / name for name in names)
        return names

    def _check_steps(self, folder: Path) -> set[str]:
        """Verifies all checkpoints in a folder; the names of their manifests."""
        finished = manifest.list_finished(folder)
        faults, intact = [], []
        for step in finished:
            try:
                manifest.verify(folder, step)
                intact.append(step)
            except (manifest.Damaged, UserError) as error:
                if step not in manifest.list_finished(folder):
                    continue  # a run that trains has removed it
                faults.append((step, str(error).replace(f"{self._root}{os.sep}", "")))
            self._count((folder / str(step)).rglob("*"))
        for step, problem in faults:
            self._add(folder / str(step), f"is damaged: {problem}", _use(intact))
        manifests = {f"{step}.manifest.json" for step in finished}
        self._count(folder / name for name in manifests)
        # A run that has not ended may have unfinished saves.
        is_over = (folder.parent / RESULT).exists()
        for path in manifest.list_unfinished(folder):
            if is_over:
                self._add(path, "has no manifest: it was removed", _use(intact))
            else:
                self._notes.append(
                    f"{self._name(path)}: an unfinished save, which is ignored"
                )
        return manifests

    def _check_last_step(self, folder: Path, kind: Kind) -> None:
        """Adds a fault if the checkpoint that a result is of is not there."""
        is_run = kind.name == "training run"
        place = folder / ("checkpoints" if is_run else "model")
        pattern, field = (RESULT, "steps") if is_run else (CELLS, "model_step")
        results = [_read(path) for path in folder.glob(pattern)]
        steps = [result[field] for result in results if field in result]
        if steps and not (last := place / str(max(steps))).exists():
            intact = manifest.list_finished(place)
            self._add(last, "is missing: the result is that of this step", _use(intact))

    def _check_study(self, folder: Path) -> set[str]:
        """Verifies the files of a study, and that its means are those of its values."""
        set_up_jax()
        from jaxpt.comparison import studies, study_files

        names = {study_files.STUDY, study_files.RUNS, study_files.VALUES}
        faults = study_files.list_faults(folder)
        for name, problem in faults.items():
            self._add(folder / name, problem.partition("; ")[0], STUDY.remedy)
        if not faults:
            try:
                studies.check_study(folder)
            except UserError as error:
                self._add(folder, str(error), STUDY.remedy)
        self._count(folder / name for name in names)
        return names

    def _advise(self, folder: Path, name: str) -> str:
        kind = find_kind(folder) or self._kind
        if name == checksums.FILE:
            return SUMS_REMEDY
        return REMEDIES.get((kind.name, name), kind.remedy).format(folder=folder)

    def _add(self, path: Path, problem: str, remedy: str) -> None:
        self._faults.append(Fault(self._name(path), problem, remedy))

    def _name(self, path: Path) -> str:
        return os.path.relpath(path, self._root)

    def _count(self, paths) -> None:
        # A run that trains removes old checkpoints.
        with contextlib.suppress(FileNotFoundError):
            for path in paths:
                if path.is_file():
                    self._num_bytes += path.stat().st_size
                    self._num_files += 1


def _read(path: Path) -> dict:
    """The object in a JSON file; {} if it is damaged, which its checksum shows."""
    try:
        value = schema.parse(disk.read(path))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _use(intact: list[int]) -> str:
    """What still works when a checkpoint is damaged."""
    if not intact:
        return "no intact checkpoint is left: restore it from a copy, or train again"
    return (
        f"step {intact[-1]} is intact and is used instead; repeat jaxpt train to train "
        f"on from it"
    )
