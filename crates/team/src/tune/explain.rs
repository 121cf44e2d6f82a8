//! Explanations as text: the algorithm of a call, the reason for it, and the other measurements.

use super::{Cell, Job, Origin, Tuning, store};
use crate::algorithm_table::{Algorithm, CallClass, Flat, class};
use crate::call::Kind;
use crate::rank::Rank;
use std::fmt::Write as _;

impl Rank {
    /// Returns in words how a call with blocks of `bytes` bytes is carried out.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::Kind;
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// let words = rank.explain(Kind::Allreduce, 8);
    /// assert_eq!(words, "allreduce of 8 bytes: beside the flags, in one round");
    /// # Ok(())
    /// # });
    /// ```
    pub fn explain(&self, kind: Kind, bytes: usize) -> String {
        self.explain_in(CallClass::Mine, kind, bytes)
    }

    /// Returns in words how a call of `bytes` bytes of this class is carried out: the algorithm,
    /// whether and when it was measured, and the other measurements.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::Kind;
    /// use trimtab_team::algorithm_table::CallClass;
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// let words = rank.explain_in(CallClass::Loose, Kind::Broadcast, 1 << 20);
    /// assert!(words.starts_with("broadcast of 1048576 bytes: "), "{words}");
    /// # Ok(())
    /// # });
    /// ```
    pub fn explain_in(&self, manner: CallClass, kind: Kind, bytes: usize) -> String {
        let table = self.table();
        if kind == Kind::Barrier {
            let many = if self.crowded() { "more ranks than CPUs" } else { "a CPU for each rank" };
            let evidence = self.evidence(Job { kind, bytes: 0, manner: CallClass::Mine });
            let why = match &evidence {
                Some(cell) => words(cell),
                None => "as usual: nothing was measured of it".to_owned(),
            };
            return format!("barrier: {}; {many}; {why}", format!("{:?}", table.barrier).to_lowercase());
        }
        if bytes <= crate::flag::INLINE_BYTES {
            return format!("{} of {bytes} bytes: beside the flags, in one round", kind.name());
        }
        let cell = self.endpoint.area.cell_bytes();
        let way = match Flat::new(table.clone()).way(manner, kind, bytes, cell, self.crowded()) {
            Algorithm::Whole => format!("in rounds of up to {cell} bytes"),
            Algorithm::Pieces(log) => format!("in rounds of {} bytes", 1_u64 << log),
            Algorithm::Slices(log) => {
                format!("in pieces of {} bytes, each rank combining its slice", 1_u64 << log)
            }
            Algorithm::Wide => {
                "in pieces as large as all of a rank's cells, each rank combining its slice".to_owned()
            }
            Algorithm::Tree(log) => format!("from rank to rank, each to up to {} others", 1_u64 << log),
            Algorithm::Relayed => {
                "to one rank of each group that shares a cache, and from there to the others".to_owned()
            }
        };
        let resident = match kind {
            _ if bytes < crate::collectives::RESIDENT_BYTES_MIN => "",
            _ if self.endpoint.buffers.direct.get() => {
                "; but for calls that were started or have an operator of their own, threads of one process take it from where it is"
            }
            _ if self.endpoint.pulls(kind, bytes) => {
                "; but for calls that were started or have an operator of their own, ranks read it from each other's memory"
            }
            Kind::Allreduce => "; without staging where all buffers lie in the segment",
            _ => "; without staging where inputs lie in the segment",
        };
        let why = match table.chosen(manner, kind, class(bytes)) {
            None => {
                let watched = self.lazy.as_ref().and_then(|lazy| lazy.state(Job { kind, bytes, manner }));
                let so_far = watched.unwrap_or_else(|| "nothing was measured of it".to_owned());
                format!("as usual: {so_far}")
            }
            Some((_, near)) => {
                let evidence = self.evidence(Job { kind, bytes, manner: near });
                let mut why = evidence.map_or_else(|| "as was measured here".to_owned(), |cell| words(&cell));
                if near != manner {
                    let _ = write!(why, " (measured of {} calls)", near.word());
                }
                why
            }
        };
        format!("{} of {bytes} bytes: {way}{resident}; {why}", kind.name())
    }

    /// Returns the measurements behind a choice in force: from this team's own tuning, or kept.
    fn evidence(&self, job: Job) -> Option<Cell> {
        if let Some(cell) = self.lazy.as_ref().and_then(|lazy| lazy.found(job)) {
            return Some(cell);
        }
        let own = self.evidence.borrow().iter().rev().find(|cell| cell.is_of(job)).cloned();
        own.or_else(|| {
            let kept: Tuning = store::kept(|| self.key())?;
            // It may have been tuned again since this team began.
            let cell = kept.cell(job)?.clone();
            (super::in_force(&self.endpoint, &self.table(), job) == cell.winner().tried).then_some(cell)
        })
    }
}

/// Returns a verdict and the other measurements in words.
fn words(cell: &Cell) -> String {
    let when = match cell.origin {
        Origin::Offline => "as was measured here beforehand",
        Origin::Lazy => "as was measured here in this program's own calls",
    };
    let mut text = format!("{when}: {}", cell.verdict.why);
    let mut others: Vec<String> = Vec::new();
    for measured in cell.candidates.iter().filter(|measured| measured.best.is_some()) {
        others.push(format!("{} {:.2} us", measured.tried, measured.best.unwrap_or_default()));
    }
    if !others.is_empty() {
        let _ = write!(text, " ({})", others.join(", "));
    }
    text
}
