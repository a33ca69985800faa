"""The parent flow in a process of its own: `python toy_parent.py CALL RESULT`, both of JSON."""

import json
import sys
from pathlib import Path

import toy_flows
from prefect import State

call, result = json.loads(sys.argv[1]), Path(sys.argv[2])
toy_flows.convert_zoo(**call, return_state=True)
[told] = toy_flows.TOLD  # the server's answer to a final state can get lost, a busy SQLite's does
outcome = told.result(raise_on_failure=False) if isinstance(told, State) else told
result.write_text(getattr(outcome, "result", outcome).model_dump_json())  # of a run that failed
