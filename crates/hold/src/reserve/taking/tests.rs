//! Tests of reservations: the position in the ledger, and a service that enforces holds.

use super::*;
use crate::reserve::{ReserveError, reserve};
use crate::site_facts::location;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use trimtab_agent::paths::LEDGER;
use trimtab_core::place::Strategy;
use trimtab_core::queue::QueueRules;
use trimtab_core::topology::parse_synthetic;
use trimtab_launch::{Options, Sources};
use trimtab_linux::partitions::LOCK;

/// Makes a root in which a process has the lock of the service that enforces holds.
fn enforced() -> (tempfile::TempDir, World) {
    let root = tempfile::tempdir().unwrap();
    let lock = root.path().join(LOCK.trim_start_matches('/'));
    for file in [&lock, &root.path().join("proc/locks")] {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }
    let number = fs::metadata(&lock).unwrap().ino();
    let locks = format!("1: FLOCK  ADVISORY  WRITE 7 00:1a:{number} 0 EOF\n");
    fs::write(root.path().join("proc/locks"), locks).unwrap();
    let mut world = World::default();
    world.root = root.path().to_owned();
    (root, world)
}

/// Returns how a launch reserves that waits for no others.
fn order() -> ReserveOptions<'static> {
    ReserveOptions {
        wait: None,
        label: "x",
        tell: &|_| {},
        goes_on: &|| true,
        priority: 0,
        rules: QueueRules::default(),
        holder: None,
        grants: false,
    }
}

/// A launch of this process that asks for one core, with a ledger of its own.
struct OneCoreLaunch {
    _folder: tempfile::TempDir,
    world: World,
    /// CPUs of this process.
    mask: CpuSet,
    request: LaunchRequest,
    facts: LaunchFacts,
    ledger: Ledger,
    /// This process as a holder.
    own: Holder,
}

impl OneCoreLaunch {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut world = World::default().with_variable(LEDGER, &folder.path().to_string_lossy());
        world.root = Path::new("/").to_owned();
        let mask = affinity::get(None).unwrap();
        let (_, last) = mask.ranges().last().copied().unwrap();
        let options = Options { cores: Some("1".parse().unwrap()), ..Options::default() };
        let request = LaunchRequest::merge(Sources { options, ..Sources::default() }).unwrap();
        let mut facts = LaunchFacts::idle(parse_synthetic(&format!("core:{}", last.0 + 1)).unwrap());
        facts.bounds.allowed = mask.clone();
        facts.pid = std::process::id();
        let ledger = Ledger::open(&location(&world).unwrap()).unwrap();
        let table = ProcessTable::at(Path::new("/proc"));
        let own = table.this_process(0, Duration::from_secs(1), "kept").unwrap();
        Self { _folder: folder, world, mask, request, facts, ledger, own }
    }
}

#[test]
fn a_process_for_which_a_keeper_holds_all_cpus_takes_some_of_these_and_others_take_none() {
    let OneCoreLaunch { _folder, world, mask, request, facts, ledger, own } = OneCoreLaunch::new();
    let reserve = || reserve(&world, &request, &mut facts.clone(), &order(), &mut None);
    for delegated in [true, false] {
        let keeper = Holder { delegated, ..own.clone() };
        let _held = ledger.take(Level::MACHINE, &mask, Mode::Exclusive, &keeper).unwrap();
        match (reserve(), delegated) {
            (Ok(Some(taken)), true) => assert_eq!(Some(taken.level()), Level::MACHINE.inner()),
            (Err(ReserveError::NoCores(_)), false) => {}
            (other, _) => panic!("{delegated}: {other:?}"),
        }
    }
    assert_eq!(reserve().unwrap().unwrap().level(), Level::MACHINE, "no CPU is held any more");
}

#[test]
fn a_position_that_is_assumed_is_found_by_the_second_attempt_where_all_cpus_are_held() {
    let OneCoreLaunch { _folder, world, mask, request, mut facts, ledger, own } = OneCoreLaunch::new();
    // The limits as they were read before a keeper set the mask of this process.
    facts.bounds.allowed = facts.machine.cpus();
    for delegated in [true, false] {
        let keeper = Holder { delegated, ..own.clone() };
        let _held = ledger.take(Level::MACHINE, &mask, Mode::Exclusive, &keeper).unwrap();
        let (order, mut facts) = (order(), facts.clone());
        let mut taking = Taking::new(&world, &request, &facts, &order);
        let stand = taking.position(&ledger, &facts.machine);
        assert_eq!(stand, LedgerPosition::outside(&facts.machine));
        let first = taking.attempt(&mut facts, &ledger, &stand, None).unwrap();
        assert!(matches!(first, Attempt::Again), "{delegated}");
        let other = Ledger::open(&location(&world).unwrap()).unwrap();
        let _right = other.last_planner(Level::MACHINE, Duration::ZERO).unwrap();
        let stand = taking.position(&ledger, &facts.machine);
        let level = if delegated { Level::MACHINE.inner().unwrap() } else { Level::MACHINE };
        assert_eq!(stand.level, level, "the first attempt has the right to plan no more");
    }
}

#[test]
fn a_lack_of_cpus_is_believed_after_a_second_beside_a_service_that_enforces() {
    let (root, world) = enforced();
    let request = LaunchRequest::merge(Sources::default()).unwrap();
    let machine = parse_synthetic("core:4096").unwrap();
    let mut facts = LaunchFacts::idle(machine.clone());
    let order = order();
    let known = facts.clone();
    let taking = |allowed: CpuSet, settling| Taking {
        settling,
        allowed,
        ..Taking::new(&world, &request, &known, &order)
    };
    let few = || "0-1".parse::<CpuSet>().unwrap();
    let lack = PlaceError::MoreThanExist { asked: 3, exist: 2 };
    let of_ranks = PlaceError::RanksWithoutCores { ranks: 3, cause: Box::new(lack.clone()) };
    let mut now = taking(few(), None);
    assert!(now.settles(&lack, &mut facts));
    assert!(now.settling.is_some(), "the time of the first is kept");
    assert!(taking(few(), None).settles(&of_ranks, &mut facts));
    assert!(!taking(machine.cpus(), None).settles(&lack, &mut facts), "no CPU is missing");
    let before = Instant::now().checked_sub(SETTLING_MAX);
    assert!(before.is_some() && !taking(few(), before).settles(&lack, &mut facts), "for a second");
    let held = few();
    let strategy = Strategy::Compact;
    for other in [PlaceError::NoCpus, PlaceError::NotEnough { asked: 3, free: 0, held, strategy }] {
        assert!(!taking(few(), None).settles(&other, &mut facts), "{other}");
    }
    fs::write(root.path().join("proc/locks"), "").unwrap();
    assert!(!taking(few(), None).settles(&lack, &mut facts), "no service enforces holds");
}
