//! The handoff to the shim.
#![no_main]
use libfuzzer_sys::fuzz_target;
use trimtab_core::handoff::Handoff;

fuzz_target!(|text: &str| {
    if let Ok(plan) = text.parse::<Handoff>() {
        assert_eq!(plan.to_string().parse::<Handoff>(), Ok(plan));
    }
});
