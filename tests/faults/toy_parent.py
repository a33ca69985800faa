"""The parent flow in a process of its own: `python toy_parent.py CALL RESULT`, both of JSON."""

import json
import sys
from pathlib import Path

import toy_flows
from prefect import State

call, result = json.loads(sys.argv[1]), Path(sys.argv[2])
toy_flows.convert_zoo(**call, return_state=True)
# The server's answer to a final state can get lost, a busy SQLite's does.
[returned] = toy_flows.RETURNED
outcome = returned.result(raise_on_failure=False) if isinstance(returned, State) else returned
result.write_text(getattr(outcome, "result", outcome).model_dump_json())  # of a run that failed
