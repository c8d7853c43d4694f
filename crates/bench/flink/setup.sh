#!/usr/bin/env bash
# Makes Flink ready as a peer of `tidegate-bench compare`: fetches its jars, which the Python
# package `apache-flink-libraries` carries, and compiles the jobs in this folder against them.
#
# Everything goes into ${TIDEGATE_BENCH_HOME:-~/.cache/tidegate-bench} (about 700 MB). What is there
# already is left alone, and jobs are compiled again only if their sources have changed.
set -euo pipefail

flink_version="2.3.0"
java_min=17
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
home="${TIDEGATE_BENCH_HOME:-${HOME}/.cache/tidegate-bench}"
flink="${home}/flink-${flink_version}"

fail() {
    echo "setup: $*" >&2
    exit 1
}

need() {
    command -v "$1" >/dev/null || fail "$1 not found: $2"
}

# The folder is made under another name and moved when it is whole, so a set-up that was cut off
# leaves nothing that looks like Flink.
fetch_flink() {
    need python3 "its pip fetches Flink's jars; on Debian, install python3 and python3-pip"
    python3 -m pip --version >/dev/null 2>&1 ||
        fail "python3 has no pip: on Debian, install python3-pip"
    local unpacked
    unpacked="$(mktemp -d "${home}/unpacking.XXXXXX")"
    trap 'rm -rf "${unpacked}"' RETURN
    echo "setup: fetching Flink ${flink_version} (330 MB)" >&2
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "${unpacked}" \
        "apache-flink-libraries==${flink_version}"
    python3 -m zipfile -e "${unpacked}"/apache_flink_libraries-*.whl "${unpacked}"
    mkdir "${unpacked}/flink"
    # What the jobs need, and no more: the rest of the package is SQL, Python and metrics.
    mkdir "${unpacked}/flink/lib"
    local jar
    for jar in flink-dist flink-connector-files log4j-api log4j-core log4j-slf4j-impl; do
        mv "${unpacked}"/pyflink/lib/"${jar}"-[0-9]*.jar "${unpacked}/flink/lib/"
    done
    mv "${unpacked}/pyflink/bin/bash-java-utils.jar" "${unpacked}/flink/"
    mv "${unpacked}/flink" "${flink}"
}

compile_jobs() {
    local sources=("${here}"/src/tidegate/bench/*.java)
    local stamp
    stamp="$(cat "${sources[@]}" | cksum)"
    if [ -f "${home}/jobs.jar" ] && [ "$(cat "${home}/jobs.stamp" 2>/dev/null)" = "${stamp}" ]; then
        return
    fi
    echo "setup: compiling the jobs" >&2
    local classes
    classes="$(mktemp -d "${home}/classes.XXXXXX")"
    trap 'rm -rf "${classes}"' RETURN
    javac --release "${java_min}" -Xlint:all,-processing,-classfile -d "${classes}" \
        -cp "${flink}/lib/*" "${sources[@]}"
    jar --create --file "${classes}.jar" -C "${classes}" .
    mv "${classes}.jar" "${home}/jobs.jar"
    echo "${stamp}" >"${home}/jobs.stamp"
}

for command in java javac jar; do
    need "${command}" "install a JDK ${java_min} (Debian's openjdk-${java_min}-jdk-headless)"
done
java_found="$(javac -version 2>&1 | sed 's/^javac \([0-9]*\).*/\1/')"
[ "${java_found}" -ge "${java_min}" ] ||
    fail "javac ${java_found} is too old, ${java_min} is needed"

mkdir -p "${home}"
[ -d "${flink}" ] || fetch_flink
compile_jobs
