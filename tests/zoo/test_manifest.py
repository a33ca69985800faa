"""The manifest: what is read, how faults are reported, and how models are selected."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import zoo.models
from menagerie.numerics import DEFAULT_TOLERANCES, Dtype, Tolerance
from zoo.errors import ManifestError, UsageError
from zoo.manifest import Manifest, Origin, json_schema, load_manifest
from zoo.precision import Precision

_ENTRY = """\
  {name}:
    summary: a model
    source: {{kind: torchvision, builder: resnet18}}
    programs: [{{inputs: [{{name: x, shape: [1, 3, 8, 8]}}]}}]
    licence: {{spdx: MIT}}
    tags: [{tags}]
"""


def _file(*entries: tuple[str, str]) -> str:
    body = "".join(_ENTRY.format(name=name, tags=tags) for name, tags in entries)
    return f"version: 1\nfamily: Some\nmodels:\n{body}"


def _faults(folder: Path, text: str, name: str = "file.yaml") -> list[str]:
    """Faults of a manifest of one file, without the folder in front."""
    (folder / name).write_text(text)
    with pytest.raises(ManifestError) as caught:
        load_manifest(folder, targets=("cpu", "metal"))
    assert str(caught.value) == "\n".join(caught.value.faults)
    return [fault.removeprefix(f"{folder}/") for fault in caught.value.faults]


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    """Four models in two files."""
    (tmp_path / "b.yaml").write_text(_file(("resnet18", "default, vision"), ("resnet50", "vision")))
    (tmp_path / "a.yaml").write_text(_file(("whisper", "speech"), ("digits", "default")))
    return load_manifest(tmp_path)


def test_entries_come_in_the_order_of_files_and_lines(manifest: Manifest) -> None:
    """Lists made of the manifest look the same every time."""
    assert list(manifest.models) == ["whisper", "digits", "resnet18", "resnet50"]


_PRECISE = """\
    precisions:
      float16: {targets: [cpu]}
      bfloat16: {tolerances: {float32: {absolute: 0.5}}}
"""


def test_each_precision_is_a_model_of_its_own_name(tmp_path: Path) -> None:
    """It differs in precision, targets and tolerances; globs and tags leave it out."""
    text = _file(("net", "default"), ("other", "vision"))
    one, two = text.split("  other:")
    (tmp_path / "a.yaml").write_text(f"{one}{_PRECISE}    targets: [cpu, metal]\n  other:{two}")
    manifest = load_manifest(tmp_path)
    assert list(manifest.models) == ["net", "net_float16", "net_bfloat16", "other"]
    half, brain = manifest.spec("net_float16"), manifest.spec("net_bfloat16")
    assert (half.precision, brain.precision) == ("float16", "bfloat16")
    assert (half.targets, brain.targets) == (("cpu",), ("cpu", "metal"))
    assert half.tolerance(Dtype.FLOAT32) == DEFAULT_TOLERANCES[Dtype.FLOAT16]
    assert brain.tolerance(Dtype.FLOAT32) == Tolerance(absolute=0.5)
    assert half.tolerance(Dtype.FLOAT64) == DEFAULT_TOLERANCES[Dtype.FLOAT64]
    assert manifest.select(["*"]) == ["net", "other"]
    assert manifest.select([]) == ["net"]
    both = [Precision.FLOAT16, Precision.FLOAT32]
    assert manifest.select(["*"], precisions=both) == ["net", "net_float16", "other"]
    assert manifest.select(["net_bfloat16"]) == ["net_bfloat16"]
    with pytest.raises(UsageError, match="none of the selected models is published in float16"):
        manifest.select(["o*"], precisions=[Precision.FLOAT16])
    assert manifest.select(["net", "other"], precisions=[Precision.FLOAT16]) == ["net_float16"]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("precision: float16\n    dtype: float64", "a model of float64 is kept in that"),
        ("precision: float16\n    precisions: {float16: {}}", "leave it out of `precisions`"),
        ("targets: [cpu]\n    precisions: {float16: {targets: [metal]}}", "which the entry is not"),
        ("precisions: {float16: {group: 32}}", "`group` is for the weight-only precisions"),
        ("precisions: {int8-static: {}}", "`calibration` is for int8-static, which needs it"),
        ("precisions: {int8: {calibration: a}}", "`calibration` is for int8-static, which needs"),
        ("precisions: {int8-static: {calibration: accuracy}}", "its entry has no gate, or several"),
        ("precisions: {float16: {max_degradation: 0.1}}", "needs `accuracy`, or speech's gate"),
        (
            "accuracy: {data: a.safetensors, max_degradation: 0.1, percent_max_degradation: 1}",
            "give one of `max_degradation` and `percent_max_degradation`",
        ),
    ],
)
def test_a_precision_that_cannot_be_is_a_fault(tmp_path: Path, line: str, fault: str) -> None:
    """Said with the entry's place."""
    (found,) = _faults(tmp_path, _file(("net", "vision")) + f"    {line}\n")
    assert fault in found


def test_a_variants_slack_is_its_gates(tmp_path: Path) -> None:
    """By so many images the variant's count may differ; the entry's own may not."""
    text = _file(("net", "vision"))
    gate = "    accuracy: {data: held_out.safetensors}\n"
    (tmp_path / "a.yaml").write_text(
        f"{text}{gate}    precisions: {{int8-weight-only: {{slack: 2}}}}\n"
    )
    manifest = load_manifest(tmp_path)
    slacks = {name: spec.accuracy and spec.accuracy.slack for name, spec in manifest.models.items()}
    assert slacks == {"net": 0, "net_int8_weight_only": 2}


def test_a_variants_largest_loss_replaces_its_gates(tmp_path: Path) -> None:
    """Of the two ways to say it, the variant's own; float32 keeps its tolerance all the same."""
    gate = "    accuracy: {data: held_out.safetensors, max_degradation: 0.05}\n"
    kinds = "float16: {percent_max_degradation: 1}, int8-weight-only: {}"
    text = f"{_file(('net', 'vision'))}{gate}    precisions: {{{kinds}}}\n"
    (tmp_path / "a.yaml").write_text(text)
    models = load_manifest(tmp_path).models
    losses = {n: spec.accuracy and spec.accuracy.allowed(200, 0.5) for n, spec in models.items()}
    assert losses == {"net": 10, "net_float16": 1, "net_int8_weight_only": 10}
    judged = {name: spec.accuracy_judges for name, spec in models.items()}
    assert judged == {"net": False, "net_float16": True, "net_int8_weight_only": True}
    assert models["net"].tolerance(Dtype.FLOAT32) == DEFAULT_TOLERANCES[Dtype.FLOAT32]


def test_a_precision_takes_no_others_name(tmp_path: Path) -> None:
    """An entry called as another's variant would be."""
    text = _file(("net_float16", "vision"), ("net", "vision"))
    (found,) = _faults(tmp_path, f"{text}    precisions: {{float16: {{}}}}\n")
    assert "models.net: the name net_float16 is taken, by " in found


def test_origin_is_file_and_line(manifest: Manifest, tmp_path: Path) -> None:
    """An entry can be opened where it is written."""
    assert manifest.origins["resnet50"] == Origin(tmp_path / "b.yaml", 10)


@pytest.mark.parametrize(
    ("patterns", "tags", "names"),
    [
        ([], [], ["digits", "resnet18"]),
        (["whisper"], [], ["whisper"]),
        (["resnet*", "whisper", "resnet18"], [], ["whisper", "resnet18", "resnet50"]),
        ([], ["vision"], ["resnet18", "resnet50"]),
        (["d*"], ["speech"], ["whisper", "digits"]),
        (["*"], [], ["whisper", "digits", "resnet18", "resnet50"]),
    ],
)
def test_selection(
    manifest: Manifest, patterns: list[str], tags: list[str], names: list[str]
) -> None:
    """Names, globs and tags add up; nothing asked means the tag `default`."""
    assert manifest.select(patterns, tags) == names


@pytest.mark.parametrize(
    ("patterns", "tags", "message"),
    [
        (["resnet81"], [], "resnet81: there is no such model. Did you mean 'resnet18'? "),
        (["zzz*"], [], "zzz*: no model's name matches. "),
        ([], ["visoin"], "tag visoin: no model has this tag. Did you mean 'vision'? "),
    ],
)
def test_selecting_nothing_is_misuse(
    manifest: Manifest, patterns: list[str], tags: list[str], message: str
) -> None:
    """Each pattern and tag must select something; the nearest name is suggested."""
    with pytest.raises(UsageError) as caught:
        manifest.select(patterns, tags)
    assert str(caught.value).startswith(message)


def test_unknown_names_are_misuse(manifest: Manifest) -> None:
    """`spec` suggests as `select` does."""
    with pytest.raises(UsageError, match="Did you mean 'digits'"):
        manifest.spec("digit")


_FAULTY = """\
version: 1
family: Some
models:
  resnet18:
    summary: a model
    sauce: 3
    source: {kind: torchvisoin, builder: resnet18}
    programs:
      - inputs:
          - {name: x, shape: [1, h]}
          - name: y
            shape: [1, 3.5, true, Wide]
            dtype: flaot32
          - {name: ids, shape: [1], dtype: int64}
        dimensions: {h: {low: 5, high: 2}}
        arguments: {a: [1]}
    targets: [gpu]
    licens: {spdx: MIT}
    tolerances: {float31: {absolute: 1}}
    tags: 5
  Bad:
    summary: [1]
    source: {kind: torchvision, biulder: resnet18}
    programs: []
    licence: {}
  again:
    source: {builder: resnet18}
    summary: twice
    summary: written
"""

_EXPECTED = """\
file.yaml:6: models.resnet18.sauce: unknown key; did you mean 'source'?
file.yaml:7: models.resnet18.source.kind: 'torchvisoin' is not a kind; did you mean 'torchvision'?
file.yaml:12: models.resnet18.programs[0].inputs[1].shape[1]: an axis is a size of at least 1 or \
the name of a dimension; 3.5 is not
file.yaml:12: models.resnet18.programs[0].inputs[1].shape[2]: an axis is a size of at least 1 or \
the name of a dimension; True is not
file.yaml:12: models.resnet18.programs[0].inputs[1].shape[3]: an axis is a size of at least 1 or \
the name of a dimension; 'Wide' is not
file.yaml:13: models.resnet18.programs[0].inputs[1].dtype: 'flaot32' is not a dtype; \
did you mean 'float32'?
file.yaml:14: models.resnet18.programs[0].inputs[2]: an input of int64 needs \
`sample: {kind: integers, ...}`, `prefix_mask` or `ones`
file.yaml:15: models.resnet18.programs[0].dimensions.h: high (2) must exceed low (5)
file.yaml:16: models.resnet18.programs[0].arguments.a: [1] is of no kind that is allowed here
file.yaml:17: models.resnet18.targets[0]: 'gpu' is not a target; did you mean 'cpu'?
file.yaml:18: models.resnet18.licens: unknown key; did you mean 'licence'?
file.yaml:19: models.resnet18.tolerances.float31: 'float31' is not a key here; \
did you mean 'float32'?
file.yaml:20: models.resnet18.tags: should be a valid array; 5 is not
file.yaml:21: models.Bad: a name is lower-case letters, digits and underscores, and starts with a \
letter; 'Bad' is not
file.yaml:22: models.Bad.summary: should be a valid string; [1] is not
file.yaml:23: models.Bad.source.biulder: unknown key; did you mean 'builder'?
file.yaml:24: models.Bad.programs: must not be empty
file.yaml:25: models.Bad.licence.spdx: is missing
file.yaml:26: models.again.programs: is missing
file.yaml:26: models.again.licence: is missing
file.yaml:27: models.again.source.kind: is missing; \
known: checkpoint, factory, package, torchvision, transformers
file.yaml:29: models.again.summary: written twice, first on line 28
"""


def test_every_fault_is_reported_at_once(tmp_path: Path) -> None:
    """File, line, path, fact and the nearest known word, sorted by line; none twice."""
    assert _faults(tmp_path, _FAULTY) == _EXPECTED.splitlines()


_HEADS = """\
version: 1
family: Some
models:
  digits:
    summary: a model
    source: {kind: factory, builder: "zoo.models.builders.parakeet:spoken_digits"}
    programs:
      - {name: listen, inputs: [{name: samples, shape: [1, 720]}]}
    licence: {spdx: MIT}
    speech:
      frame: 320
      heads:
        main: {kind: ctc, blnk: 3}
        other: {kind: ctd, blank: 3}
        third: {blank: 3}
        fourth: {kind: attention, start: -1, end: 2, most_tokens: 9}
      vocabulary: {kind: plain, pieces: [a]}
"""


def test_faults_of_a_head_are_reported_where_they_are(tmp_path: Path) -> None:
    """A head of speech is judged as the kind that it says."""
    place = "models.digits.speech.heads"
    assert _faults(tmp_path, _HEADS) == [
        f"file.yaml:13: {place}.main.blnk: unknown key; did you mean 'blank'?",
        f"file.yaml:14: {place}.other.kind: 'ctd' is not a kind; did you mean 'ctc'?",
        f"file.yaml:15: {place}.third.kind: is missing; known: attention, ctc, transducer, whisper",
        f"file.yaml:16: {place}.fourth.start: should be greater than or equal to 0; -1 is not",
    ]


def test_faults_of_every_file_are_reported_at_once(tmp_path: Path) -> None:
    """One run shows what is wrong in all files."""
    (tmp_path / "a.yaml").write_text("version: 1\n")
    faults = _faults(tmp_path, "models: [", "b.yaml")
    assert [fault.split(":")[0] for fault in faults] == ["a.yaml", "a.yaml", "b.yaml"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version: 2\nmodles: {}\n", ["file.yaml:1: version: 2 is not supported"]),
        ("version: '1'\nfamily: a\nmodels: {}\n", ["file.yaml:1: version: '1' is not supported"]),
        ("- a\n", ["file.yaml:1: "]),
        ("just text\n", ["file.yaml:1: "]),
        ("version: 1\nfamily: a\nmodels: {}\n", ["file.yaml:3: models: "]),
        (
            _file(("one", "")).replace("tags: []", "tolerances: {float32: {absolute: .inf}}"),
            ["file.yaml:9: models.one.tolerances.float32.absolute: should be a finite number"],
        ),
        (
            _file(("one", "")).replace("[1, 3, 8, 8]", "['1', 3]"),
            ["file.yaml:7: models.one.programs[0].inputs[0].shape[0]: an axis"],
        ),
    ],
)
def test_single_faults(tmp_path: Path, text: str, expected: list[str]) -> None:
    """A foreign version hides the rest; text is never taken for a number, nor infinity for one."""
    found = _faults(tmp_path, text)
    assert len(found) == len(expected)
    for fault, start in zip(found, expected, strict=True):
        assert fault.startswith(start)


def test_a_name_belongs_to_one_file(tmp_path: Path) -> None:
    """The second entry of a name is a fault that points at the first."""
    (tmp_path / "a.yaml").write_text(_file(("one", "")))
    faults = _faults(tmp_path, _file(("two", ""), ("one", "")), "b.yaml")
    assert faults == [f"b.yaml:10: models.one: this name is taken, by {tmp_path}/a.yaml:4"]


def test_no_manifest_there(tmp_path: Path) -> None:
    """A folder without YAML and no folder at all are misuse."""
    with pytest.raises(UsageError, match="holds no"):
        load_manifest(tmp_path)
    with pytest.raises(UsageError, match="no such folder"):
        load_manifest(tmp_path / "missing")


def test_committed_schema_is_current() -> None:
    """Editors complete what is really read; `zoo schema -o zoo/models/schema.json` renews it."""
    committed = Path(zoo.models.__file__).parent / "schema.json"
    assert json.loads(committed.read_text()) == json_schema()


def test_reading_the_manifest_imports_no_heavy_library() -> None:
    """`zoo list` and skipping unchanged work stay quick and need no torch."""
    script = (
        "import sys, zoo.build_key, zoo.sources.fingerprint as f, zoo.manifest as m\n"
        "manifest = m.load_manifest()\n"
        "for n in manifest.models:\n"
        "    f.fingerprint(manifest.spec(n), origin=manifest.origins[n].file, random_weights=0)\n"
        "heavy = {'torch', 'torchvision', 'transformers', 'prefect', 'boto3', 'numpy'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
