//! Link to a guest's port, whichever side connects: one type over [`PortLink`] and [`PortDoor`],
//! which have the same methods.

use super::channel::ChannelAddress;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use trimtab_linux::socket::{PortDoor, PortLink};

/// Link in one of the two directions.
#[derive(Debug)]
pub(super) enum GuestLink {
    /// The service connects to the guest's monitor.
    Out(PortLink),
    /// The guest or its monitor connects to the service.
    In(PortDoor),
}

impl GuestLink {
    /// Makes the link for an address, not yet connected.
    pub(super) fn new(address: &ChannelAddress) -> Self {
        match address {
            ChannelAddress::Unix(path) => Self::Out(PortLink::new(path)),
            ChannelAddress::Calls(bell) => Self::In(PortDoor::new(bell)),
        }
    }

    /// Connects to a socket of this user or root, or accepts a connection. Returns whether it has
    /// just connected.
    ///
    /// # Errors
    /// The socket there belongs to another user; the error is that user's id.
    pub(super) fn connect(&mut self, user: u32) -> Result<bool, u32> {
        match self {
            Self::Out(link) => link.connect(user),
            Self::In(door) => Ok(door.connect()),
        }
    }

    /// Returns why no connection can be accepted, if so.
    pub(super) fn fault(&self) -> Option<&str> {
        match self {
            Self::Out(_) => None,
            Self::In(door) => door.fault(),
        }
    }

    /// Returns whether it is connected.
    pub(super) fn is_open(&self) -> bool {
        match self {
            Self::Out(link) => link.is_open(),
            Self::In(door) => door.is_open(),
        }
    }

    /// Returns the descriptor to wait for, unless nothing is to be read now.
    pub(super) fn waits(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Out(link) => link.waits(),
            Self::In(door) => door.waits(),
        }
    }

    /// Reads nothing for this time.
    pub(super) fn rest(&mut self, time: Duration) {
        match self {
            Self::Out(link) => link.rest(time),
            Self::In(door) => door.rest(time),
        }
    }

    /// Reads the bytes that have arrived; `None` when the connection has ended.
    pub(super) fn read(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Out(link) => link.read(),
            Self::In(door) => door.read(),
        }
    }

    /// Ends the connection.
    pub(super) fn close(&mut self) {
        match self {
            Self::Out(link) => link.close(),
            Self::In(door) => door.close(),
        }
    }
}
