"""Apple GPUs: a Mach-O library and Metal shaders, made on Linux or on a Mac."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from menagerie.compilers import package_version
from menagerie.format.bundle_manifest import Requirements
from menagerie.host import RUNTIME_ABI
from transforms.lowering.result import LoweredProgram
from transforms.targets.base import ROUND_WEIGHTS, PassItem, Target
from transforms.targets.cpu import CpuTarget
from zoo.errors import Check, Health

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from transforms.graph.graph_pass import GraphPass

_SHADER_HEADER = "shaders.h.metal"
# The first one's cost model was measured on the CPU only; the other one is listed below.
_LATER = {"fuse_cat_linear", "unpad_relative_shift"}


class MetalTarget(Target):
    """See the module."""

    name = "metal"
    summary = "Macs with Apple's processors, macOS 15 or newer"
    runtime = "metal"
    convert_pool = "linux-cpu"
    passes: ClassVar[tuple[PassItem, ...]] = (
        *(choice for choice in CpuTarget().general_passes if choice not in _LATER),
        ROUND_WEIGHTS,
        # First, since the convolutions that it makes are fused like all others.
        "turn_volumes_into_images",
        # While convolutions of sequences are still torch's own, and not yet fused with anything.
        "turn_pointwise_sequences",
        # Before epilogues: a mask that asks a result for its size could not be fused into it.
        "compute_convolution_sizes",
        "fuse_epilogues",
        # After it: a layer with a fused epilogue is not joined.
        "join_linear_layers",
        # These retrace, so they run after the passes that look for torch's own operators.
        "loop_over_recurrent_layers",
        "keep_attention_whole",
        # After it, since that computes the shifts that it recognises.
        "unpad_relative_shift",
        # Last: kernels index weights as the artifact stores them.
        "lay_out_weights",
    )

    def lower(
        self, program: ExportedProgram, bundle: Path, *, name: str = "main"
    ) -> LoweredProgram:
        """See `Target.lower`."""
        from transforms.lowering import metal

        return metal.lower(program, bundle, name=name)

    def lowering_passes(self) -> tuple[GraphPass, ...]:
        """See `Target.lowering_passes`."""
        from transforms.lowering.metal import provide_mps
        from transforms.passes.metal.move_to_device import MoveToDevice

        provide_mps()
        return (MoveToDevice(),)

    def dispatches(self, program: ExportedProgram, name: str) -> Mapping[str, int]:
        """See `Target.dispatches`."""
        from transforms.lowering import metal

        return metal.dispatches(program, name)

    def requirements(self) -> Requirements:
        """See `Target.requirements`; they are the same on every host."""
        from transforms.lowering.toolchain import DEPLOYMENT_TARGET

        return Requirements(
            system="darwin",
            machine="arm64",
            deployment_target=DEPLOYMENT_TARGET,
            runtime_abi=RUNTIME_ABI,
        )

    def shared_files(self, folder: Path) -> Mapping[str, str]:
        """Write the header before all shaders, if there are any."""
        from transforms.lowering.inductor import metal_header

        if not any(folder.glob("programs/*/*.metal")):
            return {}
        (folder / _SHADER_HEADER).write_text(metal_header())
        return {"shader_header": _SHADER_HEADER}

    def versions(self) -> Mapping[str, str]:
        """See `Target.versions`."""
        return {"zig": package_version("ziglang")}

    def checks(self) -> Iterator[Check]:
        """Yield the compiler for Metal here: zig, or on a Mac the system's compiler."""
        if not self.emulated_here:
            yield Check(self.name, Health.OK, "this Mac's own device and compiler")
            return
        found = package_version("ziglang")
        if found == "absent":
            fact = "the package ziglang is missing"
            step = "pip install ziglang; only converting for Metal and emulating it need it"
            yield Check(self.name, Health.WARN, fact, step)
            return
        from transforms.lowering.toolchain import linked_for_macos

        detail = f"zig {found}, emulated device"
        if not linked_for_macos().exists():
            detail += "; the first conversion compiles libc++ for macOS, a minute or two"
        yield Check(self.name, Health.OK, detail)

    @property
    def emulated_here(self) -> bool:
        """See `Target.emulated_here`."""
        return platform.system() != "Darwin"
