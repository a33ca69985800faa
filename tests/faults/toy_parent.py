"""The parent flow in a process of its own: `python toy_parent.py CALL RESULT`, both of JSON."""

import json
import sys
from pathlib import Path

import toy_flows

call, result = json.loads(sys.argv[1]), Path(sys.argv[2])
outcome = toy_flows.convert_zoo(**call, return_state=True).result(raise_on_failure=False)
result.write_text(getattr(outcome, "result", outcome).model_dump_json())  # of a run that failed
