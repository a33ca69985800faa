"""Modules, weights and buffers may have names that no language allows for its variables."""

from __future__ import annotations

import keyword
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from tests.pieces import run_piece
from transforms import Program, convert, run_passes
from transforms.export.prepare import prepare_module
from zoo.errors import ExportError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


class _Dashes(nn.Module):
    """As RegNet names its blocks; two names are one where only letters count."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential()
        for name in ("block1-0", "block1_0"):
            self.blocks.add_module(name, nn.Conv2d(3, 3, 3, bias=False))
            self.blocks.add_module(f"{name}-norm", nn.BatchNorm2d(3))
        self.register_buffer("a-scale", torch.tensor([2.0, 3, 4, 5]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(2, 3, 8, 8) to (2, 3, 4, 4)."""
        y: torch.Tensor = self.blocks(x)
        return y * self.get_buffer("a-scale")


@pytest.mark.parametrize("target", ["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def test_names_with_dashes(target: str) -> None:
    """Through every pass, lowered and run: eager's numbers."""
    torch.manual_seed(2)
    module, x = _Dashes().eval(), torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        program = torch.export.export(module, (x,), strict=False).run_decompositions({})
        expected = module(x)
    prepared, _ = run_passes(program, target=target)
    [result] = run_piece(prepared, [x], target=target)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


# Reserved in C++20, [lex.key] and [lex.digraph]; those of Python among them can name no variable
# there either.
_WORDS = (
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break",
    "case", "catch", "char", "char8_t", "char16_t", "char32_t", "class", "compl", "concept",
    "const", "consteval", "constexpr", "constinit", "const_cast", "continue", "co_await",
    "co_return", "co_yield", "decltype", "default", "delete", "do", "double", "dynamic_cast",
    "else", "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto",
    "if", "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not", "not_eq",
    "nullptr", "operator", "or", "or_eq", "private", "protected", "public", "register",
    "reinterpret_cast", "requires", "return", "short", "signed", "sizeof", "static",
    "static_assert", "static_cast", "struct", "switch", "template", "this", "thread_local",
    "throw", "true", "try", "typedef", "typeid", "typename", "union", "unsigned", "using",
    "virtual", "void", "volatile", "wchar_t", "while", "xor", "xor_eq",
)  # fmt: skip
_OF_THE_WRAPPER = ["buf0", "arg0_1", "inputs", "outputs", "stream", "kernels", "std", "torch"]


class _Reserved(nn.Module):
    """A matrix and a vector under each of many names, all of which count."""

    def __init__(self, words: list[str]) -> None:
        super().__init__()
        self.words = words
        for i, word in enumerate(words):
            if i % 2:
                self.register_buffer(word, torch.randn(4))
            else:
                self.register_parameter(word, nn.Parameter(torch.randn(4, 4)))
        self.block = nn.Sequential()
        self.block.add_module("union", nn.Linear(4, 4))

    def forward(self, operator: torch.Tensor, *, template: torch.Tensor) -> dict[str, torch.Tensor]:
        """(3, 4) each."""
        x = operator
        for word in self.words:
            value = getattr(self, word)
            x = torch.tanh(x @ value if value.dim() > 1 else x + value)
        return {"short": self.block(x), "namespace": template * x}


@pytest.mark.parametrize("target", ["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def test_words_of_cpp(target: str) -> None:
    """Every word of C++, and the wrapper's own, may name weights, inputs, outputs and modules."""
    torch.manual_seed(3)
    words = [w for w in [*_WORDS, *_OF_THE_WRAPPER] if not keyword.iskeyword(w)]
    module = _Reserved([w for w in words if not hasattr(nn.Module, w)]).eval()
    inputs = {"operator": torch.randn(3, 4), "template": torch.randn(3, 4)}
    prepared = prepare_module("main", Program(module, inputs))
    assert [spec.name for spec in prepared.signature.inputs] == ["operator", "template"]
    program, _ = run_passes(prepared.program, target=target)
    with torch.no_grad():
        expected = module(**inputs)
    results = run_piece(program, list(inputs.values()), target=target)
    for result, name in zip(results, ("short", "namespace"), strict=True):
        torch.testing.assert_close(result, expected[name], rtol=1e-4, atol=1e-5)


class _Named(nn.Module):
    """A matrix of any name, which is the result's too."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.register_parameter(name, nn.Parameter(torch.randn(4, 4)))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """(2, 4) to (2, 4)."""
        return {self.name: x @ self.get_parameter(self.name)}


def test_what_cpp_would_escape(tmp_path: Path) -> None:
    """A name goes between quotes in C++, and comes out as it is."""
    made = convert(_Named(r"a\x41").eval(), (torch.randn(2, 4),), out=tmp_path / "made")
    [program] = made.manifest.programs
    assert [spec.name for spec in program.outputs] == [r"a\x41"]


@pytest.mark.parametrize("name", ['a"b', "a\\", "a\nb", "a\0b", "a\udc80"])
def test_what_python_cannot_quote(name: str) -> None:
    """Such a parameter is refused by its name, escaped."""
    with pytest.raises(ExportError) as raised:
        prepare_module("main", Program(_Named(name).eval(), (torch.randn(2, 4),)))
    assert f"has {name!r}, and torch writes graphs as Python" in str(raised.value)


@pytest.mark.parametrize("kind", ["inputs", "outputs"])
def test_inputs_and_outputs_are_called_by_text(kind: str) -> None:
    """Half of a letter, which no file holds, is refused."""
    program = Program(nn.ReLU(), (torch.randn(2),), names={kind: ["\ud800"]})
    with pytest.raises(UsageError, match=rf"one of the {kind} is called '.ud800'"):
        prepare_module("main", program)


@pytest.mark.parametrize("word", [word for word in _WORDS if keyword.iskeyword(word)])
def test_words_of_python(word: str) -> None:
    """What torch.export cannot write is refused by its name."""
    module = nn.Sequential()
    module.add_module(word, nn.Linear(4, 4))
    with pytest.raises(ExportError, match=rf"has {word}\.weight.*{word!r}.*Rename") as raised:
        prepare_module("main", Program(module.eval(), (torch.randn(2, 4),)))
    assert raised.value.place == "program main"
