//! The memory of a team: one sealed memfd that every rank maps, where things lie in it, who sits where, and how ranks meet.
pub mod arena;
pub mod header;
pub mod hold;
pub mod layout;
pub mod meet;
pub mod memfd;
pub mod owner;
pub mod seat;
pub mod socket;
