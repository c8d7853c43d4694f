//! Every deviation from a rule, with its reason. Lists of numbers may only shrink: an entry that
//! is larger than what it excuses is itself a violation, and so is one that excuses nothing.

/// Code that a program has written, to which no rule applies: path and from what.
pub const GENERATED: &[(&str, &str)] = &[
    (
        "crates/server/src/cluster/wire/generated.rs",
        "crates/server/proto/cluster.proto",
    ),
    (
        "crates/server/src/cluster/control/generated.rs",
        "crates/server/proto/control.proto",
    ),
];

/// Functions longer than [`super::lengths::FUNCTION_LINES_MAX`]: path, name, lines.
pub const LONG_FUNCTIONS: &[(&str, &str, usize)] = &[];

/// Files longer than [`super::lengths::FILE_LINES_MAX`]: path, lines.
pub const LONG_FILES: &[(&str, usize)] = &[];

/// Where clocks are read, threads started and waits done: path prefix and why there.
pub const CLOCKS_AND_THREADS: &[(&str, &str)] = &[
    (
        "crates/runtime/src/clock",
        "handed to all else in the crate",
    ),
    ("crates/runtime/src/attempt", "workers park until woken"),
    ("crates/server/src/clock", "handed to the cores"),
    (
        "crates/server/src/cluster/",
        "whoever is waited for has a deadline",
    ),
    ("crates/server/src/data/", "whoever connects has a deadline"),
    ("crates/server/src/driver", "waits for the next deadline"),
    (
        "crates/server/src/termination",
        "signals come at any time, and whoever acts on them blocks",
    ),
    ("crates/connectors/src/", "blocking clients have threads"),
    (
        "crates/storage/src/ha/s3/election",
        "hands the time to the decision about a lease",
    ),
    (
        "crates/storage/src/ha/s3/records",
        "hands the time to the decision about a lease",
    ),
    (
        "crates/storage/src/ha/trouble",
        "hands the time to the decision whether trouble is told of",
    ),
    ("crates/tidegate/src/progress.rs", "rates are per second"),
    ("crates/tidegate/examples/", "a program of its own"),
    ("crates/cli/src/", "a program of its own"),
    ("crates/bench/src/", "measures time"),
    ("crates/sim/src/main.rs", "reports the time taken"),
    ("crates/sim/src/bin/", "reports the time taken"),
    ("xtask/", "for developers only"),
];

/// Where writing to standard output, or ending the process, is the purpose: path prefix and why.
pub const PRINTING: &[(&str, &str)] = &[
    (
        "crates/server/src/cluster/jobmanager",
        "one that can do nothing any more is started again",
    ),
    (
        "crates/server/src/cluster/parent",
        "ends with whoever started it",
    ),
    (
        "crates/server/src/cluster/process",
        "the process of an attempt ends with it",
    ),
    (
        "crates/server/src/start",
        "a leader that was deposed ends, whatever it is at",
    ),
    (
        "crates/server/src/termination",
        "a process that is told to end ends",
    ),
    (
        "crates/tidegate/src/cluster",
        "a role that is not the caller's ends the process",
    ),
    ("crates/tidegate/src/progress.rs", "lines for a terminal"),
    ("crates/tidegate/examples/", "a program for a terminal"),
    ("crates/cli/src/", "a program for a terminal"),
    ("crates/bench/src/", "a program for a terminal"),
    (
        "crates/bench/renoir/src/main.rs",
        "a program for another one",
    ),
    ("crates/sim/src/main.rs", "a program for a terminal"),
    ("crates/sim/src/bin/", "a program for a terminal"),
    ("crates/fault/src/", "in test builds: a mistyped point"),
];

/// Files that may contain `unsafe`, each with its safety argument inside, and what for.
pub const UNSAFE: &[(&str, &str)] = &[
    (
        "crates/state/src/heap/prefetch.rs",
        "memory is asked for ahead, which has no effect that could be unsound",
    ),
    (
        "crates/state/src/key/inline.rs",
        "small texts are compared and made as what they are in memory, which is checked",
    ),
    (
        "crates/bench/src/peers/prefetch.rs",
        "the same, in what the engine is compared with",
    ),
];

/// Dependencies that only tests have, against the arrows: crate, member it may name, and why.
pub const TEST_ARROWS: &[(&str, &str, &str)] = &[
    ("derive", "state", "what the macros expand to names it"),
    ("derive", "types", "hashes of derived keys are checked"),
    (
        "fault",
        "fault",
        "tests need the feature that users turn on",
    ),
];

/// Dependencies between the workspace's crates: folder and the members it may name.
///
/// Arrows point down only, and `coordinator` and `runtime` meet as messages in `types`. A new
/// arrow is a change of architecture: it gets its own commit and a line in ARCHITECTURE.md.
pub const ARROWS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("derive", &[]),
    ("fault", &[]),
    ("coordinator", &["types"]),
    ("state", &["types", "derive"]),
    ("storage", &["types", "fault"]),
    ("runtime", &["types", "state", "fault"]),
    ("connectors", &["types", "state", "fault", "runtime"]),
    (
        "server",
        &[
            "types",
            "coordinator",
            "state",
            "storage",
            "fault",
            "runtime",
        ],
    ),
    (
        "tidegate",
        &[
            "types",
            "coordinator",
            "derive",
            "state",
            "storage",
            "fault",
            "runtime",
            "connectors",
            "server",
        ],
    ),
    ("cli", &["types", "state", "storage", "server", "tidegate"]),
    ("sim", &["types", "coordinator", "fault", "runtime"]),
    ("bench", &["types", "state", "server", "tidegate"]),
];
