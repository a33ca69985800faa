"""Lowering for Metal: what is in a bundle, for which Macs, and that nothing of this host is."""

from __future__ import annotations

import copy
import inspect
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from tests.pieces import Apply, assert_as_eager
from tests.transforms.lowering.linked_library import LinkedLibrary
from transforms import convert, run_passes
from transforms.lowering import metal
from transforms.lowering.inductor import metal_header
from transforms.lowering.result import host_requirements
from transforms.targets import target_named
from zoo.errors import LoweringError, UnsupportedKernels
from zoo.models.torchvision_operators import torchvision_operators

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch.export import ExportedProgram

    from transforms.lowering.result import LoweredProgram


def test_library_is_for_macs_with_apple_silicon(dylib: Path) -> None:
    """arm64 (or the reader refuses), macOS 15 at least, at least ad-hoc signed, relocatable."""
    linked = LinkedLibrary(dylib)
    assert linked.deployment_target == "15.0"
    assert linked.signed
    assert linked.install_name == "@rpath/model.dylib"
    assert linked.search_paths == []


def test_shims_bind_to_our_runtime_by_name(dylib: Path) -> None:
    """With a libtorch loaded that has the same names, the model still finds ours."""
    linked = LinkedLibrary(dylib)
    assert linked.two_level
    shims = {s: home for s, home in linked.imports().items() if s.startswith("aoti_torch_")}
    assert "aoti_torch_mps_finished_convolution" in shims
    assert set(shims.values()) == {"@rpath/libmenagerie_metal.dylib"}
    assert set(linked.needed) == {"/usr/lib/libSystem.B.dylib", "@rpath/libmenagerie_metal.dylib"}


def test_container_is_exported(dylib: Path) -> None:
    """The runtime finds the functions by which it makes and runs the model."""
    exports = LinkedLibrary(dylib).exports
    assert {
        "AOTInductorModelContainerCreateWithDevice",
        "AOTInductorModelContainerRun",
        "AOTInductorModelContainerUpdateUserManagedConstantBufferPairs",
    } <= exports


def test_record_says_what_is_imported(lowered: LoweredProgram) -> None:
    """Symbols are those of the Mach-O library; kernels those of them that compute."""
    record = lowered.record
    imports = LinkedLibrary(lowered.library).imports()
    assert set(record.symbols) == {s for s in imports if s.startswith("aoti_torch_")}
    assert record.fallback_kernels == (
        "aoti_torch_mps_addmm_out",
        "aoti_torch_mps_finished_convolution",
    )
    assert record.library_bytes == lowered.library.stat().st_size


def test_the_emulation_library_needs_the_same_shims(lowered: LoweredProgram) -> None:
    """The library to emulate imports what the Mach-O does, and names our runtime as needed."""
    library = lowered.files["emulation"]
    assert library.source_sha256 is not None
    assert library.requires == host_requirements()
    shown = subprocess.run(
        ["readelf", "--dyn-syms", "--dynamic", "--wide", str(library.path)],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "libmenagerie_metal.so" in re.findall(r"NEEDED.*\[(.*)\]", shown)
    undefined = set(re.findall(r"UND (aoti_torch_\w+)", shown))
    assert undefined == set(lowered.record.symbols)


def test_shaders_are_stored_once_and_without_the_header(lowered: LoweredProgram) -> None:
    """As many kernels as the record says, each under a name of its own."""
    text = lowered.files["shaders"].path.read_text()
    names = re.findall(r"kernel void (\w+)\(", text)
    assert len(set(names)) == len(names) == lowered.record.generated_kernels > 0
    assert len(text) < len(metal_header())


def test_weights_are_plain(lowered: LoweredProgram, small: ExportedProgram) -> None:
    """Row-major whatever the model had, with the model's values."""
    weight = lowered.constants["head.weight"]
    assert weight.is_contiguous()
    assert torch.equal(weight.cpu(), small.state_dict["head.weight"])
    assert not small.state_dict["head.weight"].is_contiguous()


def _lower(program: ExportedProgram, folder: Path) -> LoweredProgram:
    """As a target does: by its passes for the device, then by code generation."""
    metal_target = target_named("metal")
    finished, _ = run_passes(program, metal_target.device_passes, target=metal_target)
    return metal_target.lower(finished, folder)


def test_the_same_program_gives_the_same_bytes(
    lowered: LoweredProgram, small: ExportedProgram, tmp_path: Path
) -> None:
    """Libraries, shaders and source hash, in another folder; and no file names a folder of here."""
    again = _lower(small, tmp_path)
    first, second = lowered.library.parent, again.library.parent
    names = sorted(f.name for f in first.iterdir())
    assert names == sorted(f.name for f in second.iterdir())
    for name in names:
        data = (first / name).read_bytes()
        assert data == (second / name).read_bytes()
        for folder in (str(tmp_path.parent).encode(), b"/tmp/", b"/home/", b"site-packages"):
            assert folder not in data
    assert again.files["emulation"].source_sha256 == lowered.files["emulation"].source_sha256


class Spectrum(nn.Module):
    """Needs two kernels that no runtime of ours has."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Magnitudes of a spectrum, and a sampled choice."""
        y = torch.ops.aten._fft_r2c.default(x, [1], 0, True).abs()
        return y.sum() + torch.linalg.inv(x).sum()


def test_missing_kernels_are_listed_at_once(tmp_path: Path) -> None:
    """One error names every kernel that the runtime lacks, with the line of the model's source."""
    program = torch.export.export(Spectrum(), (torch.eye(4),), strict=False).run_decompositions({})
    with pytest.raises(UnsupportedKernels) as caught:
        _lower(program, tmp_path)
    line = inspect.getsourcelines(Spectrum.forward)[1]
    [fft] = [sites for kernel, sites in caught.value.uses.items() if "_fft_r2c" in kernel]
    [inverse] = [sites for kernel, sites in caught.value.uses.items() if "linalg_inv" in kernel]
    assert any(f"test_metal.py:{line + 2}" in site for site in fft)
    assert any(f"test_metal.py:{line + 3}" in site for site in inverse)


class Zeta(nn.Module):
    """Hurwitz's."""

    def forward(self, x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        """Of two tensors."""
        return torch.special.zeta(x, q)


def _lacking(name: str) -> str:
    place = rf"special_{name}(_1)?, model \(.*pieces.py:\d+, aten.special_{name}\.\w+\)"
    fact = f"the target has no function {name}"
    return rf"code generation failed at {place}: {fact}\. Write it with other operators"


@pytest.mark.parametrize(
    ("body", "fact"),
    [
        (
            lambda x: x.double().sum(),
            r"model \(.*pieces.py:\d+, aten._to_copy.* is of torch.float64, which Metal",
        ),
        (lambda x: torch._higher_order_ops.map(torch.sin, x), r".*pieces.py:\d+.* Write it"),
        (torch.special.airy_ai, _lacking("airy_ai")),
        (lambda x: torch.special.laguerre_polynomial_l(x, 3), _lacking("laguerre_polynomial_l")),
        (lambda x: torch.special.legendre_polynomial_p(x, 3), _lacking("legendre_polynomial_p")),
    ],
)
def test_what_metal_cannot_is_said_in_a_line(
    body: Callable[[torch.Tensor], torch.Tensor], fact: str, tmp_path: Path
) -> None:
    """No traceback of torch's, and a name by which the model's author finds the place."""
    program = torch.export.export(Apply(body), (torch.randn(4),), strict=False)
    with pytest.raises(LoweringError, match=f"^program main: {fact}"):
        _lower(program.run_decompositions({}), tmp_path)


def test_a_gradient_of_a_pool_is_refused(tmp_path: Path) -> None:
    """Inference has no use for it, and its line is named."""

    def gradient(x: torch.Tensor) -> torch.Tensor:
        y, places = nn.functional.max_pool2d(x, 6, 1, return_indices=True)
        back = torch.ops.aten.max_pool2d_with_indices_backward
        return back(y, x, [6, 6], [1, 1], [0, 0], [1, 1], False, places)

    fact = r"pieces.py:\d+, aten.max_pool2d_with_indices_backward.default\)(.|\n)*Leave grad"
    with pytest.raises(UnsupportedKernels, match=fact):
        convert(Apply(gradient), (torch.randn(1, 2, 8, 8),), target="metal", out=tmp_path / "o")


def test_a_zeta_of_large_numbers_is_eagers(tmp_path: Path) -> None:
    """Eager computes it in double; in float its terms are 0 where the powers are large."""
    x, q = torch.tensor([2, 3, 9, 40, 60, 200, 1, 0]), torch.tensor([1, 7, 2, 20, 5, 100, 3, 3])
    both = Zeta().eval()
    made = convert(both, (x, q), target="metal", out=tmp_path / "out", measure_seconds=0)
    assert_as_eager(made.folder, both, (x, q), rtol=1.3e-6, atol=1e-5)


def test_incomplete_gamma_functions_are_eagers(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Torch's own Metal for these calls `pow` where several are in sight."""
    both = Apply(lambda x: torch.special.gammainc(x, x[0]) + torch.special.gammaincc(x[1], x))
    made = convert(both, (torch.rand(4, 6) * 9 + 0.1,), target="metal", out=tmp_path / "out")
    assert made.report.worst_snr_db is not None
    assert made.report.worst_snr_db > 100
    with pytest.raises(LoweringError, match=r"x is of torch.float64"):
        convert(both, (torch.rand(4, 6).double(),), target="metal", out=tmp_path / "wide")
    assert capfd.readouterr().err == ""


def test_numbers_of_float64_are_refused_by_name(tmp_path: Path) -> None:
    """Torch's code would read half of one without axes."""
    more = nn.Module()
    more.forward = lambda x, level: x > level
    given = torch.rand(4, 6), torch.tensor(0.5, dtype=torch.float64)
    with pytest.raises(LoweringError, match=r"is of torch.float64, which Metal does not know"):
        convert(more, given, target="metal", out=tmp_path / "out")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays_half(small: ExportedProgram, dtype: torch.dtype) -> None:
    """Weights keep the dtype of the model, and kernels read it under Metal's name for it."""
    module = copy.deepcopy(small.module(check_guards=False)).to(dtype)  # it shares its weights
    arguments = (torch.randn(1, 3, 8, 8, dtype=dtype),)
    program = torch.export.export(module, arguments, strict=False).run_decompositions({})
    code = metal._generate("main", program)
    name = {torch.float16: "half", torch.bfloat16: "bfloat"}[dtype]
    assert re.search(rf"constant {name}\* in_ptr", "".join(code.shaders.values()))
    assert {value.dtype for value in code.constants.values()} == {dtype}


def test_shapes_that_vary_are_arguments_of_the_kernels() -> None:
    """One library serves all sizes of a dynamic dimension."""
    batch = torch.export.Dim("batch", min=1, max=8)
    program = torch.export.export(
        nn.Sequential(nn.Linear(16, 16), nn.Softmax(-1)),
        (torch.randn(2, 16),),
        dynamic_shapes=({0: batch},),
        strict=False,
    ).run_decompositions({})
    code = metal._generate("main", program)
    assert "aoti_torch_mps_set_arg_int(" in code.wrapper


@pytest.mark.sweep
def test_no_kernel_has_more_buffers_than_metal_knows() -> None:
    """A layer of DenseNet is copied into the input of each that follows it, by one kernel."""
    with torchvision_operators():
        from torchvision.models.densenet import DenseNet
    model = DenseNet(growth_rate=4, block_config=(26,), num_init_features=4)
    program = torch.export.export(model.eval(), (torch.randn(1, 3, 32, 32),), strict=False)
    code = metal._generate("main", program.run_decompositions({}))
    heads = re.findall(r"kernel void \w+\((.*?)\)\s*\{", "".join(code.shaders.values()), re.DOTALL)
    buffers = [len(re.findall(r"\b(?:device|constant) ", head)) for head in heads]
    assert 16 < max(buffers) <= 31  # Metal Feature Set Tables, "Buffer argument table"


def test_no_thread_of_a_layer_norm_walks_over_its_row() -> None:
    """A group's threads share its sums: the mean, squares of deviations, what rounding left."""
    program = torch.export.export(nn.LayerNorm(384).eval(), (torch.randn(4, 384),))
    [shader] = metal._generate("main", program.run_decompositions({})).shaders.values()
    assert shader.count("threadgroup_sum") == 3
    assert "welford" not in shader
