"""Reads and writes the files of Hugging Face checkpoints: safetensors and JSON.

    <folder>/config.json                          and other JSON files
             model.safetensors                    all tensors, or
             model-00001-of-00002.safetensors     shards, and
             model.safetensors.index.json         the shard of each tensor
             model.fp16.safetensors               or another name, if it is the only one

Only safetensors is read: a pickle (pytorch_model.bin) can run code when it is loaded.
The files are those of transformers, https://github.com/huggingface/transformers,
`PreTrainedModel.save_pretrained`.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePath, PureWindowsPath
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from jaxpt.errors import DataError, UserError
from jaxpt.files import schema
from jaxpt.files.disk import flush, open_regular, read, remove, replace

MODEL = "model.safetensors"
INDEX = "model.safetensors.index.json"
# Names of dtypes in safetensors -> NumPy's dtypes, some of them from ml_dtypes.
DTYPES = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
_PARTIAL = ".model.partial"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_UNSUPPORTED_SUFFIXES = (".gguf", ".ggml", ".msgpack", ".h5", ".onnx", ".npz")
ADAPTER = "adapter_model.safetensors"
_LFS = b"version https://git-lfs"
_SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")


class LazyTensors(Mapping):
    """Tensors by name, each read when it is accessed.

    Args:
      sources: name -> where `read` finds the tensor.
    """

    def __init__(self, sources: Mapping[str, Any], read: Callable[[Any], np.ndarray]):
        self._sources, self._read = sources, read

    def __getitem__(self, name: str) -> np.ndarray:
        return self._read(self._sources[name])

    def __contains__(self, name: object) -> bool:
        return name in self._sources  # the parent's would read the tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


def _read_tensor(source: tuple[Path, Any, str]) -> np.ndarray:
    """Reads a tensor as float32, from (path, opened file, name)."""
    path, file, name = source
    try:
        dtype = file.get_slice(name).get_dtype()
        if dtype not in DTYPES:
            allowed = ", ".join(DTYPES)
            raise _fault(path, f"tensor {name!r} is {dtype}: must be one of {allowed}")
        return file.get_tensor(name).astype(np.float32, copy=False)
    except (SafetensorError, OSError) as error:
        raise _fault(path, f"tensor {name!r} cannot be read: {error}") from error


def read_tensors(folder: str | os.PathLike) -> Mapping[str, np.ndarray]:
    """The tensors of a checkpoint, as float32, each read when it is accessed.

    The files stay open. The names of all tensors are checked at once.

    Args:
      folder: has `MODEL`, or `INDEX` and its shards. If it has both, as repositories
        of the Hub may, `MODEL` is read and the shards are not, as transformers does.
        Without both, the only file of another name (`find_other`).

    Returns:
      Tensors by name; accessing one raises UserError if its dtype is not in `DTYPES`
      or its file can no longer be read.
    """
    folder = Path(folder)
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise DataError(f"model folder {folder}: {_reason(error)}") from error
    if INDEX in names and MODEL not in names:
        return LazyTensors(_open_shards(folder), _read_tensor)
    name = MODEL if MODEL in names else find_other(names)
    if not name:
        raise _explain_missing(folder, names)
    return read_file_tensors(folder / name)


def read_file_tensors(path: Path) -> Mapping[str, np.ndarray]:
    """The tensors of one safetensors file, as of `read_tensors`."""
    file = _open(path)
    return LazyTensors({name: (path, file, name) for name in file.keys()}, _read_tensor)


def find_other(names: Iterable[str]) -> str:
    """The only safetensors file of a folder that may be a model's; "" if there is none.

    >>> find_other(["config.json", "model.fp16.safetensors", ADAPTER])
    'model.fp16.safetensors'
    >>> find_other(["a.safetensors", "b.safetensors"])
    ''
    """
    others = [
        name
        for name in names
        if PurePath(name).name == name
        and name.endswith(".safetensors")
        and name != ADAPTER
        and not SHARD.fullmatch(name)
    ]
    return others[0] if len(others) == 1 else ""


def write_tensors(
    folder: str | os.PathLike,
    tensors: Mapping[str, np.ndarray],
    max_shard_bytes: int = 5_000_000_000,
) -> None:
    """Writes a checkpoint's tensors as transformers does, atomically.

    A checkpoint in the folder is replaced once all new files are flushed to disk. If
    the process is killed meanwhile, the folder has no checkpoint, never a mixture.

    Args:
      folder: created if it is missing; its other files are kept.
      tensors: by name, at least one, of `DTYPES`.
      max_shard_bytes: the most bytes of a file with more than one tensor; larger
        checkpoints are split into shards, with an index.

    Raises:
      UserError: the files cannot be written, or max_shard_bytes is below 1.
      ValueError: there are no tensors, or one is of another dtype.
    """
    if max_shard_bytes < 1:
        raise DataError(f"max_shard_bytes={max_shard_bytes}: must be at least 1")
    if not tensors:
        raise ValueError("no tensors to write")
    arrays = {name: _as_array(name, tensor) for name, tensor in tensors.items()}
    # Imported here, as reading needs no hub.
    from huggingface_hub import split_state_dict_into_shards_factory

    split = split_state_dict_into_shards_factory(
        arrays,
        get_storage_size=lambda array: array.nbytes,
        filename_pattern=f"{Path(MODEL).stem}{{suffix}}{Path(MODEL).suffix}",
        max_shard_size=max_shard_bytes,
    )
    shards = split.filename_to_tensors

    folder = Path(folder)
    partial = folder / _PARTIAL
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove(partial)
        partial.mkdir()
        for file, names in shards.items():
            _save(partial / file, {name: arrays[name] for name in names})
        if len(shards) > 1:
            counted = {"total_parameters": sum(a.size for a in arrays.values())}
            index = {
                "metadata": counted | split.metadata,
                "weight_map": split.tensor_to_filename,
            }
            replace(partial / INDEX, _to_json(index))
        flush(partial)
        _publish(partial, folder, list(shards))
    except (OSError, SafetensorError) as error:
        raise DataError(
            f"model folder {folder}: cannot be written: {_reason(error)}"
        ) from error
    finally:
        if partial.is_dir():
            remove(partial)


def read_json(folder: str | os.PathLike, name: str) -> dict[str, Any]:
    """The object in a JSON file of a folder."""
    path = Path(folder) / name
    try:
        return schema.parse(read(path), {str: object}, is_strict=True)
    except OSError as error:
        raise _fault(path, _reason(error)) from error
    except ValueError as error:
        raise _fault(path, str(error)) from error


def write_json(folder: str | os.PathLike, name: str, value: Mapping[str, Any]) -> None:
    """Writes an object into a JSON file of a folder, as transformers does.

    The file is replaced atomically; the folder is created if it is missing.
    """
    write_file(folder, name, _to_json(value))


def write_file(folder: str | os.PathLike, name: str, data: bytes) -> None:
    """Writes any other file of a folder, atomically."""
    path = Path(folder) / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, data)
    except OSError as error:
        raise _fault(path, f"cannot be written: {_reason(error)}") from error


def _fault(path: Path, problem: str) -> UserError:
    return DataError(f"model file {path}: {problem}")


def _reason(error: Exception) -> str:
    """The system's message for an error; safetensors gives only its number."""
    if match := _SYSTEM_ERROR.search(str(error)):
        return os.strerror(int(match[1]))
    return getattr(error, "strerror", None) or str(error)


def _explain_missing(folder: Path, names: list[str]) -> UserError:
    """The error for a folder without safetensors; names a file of another format."""
    for suffixes, problem in (
        (PICKLES, "a pickle, which can run code when it is loaded"),
        (_UNSUPPORTED_SUFFIXES, "a format that is not supported"),
    ):
        matches = [name for name in names if name.endswith(suffixes)]
        if matches:
            matches.sort(key=lambda name: not name.startswith("pytorch_model"))
            return _fault(
                folder / matches[0],
                f"is {problem}: convert it to {MODEL} first (save_pretrained of "
                "transformers writes that)",
            )
    several = ", ".join(name for name in names if name.endswith(".safetensors"))
    found = f"; it has {several}" if several else ""
    return DataError(f"model folder {folder}: must have {MODEL} or {INDEX}{found}")


def _open(path: Path) -> Any:
    """Opens a safetensors file and checks its header against its size.

    The file is read, not mapped: truncating a mapped file would kill the process.
    """
    try:
        with open_regular(path) as file:
            start = file.read(len(_LFS))
    except OSError as error:
        raise _fault(path, _reason(error)) from error
    if start == _LFS:
        raise _fault(path, "is a pointer of Git LFS: fetch the file with git lfs pull")
    try:
        return safe_open(path, framework="numpy", backend="pread")
    except (SafetensorError, OSError) as error:
        raise _fault(path, f"is truncated or not safetensors: {error}") from error


def _open_shards(folder: Path) -> dict[str, tuple[Path, Any, str]]:
    """Opens the shards of an index and checks that both name the same tensors."""
    index = folder / INDEX
    places = read_json(folder, INDEX).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise _fault(index, "must have weight_map, an object from tensors to files")
    for name, shard in places.items():
        _check_shard(folder, name, shard)
    files: dict[str, tuple[Path, Any, str]] = {}
    for shard in sorted(set(places.values())):
        path = folder / shard
        file = _open(path)
        for name in file.keys():
            if name in files:
                other = files[name][0].name
                raise _fault(index, f"tensor {name!r} is in {other} and in {shard}")
            if name not in places:
                raise _fault(path, f"has {name!r}, which {INDEX} does not list")
            files[name] = path, file, name
    for name, shard in places.items():
        if name not in files or files[name][0].name != shard:
            raise _fault(folder / shard, f"lacks {name!r}, which {INDEX} lists for it")
    return {name: files[name] for name in places}


def _check_shard(folder: Path, name: str, shard: Any) -> None:
    """Raises UserError unless a shard of an index is a file in the folder itself."""
    index = folder / INDEX
    # Windows' rules cover both slashes and drives, so the name is safe on any system.
    is_plain = isinstance(shard, str) and PureWindowsPath(shard).name == shard
    if not is_plain or not shard.endswith(".safetensors"):
        raise _fault(
            index,
            f"weight_map[{name!r}]={shard!r}: must be a file of the folder, "
            "*.safetensors",
        )
    path = folder / shard
    if not os.path.exists(path):  # Path.exists raises for names that no system allows
        raise _fault(path, f"is missing: {INDEX} lists {name!r} for it")
    target, homes = path.resolve(), [folder.resolve()]
    for place in (homes[0], homes[0].parent):  # a subfolder is ELECTRA's
        if place.parent.name == "snapshots":
            # huggingface_hub's cache: <model>/snapshots/<commit>/ links to its blobs.
            homes.append(place.parents[1] / "blobs")
    if not any(target.is_relative_to(home) for home in homes):
        raise _fault(path, f"is a link out of the folder, to {target}")


def _as_array(name: str, tensor: np.ndarray) -> np.ndarray:
    # In C order, as safetensors writes memory without regard to strides.
    array = np.asarray(tensor, order="C")
    if array.dtype not in DTYPES.values():
        known = ", ".join(map(str, DTYPES.values()))
        raise ValueError(f"tensor {name!r} is {array.dtype}: must be one of {known}")
    return array


def _save(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """Writes one safetensors file and flushes it."""
    # transformers refuses files whose metadata do not name the format.
    save_file(tensors, path, metadata={"format": "pt"})
    # The library writes files that only their owner can read; the mode of the new
    # folder has the umask.
    os.chmod(path, path.parent.stat().st_mode & 0o666)
    flush(path)


def _to_json(value: Mapping[str, Any]) -> bytes:
    text = json.dumps(value, indent=2, sort_keys=True, allow_nan=False)
    return (text + "\n").encode()


def _publish(partial: Path, folder: Path, files: list[str]) -> None:
    """Moves finished files to their final names, the index last."""
    if files == [MODEL]:
        (folder / INDEX).unlink(missing_ok=True)
    else:
        # Without these two the folder holds no checkpoint while its shards change.
        for name in (MODEL, INDEX):
            (folder / name).unlink(missing_ok=True)
    for name in [*files, INDEX] if len(files) > 1 else files:
        os.replace(partial / name, folder / name)
    for name in os.listdir(folder):
        if SHARD.fullmatch(name) and name not in files:
            (folder / name).unlink()
    flush(folder)
