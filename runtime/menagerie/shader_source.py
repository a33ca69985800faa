"""Metal source as C++ that the prelude of the emulated device makes compilable.

Only what C++ lacks is changed, found by its tokens: kernels are entered in a table that ends the
text, threadgroup variables become references into the group's memory, since a C++ local would be
each thread's own, and every literal with a point is a float, since Metal has no double.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from menagerie.errors import MenagerieError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TOKEN = re.compile(
    r"""(?P<marker>^[ \t]*\#[^\n]*)
      | (?P<text>"(?:\\.|[^"\\])*"? | '(?:\\.|[^'\\])*'?)
      | (?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)
      | (?P<word>\w+)
      | (?P<sign>::|\S)""",
    re.VERBOSE | re.MULTILINE | re.DOTALL | re.ASCII,
)
_MARKER = re.compile(r"[ \t]*# *(\d{1,9})")  # `# 12 "kernels.metal"`; pragmas are passed over
_FLOATING = re.compile(r"0[xX].*[.pP]|(?!0[xX]).*[.eE]")
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_MOST_CHARACTERS = 32 * 2**20  # of preprocessed text
_DEEPEST = 64  # namespaces in each other, whose names each of their kernels repeats
_LONGEST = 1000  # characters of their names together, and of a variable's type
_MOST_BUFFERS = 31  # kMaxArguments of prelude/abi.h, of whose Role these are the names
_ROLES = {
    "thread_position_in_grid": "kThreadInGrid",
    "thread_position_in_threadgroup": "kThreadInGroup",
    "threadgroup_position_in_grid": "kGroupInGrid",
    "threads_per_grid": "kThreadsPerGrid",
    "threads_per_threadgroup": "kThreadsPerGroup",
    "dispatch_threads_per_threadgroup": "kNominalThreadsPerGroup",
    "threadgroups_per_grid": "kGroupsPerGrid",
    "thread_index_in_threadgroup": "kIndexInGroup",
    "thread_index_in_simdgroup": "kIndexInSimd",
    "simdgroup_index_in_threadgroup": "kSimdInGroup",
    "threads_per_simdgroup": "kThreadsPerSimd",
    "thread_execution_width": "kThreadsPerSimd",
    "simdgroups_per_threadgroup": "kSimdsPerGroup",
    "dispatch_simdgroups_per_threadgroup": "kNominalSimdsPerGroup",
}


class _Token(NamedTuple):
    text: str
    kind: str  # a group of _TOKEN
    offset: int
    line: int  # as the preprocessor's markers count


@dataclass(frozen=True)
class _Kernel:
    """What the table says of a kernel; a buffer's role is its index."""

    name: str  # as the Metal library lists it
    reference: str  # as C++ names the function
    parameters: tuple[tuple[str, int | str], ...]  # names and roles
    max_threads: str  # a constant expression
    serial: bool  # uses atomics


def translate(preprocessed: str) -> str:
    """Translate preprocessed Metal to C++; MenagerieError names a line that is not emulated."""
    if len(preprocessed) > _MOST_CHARACTERS:
        fact = f"has more than {_MOST_CHARACTERS} characters when its macros are expanded"
        raise MenagerieError("the Metal source", fact)
    return _Translator(preprocessed).translate()


def _tokens(source: str) -> Iterator[_Token]:
    line, last = 1, 0
    for found in _TOKEN.finditer(source):
        line += source.count("\n", last, found.start())
        last = found.start()
        if found.lastgroup != "marker":
            yield _Token(found[0], str(found.lastgroup), found.start(), line)
        elif number := _MARKER.match(found[0]):
            line = int(number[1]) - 1


def _refuse(token: _Token, fact: str) -> NoReturn:
    raise MenagerieError(f"line {token.line}", fact)


def _closing(tokens: Sequence[_Token], opening: int) -> int:
    """Index of the token that closes the bracket at `opening`."""
    opens = tokens[opening].text
    depth = 0
    for at in range(opening, len(tokens)):
        depth += (tokens[at].text == opens) - (tokens[at].text == _CLOSING[opens])
        if depth == 0:
            return at
    _refuse(tokens[opening], f"{opens} is never closed")


def _split(tokens: Sequence[_Token], brackets: str) -> Iterator[Sequence[_Token]]:
    """The texts between the commas that are in none of the brackets, given as they open."""
    begin = depth = 0
    closing = {_CLOSING[opens] for opens in brackets}
    for at, (text, *_) in enumerate(tokens):
        depth += (text in brackets) - (text in closing)
        if text == "," and depth == 0:
            yield tokens[begin:at]
            begin = at + 1
    yield tokens[begin:]


def _named(tokens: Sequence[_Token]) -> tuple[str, str]:
    """A function's name and the arguments of its template, as in `fill<float>`."""
    words = [t.text for t in tokens]
    cut = words.index("<") if "<" in words else len(words)
    return "".join(words[:cut]), " ".join(words[cut:])


def _attribute(tokens: Sequence[_Token], name: str) -> str | None:
    """An attribute's argument: "64" in [[max_total_threads_per_threadgroup(64)]]."""
    for at, (token, after) in enumerate(itertools.pairwise(tokens)):
        if (token.text, after.text) == (name, "("):
            return " ".join(t.text for t in tokens[at + 2 : _closing(tokens, at + 1)])
    return None


def _host_name(tokens: Sequence[_Token]) -> str | None:
    literals = _attribute(tokens, "host_name")  # adjacent ones are one: "fill_" "float"
    return None if literals is None else "".join(re.findall(r'"([^"]*)"', literals))


def _parameters(tokens: Sequence[_Token], kernel: str) -> tuple[tuple[str, int | str], ...]:
    """Names and roles; a buffer without an index takes the lowest that is free, as in Metal."""
    found = [_parameter(each, kernel) for each in _split(tokens, "([{<") if each]
    taken = {role for _, role in found}
    free = itertools.filterfalse(taken.__contains__, itertools.count())
    given = tuple((name, next(free) if role is None else role) for name, role in found)
    if any(isinstance(role, int) and role >= _MOST_BUFFERS for _, role in given):
        raise MenagerieError(f"kernel {kernel}", f"has more than {_MOST_BUFFERS} buffers")
    return given


def _parameter(tokens: Sequence[_Token], kernel: str) -> tuple[str, int | str | None]:
    """The name and what an attribute makes of it: None without one, so a buffer."""
    name, at = "", 0
    role: int | str | None = None
    while at < len(tokens):
        if [t.text for t in tokens[at : at + 2]] == ["[", "["]:
            end = _closing(tokens, at)
            role = _role(tokens[at + 2 : end - 1], f"kernel {kernel}, parameter {name}", tokens[at])
            at = end
        elif tokens[at].kind == "word":
            name = tokens[at].text
        at += 1
    return name, role


def _role(attribute: Sequence[_Token], place: str, token: _Token) -> int | str:
    match [t.text for t in attribute]:
        case ["buffer", "(", index, ")"]:
            if len(index) < 3 and index.isdecimal() and int(index) < _MOST_BUFFERS:  # noqa: PLR2004
                return int(index)
            _refuse(token, f"{place}: buffer({index}) is not one of 0 to {_MOST_BUFFERS - 1}")
        case [word, *_] if word in _ROLES:
            return f"menagerie::emulated::{_ROLES[word]}"
        case words:
            _refuse(token, f"{place}: the attribute {''.join(words[:1])} is not emulated")


def _float_literal(number: str) -> str:
    """0.5 is a float, 0.5h a half. Clang's own option for this does not reach templates."""
    for suffix, kind in (("bf", "bfloat"), ("h", "half")):
        if number.lower().endswith(suffix):
            return f"{kind}({number[: -len(suffix)]}f)"
    return number if number[-1] in "fF" else f"{number}f"


def _table(kernels: Sequence[_Kernel]) -> str:
    """C++ that defines the table of kernels."""
    calls, entries = [], []
    for number, kernel in enumerate(kernels):
        roles = ", ".join(str(role) for _, role in kernel.parameters)
        calls.append(
            f"MENAGERIE_UNCHECKED static void menagerie_run_{number}(menagerie::emulated::Fiber* "
            f"fiber) {{ menagerie::emulated::Caller<{roles}>::run(fiber, &{kernel.reference}); }}\n"
        )
        buffers = {role: f'"{name}"' for name, role in kernel.parameters if isinstance(role, int)}
        names = ", ".join(buffers.get(i, "nullptr") for i in range(max(buffers, default=-1) + 1))
        entries.append(
            f'  {{"{kernel.name}", menagerie_run_{number}, {kernel.max_threads}, '
            f"{str(kernel.serial).lower()}, {sum(1 << role for role in buffers)}U, {{{names}}}}},\n"
        )
    return (
        "\n" + "".join(calls) + 'extern "C" __attribute__((visibility("default")))\n'
        "extern const menagerie::emulated::KernelEntry menagerie_kernels[] = {\n"
        + "".join(entries)
        + "  {nullptr, nullptr, 0, false, 0U, {}},\n};\n"
    )


class _Translator:
    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = list(_tokens(source))
        self.scopes: list[str | None] = []  # a namespace's name with ::, None for other braces
        self.templates: dict[str, _Kernel] = {}
        self.kernels: list[_Kernel] = []
        self.edits: list[tuple[int, int, str]] = []  # from, to, and the new text
        self.begin = 0  # first token of the current declaration
        self.parentheses = 0
        self.variables = itertools.count()

    def translate(self) -> str:
        at = 0
        while at < len(self.tokens):
            at = self._step(at)
        for text, kind, offset, _ in self.tokens:
            if kind == "number" and _FLOATING.match(text):
                self.edits.append((offset, offset + len(text), _float_literal(text)))
        return self._edited() + '\n#line 1 "kernel table"\n' + _table(self.kernels)

    def _edited(self) -> str:
        pieces, at = [], 0
        for begin, end, text in sorted(self.edits):
            if begin >= at:  # else within a text that has been replaced as a whole
                pieces += [self.source[at:begin], text]
                at = end
        return "".join([*pieces, self.source[at:]])

    def _text(self, at: int) -> str:
        return self.tokens[at].text if at < len(self.tokens) else ""

    def _find(self, text: str, at: int, fact: str) -> int:
        """Index of the next token with that text."""
        for found in range(at, len(self.tokens)):
            if self.tokens[found].text == text:
                return found
        _refuse(self.tokens[at - 1], fact)

    def _step(self, at: int) -> int:
        """Take in what begins at a token; return where the next thing begins."""
        text = self.tokens[at].text
        outside = not self.scopes or self.scopes[-1] is not None
        if text == "namespace" and outside:
            return self._namespace(at)
        if text == "kernel" and outside:
            return self._kernel(at)
        if text == "threadgroup" and not outside and self.parentheses == 0:
            return self._declaration(at)
        self.parentheses += (text == "(") - (text == ")")
        if text == "{":
            self.scopes.append(None)
        if text == "}" and self.scopes:
            self.scopes.pop()
        if text in (";", "{", "}"):
            self.begin = at + 1
        return at + 1

    def _namespace(self, at: int) -> int:
        end = at + 1
        while self._text(end) not in ("{", ";", ""):
            end += 1
        if self._text(end) == "{":
            name = "".join(t.text for t in self.tokens[at + 1 : end])
            self.scopes.append(f"{name}::" if name else "")
            if len(self.scopes) > _DEEPEST or len(self._qualified("")) > _LONGEST:
                _refuse(self.tokens[at], "namespaces are nested too deeply, or have too long names")
        self.begin = end + 1
        return end + 1

    def _kernel(self, at: int) -> int:
        """`kernel void name<T>(parameters)`: a function, a template or an instance of one."""
        start, before = at + 1, self.tokens[self.begin : at]
        while self._text(start) == "]":  # [[kernel]]
            start, before = start + 1, before[:-1]
        template = any(t.text == "template" for t in before)
        if template and self._text(start) == "decltype":
            return self._instance(start, before)
        if self._text(start) != "void":
            _refuse(self.tokens[at], "a kernel returns void")
        opening = self._find("(", start + 1, "a kernel has no parameters")
        name, arguments = _named(self.tokens[start + 1 : opening])
        close = _closing(self.tokens, opening)
        if template and arguments:
            self._instantiate(name, arguments, before)
        elif self._text(close + 1) == "{":
            body = self.tokens[close + 1 : _closing(self.tokens, close + 1)]
            threads = _attribute(before, "max_total_threads_per_threadgroup")
            found = _Kernel(
                name=_host_name(before) or name,
                reference=f"::{self._qualified(name)}",
                parameters=_parameters(self.tokens[opening + 1 : close], name),
                max_threads=threads or "menagerie::emulated::kMaxThreads",
                serial=any("tomic" in t.text for t in body),
            )
            if template:
                self.templates[self._qualified(name)] = found
            else:
                self.kernels.append(found)
        self.begin = close + 1  # what comes next has nothing of this one's
        return close + 1

    def _instance(self, start: int, before: Sequence[_Token]) -> int:
        """`template [[host_name("fill_float")]] [[kernel]] decltype(fill<float>) fill<float>;`."""
        opening = self._find("(", start, "decltype is of nothing")
        close = _closing(self.tokens, opening)
        end = self._find(";", close, "a kernel's instance has no end")
        last = before[-1].offset + len(before[-1].text)
        self.edits.append((last, self.tokens[start].offset, " "))  # without [[kernel]]
        self._instantiate(*_named(self.tokens[close + 1 : end]), before)
        self.begin = end + 1
        return end + 1

    def _qualified(self, name: str) -> str:
        if name.startswith("::"):
            return name[2:]
        return "".join(scope for scope in self.scopes if scope) + name

    def _instantiate(self, name: str, arguments: str, before: Sequence[_Token]) -> None:
        """`template [[host_name("fill_float")]] kernel void fill<float>(...)`."""
        at = 0
        while at < len(before):  # C++ takes no attribute there
            if [t.text for t in before[at : at + 2]] == ["[", "["]:
                begin, at = before[at].offset, _closing(before, at)
                self.edits.append((begin, before[at].offset + 1, ""))
            at += 1
        host_name = _host_name(before)
        if host_name is None:
            return  # without a name it cannot be asked for
        if (found := self.templates.get(self._qualified(name))) is None:
            _refuse(before[0], f"no kernel template {name} comes before its instantiation")
        self.kernels.append(
            replace(found, name=host_name, reference=f"{found.reference}{arguments}")
        )

    def _declaration(self, at: int) -> int:
        """`threadgroup float sums[32], total;` inside a function; a pointer stays as it is."""
        first, angles = at + 1, 0
        while True:
            text = self._text(first)
            if text in ("*", "&", "(", "{", "}", ";", "threadgroup", ""):
                return at + 1
            if self.tokens[first].offset - self.tokens[at].offset > _LONGEST:
                _refuse(self.tokens[at], "a threadgroup variable's type is too long")
            angles += (text == "<") - (text == ">")
            named = first > at + 1 and self.tokens[first].kind == "word" and angles == 0
            if named and self._text(first + 1) in ("[", ";", ","):
                break
            first += 1
        end = self._find(";", first, "a threadgroup variable is declared without an end")
        kind = self.source[self.tokens[at + 1].offset : self.tokens[first].offset]
        text = ""
        declared = _split(self.tokens[first:end], "([{")  # in an extent < and > are operators
        for name, *extents in filter(None, declared):
            number = next(self.variables)
            alias = f"menagerie_local_{number}"
            sizes = self.source[extents[0].offset : extents[-1].offset + 1] if extents else ""
            text += f"typedef {kind} {alias}{sizes}; {alias}& {name.text} = "
            text += f"::menagerie::emulated::local_variable<{number}, {alias}>(); "
        self.edits.append((self.tokens[at].offset, self.tokens[end].offset + 1, text))
        self.begin = end + 1
        return end + 1
