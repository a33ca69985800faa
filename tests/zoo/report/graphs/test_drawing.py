"""The graph picture: well-formed, accessible, light, and the same every time."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from graph_maker import blocks, chain, graph, node

from zoo.report.graphs import figure, picture
from zoo.report.graphs.rows import Mark, mark_changes

SVG = "{http://www.w3.org/2000/svg}"


def _root(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314 - our own


def _texts(svg: str) -> list[str]:
    return ["".join(e.itertext()) for e in _root(svg).iter() if e.tag.endswith("text")]


def test_picture_is_well_formed_and_described() -> None:
    """One SVG element with a role, a title and a description, without scripts or references."""
    record = graph(node("a", "x"), node("b", "a"))
    svg = picture(record, record, title="Graph of a model")
    root = ET.fromstring(svg)  # noqa: S314
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert [root[0].tag, root[0].text] == [f"{SVG}title", "Graph of a model"]
    assert root[1].tag == f"{SVG}desc"
    assert "2 operators" in (root[1].text or "")
    assert "<script" not in svg
    assert "href" not in svg
    assert "url(" not in svg


def test_hostile_names_are_escaped() -> None:
    """Whatever a model calls its modules stays text."""
    evil = "</text><script>alert('&\"')</script>"
    record = graph(node("a", "x", operator=evil, module=evil))
    svg = picture(record, record, title=evil)
    assert "<script" not in svg
    assert any(evil in text for text in _texts(svg))


def test_same_graphs_have_no_marks() -> None:
    """Nothing stands out where nothing changed."""
    record = blocks(4)
    assert set(mark_changes(record, record)[0].values()) == {Mark.SAME}
    root = ET.fromstring(picture(record, record))  # noqa: S314
    assert not [e for e in root.iter(f"{SVG}rect") if (e.get("class") or "").endswith("-row")]


def test_changes_are_told_by_signs_too() -> None:
    """Not by colour alone; what did not happen is not in the legend."""
    before = graph(node("a", "x"), node("b", "a"), node("c", "b"), node("d", "c"))
    after = graph(node("a", "x"), node("b", "a"), node("new", "b"), node("d", "new", "a"))
    texts = _texts(picture(before, after))
    assert {"\N{MINUS SIGN}", "+", "removed", "added"} <= set(texts)
    assert "rewired" not in texts
    assert texts.index("Before") < texts.index("After")


def test_equal_graphs_are_drawn_once() -> None:
    """Where the passes changed nothing there is one panel."""
    texts = _texts(picture(blocks(4), blocks(4)))
    assert "Before" not in texts
    assert texts.count("x") == 1


def test_wrong_node_is_pointed_out() -> None:
    """The node that diverges has a sign and a frame, in the graph after the passes."""
    before, after = blocks(4), blocks(4, odd=2)
    texts = _texts(figure(before, after, wrong="conv_1"))
    assert texts.count("!") == 2  # the row and the legend
    assert "first to diverge" in texts
    root = ET.fromstring(figure(before, after, wrong="conv_1"))  # noqa: S314
    [row] = [g for g in root.iter("g") for r in g.findall("rect") if r.get("class") == "wrong-row"]
    assert "conv_1" in (row.findtext("title") or "")
    assert figure(before, after, wrong="no such node") == figure(before, after)


def test_large_graphs_stay_light() -> None:
    """Of a thousand nodes the surroundings of the change remain; a limit of rows is kept."""
    before, after = chain(500), chain(500, replaced=[250])
    assert "sub" in _texts(figure(before, after))
    assert len(figure(before, after)) < 40_000
    everywhere = chain(500, replaced=range(0, 500, 2))
    assert len(figure(before, everywhere, most_rows=60)) <= 60_000


def test_picture_of_a_file_has_its_style() -> None:
    """A file stands alone; in a page, whose policy admits one sheet only, there is no style."""
    record = blocks(2)
    assert picture(record, record).count("<style>") == 1
    assert "style" not in figure(record, record)


def test_picture_is_the_same_every_time() -> None:
    """Equal graphs give equal bytes, so that reports can be compared."""
    record, other = blocks(5), blocks(5, odd=2)
    assert picture(record, other) == picture(record, other)
