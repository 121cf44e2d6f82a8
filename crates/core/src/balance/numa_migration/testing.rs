//! Observations of computing threads of one process, for the tests of these policies.

use super::thread_stats::ThreadStats;
use crate::ids::{Id, OsCpu, ProgramId, ThreadId};
use crate::observe::{Observer, Sample, ThreadInfo, ThreadSample};
use crate::time::{Moment, Span};
use crate::topology::Machine;

/// Takes two samples, a second apart, of one thread on each of these CPUs.
pub(super) fn met(machine: &Machine, stats: &mut ThreadStats, cpus: &[u32]) -> Observer {
    let mut observer = Observer::new(machine.cpus());
    let info = |(at, _): (usize, &u32)| ThreadInfo {
        id: ThreadId::from_index(at),
        program: ProgramId(0),
        pid: 1,
        tid: 1,
        name: String::new(),
        home: machine.cpus().clone(),
        left: None,
        tagged: true,
    };
    for second in 0..2 {
        let read = |(at, cpu): (usize, &u32)| ThreadSample {
            id: ThreadId::from_index(at),
            run: Span::from_ms(1_000 * second),
            wait: Some(Span::ZERO),
            slices: None,
            ready: None,
            voluntary: None,
            cpu: Some(OsCpu(*cpu)),
            counts: None,
        };
        let news = if second == 0 { cpus.iter().enumerate().map(info).collect() } else { Vec::new() };
        let threads = cpus.iter().enumerate().map(read).collect();
        let at = Moment(1_000_000_000 * (second + 1));
        observer.take(&Sample { at, news, threads, ..Sample::default() }, &[]);
        stats.observe(&observer.observation());
    }
    observer
}
