//! Nested OpenMP regions: every thread of every level is where the plan says, in every runtime, and
//! no other thread is touched.
//!
//! The programs in `nested/` read masks themselves, compare them with `EXPECT`, and count:
//! `nested/check.h`.

#![allow(clippy::unwrap_used, reason = "tests may")]

#[path = "nested/children.rs"]
mod children;
mod common;
#[path = "nested/constructs.rs"]
mod constructs;
#[path = "nested/interface.rs"]
mod interface;
#[path = "nested/libraries.rs"]
mod libraries;
#[path = "nested/roots.rs"]
mod roots;
#[path = "nested/runtimes.rs"]
mod runtimes;
