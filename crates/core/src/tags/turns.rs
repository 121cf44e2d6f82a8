//! Order of service among users: each user that waits gets one turn, then the next user.
//!
//! Problem: one user's requests, however many, must not delay those of others by more than one
//! request each. Idea: a queue for each user, and a round over the users that wait.
//!
//! Properties: the requests of one user keep their order. While a user waits, no other user gets
//! two turns. Memory is bounded by what the caller pushes.

use std::collections::{BTreeMap, VecDeque};

/// Queues of users, served in turn.
#[derive(Clone, Debug)]
pub struct Turns<T> {
    queues: BTreeMap<u32, VecDeque<T>>,
    /// Users that wait, the next first.
    order: VecDeque<u32>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { queues: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<T> Turns<T> {
    /// Adds a request of a user, behind the user's earlier ones.
    pub fn push(&mut self, uid: u32, request: T) {
        let queue = self.queues.entry(uid).or_default();
        if queue.is_empty() {
            self.order.push_back(uid);
        }
        queue.push_back(request);
    }

    /// Takes the next request.
    pub fn pop(&mut self) -> Option<T> {
        let uid = self.order.pop_front()?;
        let queue = self.queues.get_mut(&uid)?;
        let request = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&uid);
        } else {
            self.order.push_back(uid);
        }
        request
    }

    /// Returns whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_behind_a_flood_of_another_user_is_served_second() {
        let mut turns = Turns::default();
        (0..1_000).for_each(|at| turns.push(7, (7, at)));
        turns.push(8, (8, 0));
        turns.push(0, (0, 0));
        assert_eq!(
            [turns.pop(), turns.pop(), turns.pop(), turns.pop()].map(Option::unwrap),
            [(7, 0), (8, 0), (0, 0), (7, 1)]
        );
    }

    proptest! {
        /// An independent model: a list of all that waits. Nothing is lost, users keep their order,
        /// and between two turns of a user each other user that waited all that time had one.
        #[test]
        fn every_user_that_waits_gets_a_turn_in_each_round(
            steps in prop::collection::vec(prop::option::weighted(0.6, 0_u32..4), 0..200),
        ) {
            let (mut turns, mut waiting, mut number) = (Turns::default(), Vec::new(), 0);
            // For each user: users that had a turn since its last one, and all that waited then.
            let mut since: BTreeMap<u32, (Vec<u32>, Vec<u32>)> = BTreeMap::new();
            for step in steps {
                if let Some(uid) = step {
                    turns.push(uid, (uid, number));
                    waiting.push((uid, number));
                    number += 1;
                    continue;
                }
                let Some((uid, at)) = turns.pop() else {
                    prop_assert!(waiting.is_empty());
                    continue;
                };
                let first = waiting.iter().position(|(of, _)| *of == uid);
                prop_assert_eq!(first.map(|first| waiting.remove(first)), Some((uid, at)));
                if let Some((served, waited)) = since.remove(&uid) {
                    for other in waited.into_iter().filter(|other| *other != uid) {
                        prop_assert!(served.contains(&other), "{} had two turns before {}", uid, other);
                    }
                }
                since.values_mut().for_each(|(served, _)| served.push(uid));
                since.insert(uid, (Vec::new(), waiting.iter().map(|(of, _)| *of).collect()));
            }
            prop_assert_eq!(turns.is_empty(), waiting.is_empty());
        }
    }
}
