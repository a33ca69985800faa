"""An artifact that only an emulated device has run is never shown as more than that."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from zoo.report.page import markdown, render_index, render_report
from zoo.report.summary import commands, heading, tiles

if TYPE_CHECKING:
    from zoo.records import ConversionReport


@pytest.fixture
def emulated(resnet: ConversionReport) -> ConversionReport:
    """The proven report, had it been for Metal on a host without a GPU."""
    validation = replace(resnet.validation, emulated=True)
    return resnet.model_copy(update={"target": "metal", "validation": validation})


def test_heading_and_warning_say_so(emulated: ConversionReport) -> None:
    """On the page, in Markdown and in the index: the word is where `proven` was."""
    assert heading(emulated) == "Emulated: equal to eager on an emulated device"
    for text in (render_report(emulated), markdown(emulated)):
        assert "No real device has run it yet" in text
        assert "roven equal to eager" not in text
    index = render_index([(emulated, "")])
    assert "✓ emulated" in index
    assert "✓ proven" not in index


def test_no_latency_of_the_emulator_is_shown(emulated: ConversionReport) -> None:
    """It says nothing about a device, so nothing is compared with eager."""
    assert "latency" not in [tile.label for tile in tiles(emulated)]
    assert "faster than eager" not in markdown(emulated)
    assert 'id="speed"' not in render_report(emulated)


def test_commands_name_the_target(emulated: ConversionReport) -> None:
    """Copied as printed, they concern this artifact and not the CPU's."""
    asked = [c.line for c in commands(emulated) if not c.line.startswith("zoo run")]
    assert len(asked) == 3
    assert all("--target metal" in line for line in asked)
