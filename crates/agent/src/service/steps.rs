//! Steps of the service's loop: they are explained (`trimtab status --why`, metrics), and moves
//! that are only observed are reported.

use super::SharedState;
use crate::narrator::Narrator;
use crate::step_sinks::StepSink;
use std::collections::BTreeMap;
use std::sync::Arc;
use trimtab_core::balance::{Act, Refusal, Settled};
use trimtab_core::drive::Step;
use trimtab_core::ids::{ProgramId, ThreadId};
use trimtab_core::tags::would;
use trimtab_core::time::{Moment, Span};
use trimtab_core::words::plural;

/// Least time between two reports about one program. Chosen: a log that a person reads.
const REPORT_PERIOD: Span = Span::from_ms(10_000);
/// Bound of the programs and threads with remembered reports.
const REMEMBERED_MAX: usize = 8_192;

/// Reports of moves that are only observed: one for each new move, and not too many of a program.
#[derive(Debug, Default)]
struct Reports {
    /// What each thread would have been moved to.
    told: BTreeMap<ThreadId, Act>,
    /// Time of the last report of each program, and the number of moves that were not reported
    /// since.
    programs: BTreeMap<ProgramId, (Moment, u64)>,
}

impl Reports {
    /// Returns the lines for a step.
    fn lines(&mut self, step: &Step<'_>, now: Moment) -> Vec<String> {
        for id in step.seen.gone {
            self.told.remove(id);
        }
        if self.told.len() > REMEMBERED_MAX || self.programs.len() > REMEMBERED_MAX {
            *self = Self::default();
        }
        let mut lines = Vec::new();
        for (decision, outcome) in step.turn.decisions.iter().zip(step.outcomes) {
            let observed = outcome.end == Settled::Refused(Refusal::Observed);
            if !observed || self.told.get(&decision.thread) == Some(&decision.act) {
                continue;
            }
            self.told.insert(decision.thread, decision.act.clone());
            let Some(view) = step.seen.threads.iter().find(|view| view.id() == decision.thread) else {
                continue;
            };
            let info = view.info;
            let last = self.programs.get(&info.program).copied();
            if let Some((at, passed_over)) = last.filter(|(at, _)| now.since(*at) < REPORT_PERIOD) {
                self.programs.insert(info.program, (at, passed_over + 1));
                continue;
            }
            self.programs.insert(info.program, (now, 0));
            let more = match last {
                Some((_, more)) if more > 0 => {
                    format!("; {} since the last line about this program", plural(more, "more move"))
                }
                _ => String::new(),
            };
            lines.push(format!(
                "observed: thread {} ({}) of process {} {}: {}{more}",
                info.tid,
                info.name,
                info.pid,
                would(&decision.act),
                decision.reason
            ));
        }
        lines
    }
}

/// Sink of the service's steps.
#[derive(Debug)]
pub(super) struct ServiceSteps {
    shared: SharedState,
    narrator: Arc<dyn Narrator>,
    reports: Reports,
}

impl ServiceSteps {
    pub(super) fn new(shared: SharedState, narrator: Arc<dyn Narrator>) -> Self {
        Self { shared, narrator, reports: Reports::default() }
    }
}

impl StepSink for ServiceSteps {
    fn take(&mut self, step: &Step<'_>) {
        let now = self.shared.now();
        self.shared.explainer().take(step, now);
        for line in self.reports.lines(step, now) {
            self.narrator.notice(&line);
        }
    }
}
