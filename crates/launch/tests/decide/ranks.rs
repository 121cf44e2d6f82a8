//! Ranks: a core for each, and devices that are dealt to them.

use crate::util::*;
use proptest::prelude::*;
use trimtab_core::ids::OsCpu;
use trimtab_core::place::{Action, DealtDevice, NearDevice};
use trimtab_launch::*;

#[test]
fn a_rank_that_was_bound_stays_where_it_is() {
    let mut facts = facts("core:4");
    facts.bounds.allowed = "2".parse().unwrap();
    facts.parent.mask = Some("0-3".parse().unwrap());
    let ranks = [("LOCAL_RANK", "2"), ("LOCAL_WORLD_SIZE", "4")];
    let options = Options { cores: Some("4".parse().unwrap()), ..Options::default() };
    let request = LaunchRequest::merge(Sources { options, ..sources(&ranks) }).unwrap();
    let plan = decide(&request, &facts).unwrap();
    assert_eq!((plan.placement.mask.to_string(), plan.rank.unwrap().shares), ("2".to_owned(), false));
}

fn of_ranks(ranks: u32, facts: &LaunchFacts, options: Options) -> Result<LaunchPlan, Refusal> {
    let options = Options { ranks: Some(ranks), ..options };
    decide(&LaunchRequest::merge(Sources { options, ..sources(&[]) }).unwrap(), facts)
}

#[test]
fn ranks_that_share_cores_get_a_warning() {
    let facts = facts("core:2");
    let refusal = of_ranks(3, &facts, Options::default()).unwrap_err().to_string();
    assert!(refusal.contains("--ranks 3") && refusal.contains("--or-fewer"), "{refusal}");
    let fewer = of_ranks(3, &facts, Options { or_fewer: true, ..Options::default() }).unwrap();
    assert!(said(&fewer).contains("3 ranks share 2 cores"));
    let counted = Options { cores: Some("1".parse().unwrap()), ..Options::default() };
    assert!(said(&of_ranks(2, &facts, counted).unwrap()).contains("2 ranks share 1 core "));
    assert!(!said(&of_ranks(2, &facts, Options::default()).unwrap()).contains("ranks share"));
}

proptest! {
    /// Each rank has a core that no other rank has, or the launch is refused; it is refused only
    /// if fewer cores are free of holds than there are ranks, whatever the load is.
    #[test]
    fn ranks_without_a_count_get_a_core_each_or_an_error(
        ranks in 2u32..7,
        held in 0u8..64,
        busy in proptest::collection::vec(0u16..1001, 6),
    ) {
        let mut facts = facts("core:6");
        facts.ledger.held = (0u32..6).filter(|at| held & (1 << at) != 0).map(OsCpu).collect();
        facts.load.busy = (0u32..6).map(OsCpu).zip(busy).collect();
        let free = 6 - held.count_ones();
        match of_ranks(ranks, &facts, Options::default()) {
            Ok(plan) => {
                prop_assert!(free >= ranks);
                prop_assert_eq!(plan.ranks.len(), ranks as usize);
                for (at, part) in plan.ranks.iter().enumerate() {
                    prop_assert!(!part.mask.is_empty() && !part.mask.intersects(&facts.ledger.held));
                    for other in &plan.ranks[..at] {
                        prop_assert!(!part.mask.intersects(&other.mask));
                    }
                }
            }
            Err(refusal) => {
                prop_assert!(free < ranks, "{}", refusal);
                prop_assert!(refusal.passes());
            }
        }
    }
}

/// Four nodes with an accelerator each, whose numbers do not follow those of the nodes.
fn with_devices(vendor: u16) -> (LaunchFacts, NearDevice) {
    let facts = facts("numa:4(memory=64GB) core:4");
    let device = |(index, cpus): (u32, &str)| DealtDevice {
        name: format!("gpu:{index}"),
        cpus: cpus.parse().unwrap(),
        vendor: Some(vendor),
        index,
    };
    let each = (0..).zip(["12-15", "4-7", "8-11", "0-3"]).map(device).collect();
    (facts, NearDevice { name: "gpu:each".to_owned(), cpus: "0-15".parse().unwrap(), each })
}

/// Returns the plan of a rank of another launcher.
fn rank_of_mpi(facts: &LaunchFacts, options: Options, rank: u32, variables: &[(&str, &str)]) -> LaunchPlan {
    let number = rank.to_string();
    let announced = [("LOCAL_RANK", number.as_str()), ("LOCAL_WORLD_SIZE", "4")];
    let all = [&announced, variables].concat();
    let request = LaunchRequest::merge(Sources { options, ..sources(&all) }).unwrap();
    decide(&request, facts).unwrap()
}

#[test]
fn each_rank_runs_near_its_own_device() {
    let (facts, near) = with_devices(0x10de);
    let near = Some(near);
    for (cores, masks) in
        [(None, ["12-15", "4-7", "8-11", "0-3"]), (Some("8"), ["12-13", "4-5", "8-9", "0-1"])]
    {
        let cores = cores.map(|cores: &str| cores.parse().unwrap());
        let options = Options { near: near.clone(), cores, ..Options::default() };
        let parts = of_ranks(4, &facts, options.clone()).unwrap().ranks;
        assert_eq!(parts.iter().map(|part| part.mask.to_string()).collect::<Vec<_>>(), masks);
        let plan = rank_of_mpi(&facts, options, 2, &[]);
        assert_eq!(plan.placement.mask.to_string(), masks[2]);
        assert_eq!(value(&plan, "CUDA_VISIBLE_DEVICES"), None, "not asked for");
    }
    // A rank that its launcher bound, and a single process.
    let mut bound = facts.clone();
    bound.bounds.allowed = "6-9".parse().unwrap();
    bound.parent.mask = Some("0-15".parse().unwrap());
    let options = Options { near: near.clone(), cores: Some("1".parse().unwrap()), ..Options::default() };
    let plan = rank_of_mpi(&bound, options.clone(), 2, &[]);
    assert!(plan.placement.mask.is_subset(&bound.bounds.allowed), "{}", plan.placement.mask);
    let request = LaunchRequest::merge(Sources { options, ..sources(&[]) }).unwrap();
    assert_eq!(decide(&request, &facts).unwrap().placement.slots.len(), 1);
}

#[test]
fn a_rank_sees_its_own_device_where_that_is_asked_for() {
    for (vendor, name, order) in [
        (0x10de, "CUDA_VISIBLE_DEVICES", Some(("CUDA_DEVICE_ORDER", "PCI_BUS_ID"))),
        (0x1002, "ROCR_VISIBLE_DEVICES", None),
        (0x8086, "ZE_AFFINITY_MASK", Some(("ZE_ENABLE_PCI_ID_DEVICE_ORDER", "1"))),
    ] {
        let (facts, near) = with_devices(vendor);
        let options = Options { near: Some(near), visible_devices: true, ..Options::default() };
        let plan = rank_of_mpi(&facts, options.clone(), 2, &[]);
        assert_eq!(value(&plan, name), set_to("2"), "{name}");
        assert_eq!(order.and_then(|(name, _)| value(&plan, name)), order.and_then(|(_, to)| set_to(to)));
        // A variable of the user stays, with a word.
        let kept = rank_of_mpi(&facts, options, 2, &[(name, "3,1")]);
        assert_eq!(value(&kept, name), Some(Action::Kept { value: "3,1".to_owned() }), "{name}");
        assert!(said(&kept).contains(&format!("{name}=3,1 is set already and stays")), "{}", said(&kept));
    }
    let (facts, near) = with_devices(0x1234);
    let options = Options { near: Some(near), visible_devices: true, ..Options::default() };
    let unknown = rank_of_mpi(&facts, options.clone(), 0, &[]);
    assert!(
        said(&unknown).contains("no variable is known for the maker of gpu:0: all ranks see all devices")
    );
    let (facts, near) = with_devices(0x10de);
    let options = Options { near: Some(near), ..options };
    let other = rank_of_mpi(&facts, options.clone(), 0, &[("CUDA_DEVICE_ORDER", "FASTEST_FIRST")]);
    assert!(
        said(&other).contains("CUDA_DEVICE_ORDER=FASTEST_FIRST is set already and stays"),
        "{}",
        said(&other)
    );
    let without =
        LaunchRequest::merge(Sources { options: Options { near: None, ..options }, ..sources(&[]) });
    assert!(without.unwrap_err().to_string().contains("add --near gpu:each"));
}
