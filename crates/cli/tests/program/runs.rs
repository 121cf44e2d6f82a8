//! Recorded runs that never were: traces of any size, from a script.

use trimtab_core::balance::{
    Act, Decision, Finding, Kind, Outcome, Reason, Refusal, Settings, Settled, Turn,
};
use trimtab_core::ids::{Id, OsCpu, ProgramId, ThreadId};
use trimtab_core::observe::{CpuSample, ProgramInfo, Sample, ThreadInfo, ThreadSample};
use trimtab_core::time::{Moment, Span};
use trimtab_core::topology::parse_synthetic;
use trimtab_core::trace::{End, Header, Line, StepRecord, VERSION};

const STEP: u64 = 100_000_000;

/// What is recorded.
pub(crate) struct Run {
    pub(crate) machine: &'static str,
    pub(crate) threads: u32,
    pub(crate) steps: u64,
    /// Put behind the names of program and threads.
    pub(crate) suffix: String,
    /// Whether the trace has its last line.
    pub(crate) end: bool,
}

impl Default for Run {
    fn default() -> Self {
        let machine = "pack:2 numa:1 l3:1 core:4 pu:1";
        Self { machine, threads: 12, steps: 120, suffix: String::new(), end: true }
    }
}

impl Run {
    /// The trace's lines. Threads outnumber cores and change places; one is born late, one ends early, one sleeps.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let machine = parse_synthetic(self.machine).unwrap();
        let cpus: Vec<OsCpu> = machine.cpus().iter().collect();
        let header = Header {
            version: VERSION,
            policy: Kind::Exchange,
            settings: Settings { seed: 7, ..Settings::default() },
            command: format!("./solver --grid 512{}", self.suffix),
            began: Some(1_795_000_000),
            usable: machine.cpus(),
            machine,
        };
        let mut lines = vec![Line::Header(Box::new(header))];
        let mut clock = vec![[0_u64; 2]; self.threads as usize];
        let mut busy = vec![0_u64; cpus.len()];
        for step in 0..self.steps {
            let record = self.step(step, &cpus, &mut clock, &mut busy);
            lines.push(Line::Step(Box::new(record)));
        }
        if self.end {
            lines.push(Line::End(End { why: "the program ended".to_owned(), status: Some(0) }));
        }
        lines
    }

    /// The whole file.
    pub(crate) fn text(&self) -> String {
        self.lines().iter().map(|line| line.encode() + "\n").collect()
    }

    fn step(&self, step: u64, cpus: &[OsCpu], clock: &mut [[u64; 2]], busy: &mut [u64]) -> StepRecord {
        let born = |id: u32| if id == 3 { self.steps / 3 } else { 0 };
        let lives = |id: u32| step >= born(id) && (id != 2 || step < self.steps / 2);
        // Every tenth step neighbours change places.
        let place = |id: u32| (u64::from(id) + step / 10) as usize % cpus.len();
        let load =
            |at: usize| (0..self.threads).filter(|&id| id > 0 && lives(id) && place(id) == at).count() as u64;
        let mut sample = Sample { at: Moment(1_000 + step * STEP), ..Sample::default() };
        if step == 0 {
            let name = format!("solver{}", self.suffix);
            sample.programs = vec![ProgramInfo { id: ProgramId(0), pid: 4_000, name }];
        }
        for id in (0..self.threads).filter(|&id| lives(id)) {
            if step == born(id) {
                sample.news.push(ThreadInfo {
                    id: ThreadId(id),
                    program: ProgramId(0),
                    pid: 4_000,
                    tid: 4_000 + id,
                    name: if id == 0 { "main".to_owned() } else { format!("worker-{id}{}", self.suffix) },
                    home: cpus.iter().copied().collect(),
                    left: None,
                    tagged: false,
                });
            }
            let [run, wait] = &mut clock[id as usize];
            if step > born(id) && id > 0 {
                let crowd = load(place(id)).max(1);
                *run += STEP / crowd;
                *wait += STEP - STEP / crowd;
            }
            sample.threads.push(ThreadSample {
                id: ThreadId(id),
                run: Span(*run),
                wait: Some(Span(*wait)),
                slices: None,
                ready: None,
                voluntary: Some(if id == 0 { step } else { 0 }),
                cpu: Some(cpus[place(id)]),
                counts: None,
            });
        }
        if step + step % 2 == self.steps / 2 && self.threads > 2 {
            sample.gone.push(ThreadId(2));
        }
        for (at, cpu) in cpus.iter().enumerate() {
            // The first CPU has a guest besides.
            let others = if at == 0 { STEP } else { STEP / 50 };
            busy[at] += if load(at) > 0 { STEP } else { others };
            sample.cpus.push(CpuSample { cpu: *cpu, busy: Span(busy[at]), steal: None });
        }
        let (turn, outcomes) = self.turn(step, cpus);
        StepRecord { sample, turn, outcomes }
    }

    fn turn(&self, step: u64, cpus: &[OsCpu]) -> (Turn, Vec<Outcome>) {
        let mut turn = Turn { next: Moment(1_000 + (step + 1) * STEP), ..Turn::default() };
        if step == 1 {
            let of = u32::try_from(cpus.len()).unwrap();
            turn.findings = vec![Finding::Uneven { threads: self.threads, cpus: of }];
        }
        if step % 10 == 5 && self.threads > 5 {
            let to = |id: u32| [cpus[(id as usize + step as usize) % cpus.len()]].into_iter().collect();
            let by = Span::from_ms(40);
            let pair = [
                (4, Reason::Behind { by, partner: ThreadId(5) }),
                (5, Reason::Ahead { by, partner: ThreadId(4) }),
            ];
            turn.decisions = pair
                .into_iter()
                .map(|(id, reason)| Decision {
                    thread: ThreadId::from_index(id),
                    act: Act::Confine(to(id as u32)),
                    reason,
                    gain: Some(0.12),
                })
                .collect();
        }
        let refused = step % 30 == 25;
        let end = if refused { Settled::Refused(Refusal::MovedMeanwhile) } else { Settled::Applied };
        let outcomes = turn.decisions.iter().map(|one| Outcome { thread: one.thread, end });
        let outcomes = outcomes.collect();
        (turn, outcomes)
    }
}
