//! CPU lists, names of CPUs and of devices, and amounts of memory: every accepted text is read back
//! from its own text, and logical names stay inside the machine.
#![no_main]
use libfuzzer_sys::fuzz_target;
use trimtab_core::place::MemorySize;
use trimtab_core::set::CpuSet;
use trimtab_core::topology::{CpuNames, DeviceName, parse_synthetic};

fuzz_target!(|text: &str| {
    if let Ok(set) = text.parse::<CpuSet>() {
        assert_eq!(set.to_string().parse::<CpuSet>(), Ok(set));
    }
    if let Ok(names) = text.parse::<CpuNames>() {
        assert_eq!(names.to_string().parse::<CpuNames>().as_ref(), Ok(&names));
        let Ok(machine) = parse_synthetic("pack:2 numa:2 l3:2 l2:2 core:2 pu:2(far)") else { return };
        let logical = text.split('@').all(|term| term.starts_with(|first: char| first.is_alphabetic()));
        if let (Ok(cpus), true) = (names.on(&machine), logical) {
            assert!(cpus.is_subset(&machine.cpus()) && !cpus.is_empty());
        }
    }
    if let Ok(name) = text.parse::<DeviceName>() {
        assert_eq!(name.to_string().parse::<DeviceName>(), Ok(name));
    }
    if let Ok(size) = text.parse::<MemorySize>() {
        assert!(size.0 > 0);
    }
});
