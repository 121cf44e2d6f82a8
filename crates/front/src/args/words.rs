//! Values that are words of a list: parsed as `core` parses them, and known to completions.

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};
use std::ffi::OsStr;
use std::marker::PhantomData;
use std::str::FromStr;

/// A parser of `T`, whose words these are.
#[derive(Clone, Debug)]
pub struct Words<T> {
    words: Vec<&'static str>,
    of: PhantomData<T>,
}

impl<T> Words<T> {
    /// These words.
    pub fn of(words: impl IntoIterator<Item = &'static str>) -> Self {
        Self { words: words.into_iter().collect(), of: PhantomData }
    }
}

impl<T> TypedValueParser for Words<T>
where
    T: FromStr<Err: Into<Box<dyn std::error::Error + Send + Sync>>> + Clone + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        str::parse::<T>.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.words.iter().map(PossibleValue::new)))
    }
}
