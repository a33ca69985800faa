"""A program that makes an environment small: `prune.py ROOT... [--alone NAME...]`.

It uninstalls distributions that the ROOTs do not need, by the requirements of the installed ones.
Those after `--alone` stay without their requirements. It is used to build an image, because the
lock has the tools that build and test the pipeline as well as what runs it.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distributions

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def needed(roots: list[str]) -> set[str]:
    """Return the canonical names of the roots and of their installed requirements, transitively."""
    required = {
        canonicalize_name(each.name): [Requirement(text) for text in each.requires or ()]
        for each in distributions()
    }
    found: set[tuple[str, str]] = set()  # with the requested extra
    todo = [(canonicalize_name(root), "") for root in roots]
    while todo:
        name, extra = todo.pop()
        if (name, extra) in found or name not in required:
            continue
        found.add((name, extra))
        for each in required[name]:
            if each.marker is None or each.marker.evaluate({"extra": extra}):
                todo += [(canonicalize_name(each.name), asked) for asked in ("", *each.extras)]
    return {name for name, _ in found}


def main(arguments: list[str]) -> int:
    """Uninstall packages, pip last; print their number."""
    cut = arguments.index("--alone") if "--alone" in arguments else len(arguments)
    kept = needed(arguments[:cut]) | {canonicalize_name(name) for name in arguments[cut + 1 :]}
    going = {canonicalize_name(each.name) for each in distributions()} - kept
    command = [sys.executable, "-m", "pip", "uninstall", "--quiet", "--yes", *sorted(going)]
    sys.stdout.write(f"{len(kept)} distributions stay, {len(going)} go\n")
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
