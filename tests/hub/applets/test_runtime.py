"""onnxruntime's WebAssembly comes whole from a file, the cache or the registry."""

import base64
import hashlib
import http.server
import io
import json
import tarfile
import threading
from pathlib import Path

import pytest

from jaxpt.hub.applets import runtime
from jaxpt.hub.applets.runtime import load_runtime, read_runtime
from jaxpt.hub.applets.site import PAGE, RUNTIME, STATIC

WEB = Path(__file__).resolve().parents[3] / "web"
MEMBER = "package/dist/small.wasm"
WASM = b"\0asm" + bytes(range(200))


def pack(data=WASM, name=MEMBER):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


ARCHIVE = pack()
SMALL = runtime.Runtime(
    package="small-web",
    version="1.2.3",
    integrity="sha512-" + base64.b64encode(hashlib.sha512(ARCHIVE).digest()).decode(),
    member=MEMBER,
    sha256=hashlib.sha256(WASM).hexdigest(),
)


class Registry(http.server.BaseHTTPRequestHandler):
    """A registry with one package; `asked` has the paths of all requests."""

    data, asked = ARCHIVE, []

    def do_GET(self):
        self.asked.append(self.path)
        is_here = self.path == "/npm/small-web/-/small-web-1.2.3.tgz"
        self.send_response(200 if is_here else 404)
        self.end_headers()
        self.wfile.write(self.data if is_here else b"")

    def log_message(self, *args):
        pass


@pytest.fixture
def registry(monkeypatch, tmp_path):
    """The handler of a local registry, which the environment names."""
    monkeypatch.setattr(Registry, "data", ARCHIVE)
    monkeypatch.setattr(Registry, "asked", [])
    server = http.server.HTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/npm/"
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", address)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("JAXPT_CACHE", str(tmp_path / "cache"))
    yield Registry
    server.shutdown()
    server.server_close()


def test_it_is_downloaded_once(registry, tmp_path):
    assert load_runtime(SMALL) == load_runtime(SMALL) == WASM
    assert len(registry.asked) == 1
    (path,) = (tmp_path / "cache" / "applets").iterdir()
    path.write_bytes(WASM[:-1])  # damaged: fetched again
    assert load_runtime(SMALL) == WASM == path.read_bytes()
    assert len(registry.asked) == 2


@pytest.mark.parametrize("data", [b"", b"<html>", ARCHIVE[:-1], pack(WASM + b"x")])
def test_another_archive_is_refused(registry, data, refuses, tmp_path):
    registry.data = data
    with refuses("is not small-web 1.2.3", "runtime=FILE.tgz"):
        load_runtime(SMALL)
    assert not (tmp_path / "cache").exists()


def test_no_more_is_read_than_an_archive_has(registry, refuses, monkeypatch):
    monkeypatch.setattr(runtime, "MAX_BYTES", 100)
    with refuses("is not small-web 1.2.3: 100 bytes"):
        load_runtime(SMALL)


def test_without_the_package_or_a_server_a_file_is_advised(
    registry, monkeypatch, refuses
):
    advice = "runtime=FILE.tgz", "npm pack"
    with refuses("cannot be downloaded", "HTTP Error 404", *advice):
        load_runtime(SMALL._replace(package="none"))
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://127.0.0.1:1/")
    with refuses("cannot be downloaded", "Connection refused", *advice):
        load_runtime(SMALL)


@pytest.mark.parametrize(
    "registry_name", ["file:///etc", "registry.npmjs.org", "s3://a"]
)
def test_a_registry_is_a_web_address(registry_name, registry, monkeypatch, refuses):
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", registry_name)
    with refuses(f"NPM_CONFIG_REGISTRY={registry_name}", "must begin with https://"):
        load_runtime(SMALL)


def test_the_registry_is_the_variables_else_npms_else_the_public_one(monkeypatch):
    end = "/small-web/-/small-web-1.2.3.tgz"
    monkeypatch.delenv("NPM_CONFIG_REGISTRY", raising=False)
    monkeypatch.setattr(runtime, "_ask_npm", lambda: "")
    assert runtime.find_url(SMALL) == f"https://registry.npmjs.org{end}"
    monkeypatch.setattr(runtime, "_ask_npm", lambda: "https://npm.example")
    assert runtime.find_url(SMALL) == f"https://npm.example{end}"
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "https://own.example/npm/")
    assert runtime.find_url(SMALL) == f"https://own.example/npm{end}"


@pytest.mark.parametrize("data", [WASM, ARCHIVE], ids=["wasm", "tgz"])
def test_a_file_needs_no_network(data, registry, tmp_path):
    (tmp_path / "file").write_bytes(data)
    assert load_runtime(SMALL, str(tmp_path / "file")) == WASM
    assert not registry.asked and not (tmp_path / "cache").exists()


@pytest.mark.parametrize("data", [b"", WASM[:-1], pack(b"other"), pack(WASM, "a")])
def test_another_file_is_refused(data, tmp_path, refuses):
    (tmp_path / "file").write_bytes(data)
    with refuses(f"runtime={tmp_path / 'file'}", "small.wasm of small-web 1.2.3"):
        load_runtime(SMALL, str(tmp_path / "file"))
    with refuses(f"runtime={tmp_path / 'none'}: No such file"):
        load_runtime(SMALL, str(tmp_path / "none"))
    with refuses(f"runtime={tmp_path}: Is a directory"):
        load_runtime(SMALL, str(tmp_path))


def test_the_package_names_what_the_page_was_built_with():
    built = read_runtime(RUNTIME)
    lock = json.loads((WEB / "package-lock.json").read_text())
    entry = lock["packages"][f"node_modules/{built.package}"]
    assert (built.version, built.integrity) == (entry["version"], entry["integrity"])
    guide = (WEB.parent / "docs" / "applets.md").read_text()
    assert guide.count(f"{built.package}@{built.version}") == 1
    licenses = (STATIC / "LICENSES.txt").read_text()
    assert f"{built.package} {built.version}\n" in licenses
    shipped = {path.name for path in STATIC.iterdir()}
    assert shipped == {*PAGE, RUNTIME.name, "sources.json"}
