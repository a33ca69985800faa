"""Translation of Metal source to C++ for the emulated device's prelude, in two versions.

The first is run. It only changes what C++ lacks, found by tokens: kernels are listed in a table at
the end, threadgroup variables become references to the group's memory, since a C++ local would
belong to one thread, and every literal with a point is a float, since Metal has no double.
The second is compiled with real address spaces, to refuse what Apple's compiler refuses; code that
no C++ compiler refuses is refused here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, NoReturn

from menagerie.errors import MenagerieError

_TOKEN = re.compile(
    r"""(?P<marker>^[ \t]*\#[^\n]*)
      | (?P<text>"(?:\\.|[^"\\])*"? | '(?:\\.|[^'\\])*'?)
      | (?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)
      | (?P<word>\w+)
      | (?P<sign>::|\S)""",
    re.VERBOSE | re.MULTILINE | re.DOTALL | re.ASCII,
)
_MARKER = re.compile(r"[ \t]*# *(\d{1,9})")  # `# 12 "kernels.metal"`; pragmas are ignored
_FLOATING = re.compile(r"0[xX].*[.pP]|(?!0[xX]).*[.eE]")
_CONSTRUCTOR = re.compile(
    r"(?<!operator )\b((?:bool|u?char|u?short|u?int|u?long|half|bfloat|float)[234])(?=[ \t]*\()"
)
_SWIZZLE = re.compile("[xyzw]{2,4}|[rgba]{2,4}")
_ASSIGNED = re.compile(r"=(?!=)|(<<|>>|[-+*/%&|^])=")
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_TOO_MUCH = '"a group has 32768 bytes of threadgroup memory"'
_MOST_CHARACTERS = 32 * 2**20  # of preprocessed text
_DEEPEST = 64  # nested namespaces, whose names each of their kernels repeats
_LONGEST = 1000  # characters of their names in total, and of a variable's type
_SPACES = {"device", "constant", "threadgroup", "thread", "threadgroup_imageblock", "ray_data"}
_LIES_IN = {
    "threadgroup": "menagerie::emulated::lies_in_group",
    "thread": "menagerie::emulated::lies_in_thread",
}
_NOT_OF_METAL = {
    "double", "goto", "virtual", "new", "delete", "throw", "try", "catch", "dynamic_cast",
    "typeid", "thread_local", "asm", "register", "__int128",
}  # fmt: skip
_STATEMENTS = {
    "return", "case", "using", "typedef", "for", "while", "if", "switch", "else", "do",
    "struct", "class", "union", "enum",
}  # fmt: skip
_BEFORE_SUBSCRIPT = {")", "]", "}", ">", "operator"}  # otherwise [ begins an attribute or a lambda
# Groups whose types must agree; all of them must have the same width.
_ALIKE = (
    ("thread_position_in_grid", "threads_per_grid"),
    (
        "thread_position_in_threadgroup", "threads_per_threadgroup",
        "dispatch_threads_per_threadgroup",
    ),
)  # fmt: skip
_POSITION = re.compile(r"u(short|int)([23]?)")
_NUMBER = re.compile(r"(bool|half|bfloat|float|u?(char|short|int|long|int\d+_t)|size_t)[234]?")
_OF_GRIDS = {
    "thread_position_in_grid", "thread_position_in_threadgroup", "threadgroup_position_in_grid",
    "threads_per_grid", "threads_per_threadgroup", "dispatch_threads_per_threadgroup",
    "threadgroups_per_grid",
}  # fmt: skip
_MOST_BUFFERS = 31  # kMaxArguments of prelude/abi.h; its Role has the names above
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
    "thread_index_in_quadgroup": "kIndexInQuad",
    "quadgroup_index_in_threadgroup": "kQuadInGroup",
    "quadgroups_per_threadgroup": "kQuadsPerGroup",
    "dispatch_quadgroups_per_threadgroup": "kNominalQuadsPerGroup",
    "threadgroup": "kAbsent",
}


class _Token(NamedTuple):
    text: str
    kind: str  # a group of _TOKEN
    offset: int
    line: int  # by the preprocessor's line markers


@dataclass(frozen=True)
class _Kernel:
    """A kernel's entry in the table; a buffer's role is its index."""

    name: str  # in the Metal library
    reference: str  # the function's name in C++
    parameters: tuple[tuple[str, int | str], ...]  # names and roles
    max_threads: str  # a constant expression of a template's parameters
    serial: bool  # whether it uses atomics


class Translation(NamedTuple):
    """The two C++ versions of a source."""

    run: str
    checked: str  # with address spaces, and without the table of kernels
    versioned: frozenset[str]  # structures with member functions for certain address spaces


@dataclass(frozen=True)
class _Function:
    """A function's definition: its bounds, its name and its parameters."""

    begin: int
    name: _Token
    parameters: Sequence[Sequence[_Token]]
    end: int


@lru_cache(maxsize=4)  # a shader is compiled for each mode of the emulated device
def translate(preprocessed: str) -> Translation:
    """Translate preprocessed Metal to C++; raise MenagerieError with a line that Metal refuses."""
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
    opens = tokens[opening].text
    depth = 0
    for at in range(opening, len(tokens)):
        depth += (tokens[at].text == opens) - (tokens[at].text == _CLOSING[opens])
        if depth == 0:
            return at
    _refuse(tokens[opening], f"{opens} is never closed")


def _split(tokens: Sequence[_Token], brackets: str) -> Iterator[Sequence[_Token]]:
    """Yield the tokens between commas outside `brackets`, which lists the opening ones."""
    begin = depth = 0
    closing = {_CLOSING[opens] for opens in brackets}
    for at, (text, *_) in enumerate(tokens):
        depth += (text in brackets) - (text in closing)
        if text == "," and depth == 0:
            yield tokens[begin:at]
            begin = at + 1
    yield tokens[begin:]


def _named(tokens: Sequence[_Token]) -> tuple[str, str]:
    """Return a function's name and its template arguments, e.g. of `fill<float>`."""
    words = [t.text for t in tokens]
    cut = words.index("<") if "<" in words else len(words)
    return "".join(words[:cut]), " ".join(words[cut:])


def _attribute(tokens: Sequence[_Token], name: str) -> str | None:
    """Return an attribute's argument: "64" in [[max_total_threads_per_threadgroup(64)]]."""
    for at, (token, after) in enumerate(itertools.pairwise(tokens)):
        if (token.text, after.text) == (name, "("):
            return " ".join(t.text for t in tokens[at + 2 : _closing(tokens, at + 1)])
    return None


def _limit(before: Sequence[_Token], threads: str | None) -> str:
    """Return a kernel's thread limit, in which `<...>` stands for a template's arguments."""
    most = threads or "menagerie::emulated::kMaxThreads"
    words = [t.text for t in before]
    if threads is None or threads.isdecimal() or words[:2] != ["template", "<"]:
        return most
    parameters = " ".join(words[2 : _closing(before, 1)])
    return f"[]<{parameters}> {{ return uint({most}); }}.template operator()<...>()"


def _host_name(tokens: Sequence[_Token]) -> str | None:
    literals = _attribute(tokens, "host_name")  # adjacent literals join: "fill_" "float"
    return None if literals is None else "".join(re.findall(r'"([^"]*)"', literals))


def _parameters(tokens: Sequence[_Token], kernel: str) -> tuple[tuple[str, int | str], ...]:
    """Return names and roles; a buffer without an index gets the lowest free one, as in Metal."""
    found = [_parameter(each, kernel) for each in _split(tokens, "([{<") if each]
    taken = {role for _, role in found}
    indices = [role for _, role in found if isinstance(role, int)]
    if len(set(indices)) < len(indices):
        _refuse(tokens[0], f"kernel {kernel}: two buffers have one index")
    free = itertools.filterfalse(taken.__contains__, itertools.count())
    given = tuple((name, next(free) if role is None else role) for name, role in found)
    if any(isinstance(role, int) and role >= _MOST_BUFFERS for _, role in given):
        raise MenagerieError(f"kernel {kernel}", f"has more than {_MOST_BUFFERS} buffers")
    _check_positions(tokens, kernel)
    return given


def _check_positions(tokens: Sequence[_Token], kernel: str) -> None:
    """Refuse positions that are not uint or ushort, or whose types or widths differ."""
    kinds = {}
    for each in _split(tokens, "([{<"):
        words = [t.text for t in each if t.text not in ("const", "metal", "::")]
        role = words[words.index("[") + 2] if "[" in words[:-2] else ""
        if role not in _ROLES or role == "threadgroup":
            continue
        kind = words[0].replace("int32_t", "int").replace("int16_t", "short")
        found = _POSITION.fullmatch(kind)
        if _NUMBER.fullmatch(kind) and (found is None or (found[2] and role not in _OF_GRIDS)):
            _refuse(each[0], f"kernel {kernel}: {kind} is no type of {role}")
        if found is not None:
            kinds[role] = kind
    if len({kinds[role].lstrip("uinthsor") for role in kinds.keys() & _OF_GRIDS}) > 1:
        _refuse(tokens[0], f"kernel {kernel}: its positions are vectors of different widths")
    for roles in _ALIKE:
        if len({kinds[role] for role in roles if role in kinds}) > 1:
            _refuse(tokens[0], f"kernel {kernel}: {' and '.join(roles)} are of different types")


def _check_buffer(tokens: Sequence[_Token], kernel: str, name: str) -> None:
    words = {t.text for t in tokens}
    number = _NUMBER.fullmatch(tokens[0].text) and not words & {"*", "&"}
    if "thread" in words or number:
        fact = "is no pointer or reference to device or constant memory"
        _refuse(tokens[0], f"kernel {kernel}, parameter {name}: {fact}")


def _parameter(tokens: Sequence[_Token], kernel: str) -> tuple[str, int | str | None]:
    """Return the name and the meaning of its attribute: None without one, for a buffer."""
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
    if role is None or isinstance(role, int):
        _check_buffer(tokens, kernel, name)
    return name, role


def _role(attribute: Sequence[_Token], place: str, token: _Token) -> int | str:
    match [t.text for t in attribute]:
        case ["buffer", "(", index, ")", *rest]:
            if len(index) < 3 and index.isdecimal() and int(index) < _MOST_BUFFERS:  # noqa: PLR2004
                # Function constants are zero, so a buffer that depends on one is absent.
                return "menagerie::emulated::kAbsent" if "function_constant" in rest else int(index)
            _refuse(token, f"{place}: buffer({index}) is not one of 0 to {_MOST_BUFFERS - 1}")
        case [word, *_] if word in _ROLES:
            return f"menagerie::emulated::{_ROLES[word]}"
        case words:
            _refuse(token, f"{place}: the attribute {''.join(words[:1])} is not emulated")


def _float_literal(number: str) -> str:
    """Type 0.5 as float and 0.5h as half; Clang's option for that does not reach templates."""
    for suffix, kind in (("bf", "bfloat"), ("h", "half")):
        if number.lower().endswith(suffix):
            return f"{kind}({number[: -len(suffix)]}f)"
    return number if number[-1] in "fF" else f"{number}f"


def _table(kernels: Sequence[_Kernel]) -> str:
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
        self.braces: list[int] = []  # tokens that open the scopes
        self.scopes: list[str | None] = []  # a namespace's name with ::, None for other braces
        self.templates: dict[str, _Kernel] = {}
        self.kernels: list[_Kernel] = []
        self.edits: list[tuple[int, int, str, str]] = []  # from, to, the new text in each result
        self.overloads: dict[tuple[str, ...], dict[tuple[str, ...], _Function]] = {}
        self.versions: set[str] = set()  # versions of member functions that are kept
        self.versioned: set[str] = set()
        self.bodies: set[int] = set()  # tokens that open a kernel's body
        self.kernel_depth = 0  # scopes up to the kernel's body; 0 outside of kernels
        self.members = set(self._members())
        self.begin = 0  # first token of the current declaration
        self.parentheses = 0
        self.variables = itertools.count()

    def translate(self) -> Translation:
        for at, token in enumerate(self.tokens):
            self._check(at, token)
        at = 0
        while at < len(self.tokens):
            at = self._step(at)
        for number, functions in enumerate(self.overloads.values()):
            if len(functions) > 1:
                self._join(number, functions)
        table = '\n#line 1 "kernel table"\n' + _table(self.kernels)
        checked = _CONSTRUCTOR.sub(r"menagerie_vector<\1>", self._edited(3))
        return Translation(self._edited(2) + table, checked, frozenset(self.versioned))

    def _edited(self, result: int) -> str:
        pieces, at = [], 0
        for edit in sorted(self.edits):
            if edit[0] >= at:  # otherwise within text that has been replaced as a whole
                pieces += [self.source[at : edit[0]], str(edit[result])]
                at = edit[1]
        return "".join([*pieces, self.source[at:]])

    def _replace(self, begin: int, end: int, text: str, checked: str | None = None) -> None:
        self.edits.append((begin, end, text, text if checked is None else checked))

    def _check(self, at: int, token: _Token) -> None:
        """Refuse words and signs that C++ has and Metal lacks; make literals floats."""
        text, kind, offset, _ = token
        before = self.tokens[at - 1] if at > 0 else _Token("", "", 0, 0)
        if kind == "number" and text.lower().endswith(("ll", "llu")):
            _refuse(token, f"{text}: Metal has no long long")
        if kind == "number" and _FLOATING.match(text):
            self._replace(offset, offset + len(text), _float_literal(text))
        if kind == "word":
            self._write_word(at)
        if kind == "word" and text in _NOT_OF_METAL:
            _refuse(token, f"{text} is not in Metal's language")
        if text == "long" and self._text(at + 1 + (self._text(at + 1) == "int")) == "long":
            _refuse(token, "Metal has no long long")
        if text == "noexcept" and before.text not in {")", "const", *_SPACES}:
            _refuse(token, "Metal has no operator noexcept")
        if text == "[" and self._text(at + 1) != "[" and before.text != "[":
            subscript = before.kind in ("word", "text") and before.text != "return"
            if not subscript and before.text not in _BEFORE_SUBSCRIPT:
                _refuse(token, "Metal has no lambdas before version 3.2")
        if text in ("*", "&") and self._text(at + 1) in (")", ">"):
            self._check_cast(at)

    def _write_word(self, at: int) -> None:
        """Remove [[threadgroup(0)]], which is a macro of the prelude; translate swizzles."""
        text = self.tokens[at].text
        if text == "threadgroup" and self._text(at - 1) == self._text(at - 2) == "[":
            end = self.tokens[_closing(self.tokens, at - 2)].offset
            self._replace(self.tokens[at - 2].offset, end + 1, "")
        if len(text) <= 4 and _SWIZZLE.fullmatch(text):  # noqa: PLR2004
            self._swizzle(at)

    def _swizzle(self, at: int) -> None:
        """Replace v.yx by v.swizzle(metal::own::Places<1, 0>()), unless a structure has a yx."""
        token, before = self.tokens[at], [t.text for t in self.tokens[max(0, at - 2) : at]]
        if token.text not in self.members and (before[-1:] == ["."] or before == ["-", ">"]):
            places = ", ".join(str("xyzw".find(c) + "rgba".find(c) + 1) for c in token.text)
            after = "".join(t.text for t in self.tokens[at + 1 : at + 4])
            name = "chosen" if _ASSIGNED.match(after) else "swizzle"
            text = f"{name}(::metal::own::Places<{places}>())"
            self._replace(token.offset, token.offset + len(token.text), text, token.text)

    def _members(self) -> Iterator[str]:
        """Yield names of structures' members that look like parts of a vector."""
        depth = 0
        structures: list[int] = []
        for at, token in enumerate(self.tokens):
            if token.text == "{":
                depth += 1
                if self._structure(at):
                    structures.append(depth)
            elif token.text == "}":
                depth -= 1
                if structures and depth < structures[-1]:
                    structures.pop()
            elif structures and _SWIZZLE.fullmatch(token.text) and self._declares(at):
                yield token.text

    def _declares(self, at: int) -> bool:
        return self._text(at + 1) in (";", ",", "=", "[") and self._text(at - 1) != "."

    def _structure(self, opening: int) -> str:
        """Return the name of the structure whose body begins here; empty for other braces."""
        for at in range(opening - 1, max(-1, opening - 12), -1):
            if self.tokens[at].text in ("struct", "union", "class"):
                return self.tokens[at + 1].text
            if self.tokens[at].text in (";", "{", "}", ")"):
                break
        return ""

    def _check_cast(self, at: int) -> None:
        """Refuse `(float*)` and `reinterpret_cast<float*>` without an address space."""
        first = at
        while first > 0 and self._text(first - 1) not in ("(", "<", ",", ";", "{", "}"):
            first -= 1
        kind = self.tokens[first:at]
        if kind and all(t.kind == "word" or t.text in ("::", "*") for t in kind):
            self._check_space(kind, self.tokens[at])

    def _check_space(self, kind: Sequence[_Token], star: _Token) -> None:
        words = {t.text for t in kind}
        if not words & (_SPACES | {"auto"}):
            name = " ".join(t.text for t in kind)
            _refuse(star, f"{name}{star.text} has no address space: device, constant, ...")

    def _text(self, at: int) -> str:
        return self.tokens[at].text if at < len(self.tokens) else ""

    def _find(self, text: str, at: int, fact: str) -> int:
        for found in range(at, len(self.tokens)):
            if self.tokens[found].text == text:
                return found
        _refuse(self.tokens[at - 1], fact)

    def _step(self, at: int) -> int:
        """Process the construct at a token; return where the next one begins."""
        text = self.tokens[at].text
        outside = not self.scopes or self.scopes[-1] is not None
        if text == "namespace" and outside:
            return self._namespace(at)
        if text == "kernel" and outside:
            return self._kernel(at)
        if text == "threadgroup" and not outside and self.parentheses == 0:
            return self._declaration(at)
        if text == "function_constant" and self._text(at + 1) == "(":  # no launch sets one: zero
            begin, last = self.tokens[at - 2].offset, _closing(self.tokens, at + 1) + 2
            self._replace(begin, self.tokens[min(last, len(self.tokens) - 1)].offset + 1, "= {}")
        self._enter(at, outside=outside)
        if text in (";", "{", "}") and self.parentheses == 0:
            self.begin = at + 1
        return at + 1

    def _enter(self, at: int, *, outside: bool) -> None:
        """Count brackets, and check the construct that ends at this token."""
        text = self.tokens[at].text
        self.parentheses += (text == "(") - (text == ")")
        if text == "{":
            if self._in_structure():
                self._member(at)
            elif outside and self._structure(at):
                self._specialisation(at)
            if self.parentheses == 0:
                self._check_parameters(self.tokens[self.begin : at], at if outside else None)
            self.scopes.append(None)
            self.braces.append(at)
            if at in self.bodies:
                self.kernel_depth = len(self.scopes)
        if text == "}" and self.scopes:
            self.scopes.pop()
            self.braces.pop()
            if len(self.scopes) < self.kernel_depth:
                self.kernel_depth = 0
        if (
            self.parentheses == 0
            and text in (";", "{")
            and (text == ";" or not outside or self._text(at - 1) == "=")
        ):
            self._check_variable(self.tokens[self.begin : at], outside=outside)
        if text == ";" and not outside:
            self._check_declaration(self.tokens[self.begin : at])

    def _namespace(self, at: int) -> int:
        end = at + 1
        while self._text(end) not in ("{", ";", ""):
            end += 1
        if self._text(end) == "{":
            name = "".join(t.text for t in self.tokens[at + 1 : end])
            self.scopes.append(f"{name}::" if name else "")
            self.braces.append(end)
            if len(self.scopes) > _DEEPEST or len(self._qualified("")) > _LONGEST:
                _refuse(self.tokens[at], "namespaces are nested too deeply, or have too long names")
        self.begin = end + 1
        return end + 1

    def _check_variable(self, tokens: Sequence[_Token], *, outside: bool) -> None:
        """Refuse a global or static variable that is not in constant memory."""
        words = [t.text for t in tokens]
        while words[:2] == ["template", "<"]:
            end = _closing(tokens, 1) + 1 if words.count("<") == words.count(">") else len(tokens)
            tokens, words = tokens[end:], words[end:]
        kind = list(itertools.takewhile(lambda word: word not in ("=", "{", "["), words))
        if len(kind) < 2 or set(kind) & (_STATEMENTS | {"(", "constant", "operator"}):  # noqa: PLR2004
            return
        if "=" in words if outside else words[0] == "static" and not self._in_structure():
            where = "of the program" if outside else "that is static"
            _refuse(tokens[0], f"{kind[-1]}: a variable {where} lies in constant memory")

    def _in_structure(self) -> bool:
        return bool(self.braces and self._structure(self.braces[-1]))

    def _member(self, at: int) -> None:
        """Keep one of a member function's versions for address spaces; its body begins at `at`."""
        head = self.tokens[self.begin : at]
        words = [t.text for t in head]
        for place, word in enumerate(words):
            before = words[place - 2 : place] if place > 1 else []
            if word in _SPACES and (before[1:] == [")"] or before == [")", "const"]):
                key = " ".join([str(self.braces[-1]), *words[:place]])
                end = self.tokens[_closing(self.tokens, at)].offset + 1
                is_first = self._keep_one(key, head[0].offset, end, checked=False)
                if is_first and word != "thread":
                    self._replace(head[place].offset, head[place].offset + len(word), "")
                self.versioned.add(self._structure(self.braces[-1]))
                return

    def _specialisation(self, at: int) -> None:
        """Keep one of a class template's specialisations that only differ in address spaces."""
        head = self.tokens[self.begin : at]
        words = [t.text for t in head if t.text not in _SPACES]
        if len(words) < len(head):
            end = self.tokens[_closing(self.tokens, at)].offset + 1
            self._keep_one(" ".join(words), head[0].offset, end)

    def _keep_one(self, key: str, begin: int, end: int, *, checked: bool = True) -> bool:
        """Return whether a version is the first with its key; remove others from the run text.

        The checked text keeps them if `checked`.
        """
        is_first = key not in self.versions
        if not is_first:
            same = self.source[begin:end]
            lines = "\n" * same.count("\n")
            self._replace(begin, end, lines, same if checked else lines)
        self.versions.add(key)
        return is_first

    def _check_declaration(self, tokens: Sequence[_Token]) -> None:
        """Refuse a local `float* p` or `float& r`, i.e. words, a sign and a name."""
        kind = list(itertools.takewhile(lambda t: t.kind == "word" or t.text == "::", tokens))
        rest = tokens[len(kind) : len(kind) + 3]
        if len(kind) > 1 and kind[0].text not in _STATEMENTS:
            for other in itertools.islice(_split(tokens, "([{"), 1, None):
                if [t.text for t in other[:1]] == ["*"]:
                    self._check_space(kind[:-1], other[0])
        if not kind or not rest or rest[0].text not in ("*", "&") or kind[0].text in _STATEMENTS:
            return
        ends = [t.text for t in rest[2:3]] in ([], ["="], [","], ["["])
        if len(rest) > 1 and rest[1].kind == "word" and ends:
            self._check_space(kind, rest[0])

    def _check_parameters(self, tokens: Sequence[_Token], body: int | None) -> None:
        """Refuse parameters `float* p` and `float& r` of a function; `tokens` precede its {.

        Record a function of a namespace, whose body begins at `body`, among its overloads.
        """
        head = tokens[0].offset if tokens else 0
        words = [t.text for t in tokens]
        if words[:2] == ["template", "<"] and ">" in words:
            even = words.count("<") == words.count(">")  # otherwise some are operators
            tokens = tokens[_closing(tokens, 1) + 1 :] if even else ()
            words = [t.text for t in tokens]
        if not words or words[0] in _STATEMENTS or "(" not in words:
            return
        opening = words.index("(")
        named = tokens[opening - 1].kind == "word" or "operator" in words[:opening]
        if "=" in words and "operator" not in words:
            return
        if opening > 0 and named and ")" in words[opening:]:
            inside = tokens[opening + 1 : _closing(tokens, opening)]
            parameters = [parameter for parameter in _split(inside, "([{<") if parameter]
            for parameter in parameters:
                self._check_declaration(parameter)
                self._write_array(parameter)
            if body is not None and any(t.text in _SPACES for t in inside):
                name = tokens[opening - 1]
                end = self.tokens[_closing(self.tokens, body)].offset + 1
                self._note(_Function(head, name, parameters, end))

    def _write_array(self, parameter: Sequence[_Token]) -> None:
        """Rewrite `constant int n[3]`, which clang rejects, as `constant int* n` for the check."""
        words = [t.text for t in parameter]
        if "[" in words and set(words) & _SPACES and not set(words) & {"*", "&", "="}:
            name, last = parameter[words.index("[") - 1], parameter[-1]
            same = self.source[name.offset : last.offset + len(last.text)]
            self._replace(name.offset, last.offset + len(last.text), same, f"*{name.text}")

    def _note(self, function: _Function) -> None:
        """Add a function to those that only differ from it in address spaces."""
        kinds = [
            " ".join(t.text for t in parameter[:-1] if t.text not in _SPACES)
            for parameter in function.parameters
        ]
        spaces = tuple(
            next((t.text for t in parameter if t.text in _SPACES), "")
            for parameter in function.parameters
        )
        before = self.source[function.begin : function.name.offset].split()
        if "operator" in before[-1:] or function.name.kind != "word":  # it cannot be renamed
            key = " ".join([*(w for w in before if w not in _SPACES), function.name.text, *kinds])
            self._keep_one(key, function.begin, function.end)
            return
        same = self.overloads.setdefault((self._qualified(function.name.text), *kinds), {})
        same.setdefault(spaces, function)

    def _join(self, number: int, functions: dict[tuple[str, ...], _Function]) -> None:
        """Write a function that calls one of its overloads by its argument's address space."""
        first, last = next(iter(functions.values())), [*functions.values()][-1]
        head = self.source[first.begin : first.name.offset]
        names = [parameter[-1].text for parameter in first.parameters]
        which = next(i for i in range(len(names)) if len({s[i] for s in functions}) > 1)
        template = re.match(r"\s*template\s*<(.*?)>", head, re.DOTALL)
        given = re.findall(r"(\w+)\s*(?:,|=[^,]*,|$)", template[1]) if template else []
        call = f"<{', '.join(given)}>({', '.join(names)})" if given else f"({', '.join(names)})"
        tests, otherwise = "", ""
        for at, (spaces, function) in enumerate(functions.items()):
            name = f"menagerie_{number}_{at}_{function.name.text}"
            self._replace(
                function.name.offset,
                function.name.offset + len(function.name.text),
                name,
                function.name.text,
            )
            if (test := _LIES_IN.get(spaces[which])) is not None:
                star = "" if any(t.text == "*" for t in first.parameters[which]) else "&"
                tests += f"if ({test}({star}{names[which]})) return {name}{call}; "
            else:
                otherwise = otherwise or f"return {name}{call}; "
        between = self.source[first.name.offset : first.parameters[-1][-1].offset]
        self._replace(
            last.end, last.end, f" {head}{between}{names[-1]}) {{ {tests}{otherwise}}}", ""
        )

    def _kernel(self, at: int) -> int:
        """Translate `kernel void name<T>(parameters)`: a function, template or instance."""
        start, before = at + 1, self.tokens[self.begin : at]
        if [t.text for t in before[-2:]] == ["[", "["]:  # [[kernel, ...]]
            end = _closing(self.tokens, at - 2)
            start, before = end + 1, [*before[:-2], *self.tokens[at - 2 : end + 1]]
        template = any(t.text == "template" for t in before)
        if template and self._text(start) != "void":
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
            self.bodies.add(close + 1)
            for parameter in _split(self.tokens[opening + 1 : close], "([{<"):
                self._check_declaration(parameter)
                self._write_array(parameter)
            found = _Kernel(
                name=_host_name(before) or name,
                reference=f"::{self._qualified(name)}",
                parameters=_parameters(self.tokens[opening + 1 : close], name),
                max_threads=_limit(before, threads),
                serial=any("tomic" in t.text for t in body),
            )
            if template:
                self.templates[self._qualified(name)] = found
            else:
                self.kernels.append(found)
        self.begin = close + 1  # the next declaration starts after this one
        return close + 1

    def _instance(self, start: int, before: Sequence[_Token]) -> int:
        """Translate `template [[host_name("f")]] [[kernel]] decltype(fill<float>) fill<float>;`.

        The type may also be a name from a typedef.
        """
        close = start
        if self._text(start) == "decltype":
            close = _closing(self.tokens, self._find("(", start, "decltype is of nothing"))
        end = self._find(";", close, "a kernel's instance has no end")
        self._instantiate(*_named(self.tokens[close + 1 : end]), before)
        self.begin = end + 1
        return end + 1

    def _qualified(self, name: str) -> str:
        if name.startswith("::"):
            return name[2:]
        return "".join(scope for scope in self.scopes if scope) + name

    def _instantiate(self, name: str, arguments: str, before: Sequence[_Token]) -> None:
        """Translate `template [[host_name("fill_float")]] kernel void fill<float>(...)`."""
        at = 0
        while at < len(before):  # C++ allows no attribute here
            if [t.text for t in before[at : at + 2]] == ["[", "["]:
                begin, at = before[at].offset, _closing(before, at)
                self._replace(begin, before[at].offset + 1, "")
            at += 1
        host_name = _host_name(before)
        if host_name is None:
            return  # without a name it cannot be requested
        if (found := self.templates.get(self._qualified(name))) is None:
            _refuse(before[0], f"no kernel template {name} comes before its instantiation")
        most = found.max_threads.replace("<...>", arguments)
        self.kernels.append(
            replace(
                found, name=host_name, reference=f"{found.reference}{arguments}", max_threads=most
            )
        )

    def _declaration(self, at: int) -> int:
        """Translate `threadgroup float sums[32], total;` in a function; pointers stay unchanged."""
        first, angles = at + 1, 0
        while True:
            text = self._text(first)
            if text in ("*", "&", "(", "{", "}", ";", "threadgroup", ""):
                return at + 1
            if self.tokens[first].offset - self.tokens[at].offset > _LONGEST:
                _refuse(self.tokens[at], "a threadgroup variable's type is too long")
            angles += (text == "<") - (text == ">")
            named = first > at + 1 and self.tokens[first].kind == "word" and angles == 0
            if named and self._text(first + 1) in ("[", ";", ",", "="):
                break
            first += 1
        end = self._find(";", first, "a threadgroup variable is declared without an end")
        if not self.kernel_depth:
            _refuse(self.tokens[at], "a threadgroup variable is declared outside of a kernel")
        kind = self.source[self.tokens[at + 1].offset : self.tokens[first].offset]
        declared = _split(self.tokens[first:end], "([{")  # in an extent < and > are operators
        text = "".join(self._variable(kind, each) for each in declared if each)
        begin, past = self.tokens[at].offset, self.tokens[end].offset + 1
        names = [each[0].text for each in _split(self.tokens[first:end], "([{") if each]
        limits = "".join(f"static_assert(sizeof({n}) <= 32768, {_TOO_MUCH});" for n in names)
        self._replace(begin, past, text, f"static {self.source[begin:past]} {limits}")
        self.begin = end + 1
        return end + 1

    def _variable(self, kind: str, declarator: Sequence[_Token]) -> str:
        """Return a reference to the group's memory; each thread writes the initial value."""
        name, *rest = declarator
        cut = 0  # past the extents, in which = is an operator
        while cut < len(rest) and rest[cut].text == "[":
            cut = _closing(rest, cut) + 1
        number = next(self.variables)
        alias = f"menagerie_local_{number}"
        text = f"typedef {kind} {alias}{self._source(rest[:cut])}; {alias}& {name.text} = "
        text += f"::menagerie::emulated::local_variable<{number}, {alias}>(); "
        if cut < len(rest):
            start = self._source(rest[cut + 1 :])
            text += f"{{ {alias} menagerie_start = {start}; "
            text += f"__builtin_memcpy(&{name.text}, &menagerie_start, sizeof({alias})); }} "
        return text

    def _source(self, tokens: Sequence[_Token]) -> str:
        if not tokens:
            return ""
        return self.source[tokens[0].offset : tokens[-1].offset + len(tokens[-1].text)]
