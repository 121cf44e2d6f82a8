use trimtab_sim::swarm::*;
fn main() {
    let a: Vec<u64> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    let (seed, from, to, small, do_shrink) = (a[0], a[1], a[2], a[3] == 0, a[4]);
    let size = if small { Size::Small } else { Size::Any };
    let mut count = std::collections::BTreeMap::new();
    let mut events = 0;
    for n in from..to {
        let draft = draw(seed, n, size);
        let run = run(&draft);
        events += run.events;
        if let Some(v) = run.violations.first() {
            let c = count.entry(v.law).or_insert(0u64);
            *c += 1;
            println!(
                "{n}: {:?} {} {} of {}: {v}",
                draft.policy.as_ref().map(|p| p.0),
                draft.kernel,
                draft.ground.text(),
                run.violations.len()
            );
            if *c <= do_shrink {
                let s = shrink(&draft, v.law);
                println!("  shrunk after {}: {:#?}\n {:#?}", s.tried, s.draft, s.violations);
            }
        }
    }
    println!("{events} events, {count:?}");
}
