"""`zoo schema`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import JsonOption
from flows.cli.output import emit, messages

__all__ = ["schema"]


def schema(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; left out: print it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the JSON Schema of manifest files, so that an editor completes and checks them.

    Example: `zoo schema -o schema.json`, then `# yaml-language-server: $schema=schema.json` on
    top of the YAML file.
    """
    from zoo.manifest import json_schema

    if output is None:
        emit(json_schema())
        return
    output.write_text(json.dumps(json_schema(), indent=2) + "\n")
    if as_json:
        emit({"path": str(output.resolve())})
    else:
        messages().print(f"wrote {output}")
