//! Nested teams on every captured machine and on large synthetic ones: the independent checker
//! finds no fault, and neither does an oracle that knows only NUMA nodes and packages. Pictures of
//! maps are snapshots.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{captured, synthetic};
use std::collections::{BTreeMap, BTreeSet};
use trimtab_core::check::check_nesting;
use trimtab_core::ids::OsCpu;
use trimtab_core::place::nesting::{Listing, Map, Nest, Teams, Tree, draw};
use trimtab_core::place::{Amount, KindChoice, Plan, Request, Taken, plan};
use trimtab_core::set::CpuSet;
use trimtab_core::topology::{Level, Machine};

/// Returns the memory domain of a CPU, from the machine alone: its node if there are several, else
/// its package.
fn domain(machine: &Machine, cpu: OsCpu) -> u32 {
    let core = machine.core_of(machine.pu(cpu).unwrap());
    let nodes: BTreeSet<_> = machine.cores().iter().map(|core| core.node).collect();
    if nodes.len() > 1 {
        return machine.core(core).node.map_or(u32::MAX, |node| node.0);
    }
    machine.enclosing(Level::Package, core).map_or(0, |package| package.pus.start)
}

/// Free cores of each memory domain that a plan uses.
fn domains(machine: &Machine, plan: &Plan) -> BTreeMap<u32, usize> {
    let mut domains = BTreeMap::new();
    for slot in &plan.slots {
        *domains.entry(domain(machine, slot.cpu)).or_insert(0) += 1;
    }
    domains
}

/// Returns plans on all of a machine, and on the rest of it if every third core is not allowed.
fn plans(machine: &Machine) -> Vec<Plan> {
    let holes: CpuSet = machine
        .cores()
        .iter()
        .enumerate()
        .filter(|(at, _)| at % 3 != 1)
        .flat_map(|(_, core)| machine.cpus_of(&core.pus).iter().collect::<Vec<_>>())
        .collect();
    let request = Request { amount: Amount::Percent(100), kind: KindChoice::Any, ..Request::default() };
    [machine.allowed(), holes.intersection(&machine.allowed())]
        .into_iter()
        .filter(|allowed| !allowed.is_empty())
        .map(|allowed| plan(machine, &request, &Taken::nothing(allowed)).unwrap())
        .collect()
}

struct NestingCase<'a> {
    name: String,
    machine: &'a Machine,
    plan: &'a Plan,
    tree: Tree,
}

impl NestingCase<'_> {
    fn listing(&self, nest: &str) -> Listing {
        let teams = Teams::new(self.tree.clone(), None, &nest.parse().unwrap());
        let listing = Listing::new(&teams);
        let findings = check_nesting(self.plan, &listing);
        let words: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(words.is_empty(), "{}, {nest}: {words:?}", self.name);
        listing
    }

    /// Returns the number of memory domains in which each team of a level has threads.
    fn spans(&self, nest: &str, level: usize) -> Vec<usize> {
        let listing = self.listing(nest);
        let level = &listing.levels[level];
        let teams = level.threads.chunks(level.size as usize);
        let span = |team: &[trimtab_core::place::nesting::ListedThread]| {
            team.iter().map(|thread| domain(self.machine, thread.cpu)).collect::<BTreeSet<_>>().len()
        };
        teams.map(span).collect()
    }
}

#[test]
fn teams_lie_where_their_strategy_says_on_every_machine() {
    for (name, machine) in captured().into_iter().chain(synthetic()) {
        for (which, plan) in plans(&machine).iter().enumerate() {
            let tree = Tree::new(&machine, &plan.mask).unwrap();
            let case = NestingCase { name: format!("{name} {which}"), machine: &machine, plan, tree };
            if machine.cores().iter().any(|core| core.node.is_none()) && machine.nodes().len() > 1 {
                // Cores without memory of their own: the question of closeness does not arise, only
                // the checker's rules apply.
                for nest in ["3,compact", "4,scatter,3,subscatter", "2,scatter,5,scatter"] {
                    case.listing(nest);
                }
                continue;
            }
            let domains = domains(&machine, plan);
            let count = domains.len();
            let (least, most) = (*domains.values().min().unwrap(), *domains.values().max().unwrap());
            assert_eq!(case.tree.domains().len(), count, "{}", case.name);

            // Close together: one memory domain, if one is large enough.
            for threads in [1, least, most] {
                assert_eq!(case.spans(&format!("{threads},compact"), 0), [1], "{}: {threads}", case.name);
            }
            // Far apart: every memory domain, if they are equally large.
            if least == most {
                for threads in [1, count / 2, count, 2 * count].into_iter().filter(|&threads| threads > 0) {
                    let spans = case.spans(&format!("{threads},scatter"), 0);
                    assert_eq!(spans, [threads.min(count)], "{}: {threads}", case.name);
                }
            }
            // One team per memory domain, inside it, as large as the smallest.
            for strategy in ["subcompact", "subscatter"] {
                let spans = case.spans(&format!("{count},scatter,{least},{strategy}"), 1);
                assert!(spans.iter().all(|&span| span == 1), "{}: {strategy} {spans:?}", case.name);
            }
            // Inner teams over everything, without overlap: the checker counts threads on each CPU.
            let inner = (plan.slots.len() / count).clamp(1, 16);
            let spans = case.spans(&format!("{count},scatter,{inner},scatter"), 1);
            if least == most {
                // The last teams take the remaining cells, which on a full machine may be one
                // domain short.
                let (full, short) = (inner.min(count), inner.min(count) - usize::from(inner > 1));
                let shorter = spans.iter().filter(|&&span| span < full).count();
                let fine = spans.iter().all(|&span| span >= short) && shorter * 4 <= spans.len();
                assert!(fine, "{}: {spans:?}", case.name);
            }
            // Three levels, too many threads, one thread, and the largest number that fits.
            for nest in [
                "2,scatter,2,scatter,2,scatter",
                "3,compact,5,compact,7,subscatter",
                "1,subcompact",
                "*,scatter,*",
            ] {
                case.listing(nest);
            }
        }
    }
}

#[test]
fn maps_look_like_this() {
    let all: BTreeMap<String, Machine> = captured().into_iter().collect();
    for name in ["epyc-corona-p2", "xeon-copper", "power9-lassen"] {
        // The corpus reports it when it is missing.
        let Some(machine) = all.get(name) else { continue };
        let plan = &plans(machine)[0];
        let tree = Tree::new(machine, &plan.mask).unwrap();
        let pictures: Vec<String> =
            ["4,scatter,4,subscatter", "6,scatter,2,subcompact", "2,scatter,3,scatter"]
                .iter()
                .map(|text| {
                    let nest = text.parse::<Nest>().unwrap().resolve(&tree);
                    let map = Map::new(&tree, &nest, &nest.sizes()).unwrap();
                    format!("{text}\n{}", draw(&tree, &nest, &map, 100))
                })
                .collect();
        insta::assert_snapshot!(format!("nest-{name}"), pictures.join("\n"));
    }
}
