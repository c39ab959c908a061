"""No remote place is read that only a stored file names, and no foreign scheme."""

import json
import shutil
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import fsspec
import pytest
from stores import new_url
from tiny import make_config, write_config

import jaxpt
from jaxpt import trust
from jaxpt.cli.main import main
from jaxpt.errors import UserError
from jaxpt.files import folder, objects, remote

HERE = "127.0.0.1:9"  # the port "discard", where nothing listens
NAMED = ["gs://other/a", "s3://other/a", "tfds:other", "hf:other/set"]
FOREIGN = [
    f"http://{HERE}/a.txt",
    f"https://{HERE}/a.txt",
    f"http:/{HERE}/a.txt",
    f"ftp://{HERE}/a.txt",
    "reference://x::local://run/refs.json",
    f"reference://x::http://{HERE}/refs.json",
    f"zip://a.txt::http://{HERE}/a.zip",
    f"gs://other/a::http://{HERE}/a",
    "local://run/a.txt",
    "file:///etc/hostname",
    "github://a:b@main/c.txt",
    "GS://other/a",
]
SCHEMES = ("http", "https", "ftp", "reference", "zip", "local", "file", "github")


@pytest.fixture(scope="module")
def trained(speech, tmp_path_factory):
    """A finished masked run."""
    place = tmp_path_factory.mktemp("places") / "run"
    jaxpt.train(make_config(speech, "mlm", train__steps=2), place, quiet=True)
    return place


@pytest.fixture
def reached(monkeypatch):
    """What was opened: file systems, data sets, addresses."""
    reached = []

    def reach(*args, **kwargs):
        reached.append(args)
        raise OSError("reached")

    for scheme in (*SCHEMES, "gs", "s3"):
        kind = type(scheme, (fsspec.AbstractFileSystem,), {"__init__": reach})
        registry = sys.modules["fsspec.registry"]._registry
        monkeypatch.setitem(registry, scheme, kind)
    import tensorflow_datasets

    monkeypatch.setattr(tensorflow_datasets, "data_source", reach)
    library = SimpleNamespace(load_dataset_builder=reach)
    monkeypatch.setitem(sys.modules, "datasets", library)
    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, reach)
    return reached


@pytest.fixture
def place(trained, speech, tmp_path, monkeypatch):
    """The current folder, with a run, a comparison that was planned, and a config."""
    shutil.copytree(trained, tmp_path / "run")
    write_config(tmp_path / "mine.py", speech, train__steps=2)
    (tmp_path / "reviews.tsv").write_text("sentence\tlabel\n" + "good\t1\nbad\t0\n" * 8)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plant(path, **changes):
    """Changes settings, as section__field, of a stored config with its checksum."""
    stored = json.loads(path.read_text())
    stored.pop("version")
    for name, value in changes.items():
        section, _, field = name.partition("__")
        if field:
            stored.setdefault(section, {})[field] = value
        else:
            stored[section] = value
    folder.write_config(path, stored)


# By setting, what is planted for a place.
SETTINGS = {
    "path": lambda place: {"data__path": place},
    "valid_path": lambda place: {"data__valid_path": place},
    "mixture": lambda place: {"data__path": "", "data__mixture": [f"{place}=1.5"]},
    "data_dir": lambda place: {
        "data__path": "tfds:mine",
        "data__tfds_data_dir": place,
    },
    "cache_dir": lambda place: {"data__cache_dir": place},
    "tokenizer": lambda place: {"tokenizer__kind": "file", "tokenizer__path": place},
    "init_from": lambda place: {"train__init_from": place},
    "teacher": lambda place: {
        "objective": "distillation",
        "distillation__teacher": place,
    },
    "tasks": lambda place: {"compare__tasks": [f"pairs:{place}"]},
    "finetune": lambda place: {"compare__tasks": [f"finetune:tasks/sst2:{place}"]},
}
STORED = "--config=run/config.json"
COMMANDS = [
    ["evaluate", "--workdir=run"],
    ["fill", "--workdir=run", "--text=the [MASK]en"],
    ["neighbours", "--workdir=run", "--word=the"],
    ["train", "--workdir=run"],
    ["train", STORED, "--workdir=new"],
    ["train", STORED, "--dry_run"],
    ["fit", STORED, "--target=cpu"],
    ["train", "--config=mine.py", "--config.train.init_from=run", "--workdir=new"],
    ["report", "--runs", "run", "--workdir=out"],
    ["analyse", "--runs", "run", "--to=out"],
    ["fit-scaling", "--runs", "run"],
    ["export", "--workdir=run", "--to=out"],
    ["applet", "--workdir", "run", "--to=out"],
    ["inspect", STORED],
    ["inspect", STORED, "--to=out", "--objectives=clm"],
    ["tokenizer", "train", STORED, "--to=out.json"],
    ["prepare", STORED, "--to=out"],
    ["compare", STORED, "--workdir=new", "--config.compare.objectives=('mlm',)"],
    ["finetune", "--config=tasks/sst2:data", "--from=run", "--to=out"],
    ["doctor", "run"],
]


@pytest.mark.slow_except("evaluate*", "inspect*--config=run/config.json")
@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
def test_no_command_reads_what_a_stored_file_names(argv, place, reached, capsys):
    before = (place / "run" / "config.json").read_bytes()
    sums = (place / "run" / "checksums.json").read_bytes()
    for number, (setting, change) in enumerate(SETTINGS.items()):
        for name in (NAMED[number % len(NAMED)], FOREIGN[number % len(FOREIGN)]):
            (place / "run" / "config.json").write_bytes(before)
            (place / "run" / "checksums.json").write_bytes(sums)
            plant(place / "run" / "config.json", **change(name))
            more = ["--config.compare.budget=steps"] * (argv[0] == "compare")
            code = main([*argv, *more])
            lines = capsys.readouterr().err.splitlines()
            assert code in (0, 2), (setting, name)
            assert not code or len(lines) < 4, (setting, name, lines)
            assert not reached, (setting, name)
            for made in ("out", "new"):
                shutil.rmtree(place / made, ignore_errors=True)
            assert not list(place.glob("*:*"))  # a folder named as the URL


@pytest.mark.parametrize("name", [*NAMED, *FOREIGN])
def test_evaluate_reads_no_place(name, place, reached, capsys):
    plant(place / "run" / "config.json", data__path=name)
    assert main(["evaluate", "--workdir=run"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    if name in NAMED:
        assert f"{name}: only a stored file names this place" in line
        assert f"add --trust={name} " in line
    else:
        assert "must be a local path, or a URL that begins with gs://" in line
    assert not reached
    assert main(["evaluate", "--workdir=run", f"--trust={name}"]) == 2
    assert bool(reached) == (name in NAMED)


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize(
    "argv",
    [
        ["train", "--config=mine.py", "--workdir=new", "--data"],
        ["train", "--config=mine.py", "--workdir"],
        ["evaluate", "--workdir"],
        ["evaluate", "--workdir=run", "--trust=x", "--tasks"],
        ["prepare", "--config=mine.py", "--to"],
        ["tokenizer", "train", "--config=mine.py", "--to"],
        ["import", "--workdir=new", "--from"],
        ["report", "--workdir=new", "--runs"],
    ],
    ids=" ".join,
)
def test_a_foreign_scheme_is_refused_by_name(argv, name, place, reached, capsys):
    value = f"pairs:{name}" if argv[-1] == "--tasks" else name
    assert main([*argv, value]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "must be a local path, or a URL that begins with gs://" in line
    assert not reached


def test_a_server_has_no_request(place, speech, capsys):
    """Of report, which leaves out what needs the text, and says so."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/a.txt"
        plant(place / "run" / "config.json", data__path=url)
        assert main(["report", "--runs", "run", "--workdir=out"]) == 0
        report = json.loads((place / "out" / "report.json").read_text())
        (line,) = [line for line in report["left_out"] if url in line]
        assert "left out: references and pictures" in line and "cannot be read" in line
        assert main(["evaluate", "--workdir=run"]) == 2
    finally:
        server.shutdown()
        server.server_close()
    assert not requests


@pytest.fixture
def text_url(speech):
    """A text in a store that no call has named."""
    url = new_url("text.txt")
    objects.ObjectStore(url).upload({"": speech})
    trust._trusted.clear()
    return url


def test_what_the_user_names_is_read(place, text_url, capsys):
    plant(place / "run" / "config.json", data__path=text_url)
    evaluate = ["evaluate", "--workdir=run"]
    assert main(evaluate) == 2
    assert main([*evaluate, f"--trust={text_url}"]) == 0
    trust._trusted.clear()
    assert main([*evaluate, "--trust", text_url.rpartition("/")[0]]) == 0
    trust._trusted.clear()
    repeated = [f"--data={text_url}", "--workdir=new", "--steps=2"]
    assert main(["train", "--config=mine.py", *repeated]) == 0
    trust._trusted.clear()
    assert main(["train", "--workdir=new"]) == 2  # names no text
    assert main(["train", "--workdir=new", f"--trust={text_url}"]) == 0
    trust._trusted.clear()
    assert main(["train", "--config=mine.py", *repeated]) == 0


def test_python_arguments_name_places(place, text_url, refuses, speech):
    plant(place / "run" / "config.json", data__path=text_url)
    with refuses(f"{text_url}: only a stored", f"add trust={text_url!r}"):
        jaxpt.evaluate("run")
    with refuses(text_url):
        jaxpt.load("run").evaluate()
    assert jaxpt.load("run", trust=text_url).evaluate()
    trust._trusted.clear()
    stored = json.loads((place / "run" / "config.json").read_text())
    with refuses(text_url):
        jaxpt.prepare(_sections(stored))
    with refuses(text_url):
        jaxpt.prepare("run/config.json")
    with refuses(text_url):
        jaxpt.prepare(jaxpt.read_config("run/config.json"))
    assert jaxpt.prepare("run/config.json", {"data.path": text_url})
    trust._trusted.clear()
    assert jaxpt.prepare(make_config(text_url, "mlm"))  # made in Python
    trust._trusted.clear()
    assert jaxpt.prepare(_sections(stored), trust=[text_url])


def _sections(stored):
    return {name: part for name, part in stored.items() if name != "version"}


def test_a_config_file_names_places(place, text_url, capsys):
    write_config(place / "cloud.py", text_url, train__steps=2)
    assert main(["inspect", "--config=cloud.py"]) == 0
    trust._trusted.clear()
    assert jaxpt.prepare("cloud.py")


def test_a_stored_argument_of_a_shipped_task_is_not_named(place, reached, capsys):
    plant(place / "run" / "config.json", **SETTINGS["finetune"]("s3://other/a"))
    argv = ["compare", STORED, "--workdir=new", "--config.compare.budget=steps"]
    assert main([*argv, "--config.compare.objectives=('mlm',)"]) == 2
    assert "s3://other/a" in capsys.readouterr().err and not reached


@pytest.mark.parametrize(
    ("words", "place", "is_named"),
    [
        (["--tasks=blimp:s3://a/b,pairs:gs://c/d.tsv"], "gs://c/d.tsv", True),
        (["--config.data.mixture=('gs://a/b=2','tfds:c=1')"], "gs://a/b", True),
        (["--config.data.mixture=('gs://a/b=2','tfds:c=1')"], "tfds:c", True),
        (["--from=scratch:s3://a/run/"], "s3://a/run/config.json", True),
        (["--runs", "s3://a/runs/*"], "s3://a/runs", True),
        (["--data", "gs:/a/b"], "gs://a/b", True),
        (["--data=tfds:c4"], "tfds:c4:validation", True),
        (["--data=tfds:c4"], "tfds:c4x", False),
        (["--data=gs://a/b"], "gs://a/bc", False),
        (["--data=gs://a/b"], "gs://a", False),
        (["--data=gs://a/b"], "gs://a/b/../c", False),
        (["--data=gs://a/b"], "s3://a/b", False),
        (["gs"], "gs://a", False),
    ],
)
def test_the_places_in_what_a_user_writes(words, place, is_named, refuses):
    trust.trust_places(words)
    if is_named:
        trust.check_place(place)
    else:
        with refuses(f"trust={place!r}"):
            trust.check_place(place)


def test_a_run_on_a_store_reads_its_own_folder_only(place, text_url, capsys):
    """Whoever names a workdir has not named what its files name elsewhere."""
    url = new_url()
    trust._trusted.clear()
    argv = ["train", "--config=mine.py", "--steps=2", f"--workdir={url}"]
    assert main([*argv, f"--data={text_url}"]) == 0
    trust._trusted.clear()
    assert main(["fill", f"--workdir={url}", "--text=the s"]) == 2  # clm fills nothing
    assert "only a stored file" not in capsys.readouterr().err
    assert main(["evaluate", f"--workdir={url}"]) == 2
    assert f"--trust={text_url}" in capsys.readouterr().err
    assert main(["evaluate", f"--workdir={url}", f"--trust={text_url}"]) == 0


def test_a_chain_of_schemes_runs_no_code(tmp_path):
    """With fsspec below 2026.6, its files of references are templates of code."""
    mark = tmp_path / "was_here"
    code = f"cycler.__init__.__globals__.os.system('touch {mark}')"
    item = {"key": f"{{{{ {code} }}}}", "url": "x", "dimensions": {"i": {"stop": 1}}}
    refs = {"version": 1, "gen": [item], "refs": {}}
    (tmp_path / "refs.json").write_text(json.dumps(refs))
    url = f"reference://x::local://{tmp_path}/refs.json"
    trust.trust(url)
    for call in (remote.fetch, objects.ObjectStore):
        with pytest.raises(UserError, match="must be a local path"):
            call(url)
    assert not mark.exists()
