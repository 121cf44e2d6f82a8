//! Counters of the CPUs that launches keep for the next launch, in the file of the records.
//!
//! Problem: a launch needs the load of the CPUs, and must not sleep to measure it. Idea: each
//! launch that reads the counters keeps them, and a later launch computes the load since then. Two
//! slots are written in turn, so that one of them is always old enough.
//!
//! All users may write the file, so a sample is a claim: it is parsed as hostile input, and a false
//! one makes a launch prefer other CPUs, which a user who holds them could do as well. Two writers
//! at once make a slot whose checksum is wrong, which counts as empty.
//!
//! Layout of a slot, little endian: magic 8, time of the sample in nanoseconds since boot 8, length
//! of the sample 8, checksum of time, length and sample 8, sample.

use super::Ledger;
use super::error::LedgerError;
use super::kept_tasks::KeptTasks;
use super::place::{LedgerPart, Location};
use crate::survey::LoadSample;
use rustix::io::{pread, pwrite};
use rustix::process::{Resource, getrlimit};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use trimtab_core::hash::fnv1a;

/// Offset of the first slot: behind the records of all levels.
const SLOTS_AT: u64 = 1 << 32;
/// Distance between the two slots.
const SLOT_BYTES: usize = 512 << 10;
/// Number of slots.
const SLOTS: u64 = 2;
const MAGIC: [u8; 8] = *b"ttload01";
const HEADER_BYTES: usize = 32;

/// The kept counters of one boot.
#[derive(Debug)]
pub struct LoadSamples {
    file: Arc<OwnedFd>,
}

/// Header of a slot, and the slot's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Slot {
    number: u64,
    taken: Duration,
    length: usize,
    checksum: u64,
}

impl LoadSamples {
    /// Opens the file of the records, and makes it if it does not exist.
    ///
    /// # Errors
    /// As [`super::Ledger::open`]. A launch can do without kept counters.
    pub fn open(location: &Location) -> Result<Self, LedgerError> {
        let place = location.find()?;
        Ok(Self { file: Arc::new(place.open_or_create(LedgerPart::Holders)?.descriptor) })
    }

    /// Returns the counters beside an open ledger; `None` if its file of records cannot be used.
    pub fn beside(ledger: &Ledger) -> Option<Self> {
        Some(Self { file: Arc::clone(ledger.records()?) })
    }

    /// Returns the places of tasks that launches keep in the same file.
    pub fn tasks(&self) -> KeptTasks {
        KeptTasks::in_file(Arc::clone(&self.file))
    }

    /// Has the effect of [`Self::latest`] and then [`Self::keep`], and reads the slots once.
    pub fn exchange(
        &self,
        sample: Option<&LoadSample>,
        now: Duration,
        ages: &RangeInclusive<Duration>,
    ) -> Option<(LoadSample, Duration)> {
        let slots = self.slots();
        let before = self.latest_of(slots.clone(), now, ages);
        if let Some(sample) = sample {
            self.keep_beside(&slots, sample, now, *ages.start());
        }
        before
    }

    /// Returns the youngest kept sample with an age in this range at `now` (since boot), and its
    /// age.
    pub fn latest(&self, now: Duration, ages: &RangeInclusive<Duration>) -> Option<(LoadSample, Duration)> {
        self.latest_of(self.slots(), now, ages)
    }

    fn latest_of(
        &self,
        mut slots: Vec<Slot>,
        now: Duration,
        ages: &RangeInclusive<Duration>,
    ) -> Option<(LoadSample, Duration)> {
        slots.retain(|slot| slot.taken <= now && ages.contains(&(now - slot.taken)));
        slots.sort_by_key(|slot| std::cmp::Reverse(slot.taken));
        slots.iter().find_map(|slot| Some((self.sample(slot)?, now - slot.taken)))
    }

    /// Keeps a sample that was taken at `now`, unless another one was taken less than `apart` ago.
    /// Does nothing if the file cannot be written.
    pub fn keep(&self, sample: &LoadSample, now: Duration, apart: Duration) {
        self.keep_beside(&self.slots(), sample, now, apart);
    }

    fn keep_beside(&self, slots: &[Slot], sample: &LoadSample, now: Duration, apart: Duration) {
        // A time in the future is not one of this boot.
        let valid = |slot: &&Slot| slot.taken <= now;
        if slots.iter().filter(valid).any(|slot| now - slot.taken < apart) {
            return;
        }
        let used =
            |number| slots.iter().filter(valid).find(|slot| slot.number == number).map(|slot| slot.taken);
        let Some(number) = (0..SLOTS).min_by_key(|number| used(*number)) else { return };
        let Ok(body) = postcard::to_stdvec(sample) else { return };
        if body.len() > SLOT_BYTES - HEADER_BYTES {
            return;
        }
        let taken = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
        bytes.extend(MAGIC);
        bytes.extend(taken.to_le_bytes());
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(checksum(taken, &body).to_le_bytes());
        bytes.extend(body);
        let at = slot_at(number);
        // Beyond this limit the kernel does not only refuse: it kills this process (SIGXFSZ).
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < at + bytes.len() as u64) {
            return;
        }
        // A short write leaves a slot with a wrong checksum, which counts as empty.
        let _ = pwrite(&self.file, &bytes, at);
    }

    /// Reads the headers that are whole.
    fn slots(&self) -> Vec<Slot> {
        (0..SLOTS).filter_map(|number| self.slot(number)).collect()
    }

    fn slot(&self, number: u64) -> Option<Slot> {
        let mut header = [0; HEADER_BYTES];
        if pread(&self.file, &mut header, slot_at(number)).ok()? != HEADER_BYTES || header[..8] != MAGIC {
            return None;
        }
        let word = |at: usize| Some(u64::from_le_bytes(header[at..at + 8].try_into().ok()?));
        let length = usize::try_from(word(16)?).ok().filter(|length| *length <= SLOT_BYTES - HEADER_BYTES)?;
        Some(Slot { number, taken: Duration::from_nanos(word(8)?), length, checksum: word(24)? })
    }

    fn sample(&self, slot: &Slot) -> Option<LoadSample> {
        let mut body = vec![0; slot.length];
        let read = pread(&self.file, &mut body[..], slot_at(slot.number) + HEADER_BYTES as u64).ok()?;
        let taken = u64::try_from(slot.taken.as_nanos()).ok()?;
        if read != body.len() || checksum(taken, &body) != slot.checksum {
            return None;
        }
        postcard::from_bytes(&body).ok()
    }
}

fn slot_at(number: u64) -> u64 {
    SLOTS_AT + number * SLOT_BYTES as u64
}

fn checksum(taken: u64, body: &[u8]) -> u64 {
    let length = (body.len() as u64).to_le_bytes();
    fnv1a(taken.to_le_bytes().into_iter().chain(length).chain(body.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::Ticks;
    use std::collections::BTreeMap;
    use trimtab_core::ids::OsCpu;

    const AGES: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(10);
    const APART: Duration = Duration::from_millis(100);

    fn samples() -> LoadSamples {
        LoadSamples { file: Arc::new(tempfile::tempfile().unwrap().into()) }
    }

    fn counters(user: u64) -> LoadSample {
        LoadSample { cpus: BTreeMap::from([(OsCpu(3), Ticks { user, ..Ticks::default() })]) }
    }

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_youngest_sample_that_is_old_enough_is_returned() {
        let kept = samples();
        assert_eq!(kept.latest(at(1000), &AGES), None);
        kept.keep(&counters(1), at(1000), APART);
        assert_eq!(kept.latest(at(1050), &AGES), None, "too young");
        kept.keep(&counters(2), at(1050), APART);
        kept.keep(&counters(3), at(1200), APART);
        assert_eq!(
            kept.latest(at(1250), &AGES),
            Some((counters(1), at(250))),
            "the second one came too soon"
        );
        assert_eq!(kept.latest(at(1300), &AGES), Some((counters(3), at(100))));
        kept.keep(&counters(4), at(1400), APART);
        assert_eq!(
            kept.latest(at(1450), &AGES),
            Some((counters(3), at(250))),
            "the oldest slot was replaced"
        );
        assert_eq!(kept.latest(at(60_000), &AGES), None, "too old");
    }

    #[test]
    fn an_exchange_returns_the_sample_before_and_keeps_the_new_one() {
        let kept = samples();
        assert_eq!(kept.exchange(Some(&counters(1)), at(1000), &AGES), None);
        assert_eq!(kept.exchange(Some(&counters(2)), at(1200), &AGES), Some((counters(1), at(200))));
        assert_eq!(kept.exchange(None, at(1300), &AGES), Some((counters(2), at(100))));
        assert_eq!(kept.latest(at(1350), &AGES), Some((counters(2), at(150))));
    }

    #[test]
    fn damaged_and_hostile_slots_count_as_empty() {
        let kept = samples();
        kept.keep(&counters(1), at(1000), APART);
        pwrite(&kept.file, b"x", SLOTS_AT + HEADER_BYTES as u64).unwrap();
        assert_eq!(kept.latest(at(1500), &AGES), None);
        // A length beyond the slot, a time in the future, and a sample of nonsense.
        for (taken, length, body) in [(1u64, u64::MAX, vec![]), (u64::MAX, 0, vec![]), (1, 9, vec![0xff; 9])]
        {
            let mut bytes = MAGIC.to_vec();
            bytes.extend(taken.to_le_bytes());
            bytes.extend(length.to_le_bytes());
            bytes.extend(checksum(taken, &body).to_le_bytes());
            bytes.extend(&body);
            for number in 0..SLOTS {
                pwrite(&kept.file, &bytes, slot_at(number)).unwrap();
            }
            assert_eq!(kept.latest(at(200), &AGES), None);
        }
        kept.keep(&counters(7), at(1000), APART);
        assert_eq!(kept.latest(at(1500), &AGES).map(|(sample, _)| sample), Some(counters(7)));
    }
}
