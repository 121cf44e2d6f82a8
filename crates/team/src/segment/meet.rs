//! Invitation of a rank: a child process inherits the segment's descriptor, and a variable of its
//! environment contains its rank. Processes that inherit nothing join over a Unix socket
//! ([`super::socket`]).
use super::layout::RANKS_MAX;
use super::memfd::Mapping;
use crate::{Error, Result};
use rustix::io::FdFlags;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

/// The environment variable.
pub const VARIABLE: &str = "TRIMTAB_TEAM";

/// An invitation in the environment: `v1:fd:rank:ranks`. [`Team::invitation`] and
/// [`Team::inherited`] make and accept it.
///
/// # Examples
/// ```
/// use std::os::fd::AsRawFd;
/// use trimtab_team::segment::meet::Invitation;
/// use trimtab_team::{Options, Team};
///
/// let team = Team::new(Options::new(2))?;
/// let invitation = Invitation { fd: team.fd().as_raw_fd(), rank: 1, ranks: 2 };
/// let value = invitation.to_value();
/// assert_eq!(Invitation::parse(&value)?, invitation);
/// let same = Team::adopt(invitation.accept()?, Options::new(2))?;
/// assert_eq!(same.ranks(), 2);
/// # Ok::<(), trimtab_team::Error>(())
/// ```
///
/// [`Team::invitation`]: crate::Team::invitation
/// [`Team::inherited`]: crate::Team::inherited
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invitation {
    /// Number of the inherited descriptor.
    pub fd: i32,
    /// Rank of the child.
    pub rank: u32,
    /// Ranks of the team.
    pub ranks: u32,
}

impl Invitation {
    /// Returns the variable's value. [`Invitation`] has an example.
    pub fn to_value(self) -> String {
        format!("v1:{}:{}:{}", self.fd, self.rank, self.ranks)
    }

    /// Parses the variable's value. [`Invitation`] has an example.
    ///
    /// # Errors
    /// `NotATeam` for anything that [`Invitation::to_value`] would not write.
    pub fn parse(value: &str) -> Result<Self> {
        let read = || {
            let mut parts = value.strip_prefix("v1:")?.split(':');
            let mut next = || parts.next()?.parse::<u32>().ok();
            let it = Self { fd: i32::try_from(next()?).ok()?, rank: next()?, ranks: next()? };
            (it.fd > 2 && it.rank < it.ranks && it.ranks <= RANKS_MAX && it.to_value() == value).then_some(it)
        };
        read().ok_or_else(|| Error::NotATeam(format!("{VARIABLE} is not v1:fd:rank:ranks")))
    }

    /// Maps the inherited segment through a copy of the descriptor, which closes on exec.
    /// [`Invitation`] has an example.
    ///
    /// # Errors
    /// `NotATeam` if the number is not that of an open, sealed segment.
    pub fn accept(self) -> Result<Mapping> {
        // SAFETY: the call only reads; it fails for a number that is not open.
        let copy = unsafe { libc::fcntl(self.fd, libc::F_DUPFD_CLOEXEC, 3) };
        if copy < 0 {
            return Err(Error::NotATeam(format!("descriptor {} is not open", self.fd)));
        }
        // SAFETY: just made, and not owned elsewhere.
        let mapping = Mapping::adopt(unsafe { OwnedFd::from_raw_fd(copy) })?;
        super::header::Header::check(&mapping)?;
        // The descriptor is a team's segment, so the number was passed for this purpose. Later
        // children of this process must not inherit it.
        // SAFETY: only the flags of an open descriptor change; nothing in this process loses it.
        unsafe { libc::fcntl(self.fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        Ok(mapping)
    }
}

/// Clears close-on-exec of a descriptor, so that the next program inherits it. To be called in the
/// child, between fork and exec, so that no other child gets it.
/// [`Team::invitation`](crate::Team::invitation) has an example.
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
