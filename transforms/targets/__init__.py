"""The targets that a program can be converted for, by name. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points

from transforms.targets.base import ROUND_WEIGHTS, Identity, PassItem, Settings, Target
from transforms.targets.cpu import CpuTarget
from transforms.targets.metal import MetalTarget
from zoo.errors import UsageError

__all__ = [
    "ROUND_WEIGHTS", "Identity", "PassItem", "Settings", "Target", "all_targets", "register",
    "target_named",
]  # fmt: skip

_ENTRY_POINTS = "menagerie.targets"  # of other distributions: a name, and a Target's class

_KNOWN: dict[str, Target] = {}


def register(target: Target) -> Target:
    """Register a target under its name; a target of the same name is replaced.

    Another distribution names its class under the entry points `menagerie.targets` instead.
    """
    _KNOWN[target.name] = target
    return target


def all_targets() -> Mapping[str, Target]:
    """Return every known target by name: ours first, then those of other distributions."""
    for found in entry_points(group=_ENTRY_POINTS):
        if found.name not in _KNOWN:
            register(found.load()())
    return dict(_KNOWN)


def target_named(name: str | Target) -> Target:
    """Return the target called `name`, or itself; UsageError if there is none."""
    if isinstance(name, Target):
        return name
    known = _KNOWN if name in _KNOWN else all_targets()
    if name not in known:
        raise UsageError(name, "there is no such target", f"Known: {', '.join(known)}")
    return known[name]


register(CpuTarget())
register(MetalTarget())
