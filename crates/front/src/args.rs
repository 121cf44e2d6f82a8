//! Forms of values that options of more than one command take.

pub mod numbers;
pub mod ranks;
pub mod time;
pub mod words;
