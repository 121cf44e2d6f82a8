//! Laws of the decision, on drawn machines, holds and histories. The oracle is a model of the
//! kernel's groups that knows nothing of the decision.

use super::*;
use crate::ids::OsCpu;
use crate::topology::parse_synthetic;
use proptest::prelude::*;

/// The kernel's groups, and the processes in them.
#[derive(Clone, Debug, Default)]
struct Kernel {
    groups: BTreeMap<HoldGroup, SeenGroup>,
    /// The group of a hold in which each process is, if it is in one.
    inside: BTreeMap<u32, HoldGroup>,
}

impl Kernel {
    fn apply(&mut self, change: &GroupChange) {
        match change {
            GroupChange::GiveBack { group, .. } => {
                assert!(self.groups.remove(group).is_some(), "{change:?}");
                self.inside.retain(|_, inside| inside != group);
            }
            GroupChange::Unseal { group } => self.groups.get_mut(group).unwrap().seal = Seal::Open,
            GroupChange::Void { .. } => {}
            GroupChange::Establish { group, cpus, mems } => {
                let before = self.groups.get(group).map(|seen| seen.seal.clone());
                assert!(before.is_none_or(|seal| seal == Seal::Open), "changed while sealed");
                let group = group.clone();
                let (cpus, mems) = (cpus.clone(), mems.clone());
                let seen = SeenGroup { group: group.clone(), usable: true, cpus, mems, seal: Seal::Open };
                self.groups.insert(group, seen);
            }
            GroupChange::Enter { group, pids } => {
                assert!(self.groups.contains_key(group) && !pids.is_empty());
                self.inside.extend(pids.keys().map(|pid| (*pid, group.clone())));
            }
            GroupChange::Seal { group, cpus, kind } => {
                let seen = self.groups.get_mut(group).unwrap();
                assert_eq!(seen.cpus, *cpus);
                seen.seal = Seal::Closed(*kind);
            }
        }
    }

    fn sealed(&self) -> impl Iterator<Item = &SeenGroup> {
        self.groups.values().filter(|seen| matches!(seen.seal, Seal::Closed(_)))
    }

    fn seen(&self) -> Vec<SeenGroup> {
        self.groups.values().cloned().collect()
    }

    /// Returns holds with the place of each process as it is now.
    fn placed(&self, holds: &[SeenHold]) -> Vec<SeenHold> {
        let mut holds = holds.to_vec();
        for member in holds.iter_mut().flat_map(|hold| &mut hold.members) {
            let group = self.inside.get(&member.pid).filter(|group| group.home == member.home);
            member.inside = group.map(|group| group.hold);
        }
        holds
    }
}

const MACHINES: [&str; 3] = ["core:6", "numa:2 core:3 pu:2", "numa:3 core:1"];
const HOMES: [&str; 3] = ["/", "/user.slice/a.scope", "/b"];

/// A hold: number, user, age, CPUs as bits, sharing, homes of its processes.
type Draft = (u64, u32, u64, u16, bool, Vec<u8>);

fn draft() -> impl Strategy<Value = Draft> {
    let homes = prop::collection::vec(prop_oneof![6 => Just(1u8), 1 => Just(0), 1 => Just(2)], 0..4);
    (
        1u64..6,
        prop_oneof![Just(0u32), Just(7), Just(8)],
        0u64..4,
        1u16..4096,
        prop::bool::weighted(0.1),
        homes,
    )
}

fn holds(drafts: &[Draft]) -> Vec<SeenHold> {
    let mut pid = 100;
    let mut hold = |(id, uid, began, bits, shared, homes): &Draft| {
        let cpus = (0..12u32).filter(|cpu| bits >> cpu & 1 == 1).map(OsCpu).collect();
        let members = homes
            .iter()
            .map(|&home| {
                pid += 1;
                HoldMember { pid, start: 7, home: HOMES[usize::from(home)].to_owned(), inside: None }
            })
            .collect();
        SeenHold { id: *id, uid: *uid, began: *began, cpus, shared: *shared, members }
    };
    let all: Vec<SeenHold> = drafts.iter().map(&mut hold).collect();
    // Descriptions with the same number and the same CPUs are read as one hold.
    let mut read = BTreeSet::new();
    all.into_iter().filter(|hold| read.insert((hold.id, hold.cpus.to_string()))).collect()
}

fn limits() -> impl Strategy<Value = HoldLimits> {
    let maybe = || prop::option::of(1u32..5);
    (maybe(), maybe(), prop::option::of(0u32..6), any::<bool>(), any::<bool>()).prop_map(
        |(hold_cores, user_cores, reserved, memory, isolated)| HoldLimits {
            hold_cores,
            user_cores,
            reserved: reserved.map(OsCpu).into_iter().collect(),
            memory,
            kind: if isolated { PartitionKind::Isolated } else { PartitionKind::Root },
        },
    )
}

/// Counts cores by the description of the machine alone.
fn naive_cores(machine: &str, cpus: &CpuSet) -> usize {
    let threads = if machine.contains("pu:2") { 2 } else { 1 };
    cpus.iter().map(|cpu| cpu.0 / threads).collect::<BTreeSet<_>>().len()
}

fn assert_apart(machine: &Machine, kernel: &Kernel) -> Result<(), TestCaseError> {
    let mut all = CpuSet::new();
    for seen in kernel.sealed() {
        prop_assert!(!all.intersects(&seen.cpus), "two partitions share CPUs: {:?}", kernel);
        all = all.union(&seen.cpus);
    }
    prop_assert!(!machine.cpus().is_subset(&all), "no CPU is left: {:?}", kernel);
    Ok(())
}

proptest! {
    /// A history of states, each decided and carried out.
    #[test]
    fn the_laws_hold_in_every_history(
        which in 0usize..MACHINES.len(),
        limits in limits(),
        history in prop::collection::vec(prop::collection::vec(draft(), 0..5), 1..4),
    ) {
        let machine = parse_synthetic(MACHINES[which]).unwrap();
        let mut kernel = Kernel::default();
        for drafts in &history {
            let holds = holds(drafts);
            // Other processes than in the state before, except for those that are left inside.
            kernel.inside.clear();
            let turn = decide(&machine, &limits, &kernel.placed(&holds), &kernel.seen());
            for change in &turn.changes {
                kernel.apply(change);
                assert_apart(&machine, &kernel)?;
            }
            // Each granted hold is sealed with its CPUs, and nothing else is.
            let granted: BTreeMap<&HoldGroup, &CpuSet> = turn.verdicts.iter()
                .filter_map(|verdict| match &verdict.outcome {
                    HoldOutcome::Granted(group) => Some((group, &verdict.cpus)),
                    _ => None,
                })
                .collect();
            let sealed: BTreeMap<&HoldGroup, &CpuSet> =
                kernel.sealed().map(|seen| (&seen.group, &seen.cpus)).collect();
            prop_assert_eq!(&granted, &sealed);
            prop_assert_eq!(kernel.groups.len(), sealed.len());
            // A second decision changes nothing but refused holds that did not go.
            let again = decide(&machine, &limits, &kernel.placed(&holds), &kernel.seen());
            let only_voids = again.changes.iter().all(|change| matches!(change, GroupChange::Void { .. }));
            prop_assert!(only_voids, "{:?}", again.changes);
            prop_assert_eq!(&again.verdicts, &turn.verdicts);
        }
    }

    #[test]
    fn no_enforced_hold_breaks_a_limit(
        which in 0usize..MACHINES.len(),
        limits in limits(),
        drafts in prop::collection::vec(draft(), 0..6),
    ) {
        let machine = parse_synthetic(MACHINES[which]).unwrap();
        let turn = decide(&machine, &limits, &holds(&drafts), &[]);
        let mut of_users: BTreeMap<u32, CpuSet> = BTreeMap::new();
        let mut numbers = BTreeSet::new();
        prop_assert_eq!(turn.verdicts.len(), holds(&drafts).len(), "a hold has no verdict");
        for verdict in &turn.verdicts {
            let refused = matches!(verdict.outcome, HoldOutcome::Refused(_));
            prop_assert!(!refused || verdict.uid != 0, "root is refused: {:?}", verdict);
            let void = turn.changes.iter().any(|change| {
                matches!(change, GroupChange::Void { hold, cpus, .. }
                    if *hold == verdict.hold && *cpus == verdict.cpus)
            });
            prop_assert_eq!(refused, void);
            if refused || verdict.uid == 0 {
                continue;
            }
            let cores = naive_cores(MACHINES[which], &verdict.cpus);
            let of_user = of_users.entry(verdict.uid).or_default();
            *of_user = of_user.union(&verdict.cpus);
            // Also by several descriptions with one number, a user has no more than the limits.
            let is_shared = verdict.outcome == HoldOutcome::Left(Unenforced::Shared);
            prop_assert!(is_shared || numbers.insert((verdict.uid, verdict.hold)), "{:?}", turn.verdicts);
            prop_assert!(limits.hold_cores.is_none_or(|most| cores <= most as usize));
            prop_assert!(!verdict.cpus.intersects(&limits.reserved));
        }
        for cpus in of_users.values() {
            let cores = naive_cores(MACHINES[which], cpus);
            prop_assert!(limits.user_cores.is_none_or(|most| cores <= most as usize));
        }
    }

    #[test]
    fn a_path_is_a_group_or_none(path in "(/[a-z.]{0,4}){0,2}/trimtab\\.[+0-9a-f]{0,4}|.{0,20}") {
        if let Some(group) = HoldGroup::of_path(&path) {
            prop_assert_eq!(group.path(), path);
        }
    }
}

fn one_hold(uid: u32, began: u64, id: u64, cpus: &str) -> SeenHold {
    let pid = 100 + u32::try_from(id).unwrap();
    let member = HoldMember { pid, start: began, home: "/a".to_owned(), inside: None };
    SeenHold { id, uid, began, cpus: cpus.parse().unwrap(), shared: false, members: vec![member] }
}

fn words(holds: &[SeenHold], limits: &HoldLimits) -> Vec<String> {
    let machine = parse_synthetic("core:4 pu:2").unwrap();
    decide(&machine, limits, holds, &[]).verdicts.iter().map(|one| one.outcome.to_string()).collect()
}

#[test]
fn the_older_hold_of_a_user_stays_and_the_younger_is_refused() {
    let limits = HoldLimits { user_cores: Some(2), ..HoldLimits::default() };
    let holds = [one_hold(7, 20, 1, "4-5"), one_hold(7, 10, 2, "0-3"), one_hold(8, 30, 3, "6")];
    assert_eq!(
        words(&holds, &limits),
        [
            "enforced by /a/trimtab.2",
            "refused: with it its user would have 3 cores, and a user may have 2 (max-cores-per-user)",
            "enforced by /a/trimtab.3",
        ]
    );
}

#[test]
fn a_hold_of_all_cpus_and_a_pretended_one_stay_agreements() {
    let limits = HoldLimits::default();
    assert_eq!(
        words(&[one_hold(7, 1, 1, "0-7")], &limits),
        ["only agreed: no CPU would be left for all other tasks"]
    );
    let twice = [one_hold(7, 5, 1, "0-1"), one_hold(8, 9, 1, "2-3"), one_hold(8, 9, 4, "1-3")];
    assert_eq!(
        words(&twice, &limits),
        [
            "enforced by /a/trimtab.1",
            "only agreed: an older hold has its number",
            "only agreed: an older hold has CPUs 1"
        ]
    );
}

#[test]
fn several_descriptions_with_one_number_do_not_escape_the_limits() {
    let limits = HoldLimits { user_cores: Some(2), ..HoldLimits::default() };
    let twice = [one_hold(7, 5, 1, "0-1"), one_hold(7, 6, 1, "2-7")];
    assert_eq!(
        words(&twice, &limits),
        ["enforced by /a/trimtab.1", "refused: it has the number of an older hold of its user"]
    );
    // Another user's hold of this number counts for that user, and root's are not limited.
    let others = [one_hold(7, 5, 1, "0-1"), one_hold(8, 6, 1, "2-7"), one_hold(0, 7, 1, "6-7")];
    assert_eq!(
        words(&others, &limits),
        [
            "enforced by /a/trimtab.1",
            "refused: with it its user would have 3 cores, and a user may have 2 (max-cores-per-user)",
            "only agreed: an older hold has its number"
        ]
    );
}

#[test]
fn shared_holds_of_one_number_are_bound_by_the_limits_alone() {
    let limits = HoldLimits { user_cores: Some(2), ..HoldLimits::default() };
    let shared = |began, cpus| SeenHold { shared: true, ..one_hold(7, began, 1, cpus) };
    let agreed = "only agreed: its CPUs are shared (ranks of a job, or --share)";
    // Two ranks of a job of which one is being resized.
    assert_eq!(words(&[shared(1, "0-3"), shared(2, "0-1")], &limits), [agreed, agreed]);
    let beyond = "refused: with it its user would have 3 cores, and a user may have 2 (max-cores-per-user)";
    assert_eq!(words(&[shared(1, "0-3"), shared(2, "4-5")], &limits), [agreed, beyond]);
}

#[test]
fn a_core_of_two_shared_holds_counts_once_for_its_user() {
    let limits = HoldLimits { user_cores: Some(2), ..HoldLimits::default() };
    let shared = |began, id, cpus| SeenHold { shared: true, ..one_hold(7, began, id, cpus) };
    let agreed = "only agreed: its CPUs are shared (ranks of a job, or --share)";
    let holds = [shared(1, 1, "0-3"), shared(2, 2, "0-3"), shared(3, 3, "2"), shared(4, 4, "3-4")];
    assert_eq!(
        words(&holds, &limits),
        [
            agreed,
            agreed,
            agreed,
            "refused: with it its user would have 3 cores, and a user may have 2 (max-cores-per-user)"
        ]
    );
}

#[test]
fn paths_of_other_groups_are_not_taken_for_ours() {
    for path in [
        "",
        "/",
        "trimtab.1",
        "/a/trimtab.",
        "/a/trimtab.0",
        "/a/trimtab.01",
        "/a/trimtab.+1",
        "/a/trimtab.1/b",
        "/a/xtrimtab.1",
        "/a/trimtab.G",
    ] {
        assert_eq!(HoldGroup::of_path(path), None, "{path}");
    }
    let root = HoldGroup { home: "/".to_owned(), hold: 0x1f };
    assert_eq!(
        (root.path().as_str(), HoldGroup::of_path("/trimtab.1f")),
        ("/trimtab.1f", Some(root.clone()))
    );
}
