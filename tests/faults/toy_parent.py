"""The parent flow in a process of its own: `python toy_parent.py CALL RESULT`, both of JSON."""

import json
import sys
from pathlib import Path

import toy_flows

from flows.running.settings import result_of

call, result = json.loads(sys.argv[1]), Path(sys.argv[2])
state = toy_flows.convert_zoo(**call, return_state=True)
result.write_text(result_of(state).model_dump_json())
