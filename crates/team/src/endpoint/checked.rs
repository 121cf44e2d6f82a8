//! Checked calls: a mode that compares all ranks' calls before data moves, fills output buffers
//! until the data is there, and reports the calls of all ranks when a team fails or hangs.
//!
//! **Properties.** A checked call has one more barrier, by dissemination: a rank passes it only if
//! every rank has posted the same signature. So a difference is an error at all ranks in the same
//! call. The report goes to standard error, to which the library writes nothing else.

use super::{ALL_RANKS, Endpoint};
use crate::call::{CollectiveCall, Kind, Posted, describe};
use crate::shared_layout::Cause;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

/// Byte with which outputs are filled: not a number as a float, -1 as an integer.
pub const POISON: u8 = 0xff;
/// Time that a checked call waits before the calls of all ranks are reported.
pub const HANG_REPORT_AFTER: Duration = Duration::from_secs(10);

impl Endpoint {
    /// Sets whether calls are checked. All ranks set the same between the same calls.
    pub(crate) fn set_checked(&self, checked: bool) {
        self.checked.set(checked);
    }

    /// Returns whether calls are checked.
    #[inline(always)]
    pub fn is_checked(&self) -> bool {
        self.checked.get()
    }

    /// Fills the output of a call that has not begun to move data, unless it overlaps the input.
    ///
    /// # Safety
    /// As [`Endpoint::carry_out`].
    pub(crate) unsafe fn poison(&self, call: &CollectiveCall) {
        let (gives, gets) = call.kind.shape(self.ranks(), call.count, self.rank == call.root);
        let size = call.elements.size();
        let (from, to) = (call.input as usize, call.output as usize);
        let overlaps = from < to + gets * size && to < from + gives * size;
        // Rank 0 of an exclusive scan keeps its output.
        let keeps = call.kind == Kind::Exscan && self.rank == 0;
        if gets > 0 && !overlaps && !keeps {
            // SAFETY: the output is valid for as many bytes, by the caller's promise.
            unsafe { std::ptr::write_bytes(call.output, POISON, gets * size) };
        }
    }

    /// Fills this rank's part of a freed block, which no rank uses any more.
    ///
    /// # Safety
    /// As [`std::ptr::write_bytes`].
    pub(crate) unsafe fn poison_block(&self, block: *mut u8, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::write_bytes(block, POISON, bytes) };
    }

    /// Returns the last calls and changes of the heap of all ranks, the CPU on which each waited
    /// last, and for which rank each waits, as text of a line each.
    pub fn report(&self) -> String {
        let mut text = String::new();
        for rank in 0..self.ranks() {
            let lines = self.area.lines(rank);
            let liveness = &self.waits.liveness;
            let state = match (liveness.left(rank), liveness.gone(rank)) {
                (true, _) => "has left",
                (false, true) => "has died",
                (false, false) => "is alive",
            };
            let place = lines.quota.cpu().map_or(String::new(), |cpu| format!(" on CPU {cpu}"));
            let own = if rank == self.rank { " (this rank)" } else { "" };
            let waits = match lines.intent.waits_for() {
                Some(ALL_RANKS) => " and waits for all ranks".to_owned(),
                Some(of) if of < self.ranks() => format!(" and waits for rank {of}"),
                _ => String::new(),
            };
            let _ = writeln!(text, "rank {rank}{own} {state}{place}{waits}; its last calls:");
            let line = |said: &Posted| describe(said.what, said.count, said.root);
            for said in lines.calls.all() {
                let _ = writeln!(text, "  call {}: {}", said.number, line(&said));
            }
            for said in lines.blocks.all() {
                let _ = writeln!(text, "  heap change {}: {}", said.number, line(&said));
            }
        }
        text
    }

    /// Reports the calls of all ranks when this rank gives the team up.
    #[cold]
    pub(super) fn report_end(&self, cause: Cause, rank: u32) {
        let why = match cause {
            Cause::Died => format!("rank {rank} has died"),
            Cause::Left => format!("rank {rank} has left"),
            Cause::Mismatch => "the ranks made different calls".to_owned(),
            Cause::Timeout => "a rank has waited for too long".to_owned(),
        };
        let _ = writeln!(
            std::io::stderr(),
            "trimtab-team: {why}; rank {} reports all ranks:\n{}",
            self.rank,
            self.report()
        );
    }

    /// Reports the calls of all ranks once for each call that hangs.
    #[cold]
    pub(super) fn report_hang(&self, waited: Duration) {
        let number = self.posted.get().number;
        if waited < HANG_REPORT_AFTER || self.hang_reported.replace(number) == number {
            return;
        }
        let _ = writeln!(
            std::io::stderr(),
            "trimtab-team: rank {} waits in call {number} for {} s; all ranks:\n{}",
            self.rank,
            waited.as_secs(),
            self.report()
        );
    }
}
