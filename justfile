# Short names for what one runs often. `just` alone lists them.

# Only what `--features fault-points` compiles in can be killed at a named place; the others are
# kinds of stores, and encryption.
features := "--features fault-points,s3,tls,zookeeper"

_list:
    @just --list --unsorted

# Everything CI checks; changes no file. Run it before sending a change.
verify:
    bash .ci/run

# Rewrites what can be rewritten by machine: formatting, and clippy's own corrections.
fix:
    cargo clippy --workspace --all-targets {{features}} --fix --allow-dirty --allow-staged
    cargo fmt --all
    cargo fmt --manifest-path crates/bench/renoir/Cargo.toml

# All tests; arguments go to the test runner, for instance `just test alignment`.
test *args:
    scripts/test.sh {{args}}

# Layout, length and layering rules alone (they are among the tests, too). Takes seconds.
tidy:
    cargo test -p xtask

# Changes the cores in small ways, to see whether their tests notice: half an hour or more;
# `just mutants --short` is the sample that CI takes.
mutants *args:
    scripts/mutants.sh {{args}}

# The demo: counts the words of `data/text`. Arguments as in `just demo --parallelism 4`.
demo *args:
    cargo run --release --example wordcount -- {{args}}

# The simulated cluster: `just sim --seeds 10000`, or `just sim --seed 42` to replay a failure.
sim *args:
    cargo run --release -p tidegate-sim -- {{args}}

# The control plane of a thousand TaskManagers, simulated; arguments as in `--taskmanagers 100`.
scale-sim *args:
    cargo run --release -p tidegate-bench -- control-plane {{args}}

# Kills the word count again and again and checks its output: `just survive --kills 20 --seed 7`.
survive *args:
    cargo run --release --example survive {{features}} -- {{args}}

# Disturbs clusters of processes in every way there is, and checks their output; network faults need
# root: `just chaos --minutes 10 --seed 7`.
chaos *args:
    cargo build --release --example wordcount --example fraud {{features}}
    cargo run --release --example chaos {{features}} -- {{args}}

# Tests of the program that runs jobs on renoir, a workspace of its own: by hand, as it brings more
# than a hundred crates. A comparison builds it.
test-renoir *args:
    cargo clippy --manifest-path crates/bench/renoir/Cargo.toml --all-targets -- -D warnings
    cargo test --manifest-path crates/bench/renoir/Cargo.toml {{args}}

# The documentation of all crates, as a browser would show it.
doc:
    cargo doc --workspace --no-deps {{features}}

# Looks for bytes that a decoder can't take, with nightly: `just fuzz 60 keyed_file` for a minute.
fuzz *args:
    fuzz/run.sh {{args}}

# Licences and advisories of the dependencies; needs `cargo install cargo-deny`.
deny:
    cargo deny check
