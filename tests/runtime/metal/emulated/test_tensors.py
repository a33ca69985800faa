"""Products by the matrix units of newer GPUs, which Metal 4 reaches by an operation on tensors."""

from __future__ import annotations

import re
import struct
import sys
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from menagerie.emulator import Mode, running

if TYPE_CHECKING:
    from emulated_device import DeviceBuffer, EmulatedDevice, Library

sys.path.append(str(Path(__file__).parents[4] / "runtime"))
sys.path.append(str(Path(__file__).parents[3] / "cases"))

import embed_kernels
from emulated_device import DeviceError, finding
from shim_device import KINDS, Device

_SOURCE = embed_kernels.expanded(
    Path(embed_kernels.__file__).parent / "metal/kernels/tensor_product.metal"
)


@pytest.fixture(scope="module")
def units(emulated: EmulatedDevice) -> Library:
    """The kernels, with every access checked."""
    return emulated.compile(_SOURCE)


def _bytes(emulated: EmulatedDevice, text: str, *values: float) -> DeviceBuffer:
    return emulated.buffer(np.frombuffer(struct.pack(text, *values), np.uint8))


@pytest.mark.parametrize(
    ("dtype", "turned", "sizes"),
    [
        *product(["half"], product([False, True], repeat=2), [(70, 66, 40), (64, 128, 1)]),
        ("bfloat", (False, True), (130, 65, 33)),
    ],
)
@pytest.mark.parametrize("parts", [1, 2])
def test_products_are_eagers(
    emulated: EmulatedDevice,
    units: Library,
    dtype: str,
    turned: tuple[bool, bool],
    sizes: tuple[int, int, int],
    parts: int,
) -> None:
    """Operands may lie either way, tiles be ragged and terms be summed in parts.

    The kernel is called as the runtime calls it: what a user's product takes, no machine here has.
    """
    m, n, k = sizes
    generator = torch.Generator().manual_seed(m + n + k)
    kind = {"half": torch.float16, "bfloat": torch.bfloat16}[dtype]
    a, b, c = (
        torch.randn(2, rows, columns, generator=generator).to(kind)
        for rows, columns in ((m, k), (k, n), (m, n))
    )
    lie = [
        t.transpose(1, 2).contiguous() if turn else t
        for t, turn in zip((a, b), turned, strict=True)
    ]
    of = [
        (m * k, 1, m) if turned[0] else (m * k, k, 1),
        (k * n, 1, k) if turned[1] else (k * n, n, 1),
    ]
    out = emulated.buffer(2 * m * n * 2)
    sums = emulated.buffer(2 * parts * m * n * 4)
    length = -(-k // parts)
    operands = [emulated.buffer(t.view(torch.int16).numpy()) for t in (*lie, c)]
    extents = _bytes(emulated, "IIIff", m, n, k, 0.5, 2.0)
    finish = emulated.buffer(np.zeros(256, np.uint8))
    strides = [_bytes(emulated, "III", *each) for each in (*of, (m * n, n, 1))]
    arguments = [
        out, operands[0], operands[1], operands[2], extents, strides[0], strides[1], None, None,
        strides[2], out, finish, finish, sums, _bytes(emulated, "II", parts, length),
    ]  # fmt: skip
    grid = (-(-n // 64) * 128, -(-m // 64), 2 * parts)
    units.run(f"multiply_by_units_{dtype}_64", arguments, grid, (128, 1, 1))
    if parts == 1:
        wanted = 0.5 * (a.double() @ b.double()) + 2.0 * c.double()
        found = torch.from_numpy(out.read(np.int16)).view(kind).view(2, m, n).double()
        assert torch.allclose(
            found, wanted, rtol=2.0 ** -(8 if dtype == "bfloat" else 10), atol=1e-2
        )
    else:
        cut = [slice(0, length), slice(length, k)]
        wanted = torch.stack([a[:, :, s].double() @ b[:, s].double() for s in cut], dim=1)
        found = torch.from_numpy(sums.read(np.float32)).view(2, parts, m, n).double()
        assert torch.allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("expanded", ["", "rows", "columns", "terms"])
def test_a_proof_multiplies_by_units_too(expanded: str) -> None:
    """Its second mode does (the double counts that); operands may repeat along an axis."""
    device = Device(next(kind for kind in KINDS if kind.target == "metal"))
    k = 1 if expanded == "terms" else 24
    a, b = torch.randn(256, k).half(), torch.randn(k, 260).half()
    if expanded == "rows":
        a = a[:, :1].expand(256, k)
    elif expanded:
        b = b[:, :1].expand(k, 260)
    with running(Mode.OTHER):
        out = device.empty((256, 260), (260, 1), torch.float16)
        found = device.value(device.operate("mm_out", {"out": out, "self": a, "mat2": b})[0])
    assert torch.allclose(found.double(), a.double() @ b.double(), rtol=2.0**-10, atol=1e-2)


_TENSORS = """
#include <metal_stdlib>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
using namespace mpp::tensor_ops;
typedef tensor<device half, dextents<int, 2>, tensor_inline> Operand;
kernel void square(device half* a [[buffer(0)]], device float* out [[buffer(1)]],
                   uint index [[thread_index_in_threadgroup]]) {
  constexpr auto tile = matmul2d_descriptor(16, 32);
  matmul2d<tile, execution_simdgroups<2>> product;
  const Operand all(a, dextents<int, 2>(16, 16), array<int, 2>{1, 16});
  auto sums = product.get_destination_cooperative_tensor<Operand, Operand, float>();
  if (index < LATE) product.run(all, all, sums);
  for (ushort i = 0; i < sums.get_capacity(); ++i) out[i * 64 + index] = sums[i];
}
"""


@pytest.mark.parametrize(
    ("late", "elements", "fact"), [(32, 256, "barrier"), (64, 255, "reads 2 bytes")]
)
def test_mistakes_are_found(emulated: EmulatedDevice, late: int, elements: int, fact: str) -> None:
    """Threads that do not come to a product, and operands that end before their extents do."""
    kernels = emulated.compile(_TENSORS.replace("LATE", str(late)))
    a, out = emulated.buffer(np.zeros(elements, np.float16)), emulated.buffer(16 * 32 * 4)
    assert fact in finding(lambda: kernels.run("square", [a, out], (64,), (64,)))


def test_metal_3_has_no_tensors(emulated: EmulatedDevice) -> None:
    """What includes no operations on them is Metal 3.1, where Apple's compiler refuses them."""
    source = re.sub(r"#include <MetalPerf.*", "", _TENSORS).replace("LATE", "64")
    with pytest.raises(DeviceError, match=r"does not compile: .*undeclared identifier"):
        emulated.compile(source)
