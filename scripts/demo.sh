#!/usr/bin/env bash
# Starts a server on 127.0.0.1:8080, or where it is told, unless one of ours is there, and shows a first sandbox.
#
#   scripts/demo.sh path/to/osb [address:port]
set -euo pipefail

osb=$(realpath "$1")
address=${2:-127.0.0.1:8080}
unset OPEN_SANDBOX_API_KEY
export OPEN_SANDBOX_DOMAIN=$address

if [ -n "${OSB_DATA_DIR:-}" ]; then
  data=$OSB_DATA_DIR
elif [ "$(id -u)" = 0 ]; then
  data=/var/lib/opensandbox
else
  data=${XDG_DATA_HOME:-$HOME/.local/share}/opensandbox
fi
log=$data/server.log
pid=$data/server.pid

trouble() {
  printf '\n%s\n' "$1" >&2
  [ ! -e "$log" ] || { echo "The end of $log:" && tail -n 15 "$log"; } >&2
  printf '\nWhat this machine has and lacks:\n' >&2
  "$osb" doctor >&2 || exit 1
  exit 1
}

listening() {
  (exec 3<>"/dev/tcp/${address%:*}/${address#*:}") 2>/dev/null
}

ours() {
  "$osb" sandbox ls >/dev/null 2>&1
}

if ours; then
  echo "A server already listens on $address; this uses it."
  server=
elif listening; then
  echo "Something else listens on $address, or its key is not in $data. End it and try again." >&2
  exit 1
else
  mkdir -p -m 700 "$data" || trouble "The server cannot keep its state in $data: set OSB_DATA_DIR."
  (umask 077 && touch "$log")
  setsid "$osb" server --listen "$address" --data-dir "$data" </dev/null >>"$log" 2>&1 &
  server=$!
  for ((i = 0; ; i++)); do
    ! ours || break
    kill -0 "$server" 2>/dev/null || trouble "The server did not start."
    ((i < 200)) || trouble "The server does not answer."
    sleep 0.05
  done
  echo "$server" >"$pid"
  echo "A server listens on $address."
fi

bold='' plain=''
if [ -t 1 ]; then
  bold=$'\e[1m' plain=$'\e[0m'
fi

# Runs a command in front of the reader and says how long it took.
show() {
  local word line='$ osb'
  for word in "$@"; do
    [[ $word =~ ^[A-Za-z0-9_./:=-]+$ ]] || word="'$word'"
    line+=" $word"
  done
  printf '\n%s%s%s\n' "$bold" "$line" "$plain"
  local began=$EPOCHREALTIME status=0 ended
  "$osb" "$@" || status=$?
  ended=$EPOCHREALTIME
  awk -v a="$began" -v b="$ended" 'BEGIN { printf "  %.0f ms\n", (b - a) * 1000 }'
  return "$status"
}

id=$(mktemp)
sandbox=
# Whoever interrupts this leaves no sandbox behind.
trap 'rm -f "$id"; [ -z "$sandbox" ] || "$osb" sandbox rm "$sandbox" >/dev/null 2>&1' EXIT
# Should this be interrupted before the id is known, the sandbox ends by itself.
show sandbox create --image host --timeout 1m >"$id" || trouble "No sandbox could be made."
sandbox=$(grep -Eo '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}' "$id")
cat "$id"

show sandbox exec "$sandbox" -- echo "hello from a sandbox" || trouble "No command could be run."
if "$osb" sandbox exec "$sandbox" --shell -- 'command -v python3' >/dev/null 2>&1; then
  show sandbox exec "$sandbox" -- python3 -c 'print(sum(n * n for n in range(1000)))' ||
    trouble "Python could not be run."
fi
echo "written from outside" | show file write "$sandbox" /tmp/note.txt ||
  trouble "No file could be written."
show file read "$sandbox" /tmp/note.txt || trouble "No file could be read."

# An address that nobody has, by RFC 5737: even without a sandbox nothing would be disturbed.
# What a sandbox sends arrives at the server, which ends it: bash says 1. Whoever waited for an answer would
# wait until `timeout` says 124.
refused=0
show sandbox exec "$sandbox" -- timeout 5 bash -c 'exec 3<>/dev/tcp/192.0.2.1/443; cat <&3' || refused=$?
[ "$refused" = 1 ] || trouble "A connection left the sandbox, although nobody allowed it."
echo "  refused, as it should be: a sandbox has no wire"
show sandbox rm "$sandbox" || trouble "The sandbox could not be removed."
sandbox=

cat <<TEXT

The server goes on. Use it:   $osb run -- echo hello
API key for the SDKs:         $data/api-key
TEXT
[ -n "$server" ] || server=$(cat "$pid" 2>/dev/null || echo)
# Only if it is the one that this script started: numbers are used again.
if [ -n "$server" ] && [ "$(readlink "/proc/$server/exe" 2>/dev/null)" = "$osb" ]; then
  echo "Log:                          $log"
  echo "Stop it:                      kill $server"
fi
