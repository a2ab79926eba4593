#!/usr/bin/env bash
# Builds a `quorate` that needs nothing from the system it runs on, and prints its path.
# It needs rustup and, for SQLite, musl's C compiler: `apt-get install musl-tools`, or `apk add musl-dev` on Alpine.
set -euo pipefail

cd "$(dirname "$0")/.."
target=$(uname -m)-unknown-linux-musl

rustup target add "$target"
cargo build --release --locked -p quorate-cli --target "$target"

program=${CARGO_TARGET_DIR:-target}/$target/release/quorate
if ldd "$program" 2>/dev/null | grep -q '=>'; then
    echo "$program is not static" >&2
    exit 1
fi
"$program" --version
echo "$program"
