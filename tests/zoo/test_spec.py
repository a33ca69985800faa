"""The manifest's types: what an entry may say, and what contradicts itself."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from menagerie.numerics import Dtype, Tolerance
from menagerie.speech.recipe import Recipe
from menagerie.typed_json import Malformed, check, plain
from zoo.sources.fingerprint import has_weights, is_fetched
from zoo.spec import (
    CheckpointSource,
    Dimension,
    FactorySource,
    InputSpec,
    ModelSpec,
    ProgramSpec,
    Sample,
    SampleKind,
    TorchvisionSource,
    TransformersSource,
    is_ours,
)
from zoo.speech import recipe

_SHA = "0" * 64
_REVISION = "1" * 40
_SPEECH = {
    "frame": 320,
    "heads": {"ctc": {"kind": "ctc", "listen": "main", "blank": 0}},
    "vocabulary": {"kind": "plain", "numbered": 3},
}


def _spec(**changes: Any) -> ModelSpec:
    entry: dict[str, Any] = {
        "summary": "a model",
        "source": {"kind": "torchvision", "builder": "resnet18"},
        "programs": [{"inputs": [{"name": "x", "shape": [1]}]}],
        "licence": {"spdx": "MIT"},
    }
    return ModelSpec.model_validate(entry | changes)


def _integers(dtype: Dtype = Dtype.INT64, **bounds: float) -> InputSpec:
    return InputSpec(
        name="x", shape=(1,), dtype=dtype, sample=Sample(kind=SampleKind.INTEGERS, **bounds)
    )


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Dimension(low=4, high=4), "must exceed low"),
        (lambda: Dimension(low=4, high=10, multiple_of=4), "must be multiples of"),
        (lambda: Sample(low=1, high=0), "must exceed low"),
        (lambda: InputSpec(name="Big", shape=(1,)), "a name is lower-case"),
        (lambda: InputSpec(name="x", shape=(0,)), "an axis is a size"),
        (lambda: InputSpec(name="x", shape=(1,), dtype=Dtype.BOOL), "an input of bool needs"),
        (lambda: ProgramSpec(inputs=()), "at least 1"),
        (
            lambda: _spec(speech={**_SPEECH, "rate": 10**9}),
            "speech.rate\n  Input should be less than or equal to 768000",
        ),
        (
            lambda: _spec(speech={**_SPEECH, "vocabulary": {"kind": "plain", "numbered": 10**12}}),
            "numbered\n  Input should be less than or equal to 1000000",
        ),
        (
            lambda: _spec(speech={**_SPEECH, "overlap": 3601}),
            "overlap\n  Input should be less than or equal to 3600",
        ),
        (
            lambda: ProgramSpec(inputs=(InputSpec(name="x", shape=("n",)),)),
            "'n' is used in a shape",
        ),
        (
            lambda: ProgramSpec(
                inputs=(InputSpec(name="x", shape=(1,)),),
                dimensions={"n": Dimension(low=1, high=2)},
            ),
            "'n' has a range but no input uses it",
        ),
        (
            lambda: ProgramSpec(inputs=(InputSpec(name="x", shape=(1,)),) * 2),
            "two inputs have the same name",
        ),
        (
            lambda: TransformersSource(kind="transformers", architecture="A", id="a/b"),
            "needs `revision`",
        ),
        (
            lambda: TransformersSource(
                kind="transformers", architecture="A", id="a/b", revision="main"
            ),
            "a branch or tag can move",
        ),
        (
            lambda: TransformersSource(
                kind="transformers", architecture="A", id="a/b", revision=_REVISION, folder="f"
            ),
            "not both",
        ),
        (
            lambda: TransformersSource(kind="transformers", architecture="A", folder="w.nemo"),
            "'w.nemo' is an archive of NeMo's own: name weights in the layout of transformers",
        ),
        (
            lambda: CheckpointSource(kind="checkpoint", builder="a:b", path="W.NEMO", sha256=_SHA),
            "name weights in the layout of transformers",
        ),
        (
            lambda: CheckpointSource(kind="checkpoint", builder="a:b", path="p", sha256="ABC"),
            "64 lower-case",
        ),
        (
            lambda: CheckpointSource(
                kind="checkpoint", builder="a:b", path="http://h/p", sha256=_SHA
            ),
            "starts with https://",
        ),
        *[
            (
                lambda path=path: CheckpointSource(
                    kind="checkpoint", builder="a:b", path=path, sha256=_SHA
                ),
                message,
            )
            for path, message in (
                ("https://[::1/x", "Invalid IPv6 URL"),
                ("https:///x", "starts with https://SERVER"),
                ("https://h:port/x", "Port could not be cast"),
            )
        ],
        (
            lambda: _integers(low=0.2, high=0.8),
            "needs whole numbers as low and high, not 0.2 and 0.8",
        ),
        (lambda: _integers(high=1e30), "do not fit int64"),
        (lambda: _integers(dtype=Dtype.UINT8, low=-1.0, high=9), "from -1 to 9 do not fit uint8"),
        (
            lambda: InputSpec(
                name="x", shape=(), dtype=Dtype.BOOL, sample=Sample(kind=SampleKind.PREFIX_MASK)
            ),
            "`prefix_mask` needs an axis",
        ),
        (lambda: FactorySource(kind="factory", builder="a.b"), "is written `module:callable`"),
        (lambda: _spec(programs=[{"inputs": [{"name": "x", "shape": [1]}]}] * 2), "same name"),
        (lambda: _spec(accuracy={"data": "d", "program": "other"}), "names no program"),
        (lambda: _spec(surprise=1), "Extra inputs are not permitted"),
    ],
)
def test_contradictions_are_refused(build: Any, message: str) -> None:
    """What cannot be meant does not become a spec."""
    with pytest.raises(ValidationError, match=message):
        build()


def test_whose_weights_must_be_fetched() -> None:
    """Only these does `--random-weights` replace; what is at hand stays."""
    checkpoint = {"kind": "checkpoint", "builder": "a:b", "sha256": _SHA}
    hub = {"kind": "transformers", "architecture": "A"}
    for source, had, fetched in (
        (TorchvisionSource(kind="torchvision", builder="r"), False, True),
        (TorchvisionSource(kind="torchvision", builder="r", weights="W.V"), True, True),
        (TransformersSource.model_validate(hub), False, True),
        (TransformersSource.model_validate(hub | {"folder": "f"}), True, False),
        (TransformersSource.model_validate(hub | {"id": "a/b", "revision": _REVISION}), True, True),
        (CheckpointSource.model_validate(checkpoint | {"path": "w.safetensors"}), True, False),
        (CheckpointSource.model_validate(checkpoint | {"path": "https://h/w"}), True, True),
        (FactorySource(kind="factory", builder="a:b"), True, False),
        (FactorySource(kind="factory", builder="a:b", has_weights=False), False, True),
    ):
        assert (has_weights(source), is_fetched(source)) == (had, fetched)


def test_our_builders_are_those_in_their_own_folder() -> None:
    """Neither a neighbour nor a look-alike may run without permission."""
    assert is_ours("zoo.models.builders.yolo_style:yolo_style")
    for reference in ("zoo.models.digits:main", "zoo.models.builders_2:f", "os:system"):
        assert not is_ours(reference)


def test_tolerances_have_defaults_for_floating_types_only() -> None:
    """An entry overrides by type; integers and booleans must be equal bit for bit."""
    spec = _spec(tolerances={"float16": {"absolute": 0.5}})
    assert spec.tolerance(Dtype.FLOAT32) == Tolerance(absolute=1e-4, snr_db=80.0)
    assert spec.tolerance(Dtype.FLOAT16) == Tolerance(absolute=0.5)
    assert spec.tolerance(Dtype.INT64) is None
    for dtype in Dtype:
        assert (_spec().tolerance(dtype) is not None) is dtype.is_floating


def test_a_double_must_come_nearer_than_a_float() -> None:
    """Bit equality would refuse any other order of summing."""
    double, single = (_spec().tolerance(d) for d in (Dtype.FLOAT64, Dtype.FLOAT32))
    assert double is not None
    assert single is not None
    assert double.absolute < single.absolute
    assert (double.snr_db or 0) > (single.snr_db or 0)


def test_specs_are_frozen() -> None:
    """A stage cannot change what the next one reads."""
    with pytest.raises(ValidationError, match="frozen"):
        _spec().summary = "other"  # type: ignore[misc]


def test_whole_numbers_up_to_the_last_are_accepted() -> None:
    """`high` is excluded, so it may be one beyond."""
    _integers(dtype=Dtype.UINT8, low=0, high=256)
    _integers(dtype=Dtype.INT8, low=-128, high=128)
    _integers(dtype=Dtype.FLOAT32, low=-5, high=5)


def test_samples_that_fit_integers_are_accepted() -> None:
    """The same input is fine once it says how whole numbers are drawn."""
    for kind in (SampleKind.INTEGERS, SampleKind.PREFIX_MASK, SampleKind.ONES):
        InputSpec(name="x", shape=(1,), dtype=Dtype.INT64, sample=Sample(kind=kind))


def _pieces(count: int) -> dict[str, Any]:
    return {"vocabulary": {"kind": "plain", "numbered": count}}


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ({"rate": 1_000}, {"rate": 999}),
        ({"rate": 768_000}, {"rate": 768_001}),
        ({"overlap": 0.0}, {"overlap": -0.1}),
        ({"overlap": 3600.0}, {"overlap": 3600.5}),
        (_pieces(1_000_000), _pieces(1_000_001)),
    ],
)
def test_the_runtime_takes_what_an_entry_may_say_of_speech(
    inside: dict[str, Any], outside: dict[str, Any]
) -> None:
    """Their bounds are in two places, as entries are read without numpy; they are the same."""
    speech = _spec(speech=_SPEECH | inside).speech
    assert speech is not None
    written = plain(recipe(speech))
    beyond = dict(outside)
    if "vocabulary" in outside:
        pieces = ["a"] * outside["vocabulary"]["numbered"]
        beyond["vocabulary"] = {"kind": "plain", "pieces": pieces}
    assert check(Recipe, written)
    with pytest.raises(Malformed):
        check(Recipe, written | beyond)
    with pytest.raises(ValidationError):
        _spec(speech=_SPEECH | outside)
