//! Ledger records and the cached machine: bytes that any user may have written.
#![no_main]
use libfuzzer_sys::fuzz_target;
use trimtab_linux::ledger::Record;
use trimtab_linux::machine::{Key, decode};

fuzz_target!(|bytes: &[u8]| {
    if let Some(record) = Record::decode(bytes) {
        assert_eq!(Record::decode(&record.encode()), Some(record));
    }
    let _ = decode(bytes, &Key::file());
});
