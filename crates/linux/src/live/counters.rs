//! What the kernel counts of one thread, as text.

use super::files::{self, Budget};
use crate::process::{Pid, Stat, Tid};
use crate::text;
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, OwnedFd};
use trimtab_core::time::Span;

/// Which file counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// `schedstat`: nanoseconds on a CPU, nanoseconds waiting for one, times put on one.
    Schedstat,
    /// `stat`: clock ticks on a CPU, on kernels that were built without the other.
    Stat,
}

impl Source {
    /// What this kernel has. Whoever asks runs, so it was put on a CPU at least once: a kernel that does not count
    /// says zero.
    pub(super) fn of(proc: BorrowedFd<'_>) -> Self {
        let mut buffer = [0; 80];
        let counted = files::open(proc, "self/schedstat")
            .and_then(|file| files::read_start(&file, &mut buffer).map(<[u8]>::to_vec))
            .ok()
            .and_then(|text| Counters::parse_schedstat(&text));
        match counted {
            Some(Counters { run, slices, .. }) if run > Span::ZERO || slices != Some(0) => Self::Schedstat,
            _ => Self::Stat,
        }
    }

    fn file(self) -> &'static str {
        match self {
            Self::Schedstat => "schedstat",
            Self::Stat => "stat",
        }
    }
}

/// One reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Counters {
    pub(super) run: Span,
    pub(super) wait: Option<Span>,
    pub(super) slices: Option<u64>,
}

impl Counters {
    /// Reads three numbers: `1234 56 7`.
    pub(super) fn parse_schedstat(text: &[u8]) -> Option<Self> {
        let mut words = text::words(text);
        let mut next = || words.next().and_then(text::number::<u64>);
        Some(Self { run: Span(next()?), wait: Some(Span(next()?)), slices: Some(next()?) })
    }

    fn parse_stat(text: &[u8]) -> Option<Self> {
        let stat = Stat::parse(text).ok()?;
        Some(Self { run: stat.cpu_time().into(), wait: None, slices: None })
    }
}

/// Where a thread's counters are read.
#[derive(Debug, Default)]
pub(super) struct CounterFile(Option<OwnedFd>);

/// Why a thread's counters were not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unread {
    /// The thread has ended.
    Gone,
    /// Anything else; perhaps the next time.
    Trouble,
}

impl From<Errno> for Unread {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::SRCH | Errno::NOTDIR => Self::Gone,
            _ => Self::Trouble,
        }
    }
}

impl CounterFile {
    /// Reads the counters of this thread, and keeps its file if there is room.
    pub(super) fn read(
        &mut self,
        proc: BorrowedFd<'_>,
        (pid, tid): (Pid, Tid),
        source: Source,
        budget: &mut Budget,
    ) -> Result<Counters, Unread> {
        if let Some(file) = &self.0 {
            return parse(file, source);
        }
        let file = match files::open(proc, &format!("{pid}/task/{tid}/{}", source.file())) {
            Ok(file) => file,
            Err(errno) => {
                if matches!(errno, Errno::MFILE | Errno::NFILE) {
                    budget.stop_here();
                }
                return Err(errno.into());
            }
        };
        let counters = parse(&file, source)?;
        if budget.take() {
            self.0 = Some(file);
        }
        Ok(counters)
    }

    /// Whether a file is kept, and with it who the thread is.
    pub(super) fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Closes it.
    pub(super) fn close(&mut self, budget: &mut Budget) {
        if self.0.take().is_some() {
            budget.give_back();
        }
    }
}

fn parse(file: &OwnedFd, source: Source) -> Result<Counters, Unread> {
    let mut buffer = [0; 1024];
    match source {
        Source::Schedstat => Counters::parse_schedstat(files::read_start(file, &mut buffer[..80])?),
        Source::Stat => Counters::parse_stat(files::read_start(file, &mut buffer)?),
    }
    .ok_or(Unread::Trouble)
}

/// `voluntary_ctxt_switches` and `nonvoluntary_ctxt_switches` of a status file.
pub(super) fn switches(status: &[u8]) -> (Option<u64>, Option<u64>) {
    let number = |name: &[u8]| text::field(status, name).and_then(text::number);
    (number(b"voluntary_ctxt_switches:"), number(b"nonvoluntary_ctxt_switches:"))
}

/// The number of the process made last, from `loadavg`: `0.1 0.2 0.3 1/234 5678`.
pub(super) fn last_made(loadavg: &[u8]) -> Option<u32> {
    text::words(loadavg).nth(4).and_then(text::number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counters_are_read_or_missing() {
        let counted = Counters { run: Span(12), wait: Some(Span(34)), slices: Some(5) };
        assert_eq!(Counters::parse_schedstat(b"12 34 5\n"), Some(counted));
        for bad in [&b""[..], b"12", b"12 34", b"12 34 x", b"-1 2 3", b"99999999999999999999 1 1"] {
            assert_eq!(Counters::parse_schedstat(bad), None, "{bad:?}");
        }
        let status = b"Name:\tx\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t9\n";
        assert_eq!(switches(status), (Some(7), Some(9)));
        assert_eq!(switches(b"Name:\tx\n"), (None, None));
        assert_eq!(last_made(b"0.00 0.01 0.05 1/120 4711\n"), Some(4711));
        assert_eq!(last_made(b"0.00 0.01"), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (Counters::parse_schedstat(&bytes), Counters::parse_stat(&bytes));
            let _ = (switches(&bytes), last_made(&bytes));
        }
    }
}
