//! Counters of one thread that the kernel shows as text: `schedstat`, `stat` and `status`.

use crate::host::procfs::{self, DescriptorBudget};
use crate::process::{Pid, Stat, Tid};
use crate::text;
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, OwnedFd};
use trimtab_core::time::Span;

/// The file that has the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// `schedstat`: nanoseconds on a CPU, nanoseconds waiting for one, times put on one.
    Schedstat,
    /// `stat`: clock ticks on a CPU, for kernels that were built without `schedstat`.
    Stat,
}

impl Source {
    /// Returns the source that this kernel has. The caller is running, so it was put on a CPU at
    /// least once: a kernel that does not count shows zero.
    pub(super) fn of(proc: BorrowedFd<'_>) -> Self {
        let mut buffer = [0; 80];
        let counted = procfs::open(proc, "self/schedstat")
            .and_then(|file| procfs::read_start(&file, &mut buffer).map(<[u8]>::to_vec))
            .ok()
            .and_then(|text| ThreadCounters::parse_schedstat(&text));
        match counted {
            Some(ThreadCounters { run, slices, .. }) if run > Span::ZERO || slices != Some(0) => {
                Self::Schedstat
            }
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

/// One reading of a thread's counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::host) struct ThreadCounters {
    pub(in crate::host) run: Span,
    pub(in crate::host) wait: Option<Span>,
    pub(in crate::host) slices: Option<u64>,
}

impl ThreadCounters {
    /// Parses three numbers: `1234 56 7`.
    pub(in crate::host) fn parse_schedstat(text: &[u8]) -> Option<Self> {
        let mut words = text::words(text);
        let mut next = || words.next().and_then(text::number::<u64>);
        Some(Self { run: Span(next()?), wait: Some(Span(next()?)), slices: Some(next()?) })
    }

    fn parse_stat(text: &[u8]) -> Option<Self> {
        let stat = Stat::parse(text).ok()?;
        Some(Self { run: stat.cpu_time().into(), wait: None, slices: None })
    }
}

/// A file of a thread that is read repeatedly, and kept open if there is room.
#[derive(Debug, Default)]
pub(super) struct KeptFile(Option<OwnedFd>);

/// The files of a thread that are read in most samples.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// Counters.
    counters: KeptFile,
    /// CPU and state of the thread. Only kept while there is room for the counters of as many
    /// threads again: the counters are read more often.
    stat: KeptFile,
}

/// Reason why a thread's counters were not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unread {
    /// The thread has ended.
    Gone,
    /// Any other failure; the next reading may succeed.
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

impl KeptFile {
    /// Reads from the start into the buffer. `keep` returns whether there is room to keep the file
    /// open.
    fn read<'a>(
        &mut self,
        open: impl FnOnce() -> Result<OwnedFd, Errno>,
        keep: impl FnOnce() -> bool,
        buffer: &'a mut [u8],
    ) -> Result<&'a [u8], Errno> {
        if let Some(file) = &self.0 {
            return procfs::read_start(file, buffer);
        }
        let file = open()?;
        let read = procfs::read_start(&file, buffer)?;
        if keep() {
            self.0 = Some(file);
        }
        Ok(read)
    }
}

impl Files {
    /// Reads the counters of this thread.
    pub(super) fn counters(
        &mut self,
        proc: BorrowedFd<'_>,
        (pid, tid): (Pid, Tid),
        source: Source,
        budget: &DescriptorBudget,
    ) -> Result<ThreadCounters, Unread> {
        let mut buffer = [0; 1024];
        let (file, buffer) = match source {
            Source::Schedstat => (&mut self.counters, &mut buffer[..80]),
            Source::Stat => (&mut self.counters, &mut buffer[..]),
        };
        let open = || procfs::open(proc, &format!("{pid}/task/{tid}/{}", source.file()));
        let mut full = false;
        let read = file.read(
            || open().inspect_err(|errno| full = matches!(*errno, Errno::MFILE | Errno::NFILE)),
            || budget.take(),
            buffer,
        );
        let read = match read {
            Ok(read) => read,
            Err(errno) => {
                if full {
                    budget.stop_here();
                }
                return Err(errno.into());
            }
        };
        match source {
            Source::Schedstat => ThreadCounters::parse_schedstat(read),
            Source::Stat => ThreadCounters::parse_stat(read),
        }
        .ok_or(Unread::Trouble)
    }

    /// Reads CPU and state of the thread; `None` if the text cannot be parsed.
    pub(super) fn stat(
        &mut self,
        proc: BorrowedFd<'_>,
        (pid, tid): (Pid, Tid),
        budget: &DescriptorBudget,
    ) -> Result<Option<Stat>, Unread> {
        let mut buffer = [0; 1024];
        let open = || procfs::open(proc, &format!("{pid}/task/{tid}/stat"));
        Ok(Stat::parse(self.stat.read(open, || budget.take_spare(), &mut buffer)?).ok())
    }

    /// The same as [`Self::stat`], and keeps no file open that was not.
    pub(super) fn stat_once(
        &mut self,
        proc: BorrowedFd<'_>,
        (pid, tid): (Pid, Tid),
    ) -> Result<Option<Stat>, Unread> {
        let mut buffer = [0; 1024];
        let open = || procfs::open(proc, &format!("{pid}/task/{tid}/stat"));
        Ok(Stat::parse(self.stat.read(open, || false, &mut buffer)?).ok())
    }

    /// Returns whether the file of the counters is kept, and with it the identity of the thread.
    pub(super) fn show_identity(&self) -> bool {
        self.counters.0.is_some()
    }

    /// Closes both files.
    pub(super) fn close(&mut self, budget: &DescriptorBudget) {
        for file in [&mut self.counters, &mut self.stat] {
            if file.0.take().is_some() {
                budget.give_back();
            }
        }
    }
}

/// Returns `voluntary_ctxt_switches` and `nonvoluntary_ctxt_switches` of a status file.
pub(in crate::host) fn switches(status: &[u8]) -> (Option<u64>, Option<u64>) {
    let number = |name: &[u8]| text::field(status, name).and_then(text::number);
    (number(b"voluntary_ctxt_switches:"), number(b"nonvoluntary_ctxt_switches:"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counters_are_read_or_missing() {
        let counted = ThreadCounters { run: Span(12), wait: Some(Span(34)), slices: Some(5) };
        assert_eq!(ThreadCounters::parse_schedstat(b"12 34 5\n"), Some(counted));
        for bad in [&b""[..], b"12", b"12 34", b"12 34 x", b"-1 2 3", b"99999999999999999999 1 1"] {
            assert_eq!(ThreadCounters::parse_schedstat(bad), None, "{bad:?}");
        }
        let status = b"Name:\tx\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t9\n";
        assert_eq!(switches(status), (Some(7), Some(9)));
        assert_eq!(switches(b"Name:\tx\n"), (None, None));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (ThreadCounters::parse_schedstat(&bytes), ThreadCounters::parse_stat(&bytes));
            let _ = switches(&bytes);
        }
    }
}
