//! Walls of ARCHITECTURE.md that can be checked in the sources: which crate uses which, where
//! unsafe code stands, what the pure crates may not name, and which modules use each other in a
//! circle.
//!
//! The page itself is the list of what is allowed: its tables are read here, so that it cannot say
//! anything else than what is so.

#![allow(clippy::unwrap_used, reason = "all of it is test")]

mod circles;
mod source;
mod walls;
