//! Site and rules files.
#![no_main]
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use trimtab_cli::site::{Rules, parse_site};

fuzz_target!(|text: &str| {
    let _ = parse_site(text, Path::new("site.toml"));
    if let Ok(rules) = Rules::parse(text, Path::new("rules.toml")) {
        let _ = rules.of(Path::new("/opt/npb/cg.C.x"));
    }
});
