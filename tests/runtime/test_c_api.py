"""The C API, from a program in C that has nothing of Python."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from menagerie.library import library_path
from menagerie.shims import SHIMS_FILE

Bundles = Callable[[str], Path]

PROGRAM = """
#include <menagerie.h>
#include <stdio.h>
#include <string.h>

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\\n", what, menagerie_last_error());
  return 1;
}

int main(int argc, char** argv) {
  menagerie_bundle* bundle = NULL;
  menagerie_program* program = NULL;
  menagerie_tensor_spec spec;
  menagerie_tensor input, output;
  static float image[1 * 3 * 20 * 20];
  if (argc != 2) return 2;
  if (fread(image, sizeof image, 1, stdin) != 1) return 2;
  if (menagerie_bundle_open(argv[1], &bundle)) return fail("bundle");
  if (menagerie_bundle_verify(bundle)) return fail("verify");
  if (menagerie_program_open(bundle, menagerie_bundle_program_name(bundle, 0), 1, &program))
    return fail("program");
  menagerie_bundle_close(bundle);
  if (menagerie_program_input(program, 0, &spec)) return fail("input");
  if (menagerie_program_input(program, 9, &spec) == MENAGERIE_OK) return 3;

  memset(&input, 0, sizeof input);
  input.data = image;
  input.dtype = spec.dtype;
  input.dimensions = spec.dimensions;
  long long stride = 1;
  for (int axis = spec.dimensions; axis-- > 0;) {
    input.sizes[axis] = spec.highest[axis];
    input.strides[axis] = stride;
    stride *= spec.highest[axis];
  }
  for (int run = 0; run < 2; ++run)
    if (menagerie_program_run(program, &input, 1, &output, 1)) return fail("run");
  input.sizes[2] = 19;
  if (menagerie_program_run(program, &input, 1, &output, 1) == MENAGERIE_OK) return 3;
  fprintf(stderr, "%s\\n", menagerie_last_error());
  input.sizes[2] = 20;
  if (menagerie_program_run(program, &input, 1, &output, 1)) return fail("run");
  for (long long i = 0; i < output.sizes[1]; ++i)
    printf("%.9g\\n", ((float*)output.data)[i * output.strides[1]]);
  menagerie_program_close(program);
  return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program above, compiled as strict C and linked against nothing but the runtime."""
    folder = tmp_path_factory.mktemp("c")
    source, target, library = folder / "main.c", folder / "main", library_path()
    source.write_text(PROGRAM)
    command = [
        shutil.which("cc") or "gcc", "-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror",
        f"-I{SHIMS_FILE.parents[1] / 'include'}", str(source), f"-L{library.parent}", "-lmenagerie_cpu",
        f"-Wl,-rpath,{library.parent}", "-o", str(target),
    ]  # fmt: skip
    subprocess.run(command, check=True)
    return target


def test_c_program_gets_eagers_values(bundles: Bundles, program: Path) -> None:
    """Open, verify, describe, run again and again: eager's values, and errors as one line."""
    golden = load_file(bundles("image") / "programs/main/golden.safetensors")
    done = subprocess.run(
        [str(program), str(bundles("image"))],
        input=golden["0/input/image"].tobytes(), capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == b"input image: axis 2 has size 19, the program takes 20\n"
    values = np.array(done.stdout.split(), np.float32)
    np.testing.assert_allclose(values, golden["0/output/out0"][0], rtol=1e-4, atol=1e-5)


def test_c_program_learns_what_is_wrong(program: Path, tmp_path: Path) -> None:
    """A bundle that is not there is an error code and a message, not a crash."""
    done = subprocess.run(
        [str(program), str(tmp_path)], input=bytes(4 * 1200), capture_output=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith(b"bundle: ")
    assert b"manifest.json: cannot be opened" in done.stderr
