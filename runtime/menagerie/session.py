"""Execution of a bundle from Python, with numpy and without PyTorch."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from menagerie.errors import ArtifactError, MenagerieError, SessionError
from menagerie.format.bundle_manifest import (
    MANIFEST,
    MODEL_SIGNATURE,
    SIGNATURE,
    BundleManifest,
    BundleProgram,
    TensorSpec,
    parse_manifest,
)
from menagerie.format.folder import read_manifest, read_signature
from menagerie.library import KernelTimeView, TensorView, available_targets, last_error, library
from menagerie.numerics import Dtype
from menagerie.tensor_files import stored
from menagerie.trust import allows_unsigned, check_signature, trusted_place
from menagerie.validation.findings import KernelTime

# Dtype numbers of include/menagerie.h. numpy has no bfloat16, so uint16 holds its bits.
_NUMBERS = {
    Dtype.UINT8: 0,
    Dtype.INT8: 1,
    Dtype.INT16: 2,
    Dtype.INT32: 3,
    Dtype.INT64: 4,
    Dtype.FLOAT16: 5,
    Dtype.FLOAT32: 6,
    Dtype.FLOAT64: 7,
    Dtype.BOOL: 11,
    Dtype.BFLOAT16: 15,
}
_threaded_in: dict[str, int] = {}  # target -> process that ran with several threads


class Session:
    """One program of a bundle, loaded and ready to run.

    Sessions are independent of each other. Calls on one session, from any threads, are served one
    after another: a run ends when its results have been copied. If the program keeps state
    between runs, each session has its own, and threads that share a session share it. The bundle's
    requirements on the machine, its signature and the library's hash are checked before
    loading, on the very bytes that are loaded.

    The weights are mapped from their file: truncating it while the session is open ends the
    process (SIGBUS). After a run with several threads, a forked child cannot run with several.

    Args:
        bundle: the bundle's folder.
        program: the name of the program to load.
        threads: the threads of a run. None: one for each processor that the process may use
            (its affinity, the quota of its control group), and only one for kernels of little
            work, judged by shapes alone. On a busy machine idle threads sleep instead of spinning.
        allow_unsigned: whether to run an unsigned bundle, which is unproven native code;
            None: the variable MENAGERIE_ALLOW_UNSIGNED decides.

    Raises:
        SessionError: the bundle is malformed, signed by no trusted key, does not fit this
            machine, or cannot be loaded.
    """

    def __init__(
        self,
        bundle: Path | str,
        program: str = "main",
        threads: int | None = None,
        *,
        allow_unsigned: bool | None = None,
    ) -> None:
        self._program = ctypes.c_void_p()
        self._one_call = threading.Lock()  # outputs belong to the program until its next call
        self._folder = Path(bundle)
        self._threads = threads or 0
        unsigned_too = allows_unsigned(allow_unsigned)
        manifest = checked_manifest(self._folder, unsigned_too=unsigned_too)
        self._spec = _program_named(program, manifest, self._folder)
        self._target = manifest.runtime
        if self._target not in (known := available_targets()):
            advice = f"This runtime has {', '.join(known)}"
            raise SessionError(str(self._folder), f"is for target {self._target}", advice)
        self._library = library(self._target)
        opened = ctypes.c_void_p()
        folder = os.fsencode(self._folder)
        if unsigned_too:
            status = self._library.menagerie_bundle_open(folder, ctypes.byref(opened))
        else:
            status = self._library.menagerie_bundle_open_signed(
                folder, os.fsencode(trusted_place()), ctypes.byref(opened)
            )
        self._check(status)
        try:
            status = self._library.menagerie_program_open(
                opened, program.encode(), _held(threads or 0), ctypes.byref(self._program)
            )
            self._check(status)
        finally:
            self._library.menagerie_bundle_close(opened)

    @property
    def can_be_profiled(self) -> bool:
        """Whether its kernels can be timed; a GPU's kernels outlast their calls."""
        return self._target == "cpu"

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The program's inputs, in its own order."""
        return self._spec.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The program's outputs, in its own order."""
        return self._spec.outputs

    @property
    def dimensions(self) -> Mapping[str, tuple[int, int, int]]:
        """The smallest and largest size and the step of each dynamic dimension, by name."""
        return self._spec.dimensions

    @property
    def keeps_state(self) -> bool:
        """Whether a run may depend on the runs before it; see `reset`."""
        return self._spec.state is not None

    @property
    def kernel_calls(self) -> int:
        """The number of kernel calls (convolutions, matrix products, ...) in all runs so far."""
        with self._one_call:
            return int(self._library.menagerie_program_kernel_calls(self._open_program()))

    def set_threads(self, threads: int) -> None:
        """Set the number of threads of later runs; 0: as for `None` when opening."""
        with self._one_call:
            count = _held(threads)
            self._threads = threads
            self._check(self._library.menagerie_program_set_threads(self._open_program(), count))

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the program once.

        `inputs` has an array of the exact dtype and shape, with any strides, for each input by
        name. Return a fresh, contiguous array for each output by name. bfloat16 is passed as its
        bits, in uint16. Raise SessionError if a name, dtype or shape is not what the program takes,
        the run fails, or an earlier one has lost the program's state.
        """
        views = (TensorView * len(self.inputs))()
        self._check_names(inputs)
        self._refuse_forked()
        kept = [self._array(spec, inputs[spec.name]) for spec in self.inputs]
        for view, spec, array in zip(views, self.inputs, kept, strict=True):
            _fill(view, spec, array)
        results = (TensorView * len(self.outputs))()
        with self._one_call:
            status = self._library.menagerie_program_run(
                self._open_program(), views, len(views), results, len(results)
            )
            self._check(status)
            return {
                spec.name: _copy_out(view, spec)
                for view, spec in zip(results, self.outputs, strict=True)
            }

    def set_profiling(self, *, on: bool) -> None:
        """Start or stop timing each kernel; earlier times are discarded.

        Raise SessionError if the session is closed or runs on a GPU, where kernels outlast their
        calls.
        """
        if on and not self.can_be_profiled:
            fact = f"kernels of {self._target} run on after their call, so they cannot be timed"
            raise SessionError(str(self._folder), fact, "Profile the release for the CPU")
        with self._one_call:
            library = self._library
            self._check(library.menagerie_program_set_profiling(self._open_program(), int(on)))

    def kernel_times(self) -> tuple[KernelTime, ...]:
        """Return kernels' times since `set_profiling`, longest first; SessionError if untimed."""
        count = ctypes.c_size_t()
        with self._one_call:
            program, ask = self._open_program(), self._library.menagerie_program_kernel_times
            self._check(ask(program, None, 0, ctypes.byref(count)))
            views = (KernelTimeView * count.value)()
            self._check(ask(program, views, len(views), ctypes.byref(count)))
            found = [
                KernelTime(
                    kernel=view.name.decode(),
                    calls=view.calls,
                    milliseconds=view.milliseconds,
                    flops=view.flops,
                    bytes=view.bytes,
                )
                for view in views
            ]
        return tuple(sorted(found, key=lambda each: -each.milliseconds))

    def reset(self) -> None:
        """Restore the program's state to that of a newly opened session.

        This has no effect on a program without state. A run that fails during computation loses the
        state: the session then refuses runs until it is reset. Raise SessionError if
        the session is closed, or the state cannot be written.
        """
        with self._one_call:
            self._check(self._library.menagerie_program_reset(self._open_program()))

    def close(self) -> None:
        """Unload the program; a second call does nothing."""
        with self._one_call:
            if self._program.value is not None:
                self._library.menagerie_program_close(self._program)
                self._program = ctypes.c_void_p()

    def __enter__(self) -> Session:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_one_call"):  # otherwise its arguments were refused
            self.close()

    def _open_program(self) -> ctypes.c_void_p:
        if self._program.value is None:
            raise SessionError(str(self._folder), "the session is closed")
        return self._program

    def _check(self, status: int) -> None:
        if status == 0:
            return
        message = last_error(self._target)
        place, _, fact = message.partition(": ")
        if fact and place.startswith(str(self._folder)):
            raise SessionError(place, fact)
        raise SessionError(str(self._folder), message)

    def _refuse_forked(self) -> None:
        """Raise SessionError in a forked child, which would wait for its parent's threads."""
        if self._threads == 1:
            return
        here, before = os.getpid(), _threaded_in.get(self._target)
        if before not in {None, here}:
            fact = f"this process was forked from {before}, which had run with several threads"
            advice = "Start processes by `spawn`, run before forking only with threads=1, or now"
            raise SessionError(str(self._folder), fact, advice)
        _threaded_in[self._target] = here

    def _check_names(self, inputs: Mapping[str, np.ndarray]) -> None:
        wanted = [spec.name for spec in self.inputs]
        missing = [name for name in wanted if name not in inputs]
        unknown = sorted(set(inputs) - set(wanted))
        if missing or unknown:
            fact = ", ".join(
                [f"input {name} is missing" for name in missing]
                + [f"there is no input {name}" for name in unknown]
            )
            advice = f"Program {self._spec.name} takes {', '.join(wanted)}"
            raise SessionError(str(self._folder), fact, advice)

    def _array(self, spec: TensorSpec, array: np.ndarray) -> np.ndarray:
        if not isinstance(array, np.ndarray):
            raise SessionError(str(self._folder), f"input {spec.name} is not a numpy array")
        array = np.ndarray.view(array, np.ndarray)  # a subclass may misreport its shape
        wanted = stored(spec.dtype)
        if array.dtype != wanted:
            fact = f"input {spec.name} has dtype {array.dtype}, the program takes {wanted}"
            raise SessionError(str(self._folder), fact, f"Convert it: .astype(numpy.{wanted})")
        if array.ndim != len(spec.shape):
            fact = f"input {spec.name} has {array.ndim} axes, the program takes {len(spec.shape)}"
            raise SessionError(str(self._folder), fact)
        plain = array.flags.aligned and all(
            stride >= 0 and stride % array.itemsize == 0 for stride in array.strides
        )
        return array if plain else array.copy(order="C")


def _held(threads: int) -> int:
    """Return `threads` if C's int32_t holds it, since ctypes would truncate it."""
    if not -(2**31) <= threads < 2**31:
        raise SessionError("threads", f"{threads} is not a number of threads", "Give 1 to 1024")
    return threads


def checked_manifest(folder: Path, *, unsigned_too: bool) -> BundleManifest:
    """Read a bundle's manifest; SessionError if it is malformed or no trusted key signed it."""
    path = folder / MANIFEST
    try:
        document = read_manifest(path)
        if not unsigned_too:
            signature = read_signature(folder)
            if signature is None and (folder / MODEL_SIGNATURE).exists():
                fact = f"is damaged: {SIGNATURE} is missing"
                raise ArtifactError(str(folder), fact, "Pull it again")
            check_signature(document, signature, str(folder))
        return parse_manifest(document, str(path))
    except MenagerieError as error:
        raise SessionError(error.place, error.fact, error.next_step) from error


def _program_named(name: str, manifest: BundleManifest, folder: Path) -> BundleProgram:
    for program in manifest.programs:
        if program.name == name:
            return program
    known = ", ".join(program.name for program in manifest.programs)
    fact = f"has no program {name!r}"
    raise SessionError(str(folder), fact, f"It has: {known}. Name one as `program`")


def _fill(view: TensorView, spec: TensorSpec, array: np.ndarray) -> None:
    view.data = array.ctypes.data
    view.dtype = _NUMBERS[spec.dtype]
    view.dimensions = array.ndim
    for axis in range(array.ndim):
        view.sizes[axis] = array.shape[axis]
        view.strides[axis] = array.strides[axis] // array.itemsize


def _copy_out(view: TensorView, spec: TensorSpec) -> np.ndarray:
    dtype = stored(spec.dtype)
    if view.dtype != _NUMBERS[spec.dtype]:
        fact = f"has dtype number {view.dtype}, the manifest says {spec.dtype}"
        raise SessionError(f"output {spec.name}", fact)
    shape = tuple(view.sizes[: view.dimensions])
    strides = tuple(stride * dtype.itemsize for stride in view.strides[: view.dimensions])
    if 0 in shape:
        return np.empty(shape, dtype)
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    memory = (ctypes.c_byte * (last + dtype.itemsize)).from_address(view.data or 0)
    lent = np.ndarray(shape, dtype, buffer=memory, strides=strides)
    return np.array(lent, order="C", copy=True)
