"""Compute once what the graph computes several times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.fx import Node

from transforms.graph.aliasing import Aliasing
from transforms.graph.editor import ProgramEditor
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.layouts import same_layout
from transforms.graph.schemas import enters_graph, hashable, is_functional, is_quantisation


class MergeCommonSubexpressions(GraphPass):
    """Replaces a call with an earlier call of the same operator on the same arguments.

    Arguments are the same if they are the same nodes, and numbers only if they agree in type too:
    1, 1.0 and True are three arguments. Only functional calls are merged: no random numbers, no
    uninitialised memory, no sizes that depend on data.

    Refuses if both results are outputs, which the caller may write independently, or if both enter
    branches or loops; also for conversions to and from quantised integers, which backends look for.
    """

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Merge in graph order, so that calls on merged operands become equal in turn."""
        aliasing = editor.aliasing()
        seen: dict[Any, list[Node]] = {}
        for node in list(editor.graph.nodes):
            if not is_functional(node):
                continue
            earlier = seen.setdefault((node.target, hashable((node.args, node.kwargs))), [])
            reasons = [next(_refusals(aliasing, first, node), None) for first in earlier]
            if None in reasons:
                first = earlier[reasons.index(None)]
                aliasing.merge(first, node)
                editor.replace(node, first)
                journal.changed(f"{node.name} is {first.name}")
                continue
            if reasons and getattr(node.target, "__name__", "") != "getitem":
                journal.refused(node, str(reasons[-1]))
            earlier.append(node)


def _refusals(aliasing: Aliasing, first: Node, node: Node) -> Iterator[str]:
    if is_quantisation(node.target):
        yield "each use of a quantised value keeps its own conversion"
    if enters_graph(first) and enters_graph(node):
        yield f"{first.name} and {node.name} enter a branch or a loop"
    if not aliasing.share(first, node) and aliasing.returned(first) and aliasing.returned(node):
        yield f"{first.name} and {node.name} are returned, each in its own memory"
    if not same_layout(first.meta.get("val"), node.meta.get("val")):
        yield f"{first.name} is laid out otherwise"
