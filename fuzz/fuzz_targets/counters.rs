//! Event names, counter choices, the table of events, and the kernel's words for processors.
#![no_main]
use libfuzzer_sys::fuzz_target;
use trimtab_linux::perf::{Choice, Cpu, Spec, Table};

fuzz_target!(|text: &str| {
    if let Ok(choice) = text.parse::<Choice>() {
        assert_eq!(choice.to_string().parse(), Ok(choice));
    }
    if let Ok(spec) = text.parse::<Spec>() {
        let _ = spec.resolve(std::path::Path::new("/sys"));
    }
    let (table, cpu) = (Table::parse(text), Cpu::parse(text.as_bytes()));
    let _ = (table, cpu, Cpu::parse_midr(text.as_bytes()));
});
