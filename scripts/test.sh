#!/usr/bin/env bash
# Runs every test, tidy included, and compiles every example; does its own set-up. Arguments are
# handed to the test runner, for instance a part of a test's name.
#
# All steps use the same profile and features, so nothing is compiled twice. The unit and
# integration tests come last, so that the output ends with their count.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh

# Fault points are compiled in for tests: the tests that kill a job at them need them. So is every
# kind of store, and encryption; scripts/setup.sh has installed what they are tested against.
selected=(--workspace --features fault-points,s3,tls,zookeeper)

# Arguments select among the other tests, hence none are wanted of these.
[ $# -gt 0 ] || cargo test "${selected[@]}" --doc

# nextest runs each test in a process of its own and ends one that hangs (.config/nextest.toml).
# Without it, cargo's own runner does. Tests run examples as processes of their own: nextest builds
# them along with the tests, cargo only if no kinds of targets are named.
if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run "${selected[@]}" --no-fail-fast "$@"
else
    cargo build "${selected[@]}" --examples
    cargo test "${selected[@]}" --no-fail-fast --lib --bins --tests "$@"
fi
