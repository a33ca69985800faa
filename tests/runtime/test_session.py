"""Lowered models, end to end: values, errors, several in one process, none of torch."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

import menagerie.library as library_module
import menagerie.session as session_module
from menagerie import Session
from zoo.errors import SessionError

Arrays = dict[str, NDArray[Any]]
Bundles = Callable[[str], Path]

RUN_ALONE = """
import json, sys
import numpy as np
from safetensors.numpy import load_file, save_file
import menagerie.library as library_module
from menagerie import Session

folder, out = sys.argv[1:]
golden = load_file(f"{folder}/programs/main/golden.safetensors")
with Session(folder, threads=1) as session:
    inputs = {spec.name: golden[f"0/input/{spec.name}"] for spec in session.inputs}
    save_file(session.run(inputs), out)
    calls = session.kernel_calls
maps = open("/proc/self/maps").read()
print(json.dumps({
    "calls": calls,
    "modules": [m for m in sys.modules if m.split(".")[0] in ("torch", "prefect")],
    "libraries": [w for w in maps.split() if "torch" in w],
}))
"""


def golden(bundle: Path) -> tuple[Arrays, Arrays]:
    """Inputs and eager's outputs of the bundle's golden case."""
    tensors = load_file(bundle / "programs/main/golden.safetensors")
    sides: dict[str, Arrays] = {"input": {}, "output": {}}
    for name, value in tensors.items():
        _, side, tensor = name.split("/")
        sides[side][tensor] = value
    return sides["input"], sides["output"]


def assert_equal(actual: Arrays, expected: Arrays) -> None:
    """Equal names, dtypes and shapes, and values within single precision."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert actual[name].dtype == value.dtype
        np.testing.assert_allclose(actual[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["image", "sequence"])
def test_model_runs_alone_without_torch(bundles: Bundles, tmp_path: Path, name: str) -> None:
    """In a clean process a lowered model gives eager's values, and nothing of torch is loaded."""
    bundle, out = bundles(name), tmp_path / "out.safetensors"
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALONE, str(bundle), str(out)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["calls"] > 0
    assert facts["modules"] == facts["libraries"] == []
    assert_equal(load_file(out), golden(bundle)[1])


@pytest.mark.parametrize("name", ["image", "sequence"])
def test_model_library_needs_nothing_of_torch(bundles: Bundles, name: str) -> None:
    """The model's library names no library of torch and no absolute path."""
    library = bundles(name) / "programs/main/model.so"
    dynamic = subprocess.run(
        [shutil.which("readelf") or "readelf", "-d", str(library)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    needed = [line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "NEEDED" in line]
    assert "libmenagerie_cpu.so" in needed
    assert not [name for name in needed if "torch" in name or "/" in name]
    assert "RPATH" not in dynamic
    assert "RUNPATH" not in dynamic


@pytest.mark.parametrize("name", ["image", "sequence"])
def test_model_library_loads_on_a_linux_of_2018(bundles: Bundles, name: str) -> None:
    """No symbol of a glibc above 2.28, none of a C++ library, and of GCC's what GCC 8 had."""
    listing = subprocess.run(
        [shutil.which("objdump") or "objdump", "-T", bundles(name) / "programs/main/model.so"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    found = set(re.findall(r"\b(GLIBC|GCC|GOMP|OMP|GLIBCXX|CXXABI)_([\d.]+)", listing))
    newest = {kind: max(_version(v) for k, v in found if k == kind) for kind, _ in found}
    assert newest.pop("GLIBC") <= (2, 28)
    assert newest.pop("GCC") <= (7, 0)
    assert newest.pop("GOMP", (0,)) <= (4, 5)
    assert newest.pop("OMP", (0,)) <= (4, 5)
    assert not newest
    defined = [line for line in listing.splitlines() if " DF .text" in line]
    assert defined
    assert all("AOTInductor" in line for line in defined)


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.strip(".").split(".")))


def test_another_process_lowers_to_the_same_bytes(bundles: Bundles, tmp_path: Path) -> None:
    """In another folder, with another hash seed, number of threads and time zone."""
    made = bundles("image") / "programs/main/model.so"
    code = "import sys; from conftest import lower_specimen; lower_specimen(*sys.argv[1:])"
    tests = Path(__file__).parent
    environment = {
        "PYTHONHASHSEED": "77", "OMP_NUM_THREADS": "1", "TZ": "Pacific/Kiritimati",
        "TMPDIR": str(tmp_path), "PYTHONPATH": str(tests),
    }  # fmt: skip
    subprocess.run(
        [sys.executable, "-c", code, "image", str(tmp_path / "a longer name")],
        check=True, env=os.environ | environment, cwd=tmp_path,
    )  # fmt: skip
    again = tmp_path / "a longer name" / "programs/main/model.so"
    assert again.read_bytes() == made.read_bytes()


def test_model_finds_our_shims_beside_libtorch(bundles: Bundles, tmp_path: Path) -> None:
    """With libtorch in the global scope the model still calls this runtime, and eager its own."""
    bundle = bundles("image")
    code = (
        "import os, sys, ctypes; sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)\n"
        "import torch\n"
        "assert hasattr(ctypes.CDLL(None), 'aoti_torch_empty_strided'), 'libtorch is not global'\n"
        + RUN_ALONE
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(bundle), str(tmp_path / "out.safetensors")],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["calls"] > 0
    assert_equal(load_file(tmp_path / "out.safetensors"), golden(bundle)[1])


def test_runs_from_another_place(bundles: Bundles, tmp_path: Path) -> None:
    """A bundle holds no path of where it was made: a copy elsewhere works."""
    elsewhere = tmp_path / "a folder"
    shutil.copytree(bundles("image"), elsewhere)
    inputs, outputs = golden(elsewhere)
    with Session(elsewhere, threads=1) as session:
        assert_equal(session.run(inputs), outputs)


def test_a_bundle_that_took_anothers_place_is_the_one_that_runs(
    bundles: Bundles, tmp_path: Path
) -> None:
    """Libraries stay loaded, yet one that has taken the path of another is loaded for itself."""
    place = tmp_path / "latest"
    for name in ("image", "sequence", "image"):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(bundles(name), place)
        inputs, outputs = golden(place)
        with Session(place, threads=1) as session:
            assert_equal(session.run(inputs), outputs)


def test_a_model_opened_again_is_not_mapped_again(bundles: Bundles) -> None:
    """What stays of a closed model is its library, once."""

    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count(str(bundles("image")))

    for _ in range(2):
        Session(bundles("image"), threads=1).close()
    once = mapped()
    Session(bundles("image"), threads=1).close()
    assert mapped() == once


@pytest.mark.parametrize("length", [2, 6, 30, 48])
def test_dynamic_length_equals_eager(bundles: Bundles, specimens: Any, length: int) -> None:
    """Every size of a dynamic dimension, first and again, gives what eager gives."""
    frames = torch.randn(1, length, 8)
    keep = torch.ones(1, length, dtype=torch.bool)
    with torch.no_grad():
        scores, count = specimens["sequence"].module(frames, keep)
    with Session(bundles("sequence"), threads=1) as session:
        for _ in range(2):
            actual = session.run({"frames": frames.numpy(), "keep": keep.numpy()})
            assert_equal(actual, {"out0": scores.numpy(), "out1": count.numpy()})


def test_input_of_any_strides(bundles: Bundles) -> None:
    """Transposed, reversed and shifted arrays are taken as what they say."""
    inputs, outputs = golden(bundles("image"))
    image = inputs["image"]
    with Session(bundles("image"), threads=1) as session:
        for same in (
            np.asfortranarray(image),
            image[..., ::-1].copy()[..., ::-1],
            np.pad(image, ((0, 0), (0, 0), (1, 1), (2, 2)))[:, :, 1:-1, 2:-2],
        ):
            assert_equal(session.run({"image": same}), outputs)


def test_outputs_outlive_the_session(bundles: Bundles) -> None:
    """Results are the caller's own: neither a later run nor closing changes them."""
    inputs, outputs = golden(bundles("image"))
    with Session(bundles("image"), threads=1) as session:
        first = session.run(inputs)
        session.run({"image": inputs["image"] * 0})
    assert_equal(first, outputs)


def test_runs_are_deterministic(bundles: Bundles) -> None:
    """The same input gives the same bits, run after run."""
    inputs, _ = golden(bundles("image"))
    with Session(bundles("image"), threads=2) as session:
        first, second = (session.run(inputs)["out0"].tobytes() for _ in range(2))
    assert first == second


def test_two_models_share_nothing(bundles: Bundles) -> None:
    """Two models run side by side and in turn; destroying one does not touch the other."""
    image_in, image_out = golden(bundles("image"))
    sequence_in, sequence_out = golden(bundles("sequence"))
    image, sequence = (Session(bundles(n), threads=1) for n in ("image", "sequence"))
    second = Session(bundles("image"), threads=1)
    assert_equal(image.run(image_in), image_out)
    assert_equal(sequence.run(sequence_in), sequence_out)
    assert_equal(second.run(image_in), image_out)
    calls = image.kernel_calls
    image.close()
    assert_equal(second.run(image_in), image_out)
    assert_equal(sequence.run(sequence_in), sequence_out)
    assert second.kernel_calls == 2 * calls > 0
    second.close()
    sequence.close()


@pytest.mark.parametrize("threads", [2**32 + 1, -(2**32), 5000, -1])
def test_impossible_numbers_of_threads_are_refused(bundles: Bundles, threads: int) -> None:
    """None wraps round to a number that would be taken: 2^32 + 1 is not 1."""
    with pytest.raises(SessionError, match="threads"):
        Session(bundles("image"), threads=threads)
    with (
        Session(bundles("image"), threads=1) as session,
        pytest.raises(SessionError, match="threads"),
    ):
        session.set_threads(threads)


def test_threads_run_their_own_models_at_once(bundles: Bundles) -> None:
    """Sessions in several threads, and one shared by them, give eager's values."""
    inputs, outputs = golden(bundles("image"))
    shared = Session(bundles("image"), threads=1)
    faults: list[BaseException] = []

    def work() -> None:
        try:
            with Session(bundles("image"), threads=1) as own:
                for _ in range(5):
                    assert_equal(own.run(inputs), outputs)
                    assert_equal(shared.run(inputs), outputs)
        except BaseException as fault:  # noqa: BLE001  (reported to the main thread)
            faults.append(fault)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shared.close()
    assert faults == []


OTHER_CALLS: dict[str, Callable[[Session, Arrays], object]] = {
    "run": lambda session, inputs: session.run(inputs),
    "close": lambda session, _: session.close(),
    "set_threads": lambda session, _: session.set_threads(1),
}


@pytest.mark.parametrize("call", OTHER_CALLS)
def test_no_call_comes_between_a_run_and_its_results(
    bundles: Bundles, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A run's results are copied before another thread's call on the session is served."""
    inputs, outputs = golden(bundles("image"))
    session = Session(bundles("image"), threads=1)
    events: list[str] = []
    copy_out = session_module._copy_out

    def other() -> None:
        OTHER_CALLS[call](session, {"image": inputs["image"] * 0})
        events.append("other call served")

    thread = threading.Thread(target=other)

    def slow_copy_out(*arguments: Any) -> NDArray[Any]:
        if not events:
            events.append("copying")
            thread.start()
            thread.join(0.5)  # time enough for a call that does not wait
            events.append("copied")
        return copy_out(*arguments)

    monkeypatch.setattr(session_module, "_copy_out", slow_copy_out)
    assert_equal(session.run(inputs), outputs)
    thread.join()
    session.close()
    assert events == ["copying", "copied", "other call served"]


def test_twelve_loads_in_a_row(bundles: Bundles) -> None:
    """Loading and unloading again and again works; no file stays open, no weights stay mapped."""
    inputs, outputs = golden(bundles("image"))
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(12):
        with Session(bundles("image"), threads=1) as session:
            assert_equal(session.run(inputs), outputs)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert str(bundles("image") / "w.safetensors") not in Path("/proc/self/maps").read_text()


def test_threads_can_be_changed(bundles: Bundles) -> None:
    """Another number of threads gives the same values; a senseless one is refused."""
    inputs, outputs = golden(bundles("image"))
    with Session(bundles("image")) as session:
        for threads in (1, 2, 0):
            session.set_threads(threads)
            assert_equal(session.run(inputs), outputs)
        with pytest.raises(SessionError, match="threads must lie in"):
            session.set_threads(-1)


GOOD = np.zeros((1, 3, 20, 20), np.float32)

INPUT_FAULTS: list[tuple[Arrays, str]] = [
    ({}, "input image is missing. Program main takes image"),
    ({"image": GOOD, "mask": GOOD}, "there is no input mask"),
    ({"image": GOOD.astype(np.float64)}, "has dtype float64, the program takes float32"),
    ({"image": GOOD[0]}, "has 3 axes, the program takes 4"),
    ({"image": GOOD.reshape((1,) * 13 + GOOD.shape)}, "has 17 axes, the program takes 4"),
    ({"image": GOOD[:, :, :9]}, "axis 2 has size 9, the program takes 20"),
    ({"image": [1.0]}, "is not a numpy array"),  # type: ignore[dict-item]
]


@pytest.mark.parametrize(("inputs", "fact"), INPUT_FAULTS)
def test_wrong_input_is_refused(bundles: Bundles, inputs: Arrays, fact: str) -> None:
    """A wrong name, dtype or shape is an error that says what the program takes."""
    with Session(bundles("image"), threads=1) as session, pytest.raises(SessionError, match=fact):
        session.run(inputs)


@pytest.mark.parametrize(
    ("frames", "keep", "fact"),
    [
        (50, 50, "axis 1 has size 50, the program takes 2 to 48 .frames_count."),
        (7, 7, "frames_count must be a multiple of 2"),
        (8, 6, "frames_count is 8"),
    ],
)
def test_dynamic_sizes_are_checked(bundles: Bundles, frames: int, keep: int, fact: str) -> None:
    """Sizes outside the range, between its steps, or at odds with each other are refused."""
    inputs = {"frames": np.zeros((1, frames, 8), np.float32), "keep": np.ones((1, keep), bool)}
    with Session(bundles("sequence"), threads=1) as s, pytest.raises(SessionError, match=fact):
        s.run(inputs)


def test_closed_session_is_refused(bundles: Bundles) -> None:
    """After closing, a session says that it is closed; closing twice does nothing."""
    session = Session(bundles("image"), threads=1)
    session.close()
    session.close()
    with pytest.raises(SessionError, match="the session is closed"):
        session.run({"image": GOOD})


def test_unknown_program_is_refused(bundles: Bundles) -> None:
    """A program that the bundle lacks is answered with those it has."""
    with pytest.raises(SessionError, match=r"has no program 'decoder'\. It has: main"):
        Session(bundles("image"), "decoder")


def damaged(bundle: Path, folder: Path, file: str, content: bytes) -> Path:
    """A copy of a bundle with one file replaced, unsealed."""
    shutil.copytree(bundle, folder)
    (folder / file).write_bytes(content)
    return folder


def test_changed_library_is_not_loaded(bundles: Bundles, tmp_path: Path) -> None:
    """A library whose bytes are not the sealed ones is refused before any of it can run."""
    original = (bundles("image") / "programs/main/model.so").read_bytes()
    changed = original[:-1] + bytes([original[-1] ^ 1])
    folder = damaged(bundles("image"), tmp_path / "b", "programs/main/model.so", changed)
    with pytest.raises(SessionError, match=r"model\.so: has sha256"):
        Session(folder)


def test_truncated_weights_are_not_mapped(bundles: Bundles, tmp_path: Path) -> None:
    """Weights that are shorter than sealed are refused before they are read."""
    content = (bundles("image") / "w.safetensors").read_bytes()[:-4]
    folder = damaged(bundles("image"), tmp_path / "b", "w.safetensors", content)
    with pytest.raises(SessionError, match=r"w\.safetensors: is .* bytes long, the manifest says"):
        Session(folder)


def edited(bundle: Path, folder: Path, **changes: Any) -> Path:
    """A copy of a bundle with members of `requires`, of the program or its platform changed."""
    shutil.copytree(bundle, folder)
    path = folder / "manifest.json"
    fields = json.loads(path.read_text())
    for name, value in changes.items():
        places = [fields["requires"], fields["programs"][0], fields]
        next(place for place in places if name in place)[name] = value
    path.write_text(json.dumps(fields))
    return folder


OUTPUT = {"name": "out0", "dtype": "float32", "shape": [1, 5]}


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"instructions": ["avx2", "avx9000"]}, "needs processor instructions avx9000"),
        ({"machine": "pdp11", "platform": "cpu-linux-pdp11"}, "on pdp11, this is"),
        ({"runtime_abi": 7}, "needs runtime ABI 7"),
        ({"constants": {}}, "the manifest gives no weights for"),
        (
            {"outputs": [OUTPUT | {"name": n} for n in "ab"]},
            "gives 1 outputs, the manifest lists 2",
        ),
    ],
)
def test_unfit_bundle_is_refused(
    bundles: Bundles, tmp_path: Path, change: dict[str, Any], fact: str
) -> None:
    """What the machine lacks, and what does not fit the library, is found at opening."""
    with pytest.raises(SessionError, match=fact):
        Session(edited(bundles("image"), tmp_path / "b", **change))


def test_refused_arguments_leave_no_second_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `TypeError` is all that is said: there is nothing to unload."""
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    with pytest.raises(TypeError, match="thread"):
        Session("out", thread=2)  # type: ignore[call-arg]
    gc.collect()
    assert said == []


def test_swapped_weights_are_refused(bundles: Bundles, tmp_path: Path) -> None:
    """A constant that is given another tensor than the library wants is refused."""
    constants = json.loads((bundles("image") / "manifest.json").read_text())["programs"][0][
        "constants"
    ]
    names = sorted(constants)
    swapped = dict(zip(names, [constants[n] for n in reversed(names)], strict=True))
    with pytest.raises(SessionError, match="the library wants"):
        Session(edited(bundles("image"), tmp_path / "b", constants=swapped))


def test_old_processor_is_refused(tmp_path: Path) -> None:
    """Where the library's instructions are missing, that is said before it is loaded."""
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nflags : fpu sse sse2 avx\n")
    with pytest.raises(SessionError, match="needs processor instructions avx2, bmi2, f16c, fma"):
        library_module._check_processor(tmp_path / "library.so", cpuinfo)
