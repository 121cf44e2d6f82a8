//! Transparent huge pages: the switch for a program, and the system's default.

use crate::sys::prctl::{self, ThpDisable};
use crate::text::{self, ReadError};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use trimtab_core::place::HugePages;

/// Outcome of a request for huge pages.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HugePagesOutcome {
    /// The planned setting.
    pub asked: HugePages,
    /// The setting of the process now, read back: `inherit` when the system's setting applies.
    /// `None` when it could not be read.
    pub now: Option<HugePages>,
    /// Reason why the request was refused; the inherited setting is then unchanged.
    pub refused: Option<HugePagesRefusal>,
}

impl HugePagesOutcome {
    /// Returns whether the request was granted, as far as could be seen. Changing nothing is always
    /// granted.
    pub fn is_as_asked(&self) -> bool {
        self.refused.is_none()
    }

    /// Returns whether the request was granted and reading back confirmed it.
    pub fn is_verified(&self) -> bool {
        self.asked == HugePages::Inherit || self.now == Some(self.asked)
    }
}

/// Reason why huge pages could not be switched off for a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "cause")]
pub enum HugePagesRefusal {
    /// `advised` on a kernel that does not have this setting: it needs Linux 6.18.
    TooOld,
    /// The kernel has no transparent huge pages: there is nothing to switch off.
    NoHugePages,
    /// Blocked by a system-call filter.
    Filtered {
        /// The kernel's error number.
        errno: i32,
    },
    /// The call succeeded, but the value read back is another.
    NotKept,
}

impl fmt::Display for HugePagesRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooOld => f.write_str("huge pages only where advised needs Linux 6.18"),
            Self::NoHugePages => f.write_str("the kernel has no transparent huge pages"),
            Self::Filtered { errno } => write!(
                f,
                "huge pages cannot be switched off: blocked by a system-call filter, as containers have ({})",
                std::io::Error::from_raw_os_error(errno)
            ),
            Self::NotKept => f.write_str("the kernel accepted the switch for huge pages and did not keep it"),
        }
    }
}

/// Switches transparent huge pages for the calling process as asked and reads the switch back. If
/// the kernel refuses, the setting is left unchanged.
pub fn apply_huge_pages(asked: HugePages) -> HugePagesOutcome {
    let set = match asked {
        HugePages::Inherit => Ok(()),
        HugePages::Off => prctl::set_thp_disable(ThpDisable::Everywhere),
        HugePages::Advised => prctl::set_thp_disable(ThpDisable::ExceptAdvised),
    };
    let read = prctl::thp_disable().map(|disabled| match disabled {
        ThpDisable::No => HugePages::Inherit,
        ThpDisable::Everywhere => HugePages::Off,
        ThpDisable::ExceptAdvised => HugePages::Advised,
    });
    let refused = match (set, read) {
        (Ok(()), Ok(now)) if asked != HugePages::Inherit && now != asked => Some(HugePagesRefusal::NotKept),
        (Ok(()), _) => None,
        // The switch can be read, so the kernel has it; the kernel does not have the flag.
        (Err(Errno::INVAL), Ok(_)) if asked == HugePages::Advised => Some(HugePagesRefusal::TooOld),
        (Err(Errno::INVAL), _) => Some(HugePagesRefusal::NoHugePages),
        (Err(errno), _) => Some(HugePagesRefusal::Filtered { errno: errno.raw_os_error() }),
    };
    HugePagesOutcome { asked, now: read.ok(), refused }
}

/// System's setting for huge pages, for programs that set nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SystemHugePages {
    /// Everywhere.
    Always,
    /// Where a program requests them by `madvise`.
    Madvise,
    /// Nowhere.
    Never,
}

impl SystemHugePages {
    /// Parses `always [madvise] never`, where the brackets mark the choice.
    pub fn parse(enabled: &[u8]) -> Option<Self> {
        text::words(enabled).find_map(|word| match word {
            b"[always]" => Some(Self::Always),
            b"[madvise]" => Some(Self::Madvise),
            b"[never]" => Some(Self::Never),
            _ => None,
        })
    }
}

/// Returns the system's setting, from `kernel/mm/transparent_hugepage/enabled` under `sys`; `None`
/// on a kernel without huge pages.
///
/// # Errors
/// The file exists but cannot be read, or names no known choice.
pub fn system_huge_pages(sys: &Path) -> Result<Option<SystemHugePages>, ReadError> {
    let path = sys.join("kernel/mm/transparent_hugepage/enabled");
    let Some(text) = text::read_if_there(&path)? else { return Ok(None) };
    SystemHugePages::parse(&text)
        .map(Some)
        .ok_or_else(|| ReadError::malformed(&path, "no known choice in brackets"))
}
