//! The `trimtab` program: commands, and the words and tables they print. Every number shown is computed elsewhere.

#![forbid(unsafe_code)]

pub mod args;
#[path = "../../agent/src/spawn.rs"]
mod aside;
pub mod audit;
pub mod commands;
pub mod escapes;
pub mod exit;
pub mod guest;
pub mod holds;
pub mod kept;
pub mod launch;
pub mod launchers;
#[path = "../../agent/src/restoration.rs"]
pub mod leftovers;
pub mod machine;
pub mod meetings;
#[path = "../../agent/src/metrics/mod.rs"]
pub mod metrics;
pub mod nest;
#[path = "../../agent/src/output.rs"]
pub mod output;
pub mod own_values;
pub mod profile;
#[path = "../../agent/src/recorder.rs"]
pub mod recorder;
pub mod reserve;
pub mod say;
#[path = "../../agent/src/service/mod.rs"]
pub mod serve;
#[path = "../../agent/src/service/client.rs"]
mod service;
pub mod site;
pub mod situation;
#[cfg(test)]
#[path = "../../agent/src/skip.rs"]
mod skip;
pub mod surroundings;
pub mod table;
#[path = "../../agent/src/service/removal.rs"]
pub mod tagged;
pub mod traces;
pub mod tuned;
#[path = "../../agent/src/targets.rs"]
pub mod vms;
#[path = "../../agent/src/monitored_host.rs"]
pub mod watched;
#[path = "../../agent/src/step_sinks.rs"]
pub mod watching;
pub mod world;
#[path = "../../agent/src/monitor/mod.rs"]
pub mod wrapper;

#[cfg(test)]
#[path = "../../agent/tests/fixtures/recorded_runs.rs"]
mod runs;
