use super::*;
use crate::topology::parse_synthetic;
use proptest::prelude::*;

const MACHINES: [&str; 4] =
    ["core:8", "pack:2 numa:2 l3:2 core:4 pu:2", "pack:2 core:3 pu:2", "numa:4 core:2"];

fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}

#[test]
fn growth_is_near_and_shrinking_keeps_neighbours() {
    // Eight caches of four cores without hardware threads.
    let machine = parse_synthetic("pack:2 numa:1 l3:4 core:4").unwrap();
    let all = machine.cpus();
    let grow = |held: &str, wanted| {
        let held = set(held);
        resized(&machine, &held, &all.difference(&held), &CpuSet::new(), wanted).unwrap().to_string()
    };
    assert_eq!(grow("4-5", 4), "4-7", "the rest of its cache");
    assert_eq!(grow("4-7", 6), "0-1,4-7", "another cache of its package");
    assert_eq!(grow("16", 2), "16-17");
    let shrink = |held: &str, inside: &str, wanted| {
        resized(&machine, &set(held), &CpuSet::new(), &set(inside), wanted).map(|cpus| cpus.to_string())
    };
    assert_eq!(shrink("0-3,16", "", 4).unwrap(), "0-3", "the far core goes first");
    assert_eq!(shrink("0-3,16", "16", 4).unwrap(), "0-2,16", "a run inside has it");
    assert!(shrink("0-3", "0-2", 2).unwrap_err().to_string().contains("runs inside it (CPUs 0-2)"));
    assert_eq!(shrink("0-3", "", 0), Err(ResizeError::Nothing));
    let refused = resized(&machine, &set("0-3"), &set("5"), &CpuSet::new(), 6).unwrap_err();
    assert_eq!(refused.to_string(), "2 more cores are needed, and 1 are free (CPUs 5)");
}

#[test]
fn a_program_on_one_hardware_thread_of_each_core_stays_so() {
    let machine = parse_synthetic("core:4 pu:2").unwrap();
    let [first, second]: [CpuSet; 2] = [0, 1].map(|at| machine.cpus_of(&machine.cores()[at].pus));
    let one = first.iter().take(1).collect::<CpuSet>();
    let before = Extent { hold: first.clone(), mask: one.clone() };
    let after = before.changed_to(&machine, &first.union(&second));
    assert_eq!(after.mask.len(), 2);
    assert_eq!(cores_of(&machine, &after.mask).len(), 2);
    let all = Extent { hold: first.clone(), mask: first.clone() };
    assert_eq!(all.changed_to(&machine, &first.union(&second)).mask, first.union(&second));
}

#[test]
fn threads_keep_what_fits() {
    let extent = |hold: &str| Extent { hold: set(hold), mask: set(hold) };
    let (four, two, six) = (extent("0-3"), extent("0-1"), extent("0-5"));
    let of = |from: &Extent, to: &Extent, own: &str, crowded| {
        from.mask_of_thread(to, &set(own), crowded).map(|mask| mask.to_string())
    };
    assert_eq!(of(&four, &two, "0-3", false).as_deref(), Some("0-1"));
    assert_eq!(of(&four, &two, "1", false), None, "its CPU is kept");
    assert_eq!(of(&four, &two, "1-2", false).as_deref(), Some("1"));
    assert_eq!(of(&four, &two, "3", false).as_deref(), Some("0-1"), "its CPU is gone");
    assert_eq!(of(&four, &two, "0-7", false), None, "it is not in the hold");
    assert_eq!(of(&four, &six, "0-3", false).as_deref(), Some("0-5"));
    assert_eq!(of(&four, &six, "2", false), None);
    assert_eq!(of(&four, &six, "2", true).as_deref(), Some("0-5"), "threads share it");
}

fn pick(machine: &Machine, bits: u64) -> CpuSet {
    cores_of(machine, &machine.cpus())
        .into_iter()
        .enumerate()
        .filter(|(at, _)| bits >> at & 1 == 1)
        .fold(CpuSet::new(), |sum, (_, (_, part))| sum.union(&part))
}

proptest! {
    #[test]
    fn a_hold_has_the_wanted_size_and_takes_free_cores_only(
        which in 0..MACHINES.len(), held: u64, taken: u64, inside: u64, wanted in 0usize..20,
    ) {
        let machine = parse_synthetic(MACHINES[which]).unwrap();
        let held = pick(&machine, held | 1);
        let free = machine.cpus().difference(&held).difference(&pick(&machine, taken));
        let inside = held.intersection(&pick(&machine, inside));
        let count = |cpus: &CpuSet| cores_of(&machine, cpus).len();
        match resized(&machine, &held, &free, &inside, wanted) {
            Ok(after) => {
                prop_assert_eq!(count(&after), wanted);
                prop_assert!(after.difference(&held).is_subset(&free));
                prop_assert!(inside.is_subset(&after));
                prop_assert!(held.is_subset(&after) || after.is_subset(&held), "it grows or shrinks");
            }
            Err(ResizeError::Nothing) => prop_assert_eq!(wanted, 0),
            Err(ResizeError::TooFew { .. }) => prop_assert!(count(&held) + count(&free) < wanted),
            Err(ResizeError::InUse { .. }) => prop_assert!(count(&inside) > wanted),
        }
    }

    #[test]
    fn no_thread_of_a_hold_leaves_it(
        which in 0..MACHINES.len(), before: u64, after: u64, mask: u64, own: u64, crowded: bool,
    ) {
        let machine = parse_synthetic(MACHINES[which]).unwrap();
        let hold = pick(&machine, before | 1);
        let low = |cpus: &CpuSet, bits: u64| cpus.iter().filter(|cpu| bits >> cpu.0 & 1 == 1).collect::<CpuSet>();
        let own: CpuSet = low(&hold, own | 1);
        let mask = low(&hold, mask).union(&own);
        let old = Extent { hold: hold.clone(), mask };
        let to = pick(&machine, after | 2);
        let new = old.changed_to(&machine, &to);
        prop_assert!(new.mask.is_subset(&to) && !new.mask.is_empty());
        let result = old.mask_of_thread(&new, &own, crowded).unwrap_or_else(|| own.clone());
        prop_assert!(result.is_subset(&to), "{result} of {to}");
        prop_assert!(!result.is_empty());
        prop_assert!(old.mask_of_thread(&new, &set("0-60"), crowded).is_none() || hold == set("0-60"));
    }
}
