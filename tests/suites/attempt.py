"""Converts samples of cases, many in one program, and counts what came of them."""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
import warnings
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.sweep.apart import Bounds, run_apart
from tests.sweep.attempt import without_folders

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.suites.choice import Choice

_PRELOAD = "tests.suites.preload"
_TEXT = 300  # characters of a reason that are kept
BOUNDS = Bounds(seconds=240.0, gigabytes=8.0)
_DYNAMIC_TOGETHER = 64  # each dynamic size adds golden cases to the program
_NAMED_AT_ONCE = ("ExportError", "UnsupportedKernels")  # errors that name all calls at fault
_MOST_DEATHS = 12  # of processes in which a bundle runs on other values


class State(StrEnum):
    """What came of a sample; of a case, the worst of its samples."""

    NOT_COUNTED = "not counted"  # no sample is one that an artifact could compute
    PROVEN = "proven"
    REFUSED = "refused"  # one of our errors: place, fact and next step
    WRONG = "wrong"  # converted, and its numbers are not eager's
    FAILED = "failed"  # another exception than ours: a fault
    CRASHED = "crashed"
    OUT_OF_TIME = "out of time"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A row of the results.

    Attributes:
        state: see `State`.
        proven: how many samples are proven.
        of: of how many.
        dynamic: the state of its sample with a dynamic size; empty where there is none.
        same: on how many sets of other values the artifact does what eager does.
        sets: of how many.
        text: why the first sample that is not proven is not; or why the case is not counted.
        dynamic_text: why the dynamic one is not proven.
        values_text: the first difference on other values.
    """

    state: State
    proven: int = 0
    of: int = 0
    dynamic: str = ""
    same: int = 0
    sets: int = 0
    text: str = ""
    dynamic_text: str = ""
    values_text: str = ""

    @classmethod
    def read(cls, fields: dict[str, Any]) -> Outcome:
        """Of what JSON made of one."""
        return cls(**{**fields, "state": State(fields["state"])})


@dataclasses.dataclass(frozen=True)
class Sample:
    """One sample: the case, its place among the case's, and whether a size is dynamic."""

    case: str
    place: int
    dynamic: bool = False


@dataclasses.dataclass(frozen=True)
class Result:
    """What came of a sample; see `Outcome`."""

    state: State
    text: str = ""
    same: int = 0
    sets: int = 0
    values_text: str = ""


def attempt(names: Sequence[str], targets: Sequence[str]) -> Iterator[tuple[str, str, Outcome]]:
    """Choose the samples of cases, and convert them for each target as one program.

    Yields:
        target, case and outcome.
    """
    with tempfile.TemporaryDirectory(prefix="menagerie-suites-") as scratch:
        folder = Path(scratch)
        facts: dict[str, Any] = {}
        for part in _chosen(tuple(names), folder):
            facts |= part
        for target in targets:
            found: dict[str, list[Result]] = {name: [] for name in names}
            dynamic: dict[str, Result] = {}
            samples = [Sample(n, k) for n, fact in facts.items() for k in range(fact["samples"])]
            for sample, result in _convert(samples, facts, target, folder):
                found[sample.case].append(result)
            varied = [Sample(n, 0, dynamic=True) for n, fact in facts.items() if fact["dynamic"]]
            for start in range(0, len(varied), _DYNAMIC_TOGETHER):
                some = varied[start : start + _DYNAMIC_TOGETHER]
                dynamic |= {s.case: r for s, r in _convert(some, facts, target, folder)}
            for name in names:
                yield target, name, _outcome(facts[name], found[name], dynamic.get(name))


def _outcome(fact: Mapping[str, Any], results: Sequence[Result], dynamic: Result | None) -> Outcome:
    if not results:
        return Outcome(State.NOT_COUNTED, text=f"{fact['left']}: {fact['text']}".strip(": "))
    order = list(State)
    worst = max(results, key=lambda result: order.index(result.state))
    return Outcome(
        worst.state,
        proven=sum(result.state is State.PROVEN for result in results),
        of=len(results),
        dynamic="" if dynamic is None else dynamic.state,
        same=sum(result.same for result in results),
        sets=sum(result.sets for result in results),
        text=worst.text,
        dynamic_text="" if dynamic is None else dynamic.text,
        values_text=next((r.values_text for r in results if r.values_text), ""),
    )


def _chosen(names: tuple[str, ...], folder: Path) -> Iterator[dict[str, Any]]:
    """The choices of cases, in files of the folder; where a process dies, each by its own."""
    path = folder / f"{abs(hash(names))}.pt"
    ended = run_apart(_choose, (names, str(path)), BOUNDS, _PRELOAD)
    if ended.answer is not None:
        yield {name: {**fact, "file": str(path)} for name, fact in ended.answer.items()}
    elif len(names) == 1:
        yield {names[0]: {"samples": 0, "dynamic": False, "left": "ends", "text": ended.text}}
    else:
        for part in _halves(names):
            yield from _chosen(part, folder)


def _choose(names: Sequence[str], path: str, _folder: Path) -> dict[str, Any]:
    from tests.suites.choice import choose

    return {
        name: {
            "samples": len(choice.calls),
            "dynamic": choice.dynamic is not None,
            "left": choice.left,
            "text": _short(choice.text),
        }
        for name, choice in choose(names, Path(path)).items()
    }


def _convert(
    samples: Sequence[Sample], facts: Mapping[str, Any], target: str, folder: Path
) -> Iterator[tuple[Sample, Result]]:
    """Convert as one program; where that fails, alone what the error names, or in halves."""
    if not samples:
        return
    files = tuple(dict.fromkeys(facts[s.case]["file"] for s in samples))
    with tempfile.TemporaryDirectory(dir=folder) as bundles:
        bundle = str(Path(bundles) / "bundle")
        work = (tuple(samples), files, target, bundle)
        ended = run_apart(_convert_here, work, BOUNDS, _PRELOAD)
        answer = ended.answer or {
            "state": State.OUT_OF_TIME if ended.late else State.CRASHED,
            "text": ended.text,
        }
        state = State(answer["state"])
        if state is State.PROVEN:
            values = {} if samples[0].dynamic else _values(work, folder)
            for number, sample in enumerate(samples):
                yield sample, Result(state, "", *values.get(number, ()))
            return
    if len(samples) == 1:
        yield samples[0], Result(state, answer["text"])
        return
    named = {int(number) for number in answer.get("named", ()) if int(number) < len(samples)}
    if named and len(named) < len(samples):
        alone = [[sample] for number, sample in enumerate(samples) if number in named]
        rest = [sample for number, sample in enumerate(samples) if number not in named]
        whole = answer["text"].startswith(_NAMED_AT_ONCE)
        parts: list[Sequence[Sample]] = [*alone, *([rest] if whole else _halves(rest))]
    else:
        parts = _halves(samples)
    for part in parts:
        yield from _convert(part, facts, target, folder)


def _halves(items: Any) -> list[Any]:
    return [items[: len(items) // 2], items[len(items) // 2 :]]


def _convert_here(
    samples: Sequence[Sample], files: Sequence[str], target: str, bundle: str, _folder: Path
) -> dict[str, Any]:
    choices = _read(files)
    if samples[0].dynamic:
        from tests.suites.choice import dynamic_shapes

        chosen = [choices[sample.case] for sample in samples]
        calls = [choice.dynamic for choice in chosen]
        shapes = [
            shape
            for number, choice in enumerate(chosen)
            for shape in dynamic_shapes(choice.dynamic, choice.axes, choice.low, f"n{number}")
        ]
        return convert_calls(calls, target, Path(bundle), shapes)
    return convert_calls([choices[s.case].calls[s.place] for s in samples], target, Path(bundle))


def convert_calls(
    calls: Sequence[Any], target: str, bundle: Path, shapes: Sequence[Any] | None = None
) -> dict[str, Any]:
    """Convert calls as one program, which proves itself; what came of it, and which it names."""
    import torch

    from tests.suites.cases import Together
    from transforms import convert
    from zoo.errors import MenagerieError, ValidationError

    torch.set_num_threads(1)
    together = Together(calls)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            convert(
                together,
                together.inputs,
                target=target,
                out=bundle,
                dynamic_shapes=shapes,
                names=together.names(),
                measure_seconds=0,
            )
    except ValidationError as error:
        state, raised = State.WRONG, str(error)
    except MenagerieError as error:
        state, raised = State.REFUSED, f"{type(error).__name__}: {error}"
    except Exception as error:  # another exception than ours is a row as well
        state, raised = State.FAILED, f"{type(error).__name__}: {error}"
    else:
        return {"state": State.PROVEN}
    named = sorted(set(re.findall(r"\bcall_(\d+)", raised)))
    return {"state": state, "text": _short(raised), "named": named}


def _values(work: tuple[Any, ...], folder: Path) -> dict[int, tuple[int, int, str]]:
    """Run a proven bundle on other values; what ends its process is left out of the next try."""
    samples, files, _, bundle = work
    ended: dict[str, str] = {}
    log = folder / "run.json"
    for _ in range(_MOST_DEATHS):
        log.write_text('""')
        arguments = (samples, files, bundle, str(log), ended)
        tried = run_apart(_values_here, arguments, BOUNDS, _PRELOAD)
        if tried.answer is not None:
            return {int(n): (a, b, _short(text)) for n, (a, b, text) in tried.answer.items()}
        ended[json.loads(log.read_text())] = tried.text
    return dict.fromkeys(
        range(len(samples)), (0, 1, f"processes ended at {', '.join(ended)}"[:_TEXT])
    )


def _values_here(
    samples: Sequence[Sample],
    files: Sequence[str],
    bundle: str,
    log: str,
    ended: Mapping[str, str],
    folder: Path,
) -> Any:
    import torch

    from tests.suites.values import compare

    torch.set_num_threads(1)
    choices = _read(files)
    calls = [choices[s.case].calls[s.place] for s in samples]
    return compare(calls, bundle, log, ended, folder)


def _read(files: Sequence[str]) -> dict[str, Choice]:
    import torch

    found: dict[str, Choice] = {}
    for file in files:
        found |= torch.load(file, weights_only=False)
    return found


def _short(text: str) -> str:
    return " ".join(without_folders(text).split())[:_TEXT]
