//! The kubelet's record of exclusive CPUs.
#![no_main]
use libfuzzer_sys::fuzz_target;
use trimtab_core::place::kubelet_record;

fuzz_target!(|text: &[u8]| {
    if let Ok(containers) = kubelet_record(text) {
        for container in containers {
            assert_eq!(container.cpus.to_string().parse(), Ok(container.cpus));
        }
    }
});
