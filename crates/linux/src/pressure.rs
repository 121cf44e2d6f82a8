//! Pressure stall information: the time in which tasks could not go on for lack of a resource.
//!
//! The kernel adds up, for the machine, the time in which some task waited for CPU, memory or I/O,
//! and the time in which all of them did. Reading takes microseconds, for any number of threads. It
//! tells that a program is held up and by which resource, but not which thread, and not whether
//! memory is near or far.

use crate::text;
use std::path::Path;
use std::time::Duration;

/// Resource for which tasks wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PressureOf {
    /// A CPU.
    Cpu,
    /// Memory: reclaim, swapped-out pages, refaults.
    Memory,
    /// Blocks of a device.
    Io,
}

impl PressureOf {
    /// All resources.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Io];

    /// Returns the kernel's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Io => "io",
        }
    }
}

/// Stalls for one resource since the start of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pressure {
    /// The resource.
    pub of: PressureOf,
    /// Time in which some task waited.
    pub some: Duration,
    /// Time in which all tasks waited; `None` on kernels that do not count it.
    pub full: Option<Duration>,
}

/// Reads the pressure of the whole machine; resources that the kernel does not count are left out.
pub fn of_machine(proc: &Path) -> Vec<Pressure> {
    let one = |of: PressureOf| parse(of, &text::read(&proc.join("pressure").join(of.word())).ok()?);
    PressureOf::ALL.into_iter().filter_map(one).collect()
}

/// Parses `some avg10=0.00 avg60=0.00 avg300=0.00 total=12`, and the same with `full`.
fn parse(of: PressureOf, text: &[u8]) -> Option<Pressure> {
    let total = |name: &[u8]| {
        let line = text.split(|&byte| byte == b'\n').find(|line| text::words(line).next() == Some(name))?;
        let total = text::words(line).find_map(|word| word.strip_prefix(b"total="))?;
        text::number(total).map(Duration::from_micros)
    };
    Some(Pressure { of, some: total(b"some")?, full: total(b"full") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn totals_are_microseconds() {
        let text = b"some avg10=1.50 avg60=0.20 avg300=0.00 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        let found = parse(PressureOf::Memory, text).unwrap();
        assert_eq!((found.some, found.full), (Duration::from_millis(2_500), Some(Duration::from_micros(7))));
        let older = parse(PressureOf::Cpu, b"some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n").unwrap();
        assert_eq!((older.some, older.full), (Duration::from_micros(9), None));
        for bad in [&b""[..], b"full total=1", b"some avg10=1", b"some total=x", b"some total=-1"] {
            assert_eq!(parse(PressureOf::Io, bad), None, "{bad:?}");
        }
    }

    #[test]
    fn each_resource_of_the_machine_has_a_file() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("pressure")).unwrap();
        std::fs::write(root.path().join("pressure/memory"), "some total=1\nfull total=0\n").unwrap();
        let all =
            |found: Vec<Pressure>| found.iter().map(|one| (one.of, one.some.as_micros())).collect::<Vec<_>>();
        assert_eq!(all(of_machine(root.path())), [(PressureOf::Memory, 1)]);
        assert!(of_machine(Path::new("/nowhere")).is_empty());
    }

    #[test]
    fn waiting_for_a_cpu_is_pressure_here() {
        let proc = Path::new("/proc");
        let Some(before) = of_machine(proc).into_iter().find(|one| one.of == PressureOf::Cpu) else {
            return crate::skip::skipped("this kernel does not count pressure");
        };
        // More threads than CPUs compute: one of them waits at each moment.
        let threads = 2 * std::thread::available_parallelism().map_or(1, usize::from) + 1;
        let begin = std::time::Instant::now();
        let busy = || while begin.elapsed() < Duration::from_millis(300) {};
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(busy))));
        let after = of_machine(proc).into_iter().find(|one| one.of == PressureOf::Cpu).unwrap();
        assert!(after.some > before.some, "{before:?} {after:?}");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(PressureOf::Cpu, &bytes);
        }
    }
}
