//! Events resolved by sysfs files with arbitrary contents: positions of fields, and meanings of
//! names.
#![no_main]
use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;
use std::sync::LazyLock;
use trimtab_linux::perf::Spec;

static SYS: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("trimtab-fuzz-events-{}", std::process::id()));
    for part in ["format", "events"] {
        std::fs::create_dir_all(folder.join("bus/event_source/devices/cpu").join(part)).expect("a folder");
    }
    folder
});

fuzz_target!(|files: (&[u8], &[u8], &[u8], &str)| {
    let (kind, format, event, spec) = files;
    let cpu = SYS.join("bus/event_source/devices/cpu");
    for (name, text) in [("type", kind), ("format/a", format), ("events/b", event)] {
        std::fs::write(cpu.join(name), text).expect("it can be written");
    }
    for spec in ["cpu/a=0x123456789/", "cpu/b,a/", spec] {
        let Ok(spec) = spec.parse::<Spec>() else { continue };
        if let Ok(found) = spec.resolve(&SYS) {
            assert_eq!(spec.resolve(&SYS), Ok(found));
        }
    }
});
