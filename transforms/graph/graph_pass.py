"""The pass contract: requires, rewrite, ensures.

A pass is one subclass of `GraphPass` in a file of its own. It reports what it did through the
`Journal`; whether it modified the program is computed here by comparing graphs, never claimed.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar

import torch
from torch._export.verifier import SpecViolationError
from torch.export import ExportedProgram
from torch.fx import Node

from transforms.graph.editor import ProgramEditor
from zoo.errors import MenagerieError, PassError
from zoo.records import PassRecord, Refusal

PassOptions = Mapping[str, bool | int | float | str]
_OURS_TO_FIX = "This is a fault of the pass, not of the model"


@dataclass
class Journal:
    """A pass's notes on its work: each change, and each match that it left alone."""

    changes: list[str] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    def changed(self, what: str) -> None:
        """Record one rewrite, in words that a reader of the report understands."""
        self.changes.append(what)

    def refused(self, node: Node, reason: str) -> None:
        """Record a node that matched but was left alone, and why."""
        self.refusals.append(Refusal(node=node.name, reason=reason))


class GraphPass(ABC):
    """One graph rewrite.

    Subclasses implement `rewrite`, and override `requires` and `ensures` if they can check more
    than the general graph check does. `FoldConstants` is named `fold_constants`, and the first line
    of its docstring, in the form "Replaces A(B(x)) with C(x).", is its summary.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    options: PassOptions = MappingProxyType({})  # that the pass was made with

    def __init_subclass__(cls) -> None:
        """Derive name and summary from the class, unless it or a parent pass sets them."""
        if ABC not in cls.__bases__ and not hasattr(cls, "name"):
            cls.name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
            cls.summary = (cls.__doc__ or "").partition("\n")[0].removesuffix(".")

    def requires(self, editor: ProgramEditor) -> None:
        """Raise a MenagerieError if the pass cannot handle the program."""

    @abstractmethod
    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Change the graph; refuse every rewrite that is not certain to be right."""

    def ensures(self, editor: ProgramEditor) -> None:
        """Raise a MenagerieError if the result lacks what this pass guarantees."""

    def run(self, editor: ProgramEditor) -> PassRecord:
        """Run the pass on the editor's program; raise PassError if it fails or breaks the graph."""
        started = time.perf_counter()
        journal = Journal()
        before, nodes = editor.fingerprint(), len(editor.graph.nodes)
        try:
            self.requires(editor)
            self.rewrite(editor, journal)
            modified = editor.fingerprint() != before
            if modified:
                check_program(editor.finish(), f"pass {self.name}")
            self.ensures(editor)
        except MenagerieError:
            raise
        except Exception as error:
            raise PassError(f"pass {self.name}", f"failed: {error}") from error
        return PassRecord(
            name=self.name, modified=modified, nodes_before=nodes,
            nodes_after=len(editor.graph.nodes), changes=tuple(journal.changes),
            refusals=tuple(journal.refusals), seconds=time.perf_counter() - started,
        )  # fmt: skip

    def __call__(
        self, program: ExportedProgram, place: str = "program main"
    ) -> tuple[ExportedProgram, PassRecord]:
        """Run the pass alone, on a copy; return the original program if nothing changed."""
        editor = ProgramEditor(program, place)
        record = self.run(editor)
        return editor.program if record.modified else program, record


def check_program(program: ExportedProgram, stage: str) -> None:
    """Raise PassError, naming the stage that made the program, if it is malformed.

    Check torch's own specification (order and names of nodes, a fake value at every call, a
    signature that fits the graph's inputs and outputs), and that every constant exists with the
    shape and dtype that its placeholder claims, which torch does not check.
    """
    try:
        program.graph.lint()
        program.validate()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError, SpecViolationError) as error:
        raise PassError(stage, f"left a malformed graph ({error})", _OURS_TO_FIX) from error
    if fault := _constant_fault(program):
        raise PassError(stage, fault, _OURS_TO_FIX)


def _constant_fault(program: ExportedProgram) -> str | None:
    nodes = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    signature = program.graph_signature
    lifted = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    for placeholder, target in lifted.items():
        value = program.state_dict.get(target, program.constants.get(target))
        if not isinstance(value, torch.Tensor):
            return f"lost the constant {target}"
        claimed = nodes[placeholder].meta["val"]
        if tuple(claimed.shape) != tuple(value.shape) or claimed.dtype != value.dtype:
            claim = f"claims {target} is {tuple(claimed.shape)} {claimed.dtype}"
            return f"{claim}, it is {tuple(value.shape)} {value.dtype}"
    return None
