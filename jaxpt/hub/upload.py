"""Uploads an export to a repository of the Hugging Face Hub, in one commit."""

from pathlib import Path, PurePosixPath
from typing import Any

from jaxpt.errors import ConfigError, DataError, argument
from jaxpt.hub.download import LOG_IN, explain, is_name
from jaxpt.hub.files import INDEX, MODEL, SHARD


def check_name(name: str) -> None:
    """Raises ConfigError unless a repository can have this name."""
    if not is_name(name) or "@" in name:
        raise ConfigError(
            f"{argument('push')}={name}: must be a repository of the Hugging Face Hub, "
            "ORG/NAME"
        )


def push_folder(folder: Path, name: str, is_private: bool) -> list[str]:
    """Uploads a folder; creates the repository if it is missing.

    Weights that an earlier upload left in the same folders are deleted by the same
    commit: shards next to one whole file would be two models.

    Args:
      name: ORG/NAME.
      is_private: whether the repository must be private.

    Returns:
      A line to print: the address and the commit.
    """
    from huggingface_hub import HfApi, get_token

    retry = f"; to upload {folder} again: hf upload {name} {folder}"
    api = HfApi()
    try:
        if get_token() is None:
            raise DataError(f"{argument('push')}={name}: no token: {LOG_IN}")
        with explain(f"{argument('push')}={name}"):
            address = api.create_repo(
                name, private=True if is_private else None, exist_ok=True
            )
            if is_private and not api.model_info(name).private:
                raise DataError(
                    f"{argument('push')}={name}: the repository exists and is public: "
                    f"make it private, or leave out {argument('private')}"
                )
            commit = _commit(api, folder, name)
    except DataError as error:
        raise DataError(f"{error}{retry}") from error
    return [f"{address}: uploaded {folder}, commit {commit}"]


def _commit(api: Any, folder: Path, name: str) -> str:
    """Commits the files of a folder; the commit's id."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    names = [path.relative_to(folder).as_posix() for path in paths]
    operations: list[Any] = [
        CommitOperationAdd(place, path)
        for place, path in zip(names, paths, strict=True)
    ]
    folders = {PurePosixPath(place).parent for place in names}
    for other in api.list_repo_files(name):
        place = PurePosixPath(other)
        is_weights = place.name in (MODEL, INDEX) or SHARD.fullmatch(place.name)
        if other not in names and is_weights and place.parent in folders:
            operations.append(CommitOperationDelete(other))
    info = api.create_commit(name, operations, commit_message="Export of jaxpt")
    return info.oid
