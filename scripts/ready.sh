#!/usr/bin/env bash
# Says what a build and a server need and this machine lacks, before anybody waits for a compiler.
set -euo pipefail

lacks=()
command -v cargo >/dev/null || lacks+=("a Rust toolchain: install rustup, or run this as the user who has it")
command -v cc >/dev/null || lacks+=("a C compiler: apt-get install gcc libc6-dev")
[ "$(id -u)" = 0 ] || lacks+=("root: the server makes namespaces and control groups; run this with sudo")
IFS=.- read -r major minor _ <<<"$(uname -r)"
if ((major < 5 || (major == 5 && minor < 19))); then
  lacks+=("a Linux kernel from 5.19 on (this is $(uname -r)): Debian 12 and Ubuntu 22.10 have one")
fi
[ ${#lacks[@]} -gt 0 ] || exit 0

echo "This machine lacks:" >&2
printf '  %s\n' "${lacks[@]}" >&2
exit 1
