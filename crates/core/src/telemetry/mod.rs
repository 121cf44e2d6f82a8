//! Telemetry: what was seen of the threads, programs and CPUs of a run.

pub mod account;
pub mod counter_totals;
pub mod run_summary;
