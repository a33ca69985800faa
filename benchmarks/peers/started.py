"""Run a command and print its cost: `started.py COMMAND...`. It imports nothing large.

Linux's peak of a process includes its parent's memory, so a small process must start it.
"""

import json
import os
import sys
import time

began = time.perf_counter()
nowhere = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=nowhere)
_, status, used = os.wait4(process, 0)
seconds = time.perf_counter() - began
unit = 1 if sys.platform == "darwin" else 1024
print(
    json.dumps(
        {
            "code": os.waitstatus_to_exitcode(status),
            "seconds": seconds,
            "processor_seconds": used.ru_utime + used.ru_stime,
            "peak_bytes": used.ru_maxrss * unit,
        }
    )
)
