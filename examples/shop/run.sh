#!/usr/bin/env bash
# Runs the shop on three nodes while customers order from all of them. Kills a random node each time that all nodes
# serve again. The last lines are the results of the customers, the number of kills and the verdict.
#
#   examples/shop/run.sh [--orders N]
#
# The program is built first, unless SHOP names an existing one.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
data=$(mktemp -d)
target=${CARGO_TARGET_DIR:-$root/target}
shop=${SHOP:-$target/release/examples/shop}
orders=10000
[[ ${1:-} == --orders ]] && orders=$2

names=(a b c)
declare -A pids
ready_seconds_max=60
pause_seconds=0.5

build() {
    [[ -n ${SHOP:-} ]] || (cd "$root" && cargo build --quiet --release --package quorate --example shop)
}

# Prints ports that are free now: ports COUNT
ports() {
    python3 - "$1" <<'PYTHON'
import socket, sys
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(s.getsockname()[1] for s in sockets))
PYTHON
}

configure() {
    local all
    read -ra all <<<"$(ports 7)"
    hook=127.0.0.1:${all[6]}
    python3 -c "import secrets; print(secrets.token_hex(16))" >"$data/secret"
    for at in 0 1 2; do
        http[at]=127.0.0.1:${all[at + 3]}
        cat >"$data/${names[at]}.toml" <<TOML
name = "${names[at]}"
data_dir = "${names[at]}"
secret_file = "secret"
[members]
a = "127.0.0.1:${all[0]}"
b = "127.0.0.1:${all[1]}"
c = "127.0.0.1:${all[2]}"
TOML
    done
}

# Starts a node, or starts it again: start 0|1|2
start() {
    "$shop" serve --config "$data/${names[$1]}.toml" --http "${http[$1]}" --hook "$hook" >>"$data/${names[$1]}.log" 2>&1 &
    pids[$1]=$!
    disown
}

# Checks whether the shop of a node answers: open 0|1|2
open() {
    python3 -c "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)" \
        "http://${http[$1]}/stock" 2>/dev/null
}

wait_until_open() {
    local at second
    for at in 0 1 2; do
        for ((second = 0; second < ready_seconds_max; second++)); do
            open "$at" && continue 2
            sleep 1
        done
        echo "the shop of node ${names[at]} did not open:" >&2
        cat "$data/${names[at]}.log" >&2
        return 1
    done
}

stop() {
    for at in 0 1 2; do
        kill -KILL "${pids[$at]:-}" 2>/dev/null || true
    done
    rm -rf "$data"
}

declare -a http
trap stop EXIT
build
configure
for at in 0 1 2; do start "$at"; done
wait_until_open

"$shop" load --shops "$(IFS=,; echo "${http[*]}")" --hook "$hook" --orders "$orders" >"$data/verdict" &
load=$!
kills=0
# Only one node is down at a time, because a majority must stay up.
while sleep "$pause_seconds" && kill -0 "$load" 2>/dev/null; do
    at=$((RANDOM % 3))
    kill -KILL "${pids[$at]}"
    kills=$((kills + 1))
    start "$at"
    wait_until_open
done
status=0
wait "$load" || status=$?
cat "$data/verdict"
((status == 0)) && verdict=correct || verdict=WRONG
echo "nodes killed $kills: $verdict"
exit "$status"
