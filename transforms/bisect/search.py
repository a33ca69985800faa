"""Find where a result goes wrong: first among the passes, then in the lowered program."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from menagerie.numerics import DEFAULT_TOLERANCES
from menagerie.validation.findings import OutputParity
from transforms.bisect.pieces import (
    CRASHED,
    Judge,
    Piece,
    Tolerances,
    comparable,
    differences,
    extract,
    judge_lowered,
    judge_rewritten,
    with_outputs,
)
from transforms.bisect.reproducer import save
from transforms.export.prepare import Prepared
from transforms.graph.graph_pass import GraphPass
from transforms.graph.interpret import capture, output_nodes
from transforms.graph.record import module_path, source_line
from transforms.graph.schemas import producers
from transforms.pipeline import make_passes, passes_in, passes_over
from transforms.targets import Settings, Target, target_named
from zoo.errors import LoweringError, MenagerieError, PassError, UsageError
from zoo.records import Diagnosis, Divergence, DivergenceStage, Suspected
from zoo.spec import PassChoice

_PROBES = 8  # inner nodes judged in one lowering
_MOST_PIECES = 12  # tried to find a small one
_NOTHING_FOUND = (
    "Lowered and run by itself, each suspected program agrees with eager: the fault is in the "
    "bundle, in how often or beside what it is run, or in inputs that were not tried"
)


def locate(
    program: ExportedProgram,
    passes: Sequence[GraphPass],
    inputs: Sequence[torch.Tensor],
    *,
    target: Target | str = "cpu",
    judge: Judge | None = None,
    tolerances: Tolerances = DEFAULT_TOLERANCES,
    folder: Path | None = None,
    seconds: float = math.inf,
) -> Divergence | None:
    """Find the first divergence from eager; return None if every output agrees with eager's.

    First the program is interpreted in eager PyTorch after each pass: the pass after which an
    output is out of tolerance is the culprit. If there is none, inner nodes are made outputs,
    several per lowering, and the search narrows to the first wrong node whose producers are right.
    Since outputs change what is fused, that node is then lowered with more and more of its
    producers, until the fault shows. `judge` lowers and runs; a crash counts as a wrong number.

    `program` is the one before the passes, in functional form; `passes` are all of them in order,
    including the device's; `inputs` has a tensor for each input. The reproducer goes to `folder`,
    which is empty or missing (else UsageError). After `seconds` the search ends with its current
    result, once the lowering under way is done, and the divergence is not `certain`; MenagerieError
    if there is no result yet.
    """
    if folder is not None and folder.is_dir() and any(folder.iterdir()):
        raise UsageError(str(folder), "is not empty", "Name a new folder for the reproducer")
    target, choice = target_named(target), None
    judge = judge or functools.partial(judge_lowered, target=target)
    search = _Search(tuple(inputs), judge, tolerances, time.monotonic() + seconds)
    # The judge makes these passes again for each piece, before it lowers it.
    device = {p.name for p in make_passes(target.device_passes)}
    found: Divergence | None = None
    for number, (graph_pass, _, rewritten) in enumerate(passes_over(program, passes)):
        search.check_time(f"pass {graph_pass.name} was looked at")
        try:
            found = search.first_wrong(program, rewritten)
        except RuntimeError:  # eager lacks a fused call of half precision on older processors
            if graph_pass.name not in device:
                raise
            break
        if found is not None:
            # Compared with the program just before, only this pass's own nodes differ.
            before = _after(program, passes[:number])
            found = search.first_wrong(before, rewritten) or found
            choice = PassChoice(name=graph_pass.name, options=dict(graph_pass.options))
            found = found.model_copy(update={"pass_name": choice.name})
            piece = search.smallest_for_pass(before, rewritten, graph_pass)
            break
    if found is None:
        search.check_time("the lowered program ran")
        lowered = _after(program, [p for p in passes if p.name not in device])
        located = search.in_lowered(lowered)
        if located is None:
            return None
        found, piece = located
    if folder is None:
        return found
    return save(folder, piece, found, target=str(target), choice=choice, tolerances=tolerances)


def _after(program: ExportedProgram, passes: Sequence[GraphPass]) -> ExportedProgram:
    return [program, *(rewritten for *_, rewritten in passes_over(program, passes))][-1]


_NOT_AFTER_A_RESET = (
    "{} keeps state, and what was searched, its first call after a reset, agrees with eager: the "
    "fault shows in later calls, in what is kept. Return the new state beside the results to have "
    "it compared"
)


def diagnose(
    programs: Mapping[str, Prepared],
    suspects: Iterable[Suspected],
    settings: Settings,
    *,
    folder: Path,
    seconds: float,
) -> Diagnosis:
    """Search the suspected programs for the first node that differs from eager.

    `programs` are those before the passes; `suspects` are programs and golden cases that may show
    the fault, the likeliest first, with None for any case. For a program that keeps state only the
    first call of a run can be searched. A small program that shows the fault goes to `folder`,
    missing or empty; `seconds` are for the whole search.
    """
    end, later = time.monotonic() + seconds, list[str]()
    names = [each.program.state_dict for each in programs.values()]
    for name, case in suspects:
        program = programs[name]
        kept = settings.kept.within(program.program.state_dict, names)
        whole = make_passes(passes_in(kept, settings.passes, settings.target))
        for number in range(len(program.goldens)) if case is None else (case,):
            if number < len(program.goldens) and number % program.calls:
                later.append(f"program {name}")
                continue
            if not (inputs := program.inputs_of(number)):
                continue
            found = locate(
                program.program, whole, inputs, target=settings.target, folder=folder,
                tolerances={**DEFAULT_TOLERANCES, **settings.tolerances},
                seconds=end - time.monotonic(),
            )  # fmt: skip
            if found is not None:
                return Diagnosis(program=name, case=number, divergence=found)
    if later:
        return Diagnosis(detail=_NOT_AFTER_A_RESET.format(later[0]))
    return Diagnosis(detail=_NOTHING_FOUND)


@dataclass(frozen=True)
class _Search:
    """The state of a search: the whole program's inputs, the judge, the tolerances and the end.

    After `end`, on the clock of `time.monotonic`, it returns what it knows.
    """

    inputs: tuple[torch.Tensor, ...]
    judge: Judge
    tolerances: Tolerances
    end: float

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.end

    def check_time(self, what: str) -> None:
        """Raise MenagerieError if the time is up before `what` happened."""
        if self.late:
            raise MenagerieError("bisect", f"the time was up before {what}")

    # In the passes

    def first_wrong(self, before: ExportedProgram, after: ExportedProgram) -> Divergence | None:
        """Return the first node of `after` that is wrong on the inputs, if an output is."""

        def wrong(pairs: Sequence[tuple[Node, Node]]) -> list[tuple[Node, OutputParity]]:
            expected = capture(before, self.inputs, [old.name for old, _ in pairs])
            actual = capture(after, self.inputs, [new.name for _, new in pairs])
            wanted = {new.name: expected[old.name] for old, new in pairs}
            seen = differences(wanted, actual, self.tolerances)
            return [
                (n, seen[n.name]) for _, n in pairs if n.name in seen and not seen[n.name].passed
            ]

        outputs = wrong(list(zip(output_nodes(before), output_nodes(after), strict=True)))
        if not outputs:
            return None
        known = {n.name: n for n in before.graph.nodes if is_probe(n)}
        shared = [(known[n.name], n) for n in after.graph.nodes if n.name in known and is_probe(n)]
        inner = wrong([(old, new) for old, new in shared if old.target == new.target])
        node, distance = (inner or outputs)[0]
        fresh = [n for n in node.all_input_nodes if n.name not in known and is_probe(n)]
        blamed = fresh[-1] if inner and fresh else node  # a new node that feeds an old one
        return divergence_at(DivergenceStage.PASSES, blamed, distance)

    def smallest_for_pass(
        self, before: ExportedProgram, after: ExportedProgram, graph_pass: GraphPass
    ) -> Piece:
        """Return a small part of `before` that the pass makes wrong, or all of it."""
        kept = {n.name: (n.target, str(n.args)) for n in after.graph.nodes}
        calls = [n for n in before.graph.nodes if n.op == "call_function"]
        gone = [n for n in calls if n.name not in kept]
        changed = [n for n in calls if kept.get(n.name) != (n.target, str(n.args))]
        found = self._grown(
            before,
            gone or changed,
            lambda each: (*each.all_input_nodes, *each.users),
            functools.partial(judge_rewritten, graph_pass=graph_pass),
        )
        return Piece(before, self.inputs) if found is None else found[0]

    # In the lowered program

    def in_lowered(self, program: ExportedProgram) -> tuple[Divergence, Piece] | None:
        """Return the node that the target computes wrongly, and a small piece that shows it."""
        judged = self.judge(Piece(program, self.inputs), self.tolerances)
        outputs = dict.fromkeys(n for n in output_nodes(program) if is_probe(n))
        known = {n: judged[n.name] for n in program.graph.nodes if n in outputs}
        wrong = next((n for n, seen in known.items() if not seen.passed), None)
        if wrong is None:
            return None
        node, distance, certain = self._narrow(program, wrong, known)

        found = self._grown(program, [node], lambda each: each.all_input_nodes, self.judge)
        whole = Piece(with_outputs(program, [node.name]), self.inputs)
        piece, distance = found or (whole, distance)
        divergence = divergence_at(DivergenceStage.LOWERING, node, distance)
        return divergence.model_copy(update={"certain": certain}), piece

    def _narrow(
        self, program: ExportedProgram, wrong: Node, judged: Mapping[Node, OutputParity]
    ) -> tuple[Node, OutputParity, bool]:
        """Return the first wrong producer of a wrong node; False: the time was up."""
        distance = judged[wrong]
        good = {n for n, seen in judged.items() if seen.passed}
        while suspects := _suspects(wrong, good):
            if self.late:
                return wrong, distance, False
            probes = [n for n in program.graph.nodes if n in suspects]
            step = max(1, -(-len(probes) // _PROBES))  # evenly spaced; all of them if they are few
            probes = probes[step // 2 :: step]
            probes, found = self._probed(program, probes)
            good |= {n for n in probes if found[n.name].passed}
            if failed := [n for n in probes if not found[n.name].passed]:
                wrong, distance = failed[0], found[failed[0].name]
        return wrong, distance, True

    def _probed(
        self, program: ExportedProgram, probes: list[Node]
    ) -> tuple[list[Node], Mapping[str, OutputParity]]:
        """Judge nodes together; after a crash only the first half of them, down to one."""
        while True:
            cut = with_outputs(program, [n.name for n in probes])
            found = self.judge(Piece(cut, self.inputs), self.tolerances)
            if len(probes) == 1 or any(found[n.name] != CRASHED for n in probes):
                return probes, found
            probes = probes[: len(probes) // 2]

    # In both

    def _grown(
        self,
        program: ExportedProgram,
        nodes: Sequence[Node],
        around: Callable[[Node], Iterable[Node]],
        judge: Judge,
    ) -> tuple[Piece, OutputParity] | None:
        """Return the first wrong piece among growing sets of nodes, and its error.

        Pieces that the judge rejects, since the compiler cannot lower every piece, are not wrong.
        """
        for _ in range(_MOST_PIECES):
            if not nodes or self.late:
                return None
            piece = extract(program, {n.name for n in nodes}, self.inputs)
            with contextlib.suppress(LoweringError, PassError):
                judged = judge(piece, self.tolerances)
                if wrong := [d for d in judged.values() if not d.passed]:
                    return piece, wrong[-1]
            layer = {m for n in nodes for m in around(n) if m.op == "call_function"} - set(nodes)
            if not layer:
                return None
            nodes = [n for n in program.graph.nodes if n in layer or n in nodes]
        return None


def divergence_at(stage: DivergenceStage, node: Node, distance: OutputParity) -> Divergence:
    """Return the record of a wrong node, with its location in the model."""
    file, line = source_line(node)
    return Divergence(
        stage=stage, pass_name=None, node=node.name, operator=str(node.target),
        module_path=module_path(node), source_line=f"{file}:{line}" if file else "",
        max_abs=distance.max_abs, snr_db=distance.snr_db,
    )  # fmt: skip


def is_probe(node: Node) -> bool:
    """Return whether a node computes real numbers: integers may flip by rounding."""
    value = node.meta.get("val")
    if node.op != "call_function" or not isinstance(value, torch.Tensor):
        return False
    return comparable(value) and value.is_floating_point()


def _suspects(wrong: Node, good: set[Node]) -> set[Node]:
    """Return the producers of a wrong node that no right node clears.

    If none is left, return those that feed it directly and were not judged themselves: a node in
    between can hide a fault (a normalisation hides a wrong scale).
    """
    cleared = set(good)
    for node in good:
        behind = producers(node)
        if wrong not in behind:  # otherwise the fault was masked on the way, and it clears none
            cleared |= behind
    suspects = {n for n in producers(wrong) - cleared if is_probe(n)}
    return suspects or _nearest_probes(wrong) - good


def _nearest_probes(node: Node) -> set[Node]:
    """Return the probes that feed `node`, directly or through other nodes (tuples, integers)."""
    found: set[Node] = set()
    for source in node.all_input_nodes:
        found |= {source} if is_probe(source) else _nearest_probes(source)
    return found
