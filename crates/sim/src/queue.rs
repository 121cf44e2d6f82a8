//! Event queue of the simulator, ordered by time.
//!
//! Unit: integer nanoseconds. Problem: planned events change all the time, because a preempted
//! thread does not finish at the planned time. Idea: a heap of *slots*, one for each thing that can
//! have one planned moment (a CPU, a thread's alarm). To plan a slot again moves its entry instead
//! of adding one, so the heap never holds more entries than slots. Each heap node has four
//! children, which keeps the heap flat.
//!
//! Properties: events at equal moments come in the order in which they were planned. An operation
//! costs the logarithm of the number of slots, and allocates nothing once the slot exists.

const NO_PLACE: u32 = u32::MAX;

/// Children of a heap node: four make the heap half as deep as a binary heap, and the children
/// share a cache line or two.
const HEAP_ARITY: usize = 4;

/// Number of low bits of an entry's order that hold its slot, so that four entries fill a cache
/// line. 24 bits allow 16 million slots and a million million plans.
const SLOT_BITS: u32 = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    at: u64,
    order: u64,
}

impl Entry {
    fn slot(self) -> usize {
        (self.order & ((1 << SLOT_BITS) - 1)) as usize
    }
}

/// Event that is being carried out. Its entry stays in the heap until its slot is planned again or
/// [`Queue::done`] is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedEvent {
    /// Time of the event, ns.
    pub at: u64,
    /// Slot of the event.
    pub slot: usize,
    order: u64,
}

/// Slots with planned moments.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    heap: Vec<Entry>,
    places: Vec<u32>,
    order: u64,
}

impl Queue {
    /// Returns a queue of this number of slots, with nothing planned.
    pub fn new(slots: usize) -> Self {
        Self { heap: Vec::with_capacity(slots), places: vec![NO_PLACE; slots], order: 0 }
    }

    /// Makes room for this number of slots.
    pub fn grow(&mut self, slots: usize) {
        if slots > self.places.len() {
            self.places.resize(slots, NO_PLACE);
        }
    }

    /// Plans a slot's next event. It replaces the event that was planned for the slot.
    ///
    /// # Panics
    /// If the slot does not exist.
    pub fn plan(&mut self, slot: usize, at: u64) {
        self.order += 1;
        let entry = Entry { at, order: self.order << SLOT_BITS | slot as u64 };
        let place = self.places[slot];
        if place == NO_PLACE {
            self.heap.push(entry);
            self.places[slot] = (self.heap.len() - 1) as u32;
            self.up(self.heap.len() - 1);
            return;
        }
        let place = place as usize;
        let before = std::mem::replace(&mut self.heap[place], entry);
        if entry < before {
            self.up(place);
        } else {
            self.down(place);
        }
    }

    /// Cancels a slot's planned event.
    ///
    /// # Panics
    /// If the slot does not exist.
    pub fn cancel(&mut self, slot: usize) {
        let place = self.places[slot];
        if place != NO_PLACE {
            self.remove(place as usize);
        }
    }

    /// Returns the time of a slot's planned event.
    pub fn planned(&self, slot: usize) -> Option<u64> {
        let place = *self.places.get(slot)?;
        self.heap.get(place as usize).map(|entry| entry.at)
    }

    /// Returns the time of the next event.
    pub fn next(&self) -> Option<u64> {
        self.heap.first().map(|entry| entry.at)
    }

    /// Returns the next event, to be carried out. Most slots are planned again meanwhile; this then
    /// moves one entry instead of two.
    pub fn begin(&self) -> Option<PlannedEvent> {
        let first = *self.heap.first()?;
        Some(PlannedEvent { at: first.at, slot: first.slot(), order: first.order })
    }

    /// Finishes an event that was carried out: removes its entry unless its slot was planned again.
    pub fn done(&mut self, event: PlannedEvent) {
        let place = self.places[event.slot];
        if place != NO_PLACE && self.heap[place as usize].order == event.order {
            self.remove(place as usize);
        }
    }

    fn remove(&mut self, place: usize) {
        let gone = self.heap.swap_remove(place);
        self.places[gone.slot()] = NO_PLACE;
        if place < self.heap.len() {
            self.places[self.heap[place].slot()] = place as u32;
            if self.heap[place] < gone {
                self.up(place);
            } else {
                self.down(place);
            }
        }
    }

    fn up(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / HEAP_ARITY;
            if self.heap[parent] <= entry {
                break;
            }
            self.set(place, self.heap[parent]);
            place = parent;
        }
        self.set(place, entry);
    }

    fn down(&mut self, mut place: usize) {
        let entry = self.heap[place];
        loop {
            let first = place * HEAP_ARITY + 1;
            let end = (first + HEAP_ARITY).min(self.heap.len());
            let Some(&child) = self.heap.get(first) else { break };
            let (mut least, mut at) = (child, first);
            for other in first + 1..end {
                if self.heap[other] < least {
                    (least, at) = (self.heap[other], other);
                }
            }
            if entry <= least {
                break;
            }
            self.set(place, least);
            place = at;
        }
        self.set(place, entry);
    }

    fn set(&mut self, place: usize, entry: Entry) {
        self.heap[place] = entry;
        self.places[entry.slot()] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::BTreeMap;

    fn pop(queue: &mut Queue) -> Option<(u64, usize)> {
        let event = queue.begin()?;
        queue.done(event);
        Some((event.at, event.slot))
    }

    #[test]
    fn equal_moments_come_in_the_order_of_planning() {
        let mut queue = Queue::new(4);
        for slot in [2, 0, 3] {
            queue.plan(slot, 5);
        }
        queue.plan(0, 5);
        let order: Vec<usize> = std::iter::from_fn(|| pop(&mut queue)).map(|(_, slot)| slot).collect();
        assert_eq!(order, [2, 3, 0]);
    }

    #[test]
    fn an_event_scheduled_again_while_it_is_carried_out_stays() {
        let mut queue = Queue::new(2);
        queue.plan(0, 5);
        queue.plan(1, 7);
        let event = queue.begin().unwrap();
        queue.plan(0, 6);
        queue.done(event);
        assert_eq!(pop(&mut queue), Some((6, 0)));
        assert_eq!(pop(&mut queue), Some((7, 1)));
        assert_eq!(pop(&mut queue), None);
    }

    #[test]
    fn the_queue_behaves_like_an_ordered_map() {
        let (mut queue, mut map, mut rng) = (Queue::new(50), BTreeMap::new(), Rng::new(3));
        let mut keys: Vec<Option<(u64, u64)>> = vec![None; 50];
        for step in 0..20_000_u64 {
            let slot = rng.below(50) as usize;
            match rng.below(4) {
                0 => {
                    let popped = map.pop_first().map(|((at, _), slot): ((u64, u64), usize)| {
                        keys[slot] = None;
                        (at, slot)
                    });
                    assert_eq!(pop(&mut queue), popped);
                }
                1 => {
                    queue.cancel(slot);
                    keys[slot].take().map(|key| map.remove(&key));
                }
                _ => {
                    let at = rng.below(30);
                    queue.plan(slot, at);
                    keys[slot].take().map(|key| map.remove(&key));
                    keys[slot] = Some((at, step));
                    map.insert((at, step), slot);
                }
            }
            assert_eq!(queue.next(), map.keys().next().map(|(at, _)| *at));
            assert_eq!(queue.planned(slot), keys[slot].map(|(at, _)| at));
        }
    }
}
