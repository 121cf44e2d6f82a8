//! Cost of counting here: measured on the calling thread, in a few milliseconds.
//!
//! The least of several tries is taken, since other work on this CPU only adds.

use super::group::{Group, Recipe};
use crate::sys::clock::monotonic as now;
use std::time::Duration;
use trimtab_core::counter_budget::Price;
use trimtab_core::time::Span;

/// Longest measurement of each of three operations.
const MEASURE_TIME_MAX: Duration = Duration::from_millis(2);
/// Largest number of tries of each. Chosen: with this number the least is reproducible.
const TRIES_MAX: u32 = 200;

/// Measures the cost with the recipe's first events; `None` if none of it can be opened.
pub(super) fn measure(recipe: &Recipe) -> Option<Price> {
    let open = |many: usize| {
        // One or two counters, whatever their roles.
        let events = recipe.events.iter().take(many).cloned().collect();
        Group::open(&Recipe { events, ..recipe.clone() }, None).ok()
    };
    let switch = |group: &Group| {
        let least = least(|| {
            let _ = group.off().and_then(|()| group.on());
        });
        let _ = group.off();
        least
    };
    let one = switch(&open(1)?);
    let both = open(2)?;
    let two = switch(&both);
    both.on().ok()?;
    let read = least(|| {
        let _ = both.read(recipe);
    });
    Some(Price { read, one, two })
}

fn least(mut of: impl FnMut()) -> Span {
    let begin = now();
    let mut least = Span(u64::MAX);
    for _ in 0..TRIES_MAX {
        let before = now();
        of();
        let after = now();
        least = least.min(after.saturating_sub(before).into());
        if after.saturating_sub(begin) > MEASURE_TIME_MAX {
            break;
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::super::event::{Event, Role};
    use super::*;
    use crate::skip::skipped;

    #[test]
    fn every_counter_that_can_be_opened_has_a_price() {
        let event = |role, name| (role, Event::generic(name).unwrap());
        let events = vec![event(Role::Busy, "task-clock"), event(Role::Requests, "page-faults")];
        let recipe = Recipe { user_only: true, ..Recipe::of(events) };
        match measure(&recipe) {
            Some(price) => {
                assert!(price.read > Span::ZERO && price.one > Span::ZERO && price.two > Span::ZERO);
                assert!([price.read, price.one, price.two].iter().all(|span| *span < Span(u64::MAX)));
            }
            None => skipped("nothing may be counted here"),
        }
        assert_eq!(measure(&Recipe::of(Vec::new())), None);
    }
}
