//! Synthetic descriptions: every accepted description is a machine that can be drawn.
#![no_main]
use libfuzzer_sys::fuzz_target;
use trimtab_core::place::Taken;
use trimtab_core::topology::{Marks, draw, parse_synthetic};

fuzz_target!(|text: &str| {
    if let Ok(machine) = parse_synthetic(text) {
        if machine.pu_count() <= 1024 && machine.nodes().len() <= 64 {
            let marks = Marks::around(&machine, &Taken::nothing(machine.cpus()));
            assert!(draw::grid(&machine, &marks, 80).lines().all(|line| line.chars().count() <= 80));
        }
    }
});
