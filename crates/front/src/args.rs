//! Parsers of values that options of several commands take.

pub mod numbers;
pub mod ranks;
pub mod time;
pub mod words;
