//! Core expressions, strategies and memory words: every accepted request can be planned or is
//! refused on a small machine, and a plan passes the checker.
#![no_main]
use libfuzzer_sys::fuzz_target;
use trimtab_core::check::check;
use trimtab_core::place::{Request, Taken, plan};
use trimtab_core::topology::parse_synthetic;

fuzz_target!(|text: &str| {
    let mut words = text.splitn(4, '\n');
    let mut next = || words.next().unwrap_or("");
    let mut request = Request::default();
    if let Ok(amount) = next().parse() {
        request.amount = amount;
    }
    if let Ok(strategy) = next().parse() {
        request.strategy = strategy;
    }
    if let Ok(memory) = next().parse() {
        request.memory = memory;
    }
    request.or_fewer = next().len() % 2 == 1;
    let Ok(machine) = parse_synthetic("pack:2 numa:2 l3:2 l2:2 core:2 pu:2(far)") else { return };
    let taken = Taken { held: "3,9-12".parse().unwrap_or_default(), ..Taken::nothing(machine.cpus()) };
    if let Ok(made) = plan(&machine, &request, &taken) {
        assert_eq!(check(&machine, &request, &taken, &made), []);
    }
});
