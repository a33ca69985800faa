"""Sealing and opening: what is sealed opens, and each rule of FORMAT.md has its hostile bundle."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from bundle_maker import FILES, draft, make_bundle, placed, write_files
from hypothesis import given, settings
from hypothesis import strategies as st

from menagerie.format.bundle_manifest import MAX_MANIFEST_BYTES, ReleaseState, parse_manifest
from menagerie.format.folder import open_bundle, seal
from zoo.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def edit(bundle: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes manifest.json as an attacker would, past all of our code."""
    path = bundle / "manifest.json"
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))


def refusal(bundle: Path) -> str:
    """What opening says; it must fail, in one line that names the place."""
    with pytest.raises(ArtifactError) as caught:
        open_bundle(bundle)
    text = str(caught.value)
    assert text.startswith(str(bundle))
    assert text.isprintable()
    assert len(text) < 1000
    return text


def test_a_sealed_folder_opens(bundle: Path) -> None:
    """The opened manifest lists every file with the size and sha256 that hashlib computes."""
    opened = open_bundle(bundle)
    assert set(opened.manifest.listed) == set(FILES)
    for name, content in FILES.items():
        entry = opened.manifest.listed[name]
        assert entry.sha256 == hashlib.sha256(content).hexdigest()
        assert entry.bytes == len(content)
        assert opened.file(name).read_bytes() == content
    assert opened.document == (bundle / "manifest.json").read_bytes()


def test_what_is_of_no_use_is_not_written(tmp_path: Path) -> None:
    """Rule 3: a file says where it comes from and what it requires only if it does so."""
    bundle = make_bundle(tmp_path, random_weights=None)
    text = (bundle / "manifest.json").read_text()
    fields = json.loads(text)
    assert set(fields["files"]["weights"]) == {"path", "sha256", "bytes"}
    assert "accuracy" not in fields
    assert fields["random_weights"] is None  # not of no use: it says that the weights are real
    full = json.loads(text)
    for entry in full["files"].values():
        entry |= {"source_sha256": None, "requires": None}
    full["accuracy"] = None
    read = parse_manifest(json.dumps(full).encode(), "manifest.json")
    assert read == open_bundle(bundle).manifest


def test_seal_returns_what_open_reads(tmp_path: Path) -> None:
    """The manifest that seal returns equals the one on disk."""
    write_files(tmp_path, FILES)
    assert seal(tmp_path, draft()) == open_bundle(tmp_path).manifest


def test_a_bundle_can_be_sealed_again(bundle: Path) -> None:
    """After a report is added and the state raised, the folder opens with both."""
    manifest = open_bundle(bundle).manifest
    (bundle / "report.html").write_text("<p>good</p>")
    assert "report.html" in refusal(bundle)
    seal(bundle, replace(manifest, state=ReleaseState.EMULATED))
    again = open_bundle(bundle).manifest
    assert again.state is ReleaseState.EMULATED
    assert again.listed.keys() - manifest.listed.keys() == {"report.html"}
    assert again.files["report_html"].path == "report.html"


def test_equal_bundles_have_equal_manifests(tmp_path: Path) -> None:
    """Sealing is deterministic: the same files and draft give the same bytes."""
    one, two = make_bundle(tmp_path / "one"), make_bundle(tmp_path / "two")
    assert (one / "manifest.json").read_bytes() == (two / "manifest.json").read_bytes()


def test_an_unlisted_file_has_no_path(bundle: Path) -> None:
    """`file` gives no path that the manifest does not list, least of all one that escapes."""
    opened = open_bundle(bundle)
    for name in ("nothing", "../bundle/report.json", "/etc/passwd"):
        with pytest.raises(ArtifactError, match="does not list"):
            opened.file(name)


def test_interrupted_sealing_leaves_no_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash before the rename leaves a folder that does not open, and that seals afterwards."""
    write_files(tmp_path, FILES)
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            seal(tmp_path, draft())
    assert "is missing, so this is not a bundle" in refusal(tmp_path)
    seal(tmp_path, draft())
    assert set(open_bundle(tmp_path).manifest.listed) == set(FILES)


def test_every_byte_is_synced_before_the_manifest_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the rename of manifest.json all files and folders were synced; the folder is after it."""
    write_files(tmp_path, FILES)
    synced: list[str] = []
    real_fsync, real_replace = os.fsync, type(tmp_path).replace

    def fsync(descriptor: int) -> None:
        synced.append(os.path.realpath(f"/dev/fd/{descriptor}"))
        real_fsync(descriptor)

    def replace(self: Path, target: Path) -> Path:
        wanted = {str(tmp_path / name) for name in FILES} | {str(self)}
        wanted |= {str((tmp_path / name).parent) for name in FILES}
        assert wanted <= set(synced)
        synced.clear()
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(type(tmp_path), "replace", replace)
    seal(tmp_path, draft())
    assert synced == [str(tmp_path)]


paths = st.lists(
    st.from_regex(r"[a-z0-9_][a-z0-9._-]{0,12}", fullmatch=True), min_size=1, max_size=3
).map(lambda parts: "x/" + "/".join(parts))


@settings(max_examples=30)
@given(files=st.dictionaries(paths, st.binary(max_size=64), max_size=5))
def test_whatever_is_sealed_opens_unchanged(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    """Round trip over arbitrary names and contents."""
    files = {n: c for n, c in files.items() if not any(o.startswith(n + "/") for o in files)}
    folder = make_bundle(tmp_path_factory.mktemp("any"), files)
    opened = open_bundle(folder)
    assert {n: opened.file(n).read_bytes() for n in opened.manifest.listed} == FILES | files
    shutil.rmtree(folder)


# Rule 1: the manifest


def test_rule_1_manifest_missing(bundle: Path) -> None:
    """A folder without manifest.json is not a bundle."""
    (bundle / "manifest.json").unlink()
    assert "not a bundle" in refusal(bundle)


def test_rule_1_no_such_folder(tmp_path: Path) -> None:
    """A path that is not there, or is a file, says so."""
    assert "no such folder" in refusal(tmp_path / "nothing")
    (tmp_path / "file").touch()
    assert "not a bundle folder" in refusal(tmp_path / "file")


def test_rule_1_manifest_is_a_link(bundle: Path) -> None:
    """A manifest that is a link is refused, even to a sound one."""
    (bundle / "manifest.json").rename(bundle.parent / "elsewhere.json")
    (bundle / "manifest.json").symlink_to(bundle.parent / "elsewhere.json")
    assert "symbolic link" in refusal(bundle)


def test_rule_1_oversized_manifest(bundle: Path) -> None:
    """Above 8 MiB nothing is parsed; memory use stays bounded."""
    with (bundle / "manifest.json").open("ab") as file:
        file.truncate(MAX_MANIFEST_BYTES + 1)
    assert "above the 8,388,608 allowed" in refusal(bundle)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"format": "menagerie-bundle", "version": 2, "version": 2}', "duplicate key 'version'"),
        (b'{"a": {"b": 1, "b": 2}}', "duplicate key 'b'"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b"[" * 200_000, "nested too deep"),
        (b'{"version": ' + b"9" * 10_000 + b"}", "not JSON"),
    ],
)
def test_rule_1_bad_json(bundle: Path, document: bytes, reason: str) -> None:
    """Anything but one well-formed object with unique keys is refused with its reason."""
    (bundle / "manifest.json").write_bytes(document)
    assert reason in refusal(bundle)


@given(document=st.binary(max_size=200))
def test_rule_1_any_bytes(tmp_path_factory: pytest.TempPathFactory, document: bytes) -> None:
    """Arbitrary bytes give an ArtifactError and no other exception."""
    folder = tmp_path_factory.mktemp("bytes")
    (folder / "manifest.json").write_bytes(document)
    refusal(folder)


# Rules 2 and 3: version and fields


def test_rule_2_unknown_version(bundle: Path) -> None:
    """A later version is refused before its unknown fields are looked at, with the way out."""
    edit(bundle, lambda fields: fields.update(version=3, novelty="?"))
    text = refusal(bundle)
    assert "format version 3, but only 2 is known here" in text
    assert "Upgrade Menagerie" in text


def test_rule_2_unknown_format(bundle: Path) -> None:
    """Another format's file is not taken for a bundle."""
    edit(bundle, lambda fields: fields.update(format="other"))
    assert "its format is not 'menagerie-bundle'" in refusal(bundle)


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("novelty", 1, "novelty"),
        ("model", "../up", "model"),
        ("target", "CPU", "target"),
        ("build_key", "abc", "build_key"),
        ("state", "published", "state"),
        ("created", "yesterday", "created"),
        ("created", "2030-01-31T12:00:00", "created"),
        ("programs", [], "programs"),
    ],
)
def test_rule_3_wrong_field(bundle: Path, field: str, value: object, path: str) -> None:
    """An unknown field or a value outside its range is refused by its path."""
    edit(bundle, lambda fields: fields.update({field: value}))
    assert f"manifest.json: {path}: " in refusal(bundle)


def test_rule_3_missing_field(bundle: Path) -> None:
    """A field that is left out is named."""
    edit(bundle, lambda fields: fields.pop("requires"))
    assert "requires: is missing" in refusal(bundle)


def test_rule_3_unknown_axis(bundle: Path) -> None:
    """An axis that names no dimension of its program is refused."""
    edit(bundle, lambda f: f["programs"][0]["inputs"][0].update(shape=[1, "width"]))
    assert "axis 'width' is no dimension" in refusal(bundle)


def test_rule_3_empty_dimension(bundle: Path) -> None:
    """A dimension whose lowest size exceeds its highest is refused."""
    edit(bundle, lambda f: f["programs"][0].update(dimensions={"length": [8, 1, 1]}))
    assert "no sizes from 8 to 1" in refusal(bundle)


def test_rule_3_no_output(bundle: Path) -> None:
    """A program that gives nothing could not be proven, and would pass every proof."""
    edit(bundle, lambda f: f["programs"][0].update(outputs=[]))
    assert "programs.0.outputs: " in refusal(bundle)


# Rule 4: paths


@pytest.mark.parametrize(
    "name",
    [
        "../evil", "/etc/evil", "a/../../evil", "a//b", "./a", "", "a/", ".hidden", "a\\b",
        "C:evil", "a\nb", "a\x00b", "é", "x" * 201, "x" * 9999, "manifest.json", "Manifest.JSON",
        "signature.json", "Model.SIG", "manifest.json/x", "Signature.json/x", "model.sig/x/y",
    ],
)  # fmt: skip
def test_rule_4_bad_path(bundle: Path, name: str) -> None:
    """No listed path leaves the folder, hides, or reads differently elsewhere."""
    edit(bundle, lambda fields: fields["files"].update(other=placed(name)))
    assert "path" in refusal(bundle) or "lists neither itself" in refusal(bundle)


def test_rule_4_bad_path_of_a_program(bundle: Path) -> None:
    """A program's paths are checked like the bundle's."""
    edit(bundle, lambda f: f["programs"][0]["files"]["library"].update(path="../../evil.so"))
    assert "programs.0.files.library.path" in refusal(bundle)


def test_rule_4_same_but_for_case(bundle: Path) -> None:
    """Two names that a Mac's file system takes for one are refused."""
    edit(bundle, lambda f: f["files"].update(other=placed("Report.json")))
    assert "differ only in case" in refusal(bundle)


def test_rule_4_sealing_refuses_too(tmp_path: Path) -> None:
    """A file whose name the format does not allow cannot be sealed."""
    write_files(tmp_path, FILES | {"a b": b""})
    with pytest.raises(ArtifactError, match="Rename or remove it"):
        seal(tmp_path, draft())


# Rule 5: all files, and no others


def test_rule_5_missing_file(bundle: Path) -> None:
    """A listed file that is not there is named."""
    (bundle / "report.json").unlink()
    assert "report.json: the manifest lists it, but it is missing" in refusal(bundle)


@pytest.mark.parametrize("name", ["extra", "programs/main/extra.so", ".manifest.json.partial"])
def test_rule_5_extra_file(bundle: Path, name: str) -> None:
    """A file that was not sealed is refused, wherever it is."""
    (bundle / name).touch()
    assert name in refusal(bundle)


@pytest.mark.parametrize("role", ["weights", "library", "golden"])
def test_rule_5_missing_role(bundle: Path, role: str) -> None:
    """Weights, and a program's library and goldens, must be given."""

    def change(fields: dict[str, Any]) -> None:
        owner = fields if role == "weights" else fields["programs"][0]
        fields["files"]["other"] = owner["files"].pop(role)

    edit(bundle, change)
    assert f"files.{role}: is missing" in refusal(bundle)


@pytest.mark.parametrize("given", ["accuracy", "files"])
def test_rule_5_a_gate_goes_with_its_data(bundle: Path, given: str) -> None:
    """Neither how to judge without what, nor the other way round."""
    gate = {"program": "main", "output": "", "batch": 1, "eager_accuracy": 1.0}

    def change(fields: dict[str, Any]) -> None:
        if given == "accuracy":
            fields["accuracy"] = gate
        else:
            fields["files"]["accuracy"] = fields["files"].pop("report_json")

    edit(bundle, change)
    assert "of accuracy and files.accuracy only one is given" in refusal(bundle)


def test_rule_5_a_file_in_two_roles(bundle: Path) -> None:
    """A file is one thing: else a library could be swapped for data that is written at run time."""
    edit(bundle, lambda f: f["programs"][0]["files"].update(tiles=f["files"]["weights"]))
    assert "'weights.safetensors' is listed twice" in refusal(bundle)


@pytest.mark.parametrize("role", ["Library", "a-b", "", "a b", "../x", "1st"])
def test_rule_3_a_role_is_a_name(bundle: Path, role: str) -> None:
    """Roles are lower-case words, as other names are."""
    edit(bundle, lambda f: f["files"].update({role: f["files"].pop("report_json")}))
    assert "a name is lower-case letters" in refusal(bundle)


def test_rule_5_sealing_needs_every_reference(tmp_path: Path) -> None:
    """A folder without the library its draft names is not sealed."""
    write_files(tmp_path, {"weights.safetensors": b""})
    with pytest.raises(ArtifactError, match="not among its files"):
        seal(tmp_path, draft())
    assert not (tmp_path / "manifest.json").exists()


# Rule 6: plain files


def test_rule_6_link_to_a_file(bundle: Path) -> None:
    """A link is refused even where it leads to the right bytes."""
    (bundle / "report.json").rename(bundle.parent / "outside.json")
    (bundle / "report.json").symlink_to(bundle.parent / "outside.json")
    assert "symbolic link" in refusal(bundle)


def test_rule_6_link_to_a_folder(bundle: Path) -> None:
    """A linked folder is refused and not walked into."""
    (bundle / "programs").rename(bundle.parent / "outside")
    (bundle / "programs").symlink_to(bundle.parent / "outside")
    with pytest.raises(ArtifactError, match="symbolic link"):
        open_bundle(bundle)
    with pytest.raises(ArtifactError, match="symbolic link"):
        seal(bundle, draft())


def test_rule_6_pipe(bundle: Path) -> None:
    """A named pipe is refused without being opened, which would wait for ever."""
    (bundle / "report.json").unlink()
    os.mkfifo(bundle / "report.json")
    assert "not a regular file" in refusal(bundle)


# Rule 7: bytes


def test_rule_7_truncated_file(bundle: Path) -> None:
    """A short file is named with both sizes, without hashing anything."""
    (bundle / "weights.safetensors").write_bytes(FILES["weights.safetensors"][:-1])
    with pytest.raises(ArtifactError, match="10 bytes, but 11 were sealed"):
        open_bundle(bundle, check_hashes=False)


def test_rule_7_changed_byte(bundle: Path) -> None:
    """One changed byte is found by its hash."""
    (bundle / "programs/main/model.so").write_bytes(b"the Library")
    assert "model.so: its sha256 is not the one that was sealed" in refusal(bundle)
