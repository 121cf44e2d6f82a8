//! Announcement: the message of the program's own process to the monitor right before the exec.
//!
//! One line: the CPUs that the program may use and, after a tab, its [`ChildFacts`] as JSON. A
//! second line says that the exec failed. A pipe that ends without a line means that the program
//! never began.

use serde::{Deserialize, Serialize};
use std::io::{PipeReader, Read};
use trimtab_core::place::waiting::Waiting;
use trimtab_core::set::CpuSet;
use trimtab_core::time::Span;
use trimtab_linux::child::Word;
use trimtab_linux::sys::usage::{self, Usage};

/// Facts that only the program's own process has, before it becomes the program.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ChildFacts {
    /// How threads wait, in words.
    pub wait: String,
    /// CPU time that trimtab itself used in this process before the program began.
    pub(super) user: Span,
    pub(super) system: Span,
    /// Page faults before that.
    pub(super) faults: u64,
    /// Context switches before that.
    pub(super) voluntary: u64,
    pub(super) involuntary: u64,
}

impl ChildFacts {
    /// Reads the facts now; `left`: settings of the wait policy that the user has decided.
    pub fn now(waiting: &Waiting, left: &[String]) -> Self {
        let used = usage::own().unwrap_or_default();
        let wait = if left.is_empty() { waiting.to_string() } else { left.join("; ") };
        let Usage { user, system, faults, voluntary, involuntary } = used;
        Self { wait, user: user.into(), system: system.into(), faults, voluntary, involuntary }
    }

    fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}

/// Announces the program, which may use these CPUs.
pub fn announce(word: &mut Word, usable: &CpuSet, facts: Option<&ChildFacts>) {
    let facts = facts.map_or_else(String::new, |facts| format!("\t{}", facts.line()));
    word.say(&format!("{usable}{facts}"));
}

/// Takes the announcement back: the exec failed.
pub fn retract(word: &mut Word) {
    word.say("failed");
}

/// Returns the CPUs of a program that has begun; `None` if it did not. Blocks until this is known.
pub(super) fn await_begin(mut word: PipeReader) -> Option<(CpuSet, Option<ChildFacts>)> {
    let mut said = String::new();
    word.read_to_string(&mut said).ok()?;
    let mut lines = said.lines();
    let line = lines.next()?;
    let (usable, facts) = line.split_once('\t').unwrap_or((line, ""));
    let begun = (usable.parse().ok()?, ChildFacts::parse(facts));
    lines.next().is_none().then_some(begun)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Write, pipe};

    #[test]
    fn facts_travel_in_a_line() {
        let facts = ChildFacts { wait: "as\tit is\n".to_owned(), faults: 3, ..ChildFacts::default() };
        assert_eq!(facts.line().lines().count(), 1);
        assert_eq!(ChildFacts::parse(&facts.line()), Some(facts));
        assert_eq!(ChildFacts::parse(""), None);
    }

    #[test]
    fn a_program_has_begun_after_one_line_and_not_after_none_or_two() {
        let begun = |said: &str| {
            let (reader, mut writer) = pipe().unwrap();
            writer.write_all(said.as_bytes()).unwrap();
            drop(writer);
            await_begin(reader)
        };
        let cpus = "0-1".parse::<CpuSet>().unwrap();
        assert_eq!(begun("0-1\n"), Some((cpus.clone(), None)));
        let facts = ChildFacts { wait: "threads sleep".to_owned(), ..ChildFacts::default() };
        assert_eq!(begun(&format!("0-1\t{}\n", facts.line())), Some((cpus, Some(facts))));
        assert_eq!(begun(""), None);
        assert_eq!(begun("0-1\nfailed\n"), None);
    }
}
