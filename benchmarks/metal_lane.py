"""Interpreter of one thread of a Metal kernel in LLVM code, which counts the issued cycles.

`benchmarks/metal_cycles.py` names the sources of the figures.
"""

from __future__ import annotations

import functools
import operator
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from menagerie.compilers import zig_program
from menagerie.shader_source import translate

_RUNTIME = Path(__file__).parents[1] / "runtime"
_PRELUDE = _RUNTIME / "metal" / "emulated" / "prelude"
_CLANG = (
    "clang -S -emit-llvm -x c++ -std=c++14 -nostdinc -w -DMENAGERIE_LANGUAGE -O2 -fno-vectorize "
    "-fno-slp-vectorize -ffp-contract=off -fno-math-errno -fno-exceptions -fno-rtti "
    "-fno-discard-value-names -mllvm -inline-threshold=1000000 --target=x86_64-linux"
)
# Operands in constant memory are free; clang copies no structs out of a separate address space.
_CONSTANT = re.compile(r"#define constant const .*")
_DEVICE, _STACK = 1 << 44, 1 << 32  # zeros in device memory; arguments and local variables
_FORMATS = {
    "i1": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "half": "e", "bfloat": "h",
    "float": "f", "double": "d", "ptr": "q",
}  # fmt: skip
_FLAGS = re.compile(
    r" (nuw|nsw|nneg|exact|inbounds|disjoint|samesign|noundef|zeroext|signext|volatile|tail|notail|"
    r"addrspace\(\d\)|align \d+|nonnull|dereferenceable\(\d+\)|captures\(\w+\))(?=[ ,)])"
)
_SIGNED: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "and": operator.and_,
    "or": operator.or_, "xor": operator.xor, "shl": operator.lshift, "ashr": operator.rshift,
    "sdiv": lambda a, b: int(a / b), "srem": lambda a, b: a - b * int(a / b),
    "fadd": operator.add, "fsub": operator.sub, "fmul": operator.mul,
    "fdiv": lambda a, b: a / b if b else 0.0,
}  # fmt: skip
_UNSIGNED = {"udiv": operator.floordiv, "urem": operator.mod, "lshr": operator.rshift}
_COMPARED = {
    "eq": operator.eq, "ne": operator.ne, "gt": operator.gt, "ge": operator.ge, "lt": operator.lt,
    "le": operator.le,
}  # fmt: skip
_LIBRARY = {"min": min, "max": max, "fmin": min, "fmax": max, "fabs": abs, "abs": abs}


@dataclass
class Cycles:
    """Cycles that one SIMD group issues: all of them, and those of matrix products."""

    all: float = 0
    matrices: float = 0

    def __add__(self, other: Cycles) -> Cycles:
        return Cycles(self.all + other.all, self.matrices + other.matrices)

    def __sub__(self, other: Cycles) -> Cycles:
        return self + other * -1

    def __mul__(self, factor: float) -> Cycles:
        return Cycles(self.all * factor, self.matrices * factor)


def follow(file: str, function: str, arguments: Sequence[Any]) -> Cycles:
    """Count the cycles of a kernel, selected by its file and the prefix of its mangled name."""
    functions = compiled(file)
    name = next(name for name in functions if name.startswith(function))
    return Lane().run(functions[name], arguments)


def packed(form: str, *values: float) -> bytes:
    """Pack a struct in the kernels' layout."""
    return struct.pack("=" + form, *values)


@functools.cache
def compiled(name: str) -> Mapping[str, Function]:
    """Return the functions of `runtime/metal/kernels/<name>.metal` by mangled name."""
    sys.path.append(str(_RUNTIME))
    from embed_kernels import expanded

    prelude = "".join((_PRELUDE / f"{each}.h").read_text() for each in ("types", "language"))
    source = re.sub(r"#include <.*", "", expanded(_RUNTIME / "metal" / "kernels" / f"{name}.metal"))
    with tempfile.TemporaryDirectory() as folder:
        unit, code = Path(folder) / "unit.cpp", Path(folder) / "unit.ll"
        text = _CONSTANT.sub("#define constant const", prelude) + "#endif\n"
        unit.write_text(source)
        clang = [zig_program(), "clang", "-E", "-P", "-x", "c++", "-nostdinc", "-w", unit]
        plain = subprocess.run(clang, check=True, capture_output=True, text=True).stdout
        unit.write_text(text + translate(plain).checked)
        subprocess.run([zig_program(), *_CLANG.split(), unit, "-o", code], check=True)
        functions = re.findall(
            r"^define [^@]*@([\w.]+)\(([^\n]*)\) [^\n]*\{\n(.*?)^\}",
            code.read_text(),
            re.MULTILINE | re.DOTALL,
        )
    return {name: Function.of(parameters, body) for name, parameters, body in functions}


@dataclass
class Function:
    """A function: its parameters, and its instructions by block."""

    parameters: Sequence[tuple[str, str]]  # types and names
    blocks: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, parameters: str, body: str) -> Function:
        """Parse LLVM's text."""
        given = [tuple(_plain(each).rsplit(" ", 1)) for each in _split(parameters)]
        body = re.sub(r"\[\n([^]]*)\]", lambda m: "[" + m[1].replace("\n", ",") + "]", body)
        blocks: dict[str, list[str]] = {}
        for line in body.splitlines():
            if label := re.match(r'([\w.$-]+|"[^"]+"):', line):
                blocks[label[1].strip('"')] = lines = []
            elif line.strip():
                lines.append(_plain(re.sub(r"(, !|,? #\d).*", "", line)))
        return cls([(t, n) for t, n in given], blocks)


def _plain(line: str) -> str:
    """Remove flags, which do not affect values here."""
    previous = ""
    while line != previous:
        line, previous = _FLAGS.sub("", f" {line.strip()} ").strip().rstrip(","), line
    return line


def _split(text: str) -> list[str]:
    """Split text at commas outside of brackets."""
    parts, depth, begin = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "([{<") - (sign in ")]}>")
        if sign == "," and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
    return [*parts, text[begin:].strip()] if text.strip() else []


@dataclass
class Lane:
    """A lane that runs a function; memory outside its structs reads as zeros."""

    cycles: Cycles = field(default_factory=Cycles)
    values: dict[str, Any] = field(default_factory=dict)
    memory: bytearray = field(default_factory=bytearray)

    def run(
        self, function: Function, arguments: Sequence[bytes | int | tuple[int, ...] | None]
    ) -> Cycles:
        """Count the function's cycles for structs, positions, and None for each buffer."""
        for (_, name), value in zip(function.parameters, arguments, strict=True):
            kept = self._keep(value) if isinstance(value, bytes) else value
            # An offset may be negative before another one is added.
            self.values[name] = 2 * _DEVICE if kept is None else kept
        before, here = "", next(iter(function.blocks))
        while here:
            taken = [line for line in function.blocks[here] if " = phi " in line]
            fresh = {line.split(" ", 1)[0]: self._phi(line, before) for line in taken}
            self.values |= fresh
            for line in function.blocks[here][len(taken) :]:
                following = self._step(line)
            before, here = here, following
        return self.cycles

    def _keep(self, value: bytes) -> int:
        self.memory += bytes(-len(self.memory) % 16)
        self.memory += value
        return _STACK + len(self.memory) - len(value)

    def _phi(self, line: str, before: str) -> Any:
        kind, pairs = re.split(r" = phi ", line)[1].split(" [ ", 1)
        for value, block in re.findall(r"(\S+|<.*?>), %([\w.$-]+|\"[^\"]+\") \]", "[ " + pairs):
            if block.strip('"') == before:
                return self._value(kind, value.removeprefix("[ "))
        raise ValueError(line)

    def _value(self, kind: str, text: str) -> Any:  # noqa: PLR0911
        if text.startswith("%"):
            return self.values[text]
        if text in ("zeroinitializer", "poison", "undef", "null"):
            width = re.match(r"<(\d+)", kind)
            return (0,) * int(width[1]) if width else 0
        if "@" in text:
            return _DEVICE
        if text.startswith("<"):
            return tuple(self._value(*each.rsplit(" ", 1)) for each in _split(text[1:-1]))
        if text in ("true", "false"):
            return text == "true"
        if text.startswith("0x"):
            return struct.unpack(">d", int(text.lstrip("0xHKR"), 16).to_bytes(8, "big"))[0]
        return float(text) if kind in ("float", "half", "bfloat", "double") else int(text)

    def _typed(self, text: str) -> tuple[str, Any]:
        """Split `i64 %x` into type and value."""
        at = text.index(">") + 1 if text.startswith("<") else text.index(" ")
        return text[:at], self._value(text[:at], text[at:].strip())

    def _step(self, line: str) -> str:
        """Execute an instruction; return the next block's name if it ends the current block."""
        name, _, rest = line.partition(" = ") if line.startswith("%") else ("", "", line)
        rest = rest.removeprefix("tail ").removeprefix("musttail ").removeprefix("notail ")
        word, _, rest = rest.partition(" ")
        if word == "br":
            return self._branch(rest)
        if word == "switch":
            self.cycles.all += 1
            value, cases = rest.split(", label ", 1)
            wanted = f" {self._typed(value)[1]}, label %"
            return re.split(
                r"[, \]]", cases.split(wanted)[-1].lstrip("%") if wanted in cases else cases[1:]
            )[0]
        if word == "ret":
            return ""
        result = self._result(word, rest)
        if name:
            self.values[name] = result
        return ""

    def _branch(self, rest: str) -> str:
        self.cycles.all += 1
        labels = re.findall(r"label %([\w.$-]+|\"[^\"]+\")", rest)
        return str(labels[0 if len(labels) == 1 or self._typed(_split(rest)[0])[1] else 1]).strip(
            '"'
        )

    def _result(self, word: str, rest: str) -> Any:  # noqa: C901, PLR0911, PLR0912
        parts = _split(rest)
        wide = 2 if "i64" in rest else 1
        if word in ("icmp", "fcmp"):
            how, _, typed = rest.partition(" ")
            kind, a = self._typed(_split(typed)[0])
            b = self._value(kind, parts[1])
            self.cycles.all += wide
            if word == "icmp" and how[0] == "u":
                a, b = _unsigned(kind, a), _unsigned(kind, b)
            return _COMPARED.get(how[-2:], operator.ne)(a, b)
        if word in _SIGNED or word in _UNSIGNED:
            kind, a = self._typed(parts[0])
            b = self._value(kind, parts[1])
            self.cycles.all += weight(word, kind, constant=not parts[1].startswith("%"))
            return _computed(word, kind, a, b)
        if word == "select":
            self.cycles.all += wide
            return self._typed(parts[1 if self._typed(parts[0])[1] else 2])[1]
        if word == "getelementptr":
            kind, place = parts[0], self._typed(parts[1])[1]
            for index in parts[2:]:
                place += self._typed(index)[1] * _size(kind)
                self.cycles.all += 4 * ("%" in index and place >= _DEVICE)
                kind = kind[1:-1].split(" x ", 1)[-1]
            return place
        if word == "load":
            self.cycles.all += "ptr " in parts[1] and self._typed(parts[1])[1] >= _DEVICE
            return self._read(parts[0], self._typed(parts[1])[1])
        if word == "store":
            kind, value = self._typed(parts[0])
            place = self._typed(parts[1])[1]
            self.cycles.all += place >= _DEVICE
            return self._write(kind, value, place)
        if word == "alloca":
            return self._keep(bytes(4096))
        if word == "call":
            return self._call(rest)
        if word in ("extractelement", "insertelement"):
            values = list(self._typed(parts[0])[1])
            if word == "extractelement":
                return values[self._typed(parts[1])[1]]
            values[self._typed(parts[2])[1]] = self._typed(parts[1])[1]
            return tuple(values)
        if word == "shufflevector":
            both = self._typed(parts[0])[1] + self._typed(parts[1])[1]
            return tuple(both[at] for at in self._typed(parts[2])[1])
        if word == "fneg":
            self.cycles.all += 1
            return -self._typed(rest)[1]
        value, _, to = rest.partition(" to ")
        kind, a = self._typed(value)
        self.cycles.all += word not in ("bitcast", "freeze") and (word, to) != ("trunc", "i32")
        if word in ("zext", "uitofp"):
            a = _unsigned(kind, a)
        if word in ("fptosi", "fptoui", "trunc"):
            a = _wrapped(to, int(a))
        return float(a) if word in ("sitofp", "uitofp") else a

    def _read(self, kind: str, place: int) -> Any:
        if place >= _DEVICE:
            return self._value(kind, "zeroinitializer")
        form = _format(kind)
        values = struct.unpack_from("=" + form, self.memory, place - _STACK)
        return values if kind.startswith("<") else values[0]

    def _write(self, kind: str, value: Any, place: int) -> None:
        if place < _DEVICE:
            values = value if kind.startswith("<") else (value,)
            struct.pack_into("=" + _format(kind), self.memory, place - _STACK, *values)

    def _call(self, rest: str) -> Any:
        kind, name, text = re.match(r"(.*?) @([\w.]+)\((.*)\)", rest).groups()  # type: ignore[union-attr]
        short = re.sub(r"^_ZN5metal\d+|^llvm\.", "", name)
        if short.startswith(("lifetime", "assume", "experimental")):
            return None
        arguments = [self._typed(each)[1] for each in _split(text)]
        if short.startswith("simdgroup_multiply"):
            self.cycles.matrices += 16
        if short.startswith(("memcpy", "memset")):
            size = arguments[2]
            source = bytes([arguments[1] & 255]) * size
            if short.startswith("memcpy") and arguments[1] < _DEVICE:
                source = bytes(self.memory[arguments[1] - _STACK :][:size])
            if arguments[0] < _DEVICE:
                self.memory[arguments[0] - _STACK :][:size] = source
                self.memory[arguments[0] - _STACK : arguments[0] - _STACK + size] = source
            far = max(arguments[:2]) >= _DEVICE
            self.cycles.all += far * 2 * max(1, size // 16)
            return None
        for word, cycles in _CALLS.items():
            if short.startswith(word):
                self.cycles.all += cycles
                break
        else:
            raise ValueError(name)
        for word, function in _LIBRARY.items():
            if re.match(rf"[su]?{word}(E|\.)", short):
                return function(*arguments[: 1 if word in ("abs", "fabs") else 2])
        same = "shuffle" in short or "thread_elements" in short  # a matrix is in registers
        return arguments[0] if same else self._value(kind, "zeroinitializer")


# Cycles of a SIMD group by the prefix of the function's name.
_CALLS = {
    "simdgroup_multiply": 16, "simdgroup_matrix": 0, "simdgroup_load": 2, "simdgroup_store": 2,
    "simdgroup_barrier": 2, "threadgroup_barrier": 2, "make_filled": 0, "simd_": 8,
    "exp": 8, "tanh": 8, "fabs": 1,
    "abs": 1, "min": 1, "max": 1, "smax": 1, "smin": 1, "umax": 1, "umin": 1, "fm": 1,
}  # fmt: skip


def weight(word: str, kind: str, *, constant: bool) -> float:
    """Return an arithmetic instruction's cycles; `constant`: the operand is a known number."""
    wide = kind == "i64"
    if word in ("add", "sub"):
        return 4 if wide else 1
    if word == "mul":
        return 13.4 if wide else 2.3
    if word in ("sdiv", "srem", "udiv", "urem"):
        return (8 if wide else 4) if constant else (80 if wide else 20)
    return 6 if word == "fdiv" else 2 if wide else 1


def _format(kind: str) -> str:
    several = re.match(r"<(\d+) x (\w+)>", kind)
    return int(several[1]) * _FORMATS[several[2]] if several else _FORMATS[re.split(" ", kind)[0]]


def _size(kind: str) -> int:
    if kind.startswith("["):
        count, kind = kind[1:-1].split(" x ", 1)
        return int(count) * _size(kind)
    return 8 if "simdgroup_matrix" in kind else struct.calcsize("=" + _format(kind))


def _width(kind: str) -> int:
    return int(kind[1:])


def _unsigned(kind: str, value: int) -> int:
    return value & (1 << _width(kind)) - 1 if kind[0] == "i" else value


def _wrapped(kind: str, value: int) -> int:
    if kind == "i1":
        return value & 1
    half = 1 << _width(kind) - 1
    return (value + half) % (2 * half) - half


def _computed(word: str, kind: str, a: Any, b: Any) -> Any:
    if word in _UNSIGNED:
        return _wrapped(kind, _UNSIGNED[word](_unsigned(kind, a), _unsigned(kind, b)))
    value = _SIGNED[word](a, b)
    return _wrapped(kind, value) if kind[0] == "i" else value
