//! How ranks meet: a child inherits the segment's descriptor, and a variable of its environment says which it is.
//! Who inherits nothing meets over a Unix socket ([`super::socket`]).
use super::layout::MOST_RANKS;
use super::memfd::Mapping;
use crate::{Error, Result};
use rustix::io::FdFlags;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

/// The environment variable.
pub const VARIABLE: &str = "TRIMTAB_TEAM";

/// What a child is told: `v1:fd:rank:ranks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invitation {
    /// The inherited descriptor's number.
    pub fd: i32,
    /// The child's.
    pub rank: u32,
    /// Of the team.
    pub ranks: u32,
}

impl Invitation {
    /// The variable's value.
    pub fn to_value(self) -> String {
        format!("v1:{}:{}:{}", self.fd, self.rank, self.ranks)
    }

    /// # Errors
    /// `NotATeam` for anything that [`Invitation::to_value`] would not write.
    pub fn parse(value: &str) -> Result<Self> {
        let read = || {
            let mut parts = value.strip_prefix("v1:")?.split(':');
            let mut next = || parts.next()?.parse::<u32>().ok();
            let it = Self { fd: i32::try_from(next()?).ok()?, rank: next()?, ranks: next()? };
            (it.fd > 2 && it.rank < it.ranks && it.ranks <= MOST_RANKS && it.to_value() == value)
                .then_some(it)
        };
        read().ok_or_else(|| Error::NotATeam(format!("{VARIABLE} is not v1:fd:rank:ranks")))
    }

    /// Maps the inherited segment through a copy of the descriptor, which closes on exec.
    ///
    /// # Errors
    /// `NotATeam` if the number names no open, sealed segment.
    pub fn accept(self) -> Result<Mapping> {
        // SAFETY: the call only asks; a number that is not open is refused by it.
        let copy = unsafe { libc::fcntl(self.fd, libc::F_DUPFD_CLOEXEC, 3) };
        if copy < 0 {
            return Err(Error::NotATeam(format!("descriptor {} is not open", self.fd)));
        }
        // SAFETY: just made, and nobody else's.
        let mapping = Mapping::adopt(unsafe { OwnedFd::from_raw_fd(copy) })?;
        super::header::Header::check(&mapping)?;
        // A team's segment, then, and the number was passed for this; whatever it starts next does not get it.
        // SAFETY: only the flags of a descriptor that is open change; nothing in this process loses it.
        unsafe { libc::fcntl(self.fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        Ok(mapping)
    }
}

/// Lets a descriptor pass exec; to be called in the child, between fork and exec, so that no other child gets it.
///
/// # Errors
/// `System` if the kernel refuses.
pub fn keep_over_exec(fd: BorrowedFd<'_>) -> Result<()> {
    rustix::io::fcntl_setfd(fd, FdFlags::empty()).map_err(|e| Error::system("clearing close-on-exec", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_values() {
        let it = Invitation { fd: 5, rank: 1, ranks: 2 };
        assert_eq!(Invitation::parse(&it.to_value()).unwrap(), it);
        for bad in [
            "",
            "v1",
            "v1:5:2:2",
            "v1:0:0:1",
            "v1:5:0:1:",
            "v1:-1:0:1",
            "v2:5:0:1",
            "v1:5:0:99999",
            "v1:+5:0:1",
        ] {
            assert!(Invitation::parse(bad).is_err(), "{bad}");
        }
    }
}
