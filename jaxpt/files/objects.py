"""Object stores (gs://, s3:// and the other `SCHEMES`): list, read, write.

A URL may be in a stored file, and fsspec also opens web servers, archives, shells and
chains of them, some of which run code. So only `SCHEMES` are opened, and of these only
places that the user has named (`jaxpt.trust`).

Names are relative to a URL. Drivers retry failed requests (s3fs 5 times, gcsfs 6
times, with growing pauses); an error that remains is a `CheckpointError` of one line.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from jaxpt import trust
from jaxpt.errors import CheckpointError, ConfigError, UserError
from jaxpt.files.copies import PASSWORD, with_urls
from jaxpt.files.loggers import silenced

# Google Cloud Storage, S3, Azure.
SCHEMES = ("gs", "gcs", "s3", "s3a", "az", "abfs", "abfss")
# What says that an object has changed, in order of preference: GCS, S3, others.
_STAMPS = ("generation", "ETag", "etag", "md5Hash", "mtime", "LastModified", "created")
_DENIED = re.compile(
    "[Dd]enied|[Cc]redential|Forbidden|Anonymous caller|InvalidToken|provided token|"
    "InvalidAccessKey|SignatureDoesNotMatch"
)
# Loggers of drivers, which log each request that fails. That is also the error.
LOUD = ("s3fs", "gcsfs", "aiobotocore", "botocore", "fsspec")
INSTALL = "pip install 'jaxpt[cloud]' installs those of gs:// and s3://"
LOG_IN = (
    "check the permissions, and log in: gcloud auth application-default login for "
    "gs://, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or aws configure for s3://"
)


class StoredObject(NamedTuple):
    """An object: its size in bytes, and a text that changes with its content."""

    size: int
    stamp: str


def check_url(url: str) -> None:
    """Refuses a URL that is not of `SCHEMES`, or that the user has not named."""
    scheme = url.partition(":")[0]
    if scheme not in SCHEMES or "::" in url:
        *first, last = (f"{each}://" for each in SCHEMES)
        shown = ascii(with_urls(url))[1:-1]
        raise ConfigError(
            f"{shown}: must be a local path, or a URL that begins with "
            f"{', '.join(first)} or {last} and has no '::'; download others first"
        )
    if PASSWORD.match(url):
        raise ConfigError(
            f"{with_urls(url)}: must be without a user and a password, which would be "
            f"stored with the run; {LOG_IN}"
        )
    trust.check_place(url)


class ObjectStore:
    """The objects below a URL."""

    def __init__(self, url: str):
        check_url(url)
        self.url = url
        with self._explain():
            from fsspec.core import url_to_fs

            self._fs, path = url_to_fs(
                url, use_listings_cache=False, skip_instance_cache=True
            )
        self._path = path.rstrip("/")
        if not self._path.strip("/"):
            raise CheckpointError(f"{url}: must name a bucket")

    def list(self, prefix: str = "") -> dict[str, StoredObject]:
        """All objects whose name begins with a prefix, "" or one that ends in "/".

        If the URL itself is an object, its name is "".
        """
        root = self._join(prefix).rstrip("/")
        with self._explain():
            self._fs.invalidate_cache()
            try:
                found: dict[str, Any] = self._fs.find(root, detail=True)
            except FileNotFoundError:
                self._fs.ls(self._path.split("/", 1)[0])  # the bucket; raises, too
                return {}
        entries = {}
        for path, info in found.items():
            if info.get("type") == "directory" or path.endswith("/"):
                continue
            name, entry = self._describe_object(info)
            if name and not is_plain(name):
                raise CheckpointError(f"{self.url}: {name!r} is not a file's name")
            entries[name] = entry
        return entries

    def list_leases(self, folder: str, prefix: str) -> dict[str, StoredObject]:
        """The objects directly in a folder whose last part begins with a prefix."""
        with self._explain():
            self._fs.invalidate_cache()
            try:
                infos = self._fs.ls(self._join(folder).rstrip("/"), detail=True)
            except FileNotFoundError:
                return {}
        return {
            name: entry
            for info in infos
            for name, entry in [self._describe_object(info)]
            if name.rpartition("/")[2].startswith(prefix)
        }

    def _describe_object(self, info: dict[str, Any]) -> tuple[str, StoredObject]:
        name = info["name"][len(self._path) :].lstrip("/")
        stamp = next((str(info[key]) for key in _STAMPS if info.get(key)), "")
        return name, StoredObject(int(info.get("size") or 0), stamp)

    def read(self, name: str) -> bytes | None:
        """The content of an object; None if there is none."""
        with self._explain():
            try:
                return self._fs.cat_file(self._join(name))
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes) -> None:
        """Writes an object; readers see the whole or the previous one."""
        with self._explain():
            self._fs.pipe_file(self._join(name), data)

    def download(self, files: Mapping[str, Path]) -> None:
        """Copies objects, by name, to files; some may be missing if one was removed."""
        names = [self._join(name) for name in files]
        with self._explain(), contextlib.suppress(FileNotFoundError):
            self._fs.get(names, list(map(str, files.values())))

    def upload(self, files: Mapping[str, Path]) -> None:
        """Copies files to objects, by name."""
        names = [self._join(name) for name in files]
        with self._explain():
            if files:
                self._fs.put(list(map(str, files.values())), names)

    def remove(self, names: Iterable[str]) -> None:
        """Removes objects; those that are gone already are ignored."""
        for name in names:
            with self._explain(), contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(self._join(name))

    def _join(self, name: str) -> str:
        return f"{self._path}/{name}" if name else self._path

    @contextlib.contextmanager
    def _explain(self) -> Iterator[None]:
        try:
            with silenced(*LOUD):
                yield
        except UserError:
            raise
        except Exception as error:  # each driver has its own classes
            raise CheckpointError(f"{self.url}: {_describe(error)}") from error


def is_plain(name: str) -> bool:
    """Whether a name stays below the folder that it is joined to."""
    is_same = PurePosixPath(name).as_posix() == name and "\0" not in name
    return is_same and not {"..", "/"} & set(PurePosixPath(name).parts)


def _describe(error: Exception) -> str:
    """What an error of a driver means, and what to do."""
    kind = type(error).__name__
    text = " ".join(str(error).split())[:200]
    if isinstance(error, ImportError):
        return f"needs the Python package of its storage ({text}); {INSTALL}"
    if isinstance(error, FileNotFoundError):
        return f"does not exist ({text}); create the bucket, or check its name"
    if isinstance(error, PermissionError) or _DENIED.search(f"{kind} {text}"):
        return f"access is denied ({text}); {LOG_IN}"
    is_offline = "Connect" in kind or "Timeout" in kind or "ConnectionError" in kind
    if is_offline or isinstance(error, ConnectionError | TimeoutError):
        return f"cannot be reached ({text}); check the network and repeat the command"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or ''}: {error.strerror}".removeprefix(": ")
    return f"{kind}: {text}"
