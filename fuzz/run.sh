#!/usr/bin/env bash
# Builds the fuzz targets with nightly and AddressSanitizer, as cargo-fuzz would, and runs them one
# after the other: `fuzz/run.sh 60 keyed_file value` for a minute each; without names, all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

seconds="${1:-60}"
shift || true
targets=("$@")
if [ "${#targets[@]}" -eq 0 ]; then
    targets=(keyed_file keyed_changes key value schema by_schema metadata record config)
fi

host="$(rustc +nightly -vV | sed -n 's/^host: //p')"
export RUSTFLAGS="--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module \
-Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
# With a target, build scripts and macros are built without these flags.
bins=("${targets[@]/#/--bin=}")
cargo +nightly build --release --locked --target "$host" "${bins[@]}"

# What the fuzzer begins with: files that are valid.
seed() {
    mkdir -p "corpus/$1"
    cp "${@:2}" "corpus/$1"
}
seed keyed_file ../crates/state/tests/golden/*.bin
seed keyed_changes ../crates/state/tests/golden/changes-*.bin
seed metadata ../crates/storage/tests/golden/metadata-*.bin
seed record ../crates/storage/tests/golden/*.txt

out="${CARGO_TARGET_DIR:-target}/$host/release"
for target in "${targets[@]}"; do
    mkdir -p "corpus/$target" "artifacts/$target"
    "$out/$target" -max_total_time="$seconds" -rss_limit_mb=1024 -malloc_limit_mb=256 \
        -timeout=10 -artifact_prefix="artifacts/$target/" -print_final_stats=1 "corpus/$target"
done
