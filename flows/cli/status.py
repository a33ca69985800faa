"""`zoo status`."""

import typer

from flows.cli.options import JsonOption, require_checkout
from flows.cli.output import emit, results

__all__ = ["status"]


def status(*, as_json: JsonOption = False) -> None:
    """Say whether the local cluster is well, and what to do where it is not.

    Exit code 1 if anything is down.
    """
    from rich.text import Text

    require_checkout("zoo status")
    from flows.machine.health import Health
    from infra.local.status import status as look

    found = look()
    if as_json:
        emit(found.model_dump(mode="json"))
    else:
        for check in found.checks:
            style = "green" if check.health is Health.OK else "red"
            line = Text(f"{check.health:4}", style=style)
            results().print(line.append(f"  {check.name:12} {check.detail}", style="default"))
            if check.health is not Health.OK and check.advice:
                results().print(Text(f"      {'':12} {check.advice}", style="default"))
    if not found.healthy:
        raise typer.Exit(1)
