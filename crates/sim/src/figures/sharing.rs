//! Figure of two programs on one machine: all cores for both, or half of the sockets for each. Seed
//! 000.

use super::draft::{Draft, LOAD, machine, profile, scenario};
use super::{Figure, FigureError, Measure, Metric, Relation};
use crate::kernel::Yielding;
use crate::program::WaitMode;
use trimtab_core::set::CpuSet;
use trimtab_core::time::Span;

const PROGRAMS: [&str; 6] = ["ep", "cg", "ft", "is", "mg", "sp"];
const PLACE: &str = "seed 000: sharing against partitioning, one thread per core";

/// Returns the CPUs of each half of the sockets.
fn halves(model: &crate::model::Model) -> [CpuSet; 2] {
    let machine = &model.machine;
    let count = machine.pu_count();
    let half = |range: std::ops::Range<usize>| -> CpuSet {
        range.map(|pu| machine.os(trimtab_core::ids::Id::from_index(pu))).collect::<CpuSet>()
    };
    [half(0..count / 2), half(count / 2..count)]
}

/// Returns the figure of all pairs of programs, shared and partitioned.
pub(super) fn sharing() -> Result<Figure, FigureError> {
    let mut draft = Draft::new(
        "sharing",
        "Pairs of programs, one thread a core each: all cores shared over half of the sockets each",
        "seed 000, sharing against partitioning",
        ["pair", "speed of sharing over partitioning"],
    );
    // The OpenMP runtime of the time polls for 200 ms, then sleeps (KMP_BLOCKTIME).
    let openmp = WaitMode::SpinThenSleep(Span::from_ms(200));
    let mut means = Vec::new();
    for (place, name, language, wait) in [
        ("Barcelona", "barcelona-8350", "UPC", WaitMode::Yield),
        ("Barcelona", "barcelona-8350", "OpenMP", openmp),
        ("Nehalem", "nehalem-e5530", "UPC", WaitMode::Yield),
    ] {
        let model = machine(name)?;
        let cores = model.machine.pu_count() as u32;
        let masks = halves(&model);
        let mut gains = Vec::new();
        for (at, first) in PROGRAMS.iter().enumerate() {
            for second in &PROGRAMS[at + 1..] {
                let time = |draft: &mut Draft, partitioned: bool| -> Result<Measure, FigureError> {
                    let threads = if partitioned { cores / 2 } else { cores };
                    let programs = [first, second].into_iter().zip(&masks).map(|(benchmark, mask)| {
                        let mut program = profile(benchmark)?.program(threads, wait, 1.0);
                        program.mask = partitioned.then(|| mask.clone());
                        Ok(program)
                    });
                    let mut scenario = scenario(&model, LOAD, programs.collect::<Result<_, FigureError>>()?)?;
                    scenario.kernel.yielding = Yielding::Posix;
                    let how = if partitioned { "partitioned" } else { "shared" };
                    let label = format!("{name} {language} {first}+{second} {how}");
                    Ok(draft.cell(&label, scenario, Metric::All, 1))
                };
                let gain = time(&mut draft, true)?.over(&time(&mut draft, false)?);
                draft.point(format!("{place}, {language}"), format!("{first}+{second}"), &gain);
                gains.push(gain);
            }
        }
        let mean = Measure::Mean(gains);
        draft
            .beside(&format!("sharing/{}/{}", place.to_lowercase(), language.to_lowercase()), mean.clone())?;
        means.push(mean);
    }
    let [upc, openmp, nehalem] = &means[..] else { return Ok(draft.done(&[])) };
    let one = Measure::Given(1.0);
    draft.claim("Barcelona, UPC: sharing is better", PLACE, upc, Relation::Above, &one);
    draft.claim("Barcelona, OpenMP: sharing is better", PLACE, openmp, Relation::Above, &one);
    draft.claim("UPC gains more from sharing than OpenMP", PLACE, upc, Relation::AtLeast, openmp);
    draft.claim("sharing gains more on Barcelona than on Nehalem", PLACE, upc, Relation::Above, nehalem);
    Ok(draft.done(&[
        "The text does not say what is averaged: here it is the time until both programs of a pair are over, over all pairs of six benchmarks of equal work.",
        "What overlaps in time, one program's exchange with the other's computing, shows only as averages; this is part of what Barcelona lacks. On Nehalem two programs on the threads of one core share its private caches and units evenly here, whichever they are.",
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_core::ids::OsCpu;

    #[test]
    fn halves_are_of_whole_sockets() {
        let [low, high] = halves(&machine("barcelona-8350").unwrap());
        assert_eq!((low.len(), high.len()), (8, 8));
        assert!(low.contains(OsCpu(0)) && high.contains(OsCpu(15)));
    }
}
