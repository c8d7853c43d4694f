#!/usr/bin/env bash
# Installs what building and testing need and this machine lacks. Says nothing and takes no time
# when nothing is missing. The demo (`cargo run --release --example wordcount`) needs only Rust
# and a linker; this script serves the tests.
set -euo pipefail

rust_min="1.95"

# One line each: the command or file that shows it is there, and the Debian package that brings it.
needed=(
    "cc gcc"        # rustc links with it
    "strace strace" # tests count syncs with it
    "valgrind valgrind" # CI counts instructions with it
    "java default-jre-headless" # runs ZooKeeper
    "/usr/share/java/zookeeper.jar libzookeeper-java" # tests elect leaders in it
)

fail() {
    echo "setup: $*" >&2
    exit 1
}

if ! command -v cargo >/dev/null; then
    fail "cargo not found: install Rust ${rust_min} or newer with rustup, then run this again"
fi
rust_found="$(rustc --version | cut -d' ' -f2)"
oldest="$(printf '%s\n%s\n' "${rust_min}" "${rust_found}" | sort -V | head -n1)"
if [ "${oldest}" != "${rust_min}" ]; then
    fail "Rust ${rust_found} is too old, ${rust_min} is needed: run 'rustup update stable'"
fi

# An S3 server in Python, which tests keep records in: half a minute and 320 MB, once.
moto="${XDG_CACHE_HOME:-${HOME}/.cache}/tidegate/moto-5.2.5"
install_moto() {
    [ -e "${moto}/installed" ] && return
    echo "setup: installing moto, an S3 server, into ${moto}" >&2
    rm -rf "${moto}"
    python3 -m venv "${moto}"
    "${moto}/bin/pip" install -q --disable-pip-version-check 'moto[server,s3]==5.2.5' >&2
    touch "${moto}/installed"
}

missing=()
for line in "${needed[@]}"; do
    read -r command package <<<"${line}"
    if [[ "${command}" == *.jar ]]; then
        [ -e "${command}" ] || missing+=("${package}")
    else
        command -v "${command}" >/dev/null || missing+=("${package}")
    fi
done
if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    missing+=(python3 python3-venv)
fi
if [ "${#missing[@]}" -eq 0 ]; then
    install_moto
    exit 0
fi

if ! command -v apt-get >/dev/null; then
    fail "install these first (no apt-get here to do it): ${missing[*]}"
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "run as root, or install first: ${missing[*]}"
    as_root=(sudo)
fi
echo "setup: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
install_moto
