//! What engines of virtual machines send: calls, domains, configurations, events, and the cores
//! that a guest gets by them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trimtab_core::topology::parse_synthetic;
use trimtab_hook::config::HookConfig;
use trimtab_hook::engine::HookEngine;
use trimtab_hook::pins::vcpu_pins;
use trimtab_hook::wanted::guest_need;
use trimtab_hook::{domain, incus, proxmox};

fuzz_target!(|text: &str| {
    let words: Vec<String> = text.split(' ').take(5).map(str::to_owned).collect();
    for engine in [HookEngine::Libvirt, HookEngine::Proxmox, HookEngine::Incus] {
        let _ = engine.step(&words);
    }
    let _ = incus::event(text);
    let _ = incus::running(text);
    let _ = incus::process(text);
    let config = text.parse::<HookConfig>().unwrap_or_default();
    let rule = config.rule("web");
    let Ok(machine) = parse_synthetic("numa:2 core:2 pu:2") else { return };
    let cpus = machine.cpus();
    for guest in [domain::shape(text), proxmox::shape(text)].into_iter().flatten() {
        let _ = guest_need(&rule, &guest, &machine);
        let pins = vcpu_pins(&machine, &cpus, &cpus, &guest);
        assert_eq!(pins.vcpus.len(), guest.vcpus as usize);
        assert!(pins.vcpus.iter().all(|mask| mask.is_subset(&cpus)));
    }
});
