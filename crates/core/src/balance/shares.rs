//! What each seat gives to each thread on it, now and after a move.
//!
//! Unit: work a second, 1 for a thread alone on the fastest make of core. Problem: a move must be judged before it is
//! made, also to a seat that holds none of our threads. Counting such a seat as fast, as the paper does, doubles threads up
//! beside the one core on which another program runs. Idea: a CPU gives everyone who wants it the same, so a seat of weight
//! w with n of ours and f others gives w / (n + f) to each; n is known, and f is told by how much our threads wait there
//! (1 / speed - n) or, where we have none, by how busy the CPU is.
//!
//! Properties: what was not read keeps its last estimate; a seat of which nothing is known is said to be so, and nobody is moved
//! there; what was measured across a move is not used; others that do not always run count as a part. Threads take turns on
//! the seats, so each gets the mean in the end: a move is [`Worth`] it when the two seats together give more to ours, or as
//! much and the slower of them clearly more; it is harmless when neither gives less.

use super::ground::{Ground, Seat};
use super::seating::Seating;
use crate::observe::{Metric, Observation};
use crate::time::{Moment, Span};

/// Less than this of another's load is taken for the noise of measuring: at speed 0.87, a timer tick in 30.
const NOISE_MAX: f64 = 0.15;

/// Seconds over which it is told what is usual on a seat: several times what the kernel takes to move a hog on if it can.
const USUAL: f64 = 0.2;

/// A CPU's time is counted in ticks of 10 ms: over so many seconds, one tick more or less is below [`NOISE_MAX`].
const BUSY_MIN: f64 = 0.08;

/// Differences below this are none: a fiftieth, what sampling loses at 250 ticks a second and half-second looks.
const SAME: f64 = 0.02;

/// A gain below this is not worth a move: what a thread beside another program is measured to get varies by as much.
const GAIN_MIN: f64 = 0.1;

/// What a move would bring.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Worth {
    /// Together the seats give less, or as much and the slower of them less.
    Worse,
    /// Others are slow now, as many as before.
    Same,
    /// Together they give more, or as much and the slower of them gives more.
    Better,
}

/// What is on the seats.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    ours: Vec<u32>,
    foreign: Vec<Option<f64>>,
    weight: Vec<f64>,
    first: Vec<usize>,
    sitters: Vec<usize>,
    usual: Vec<(f64, f64)>,
    /// By seat without ours: for how long its CPU's time was read, and how much of that others had; in seconds, since last believed.
    heard: Vec<(f64, f64)>,
    changed: Vec<Moment>,
    at: Moment,
}

impl Shares {
    /// Looks at the seats again.
    pub(super) fn look(&mut self, seating: &Seating, seen: &Observation<'_>) {
        let ground = &seating.ground;
        let seats = ground.len();
        self.foreign.resize(seats, None);
        if self.weight.is_empty() {
            self.weight = (0..seats).map(|at| ground.place(Seat::at(at)).weight).collect();
        }
        self.occupants(seating);
        self.at = seen.at;
        self.changed.resize(seats, Moment::default());
        self.usual.resize(seats, (0.0, 0.0));
        self.heard.resize(seats, (0.0, 0.0));
        let before = std::mem::replace(&mut self.ours, vec![0; seats]);
        let mut read = vec![(0.0, 0u32, 0.0); seats];
        let mut run = vec![0.0; seats];
        for sitter in &seating.sitters {
            let Some(seat) = sitter.seat else { continue };
            if sitter.active() {
                self.ours[seat.index()] += 1;
            }
            if let Some(rates) = &sitter.rates {
                run[seat.index()] += rates.run;
            }
        }
        for (at, (before, ours)) in before.iter().zip(&self.ours).enumerate() {
            if before != ours {
                self.changed[at] = seen.at;
            }
        }
        for sitter in &seating.sitters {
            let (Some(seat), Some(rates)) = (sitter.seat, &sitter.rates) else { continue };
            if let Some(speed) =
                sitter.speed(Metric::RunWait).filter(|_| sitter.active() && self.clean(seat, rates.span))
            {
                read[seat.index()].0 += speed;
                read[seat.index()].1 += 1;
                read[seat.index()].2 = rates.span.seconds();
            }
        }
        for (at, (sum, count, seconds)) in read.into_iter().enumerate() {
            let ours = self.ours[at];
            if count > 0 && count == ours && sum > 0.0 {
                self.hear(at, f64::from(count) / sum - f64::from(ours), seconds);
            }
        }
        for view in &seen.cpus {
            let (Some(seat), Some((busy, span))) = (ground.seat(view.cpu), view.busy.zip(view.span)) else {
                continue;
            };
            let at = seat.index();
            if self.ours[at] > 0 || !self.clean(seat, span) {
                // Ours were there for a part of it.
                self.heard[at] = (0.0, 0.0);
                continue;
            }
            let (long, others) = &mut self.heard[at];
            *long += span.seconds();
            *others += (busy - run[at]) * span.seconds();
            if *long >= BUSY_MIN {
                let busy = (*others / *long).clamp(0.0, 1.0);
                self.heard[at] = (0.0, 0.0);
                self.overhear(at, busy);
            }
        }
    }

    /// What runs on a CPU without us; one that is always busy has at least one who wants it always.
    fn overhear(&mut self, at: usize, busy: f64) {
        let most = self.foreign[at].unwrap_or(0.0).max(1.0);
        let wants = if busy < 1.0 { busy / (1.0 - busy) } else { most };
        self.foreign[at] = Some(if wants < NOISE_MAX { 0.0 } else { wants.min(most) });
    }

    fn hear(&mut self, at: usize, others: f64, seconds: f64) {
        let others = if others < NOISE_MAX { 0.0 } else { others };
        let (mean, known) = &mut self.usual[at];
        *known = (*known + seconds).min(USUAL);
        *mean += (others - *mean) * (seconds / *known).min(1.0);
        self.foreign[at] = Some(match self.foreign[at] {
            Some(before) if (before - others).abs() > NOISE_MAX => (before + others) / 2.0,
            _ => others,
        });
    }

    /// Sorts the threads by seat, once, so that a seat's are a slice.
    fn occupants(&mut self, seating: &Seating) {
        let seats = seating.ground.len();
        self.first = vec![0; seats + 1];
        for seat in seating.sitters.iter().filter_map(|sitter| sitter.seat) {
            self.first[seat.index() + 1] += 1;
        }
        for at in 0..seats {
            self.first[at + 1] += self.first[at];
        }
        let mut next = self.first.clone();
        self.sitters = vec![0; self.first[seats]];
        for (i, sitter) in seating.sitters.iter().enumerate() {
            if let Some(seat) = sitter.seat {
                self.sitters[next[seat.index()]] = i;
                next[seat.index()] += 1;
            }
        }
    }

    /// The threads that sit on a seat, as of the last look.
    pub(super) fn on(&self, seat: Seat) -> &[usize] {
        &self.sitters[self.first[seat.index()]..self.first[seat.index() + 1]]
    }

    /// How many of ours compute there, moves of this turn included.
    pub(super) fn ours(&self, seat: Seat) -> u32 {
        self.ours[seat.index()]
    }

    /// For the dealing: how many of ours there are, and how many others, none where nothing is known.
    pub(super) fn loads(&self) -> (Vec<u32>, Vec<f64>) {
        (self.ours.clone(), self.foreign.iter().map(|others| others.unwrap_or(0.0)).collect())
    }

    /// How many others there are; `None` when nothing is known of it.
    pub(super) fn foreign(&self, seat: Seat) -> Option<f64> {
        self.foreign[seat.index()]
    }

    /// What it gives to each of `ours` threads.
    pub(super) fn each(&self, seat: Seat, ours: u32) -> f64 {
        let at = seat.index();
        self.weight[at] / (f64::from(ours.max(1)) + self.foreign[at].unwrap_or(0.0))
    }

    /// What it gives to each thread that is there now.
    pub(super) fn now(&self, seat: Seat) -> f64 {
        self.each(seat, self.ours(seat))
    }

    /// Whether what was measured on a seat over the time up to now tells of who is there: it began after the last change.
    pub(super) fn clean(&self, seat: Seat, over: Span) -> bool {
        over <= self.at.since(self.changed[seat.index()])
    }

    /// What it usually gave to as many threads as are there now, over the last tenths of a second; `None` where that is not
    /// known yet.
    pub(super) fn usual(&self, seat: Seat) -> Option<f64> {
        let (others, known) = self.usual[seat.index()];
        (known >= USUAL / 2.0)
            .then(|| self.weight[seat.index()] / (f64::from(self.ours(seat).max(1)) + others))
    }

    /// What it would give to each thread that is there now if nobody else were.
    pub(super) fn alone(&self, seat: Seat) -> f64 {
        self.weight[seat.index()] / f64::from(self.ours(seat).max(1))
    }

    /// What moving one thread from a seat to another would bring.
    pub(super) fn worth(&self, from: Seat, to: Seat) -> Worth {
        let (here, there) = (self.ours(from), self.ours(to));
        if here == 0 || self.foreign(to).is_none() && there == 0 {
            return Worth::Worse;
        }
        let both = |here: u32, there: u32| {
            let each = |seat, ours: u32| (ours > 0).then(|| self.each(seat, ours));
            let (here_each, there_each) = (each(from, here), each(to, there));
            let least = here_each.into_iter().chain(there_each).fold(f64::INFINITY, f64::min);
            let sum =
                f64::from(here) * here_each.unwrap_or(0.0) + f64::from(there) * there_each.unwrap_or(0.0);
            (least, sum)
        };
        let (before, after) = (both(here, there), both(here - 1, there + 1));
        let compare = |before: f64, after: f64| {
            if after > before * (1.0 + GAIN_MIN) {
                Worth::Better
            } else if after < before * (1.0 - SAME) {
                Worth::Worse
            } else {
                Worth::Same
            }
        };
        match compare(before.1, after.1) {
            Worth::Same => compare(before.0, after.0),
            other => other,
        }
    }

    /// Counts a move that was decided.
    pub(super) fn moved(&mut self, from: Seat, to: Seat) {
        self.ours[from.index()] = self.ours[from.index()].saturating_sub(1);
        self.changed[from.index()] = self.at;
        self.came(to);
    }

    /// Counts a thread that had no seat.
    pub(super) fn came(&mut self, to: Seat) {
        self.ours[to.index()] += 1;
        self.changed[to.index()] = self.at;
    }

    /// Counts an exchange that was decided.
    pub(super) fn exchanged(&mut self, one: Seat, other: Seat) {
        self.changed[one.index()] = self.at;
        self.changed[other.index()] = self.at;
    }
}

/// A thread's seat is open to it, and its own: what both halves of an exchange need.
pub(super) fn fits(ground: &Ground, seating: &Seating, i: usize, seat: Seat) -> bool {
    ground.is_open(seat) && seating.sitters[i].free() && seating.may(i, seat)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::parse_synthetic;

    /// Seats with so many of ours and so many others.
    fn shares(seats: &[(u32, Option<f64>)]) -> Shares {
        Shares {
            ours: seats.iter().map(|seat| seat.0).collect(),
            foreign: seats.iter().map(|seat| seat.1).collect(),
            weight: vec![1.0; seats.len()],
            ..Shares::default()
        }
    }

    #[test]
    fn moves_are_judged_by_what_the_seats_give_together() {
        let worth = |here, there| shares(&[here, there]).worth(Seat::at(0), Seat::at(1));
        assert_eq!(worth((2, Some(0.0)), (1, Some(0.0))), Worth::Same, "three on two: others are slow then");
        assert_eq!(worth((2, Some(0.0)), (0, Some(0.0))), Worth::Better);
        assert_eq!(
            worth((2, Some(0.0)), (0, Some(1.0))),
            Worth::Better,
            "as slow beside the hog, and the other is fast"
        );
        assert_eq!(
            worth((1, Some(1.0)), (1, Some(0.0))),
            Worth::Worse,
            "doubling up beside a hog that is alone"
        );
        assert_eq!(
            worth((1, Some(1.1)), (1, Some(0.0))),
            Worth::Worse,
            "as fast as before for the one, half as fast for the other: seen to bind both to one core beside a hog"
        );
        assert_eq!(worth((2, Some(1.0)), (1, Some(0.0))), Worth::Worse, "two of three beside the hog");
        assert_eq!(worth((1, Some(0.0)), (0, Some(0.0))), Worth::Same);
        assert_eq!(worth((2, Some(0.0)), (0, None)), Worth::Worse, "what is not known is not free");
        assert_eq!(worth((0, Some(0.0)), (1, Some(0.0))), Worth::Worse, "nobody to move");
    }

    #[test]
    fn slow_cores_weigh_less() {
        let mut seats = shares(&[(2, Some(0.0)), (0, Some(0.0))]);
        seats.weight[1] = 0.4;
        assert_eq!(seats.worth(Seat::at(0), Seat::at(1)), Worth::Better, "0.7 each in turns, and 0.5 before");
        seats.weight[1] = 0.05;
        assert_eq!(seats.worth(Seat::at(0), Seat::at(1)), Worth::Worse, "hardly more in all, and one stands");
    }

    #[test]
    fn an_empty_seat_is_told_by_how_busy_it_is() {
        let machine = parse_synthetic("core:2 pu:1").unwrap();
        let mut observer = crate::observe::Observer::new(machine.cpus());
        let mut seating = Seating::new(&machine);
        let mut seats = Shares::default();
        for (ms, busy) in [(0, 0), (100, 100), (200, 130)] {
            let cpu = |at: u32, busy: u64| crate::observe::CpuSample {
                cpu: crate::ids::OsCpu(at),
                busy: Span::from_ms(busy),
                steal: None,
            };
            let at = Moment(ms * 1_000_000);
            let sample =
                crate::observe::Sample { at, cpus: vec![cpu(0, busy), cpu(1, 0)], ..Default::default() };
            observer.take(&sample, &[]);
            let seen = observer.observation();
            seating.update(&seen);
            seats.look(&seating, &seen);
            let each = seats.each(Seat::at(0), 1);
            match ms {
                0 => assert_eq!(seats.foreign(Seat::at(0)), None),
                100 => assert!((each - 0.5).abs() < 1e-9, "always busy: one hog at least, {each}"),
                _ => assert!((each - 0.7).abs() < 1e-9, "busy for three tenths, {each}"),
            }
        }
        assert_eq!(seats.foreign(Seat::at(1)), Some(0.0));
    }
}
