//! The decoders, for the fuzz targets (`fuzz/`); compiled in by `--cfg fuzzing` only.

use crate::metadata;
use crate::record::{
    COUNTER, DISCARDED, ELSEWHERE, ENDED, FINISHED, JOB, LEADER, LEADER_V1, ORIGIN, PARALLELISM,
    POINTER, POINTER_V1,
};

/// Decodes metadata. What is accepted is exactly what would be written.
pub fn metadata(bytes: &[u8]) {
    if let Ok(checkpoint) = metadata::decode("fuzzed", bytes) {
        assert_eq!(metadata::encode(&checkpoint).ok().as_deref(), Some(bytes));
    }
}

/// Decodes a record of any kind. What is accepted is exactly what would be written.
pub fn record(bytes: &[u8]) {
    let kinds = [
        JOB,
        COUNTER,
        POINTER_V1,
        POINTER,
        ORIGIN,
        ELSEWHERE,
        LEADER_V1,
        LEADER,
        FINISHED,
        PARALLELISM,
        DISCARDED,
    ];
    for kind in kinds {
        if let Ok(values) = kind.decode("fuzzed", bytes) {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            assert_eq!(kind.encode(&values), bytes);
        }
    }
}
