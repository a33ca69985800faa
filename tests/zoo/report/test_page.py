"""The pages: self-contained, well-formed, safe against hostile names, complete."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from menagerie.cli import _verified
from menagerie.validation.findings import Verdict
from zoo.report.files import write_index
from zoo.report.page import markdown, render_index, render_report

if TYPE_CHECKING:
    from zoo.records import ConversionReport

VOID = {"meta", "link", "br", "img", "input", "hr"}
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg/onload=alert(1)>",
    "</title></style><iframe src=//evil.example>",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt; & \x00 \u202e ]]>",
)


class Page(HTMLParser):
    """The elements and texts of a page; fails on tags that do not close."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes an element that must be closed, unless it is void."""
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes an element that closes itself."""
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        """Closes the innermost element, which must be this one."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keeps the text between tags."""
        self.texts.append(data)

    def same_structure(self, other: Page) -> bool:
        """Whether both have the same elements with the same attribute names."""
        mine = [(tag, sorted(attributes)) for tag, attributes in self.elements]
        return mine == [(tag, sorted(attributes)) for tag, attributes in other.elements]

    @property
    def text(self) -> str:
        """All text, its white space evened out."""
        return " ".join(" ".join(self.texts).split())

    @property
    def tags(self) -> set[str]:
        """Names of the elements that occur."""
        return {tag for tag, _ in self.elements}


@pytest.fixture(params=["resnet", "rounded", "transducer", "diverged", "crashed"])
def any_report(request: pytest.FixtureRequest) -> ConversionReport:
    """Each of the hand-made reports."""
    found: ConversionReport = request.getfixturevalue(request.param)
    return found


def test_a_page_fetches_nothing_and_runs_nothing(any_report: ConversionReport) -> None:
    """No script, no handler, no inline style, no link but to itself, no picture but its own."""
    page = Page(render_report(any_report))
    assert not page.tags & {"script", "iframe", "img", "object", "embed", "form", "base"}
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        for name in ("href", "src"):
            assert attributes.get(name, "#").startswith(("#", "data:image/svg+xml,"))


def test_the_policy_admits_the_one_style_sheet(any_report: ConversionReport) -> None:
    """The hash in the content security policy is that of the text between the style tags."""
    html = render_report(any_report)
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style.group(1).encode()).digest()).decode()
    policy = next(a for _, a in Page(html).elements if "http-equiv" in a)["content"]
    assert f"style-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "url(" not in style.group(1)
    assert "@import" not in style.group(1)


def test_what_charts_show_is_text_as_well(any_report: ConversionReport) -> None:
    """Every strip parses and is hidden from screen readers, which find its value in the table."""
    html = render_report(any_report)
    strips = re.findall(r'<svg class="(?:strip|columns|ticks)".*?</svg>', html, re.DOTALL)
    assert strips
    for found in strips:
        root = ET.fromstring(found)  # noqa: S314 - text of our own making
        assert root.get("aria-hidden") == "true"
    for stage in any_report.stages:
        assert stage.stage in Page(html).text


def test_links_lead_somewhere(any_report: ConversionReport) -> None:
    """Every entry of the page's contents names a section that is there."""
    page = Page(render_report(any_report))
    anchors = [a["href"][1:] for tag, a in page.elements if tag == "a"]
    assert set(anchors) == {a["id"] for tag, a in page.elements if tag == "section"}


def test_a_proven_report_says_all(resnet: ConversionReport) -> None:
    """Verdict, warning, numbers, passes with reasons, kernels, commands, origin are on the page."""
    text = Page(render_report(resnet)).text
    for expected in (
        "Proven equal to eager",
        "Random weights Drawn from seed 0",
        "118.3 dB",
        "faster than eager",
        "11 689 512 parameters",
        "fold_batch_norm",
        "its weight has a second user",
        "convolution",
        "zoo pull resnet18 --target cpu -o resnet18",
        "BSD-3-Clause",
        resnet.build_key,
        "oneDNN 3.2.0",
        "2025-03-01 12:00 UTC",
    ):
        assert expected in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"threads": 2, "load": 3.0}, "busy machine, load 3.0 by core"),
        ({"threads": 2, "load": 0.5}, ""),
        (
            {"threads": 1, "processor_ms": 10.0, "load": 0.5},
            "busy machine, calls waited for a core",
        ),
        ({"threads": 1, "processor_ms": 23.0, "load": 3.0}, ""),
    ],
)
def test_a_busy_machine_is_named_beside_the_figure(
    resnet: ConversionReport, changes: dict[str, float], words: str
) -> None:
    """On the page, in Markdown and by `verify`: by processor time, of several threads by load."""
    program = resnet.validation.programs[0]
    assert program.latency is not None
    measured = replace(program, latency=replace(program.latency, **changes))  # type: ignore[arg-type]
    report = resnet.model_copy(
        update={"validation": replace(resnet.validation, programs=(measured,))}
    )
    page = " ".join(Page(render_report(report)).text.split())
    for text in (page, markdown(report), _verified(report.validation)):
        if words:
            assert re.search(rf"23\.4 ms[^|\n]*{words}", text), text
        else:
            assert "busy" not in text


def test_what_rounding_costs_is_a_table(rounded: ConversionReport) -> None:
    """Every layer with its decibels, the costliest first; twelve at once, the rest folded away."""
    page = Page(render_report(rounded))
    places = [page.text.index(f"layer{i}.weight") for i in range(14)]
    assert places == sorted(places)
    assert "35.0 dB 20.0 dB" in " ".join(page.text.split())
    assert page.text.count("not followed") == 6
    assert "2 more layers" in page.text
    assert "keep" in page.text


def test_trained_weights_have_no_warning(transducer: ConversionReport) -> None:
    """The banner is for random weights only; dynamic sizes and the gate are shown."""
    text = Page(render_report(transducer)).text
    assert "Random weights" not in text
    assert "frames = 3000" in text
    assert "accuracy 97.5 % on 360 held-out samples, eager 97.5 %" in text


@pytest.mark.parametrize("verdict", [v for v in Verdict if v is not Verdict.PASSED])
def test_a_failure_says_what_and_offers_no_download(
    crashed: ConversionReport, verdict: Verdict
) -> None:
    """However it failed, the fact is at the head and nothing is offered that is not there."""
    failed = replace(crashed.validation, verdict=verdict, detail="the first fact")
    text = Page(render_report(crashed.model_copy(update={"validation": failed}))).text
    assert "the first fact" in text
    assert "zoo pull" not in text
    assert "zoo convert resnet18 --target cpu --random-weights 0" in text


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(
    resnet: ConversionReport, diverged: ConversionReport, name: str
) -> None:
    """Whatever a model, node, output or version is called, it adds no element and no attribute."""
    for report in (resnet, diverged):
        clean = Page(render_report(report))
        assert Page(render_report(_renamed(report, name))).same_structure(clean)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(name=st.text(max_size=40))
def test_any_name_gives_a_well_formed_page(resnet: ConversionReport, name: str) -> None:
    """Pages stay balanced and policies intact for arbitrary text."""
    html = render_report(_renamed(resnet, name))
    assert not Page(html).tags & {"script", "img", "iframe"}


def _renamed(report: ConversionReport, name: str) -> ConversionReport:
    """The report with `name` wherever a name or a sentence can be."""
    program = report.validation.programs[0]
    parities = tuple(replace(p, output=name) for p in program.parity)
    judged = replace(program, program=name, parity=parities)
    record = report.passes[0].records[0]
    refusals = tuple(r.model_copy(update={"node": name, "reason": name}) for r in record.refusals)
    record = record.model_copy(
        update={"name": name, "changes": (name,) * len(record.changes), "refusals": refusals}
    )
    lowering = report.lowering[0]
    lowering = lowering.model_copy(
        update={
            "program": name,
            "symbols": (name,) * len(lowering.symbols),
            "fallback_kernels": (name,) * len(lowering.fallback_kernels),
        }
    )
    validation = replace(
        report.validation, programs=(judged,), machine=name, runtime=name, detail=name
    )
    diagnosis = report.diagnosis
    if diagnosis is not None and diagnosis.divergence is not None:
        words = ("pass_name", "node", "operator", "module_path", "source_line")
        found = diagnosis.divergence.model_copy(
            update={**dict.fromkeys(words, name or "-"), "reproducer": Path(name or "-")}
        )
        diagnosis = diagnosis.model_copy(update={"program": name, "divergence": found})
    return report.model_copy(
        update={
            "diagnosis": diagnosis,
            "model": name,
            "summary": name,
            "target": name,
            "source": name,
            "licence": name,
            "created": name,
            "versions": dict.fromkeys([name, *list(report.versions)[1:]], name),
            "validation": validation,
            "passes": (
                report.passes[0].model_copy(update={"program": name, "records": (record,)}),
            ),
            "lowering": (lowering,),
            "eager_latency": ((name, report.eager_latency[0][1]),),
            "stages": tuple(s.model_copy(update={"stage": name}) for s in report.stages),
        }
    )


def test_the_index_counts_and_links(
    tmp_path: Path, transducer: ConversionReport, crashed: ConversionReport
) -> None:
    """The index counts what is proven, shows every failure's fact, and links relatively."""
    pages = tmp_path / "pages"
    path = write_index(
        {pages / "a report?#": transducer, pages / "b:c": crashed}, tmp_path / "index"
    )
    assert path == tmp_path / "index" / "index.html"
    page = Page(path.read_text(encoding="utf-8"))
    assert "1 of 2 artifacts proven" in page.text
    assert "killed by SIGSEGV in program main, case 1" in page.text
    links = {a["href"] for tag, a in page.elements if tag == "a"}
    assert links == {"../pages/a%20report%3F%23/report.html", "../pages/b%3Ac/report.html"}


def test_an_empty_index_is_a_page() -> None:
    """No conversions are no error."""
    assert "No conversions yet." in Page(render_index([])).text


def test_hostile_names_stay_text_in_the_index(resnet: ConversionReport) -> None:
    """The index escapes as the report does."""
    rows = [(_renamed(resnet, name), "") for name in HOSTILE]
    assert not Page(render_index(rows)).tags & {"script", "img", "iframe"}
