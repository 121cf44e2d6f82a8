//! Processor identification, as far as events depend on it.

use crate::text;
use std::fmt;
use std::path::Path;

/// A processor, by its maker's numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cpu {
    /// Identified by `cpuid`.
    X86 {
        /// `GenuineIntel`, `AuthenticAMD`, ...
        vendor: String,
        /// The family, with the extended one added as the kernel does.
        family: u32,
        /// The model, in the same way.
        model: u32,
    },
    /// Identified by the register `MIDR`.
    Arm {
        /// The designer: 0x41 is Arm.
        implementer: u32,
        /// The number of the design.
        part: u32,
    },
}

impl Cpu {
    /// Returns the processor of this machine, if its kernel reports it.
    pub fn here(proc: &Path, sys: &Path) -> Option<Self> {
        let cpuinfo = text::read(&proc.join("cpuinfo")).unwrap_or_default();
        let midr = || text::read(&sys.join("devices/system/cpu/cpu0/regs/identification/midr_el1")).ok();
        Self::parse(&cpuinfo).or_else(|| Self::parse_midr(&midr()?))
    }

    /// Parses the kernel's `cpuinfo`: the first processor in it.
    pub fn parse(cpuinfo: &[u8]) -> Option<Self> {
        let value = |name: &[u8]| {
            let rest = text::field(cpuinfo, name)?;
            // As in `cpu family : 25`. Of `model` and `model name`, the one with nothing between
            // the name and the colon.
            let (before, after) = rest.split_at(rest.iter().position(|&byte| byte == b':')?);
            before.trim_ascii().is_empty().then(|| after[1..].trim_ascii())
        };
        let hexadecimal = |name: &[u8]| {
            let word = std::str::from_utf8(value(name)?).ok()?;
            u32::from_str_radix(word.strip_prefix("0x")?, 16).ok()
        };
        let x86 = || {
            let model = cpuinfo
                .split(|&byte| byte == b'\n')
                .filter_map(|line| line.strip_prefix(b"model"))
                .find_map(|rest| rest.trim_ascii_start().strip_prefix(b":").and_then(text::number));
            Some(Self::X86 {
                vendor: text::printable(value(b"vendor_id")?),
                family: text::number(value(b"cpu family")?)?,
                model: model?,
            })
        };
        let arm = || {
            Some(Self::Arm { implementer: hexadecimal(b"CPU implementer")?, part: hexadecimal(b"CPU part")? })
        };
        x86().or_else(arm)
    }

    /// Parses the kernel's `midr_el1`: `0x00000000410fd0c0`.
    pub fn parse_midr(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.trim();
        let midr = u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()?;
        let bits = |low: u32, width: u32| u32::try_from(midr >> low & ((1 << width) - 1)).unwrap_or(0);
        Some(Self::Arm { implementer: bits(24, 8), part: bits(4, 12) })
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::X86 { vendor, family, model } => write!(f, "{vendor} family {family:#x} model {model:#x}"),
            Self::Arm { implementer, part } => write!(f, "implementer {implementer:#x} part {part:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn processors_are_read_from_the_kernels_texts() {
        let amd = b"processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7763 : x\n";
        let zen = Cpu::X86 { vendor: "AuthenticAMD".into(), family: 25, model: 1 };
        assert_eq!(Cpu::parse(amd), Some(zen.clone()));
        assert_eq!(zen.to_string(), "AuthenticAMD family 0x19 model 0x1");
        let swapped = b"vendor_id : X\nmodel name\t: model : 7\ncpu family : 6\nmodel : 9\n";
        assert_eq!(Cpu::parse(swapped), Some(Cpu::X86 { vendor: "X".into(), family: 6, model: 9 }));
        let arm = b"processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n";
        let neoverse = Cpu::Arm { implementer: 0x41, part: 0xd0c };
        assert_eq!(Cpu::parse(arm), Some(neoverse.clone()));
        assert_eq!(Cpu::parse_midr(b"0x00000000413fd0c1\n"), Some(neoverse));
        assert_eq!(Cpu::parse(b"processor : 0\nmachine : PowerNV\n"), None);
        assert_eq!((Cpu::parse_midr(b"413fd0c1"), Cpu::parse_midr(b"")), (None, None));
    }

    #[test]
    fn the_processor_of_this_machine_is_known_on_x86_and_arm() {
        let here = Cpu::here(Path::new("/proc"), Path::new("/sys"));
        assert!(here.is_some() || !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")));
        let folder = tempfile::tempdir().unwrap();
        let (proc, sys) = (folder.path().join("proc"), folder.path().join("sys"));
        assert_eq!(Cpu::here(&proc, &sys), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "((vendor_id|model|cpu family|CPU part)[\\t ]*:? ?[0-9a-fx]{0,12}\\n){0,6}") {
            let _ = (Cpu::parse(&bytes), Cpu::parse_midr(&bytes), Cpu::parse(text.as_bytes()));
        }
    }
}
