//! Figure of one and of two hardware threads of each core, with the benchmarks of seed 000. Of
//! hardware threads the seed's text says only that sharing gains nothing on Nehalem; no number is
//! published for these points.

use super::draft::{Contestant, Draft, PINNED, machine, profile, scenario};
use super::{Figure, FigureError, Measure, Metric};
use crate::kernel::Yielding;
use crate::model::Model;
use crate::program::WaitMode;
use trimtab_core::ids::Id;
use trimtab_core::set::CpuSet;

const PROGRAMS: [&str; 6] = ["ep", "cg", "ft", "is", "mg", "sp"];
/// Machines with two hardware threads a core: that of the study, and one of today.
const MACHINES: [(&str, &str, Contestant); 2] = [
    ("Nehalem", "nehalem-e5530", PINNED),
    ("EPYC 9654", "epyc-9654-nps4", Contestant { kernel: "linux-6.12", ..PINNED }),
];

/// Returns the first hardware thread of each core.
fn first_of_each_core(model: &Model) -> CpuSet {
    let machine = &model.machine;
    let firsts = machine.cores().iter().map(|core| core.pus.start as usize);
    firsts.map(|pu| machine.os(Id::from_index(pu))).collect()
}

/// Returns the figure of equal work by one and by two threads a core.
pub(super) fn hardware_threads() -> Result<Figure, FigureError> {
    let mut draft = Draft::new(
        "hardware-threads",
        "One thread a core, and two: on two hardware threads, and on one: speed over one thread a core",
        "seed 000, machines with two hardware threads a core (no number is published)",
        ["benchmark", "speed over one thread a core"],
    );
    for (place, name, of) in MACHINES {
        let model = machine(name)?;
        let firsts = first_of_each_core(&model);
        let cores = firsts.len() as u32;
        let all: CpuSet = model.machine.cpus();
        let ways = [
            ("1 a core", cores, &firsts),
            ("2 hardware threads", 2 * cores, &all),
            ("2 on 1", 2 * cores, &firsts),
        ];
        let (mut apart, mut crowded) = (Vec::new(), Vec::new());
        for benchmark in PROGRAMS {
            let mut times = Vec::new();
            for (way, threads, cpus) in ways {
                let mut program = profile(benchmark)?.program(threads, WaitMode::Yield, 1.0);
                program.mask = Some(cpus.clone());
                let mut scenario = scenario(&model, of, vec![program])?;
                scenario.kernel.yielding = Yielding::Posix;
                let label = format!("{name} {benchmark} {way}");
                times.push(draft.cell(&label, scenario, Metric::Makespan(0), 1));
            }
            let [one, two, on_one] = &times[..] else { continue };
            for (series, time, speeds) in
                [("two hardware threads", two, &mut apart), ("two threads on one", on_one, &mut crowded)]
            {
                let speed = one.over(time);
                draft.point(format!("{place}, {series}"), benchmark, &speed);
                speeds.push(speed);
            }
        }
        draft.point(format!("{place}, two hardware threads"), "mean", &Measure::Mean(apart));
        draft.point(format!("{place}, two threads on one"), "mean", &Measure::Mean(crowded));
    }
    Ok(draft.done(&[
        "All threads together have the same work, are bound, and give way while they wait.",
        "A core with both hardware threads busy does 1.25 (Nehalem) and 1.3 (EPYC) times the work, whatever the programs are: estimated, the same for all. What differs here is memory: the two share the private caches and the bandwidth.",
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_two_threads_have_the_work_of_one() {
        let model = machine("nehalem-e5530").unwrap();
        let firsts = first_of_each_core(&model);
        assert_eq!((firsts.len(), model.machine.cpus().len()), (8, 16));
        // EP has no data: a core's throughput is all that counts.
        let figure = hardware_threads().unwrap();
        let time = |way: &str| {
            let name = format!("nehalem-e5530 ep {way}");
            figure.cells.iter().find(|cell| cell.name == name).unwrap().run(0)
        };
        let [one, two, on_one] = ["1 a core", "2 hardware threads", "2 on 1"].map(time);
        assert!((one / two / 1.25 - 1.0).abs() < 0.02, "{one} {two}");
        assert!((one / on_one - 1.0).abs() < 0.02, "{one} {on_one}");
    }
}
