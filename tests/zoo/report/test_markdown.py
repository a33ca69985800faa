"""The Markdown of a report: complete, short, and nothing in it is markup but ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zoo.report import markdown

if TYPE_CHECKING:
    from zoo.evidence import ConversionReport


def test_a_proven_report(resnet: ConversionReport) -> None:
    """Verdict, warning, parity, latency, passes, kernels and stages, a screen or two long."""
    text = markdown(resnet)
    assert text.startswith("## ✅ resnet18 on cpu: proven equal to eager\n")
    assert "> **Random weights**, seed 0" in text
    assert "23.4 ms | 34.9 ms | 1.49\N{MULTIPLICATION SIGN} faster than eager" in text
    assert "| main | fold\\_batch\\_norm | 191 → 112 | 16 changes | 1 refusal |" in text
    assert "| main | 24 | addmm\\_out, convolution | 214 kB |" in text
    assert len(text.splitlines()) < 60


def test_a_failure_comes_first(diverged: ConversionReport) -> None:
    """The failed case leads the table, and the fact leads the text."""
    text = markdown(diverged)
    assert "❌ resnet18 on cpu: diverges from eager" in text
    rows = [line for line in text.splitlines() if line.startswith("| main · logits")]
    assert "**failed**" in rows[0]
    assert "**failed**" not in rows[1]


def test_many_outputs_are_cut_with_a_note(transducer: ConversionReport) -> None:
    """Twelve rows at most; the rest is counted."""
    text = markdown(transducer)
    assert "… and 6 more, none of them worse." in text


def test_names_cannot_become_markup(crashed: ConversionReport) -> None:
    """HTML, links, tables and headings in a name or a fact are shown as they were written."""
    hostile = "<img src=x>|[a](javascript:x)\n# `b` **c**"
    failed = crashed.validation.model_copy(update={"detail": hostile})
    text = markdown(crashed.model_copy(update={"model": hostile, "validation": failed}))
    escaped = r"\<img src=x\>\|\[a\]\(javascript\:x\) \# \`b\` \*\*c\*\*"
    assert text.count(escaped) == 2
    assert "<img" not in text.replace(r"\<img", "")
