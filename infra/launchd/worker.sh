#!/bin/sh
# Starts the worker of a Mac: worker.sh POOL. Addresses and secrets come from worker.env.
set -eu
pool=${1:?the name of a work pool}
exec >>"$HOME/Library/Logs/menagerie-worker.log" 2>&1
folder="$HOME/Library/Application Support/Menagerie"
settings="$folder/worker.env"
if [ "$(stat -f %Lp "$settings")" != 600 ]; then
  echo "$settings: must be there, and readable by its owner alone. Run chmod 600 on it"
  exit 1
fi
set -a
. "$settings"
PATH="/opt/menagerie/.venv/bin:$PATH"
PREFECT_HOME="$folder/prefect"
PREFECT_FLOWS_HEARTBEAT_FREQUENCY=30
PREFECT_CLIENT_RETRY_EXTRA_CODES=500
MENAGERIE_HOME="$folder/home"
MENAGERIE_ROLE=worker
DO_NOT_TRACK=1
set +a
# A Mac that sleeps does not answer: awake while there is a worker, and on mains power.
exec /usr/bin/caffeinate -s /opt/menagerie/.venv/bin/prefect --no-prompt \
  worker start --type process --pool "$pool" --name "$(hostname -s) $pool"
