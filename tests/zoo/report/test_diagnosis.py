"""What a report shows of a search for the cause, and of the graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from zoo.records import Diagnosis, DivergenceStage, GraphNode, GraphRecord, NodeKind, ProgramGraphs
from zoo.report.files import read_graphs, read_report, write_report
from zoo.report.page import markdown, render_report
from zoo.report.summary import cause

if TYPE_CHECKING:
    from pathlib import Path

    from zoo.records import ConversionReport, Divergence


def _chain(*names: str) -> GraphRecord:
    nodes = [GraphNode(name="x", operator="x", kind=NodeKind.INPUT)]
    for name in names:
        nodes.append(
            GraphNode(name=name, operator="conv2d", kind=NodeKind.HEAVY, inputs=(nodes[-1].name,))
        )
    return GraphRecord(nodes=tuple(nodes))


def _graphs(program: str, *names: str) -> ProgramGraphs:
    return ProgramGraphs(program=program, before=_chain("a", "b"), after=_chain(*names))


def _found(report: ConversionReport) -> Divergence:
    assert report.diagnosis is not None
    assert report.diagnosis.divergence is not None
    return report.diagnosis.divergence


def test_the_graph_is_on_the_page_with_the_wrong_node(diverged: ConversionReport) -> None:
    """One table a program; the node of the diagnosis is pointed out in its own."""
    graphs = [_graphs("main", "a", "conv2d_3"), _graphs("decoder", "a", "conv2d_3")]
    html = render_report(diverged, graphs)
    tables = html.split('<p class="legend">')[1:]
    assert ["first to diverge" in table for table in tables] == [True, False]
    assert ['class="wrong"' in table for table in tables] == [True, False]
    assert 'href="#graph"' in html


def test_report_json_does_without_graphs(diverged: ConversionReport, tmp_path: Path) -> None:
    """They are for the eye; the file stays small, and reads back whole."""
    graphs = (_graphs("main", "a", "only_in_a_picture"),)
    write_report(diverged, tmp_path, graphs=graphs)
    assert "only_in_a_picture" in (tmp_path / "report.html").read_text()
    assert "only_in_a_picture" not in (tmp_path / "report.json").read_text()
    assert read_report(tmp_path) == diverged
    assert read_graphs(tmp_path) == graphs


def test_graphs_of_an_earlier_report_do_not_stay(
    diverged: ConversionReport, tmp_path: Path
) -> None:
    """A report without graphs has none beside it; damaged ones count as none."""
    write_report(diverged, tmp_path, graphs=[_graphs("main", "a", "b")])
    write_report(diverged, tmp_path)
    assert read_graphs(tmp_path) == ()
    (tmp_path / "graphs.json").write_text('[{"program": 3}]')
    assert read_graphs(tmp_path) == ()


def test_hostile_graphs_stay_text(resnet: ConversionReport) -> None:
    """Whatever operators, modules and programs are called, no element comes of it."""
    evil = "</title></svg><script>alert(1)</script>"
    node = GraphNode(name=evil, operator=evil, kind=NodeKind.OTHER, module=evil, detail=evil)
    record = GraphRecord(nodes=(node,))
    html = render_report(resnet, [ProgramGraphs(program=evil, before=record, after=record)])
    assert "<script" not in html
    assert "&lt;script" in html


def test_large_graphs_keep_the_page_light(resnet: ConversionReport) -> None:
    """Three programs of thousands of changed nodes stay far below two megabytes."""
    large = [_graphs(str(p), *(f"n{i}" for i in range(2000))) for p in range(3)]
    assert len(render_report(resnet, large)) < 1_500_000


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "First diverging node of program main, case 1: conv2d_3"),
        ({}, "made wrong by the pass fold_batch_norm; off by 0.25, SNR 3.5 dB"),
        (
            {"stage": DivergenceStage.LOWERING, "pass_name": None},
            "right in eager PyTorch after all passes, wrong when lowered",
        ),
        ({"certain": False}, "Diverging at this node or before it"),
    ],
)
def test_the_cause_in_a_sentence(
    diverged: ConversionReport, changes: dict[str, object], words: str
) -> None:
    """Node, operator, module, line, and the pass or target to blame."""
    found = _found(diverged).model_copy(update=changes)
    diagnosis = Diagnosis(program="main", case=1, divergence=found)
    assert words in cause(diagnosis)
    assert "(aten.conv2d.default, layer1.0.conv2, models/resnet.py:92)" in cause(diagnosis)


def test_the_command_is_quoted_for_the_shell(diverged: ConversionReport, tmp_path: Path) -> None:
    """A folder with a blank in its name is one argument."""
    found = _found(diverged).model_copy(update={"reproducer": tmp_path / "my models"})
    assert found.command == f"python -m transforms.bisect '{tmp_path}/my models'"


def test_a_search_without_a_result_says_why(crashed: ConversionReport) -> None:
    """On the page and in Markdown."""
    ended = crashed.model_copy(update={"diagnosis": Diagnosis(detail="The time was up")})
    assert "The time was up" in render_report(ended)
    assert "The time was up" in markdown(ended)
    assert "Cause" not in markdown(crashed)
