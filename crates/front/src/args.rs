//! Parsers of values that options of several commands take.

pub mod numbers;
pub mod ranks;
mod survey;
pub mod time;
pub mod words;

pub use survey::SurveyMode;
