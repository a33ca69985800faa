"""`zoo down`."""

from flows.cli.options import JsonOption, require_checkout
from flows.cli.output import emit, messages, results

__all__ = ["down"]


def down(*, as_json: JsonOption = False) -> None:
    """End the local cluster; its data, ports and secrets stay for the next `zoo up`.

    Conversions at work are ended too and run again after the next `zoo up`.
    """
    require_checkout("zoo down")
    from infra.local.down import down as bring_down

    with messages().status("ending the cluster"):
        ended = bring_down()
    if as_json:
        emit({"ended": ended})
    else:
        results().print(f"ended {', '.join(ended)}" if ended else "nothing was running")
