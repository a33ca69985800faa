"""The pass contract: requires, rewrite, ensures.

A pass is written as one subclass of `GraphPass` in a file of its own. It says what it did through
the `Journal`; whether it modified the program is computed here, by comparing graphs, never claimed.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from transforms.check import check_program
from transforms.editor import ProgramEditor
from zoo.errors import MenagerieError, PassError
from zoo.evidence import PassRecord, Refusal

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["GraphPass", "Journal", "fingerprint"]


@dataclass
class Journal:
    """What a pass says of its work: each change, and each place where it would not."""

    changes: list[str] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    def changed(self, what: str) -> None:
        """Note one rewrite, in words a reader of the report understands."""
        self.changes.append(what)

    def refused(self, node: Node, reason: str) -> None:
        """Note a place that matched but was left alone, and why."""
        self.refusals.append(Refusal(node=node.name, reason=reason))


class GraphPass(ABC):
    """One graph rewrite.

    Subclasses set `name` and `summary` and write `rewrite`; they override `requires` and `ensures`
    where they can state more than the general graph check does.
    """

    name: ClassVar[str]
    summary: ClassVar[str]  # one line, in the form "Replaces A(B(x)) with C(x)"

    def requires(self, editor: ProgramEditor) -> None:
        """Raise PassError if the program is not one this pass can take."""

    @abstractmethod
    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Change the graph; refuse what is not certain to be right."""

    def ensures(self, program: ExportedProgram) -> None:
        """Raise PassError if the result lacks what this pass promises."""

    def __call__(self, program: ExportedProgram) -> tuple[ExportedProgram, PassRecord]:
        """Run the pass on a copy of `program`.

        Returns:
            The rewritten program (the very same object if nothing changed) and the record.

        Raises:
            PassError: if a precondition does not hold or the result is not well formed.
        """
        started = time.perf_counter()
        journal = Journal()
        editor = ProgramEditor(program)
        before = len(editor.graph.nodes)
        try:
            self.requires(editor)
            self.rewrite(editor, journal)
            result = editor.finish()
        except MenagerieError:
            raise
        except Exception as error:
            raise PassError(f"pass {self.name}", f"failed: {error}") from error
        check_program(result, f"pass {self.name}")
        self.ensures(result)
        modified = fingerprint(result) != fingerprint(program)
        record = PassRecord(
            name=self.name,
            modified=modified,
            nodes_before=before,
            nodes_after=len(result.graph.nodes),
            changes=tuple(journal.changes),
            refusals=tuple(journal.refusals),
            seconds=time.perf_counter() - started,
        )
        return (result if modified else program), record


def fingerprint(program: ExportedProgram) -> tuple[Any, ...]:
    """A value equal for two programs exactly when graph, signature and constants are the same.

    Constants are compared by identity of their tensors: a pass never edits a weight in place.
    """
    index = {node: i for i, node in enumerate(program.graph.nodes)}

    def plain(value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return ("node", index[value])
        if isinstance(value, (list, tuple)):
            return tuple(plain(v) for v in value)
        if isinstance(value, slice):
            return ("slice", plain(value.start), plain(value.stop), plain(value.step))
        if isinstance(value, dict):
            return tuple(sorted((k, plain(v)) for k, v in value.items()))
        return repr(value)  # numbers, dtypes, devices, symbolic sizes; tells 1 from True and 1.0

    nodes = tuple(
        (n.op, str(n.target), plain(n.args), plain(n.kwargs)) for n in program.graph.nodes
    )
    constants = tuple(
        (spec.kind, spec.target, id(_tensor_of(program, spec.target)))
        for spec in program.graph_signature.input_specs
        if spec.target is not None
    )
    return nodes, constants


def _tensor_of(program: ExportedProgram, target: str) -> Any:
    return program.state_dict.get(target, program.constants.get(target))
