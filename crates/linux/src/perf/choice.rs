//! User's choice of the events to count.

use super::event::{EventError, Role, Spec};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;
use trimtab_core::counts::Rung;

/// Largest number of named events: more than any processor counts at once.
const EVENTS_MAX: usize = 16;

/// Events that are to be counted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    /// The best rung that works.
    #[default]
    Auto,
    /// None.
    Off,
    /// This rung, or the best one below it.
    Rung(Rung),
    /// These events, each for a role.
    Events(Vec<(Role, Spec)>),
}

/// Reason why a text is not a choice.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ChoiceError {
    /// One of the events is malformed.
    #[error(transparent)]
    Event(#[from] EventError),
    /// It is in none of the forms.
    #[error("'{0}' is neither auto, off, {rungs}, nor events as ROLE=EVENT,... with a role of {roles}", rungs = rungs(), roles = roles())]
    Form(String),
    /// There are too many events.
    #[error("{0} events are more than can be counted together (at most {EVENTS_MAX})")]
    Many(usize),
}

fn rungs() -> String {
    Rung::ALL.map(Rung::word).join(", ")
}

fn roles() -> String {
    Role::ALL.map(Role::word).join(", ")
}

impl FromStr for Choice {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        let text = text.trim();
        match text {
            "auto" => return Ok(Self::Auto),
            "off" => return Ok(Self::Off),
            _ => {}
        }
        if let Some(rung) = Rung::ALL.into_iter().find(|rung| rung.word() == text) {
            return Ok(Self::Rung(rung));
        }
        let mut events = Vec::new();
        for part in split(text) {
            let shown =
                || ChoiceError::Form(crate::text::printable(part.as_bytes()).chars().take(200).collect());
            let (role, event) = part.split_once('=').ok_or_else(shown)?;
            let role = Role::ALL.into_iter().find(|known| known.word() == role.trim()).ok_or_else(shown)?;
            events.push((role, event.parse()?));
        }
        if events.len() > EVENTS_MAX {
            return Err(ChoiceError::Many(events.len()));
        }
        Ok(Self::Events(events))
    }
}

/// Splits at commas, except between slashes.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.split(move |char| {
        inside ^= char == '/';
        char == ',' && !inside
    })
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::Rung(rung) => rung.fmt(f),
            Self::Events(events) => {
                for (at, (role, spec)) in events.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    write!(f, "{comma}{role}={spec}")?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn choices_are_words_rungs_or_events_by_role() {
        let read = |text: &str| text.parse::<Choice>();
        assert_eq!((read("auto"), read(" off ")), (Ok(Choice::Auto), Ok(Choice::Off)));
        for rung in Rung::ALL {
            assert_eq!(read(rung.word()), Ok(Choice::Rung(rung)));
        }
        let text = "busy=cpu/event=0x6d,umask=0x01/,requests=r0964,cycles=cycles";
        let Ok(Choice::Events(events)) = read(text) else { panic!() };
        let roles: Vec<Role> = events.iter().map(|(role, _)| *role).collect();
        assert_eq!(roles, [Role::Busy, Role::Requests, Role::Cycles]);
        assert_eq!(Choice::Events(events).to_string(), text);
    }

    #[test]
    fn an_unknown_choice_is_refused_with_the_possible_ones() {
        let said = |text: &str| text.parse::<Choice>().unwrap_err().to_string();
        for none in ["", "best", "busy", "colour=r1", "busy=r1,,"] {
            assert!(said(none).contains("neither auto, off, exact"), "{none}: {}", said(none));
        }
        assert!(said("busy=nonsense").contains("'nonsense' is not an event"));
        assert!(said(&vec!["busy=r1"; 17].join(",")).contains("17 events"));
    }

    proptest! {
        #[test]
        fn a_parsed_choice_is_written_as_it_was(text in "((busy|requests|far)=(r[0-9a-f]{1,6}|cpu/[a-z]{1,5}=[0-9]{1,3},umask=0x1/),?){1,4}") {
            if let Ok(choice) = text.parse::<Choice>() {
                prop_assert_eq!(choice.to_string().parse::<Choice>(), Ok(choice));
            }
        }

        #[test]
        fn arbitrary_text_is_read_without_harm(text in "\\PC{0,60}") {
            let _ = text.parse::<Choice>();
        }
    }
}
