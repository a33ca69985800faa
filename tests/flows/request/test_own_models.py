"""Whose models are meant: Menagerie's own, or those that were submitted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from flows.parameters import ConversionOptions, submission_name, with_submission
from zoo.store import open_store
from zoo.store.submissions import submit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

OWN = {"ant", "bee"}


@pytest.mark.parametrize(
    ("models", "submitted"),
    [
        ([], False),
        (["ant"], False),
        (["ant", "bee"], False),
        (["mine"], True),
        (["mine", "ant"], True),  # the submission has an ant of its own
        (["bee", "mine"], False),  # neither has both
        (["min*"], False),
        (["yours"], False),
    ],
)
def test_own_models_come_first(
    models: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, submitted: bool
) -> None:
    """Where Menagerie has all that are named, they are meant, though a submission has them too."""
    store = open_store(str(tmp_path / "store"))
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "mine.yaml").write_text("its content is no matter here")
    digest = submit(store.objects, folder, ("mine", "ant")).digest
    own = SimpleNamespace(models=dict.fromkeys(OWN))
    monkeypatch.setattr("flows.parameters.load_manifest", lambda: own)
    found = with_submission(ConversionOptions(store=store.url), models)
    assert found.manifest == (submission_name(digest) if submitted else "")
