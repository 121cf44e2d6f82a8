use super::*;
use crate::handoff::{Missed, NestHandoff, Report, Roots};
use crate::ids::OsCpu;
use crate::place::{Request, Strategy as Layout, Stride, Taken, plan};
use crate::set::CpuSet;
use crate::topology::{Machine, parse_synthetic};
use proptest::prelude::*;

/// Four sockets of four cores, the first machine of the seed.
const TIGERTON: &str = "pack:4 core:4";

fn tree(machine: &str) -> Tree {
    let machine = parse_synthetic(machine).unwrap();
    Tree::new(&machine, &machine.cpus()).unwrap()
}

fn resolved(tree: &Tree, nest: &str) -> Resolved {
    nest.parse::<Nest>().unwrap().resolve(tree)
}

fn map(machine: &str, nest: &str) -> Map {
    let tree = tree(machine);
    let nest = resolved(&tree, nest);
    Map::new(&tree, &nest, &nest.sizes()).unwrap()
}

fn cpus(map: &Map) -> Vec<Vec<u32>> {
    map.levels().iter().map(|level| level.iter().map(|place| place.cpu.0).collect()).collect()
}

fn picture(machine: &str, nest: &str) -> String {
    let tree = tree(machine);
    let nest = resolved(&tree, nest);
    let map = Map::new(&tree, &nest, &nest.sizes()).unwrap();
    draw(&tree, &nest, &map, 100)
}

#[test]
fn the_slides_pictures() {
    let all: Vec<String> = ["4,compact", "4,scatter", "4,scatter,4,subscatter", "4,scatter,4,scatter"]
        .iter()
        .map(|nest| format!("{nest}\n{}", picture(TIGERTON, nest)))
        .collect();
    insta::assert_snapshot!("slides", all.join("\n"));
}

#[test]
fn more_pictures() {
    let all: Vec<String> = [
        ("pack:2 numa:1 l3:2 core:4", "2,scatter,4,subscatter"),
        ("pack:2 numa:1 l3:2 core:4", "2,scatter,4,subcompact"),
        ("pack:2 numa:1 l3:2 core:4", "2,compact,2,subcompact,2,subcompact"),
        ("pack:2 core:6", "3,scatter,4,subcompact"),
        ("pack:4 core:4", "6,scatter,2,subcompact"),
        ("pack:4 core:4", "1,scatter,4,subscatter"),
        ("pack:2 core:2 pu:2", "2,scatter,4,subcompact"),
        ("pack:13 l2:4 core:2", "13,scatter,4,subscatter"),
    ]
    .iter()
    .map(|(machine, nest)| format!("{machine}: {nest}\n{}", picture(machine, nest)))
    .collect();
    insta::assert_snapshot!("pictures", all.join("\n"));
}

/// Places teams on a plan that leaves the number of cores open, so that the plan has the size of
/// the teams.
fn narrowed(machine: &Machine, request: &Request, taken: &Taken, nest: &Nest) -> Option<(Narrowed, Teams)> {
    let narrowed = narrow(machine, request, taken, nest).ok()?;
    let plan = plan(machine, &narrowed.request, taken).ok()?;
    let teams = Teams::new(Tree::new(machine, &plan.mask)?, narrowed.wide.as_ref(), nest);
    Some((narrowed, teams))
}

#[test]
fn close_teams_stay_together_when_a_plan_is_narrowed_to_them() {
    for (text, nest, expected) in [
        ("pack:2 numa:2 core:8", "2,subcompact,2,scatter", "0,2,16,24"),
        ("pack:4 core:8", "4,compact,2,scatter", "0,2,4,6,8-9,16,24"),
    ] {
        let machine = parse_synthetic(text).unwrap();
        let taken = Taken::nothing(machine.cpus());
        let nest: Nest = nest.parse().unwrap();
        let (_, teams) = narrowed(&machine, &Request::default(), &taken, &nest).unwrap();
        let map = teams.declared().unwrap();
        assert_eq!(teams.tree().mask().to_string(), expected);
        // The map is the same as on a plan with all cores.
        assert_eq!(cpus(&map), cpus(&self::map(text, &nest.to_string())));
        let first: Vec<u32> = map.levels()[0].iter().map(|place| place.cpu.0).collect();
        assert!(first.iter().all(|&cpu| cpu < 8), "{text}: {first:?}");
        let straddling = |advice: &Advice| matches!(advice, Advice::Straddling { .. });
        assert!(!teams.advice().iter().any(straddling), "{text}: {:?}", teams.advice());
    }
}

#[test]
fn crossed_trees_give_crossed_maps() {
    let tree: Tree = "[1,0]".parse().unwrap();
    for (nest, expected) in [
        ("2,scatter,2,scatter", vec![vec![1, 0], vec![1, 0, 0, 1]]),
        ("2,scatter,2,subcompact", vec![vec![1, 0], vec![1, 1, 0, 0]]),
        ("2,compact", vec![vec![1, 0]]),
        ("1,scatter,2,scatter", vec![vec![1], vec![1, 0]]),
    ] {
        let nest = resolved(&tree, nest);
        assert_eq!(cpus(&Map::new(&tree, &nest, &nest.sizes()).unwrap()), expected, "{nest}");
    }
}

#[test]
fn scatter_subscatter_equals_the_placement_of_shemat() {
    // Uniform machines with at least one team for each memory domain: core = o * (C / Y) + i * (C /
    // Y) / Z.
    for (machine, cores) in [
        ("pack:4 core:4", 16),
        ("pack:2 core:8", 16),
        ("core:16", 16),
        ("pack:4 l2:2 core:2", 16),
        ("pack:4 l3:2 core:4", 32),
        ("pack:2 numa:2 l3:2 core:4", 32),
        ("pack:4 core:16", 64),
        ("pack:2 numa:1 l3:4 core:8", 64),
    ] {
        let (outer, inner) = (4, 4);
        let block = cores / outer;
        let formula: Vec<u32> =
            (0..outer).flat_map(|o| (0..inner).map(move |i| o * block + i * block / inner)).collect();
        assert_eq!(cpus(&map(machine, "4,scatter,4,subscatter"))[1], formula, "{machine}");
    }
}

#[test]
fn a_lone_sub_team_stays_and_is_warned_of() {
    let tree = tree(TIGERTON);
    let nest = resolved(&tree, "1,scatter,4,subscatter");
    assert_eq!(advise(&tree, &nest), [Advice::LoneTeam { level: 2, threads: 4, idle: 3 }]);
    assert_eq!(advise(&tree, &resolved(&tree, "4,scatter,4,subscatter")), []);
    assert_eq!(
        advise(&tree, &resolved(&tree, "3,scatter,4,subcompact")),
        [Advice::Uneven { threads: 3, domains: 4 }]
    );
    assert_eq!(
        advise(&tree, &resolved(&tree, "4,scatter,8,subcompact")),
        [Advice::Oversubscribed { threads: 32, cores: 16, most: 2 }]
    );
    assert_eq!(
        advise(&tree, &resolved(&tree, "2,compact,3,subcompact")),
        [],
        "two teams of three take a socket each"
    );
    let huge = resolved(&tree, "16384,scatter,16384,subcompact");
    assert_eq!(advise(&tree, &huge), [Advice::TooMany { threads: 1 << 28 }]);
    assert_eq!(Map::new(&tree, &huge, &huge.sizes()), None);
    assert_eq!(advise(&"[5]".parse().unwrap(), &nest), [Advice::OneCpu]);
}

#[test]
fn straddling_teams_are_warned_of() {
    let tree = tree("pack:2 core:6");
    assert_eq!(
        advise(&tree, &resolved(&tree, "3,scatter,4,subcompact")),
        [Advice::Uneven { threads: 3, domains: 2 }, Advice::Straddling { level: 2, teams: 1, of: 3 }]
    );
}

#[test]
fn sizes_other_than_declared() {
    let tree = tree(TIGERTON);
    let nest = resolved(&tree, "4,scatter,2,subcompact");
    // A larger inner team stays in its master's share, and the outer threads keep their places.
    let larger = Map::new(&tree, &nest, &[4, 4]).unwrap();
    assert_eq!(cpus(&larger)[0], [0, 4, 8, 12]);
    assert_eq!(cpus(&larger)[1], (0..16).collect::<Vec<_>>());
    // With fewer levels than listed there is still room for the levels below.
    let outer = Map::new(&tree, &resolved(&tree, "4,compact,4,subcompact"), &[4]).unwrap();
    assert_eq!(cpus(&outer), [[0, 4, 8, 12]]);
    for bad in [&[][..], &[4, 2, 2], &[0], &[4, 0]] {
        assert_eq!(Map::new(&tree, &nest, bad), None, "{bad:?}");
    }
}

#[test]
fn scattered_teams_share_cells_with_their_own_threads_last() {
    let tree: Tree = "[1,0]".parse().unwrap();
    let nest = resolved(&tree, "2,scatter,2,subscatter,2,scatter");
    let map = Map::new(&tree, &nest, &nest.sizes()).unwrap();
    assert_eq!(cpus(&map)[2], [1, 0, 1, 0, 0, 1, 0, 1]);
    let nest = resolved(&tree, "2,scatter,2,scatter");
    let map = Map::new(&tree, &nest, &[4, 4]).unwrap();
    for team in cpus(&map)[1].chunks(4) {
        assert_eq!(team.iter().filter(|&&cpu| cpu == 0).count(), 2, "{team:?}");
    }
}

#[test]
fn paths_lead_to_places() {
    let map = map(TIGERTON, "4,scatter,4,subscatter");
    assert_eq!(map.place(&[2]).unwrap().cpu.0, 8);
    assert_eq!(map.place(&[2, 3]).unwrap().cpu.0, 11);
    assert_eq!(
        (map.place(&[4]), map.place(&[0, 4]), map.place(&[0, 0, 0]), map.place(&[])),
        (None, None, None, None)
    );
}

#[test]
fn unlisted_teams_get_a_room_of_more_than_a_core() {
    let tree = tree(TIGERTON);
    let room = |nest: &str, path: &[u32]| map(TIGERTON, nest).place(path).unwrap().room(&tree).to_string();
    assert_eq!(room("4,scatter", &[1]), "4-7");
    assert_eq!(room("4,compact", &[1]), "0-3");
    assert_eq!(room("4,scatter,2,subscatter", &[3, 1]), "14-15");
}

/// Checks the properties of every map, independently of the code that made it.
fn judge(tree: &Tree, nest: &Resolved, map: &Map) -> Result<(), TestCaseError> {
    let mask = tree.mask();
    let mut masters: Vec<(u32, CpuSet)> = Vec::new();
    for (at, (places, &(_, strategy))) in map.levels().iter().zip(nest.levels()).enumerate() {
        let size = map.sizes()[at] as usize;
        prop_assert_eq!(places.len(), map.sizes()[..=at].iter().product::<u32>() as usize);
        for (thread, place) in places.iter().enumerate() {
            prop_assert!(mask.contains(place.cpu));
            prop_assert!(tree.cpus(place.core).contains(&place.cpu));
            prop_assert!(place.share.is_sorted() && place.share.first() == Some(&place.core));
            if let Some((master, share)) = masters.get(thread / size) {
                prop_assert!(thread % size != 0 || place.cpu.0 == *master, "masters keep their CPU");
                if strategy.is_sub() {
                    prop_assert!(share.contains(place.cpu), "sub stays in the master's share");
                }
            }
        }
        // No core is used twice before all cores available to the strategy are used once.
        let mut uses = vec![0usize; tree.cores()];
        for place in places {
            uses[place.core as usize] += 1;
        }
        let wanted: u64 = map.sizes()[..=at].iter().map(|&size| u64::from(size)).product();
        let declared = nest.sizes() == map.sizes();
        if declared && wanted <= tree.cores() as u64 {
            prop_assert!(uses.iter().all(|&uses| uses <= 1), "level {}: {:?}", at + 1, uses);
        }
        if at == 0 && !strategy.is_sub() && wanted >= tree.cores() as u64 {
            prop_assert!(uses.iter().all(|&uses| uses >= 1), "level {}: {:?}", at + 1, uses);
        }
        // Every hardware thread gets one thread before any gets two.
        let mut on = std::collections::BTreeMap::new();
        for place in places {
            *on.entry(place.cpu).or_insert(0usize) += 1;
        }
        for core in 0..tree.cores() {
            let cpus = tree.cpus(u32::try_from(core).unwrap());
            let counts: Vec<usize> = cpus.iter().map(|cpu| on.get(cpu).copied().unwrap_or(0)).collect();
            if at == 0 {
                prop_assert!(
                    counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1,
                    "{:?}",
                    counts
                );
            }
        }
        masters = places
            .iter()
            .map(|place| {
                (place.cpu.0, place.share.iter().flat_map(|&core| tree.cpus(core)).copied().collect())
            })
            .collect();
    }
    Ok(())
}

fn machines() -> impl Strategy<Value = String> {
    (1usize..5, 1usize..3, 1usize..4, 1usize..7, 1usize..3).prop_map(|(packs, nodes, l3, cores, pus)| {
        format!("pack:{packs} numa:{nodes} l3:{l3} core:{cores} pu:{pus}")
    })
}

/// Returns a test case for narrowing: the CPUs that others hold and keep busy, and the strategy.
fn situations() -> impl Strategy<Value = (u64, u64, usize)> {
    (any::<u64>(), any::<u64>(), 0usize..6)
}

fn surround(machine: &Machine, (held, busy, layout): (u64, u64, usize)) -> (Request, Taken) {
    let bit = |bits: u64, cpu: OsCpu| bits >> (cpu.0 % 61) & 3 == 3;
    let taken = Taken {
        held: machine.cpus().iter().filter(|&cpu| bit(held, cpu)).collect(),
        busy: machine.cpus().iter().filter(|&cpu| bit(busy, cpu)).map(|cpu| (cpu, 900)).collect(),
        ..Taken::nothing(machine.cpus())
    };
    let layouts = [
        Layout::Compact,
        Layout::Scatter,
        Layout::Balanced,
        Layout::Stride(Stride::Every(2)),
        Layout::Stride(Stride::OnePer(crate::topology::Level::L3)),
        Layout::Compact,
    ];
    let smt = if layout == 5 { crate::place::Smt::All } else { Default::default() };
    (Request { strategy: layouts[layout], smt, ..Request::default() }, taken)
}

fn nests() -> impl Strategy<Value = String> {
    let level =
        (1u32..9, 0usize..4).prop_map(|(size, strategy)| format!("{size},{}", TeamStrategy::ALL[strategy].1));
    prop::collection::vec(level, 1..4).prop_map(|levels| levels.join(","))
}

proptest! {
    #[test]
    fn maps_keep_the_promises(machine in machines(), nest in nests(), holes in prop::collection::vec(any::<bool>(), 200)) {
        let machine = parse_synthetic(&machine).unwrap();
        let left: CpuSet = machine.cpus().iter().zip(holes).filter(|(_, keep)| *keep).map(|(cpu, _)| cpu).collect();
        for cpus in [machine.cpus(), left] {
            let Some(tree) = Tree::new(&machine, &cpus) else { continue };
            prop_assert_eq!(tree.mask(), cpus);
            let nest = resolved(&tree, &nest);
            let map = Map::new(&tree, &nest, &nest.sizes()).unwrap();
            judge(&tree, &nest, &map)?;
            // Equal input gives an equal map, and names have no effect.
            prop_assert_eq!(Map::new(&tree.to_string().parse().unwrap(), &nest, &nest.sizes()), Some(map));
            advise(&tree, &nest);
        }
    }

    #[test]
    fn narrowing_a_plan_to_its_teams_moves_no_thread(
        machine in machines(), nest in nests(), situation in situations(), sizes in prop::collection::vec(1u32..9, 1..4),
    ) {
        let machine = parse_synthetic(&machine).unwrap();
        let (request, taken) = surround(&machine, situation);
        let nest: Nest = nest.parse().unwrap();
        let Some((made, teams)) = narrowed(&machine, &request, &taken, &nest) else { return Ok(()) };
        // Narrowing again changes nothing.
        let again = narrow(&machine, &made.request, &taken, &nest).unwrap();
        prop_assert_eq!(&again.request, &made.request);
        let Some(wide) = &made.wide else { return Ok(()) };
        // The map is that of all cores, and the plan contains only the map's cores.
        let resolved = nest.resolve(wide);
        let whole = Map::new(wide, &resolved, &resolved.sizes()).unwrap();
        let map = teams.declared().unwrap();
        prop_assert_eq!(cpus(&map), cpus(&whole));
        for core in 0..teams.tree().len() {
            let of_core: CpuSet = teams.tree().cpus(core).iter().copied().collect();
            prop_assert!(of_core.intersects(&whole.cpus()), "core {} has no thread", core);
        }
        judge(teams.tree(), &resolved, &map)?;
        // The map of the outer levels is the beginning of the whole map.
        for levels in 1..=map.levels().len() {
            let outer = teams.map(&map.sizes()[..levels]).unwrap();
            prop_assert_eq!(outer.levels(), &map.levels()[..levels]);
        }
        // The hand-off gives the same map.
        let (tree, wide) = (teams.tree().clone(), made.wide.clone());
        let (roots, report, missed) = (Roots::default(), Report::No, Missed::default());
        let told = NestHandoff { tree, wide, roots, report, missed, nest: Some(nest.clone()) };
        let told: NestHandoff = told.to_string().parse().unwrap();
        prop_assert_eq!(told.teams(&nest).declared(), Some(map));
        // Teams of other sizes, and other teams, stay within the plan.
        if let Some(other) = teams.map(&sizes) {
            judge(teams.tree(), &resolved, &other)?;
            prop_assert_eq!(told.teams(&nest).map(&sizes), Some(other));
        }
        let all: Nest = "*,scatter,2,subcompact".parse().unwrap();
        let other = told.teams(&all);
        judge(other.tree(), other.resolved(), &other.declared().unwrap())?;
        prop_assert_eq!(other.tree().mask(), teams.tree().mask());
    }

    /// A close team that fits a memory domain together with its own teams is in one domain; checked
    /// from the machine alone.
    #[test]
    fn a_close_team_is_in_one_memory_domain_if_it_fits(
        packs in 1usize..5, nodes in 1usize..4, l3 in 1usize..3, cores in 1usize..9, sub: bool,
        levels in prop::collection::vec((1u32..9, 0usize..4), 1..5),
    ) {
        let machine = parse_synthetic(&format!("pack:{packs} numa:{nodes} l3:{l3} core:{cores}")).unwrap();
        // The product of the levels is at most a domain's size, and the outermost level is a close
        // one.
        let mut room = u32::try_from(l3 * cores).unwrap();
        let mut words = Vec::new();
        for (size, strategy) in levels {
            let close = if sub { "subcompact" } else { "compact" };
            let word = if words.is_empty() { close } else { TeamStrategy::ALL[strategy].1 };
            words.push(format!("{},{word}", size.min(room)));
            room /= size.min(room);
        }
        let nest: Nest = words.join(",").parse().unwrap();
        let taken = Taken::nothing(machine.cpus());
        let (_, teams) = narrowed(&machine, &Request::default(), &taken, &nest).unwrap();
        let map = teams.declared().unwrap();
        let domain = |cpu: OsCpu| cpu.0 as usize / (l3 * cores);
        let used: std::collections::BTreeSet<usize> = map.levels()[0].iter().map(|place| domain(place.cpu)).collect();
        prop_assert_eq!(used.len(), 1, "{:?}", cpus(&map));
    }

    #[test]
    fn any_sizes_make_a_map(machine in machines(), nest in nests(), sizes in prop::collection::vec(1u32..12, 1..4)) {
        let tree = tree(&machine);
        let nest = resolved(&tree, &nest);
        if let Some(map) = Map::new(&tree, &nest, &sizes) {
            judge(&tree, &nest, &map)?;
        } else {
            prop_assert!(sizes.len() > nest.levels().len());
        }
    }
}
