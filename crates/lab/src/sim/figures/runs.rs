//! Runs of the cells of figures, on all cores. The result of a cell does not depend on the worker
//! or the time.

use super::FinishedFigure;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use trimtab_front::interrupt::Interrupt;
use trimtab_front::progress::bar;
use trimtab_sim::figures::Figure;

/// One run of one cell of one figure.
#[derive(Clone, Copy)]
struct FigureRun {
    figure: usize,
    cell: usize,
    run: u32,
}

/// Runs all cells of all figures; `None` after a signal.
pub(super) fn all(
    figures: Vec<Figure>,
    jobs: Option<u32>,
    interrupt: &Interrupt,
) -> Option<Vec<FinishedFigure>> {
    let list: Vec<FigureRun> = (0..figures.len())
        .flat_map(|figure| figures[figure].runs().map(move |(cell, run)| FigureRun { figure, cell, run }))
        .collect();
    let workers = jobs.map_or_else(
        || std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        |jobs| jobs as usize,
    );
    let progress = bar(list.len());
    let next = AtomicUsize::new(0);
    let values = Mutex::new(vec![None; list.len()]);
    std::thread::scope(|scope| {
        for _ in 0..workers.min(list.len()).max(1) {
            scope.spawn(|| {
                while interrupt.came().is_none() {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&FigureRun { figure, cell, run }) = list.get(at) else { return };
                    progress.set_message(figures[figure].name);
                    let value = figures[figure].cells[cell].run(run);
                    values.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(value);
                    progress.inc(1);
                }
            });
        }
    });
    progress.finish_and_clear();
    let values = values.into_inner().unwrap_or_else(PoisonError::into_inner);
    let values: Option<Vec<f64>> = values.into_iter().collect();
    let mut runs: Vec<Vec<Vec<f64>>> =
        figures.iter().map(|figure| vec![Vec::new(); figure.cells.len()]).collect();
    for (job, value) in list.iter().zip(values?) {
        runs[job.figure][job.cell].push(value);
    }
    let done = figures.into_iter().zip(runs).map(|(figure, runs)| {
        let report = figure.report(&runs);
        FinishedFigure { figure, runs, report }
    });
    Some(done.collect())
}
