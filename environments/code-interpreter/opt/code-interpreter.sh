#!/usr/bin/env bash
# Entry point of the code interpreter: makes commands use the versions that PYTHON_VERSION, NODE_VERSION,
# JAVA_VERSION and GO_VERSION ask for, then runs its arguments, or stays until it is told to end. Kernels
# are started by execd when there is something to run in them.
set -euo pipefail

source /opt/opensandbox/code-interpreter-env.sh ""
osb_use_asked
for own in "${HOME:-/root}"/{.local,go}/bin; do
  [[ :$PATH: == *:$own:* ]] || PATH+=:$own
done
osb_keep
(($# == 0)) || exec "$@"

trap 'kill $!; wait $! || exit 0' TERM INT
sleep infinity &
wait
