"""Metal bundles through Session: eager's numbers, and programs that do not disturb each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors.numpy import load_file

from menagerie.session import Session
from menagerie.validation.findings import Verdict
from menagerie.validation.validate import Limits, validate
from zoo.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Callable

    Bundles = Callable[[str], Path]


def golden(bundle: Path) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The golden case's inputs and output."""
    tensors = load_file(bundle / "programs/main/golden.safetensors")
    inputs = {k.removeprefix("0/input/"): v for k, v in tensors.items() if "/input/" in k}
    return inputs, tensors["0/output/y"]


@pytest.mark.parametrize("name", ["net", "mixer", "packed", "rest"])
def test_results_are_eagers(metal_bundles: Bundles, name: str) -> None:
    """Convolutions, split views, products and products of integers give eager's numbers."""
    inputs, expected = golden(metal_bundles(name))
    with Session(metal_bundles(name), threads=1) as session:
        for _ in range(2):  # the second run takes the first one's buffers
            np.testing.assert_allclose(session.run(inputs)["y"], expected, rtol=1e-4, atol=1e-5)


def test_inputs_of_any_strides_are_read(metal_bundles: Bundles) -> None:
    """An input is brought to the device contiguous, whatever its strides on the host."""
    inputs, expected = golden(metal_bundles("mixer"))
    with Session(metal_bundles("mixer"), threads=1) as session:
        turned = np.asfortranarray(inputs["rows"])
        np.testing.assert_allclose(session.run({"rows": turned})["y"], expected, rtol=1e-4)


def test_one_of_two_models_can_go(metal_bundles: Bundles) -> None:
    """Two models, and one of them twice, live side by side; closing one harms none."""
    first = Session(metal_bundles("net"), threads=1)
    second = Session(metal_bundles("net"), threads=1)
    other = Session(metal_bundles("mixer"), threads=1)
    inputs, expected = golden(metal_bundles("net"))
    first.run(inputs)
    np.testing.assert_array_equal(first.run(inputs)["y"], second.run(inputs)["y"])
    first.close()
    np.testing.assert_allclose(second.run(inputs)["y"], expected, rtol=1e-4, atol=1e-5)
    second.close()
    rows, mixed = golden(metal_bundles("mixer"))
    np.testing.assert_allclose(other.run(rows)["y"], mixed, rtol=1e-4, atol=1e-5)
    other.close()


def test_twelve_loads_in_a_row(metal_bundles: Bundles) -> None:
    """Nothing of a model that is gone is in the way of the next one at its addresses."""
    inputs, expected = golden(metal_bundles("mixer"))
    for _ in range(12):
        with Session(metal_bundles("mixer"), threads=1) as session:
            np.testing.assert_allclose(session.run(inputs)["y"], expected, rtol=1e-4, atol=1e-5)


def test_two_programs_run_at_once(metal_bundles: Bundles) -> None:
    """Programs in different threads share nothing that either may change."""
    from concurrent.futures import ThreadPoolExecutor

    inputs, expected = golden(metal_bundles("net"))
    sessions = [Session(metal_bundles("net"), threads=1) for _ in range(2)]

    def run(session: Session) -> list[np.ndarray]:
        return [session.run(inputs)["y"] for _ in range(5)]

    with ThreadPoolExecutor(2) as pool:
        for results in pool.map(run, sessions):
            for result in results:
                np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    for session in sessions:
        session.close()


RUN_AND_END = """
import sys
import numpy as np
from menagerie.session import Session

sessions = []
for place in sys.argv[2:]:
    session = Session(*place.split(":"), threads=1)
    session.run({spec.name: np.ones(spec.shape, np.float32) for spec in session.inputs})
    sessions.append(session)
for index in sys.argv[1]:
    sessions[int(index)].close()
"""


def run_and_end(closing: str, *places: str) -> tuple[int, str]:
    """Of a process that runs programs, `folder:name`, and closes some by number: status, errors."""
    command = [sys.executable, "-c", RUN_AND_END, closing, *places]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stderr


@pytest.mark.parametrize("closing", ["01", "10", "1", ""])
def test_a_process_that_ran_two_bundles_ends(metal_bundles: Bundles, closing: str) -> None:
    """Whichever of two models is closed first, or not at all, the process ends with success."""
    places = [f"{metal_bundles(name)}:main" for name in ("net", "mixer")]
    assert run_and_end(closing, *places) == (0, "")


@pytest.mark.parametrize("closing", ["01", "10", "0", ""])
def test_a_process_that_ran_two_programs_ends(metal_bundles: Bundles, closing: str) -> None:
    """The same for two programs of one bundle."""
    bundle = metal_bundles("all")
    assert run_and_end(closing, f"{bundle}:net", f"{bundle}:mixer") == (0, "")


def test_validation_says_that_the_device_is_emulated(metal_bundles: Bundles) -> None:
    """In a fresh process without torch it passes; the report names the device, and no latency."""
    report = validate(metal_bundles("net"), limits=Limits(threads=1))
    assert report.verdict is Verdict.PASSED, report.detail
    assert report.second_model_coexists
    assert "emulated" in report.runtime
    assert [program.latency for program in report.programs] == [None]


def test_changed_shader_is_refused(metal_bundles: Bundles, tmp_path: Path) -> None:
    """Shaders are compiled only with the hash that the manifest gives them."""
    from shutil import copytree

    bundle = copytree(metal_bundles("mixer"), tmp_path / "bundle")
    shaders = bundle / "programs/main/kernels.metal"
    shaders.write_text(shaders.read_text().replace("kernel", "kernex", 1))
    inputs, _ = golden(bundle)
    with (
        Session(bundle, threads=1) as session,
        pytest.raises(SessionError, match=r"kernels\.metal: has sha256"),
    ):
        session.run(inputs)


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac has the device itself")
def test_times_of_an_emulated_device_are_called_so(metal_bundles: Bundles) -> None:
    """The emulator's times are not to be taken for a GPU's."""
    done = subprocess.run(
        [Path(sys.executable).with_name("menagerie"), "bench", metal_bundles("mixer"), "--seconds", "0"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("emulated: the times are of this machine's")
