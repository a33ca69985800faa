"""Version 1 of manifest.json, as releases before 0.3 wrote it, put into version 2's words.

It has no `platform` and no `runtime`, which its other fields imply, and one table of all files by
path; a field with a path says what a file is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from menagerie.format.bundle_manifest import BundlePath, Count, Role, Sha256
from menagerie.typed_json import Malformed, check, plain

if TYPE_CHECKING:
    from collections.abc import Container

__all__ = ["role_of", "upgraded"]


@dataclass(frozen=True)
class _Digest:
    """What version 1 says of a file, by its path."""

    sha256: Sha256
    bytes: Count


def role_of(path: str, taken: Container[str]) -> str:
    """A role, none of `taken`, for a file that nobody gave one: `report.html` is `report_html`."""
    role = re.sub(r"[^a-z0-9_]", "_", path.lower())
    role = role if role[0].isalpha() else f"file_{role}"
    return role if role not in taken else f"file_{sha256(path.encode()).hexdigest()}"


def upgraded(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a manifest of version 1 as those of version 2.

    What is no such field at all is left as it is, for the check of types to refuse.

    Raises:
        Malformed: it has fields of version 2, or a file that it speaks of is not listed.
    """
    for name in ("platform", "runtime"):
        if name in fields:
            raise Malformed(f"{name}: is no field of version 1")
    files = _Files(fields.get("files"))
    old, programs, accuracy = dict(fields), fields.get("programs"), fields.get("accuracy")
    roles = files.taken(old, "", {"weights": Role.WEIGHTS, "shader_header": Role.SHADER_HEADER})
    if isinstance(accuracy, dict):
        old["accuracy"] = accuracy = dict(accuracy)
        roles |= files.taken(accuracy, "accuracy.", {"file": Role.ACCURACY})
    if isinstance(programs, list):
        old["programs"] = [_program(p, f"programs.{i}.", files) for i, p in enumerate(programs)]
    for path in sorted(files.left):
        roles[role_of(path, roles)] = files.left[path]
    return old | {"version": 2, "files": roles}


def _program(program: Any, place: str, files: _Files) -> Any:
    if not isinstance(program, dict):
        return program
    if "files" in program:
        raise Malformed(f"{place}files: is no field of version 1")
    program = dict(program)
    roles = files.taken(program, place, {r: r for r in (Role.LIBRARY, Role.GOLDEN, Role.SHADERS)})
    twin = program.pop(Role.EMULATION, None)
    if isinstance(twin, dict):
        twin = dict(twin)
        roles |= files.taken(twin, f"{place}emulation.", {"library": Role.EMULATION})
        if Role.EMULATION not in roles:
            raise Malformed(f"{place}emulation.library: is missing")
        roles[Role.EMULATION] |= twin
    elif twin is not None:
        raise Malformed(f"{place}emulation: is no object")
    return program | {"files": roles}


class _Files:
    """Version 1's table of files; what no field has spoken of yet is `left`."""

    def __init__(self, table: object) -> None:
        if table is None:
            raise Malformed("files: is missing")
        listed = check(dict[BundlePath, _Digest], table, "files")
        self._listed = {path: {"path": path, **plain(entry)} for path, entry in listed.items()}
        self.left = dict(self._listed)

    def taken(self, fields: dict[str, Any], place: str, roles: dict[str, str]) -> dict[str, Any]:
        """Takes paths out of `fields`; their entries, by role."""
        found = {}
        for name, role in roles.items():
            if (path := fields.pop(name, None)) is not None:
                check(BundlePath, path, place + name)
                if path not in self._listed:
                    raise Malformed(f"{place}{name}: {path!r} is not among its files")
                found[role] = dict(self._listed[path])
                self.left.pop(path, None)
        return found
