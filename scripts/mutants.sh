#!/usr/bin/env bash
# Changes the cores in small ways and sees whether their tests notice (cargo-mutants). Works on a
# copy of the tree. Needs cargo-mutants: installs it, or says that it can't and checks nothing.
#
# `scripts/mutants.sh` tries every mutant of the coordinator and of alignment, for half an hour or
# more; nine of ten must be caught. `--short` tries a fixed sample in about three minutes; of so
# few, eight of ten. What was missed is listed at the end, and in `target/mutants/*/mutants.out`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version="27.1.0"

percent_min=90
coordinator=() alignment=()
if [ "${1:-}" = "--short" ]; then
    percent_min=80
    # Each n-th mutant: some of every file.
    coordinator=(--sharding round-robin --shard 0/32)
    alignment=(--sharding round-robin --shard 0/5)
elif [ $# -gt 0 ]; then
    echo "mutants: the only option is --short" >&2
    exit 1
fi

if ! cargo mutants --version >/dev/null 2>&1; then
    echo "mutants: installing cargo-mutants ${version}" >&2
    if ! timeout 600 cargo install --quiet --locked "cargo-mutants@${version}"; then
        echo "mutants: SKIPPED, nothing was checked: cargo-mutants can't be installed" >&2
        exit 0
    fi
fi

out="${PWD}/target/mutants"
# Builds of the copy find their dependencies built. Apart from the ordinary builds, so that nothing
# mutated can be taken for one of them.
export CARGO_TARGET_DIR="${out}/build"
# A failure is all that is asked for, not its smallest cause.
export PROPTEST_MAX_SHRINK_ITERS=0

caught=0 missed=0

# Tries the mutants of one part: its name, then arguments of cargo-mutants.
try() {
    local name="$1" status=0
    shift
    rm -rf "${out:?}/${name}"
    mkdir -p "${out}/${name}"
    cargo mutants --profile mutants --output "${out}/${name}" --colors never "$@" || status=$?
    # 2: some were missed, 3: some ran for ever, which is noticed, too.
    case "${status}" in 0 | 2 | 3) ;; *) exit "${status}" ;; esac
    caught=$((caught + $(cat "${out}/${name}"/mutants.out/{caught,timeout}.txt | wc -l)))
    missed=$((missed + $(wc -l <"${out}/${name}/mutants.out/missed.txt")))
}

try coordinator "${coordinator[@]}" --package tidegate-coordinator
try alignment "${alignment[@]}" --file 'crates/runtime/src/alignment/*.rs' \
    --cargo-arg=--lib -- alignment

total=$((caught + missed))
echo "mutants: ${caught} of ${total} caught, at least ${percent_min} % must be" >&2
cat "${out}"/*/mutants.out/missed.txt >&2
[ "${total}" -gt 0 ] && [ $((caught * 100)) -ge $((total * percent_min)) ]
