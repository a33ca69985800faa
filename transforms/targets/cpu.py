"""The CPU of the machine that converts: Inductor's C++, compiled by the host's compiler."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from menagerie.compilers import package_version
from menagerie.format.bundle_manifest import Requirements
from menagerie.host import INSTRUCTIONS
from transforms.lowering.result import LoweredProgram, host_requirements
from transforms.targets.base import ROUND_WEIGHTS, PassItem, Target
from zoo.errors import Check, Health

if TYPE_CHECKING:
    from torch.export import ExportedProgram


class CpuTarget(Target):
    """See the module."""

    name = "cpu"
    summary = "Native code for this machine's kind of processor"
    runtime = "cpu"
    convert_pool = "linux-cpu"
    multiplies_integers = True
    passes: ClassVar[tuple[PassItem, ...]] = (
        # The runtime has no FFT. It is first, since all others then see plain views and products.
        "decompose_stft",
        # Before folding of what it computes from sizes alone. It retraces the program.
        "decompose_rare_operators",
        # A copy ends the chains of views that the passes below follow.
        "replace_view_copies",
        # After it, as it reads views; before duplicate size computations are merged.
        "unpad_relative_shift",
        # While convolution and norm still have the weights that the model gave them.
        "fold_batch_norm",
        # From here on, every weight that can be known is a constant, as the rewrites below need.
        "fold_constants",
        # Before other rewrites: code written twice is then rewritten once.
        "merge_common_subexpressions",
        # Before the permutations are removed: it needs both ends of a chain to know every axis.
        "pointwise_affine_to_conv",
        # After it, since a map that became a convolution has no concatenation left to split.
        "fuse_cat_linear",
        # Removes what the rewrites above left between them.
        "remove_identity_permutes",
        # The last one that a model may choose: everything above may leave dead code behind.
        "remove_dead_code",
        # Folded weights are final here, and weights that are made below are copies of them.
        ROUND_WEIGHTS,
        # While convolutions of sequences are still torch's own, and not yet fused with anything.
        "turn_pointwise_sequences_both_ways",
        # It retraces the program, so it runs before weights claim strides that a trace would lose.
        "expand_recurrent_layers",
        # Before kernels are fused, whose results then are channels-last as well.
        "claim_channels_last",
        # After it: a fused call's weight is claimed like a convolution's.
        "fuse_activations",
        # After it: the activation between the two belongs to the first one's call.
        "join_expanded_depthwise",
        # Rounded tables are final here, too.
        "read_table_rows",
    )

    def lower(
        self, program: ExportedProgram, bundle: Path, *, name: str = "main"
    ) -> LoweredProgram:
        """See `Target.lower`."""
        from transforms.lowering import cpu

        folder = bundle / "programs" / name
        folder.mkdir(parents=True, exist_ok=True)
        return cpu.lower(program, folder / "model.so", name=name)

    def requirements(self) -> Requirements:
        """See `Target.requirements`."""
        return host_requirements()

    def versions(self) -> Mapping[str, str]:
        """See `Target.versions`: on Linux, zig links."""
        return {"zig": package_version("ziglang")} if platform.system() == "Linux" else {}

    def checks(self) -> Iterator[Check]:
        """Yield whether this processor can run artifacts."""
        machine = platform.machine()
        wanted = INSTRUCTIONS.get(machine, ())
        missing = sorted(set(wanted) - _has())
        if missing:
            yield Check(
                "processor",
                Health.FAIL,
                f"{machine} without {', '.join(missing)}",
                "Artifacts for x86-64 need AVX2 and FMA: use a processor of 2013 or later",
            )
        else:
            with_them = " with AVX2 and FMA" if wanted else ""
            yield Check("processor", Health.OK, f"{machine}{with_them}")


def _has() -> frozenset[str]:
    try:
        listing = Path("/proc/cpuinfo").read_text()
    except OSError:  # macOS
        shown = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "machdep.cpu.features", "machdep.cpu.leaf7_features"],
            capture_output=True,
            text=True,
            check=False,
        )
        return frozenset(shown.stdout.lower().split())
    flags = next((line for line in listing.splitlines() if line.startswith("flags")), "")
    return frozenset(flags.split())
