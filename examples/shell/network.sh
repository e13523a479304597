#!/bin/sh
# What a command needs of the network, found out once and kept to from then on.
set -eu

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
fetch='curl -sSo /dev/null -w "%{http_code}\n" https://example.com/'

echo "Once with everything that is public, to learn:"
osb run --learn "$place/policy.json" --shell -- "$fetch"
cat "$place/policy.json"

echo "With that policy the same works:"
osb run --policy "$place/policy.json" --shell -- "$fetch"

echo "And nothing else does:"
osb run --policy "$place/policy.json" -- curl -sS https://example.org/ || true
