"""Refuses a serialised graph that could do anything but compute.

torch's deserialiser trusts what it reads. Names of nodes go into Python source that is executed,
symbolic sizes go through sympy's `eval`, operators are looked up from `torch` downwards (with
`torch.os.system` among them), strings go into generated C++, guards are executed, tree
specifications import modules. So each string must be of a form that cannot harm, whatever torch
does with it, and what a reproducer does not need must be empty.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import operator
import re
from typing import TYPE_CHECKING, Any

import torch
from torch._export.serde.union import _Union

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch._export.serde.schema import ExportedProgram

__all__ = ["Unsafe", "check_graph"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATH = re.compile(r"[A-Za-z0-9_.]*")  # of a weight in its model
_TEXT = re.compile(r"[A-Za-z0-9_.,> -]{0,200}")  # `tanh`, `ij,jk->ik`: nothing ends a C++ string
_VERSION = re.compile(r"[A-Za-z0-9_.+<=-]{0,80}")
_OPERATOR = re.compile(r"torch\.ops\.(aten|prims|torchvision|quantized_decomposed)\.(\w+)\.(\w+)")
_SYMBOL = re.compile(r"(?:s|u|z|zuf|zf|f)\d+")
_NUMBER = re.compile(r"-?[0-9]{1,30}(?:\.[0-9]{0,30})?(?:e-?[0-9]{1,3})?")
_LONGEST_EXPRESSION = 2000

_OF_SIZES = {
    *("add", "and_", "eq", "floordiv", "ge", "gt", "le", "lshift", "lt", "mod", "mul", "ne"),
    *("neg", "or_", "pos", "pow", "rshift", "sub", "truediv"),
}
_SIZE_OPERATORS = {
    *(f"{operator.add.__module__}.{name}" for name in _OF_SIZES),
    f"{math.__name__}.trunc",
    *(f"torch.{n}" for n in ("sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not")),
    "torch._sym_sqrt",
}
_SIZE_FUNCTIONS = {
    *("FloorDiv", "ModularIndexing", "Where", "PythonMod", "Mod", "CleanDiv", "CeilToInt"),
    *("FloorToInt", "CeilDiv", "PowByNatural", "FloatPow", "FloatTrueDiv", "IntTrueDiv"),
    *("TruncToFloat", "TruncToInt", "RoundToInt", "RoundDecimal", "ToFloat", "Identity"),
    *("Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Max", "Min", "Abs"),
    *("Equality", "Unequality", "StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan"),
    *("Not", "And", "Or"),
}
_ARITHMETIC = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Load, ast.keyword),
    *(ast.operator, ast.unaryop, ast.cmpop),
)

_EMPTY = {
    *(("Node", "metadata"), ("Graph", "custom_obj_values"), ("GraphModule", "metadata")),
    *(("GraphModule", "module_call_graph"), ("GraphModule", "treespec_namedtuple_fields")),
    ("ExportedProgram", "guards_code"),
}
_RANGES = "ExportedProgram.range_constraints"  # of symbols, and of expressions of them
_NO_KINDS = {"as_graph", "as_operator", "as_custom_obj", "as_string_to_argument"} | {
    *("custom_obj", "token")
}


class Unsafe(ValueError):
    """The graph holds what only a doctored one would, or what a reproducer cannot express."""


def check_graph(program: ExportedProgram) -> None:
    """See the module.

    Args:
        program: the schema's dataclass, not yet deserialised.

    Raises:
        Unsafe: naming the string and the field it stands in.
    """
    _check(program, "program", _matches(_NAME))


def _check(value: Any, place: str, rule: Callable[[str], bool]) -> None:
    if isinstance(value, _Union):
        if value.type in _NO_KINDS:
            raise Unsafe(f"{place} is of the kind {value.type}, which reproducers do not have")
        _check_field(value, str(value.type))
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            _check_field(value, field.name)
    elif isinstance(value, (list, dict)):
        _check_items(value, place, rule)
    elif isinstance(value, str):
        if not rule(value):
            raise Unsafe(f"{place} is {value[:80]!r}, which is not allowed there")
    elif value is not None and not isinstance(value, (bool, int, float)):
        raise Unsafe(f"{place} is a {type(value).__name__}")


def _check_items(
    value: list[Any] | dict[Any, Any], place: str, rule: Callable[[str], bool]
) -> None:
    for key in value if isinstance(value, dict) else ():
        _check(key, place, _is_size if place == _RANGES else _matches(_NAME))
    for item in value.values() if isinstance(value, dict) else value:
        _check(item, place, rule)


def _check_field(owner: Any, name: str) -> None:
    place, value = (type(owner).__name__, name), getattr(owner, name)
    if place in _EMPTY and value:
        raise Unsafe(f"{'.'.join(place)} is not empty")
    _check(value, ".".join(place), _RULES.get(place, _matches(_NAME)))


def _matches(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


def _is_operator(text: str) -> bool:
    """Whether it is a kernel of the dispatcher's, not any object to be found in torch."""
    if text in _SIZE_OPERATORS:
        return True
    match = _OPERATOR.fullmatch(text)
    if match is None or not text.isascii():
        return False
    namespace, name, overload = match.groups()
    found = getattr(getattr(getattr(torch.ops, namespace), name, None), overload, None)
    if not isinstance(found, torch._ops.OpOverload):
        return False
    touches_files = any("file" in argument.name for argument in found._schema.arguments)
    qualified: str = found.name()  # type: ignore[no-untyped-call]
    return torch._C._dispatch_has_kernel(qualified) and not touches_files


def _is_size(text: str) -> bool:
    """Whether it is arithmetic over symbols and numbers alone, as sympy's srepr writes it."""
    if len(text) > _LONGEST_EXPRESSION or not text.isascii():
        return False
    try:
        nodes = list(ast.walk(ast.parse(text, mode="eval")))
    except SyntaxError:
        return False
    called = {n.func for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    return all(_is_arithmetic(node, node in called) for node in nodes)


def _is_arithmetic(node: ast.AST, is_called: bool) -> bool:
    if isinstance(node, ast.Name):
        if is_called:
            return node.id in _SIZE_FUNCTIONS
        return _SYMBOL.fullmatch(node.id) is not None
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return any(form.fullmatch(node.value) for form in (_SYMBOL, _NUMBER))
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (bool, int, float))
    return isinstance(node, _ARITHMETIC)


_RULES: dict[tuple[str, str], Callable[[str], bool]] = {
    ("Node", "target"): _is_operator,
    ("SymExpr", "expr_str"): _is_size,
    ("Argument", "as_string"): _matches(_TEXT),
    ("Argument", "as_strings"): _matches(_TEXT),
    ("ConstantValue", "as_string"): _matches(_TEXT),
    ("InputToParameterSpec", "parameter_name"): _matches(_PATH),
    ("InputToBufferSpec", "buffer_name"): _matches(_PATH),
    ("InputToTensorConstantSpec", "tensor_constant_name"): _matches(_PATH),
    ("BufferMutationSpec", "buffer_name"): _matches(_PATH),
    ("ExportedProgram", "torch_version"): _matches(_VERSION),
}
