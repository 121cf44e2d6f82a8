//! What was counted of each thread from the first to the last of a series of samples.
//!
//! Properties: a thread of which only one reading is there has run, but has no counts; one that ended stays, with what was read last.

use crate::counts::Counts;
use crate::ids::ThreadId;
use crate::observe::{Sample, ThreadInfo};
use crate::time::Span;
use std::collections::BTreeMap;

/// So many threads are kept; more are not. Chosen: nobody reads a longer list.
const THREADS_MAX: usize = 8_192;

/// A thread, and what was counted of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Metered {
    /// Its process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Its name, printable.
    pub name: String,
    /// How long it ran meanwhile.
    pub ran: Span,
    /// What was counted of it.
    pub counts: Option<Counts>,
}

/// Takes samples in.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    threads: BTreeMap<ThreadId, Known>,
}

#[derive(Clone, Debug)]
struct Known {
    info: ThreadInfo,
    ran: Option<(Span, Span)>,
    counts: Option<(Counts, Counts)>,
}

impl Meter {
    /// Takes a sample in.
    pub fn take(&mut self, sample: &Sample) {
        for info in &sample.news {
            let room = self.threads.len() < THREADS_MAX;
            match self.threads.get_mut(&info.id) {
                Some(known) => known.info = info.clone(),
                None if room => {
                    let known = Known { info: info.clone(), ran: None, counts: None };
                    self.threads.insert(info.id, known);
                }
                None => {}
            }
        }
        for read in &sample.threads {
            let Some(known) = self.threads.get_mut(&read.id) else { continue };
            known.ran = Some((known.ran.map_or(read.run, |(first, _)| first), read.run));
            if let Some(counts) = read.counts {
                // Counters that were opened anew begin at nothing: so do we.
                let same = known.counts.filter(|(_, last)| last.running <= counts.running);
                known.counts = Some((same.map_or(counts, |(first, _)| first), counts));
            }
        }
    }

    /// The threads that ran, those that ran longest first.
    pub fn threads(&self) -> Vec<Metered> {
        let metered = |known: &Known| {
            let (first, last) = known.ran?;
            let ran = last.less(first);
            let counts = known.counts.and_then(|(first, last)| last.since(&first));
            (ran > Span::ZERO || counts.is_some()).then(|| Metered {
                pid: known.info.pid,
                tid: known.info.tid,
                name: known.info.name.clone(),
                ran,
                counts,
            })
        };
        let mut threads: Vec<Metered> = self.threads.values().filter_map(metered).collect();
        threads.sort_by_key(|thread| (std::cmp::Reverse(thread.ran), thread.tid));
        threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ProgramId;
    use crate::observe::ThreadSample;
    use crate::set::CpuSet;

    fn info(id: u32) -> ThreadInfo {
        ThreadInfo {
            id: ThreadId(id),
            program: ProgramId(0),
            pid: 7,
            tid: 10 + id,
            name: "x".into(),
            home: CpuSet::new(),
            left: None,
            tagged: false,
        }
    }

    /// Which, how long it ran, and how long it was counted with how many busy cycles.
    type Read = (u32, u64, Option<(u64, u64)>);

    fn sample(reads: &[Read]) -> Sample {
        let read = |(id, run, busy): &Read| ThreadSample {
            id: ThreadId(*id),
            run: Span(*run),
            wait: None,
            slices: None,
            voluntary: None,
            cpu: None,
            ready: None,
            counts: busy.map(|(running, busy)| Counts {
                enabled: Span(running),
                running: Span(running),
                busy: Some(busy),
                requests: Some(busy / 100),
                ..Counts::default()
            }),
        };
        Sample {
            news: reads.iter().map(|(id, ..)| info(*id)).collect(),
            threads: reads.iter().map(read).collect(),
            ..Sample::default()
        }
    }

    #[test]
    fn what_was_counted_is_the_last_less_the_first() {
        let mut meter = Meter::default();
        meter.take(&sample(&[(0, 100, Some((10, 1_000))), (1, 5, None), (2, 9, Some((1, 1)))]));
        meter.take(&sample(&[(0, 150, None), (1, 95, None)]));
        meter.take(&sample(&[(0, 160, Some((40, 5_000))), (2, 9, None)]));
        let threads = meter.threads();
        assert_eq!(
            threads.iter().map(|thread| (thread.tid, thread.ran.0)).collect::<Vec<_>>(),
            [(11, 90), (10, 60)]
        );
        let counts = threads[1].counts.unwrap();
        assert_eq!((counts.running, counts.busy, counts.penalty()), (Span(30), Some(4_000), Some(100.0)));
        assert_eq!((threads[0].counts, counts.share()), (None, None), "missing is not zero");
    }

    #[test]
    fn counters_that_began_anew_are_not_taken_for_the_same() {
        let mut meter = Meter::default();
        meter.take(&sample(&[(0, 100, Some((10, 1_000)))]));
        meter.take(&sample(&[(0, 200, Some((5, 100)))]));
        assert_eq!(meter.threads()[0].counts, None);
        meter.take(&sample(&[(0, 300, Some((25, 600)))]));
        assert_eq!(meter.threads()[0].counts.unwrap().busy, Some(500));
    }
}
