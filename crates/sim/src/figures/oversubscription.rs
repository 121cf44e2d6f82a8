//! Figures of oversubscription, several threads a core: seed 000.

use super::draft::{Contestant, Draft, LOAD, PINNED, machine, profile, scenario};
use super::{Figure, FigureError, Measure, Metric, Relation};
use crate::kernel::Yielding;
use crate::program::WaitMode;

const MACHINES: [(&str, &str); 3] =
    [("Tigerton", "tigerton-e7310"), ("Barcelona", "barcelona-8350"), ("Nehalem", "nehalem-e5530")];
const COARSE: [&str; 3] = ["ep", "ft", "is"];
const FINE: [&str; 3] = ["cg", "mg", "sp"];
/// Numbers of threads per core.
const MANY: [u32; 3] = [2, 4, 8];

const GRAIN: &str =
    "seed 000: programs with barriers every few ms are affected, coarser ones are oblivious or improve";
const EP: &str = "seed 000: EP computationally intensive, unaffected";

/// Seconds of work of each of 16 threads: enough, because iterations do not differ.
const WORK_SECONDS_MAX: f64 = 1.0;

fn time(
    draft: &mut Draft,
    name: &'static str,
    (benchmark, each): (&str, u32),
    of: Contestant,
    (wait, yielding): (WaitMode, Yielding),
) -> Result<Measure, FigureError> {
    let model = machine(name)?;
    let program = profile(benchmark)?.program(16 * each, wait, WORK_SECONDS_MAX);
    let mut scenario = scenario(&model, of, vec![program])?;
    scenario.kernel.yielding = yielding;
    let label = format!("{name} {benchmark} {each} a core {} {wait:?} {yielding:?}", of.name);
    Ok(draft.cell(&label, scenario, Metric::Makespan(0), 1))
}

/// Returns the figure of 1, 2, 4 and 8 threads a core, with both meanings of yield.
pub(super) fn threads() -> Result<Figure, FigureError> {
    let mut draft = Draft::new(
        "oversubscription",
        "UPC benchmarks with 2, 4 and 8 threads a core: speed over one a core",
        "seed 000, UPC, UMA against NUMA",
        ["benchmark and threads a core", "speed over one thread a core"],
    );
    let (mut ep, mut exchange, mut cg, mut all) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (place, name) in MACHINES {
        for (word, yielding) in [("default", Yielding::Hint), ("POSIX", Yielding::Posix)] {
            let mut by_grain = [[const { Vec::new() }; 3], [const { Vec::new() }; 3]];
            for (grain, benchmarks) in [COARSE, FINE].into_iter().enumerate() {
                for benchmark in benchmarks {
                    let way = (WaitMode::Yield, yielding);
                    let one = time(&mut draft, name, (benchmark, 1), PINNED, way)?;
                    for (at, each) in MANY.into_iter().enumerate() {
                        let many = time(&mut draft, name, (benchmark, each), PINNED, way)?;
                        let speed = one.over(&many);
                        draft.point(format!("{place}, {word} yield"), format!("{benchmark} {each}"), &speed);
                        match benchmark {
                            "ep" => {
                                let what = format!(
                                    "{place}, {word} yield: EP with {each} threads a core as with one"
                                );
                                draft.claim(what, EP, &speed, Relation::Alike, &Measure::Given(1.0));
                                ep.push(speed.clone());
                            }
                            "ft" | "is" => exchange.push(speed.clone()),
                            "cg" => cg.push(speed.clone()),
                            _ => {}
                        }
                        by_grain[grain][at].push(speed.clone());
                        all.push(speed);
                    }
                }
            }
            let [coarse, fine] = by_grain;
            for ((each, coarse), fine) in MANY.into_iter().zip(coarse).zip(fine) {
                let what = format!(
                    "{place}, {word} yield, {each} a core: EP, FT and IS no worse than CG, MG and SP"
                );
                draft.claim(what, GRAIN, &Measure::Mean(coarse), Relation::AtLeast, &Measure::Mean(fine));
            }
        }
    }
    draft.beside("oversubscription/ep", Measure::Farthest(ep))?;
    draft.beside("oversubscription/ft-is", Measure::Highest(exchange))?;
    draft.beside("oversubscription/cg", Measure::Lowest(cg))?;
    draft.beside("oversubscription/mean", Measure::Mean(all))?;
    Ok(draft.done(&[
        "Threads are bound, 1 to 8 on each core, which the study found to keep memory near; one second of work of each of 16 threads is run.",
        "The text gives extremes and the mean, not the bars; the extremes are compared with the model's extremes over the same sets.",
        "CG loses 44 % at worst, here 14 %: a barrier opens in one step, while UPC's takes a round of messages for each doubling of the threads, and each round waits until all threads of all cores have run once more. That is not modelled, and it grows with the threads a core.",
        "A program computes and wants memory at an even rate here. Phases that compute and phases that exchange, which oversubscription lets overlap, are not modelled: FT and IS gain only as their sets come to fit the caches.",
    ]))
}

/// Returns the figure of other ways to wait: MPI, OpenMP.
pub(super) fn waiting() -> Result<Figure, FigureError> {
    let mut draft = Draft::new(
        "waiting",
        "2, 4 and 8 threads a core on Tigerton and Barcelona by way of waiting: speed over one a core",
        "seed 000, MPI and OpenMP",
        ["benchmark and threads a core", "speed over one thread a core"],
    );
    let ways: [(&str, WaitMode); 2] =
        [("polls and yields", WaitMode::Yield), ("sleeps at once", WaitMode::Sleep)];
    let (mut polling, mut sleeping, mut fine_gain) = (Vec::new(), Vec::new(), Vec::new());
    for (place, name) in MACHINES.into_iter().take(2) {
        for benchmark in COARSE.into_iter().chain(FINE) {
            let mut times = Vec::new();
            for (_, wait) in ways {
                let way = (wait, Yielding::Hint);
                let one = time(&mut draft, name, (benchmark, 1), LOAD, way)?;
                let many = MANY
                    .map(|each| time(&mut draft, name, (benchmark, each), LOAD, way))
                    .into_iter()
                    .collect::<Result<Vec<_>, _>>()?;
                times.push((one, many));
            }
            let [(poll, polls), (sleep, sleeps)] = &times[..] else { continue };
            for ((each, polls), sleeps) in MANY.into_iter().zip(polls).zip(sleeps) {
                let x = format!("{benchmark} {each}");
                let (polled, slept) = (poll.over(polls), sleep.over(sleeps));
                draft.point(format!("{place}, {}", ways[0].0), &x, &polled);
                draft.point(format!("{place}, {}", ways[1].0), &x, &slept);
                polling.push(polled);
                sleeping.push(slept);
                if FINE.contains(&benchmark) {
                    fine_gain.push(polls.over(sleeps));
                }
            }
        }
    }
    draft.beside("oversubscription/mpi", Measure::Mean(polling.clone()))?;
    draft.beside("oversubscription/blocktime-0", Measure::Highest(fine_gain))?;
    draft.claim(
        "polling for ever is best over all",
        "seed 000, OpenMP: KMP_BLOCKTIME infinite, best overall performance",
        &Measure::Mean(polling),
        Relation::AtLeast,
        &Measure::Mean(sleeping),
    );
    Ok(draft.done(&[
        "A barrier costs nothing but the wait here: the messages of MPI's and the counters of OpenMP's are not modelled, and they are what the text blames for MPI's loss.",
        "Sleeping at once costs two switches and a wake-up a barrier here and saves nothing, since yielding threads give way: the gain of up to 10 % is missed.",
    ]))
}
