"""`zoo doctor`."""

from dataclasses import asdict

import typer

from flows.cli.options import JsonOption, StoreOption, store_url, use_cluster
from flows.cli.output import emit, messages, show_check

__all__ = ["doctor"]


def doctor(*, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Look at this machine, the store and Prefect's API, and say what to mend.

    **Examples**

    - `zoo doctor`
    - `zoo doctor --store s3://models/zoo`
    """
    from flows.cli.checks import checks
    from zoo.errors import Health

    use_cluster(lambda cluster: cluster.prefect_environment())
    found = []
    with messages().status("looking around") as status:
        for check in checks(store_url(store), status.update):
            found.append(check)
            if not as_json:
                show_check(check)
    if as_json:
        emit([asdict(check) for check in found])
    if any(check.health is Health.FAIL for check in found):
        raise typer.Exit(1)
