"""What we rely on of torch's private parts: if torch changes one, it is said here, clearly."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch._dynamo.device_interface import get_interface_for_device
from torch._inductor import codecache, cpu_vec_isa
from torch._inductor.codegen import cpp, mps
from torch._inductor.fx_passes import fuse_attention, joint_graph
from torch._inductor.graph import GraphLowering
from torch._inductor.utils import get_gpu_type
from torch.utils import _cpp_embed_headers

from transforms.lowering import inductor
from transforms.lowering.coverage import check_kernels
from transforms.lowering.cpp_codegen import interface
from transforms.lowering.cpu import BACKEND
from transforms.lowering.inductor import (
    generate_code,
    metal_header,
    metal_on_any_host,
    stride_in_range,
)
from zoo.errors import UnsupportedKernels

_OPTIONS = {"aot_inductor.package": True, "cpp.vec_isa_ok": True, "cpp.simdlen": 256}


def test_the_compile_hook_takes_what_we_capture() -> None:
    """AotCodeCompiler.compile gets graph, wrapper and kernel source, in that order."""
    names = list(inspect.signature(codecache.AotCodeCompiler.compile).parameters)
    assert names[:4] == ["graph", "wrapper_code", "kernel_code", "serialized_extern_kernel_nodes"]


@pytest.mark.parametrize("attribute", ["get_original_value_of_constant"])
def test_the_graph_still_gives_its_constants(attribute: str) -> None:
    """GraphLowering has the method that hands out a constant's first value."""
    assert hasattr(GraphLowering, attribute)


def test_structures_and_bare_constants_pass_through_what_we_replace() -> None:
    """The text of a result's structure, and constants without axes as bare numbers."""
    source = Path(inspect.getfile(codecache)).with_name("compile_fx.py").read_text()
    assert "pytree.treespec_dumps(" in source
    assert "return Constant(" in inspect.getsource(GraphLowering.get_attr)


def test_torch_still_asks_where_we_answer() -> None:
    """What decides that code is generated for Metal follows what we say, and forgets it after."""
    before = get_gpu_type()
    with metal_on_any_host():
        assert get_gpu_type() == "mps"
        interface = get_interface_for_device("mps")
        assert interface.is_available()
        assert interface.Worker.get_device_properties().multi_processor_count == 16
    assert get_gpu_type() == before
    assert torch.backends.mps.is_available() is torch.backends.mps.is_built()


def test_metal_kernels_embed_headers_through_what_we_replace() -> None:
    """Code generation calls `_embed_headers(lines, folders, seen)` from its own module."""
    assert "_embed_headers(" in inspect.getsource(mps.MetalKernel.codegen_kernel), (
        "Metal's kernels no longer embed headers through codegen.mps._embed_headers"
    )
    assert len(inspect.signature(_cpp_embed_headers._embed_headers).parameters) == 3


def test_patterns_of_attention_are_registered_through_what_we_replace() -> None:
    """The joint graph's passes ask `fuse_attention._sfdp_init` for them, when first needed."""
    source = inspect.getsource(joint_graph.lazy_init)
    assert "from .fuse_attention import _sfdp_init" in source
    assert hasattr(fuse_attention, "_sfdp_init")


def test_strides_are_asked_through_what_we_replace() -> None:
    """Vectorized loops call `stride_at_vec_range(index, variable, length)` by that name."""
    assert "stride_at_vec_range(" in inspect.getsource(cpp.CppVecKernel)
    assert "stride_at_vec_range(" in inspect.getsource(cpp.TilingSelect)
    names = list(inspect.signature(cpp.stride_at_vec_range).parameters)
    assert names == ["index", "var", "vec_length"]


# The key is stored as (S, B, E): this looks like attention and is not.
_PERMUTED_KEYS = """
import torch
from transforms.lowering.cpu import BACKEND
from transforms.lowering.inductor import generate_code

class Products(torch.nn.Module):
    def forward(self, x):
        return torch.bmm(torch.bmm(x, x.permute(1, 2, 0)).softmax(-1), x)

program = torch.export.export(Products(), (torch.randn(5, 5, 4),)).run_decompositions({})
options = {"aot_inductor.package": True, "cpp.simdlen": 256}
print(generate_code(program, options, BACKEND).wrapper)
"""


def test_what_only_looks_like_attention_stays_what_it_is() -> None:
    """Equal sizes hide a permutation from Inductor's patterns; none may touch the products.

    In a process of its own, where no other test has had the patterns registered.
    """
    wrapper = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _PERMUTED_KEYS],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "scaled_dot_product" not in wrapper
    assert wrapper.count("aoti_torch_cpu_bmm_out(") == 2


def test_our_header_holds_all_that_kernels_may_include() -> None:
    """Every name that Inductor's Metal code generation adds to a kernel's headers is flattened."""
    named = set(re.findall(r"headers\.add\(\"(\w+)\"\)", inspect.getsource(mps)))
    named -= {"error"}  # of graphs that run in Python only
    header = metal_header()
    folder = Path(torch.__file__).parent / "include/c10/metal"
    for name in {"utils", *named}:
        own = [line for line in (folder / f"{name}.h").read_text().splitlines() if "inline" in line]
        assert own[-1] in header, f"c10/metal/{name}.h is not in the header that kernels share"
    assert "#include <c10" not in header


class Cumulative(nn.Module):
    """Needs a convolution (offered) and a sort (a fallback kernel)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A spectrum of a convolution."""
        y = self.conv(x)
        return torch.ops.aten._fft_r2c.default(y, [2], 0, True).abs()


def _generate(module: nn.Module, *inputs: torch.Tensor):  # noqa: ANN202 - private to lowering
    program = torch.export.export(module.eval(), inputs, strict=False).run_decompositions({})
    return generate_code(program, _OPTIONS, BACKEND)


def test_code_and_constants_come_out() -> None:
    """The wrapper's sources and every weight by its name (tiny ones Inductor writes out)."""
    module = nn.Sequential(nn.Conv1d(2, 16, 3), nn.ReLU())
    code = _generate(module, torch.randn(1, 2, 9))
    assert "AOTInductorModel" in code.wrapper
    assert set(code.constants) == {"0.weight", "0.bias"}
    assert torch.equal(code.constants["0.weight"], module[0].weight)
    assert code.generated_kernels == code.kernels.count('extern "C"')


def test_constants_are_described_by_data() -> None:
    """With sizes and strides as eager has them, in the order of their names."""
    module = nn.Sequential(nn.Conv1d(2, 16, 3), nn.ReLU())
    wrapper = _generate(module, torch.randn(1, 2, 9)).wrapper
    rows = re.findall(r'aoti_torch_dtype_float32, .*, (\d), \w+, "(.*)"}', wrapper)
    tensors = {"0.weight": module[0].weight, "0.bias": module[0].bias}
    assert {name: int(axes) for axes, name in rows} == {n: t.dim() for n, t in tensors.items()}
    extents = [str(e) for _, name in rows for e in (*tensors[name].shape, *tensors[name].stride())]
    assert f"model_extents[] = {{{', '.join((*extents, '0'))}}};" in wrapper
    assert "constants_info_[0]." not in wrapper


def test_the_interface_is_apart() -> None:
    """No wrapper defines what is the same for all; torch's own file does, and the constructor."""
    code = _generate(nn.ReLU(), torch.randn(2, 3))
    assert "AOTInductorModel::AOTInductorModel" not in code.wrapper.split("#endif")[-1]
    assert "AOTInductorModelContainerRun" not in code.wrapper
    assert "AOTInductorModelContainerRun(" in interface("cpu")


def test_code_generation_asks_us_for_strides() -> None:
    """Of the loop that it weighs vectors for."""
    with patch.object(inductor, "stride_in_range", wraps=stride_in_range) as asked:
        _generate(nn.ReLU(), torch.randn(4, 64))
    assert asked.called


def test_a_process_that_found_no_vectors_writes_them_all_the_same() -> None:
    """PyTorch asks the machine once a process, by a compilation that a full disk makes fail."""
    plain = _generate(nn.ReLU(), torch.randn(4, 64)).kernels
    with patch.object(cpu_vec_isa, "valid_vec_isa_list", list):
        assert _generate(nn.ReLU(), torch.randn(4, 64)).kernels == plain
    assert "at::vec::Vectorized<float>" in plain


class Transposed(nn.Module):
    """A comparison of bytes that a tile stores transposed, beside another result."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return where two are equal, transposed, and their sum."""
        return (x == y).t().contiguous(), x + y


def test_no_row_of_a_tile_is_stored_by_a_whole_vector() -> None:
    """A vector has 32 bytes, and a tile's row is 8 elements."""
    x = torch.zeros(24, 20, dtype=torch.uint8)
    kernels = _generate(Transposed(), x, x.clone()).kernels
    stores = re.findall(r"\.store\(tmp\d+ \+ .*\(\d+L\*x0_inner\)(.*)\);", kernels)
    assert stores
    assert all(", static_cast<int64_t>(" in count for count in stores)


def test_missing_kernels_are_listed_with_module_and_line() -> None:
    """One error lists every kernel the runtime lacks with the place in the model's own source."""
    code = _generate(Cumulative(), torch.randn(1, 2, 9))
    with pytest.raises(UnsupportedKernels) as caught:
        check_kernels("program main", code.kernel_uses, "cpu")
    kernel = next(k for k in caught.value.uses if "_fft_r2c" in k)
    line = inspect.getsourcelines(Cumulative.forward)[1] + 3
    assert f"test_inductor.py:{line}" in caught.value.uses[kernel][0]
