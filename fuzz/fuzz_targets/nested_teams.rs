//! The handoff of nested teams to the shim, and the maps derived from it.
#![no_main]
use libfuzzer_sys::fuzz_target;
use trimtab_core::handoff::NestHandoff;
use trimtab_core::place::nesting::Nest;

fuzz_target!(|text: &str| {
    if let Ok(nest) = text.parse::<Nest>() {
        assert_eq!(nest.to_string().parse::<Nest>(), Ok(nest));
    }
    let Ok(handoff) = text.parse::<NestHandoff>() else { return };
    let again: NestHandoff = handoff.to_string().parse().expect("what is written is read");
    assert_eq!(again.to_string(), handoff.to_string());
    if let Some(nest) = &handoff.nest {
        let teams = handoff.teams(nest);
        // Other tests cover the time of larger ones.
        if teams.resolved().threads() <= 1 << 10 {
            let map = teams.declared().expect("few threads have a map");
            assert!(map.cpus().is_subset(&handoff.tree.mask()));
            teams.advice();
        }
    }
});
