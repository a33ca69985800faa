"""A verification as a page, and where a release can be got."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bundle_maker import publish
from markdown_it import MarkdownIt
from toy_zoo import make_bundle

from flows.proofs import VerifyResult, prove_all, published, verification_markdown
from flows.reports import how_to_get
from menagerie.format.bundle_manifest import ReleaseState
from tasks.verify import Proof, ProofOutcome
from zoo.store import Release, open_store

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "x | y\\| [a](javascript:b) ![c](d) <img src=e> `f` **g**\n\n# h"


def proof(release: Release) -> Proof:
    """It holds."""
    return Proof(
        model=release.model,
        target=release.target,
        build_key=release.build_key,
        outcome=ProofOutcome.PROVEN,
        state=ReleaseState.VALIDATED,
        detail=HOSTILE,
    )


@pytest.fixture
def release(tmp_path: Path) -> Release:
    """What a store of a test holds."""
    return publish(open_store(str(tmp_path / "store")), make_bundle(tmp_path / "bundle"))


def verified(store: str) -> VerifyResult:
    """All releases of a store, which all hold."""
    return prove_all(store, published(open_store(store), [], []), proof)


def test_the_table_survives_any_reason(release: Release, tmp_path: Path) -> None:
    """A parser finds the reason as text in its cell, and no markup in the whole page."""
    page = verification_markdown(verified(str(tmp_path / "store")))
    tokens = MarkdownIt("commonmark").enable("table").parse(page)
    children = [child for token in tokens for child in token.children or ()]
    assert {child.type for child in children} == {"text"}
    assert children[-1].content == " ".join(HOSTILE.split())
    assert sum(token.type == "tr_open" for token in tokens) == 2
    assert not {"heading_open", "html_block"} & {token.type for token in tokens}


def test_the_way_to_a_release_is_a_command(release: Release) -> None:
    """Whatever the store is called, its line is code, and a shell reads it as one argument."""
    store = "/a`b`/[c](d)/<img>/e f\n# g"
    tokens = MarkdownIt("commonmark").parse("A page\n\n" + how_to_get(open_store(store), release))
    kinds = [token.type for token in tokens if token.type != "inline"]
    assert kinds == [f"{k}_{e}" for k in ("paragraph", "heading") for e in ("open", "close")] + [
        "code_block"
    ]
    assert tokens[-1].content == (
        "zoo pull tiny --target cpu --store '/a`b`/[c](d)/<img>/e f # g'\n"
    )


def test_the_command_says_where_the_store_is(
    release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An s3:// address alone means AWS: the server's address is put before it. No key does."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://s3.example.org")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "owner")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    page = how_to_get(open_store("s3://models/zoo"), release)
    [command] = [line.strip() for line in page.splitlines() if "zoo pull" in line]
    assert command == (
        "AWS_ENDPOINT_URL_S3=https://s3.example.org "
        "zoo pull tiny --target cpu --store s3://models/zoo"
    )
    assert "hush" not in page
