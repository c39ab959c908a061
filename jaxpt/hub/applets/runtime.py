"""onnxruntime's WebAssembly, which the page of `jaxpt applet` runs models with.

The package holds only its checksums (`static/runtime.json`, written by `make web`).
The file is downloaded once from an npm registry, in the archive of onnxruntime-web:

    $JAXPT_CACHE/applets/SHA256.wasm    the checked file; ~/.cache/jaxpt/applets

The registry is that of the variable NPM_CONFIG_REGISTRY, else of an installed npm, else
`REGISTRY`. The argument `runtime` reads the file, or the archive that contains it, from
a disk instead.
"""

import base64
import hashlib
import http.client
import io
import os
import shutil
import subprocess
import tarfile
import urllib.parse
import urllib.request
from pathlib import Path
from typing import NamedTuple

from jaxpt.errors import ConfigError, DataError, argument
from jaxpt.files import disk, schema
from jaxpt.files.remote import cache_root, fetch

REGISTRY = "https://registry.npmjs.org"
SECONDS = 60  # without an answer
MAX_BYTES = 64_000_000  # of the archive, which has 33 MB
GZIP = b"\x1f\x8b"


class Runtime(NamedTuple):
    """What the file must be.

    Attributes:
      package: its npm package, of this version.
      integrity: the checksum of the package's archive, as package-lock.json has it.
      member: the file's path in the archive.
      sha256: the file's checksum, in hex.
    """

    package: str
    version: str
    integrity: str
    member: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.package} {self.version}"


def read_runtime(path: Path) -> Runtime:
    """The `Runtime` that a page was built with."""
    return Runtime(**schema.parse(disk.read(path), dict.fromkeys(Runtime._fields, str)))


def load_runtime(runtime: Runtime, source: str = "") -> bytes:
    """The bytes of the WebAssembly file, from a file, the cache, or the registry.

    Args:
      source: the .wasm file or the package's .tgz; "" is the cache, or a download
        into it.
    """
    if source:
        return _read_file(runtime, source)
    path = cache_root() / "applets" / f"{runtime.sha256}.wasm"
    try:
        data = disk.read(path)
    except OSError:
        data = b""
    if _is_whole(runtime, data):
        return data
    data = _extract(runtime, _download(runtime))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        disk.replace(path, data)
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror}") from error
    return data


def find_url(runtime: Runtime) -> str:
    """The address of the package's archive."""
    registry = os.environ.get("NPM_CONFIG_REGISTRY") or _ask_npm() or REGISTRY
    if urllib.parse.urlsplit(registry).scheme not in ("http", "https"):
        raise ConfigError(
            f"NPM_CONFIG_REGISTRY={registry}: must begin with https:// or http://"
        )
    name = f"{runtime.package}-{runtime.version}.tgz"
    return f"{registry.rstrip('/')}/{runtime.package}/-/{name}"


def _ask_npm() -> str:
    """The registry of an installed npm; "" without one."""
    if not (npm := shutil.which("npm")):
        return ""
    command = [npm, "config", "get", "registry"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _read_file(runtime: Runtime, source: str) -> bytes:
    try:
        data = disk.read(fetch(source))
    except OSError as error:
        raise DataError(f"{argument('runtime')}={source}: {error.strerror}") from error
    if data.startswith(GZIP) and _is_archive(runtime, data):
        return _extract(runtime, data)
    if not _is_whole(runtime, data):
        raise DataError(
            f"{argument('runtime')}={source}: sha256 "
            f"{hashlib.sha256(data).hexdigest()}: must be {Path(runtime.member).name} "
            f"of {runtime} (sha256 {runtime.sha256}), or the package's .tgz (npm pack "
            f"{runtime.package}@{runtime.version})"
        )
    return data


def _download(runtime: Runtime) -> bytes:
    """The package's archive, checked."""
    url = find_url(runtime)
    hint = (
        f"without a network, pass {argument('runtime')}=FILE.tgz (npm pack "
        f"{runtime.package}@{runtime.version} writes it)"
    )
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            data = answer.read(MAX_BYTES)
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = str(error).removeprefix("<urlopen error ").removesuffix(">")
        raise DataError(f"{url}: cannot be downloaded: {reason}; {hint}") from error
    if not _is_archive(runtime, data):
        raise DataError(
            f"{url}: is not {runtime}: {len(data):,} bytes whose checksum differs from "
            f"{runtime.integrity}; {hint}"
        )
    return data


def _is_archive(runtime: Runtime, data: bytes) -> bool:
    digest = base64.b64encode(hashlib.sha512(data).digest()).decode()
    return runtime.integrity == f"sha512-{digest}"


def _is_whole(runtime: Runtime, data: bytes) -> bool:
    return hashlib.sha256(data).hexdigest() == runtime.sha256


def _extract(runtime: Runtime, archive: bytes) -> bytes:
    """The file in a checked archive."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as members:
        file = members.extractfile(runtime.member)
        data = file.read() if file else b""
    if not _is_whole(runtime, data):
        raise DataError(f"{runtime}: {runtime.member} is not the file of runtime.json")
    return data
