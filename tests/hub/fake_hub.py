"""A server on loopback that speaks the part of the Hub's API that jaxpt uses."""

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

WRITE, READ = "hf_write", "hf_read"  # the tokens that it knows
REPO = re.compile(
    r"/api/models/([^/]+/[^/]+)(?:/(revision|tree|preupload|commit)/(.+))?"
)
FILE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


@dataclass
class Repo:
    """A repository: revisions -> commits -> files."""

    refs: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: bool = False
    gated: bool = False

    def commit(self, files, ref="main"):
        """A new commit with these files alone; its id."""
        text = repr((len(self.commits), sorted(files)))
        commit = hashlib.sha1(text.encode()).hexdigest()
        self.commits[commit], self.refs[ref] = dict(files), commit
        return commit

    def find(self, revision):
        name = unquote(revision)
        return self.refs.get(name) or (name if name in self.commits else None)


class Hub(ThreadingHTTPServer):
    """Repositories by name, and the log of requests: (method, path, Range)."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos: dict[str, Repo] = {}
        self.log: list[tuple[str, str, str | None]] = []
        self.cuts: dict[str, int] = {}  # file -> bytes until its connection breaks
        self.never: set[str] = set()  # files that fail with 500
        self.address = f"http://127.0.0.1:{self.server_port}"

    def add(self, name, files, **about):
        self.repos[name] = repo = Repo(**about)
        return repo.commit(files)

    def list_fetched(self):
        """The files that were downloaded, in any order."""
        return sorted(FILE.fullmatch(p)[3] for m, p, _ in self.log if is_file(m, p))


def is_file(method, path):
    return method == "GET" and FILE.fullmatch(path)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", headers=None, code=None):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        headers = {"Content-Length": str(len(body))} | (headers or {})
        for name, value in (headers | ({"X-Error-Code": code} if code else {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def handle_request(self):
        path = urlsplit(self.path).path
        self.server.log.append((self.command, path, self.headers.get("Range")))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in ("", READ, WRITE):
            message = {"X-Error-Message": "Invalid credentials in Authorization header"}
            return self.reply(401, {"error": "Invalid credentials"}, message)
        if path == "/api/validate-yaml":
            return self.reply(200, {"errors": [], "warnings": []})
        if path == "/api/repos/create":
            return self.create(json.loads(body), token)
        match = REPO.fullmatch(path) or FILE.fullmatch(path)
        repo = self.server.repos.get(match[1]) if match else None
        if repo is None or (repo.private and not token):
            return self.reply(404 if token else 401, {}, code="RepoNotFound")
        if self.command == "POST":
            if token != WRITE:
                return self.reply(403, {"error": "You have no right to write"})
            return self.write(match[1], match[2], body)
        is_api = path.startswith("/api/")
        revision, name = (match[3] or "main", "") if is_api else (match[2], match[3])
        commit = repo.find(revision)
        if commit is None:
            return self.reply(404, {}, code="RevisionNotFound")
        if is_api:
            return self.describe(match[1], repo, commit, match[2])
        if repo.gated and not token:
            return self.reply(401, {}, code="GatedRepo")
        return self.send_file(unquote(name), repo.commits[commit], commit)

    do_GET = do_HEAD = do_POST = handle_request

    def describe(self, name, repo, commit, kind):
        files = repo.commits[commit]
        if kind == "tree":
            entries = [{"path": n, "size": len(d)} for n, d in files.items()]
            return self.reply(200, [e | {"type": "file", "oid": "0"} for e in entries])
        siblings = [{"rfilename": each} for each in files]
        about = {"id": name, "sha": commit, "siblings": siblings}
        return self.reply(200, about | {"private": repo.private, "gated": repo.gated})

    def send_file(self, name, files, commit):
        if name in self.server.never:
            return self.reply(500, {"error": "Out of order"})
        if name not in files:
            return self.reply(404, {}, code="EntryNotFound")
        data = files[name]
        headers = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"'}
        headers |= {"X-Repo-Commit": commit, "X-Linked-Size": str(len(data))}
        wanted = self.headers.get("Range")
        start = int(wanted.removeprefix("bytes=").partition("-")[0]) if wanted else 0
        cut = self.server.cuts.pop(name, None) if self.command == "GET" else None
        headers["Content-Length"] = str(len(data) - start)
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self.reply(206 if wanted else 200, data[start:][:cut], headers)
        self.close_connection = cut is not None

    def create(self, about, token):
        name = f"{about['organization']}/{about['name']}"
        if token != WRITE:
            return self.reply(403, {"error": "You have no right to create it"})
        status = 409 if name in self.server.repos else 200
        if status == 200:
            is_private = about.get("visibility") == "private"
            self.server.add(name, {".gitattributes": b""}, private=is_private)
        return self.reply(status, {"url": f"{self.server.address}/{name}"})

    def write(self, name, kind, body):
        repo = self.server.repos[name]
        if kind == "preupload":
            plain = {"uploadMode": "regular", "shouldIgnore": False, "oid": None}
            files = json.loads(body)["files"]
            return self.reply(
                200, {"files": [{"path": f["path"]} | plain for f in files]}
            )
        files = dict(repo.commits[repo.refs["main"]])
        for line in body.splitlines():
            key, value = (entry := json.loads(line))["key"], entry["value"]
            if key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "deletedFile":
                del files[value["path"]]
        commit = repo.commit(files)
        url = f"{self.server.address}/{name}/commit/{commit}"
        return self.reply(200, {"commitUrl": url, "commitOid": commit})


@contextmanager
def serve():
    with Hub() as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        yield hub
        hub.shutdown()
