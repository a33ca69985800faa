"""The Hugging Face Hub's HTTP interface on loopback, as `huggingface_hub` speaks it with LFS.

Repositories, their files and their history are kept in memory. Written from
https://huggingface.co/docs/hub/api and https://github.com/git-lfs/git-lfs/blob/main/docs/api.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "hf_of_a_test"  # noqa: S105 - of a server that lives for one test
_REGULAR = (".json", ".md", ".txt", ".metal")  # the rest goes by LFS, whatever its size
_LICENCES = ["apache-2.0", "bsd-3-clause", "cc-by-4.0", "gpl-3.0", "mit"]
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


@dataclass
class Repository:
    """Files by path at each commit, the newest last."""

    private: bool = False
    commits: list[dict[str, bytes]] = field(default_factory=lambda: [{}])

    def name(self, number: int = -1) -> str:
        """A commit's."""
        place = range(len(self.commits))[number]
        return hashlib.sha1(str(place).encode(), usedforsecurity=False).hexdigest()

    def at(self, revision: str) -> dict[str, bytes] | None:
        """The files of `main` or of a commit."""
        if revision == "main":
            return self.commits[-1]
        names = {self.name(number): each for number, each in enumerate(self.commits)}
        return names.get(revision)


def _entry(path: str, content: bytes) -> dict[str, Any]:
    """A file of a tree, as git and LFS name it."""
    size = len(content)
    blob = hashlib.sha1(b"blob %d\0" % size + content, usedforsecurity=False).hexdigest()
    lfs = {"oid": hashlib.sha256(content).hexdigest(), "size": size, "pointerSize": 130}
    regular = path.endswith(_REGULAR)
    return {"type": "file", "path": path, "size": size, "oid": blob} | (
        {} if regular else {"lfs": lfs}
    )


class HubServer(ThreadingHTTPServer):
    """`repositories` by `ORG/NAME`; `blobs` by sha256; `uploaded`: which of them came, in order.

    `full`: whether it takes no more of them.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Repository] = {}
        self.blobs: dict[str, bytes] = {}
        self.uploaded: list[str] = []
        self.full = False

    @property
    def address(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: HubServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = unquote(urlsplit(self.path).path)
        if path == "/api/validate-yaml":
            self._check(json.loads(body)["content"])
        elif not self._known():
            self._refuse(401, "Invalid username or password.")
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif found := re.fullmatch(r"/api/models/(.+?/[^/]+)/preupload/(.+)", path):
            modes = [
                {
                    "path": each["path"],
                    "uploadMode": "regular" if each["path"].endswith(_REGULAR) else "lfs",
                    "shouldIgnore": False,
                }
                for each in json.loads(body)["files"]
            ]
            self._json({"files": modes})
        elif found := re.fullmatch(r"/(.+?/[^/]+)\.git/info/lfs/objects/batch", path):
            self._json({"objects": [self._offer(each) for each in json.loads(body)["objects"]]})
        elif found := re.fullmatch(r"/api/models/(.+?/[^/]+)/commit/main", path):
            self._commit(found[1], [json.loads(line) for line in body.splitlines()])
        else:
            self._refuse(404, "no such address")

    def do_DELETE(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/api/repos/delete" or not self._known():
            self._refuse(401, "Invalid username or password.")
            return
        del self.server.repositories[f"{asked['organization']}/{asked['name']}"]
        self._json({})

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        digest = self.path.rpartition("/")[2]
        if self.server.full or hashlib.sha256(content).hexdigest() != digest:
            self._refuse(400, "no space, or other bytes than were announced")
            return
        self.server.blobs[digest] = content
        self.server.uploaded.append(digest)
        self._json({})

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if path.startswith("/lfs/"):
            self._file(self.server.blobs[path.rpartition("/")[2]])
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/(.+))?", path):
            self._describe(found[1], found[3] or "main", tree=found[2] == "tree")
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve(found[1], found[2], found[3])
        else:
            self._refuse(404, "no such address")

    do_HEAD = do_GET  # noqa: N815 - as the base has it

    def log_message(self, *_: object) -> None:
        pass

    def _known(self) -> bool:
        return bool(self.headers.get("Authorization") == f"Bearer {TOKEN}")

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization']}/{asked['name']}"
        there = name in self.server.repositories
        private = bool(asked.get("private")) or asked.get("visibility") == "private"
        self.server.repositories.setdefault(name, Repository(private=private))
        address = f"{self.server.address}/{name}"
        self._json({"url": address, "name": name, "id": name}, 409 if there else 200)

    def _offer(self, wanted: dict[str, Any]) -> dict[str, Any]:
        answer = {"oid": wanted["oid"], "size": wanted["size"]}
        if wanted["oid"] not in self.server.blobs:
            place = f"{self.server.address}/lfs/{wanted['oid']}"
            answer["actions"] = {"upload": {"href": place, "header": {}}}
        return answer

    def _commit(self, name: str, lines: list[dict[str, Any]]) -> None:
        repository = self.server.repositories[name]
        files = dict(repository.commits[-1])
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                assert value["encoding"] == "base64"
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.blobs[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        repository.commits.append(files)
        commit = repository.name()
        address = f"{self.server.address}/{name}/commit/{commit}"
        self._json({"success": True, "commitOid": commit, "commitUrl": address})

    def _describe(self, name: str, revision: str, *, tree: bool) -> None:
        repository = self._shown(name)
        files = None if repository is None else repository.at(revision)
        if repository is None or files is None:
            self._refuse(404, "Repository not found", "RepoNotFound")
            return
        if tree:
            self._json([_entry(path, content) for path, content in sorted(files.items())])
            return
        siblings = [{"rfilename": path} for path in sorted(files)]
        facts = {"id": name, "sha": repository.name(), "private": repository.private}
        self._json({**facts, "siblings": siblings})

    def _shown(self, name: str) -> Repository | None:
        found = self.server.repositories.get(name)
        return None if found is None or (found.private and not self._known()) else found

    def _resolve(self, name: str, revision: str, path: str) -> None:
        repository = self._shown(name)
        if repository is None:  # as the Hub says it of what is private, too
            self._refuse(401, "Invalid username or password.", "RepoNotFound")
            return
        content = (repository.at(revision) or {}).get(path)
        if content is None:
            self._refuse(404, "Entry not found", "EntryNotFound")
            return
        digest = hashlib.sha256(content).hexdigest()
        facts = {"X-Repo-Commit": repository.name(), "ETag": f'"{digest}"'}
        if path.endswith(_REGULAR):
            self._file(content, facts)
            return
        self.server.blobs[digest] = content
        facts |= {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(content))}
        elsewhere = (
            f"http://localhost:{self.server.server_port}"  # as the Hub sends to another host
        )
        facts["Location"] = f"{elsewhere}/lfs/{digest}"
        self.send_response(302)
        for header, value in (facts | {"Content-Length": "0"}).items():
            self.send_header(header, value)
        self.end_headers()

    def _file(self, content: bytes, facts: dict[str, str] | None = None) -> None:
        if found := _RANGE.fullmatch(self.headers.get("Range", "")):
            content = content[int(found[1]) : int(found[2]) + 1]
        self.send_response(206 if found else 200)
        for header, value in (facts or {}).items():
            self.send_header(header, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _check(self, card: str) -> None:
        """As https://huggingface.co/docs/hub/repositories-licenses has it, which lists more."""
        [licence] = re.findall(r"^license: (.*)$", card, re.MULTILINE)
        named = re.search(r"^license_name: [a-z0-9.-]+$", card, re.MULTILINE)
        good = licence in _LICENCES or (licence == "other" and named is not None)
        errors = [] if good else [{"message": f'"license" must be one of {_LICENCES}'}]
        self._json({"errors": errors, "warnings": []}, 400 if errors else 200)

    def _json(self, value: object, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: int, message: str, code: str = "") -> None:
        self.send_response(status)
        self.send_header("X-Error-Message", message)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def serving() -> Iterator[HubServer]:
    """A Hub without repositories."""
    with HubServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
