//! The affinity journal of a killed balancer: a file that any user may have written.
#![no_main]
use libfuzzer_sys::fuzz_target;
use trimtab_linux::host::affinity_journal::Lines;

fuzz_target!(|bytes: &[u8]| {
    if let Some(lines) = Lines::decode(bytes) {
        assert_eq!(Lines::decode(lines.encode().as_bytes()), Some(lines));
    }
});
