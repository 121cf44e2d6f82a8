//! Tests of the simulated machine from the view of policies and people.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(
    clippy::print_stdout,
    reason = "the figures of the model beside those measured are for people to read"
)]

mod hosting;
mod kernels;
mod measured;
mod memory;
mod policies;
mod run;
mod scale;
