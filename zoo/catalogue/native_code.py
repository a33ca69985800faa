"""Code in C and Swift with which a visitor of the catalogue runs a release on zeros."""

from __future__ import annotations

import itertools
import math
import operator
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from zoo.catalogue.records import CataloguedModel, History, Tensor

__all__ = ["c_code", "swift_code"]


class _CType(NamedTuple):
    """How `runtime/include/menagerie.h` has a dtype."""

    element: str
    number: str
    bytes: int


_TYPES: Final = {
    "float64": _CType("double", "MENAGERIE_FLOAT64", 8),
    "float32": _CType("float", "MENAGERIE_FLOAT32", 4),
    "float16": _CType("uint16_t", "MENAGERIE_FLOAT16", 2),
    "bfloat16": _CType("uint16_t", "MENAGERIE_BFLOAT16", 2),
    "int64": _CType("int64_t", "MENAGERIE_INT64", 8),
    "int32": _CType("int32_t", "MENAGERIE_INT32", 4),
    "int16": _CType("int16_t", "MENAGERIE_INT16", 2),
    "int8": _CType("int8_t", "MENAGERIE_INT8", 1),
    "uint8": _CType("uint8_t", "MENAGERIE_UINT8", 1),
    "bool": _CType("uint8_t", "MENAGERIE_BOOL", 1),
}


def c_code(history: History) -> str:
    """A program for the folder that `menagerie pull --standalone` makes of a CPU release."""
    inputs, outputs = history.inputs, len(history.outputs)
    memory = "\n".join(
        f"static {_TYPES[each.dtype].element} input_{n}[{math.prod(each.least)}]; /* {each.name} */"
        for n, each in enumerate(inputs)
    )
    tensors = "\n".join(
        f"      {{input_{n}, {_TYPES[each.dtype].number}, {len(each.least)}, "
        f"{_axes(each.least)}, {_axes(_strides(each.least))}}},"
        for n, each in enumerate(inputs)
    )
    return f"""\
/* cc main.c -Iinclude -L. -lmenagerie_cpu -Wl,-rpath,'$ORIGIN' -o main && ./main */
#include <menagerie.h>
#include <stdio.h>

{memory}

int main(void) {{
  menagerie_bundle* bundle;
  menagerie_program* program;
  menagerie_tensor inputs[] = {{
{tensors}
  }};
  menagerie_tensor outputs[{outputs}];
  if (menagerie_bundle_open_signed("bundle", "roots", &bundle) ||
      menagerie_program_open(bundle, "{history.program}", 0, &program) ||
      menagerie_program_run(program, inputs, {len(inputs)}, outputs, {outputs})) {{
    fprintf(stderr, "%s\\n", menagerie_last_error());
    return 1;
  }}
  for (int i = 0; i < {outputs}; ++i) {{ /* their memory is the program's */
    printf("output %d:", i);
    for (int axis = 0; axis < outputs[i].dimensions; ++axis)
      printf(" %lld", (long long)outputs[i].sizes[axis]);
    printf("\\n");
  }}
  menagerie_program_close(program);
  menagerie_bundle_close(bundle);
  return 0;
}}
"""


def swift_code(model: CataloguedModel, history: History) -> str:
    """The same for a Mac, beside `include/` and the runtime's library; no compiler has seen it."""
    given = "\n".join(
        line for n, each in enumerate(history.inputs) for line in _swift_input(n, each)
    )
    return f"""\
// swiftc main.swift -I include -L . -l menagerie_{history.target} -o main && ./main
import Foundation
import Menagerie

func check(_ status: menagerie_status) {{
  if status != MENAGERIE_OK {{ fatalError(String(cString: menagerie_last_error())) }}
}}

var bundle: OpaquePointer?
var program: OpaquePointer?
check(menagerie_bundle_open_signed("{model.name}", "root.json", &bundle))
check(menagerie_program_open(bundle, "{history.program}", 0, &program))
var inputs = [menagerie_tensor](repeating: menagerie_tensor(), count: {len(history.inputs)})
{given}
var outputs = [menagerie_tensor](repeating: menagerie_tensor(), count: {len(history.outputs)})
check(menagerie_program_run(program, inputs, inputs.count, &outputs, outputs.count))
for output in outputs {{ print(output.dimensions, output.sizes) }}
"""


def _swift_input(number: int, tensor: Tensor) -> list[str]:
    place, kind = f"inputs[{number}]", _TYPES[tensor.dtype]
    lines = [
        f"{place}.data = calloc({math.prod(tensor.least)}, {kind.bytes})  // {tensor.name}",
        f"{place}.dtype = Int32({kind.number}.rawValue)",
        f"{place}.dimensions = {len(tensor.least)}",
    ]
    for axis, (size, stride) in enumerate(zip(tensor.least, _strides(tensor.least), strict=True)):
        lines += [f"{place}.sizes.{axis} = {size}", f"{place}.strides.{axis} = {stride}"]
    return lines


def _axes(numbers: tuple[int, ...]) -> str:
    return "{" + (", ".join(map(str, numbers)) or "0") + "}"


def _strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """In elements, of rows that follow one another."""
    if not sizes:
        return ()
    return tuple(itertools.accumulate(sizes[:0:-1], operator.mul, initial=1))[::-1]
