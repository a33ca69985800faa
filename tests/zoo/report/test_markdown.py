"""The Markdown of a report: complete, short, and nothing in it is markup but ours."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from menagerie.validation.findings import Bound
from zoo.report.page import markdown, plain_text

if TYPE_CHECKING:
    from zoo.records import ConversionReport


def test_a_proven_report(resnet: ConversionReport) -> None:
    """Verdict, warning, parity, latency, passes, kernels and stages, a screen or two long."""
    text = markdown(resnet)
    assert text.startswith("## ✅ resnet18 on cpu: proven equal to eager\n")
    assert "> **Random weights**, seed 0" in text
    against = "1.49\N{MULTIPLICATION SIGN} faster than eager"
    assert f"| main | artifact | 22.0 ms | 23.4 ms |  | 2 | {against} |" in text
    assert "|  | eager | 32.8 ms | 34.9 ms |  | 2 |  |" in text
    assert "| main | fold\\_batch\\_norm | 191 → 112 | 16 changes | 1 refusal |" in text
    assert "| main | 24 | addmm\\_out, convolution | 214 kB |" in text
    assert "rounding" not in text
    assert len(text.splitlines()) < 60


def test_the_costliest_layers_are_named(rounded: ConversionReport) -> None:
    """Five of a program; a release in float32 has no such table."""
    text = markdown(rounded)
    assert "| main · layer0.weight | 35.0 dB | 20.0 dB |" in text
    assert "layer4.weight" in text
    assert "layer5.weight" not in text


def test_a_failure_comes_first(diverged: ConversionReport) -> None:
    """The failed case leads the table, and the fact leads the text."""
    text = markdown(diverged)
    assert "❌ resnet18 on cpu: diverges from eager" in text
    rows = [line for line in text.splitlines() if line.startswith("| main · logits")]
    assert "**failed**" in rows[0]
    assert "**failed**" not in rows[1]


def judged(report: ConversionReport, **changes: object) -> ConversionReport:
    """The report of a model with one program, its outputs' parities changed."""
    [program] = report.validation.programs
    parity = tuple(replace(p, **changes) for p in program.parity)
    programs = (replace(program, parity=parity),)
    validation = replace(report.validation, programs=programs)
    return report.model_copy(update={"validation": validation})


def test_what_was_demanded_is_measured_by_the_outputs_scale(resnet: ConversionReport) -> None:
    """1e-4 of a scale of 0.1, ten times that at 80 dB; and which of the two it passed by."""
    text = markdown(judged(resnet, scale=0.1, passed_by=Bound.SNR))
    assert "| ≤ 10⁻⁵ or ≥ 80 dB and ≤ 10⁻⁴ | passed by SNR |" in text
    assert "| every bit | passed |" in markdown(judged(resnet, tolerance=None))


def test_many_outputs_are_cut_with_a_note(transducer: ConversionReport) -> None:
    """Twelve rows at most; the rest is counted."""
    text = markdown(transducer)
    assert "… and 6 more, none of them worse." in text


def test_names_cannot_become_markup(crashed: ConversionReport) -> None:
    """HTML, links, tables and headings in a name or a fact are shown as they were written."""
    hostile = "<img src=x>|[a](javascript:x)\n# `b` **c**"
    failed = replace(crashed.validation, detail=hostile)
    text = markdown(crashed.model_copy(update={"model": hostile, "validation": failed}))
    escaped = r"\<img src=x\>\|\[a\]\(javascript\:x\) \# \`b\` \*\*c\*\*"
    assert text.count(escaped) == 2
    assert "<img" not in text.replace(r"\<img", "")


def cell_of_a_table(text: str) -> tuple[set[str], str]:
    """What a Markdown parser makes of a text in a table: kinds of markup, and what is shown."""
    table = f"| head | next |\n|---|---|\n| {text} | next |\n"
    inline = [t for t in MarkdownIt("commonmark").enable("table").parse(table) if t.children]
    assert len(inline) == 4  # two cells a row, and nothing after the table
    assert inline[3].content == "next"
    children = inline[2].children or []
    return {child.type for child in children}, "".join(child.content for child in children)


@pytest.mark.parametrize(
    "hostile",
    [
        "[a](javascript:alert)",
        "![a](https://example.org/x.png)",
        "<script>alert(1)</script>",
        "<https://example.org>",
        "&lt;b&gt; &#60;",
        "a | b",
        "a \\| b",
        "a \\\\| b",
        "`code` ``two`` `",
        "**b** _i_ ~~s~~",
        "one\n\n# two\r\n| three |",
        "ends in \\",
        "[a]: https://example.org",
    ],
)
def test_hostile_texts_are_shown_as_they_are(hostile: str) -> None:
    """One text, nothing else, in one cell."""
    assert cell_of_a_table(plain_text(hostile)) == ({"text"}, " ".join(hostile.split()))


@given(st.text(alphabet="ab \n\\`*_{}[]<>()#+!|~&:;-.=/\"'@w", min_size=1).filter(str.strip))
def test_any_text_is_shown_as_it_is(text: str) -> None:
    """Whatever is combined: a parser finds text and no markup."""
    assert cell_of_a_table(plain_text(text)) == ({"text"}, " ".join(text.split()))


def test_addresses_are_no_links() -> None:
    """GitHub's Markdown links these without brackets: their beginning is broken."""
    assert plain_text("https://a.org www.a.org WWW.a.org me@a.org") == (
        r"https\://a.org www\.a.org WWW\.a.org me\@a.org"
    )
