//! Sets of ids, as wide as their largest member.
//!
//! The width does not depend on the running machine and there is no 64- or 1,024-bit ceiling: a
//! plan for a 4,096-CPU machine can be made on a laptop. The text form is the kernel's list format
//! (`0-3,8,10-14:2`), in both directions.
//!
//! Properties: equality is by members (trailing zero words are never kept); iteration is ascending;
//! parsing is bounded by [`MAX_ID`], so that hostile text cannot cause an allocation of gigabytes.

use crate::ids::{Id, OsCpu, OsNode};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, marker::PhantomData, str::FromStr};
use thiserror::Error;

/// A set of CPUs in the kernel's numbering.
pub type CpuSet = Set<OsCpu>;
/// A set of memory nodes in the kernel's numbering.
pub type NodeSet = Set<OsNode>;

/// Largest id that text may name. Linux supports 8,192 CPUs; the room above that, seven powers of
/// two, costs nothing (128 KiB for the fullest set).
pub const MAX_ID: usize = (1 << 20) - 1;

/// An ordered set of ids of one kind.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Set<T> {
    /// Bit `i % 64` of word `i / 64` is member `i`. The last word is never zero.
    words: Vec<u64>,
    kind: PhantomData<T>,
}

impl<T> Default for Set<T> {
    fn default() -> Self {
        Self { words: Vec::new(), kind: PhantomData }
    }
}

impl<T: Id> Set<T> {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the set with the bits `words`, least significant first, as the kernel's masks are
    /// laid out.
    pub fn from_words(words: Vec<u64>) -> Self {
        let mut set = Self { words, kind: PhantomData };
        set.trim();
        set
    }

    /// Returns the bits, least significant word first, without trailing zero words.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Adds a member; returns whether it is new.
    pub fn insert(&mut self, id: T) -> bool {
        let (word, bit) = (id.index() / 64, id.index() % 64);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let fresh = self.words[word] & (1 << bit) == 0;
        self.words[word] |= 1 << bit;
        fresh
    }

    /// Removes a member; returns whether it was there.
    pub fn remove(&mut self, id: T) -> bool {
        let (word, bit) = (id.index() / 64, id.index() % 64);
        let Some(slot) = self.words.get_mut(word) else { return false };
        let there = *slot & (1 << bit) != 0;
        *slot &= !(1 << bit);
        self.trim();
        there
    }

    /// Returns whether `id` is a member.
    pub fn contains(&self, id: T) -> bool {
        self.words.get(id.index() / 64).is_some_and(|word| word >> (id.index() % 64) & 1 == 1)
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns whether the set has no member.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns the smallest member.
    pub fn first(&self) -> Option<T> {
        self.iter().next()
    }

    /// Returns the largest member.
    pub fn last(&self) -> Option<T> {
        let last = self.words.last()?;
        Some(T::from_index((self.words.len() - 1) * 64 + 63 - last.leading_zeros() as usize))
    }

    /// Returns the members, ascending.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            std::iter::successors((word != 0).then_some(word), |rest| {
                let rest = rest & (rest - 1);
                (rest != 0).then_some(rest)
            })
            .map(move |rest| T::from_index(at * 64 + rest.trailing_zeros() as usize))
        })
    }

    /// Returns the members as runs of consecutive ids, `(first, last)`, ascending.
    pub fn ranges(&self) -> Vec<(T, T)> {
        let mut ranges: Vec<(T, T)> = Vec::new();
        for id in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if last.index() + 1 == id.index() => *last = id,
                _ => ranges.push((id, id)),
            }
        }
        ranges
    }

    /// Returns the members of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self::from_words(self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect())
    }

    /// Returns the members of either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (long, short) = if self.words.len() >= other.words.len() { (self, other) } else { (other, self) };
        let mut words = long.words.clone();
        for (word, more) in words.iter_mut().zip(&short.words) {
            *word |= more;
        }
        Self::from_words(words)
    }

    /// Returns the members of this set that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let rest = other.words.iter().chain(std::iter::repeat(&0));
        Self::from_words(self.words.iter().zip(rest).map(|(a, b)| a & !b).collect())
    }

    /// Returns whether every member is also in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    /// Returns whether the sets share a member.
    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

impl<T: Id> FromIterator<T> for Set<T> {
    fn from_iter<I: IntoIterator<Item = T>>(ids: I) -> Self {
        let mut set = Self::new();
        set.extend(ids);
        set
    }
}

impl<T: Id> Extend<T> for Set<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, ids: I) {
        for id in ids {
            self.insert(id);
        }
    }
}

impl<T: Id> fmt::Display for Set<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.ranges().into_iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match last.index() - first.index() {
                0 => write!(f, "{comma}{}", first.index())?,
                _ => write!(f, "{comma}{}-{}", first.index(), last.index())?,
            }
        }
        Ok(())
    }
}

impl<T: Id> fmt::Debug for Set<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

/// Error of a list that did not parse, with the byte position of the fault in the text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{problem} at position {} of \"{text}\"", at + 1)]
pub struct ListError {
    /// The whole text.
    pub text: String,
    /// Byte offset of the fault, from 0.
    pub at: usize,
    /// Problem at that position.
    pub problem: String,
}

impl<T: Id> FromStr for Set<T> {
    type Err = ListError;

    /// Parses the kernel's list format: `0-3,8,16-30:2` (every second of 16 to 30). Blank text is
    /// the empty set, as the kernel prints it.
    fn from_str(text: &str) -> Result<Self, ListError> {
        let fault = |at: usize, problem: String| ListError { text: text.to_owned(), at, problem };
        let mut set = Self::new();
        let body = text.trim_end();
        if body.trim_start().is_empty() {
            return Ok(set);
        }
        let mut at = body.len() - body.trim_start().len();
        for item in body[at..].split(',') {
            let (range, step, step_at) = match item.split_once(':') {
                Some((range, step)) => (range, Some(step), at + range.len() + 1),
                None => (item, None, at),
            };
            let (first, last, last_at) = match range.split_once('-') {
                Some((first, last)) => (first, last, at + first.len() + 1),
                None if step.is_some() => {
                    return Err(fault(at, format!("a step needs a range before it, not \"{range}\"")));
                }
                None => (range, range, at),
            };
            let number = |word: &str, at: usize| -> Result<usize, ListError> {
                if word.is_empty() {
                    return Err(fault(at, "a number is missing".to_owned()));
                }
                if !word.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(fault(at, format!("\"{word}\" is not a number")));
                }
                word.parse()
                    .ok()
                    .filter(|&id| id <= MAX_ID)
                    .ok_or_else(|| fault(at, format!("{word} is too large (at most {MAX_ID})")))
            };
            let (low, high) = (number(first, at)?, number(last, last_at)?);
            let step = step.map_or(Ok(1), |word| number(word, step_at))?;
            if high < low {
                return Err(fault(at, format!("range {low}-{high} runs backwards")));
            }
            if step == 0 {
                return Err(fault(step_at, "a step of 0 never ends".to_owned()));
            }
            set.extend((low..=high).step_by(step).map(T::from_index));
            at += item.len() + 1;
        }
        Ok(set)
    }
}

impl<T: Id> Serialize for Set<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.words.serialize(serializer)
        }
    }
}

impl<'de, T: Id> Deserialize<'de> for Set<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
        } else {
            let words = Vec::<u64>::deserialize(deserializer)?;
            if words.len() > MAX_ID.div_ceil(64) {
                return Err(serde::de::Error::custom("set is too wide"));
            }
            Ok(Self::from_words(words))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        for (text, canonical) in [
            ("", ""),
            ("\n", ""),
            ("0", "0"),
            ("0-3,8", "0-3,8"),
            ("3,2,1", "1-3"),
            ("0-6:2", "0,2,4,6"),
            (" 4-4 \n", "4"),
        ] {
            assert_eq!(set(text).to_string(), canonical, "{text:?}");
        }
    }

    #[test]
    fn faults_name_their_position() {
        for (text, at, word) in [
            ("0-3,x", 4, "\"x\" is not a number"),
            ("1,,2", 2, "a number is missing"),
            ("5-2", 0, "backwards"),
            ("0-", 2, "a number is missing"),
            ("-3", 0, "a number is missing"),
            ("0-7:0", 4, "never ends"),
            ("7:2", 0, "a step needs a range"),
            ("0-99999999999", 2, "too large"),
            ("0x3", 0, "is not a number"),
            ("1,2,", 4, "a number is missing"),
            ("1, 2", 2, "is not a number"),
        ] {
            let error = text.parse::<CpuSet>().unwrap_err();
            assert_eq!(error.at, at, "{text:?}: {error}");
            assert!(error.to_string().contains(word), "{text:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn set_algebra_agrees_with_the_standard_library(
            a in prop::collection::btree_set(0u32..300, 0..40),
            b in prop::collection::btree_set(0u32..300, 0..40),
        ) {
            let to = |ids: &BTreeSet<u32>| ids.iter().map(|&id| OsCpu(id)).collect::<CpuSet>();
            let (sa, sb) = (to(&a), to(&b));
            prop_assert_eq!(sa.union(&sb), to(&(&a | &b)));
            prop_assert_eq!(sa.intersection(&sb), to(&(&a & &b)));
            prop_assert_eq!(sa.difference(&sb), to(&(&a - &b)));
            prop_assert_eq!(sa.is_subset(&sb), a.is_subset(&b));
            prop_assert_eq!(sa.intersects(&sb), !a.is_disjoint(&b));
            prop_assert_eq!(sa.len(), a.len());
            prop_assert_eq!(sa.first().map(|id| id.0), a.first().copied());
            prop_assert_eq!(sa.last().map(|id| id.0), a.last().copied());
            prop_assert_eq!(sa.to_string().parse::<CpuSet>().unwrap(), sa.clone());
            prop_assert!(sa.iter().map(|id| id.0).eq(a.iter().copied()));
            let mut taken = sa.clone();
            for &id in &b { prop_assert_eq!(taken.remove(OsCpu(id)), a.contains(&id)); }
            prop_assert_eq!(taken, sa.difference(&sb));
        }

        #[test]
        fn any_text_is_parsed_or_refused_without_harm(text in "[-0-9,: x]{0,24}|.{0,24}") {
            if let Ok(set) = text.parse::<CpuSet>() {
                prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set);
            }
        }
    }
}
