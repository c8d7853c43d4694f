//! State files: whole or not there, checked on the way back.

mod support;

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};

use support::{Place, message_naming, write};
use tidegate_storage::{ErrorKind, StorageError};
use tidegate_types::{AttemptNumber, CheckpointId};

/// Size of the parts that long files are written in, in a folder.
const PART: usize = 1 << 20;

fn noise(count: usize) -> Vec<u8> {
    let mut state = 1u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(count).collect()
}

#[test]
fn files_of_any_length_come_back_whole() {
    let place = Place::new();
    let store = place.open();
    for length in [0, 1, 4096, PART - 1, PART, PART + 1, 2 * PART, 2 * PART + 5] {
        let bytes = noise(length);
        let handle = write(&store, 1, "count[0]", &bytes);
        assert_eq!(handle.bytes, length as u64);
        assert_eq!(handle.crc32c, crc32c::crc32c(&bytes));
        let mut reader = store.open_state_file(&handle).unwrap();
        reader.verify().unwrap();
        let mut back = Vec::new();
        reader.read_to_end(&mut back).unwrap();
        assert!(back == bytes, "{length} bytes");
        assert_eq!(fs::read(store.folder().join(&handle.name)).unwrap(), bytes);
    }
    assert_eq!(place.files(&store).len(), 8, "nothing but the files");
}

#[test]
fn reads_start_anywhere() {
    let place = Place::new();
    let store = place.open();
    let bytes = noise(PART + 100);
    let handle = write(&store, 1, "count[0]", &bytes);
    let mut reader = store.open_state_file(&handle).unwrap();
    let range = reader.read_range(PART as u64 - 5, 10).unwrap();
    assert_eq!(range[..], bytes[PART - 5..PART + 5]);
    assert_eq!(reader.read_range(handle.bytes, 0).unwrap().len(), 0);
    for (offset, bytes) in [(handle.bytes, 1), (u64::MAX, 2), (0, handle.bytes + 1)] {
        let error = reader.read_range(offset, bytes).unwrap_err();
        message_naming(&error, &store, &handle.name);
    }

    for offset in [PART, 3, PART + 99, 0] {
        reader.seek(SeekFrom::Start(offset as u64)).unwrap();
        let mut one = [0];
        reader.read_exact(&mut one).unwrap();
        assert_eq!(one[0], bytes[offset]);
    }
    assert_eq!(reader.seek(SeekFrom::End(1)).unwrap(), handle.bytes + 1);
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    assert!(reader.seek(SeekFrom::Current(-(PART as i64) * 2)).is_err());
}

// FS-03
#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let place = Place::new();
    let store = place.open();
    for length in [0, 10, 2 * PART] {
        let name = store.state_file_name(AttemptNumber(1), CheckpointId(1), "count[0]");
        let mut writer = store.create_state_file(name);
        writer.write_all(&noise(length)).unwrap();
        drop(writer);
        assert_eq!(place.files(&store), Vec::<String>::new(), "{length} bytes");
    }
}

#[test]
fn a_writer_can_be_dropped_on_a_task() {
    let place = Place::new();
    let store = place.open();
    let name = store.state_file_name(AttemptNumber(1), CheckpointId(1), "count[0]");
    let mut writer = store.create_state_file(name);
    writer.write_all(&noise(2 * PART)).unwrap();
    assert_eq!(place.files(&store).len(), 1);
    place.run(async move { drop(writer) });
    // The store is unlocked when the task that deletes the rest has let go of it.
    drop(store);
    let store = loop {
        match place.try_open("job") {
            Ok((store, _)) => break store,
            Err(StorageError::Locked { .. }) => std::thread::yield_now(),
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(place.files(&store), Vec::<String>::new());
}

#[test]
fn a_name_is_taken_once() {
    let place = Place::new();
    let store = place.open();
    for length in [0, 3, PART + 1] {
        let first = write(&store, 1, "count[0]", b"abc");
        let mut writer = store.create_state_file(first.name.clone());
        writer.write_all(&noise(length)).unwrap();
        let error = writer.finish().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        message_naming(&error, &store, &first.name);
        store.open_state_file(&first).unwrap().verify().unwrap();
        fs::remove_file(store.folder().join(&first.name)).unwrap();
        assert_eq!(place.files(&store), Vec::<String>::new());
    }
}

#[test]
fn altered_truncated_and_missing_files_are_told_apart() {
    let place = Place::new();
    let store = place.open();
    let bytes = noise(PART + 100);
    let handle = write(&store, 1, "count[0]", &bytes);
    let path = store.folder().join(&handle.name);
    for at in [0, PART - 1, PART, PART + 99] {
        let mut altered = bytes.clone();
        altered[at] ^= 0x80;
        fs::write(&path, altered).unwrap();
        let error = store
            .open_state_file(&handle)
            .unwrap()
            .verify()
            .unwrap_err();
        assert!(
            matches!(error, StorageError::WrongChecksum { .. }),
            "{error}"
        );
        message_naming(&error, &store, &handle.name);
    }

    let reader = store.open_state_file(&handle).unwrap();
    fs::write(&path, &bytes[..PART]).unwrap();
    let error = store.open_state_file(&handle).err().unwrap();
    let message = message_naming(&error, &store, &handle.name);
    assert!(
        message.contains(&format!("has {PART} bytes instead of {}", PART + 100)),
        "{message}"
    );
    // Truncated after it was opened.
    let error = reader.verify().unwrap_err();
    assert!(matches!(error, StorageError::WrongLength { .. }), "{error}");

    fs::remove_file(&path).unwrap();
    let error = store.open_state_file(&handle).err().unwrap();
    assert!(matches!(error, StorageError::Missing { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    message_naming(&error, &store, &handle.name);
}

#[test]
fn many_threads_write_into_one_new_folder() {
    let place = Place::new();
    let store = place.open();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8u8)
            .map(|index| {
                let store = &store;
                scope.spawn(move || write(store, 1, &format!("count[{index}]"), &[index; 100]))
            })
            .collect();
        for (index, writer) in writers.into_iter().enumerate() {
            let handle = writer.join().unwrap();
            let reader = store.open_state_file(&handle).unwrap();
            assert_eq!(reader.read_range(0, 100).unwrap()[..], [index as u8; 100]);
        }
    });
    assert_eq!(place.files(&store).len(), 8);
}
