//! One sample as JSON.

use super::scene::Around;
use serde::Serialize;
use trimtab_core::balance::Finding;
use trimtab_core::observe::Metric;
use trimtab_core::set::CpuSet;
use trimtab_core::telemetry::account::{Account, CpuAccount, Move, ProgramAccount, ThreadAccount};
use trimtab_core::time::Span;
use trimtab_core::topology::{Machine, draw};
use trimtab_hold::holds::HoldRow;

/// Schema of the JSON document.
pub const SCHEMA: &str = "trimtab.top/1";

#[derive(Serialize)]
struct SampleJson<'a> {
    schema: &'static str,
    machine: String,
    metric: Metric,
    watched_ns: Span,
    steps: u64,
    programs: Vec<&'a ProgramAccount>,
    threads: Vec<&'a ThreadAccount>,
    cpus: &'a [CpuAccount],
    holds: &'a [HoldRow],
    held: &'a CpuSet,
    pinned: &'a CpuSet,
    throttled: Option<f64>,
    findings: &'a [Finding],
    moves: Vec<&'a Move>,
    notes: &'a [String],
}

/// Formats the sample.
///
/// # Errors
/// It cannot be written as JSON.
pub(super) fn document(machine: &Machine, account: &Account, around: &Around) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&SampleJson {
        schema: SCHEMA,
        machine: draw::summary(machine),
        metric: account.metric(),
        watched_ns: account.watched(),
        steps: account.steps(),
        programs: account.programs().collect(),
        threads: account.threads().collect(),
        cpus: account.cpus(),
        holds: &around.holds,
        held: &around.taken.held,
        pinned: &around.taken.pinned,
        throttled: account.throttled(),
        findings: account.findings(),
        moves: account.moves().collect(),
        notes: &around.notes,
    })
}
