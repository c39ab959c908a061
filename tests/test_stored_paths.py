"""A path in any stored file is read only if it is local or the user names it.

Of a run, comparison, study, fine-tuning, prepared text and export, each stored path is
replaced by a hostile one, with right checksums, and every command that reads the file
is run. Sockets are closed, and no program can be started.
"""

import gzip
import hashlib
import itertools
import json
import os
import shutil
import socket
import subprocess
import tomllib
import urllib.request
from pathlib import Path

import fsspec
import pytest
from packaging.requirements import Requirement
from trials.forged import forge, make_folders, run_all

from jaxpt import trust
from jaxpt.cli.commands import COMMANDS
from jaxpt.cli.main import main
from jaxpt.files import disk

ROOT = Path(__file__).resolve().parents[1]

HERE = "127.0.0.1:9"  # the port "discard", where nothing listens
# No one may read these, whoever names them; the first two are chains of schemes.
FOREIGN = (
    "reference://x::local://run/refs.json",
    f"zip://a.txt::http://{HERE}/a.zip",
    f"http://{HERE}/a.txt",
    f"ftp://{HERE}/a.txt",
)
# These are read if the user names them.
URLS = ("gs://other/a", "s3://other/a", "az://other/a")
HOSTILE = (*FOREIGN, *URLS, "tfds:other", "hf:other/set")
REFUSED = {
    False: "must be a local path, or a URL that begins with gs://",
    True: "only a stored file names this place",
}

TUNE = ["--config=task.py", "--to=tuned", "--quiet"]
RUN = [
    ["train", "--workdir=run"],
    ["train", "--config=run/config.json", "--workdir=new"],
    ["fit", "--config=run/config.json", "--target=cpu"],
    ["evaluate", "--workdir=run"],
    ["prepare", "--config=run/config.json", "--to=new"],
    ["tokenizer", "train", "--config=run/config.json", "--to=new.json"],
    ["inspect", "--config=run/config.json"],
    ["compare", "--config=run/config.json", "--workdir=new"],
    ["import", "--config=run/config.json", "--from=export", "--workdir=new"],
    ["analyse", "--runs=run", "--to=new"],
    ["report", "--runs=run", "--workdir=new"],
    ["fit-scaling", "--runs=run"],
    ["generate", "--workdir=run", "--prompt=the", "--num_tokens=1"],
    ["fill", "--workdir=run", "--text=the"],
    ["neighbours", "--workdir=run", "--word=t"],
    ["export", "--workdir=run", "--to=new"],
    ["applet", "--workdir=run", "--to=new"],
    ["babylm", "--workdir=run", "--data=zero_shot"],
    ["judge-text", "--judge=run", "--samples=text.txt", "--reference=text.txt"],
    ["finetune", "--from=run", *TUNE],
    ["doctor", "run"],
]
COMPARED = [
    ["compare", "--workdir=both", "--part=list"],
    ["compare", "--workdir=both", "--part=prepare", "--config=both/compare.json"],
    ["compare", "--workdir=both", "--part=runs"],
    ["compare", "--workdir=both", "--part=report"],
    ["compare", "--config=both/compare.json", "--workdir=new"],
    ["archive", "--workdir=both", "--to=new", "--title=A", "--question=B"],
    ["export", "--workdir=both", "--to=new"],
    ["report", "--runs=both/runs/*", "--workdir=new"],
    ["doctor", "both"],
]
# By folder, the commands that read it.
READERS = {
    "run": RUN,
    "both": COMPARED,
    "study": [
        ["reproduce", "study", "--workdir=new"],
        ["report", "--study=study", "--workdir=new"],
        ["report", "--runs=study", "--workdir=new"],
        ["fit-scaling", "--runs=study"],
        ["doctor", "study"],
    ],
    "tuned": [
        ["finetune", "--from=run", *TUNE],
        ["export", "--workdir=tuned", "--to=new"],
        ["train", "--workdir=tuned/model"],
        ["doctor", "tuned"],
    ],
    "store": [
        ["inspect", "--config=config.py", "--data=store"],
        ["train", "--config=config.py", "--data=store", "--workdir=new"],
        ["doctor", "store"],
    ],
    "export": [
        ["import", "--from=export", "--workdir=new"],
        ["finetune", "--from=export", "--config=task.py", "--to=new"],
        ["doctor", "export"],
    ],
}
# These read no stored file, or tables and samples of other programs alone.
OTHERS = {"settings", "list", "completion", "verdict"}
# What a folder of transformers may have, and in which it executes code or downloads.
FOREIGN_KEYS = {
    "export/config.json": ("_name_or_path", "auto_map", "custom_pipelines"),
    "export/tokenizer_config.json": ("name_or_path", "auto_map", "tokenizer_file"),
    "export/jaxpt/run.json": ("path", "repository"),
}


@pytest.fixture(scope="session")
def made(made_once):
    """A run, its export, a fine-tuning, a store, a comparison and its study."""

    def make(root):
        make_folders(root)
        archive = "archive --workdir=both --to=study --title=A --question=B"
        run_all(root, archive.split())

    return made_once("stored", make)


def load(path):
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


def list_texts(value, keys=()):
    """The texts in a JSON value, with their keys."""
    if isinstance(value, str):
        yield keys, value
    elif isinstance(value, dict | list):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in parts:
            yield from list_texts(part, (*keys, key))


def list_cases(root):
    """The files and keys of all texts that name a file or a folder of theirs."""
    cases, places = [], (root, root / "both")
    for path in sorted([*root.rglob("*.json"), *root.rglob("*.json.gz")]):
        if path.name == "tokenizer.json":
            continue  # its texts are tokens
        name = path.relative_to(root).as_posix()
        for keys, text in list_texts(load(path)):
            is_drawn = keys[0] == "figures"  # named by jaxpt
            if text and not is_drawn and any(os.path.exists(p / text) for p in places):
                cases.append((name, ".".join(map(str, keys))))
        cases += [(name, key) for key in FOREIGN_KEYS.get(name, ())]
    return cases


def plant(root, name, keys, place):
    """Replaces a path in a stored file, with checksums as if it were written so."""
    path = root / name
    value = part = load(path)
    *above, last = (int(k) if k.isdecimal() else k for k in keys.split("."))
    for key in above:
        part = part[key]
    part[last] = place
    data = json.dumps(value).encode()
    if path.suffix != ".gz":
        forge(path, data)
        return
    path.write_bytes(gzip.compress(data))
    facts = load(path.parent / "study.json")
    facts["files"][path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    facts.pop("sha256")
    text = json.dumps(facts, sort_keys=True).encode()
    facts["sha256"] = hashlib.sha256(text).hexdigest()
    (path.parent / "study.json").write_text(json.dumps(facts))


@pytest.fixture
def reached(monkeypatch):
    """What was tried of: sockets, names of hosts, file systems, programs."""
    reached = []

    def refuse(name):
        def reach(*args, **kwargs):
            reached.append((name, args))
            raise OSError(f"{name} is closed")

        return reach

    class Closed(socket.socket):
        """Has only pairs within this process, which an event loop has."""

        def __init__(self, family=-1, *args, **kwargs):
            if family != socket.AF_UNIX:
                refuse("socket")(family)
            super().__init__(family, *args, **kwargs)

    monkeypatch.setattr(socket, "socket", Closed)
    for module, names in (
        (socket, ("getaddrinfo", "gethostbyname", "create_connection")),
        (fsspec.core, ("url_to_fs", "get_fs_token_paths")),
        (fsspec, ("filesystem", "open")),
        (os, ("system", "popen", "posix_spawn", "execv", "execve")),
        (subprocess, ("Popen",)),
    ):
        for name in names:
            monkeypatch.setattr(module, name, refuse(name))
    return reached


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    """A copy of all folders, in which every command is run."""
    shutil.copytree(made, tmp_path / "all", symlinks=True)
    (tmp_path / "all" / "zero_shot").mkdir()
    monkeypatch.chdir(tmp_path / "all")
    return tmp_path / "all"


def call(argv, capsys):
    """The exit code and what was printed as an error, by a call that names no place."""
    trust._trusted.clear()
    capsys.readouterr()
    return main(argv), capsys.readouterr().err


def test_every_command_has_its_readers():
    called = {argv[0] for commands in READERS.values() for argv in commands}
    assert called == COMMANDS.keys() - OTHERS


# The stored paths that commands read; all others they only repeat.
READ = {
    ("run/config.json", "data.path"),
    ("both/compare.json", "data.path"),
    ("both/plans.json", "plans.clm.config.data.path"),
    ("study/runs.json.gz", "plans.plans.clm.config.data.path"),
    ("tuned/identity.json", "source"),
}


@pytest.mark.slow_except("study", "tuned")
@pytest.mark.parametrize("folder", READERS)
def test_no_stored_path_is_read_that_no_one_named(folder, made, place, reached, capsys):
    refused = []
    for number, (name, path) in enumerate(list_cases(made)):
        if name.partition("/")[0] != folder:
            continue
        # What is only repeated is replaced by one of them, in turn.
        places = [HOSTILE[number % len(HOSTILE)]]
        if (name, path) in READ:
            places = [FOREIGN[number % len(FOREIGN)], URLS[number % len(URLS)]]
        for hostile, argv in itertools.product(places, READERS[folder]):
            plant(place, name, path, hostile)
            code, text = call(argv, capsys)
            case = name, path, hostile, argv, text
            assert not reached, case
            assert code in (0, 2) and len(text.splitlines()) < 4, case
            assert not list(place.glob("*:*")), case  # a folder named as the URL
            if f"{hostile}: {REFUSED[hostile in URLS]}" in text:
                assert code == 2, case
                refused.append((name, path, hostile in URLS))
            for written in place.glob("new*"):
                disk.remove(written)
            shutil.rmtree(folder)
            shutil.copytree(made / folder, place / folder, symlinks=True)
    read = [each for each in READ if each[0].startswith(f"{folder}/")]
    assert {*refused} == {(*each, kind) for each in read for kind in (False, True)}


def test_a_socket_or_a_program_would_be_seen(reached):
    """The guard of the other tests guards."""
    for use in (
        lambda: socket.create_connection(("127.0.0.1", 9)),
        lambda: socket.socket(socket.AF_INET),
        lambda: socket.getaddrinfo("localhost", 9),
        lambda: urllib.request.urlopen(f"http://{HERE}/"),
        lambda: fsspec.filesystem("memory"),
        lambda: subprocess.run(["true"]),
        lambda: os.system("true"),
    ):
        reached.clear()
        with pytest.raises(OSError, match="is closed"):
            use()
        assert reached
    socket.socketpair()[0].close()


def test_the_fsspec_that_is_installed_executes_no_file():
    """Before 2026.6, a file of references was a template of code."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"].values()
    listed = [*project["project"]["dependencies"], *itertools.chain(*extras)]
    needs = [need for need in map(Requirement, listed) if need.name == "fsspec"]
    assert len(needs) > 2
    for need in needs:
        assert not need.specifier.contains("2026.5") and "2026.6" in need.specifier
