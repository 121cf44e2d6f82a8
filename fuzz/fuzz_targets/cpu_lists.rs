//! CPU lists: every accepted list is read back from its own text.
#![no_main]
use libfuzzer_sys::fuzz_target;
use trimtab_core::set::CpuSet;

fuzz_target!(|text: &str| {
    if let Ok(set) = text.parse::<CpuSet>() {
        assert_eq!(set.to_string().parse::<CpuSet>(), Ok(set));
    }
});
