//! Machine files of the simulator: every accepted file makes a memory that runs a thread.
#![no_main]
use libfuzzer_sys::fuzz_target;
use trimtab_core::ids::Pu;
use trimtab_core::time::Moment;
use trimtab_sim::memory::Memory;
use trimtab_sim::model::file::read;
use trimtab_sim::program::Footprint;

fuzz_target!(|text: &str| {
    let Ok(model) = read("fuzzed.toml", text) else { return };
    let mut memory = Memory::new(&model);
    memory.add(0, 0, &Footprint { working_set: 1 << 24, misses: 50.0, ..Footprint::default() });
    memory.on_cpu(Moment(0), 0, Pu(0));
    let mut changed = Vec::new();
    for ms in 1..4 {
        memory.epoch(Moment(ms * 1_000_000), &mut changed);
        let rate = memory.rate(0);
        assert!(rate > 0.0 && rate <= 1.0, "{rate}");
    }
});
