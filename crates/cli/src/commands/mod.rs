//! One file per command: each takes options and returns an exit status.

pub mod attach;
pub mod counters;
pub mod detach;
pub mod doctor;
pub mod guest;
pub mod lab;
pub mod nproc;
pub mod plan;
pub mod profile;
pub mod ps;
mod ranks;
pub mod run;
pub mod status;
pub mod tag;
mod teams;
pub mod topo;
pub mod tunings;

use trimtab_front::print;
