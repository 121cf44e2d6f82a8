use super::*;
use crate::ledger::BootId;
use std::sync::atomic::{AtomicBool, Ordering};

const BOOT: &str = "00000000-1111-2222-3333-444444444444";

fn journal(folder: &Path) -> AffinityJournal {
    let boot = BootId::parse(BOOT).unwrap();
    AffinityJournal::open(&Location::named(folder, boot), Path::new("/proc")).unwrap()
}

fn entry(held: &str) -> Entry {
    let (home, held) = ("0-7".parse().unwrap(), held.parse().unwrap());
    Entry { start: StartTime(7), home, follows: false, held, before: None }
}

fn ours(claim: ClaimOutcome) -> MaskRecord {
    match claim {
        ClaimOutcome::Ours(record) => record,
        ClaimOutcome::Others(other) => panic!("{other} has it"),
    }
}

#[test]
fn asking_for_the_balancer_does_not_look_like_a_balancer() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal(folder.path());
    let (pid, start) = (Pid(1_000), StartTime(5));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                journal.balancer(pid, start);
            }
        });
        for _ in 0..2_000 {
            ours(journal.claim(pid, start, pid).unwrap()).finish();
        }
        over.store(true, Ordering::Release);
    });
    // A record that is in use counts as a balancer.
    let record = ours(journal.claim(pid, start, pid).unwrap());
    assert_eq!(journal.balancer(pid, start), Some(Pid::own().0));
    assert!(matches!(journal.claim(pid, start, pid), Ok(ClaimOutcome::Others(own)) if own == Pid::own().0));
    drop(record);
    assert_eq!(journal.balancer(pid, start), None);
}

#[test]
fn a_rewritten_record_is_another_file_and_the_old_one_stays_whole() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal(folder.path());
    let (pid, start) = (Pid(1_000), StartTime(5));
    let mut record = ours(journal.claim(pid, start, pid).unwrap());
    record.note(Tid(1), entry("1")).unwrap();
    let old = journal.folder.open(&record.name).unwrap();
    record.write_anew().unwrap();
    record.note(Tid(2), entry("2")).unwrap();
    let read = |file: &OwnedFd| Lines::decode(&contents(file, &fstat(file).unwrap()).unwrap()).unwrap();
    assert_eq!(read(&old).threads, Entries::from([(Tid(1), entry("1"))]), "as it was, to whoever reads it");
    let new = journal.folder.open(&record.name).unwrap();
    assert_eq!(read(&new).threads.len(), 2);
    assert!(read(&new).header.generation > read(&old).header.generation);
    assert!(conflict(new.as_fd(), LOCKED_BYTES).unwrap().is_some(), "locked as the old one was");
    // A thread that has its own mask again is not in the record any more.
    record.forget(Tid(1));
    assert_eq!(read(&new).threads, Entries::from([(Tid(2), entry("2"))]));
    // Taken over after a kill, nothing is lost while the first line is written.
    drop(record);
    let record = ours(journal.claim(pid, start, pid).unwrap());
    assert_eq!(record.entry(Tid(2), StartTime(7), &CpuSet::new()), Some(&entry("2")));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    record.finish();
}
