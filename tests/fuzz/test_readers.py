"""No input of a corpus, and no mutation of one, gets more out of a reader than an error of ours.

`make fuzz` searches further; what it finds goes into `corpus/` and stays tried here.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from readers import CORPUS, READERS, takes

MUTATIONS = int(os.environ.get("MENAGERIE_MUTATIONS", "2000"))
SLOW = {"tuf": 40, "archive": 2}  # times as slow as the others
PIECES = [b"{", b"[", b'"', b"-1", b"18446744073709551616", b"1e999", b"\\ud800", b"\xff", b"\0",
          b"null", b"[[[[", b",", b"../", b"true", b"\x1b", b"0" * 30]  # fmt: skip


def mutated(whole: bytes, draw: random.Random) -> bytes:
    """A copy with some bytes changed, put in, taken out or repeated."""
    text = bytearray(whole)
    for _ in range(draw.randint(1, 4)):
        at, kind = draw.randrange(len(text) + 1), draw.randrange(5)
        if kind == 0:
            text[at : at + 1] = bytes([draw.randrange(256)])
        elif kind == 1:
            text[at:at] = draw.choice(PIECES)
        elif kind == 2:
            del text[at : at + draw.randint(1, 8)]
        elif kind == 3:
            text[at:at] = text[draw.randrange(len(text) + 1) :][: draw.randint(1, 40)]
        else:
            text[at : at + draw.randint(1, 6)] = draw.choice(PIECES)
    return bytes(text)


@pytest.fixture(autouse=True)
def own_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a reader sets of these goes with its test."""
    for name in ("MENAGERIE_HOME", "MENAGERIE_TRUST", "MENAGERIE_ALLOW_UNSIGNED"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
        monkeypatch.delenv(name)


@pytest.mark.parametrize("name", READERS)
def test_whatever_a_file_holds_its_reader_ends_well(name: str) -> None:
    """The corpus has what is taken and what is refused; its mutations are the same at each run."""
    inputs = {path.name: path.read_bytes() for path in sorted((CORPUS / name).iterdir())}
    assert {takes(name, content) for content in inputs.values()} == {True, False}
    wholes = list(inputs.values())
    for seed in range(MUTATIONS // SLOW.get(name, 1)):
        draw = random.Random(seed)  # noqa: S311 - repeatable
        content = mutated(draw.choice(wholes), draw)
        try:
            takes(name, content)
        except BaseException as error:
            error.add_note(f"seed {seed}: {content[:2000]!r}")
            raise
