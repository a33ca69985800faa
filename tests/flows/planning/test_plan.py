"""What needs converting is decided by build key, model by model."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from flows import plan as planning
from flows.parameters import ConversionOptions, default_store
from flows.plan import plan, versions
from menagerie.host import RUNTIME_ABI
from transforms.targets import target_named
from zoo.build_key import code_digest
from zoo.errors import UsageError
from zoo.precision import Precision

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = """version: 1
family: local
models:
  {name}:
    summary: weights that are beside the manifest
    source: {source}
    programs:
      - inputs: [{{name: x, shape: [1, 3]}}]
    targets: [cpu]
    licence: {{spdx: Apache-2.0}}
"""


@pytest.fixture
def options(tmp_path: Path, manifest: Path) -> ConversionOptions:
    """The toys' manifest and an empty store."""
    return ConversionOptions(
        random_weights=7, manifest=str(manifest), store=str(tmp_path / "store")
    )


def test_every_model_for_every_target(options: ConversionOptions) -> None:
    """In the manifest's order, none in the store, each with a key of its own."""
    planned = plan(["cat", "ant"], [], options)
    assert [(p.model, p.target, p.stored is not None) for p in planned] == [
        ("ant", "cpu", False),
        ("cat", "cpu", False),
    ]
    assert len({p.build_key for p in planned}) == 2


def test_the_default_selection_and_tags(options: ConversionOptions) -> None:
    """Nothing said: the tag default; a tag adds its models to the names."""
    assert [p.model for p in plan([], [], options)] == ["ant", "bee"]
    assert [p.model for p in plan([], [], options, tags=["small"])] == ["bee"]
    assert [p.model for p in plan(["cat"], [], options, tags=["small"])] == ["bee", "cat"]


def test_a_target_of_no_selected_model_is_refused(options: ConversionOptions) -> None:
    """Nothing to do because nothing can be done is not success; what can be done is said."""
    with pytest.raises(
        UsageError,
        match=r"metal: no selected model is for this target.*--target cpu.*zoo list",
    ):
        plan(["ant"], ["metal"], options)


def test_a_precision_that_a_target_does_not_take(
    options: ConversionOptions, manifest: Path
) -> None:
    """It is a row with its reason, and stops no other; with no other, it is misuse."""
    source = "{kind: factory, builder: 'a:b', has_weights: false}"
    entry = LOCAL.format(name="net", source=source)
    entry = entry.replace("[cpu]", "[cpu, metal]")
    entry += "    precisions: {float16: {}, int8: {targets: [cpu]}}\n"
    (manifest / "local.yaml").write_text(entry)
    wanted = [Precision.FLOAT16, Precision.INT8]
    planned = plan(["net"], ["cpu", "metal"], options, precisions=wanted)
    assert [(p.model, p.target, p.error is None) for p in planned] == [
        ("net_float16", "cpu", True),
        ("net_float16", "metal", True),
        ("net_int8", "cpu", True),
        ("net_int8", "metal", False),
    ]
    refused = planned[-1]
    assert "metal does not multiply integers. Take int8-weight-only" in str(refused.error)
    assert (refused.seed, refused.build_key) == (7, "")
    with pytest.raises(UsageError, match="does not multiply integers"):
        plan(["net"], ["metal"], options, precisions=[Precision.INT8])


def test_a_refused_entry_stops_no_other(options: ConversionOptions, manifest: Path) -> None:
    """A precision that one lacks, a folder in the place of its data: a row, behind the others."""
    source = "{kind: factory, builder: 'a:b', has_weights: false}"
    for name, more in (
        ("net", "precisions: {float16: {}}"),
        ("other", "precisions: {bfloat16: {}}"),
        ("folder", "precisions: {float16: {}}\n    accuracy: {data: .}"),
    ):
        (manifest / f"{name}.yaml").write_text(
            LOCAL.format(name=name, source=source).replace("local", name) + f"    {more}\n"
        )
    names = ["net", "other", "folder"]
    planned = plan(names, ["cpu"], options, precisions=[Precision.FLOAT16])
    outcomes = {one.model: str(one.error or "") for one in planned}
    assert outcomes.pop("net_float16") == ""
    assert "not published in float16: other. Add `precisions" in outcomes["other_float16"]
    assert "is a directory" in outcomes["folder_float16"].lower()
    with pytest.raises(UsageError, match="none of the selected models is published in float16"):
        plan(["other"], ["cpu"], options, precisions=[Precision.FLOAT16])


def test_the_seed_is_part_of_the_key(options: ConversionOptions) -> None:
    """Other weights, another build."""
    [seven] = plan(["ant"], [], options)
    [eight] = plan(["ant"], [], options.model_copy(update={"random_weights": 8}))
    [real] = plan(["ant"], [], options.model_copy(update={"random_weights": None}))
    assert len({seven.build_key, eight.build_key, real.build_key}) == 3
    assert (seven.seed, real.seed) == (7, None)


def test_threads_and_store_are_not(options: ConversionOptions, tmp_path: Path) -> None:
    """What does not change the artifact does not change its key."""
    other = options.model_copy(update={"threads": 2, "store": str(tmp_path / "other")})
    assert plan(["ant"], [], options)[0].build_key == plan(["ant"], [], other)[0].build_key


def test_local_weights_are_kept(options: ConversionOptions, manifest: Path) -> None:
    """A seed replaces fetching: a checkpoint beside the manifest needs none."""
    source = (
        "{kind: checkpoint, builder: 'zoo.models.builders.digits_cnn:digits_cnn', "
        f"path: w.safetensors, sha256: {'a' * 64}}}"
    )
    (manifest / "local.yaml").write_text(LOCAL.format(name="own", source=source))
    [planned] = plan(["own"], [], options)
    assert planned.seed is None


def test_a_model_without_a_key_stops_no_other(options: ConversionOptions, manifest: Path) -> None:
    """A folder of weights that is not there is that model's error alone."""
    source = "{kind: transformers, architecture: BertModel, folder: nowhere}"
    (manifest / "local.yaml").write_text(LOCAL.format(name="gone", source=source))
    gone, ant = sorted(plan(["gone", "ant"], [], options), key=lambda p: p.error is None)
    assert "nowhere" in str(gone.error)
    assert gone.build_key == ""
    assert (ant.model, ant.error) == ("ant", None)


def test_an_unknown_model_is_an_error(options: ConversionOptions) -> None:
    """Nothing is planned for the others either: the command is wrong."""
    with pytest.raises(UsageError):
        plan(["ant", "yak"], [], options)


def test_the_default_store(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder under our own, unless the environment names another."""
    assert default_store() == str(own_home / "store")
    monkeypatch.setenv("MENAGERIE_STORE", "s3://zoo/x")
    assert ConversionOptions().store_url == "s3://zoo/x"
    assert ConversionOptions(store="/elsewhere").store_url == "/elsewhere"


def test_the_compiler_is_the_one_that_lowering_takes() -> None:
    """The build key must name the compiler that will be called."""
    from transforms.lowering import toolchain

    assert versions(target_named("cpu"))["compiler"] == toolchain.find_compiler().version


def test_the_build_key_follows_the_runtime_abi(
    options: ConversionOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was lowered for a runtime before is not taken for current."""
    [before] = plan(["ant"], ["cpu"], options)
    monkeypatch.setattr(planning, "RUNTIME_ABI", RUNTIME_ABI + 1)
    versions.cache_clear()
    try:
        [after] = plan(["ant"], ["cpu"], options)
    finally:
        versions.cache_clear()
    assert before.build_key != after.build_key


def test_the_code_digest_is_a_sha256() -> None:
    """Over files that exist: the shim list and the passes are among them."""
    assert len(code_digest()) == 64
    assert set(code_digest()) <= set("0123456789abcdef")


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
def test_the_build_key_does_not_follow_the_machines_threads(
    options: ConversionOptions, name: str, own_home: Path
) -> None:
    """Hosts with one core and with many make the same builds, from the same random weights."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from flows.plan import plan\n"
        "from flows.parameters import ConversionOptions\n"
        "o = ConversionOptions.model_validate_json(sys.argv[1])\n"
        "print([p.build_key for p in plan(['ant'], ['cpu'], o)])\n"
    )
    keys = {
        subprocess.run(
            [sys.executable, "-c", code, options.model_dump_json()],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, name: threads, "MENAGERIE_HOME": str(own_home)},
        ).stdout
        for threads in ("1", "7")
    }
    assert len(keys) == 1
    assert keys == {f"{[plan(['ant'], ['cpu'], options)[0].build_key]}\n"}
