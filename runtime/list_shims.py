"""Writes the tables of SHIMS.md from shims.toml, after a change: ``runtime/list_shims.py``."""

from __future__ import annotations

from pathlib import Path

from menagerie.shims import Shim, load


def table(shims: tuple[Shim, ...], title: str, *, computes: bool) -> str:
    """Return the functions that compute, or all others, as a section of Markdown."""
    entries: dict[str, list[Shim]] = {}
    for shim in shims:
        if shim.computes is computes:
            entries.setdefault(shim.entry, []).append(shim)
    lines = [f"## {title} ({len(entries)})", "", "| function | targets | what it does |"]
    lines += ["|---|---|---|"]
    for entry, functions in entries.items():
        targets = ", ".join(target for shim in functions for target in shim.targets)
        lines.append(f"| `{entry}` | {targets} | {functions[0].doc} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    shims, listing = load(), Path(__file__).with_name("SHIMS.md")
    sections = (
        table(shims, "Kernels", computes=True),
        table(shims, "Handles, constants, scalars", computes=False),
    )
    listing.write_text("\n".join((listing.read_text().partition("\n## ")[0], *sections)))
