#!/usr/bin/env bash
# The SQL functions from another language: node with the driver `pg`, installed into a private
# folder. Runs under test/pg/with-postgres.
set -u
here=$(dirname "$(readlink -f "$0")")
for program in node npm; do
    command -v $program >/dev/null || { echo "1..0 # SKIP $program is not installed"; exit 0; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$here/node.mjs" "$folder/test.mjs"
if ! (cd "$folder" && timeout 120 npm install --no-save --no-audit --no-fund --ignore-scripts --cache "$folder/cache" \
      pg@8 >"$folder/npm.log" 2>&1); then
    echo "1..0 # SKIP the npm registry did not give us 'pg': $(tail -n 1 "$folder/npm.log" | tr -d '#')"
    exit 0
fi
"$ONCE_TEST_POSTGRES_BIN/psql" -Xqd "$ONCE_TEST_POSTGRES" -c 'CREATE DATABASE node' || exit 1
url=${ONCE_TEST_POSTGRES/\/\/\/postgres\?/\/\/\/node?}
"$ONCE_BIN" migrate --store "$url" >/dev/null || exit 1
cd "$folder" && PGHOST=$(sed 's/.*[?&]host=\([^&]*\).*/\1/' <<<"$url") PGUSER=postgres PGDATABASE=node node test.mjs
