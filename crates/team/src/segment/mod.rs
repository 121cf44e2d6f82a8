//! The memory of a team: one sealed memfd that every rank maps, its layout, the seats of its ranks,
//! and the ways in which ranks join.
pub mod arena;
pub mod header;
pub mod hold;
pub mod layout;
pub mod meet;
pub mod meeting;
pub mod memfd;
pub mod owner;
pub mod seat;
pub mod socket;
