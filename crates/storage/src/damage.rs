//! Damage of every kind to metadata and records, with and without checksums made right again:
//! decoding ends in an error or in a value whose encoding is exactly these bytes.
//!
//! The damage is that of the fuzz targets (`fuzz/`), on seeds instead of what a fuzzer finds.

#[path = "../../../fuzz/shared/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/shared/reseal.rs"]
mod reseal;

use mutate::Mutator;

use crate::metadata;
use crate::record::{
    COUNTER, DISCARDED, ELSEWHERE, ENDED, FINISHED, JOB, LEADER, LEADER_V1, ORIGIN, PARALLELISM,
    POINTER, POINTER_V1, RecordKind,
};

const ROUNDS: usize = 20_000;

const METADATA: &[u8] = include_bytes!("../tests/golden/metadata-v1.bin");

const RECORDS: [(&RecordKind, &[u8]); 12] = [
    (&JOB, include_bytes!("../tests/golden/job-v1.txt")),
    (&COUNTER, include_bytes!("../tests/golden/counter-v1.txt")),
    (
        &POINTER_V1,
        include_bytes!("../tests/golden/pointer-v1.txt"),
    ),
    (&POINTER, include_bytes!("../tests/golden/pointer-v2.txt")),
    (&ORIGIN, include_bytes!("../tests/golden/origin-v1.txt")),
    (
        &PARALLELISM,
        include_bytes!("../tests/golden/parallelism-v1.txt"),
    ),
    (&ENDED, include_bytes!("../tests/golden/ended-v1.txt")),
    (
        &ELSEWHERE,
        include_bytes!("../tests/golden/elsewhere-v1.txt"),
    ),
    (&LEADER_V1, include_bytes!("../tests/golden/leader-v1.txt")),
    (&LEADER, include_bytes!("../tests/golden/leader-v2.txt")),
    (&FINISHED, include_bytes!("../tests/golden/finished-v1.txt")),
    (
        &DISCARDED,
        include_bytes!("../tests/golden/discarded-v1.txt"),
    ),
];

/// Whether it is accepted; then it is what would be written.
fn is_metadata(bytes: &[u8]) -> bool {
    let decoded = metadata::decode("damaged", bytes);
    if let Ok(checkpoint) = &decoded {
        assert_eq!(metadata::encode(checkpoint).unwrap(), bytes);
    }
    decoded.is_ok()
}

fn is_record(kind: &RecordKind, bytes: &[u8]) -> bool {
    let decoded = kind.decode("damaged", bytes);
    if let Ok(values) = &decoded {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        assert_eq!(kind.encode(&values), bytes);
    }
    decoded.is_ok()
}

#[test]
fn damaged_metadata_is_refused() {
    let mut mutator = Mutator::new(1);
    assert!(is_metadata(METADATA));
    for round in 0..ROUNDS {
        let damaged = mutator.damaged(METADATA, RECORDS[0].1);
        assert!(
            damaged == METADATA || !is_metadata(&damaged),
            "round {round}"
        );
    }
}

// BC-48: a length that lies ends in an error, whatever it says.
#[test]
fn forged_metadata_is_refused_or_canonical() {
    let mut mutator = Mutator::new(2);
    let mut accepted = 0;
    for _ in 0..ROUNDS {
        let mut forged = mutator.damaged(METADATA, METADATA);
        reseal::metadata(&mut forged);
        accepted += usize::from(is_metadata(&forged));
    }
    // Damage to names and numbers leaves metadata that is whole: the codec itself was reached.
    assert!(
        (ROUNDS / 100..ROUNDS / 2).contains(&accepted),
        "{accepted} were accepted"
    );
}

#[test]
fn damaged_records_are_refused() {
    let mut mutator = Mutator::new(3);
    for round in 0..ROUNDS {
        let (kind, valid) = RECORDS[mutator.below(RECORDS.len())];
        assert!(is_record(kind, valid));
        let damaged = mutator.damaged(valid, RECORDS[3].1);
        assert!(
            damaged == valid || !is_record(kind, &damaged),
            "round {round}"
        );
    }
}

#[test]
fn forged_records_are_refused_or_canonical() {
    let mut mutator = Mutator::new(4);
    let mut accepted = 0;
    for _ in 0..ROUNDS {
        let (kind, valid) = RECORDS[mutator.below(RECORDS.len())];
        let mut forged = mutator.damaged(valid, RECORDS[3].1);
        reseal::record(&mut forged);
        accepted += usize::from(is_record(kind, &forged));
    }
    assert!(
        (ROUNDS / 100..ROUNDS).contains(&accepted),
        "{accepted} were accepted"
    );
}
