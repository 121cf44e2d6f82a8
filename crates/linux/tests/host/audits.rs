//! Audit of a run at its end.

use crate::scene::{NO_COMPILER, Worker, eventually, need};

#[test]
fn an_audit_has_living_and_ended_threads() {
    let mut worker = need!(Worker::start(), NO_COMPILER);
    let tids = worker.threads(2);
    worker.ask("busy 1");
    let (mut live, mut seen) = worker.seen();
    let busy = seen.last.threads.last().unwrap().clone();
    eventually("it runs", || seen.look(&mut live).threads.last().unwrap().run > busy.run);
    eventually("one has napped", || {
        live.look_closely();
        live.audit().threads.iter().any(|thread| thread.tid == tids[0] && thread.voluntary > Some(0))
    });
    let audit = live.audit();
    assert_eq!(audit.threads.len(), 4);
    let of = |tid: u32| audit.threads.iter().find(|thread| thread.tid.0 == tid).unwrap();
    assert!(of(tids[0].0).voluntary > Some(0), "{:?}", of(tids[0].0));
    assert!(of(tids[0].0).involuntary.is_some());
    if std::path::Path::new("/proc/self/sched").exists() {
        assert!(of(tids[0].0).migrations.is_some());
    }
    assert!(audit.memory.contains_key(&worker.pid()));
    worker.end();
    eventually("all have ended", || {
        seen.look(&mut live);
        seen.threads.is_empty()
    });
    let last = live.audit();
    assert!(last.threads.iter().all(|thread| thread.ended));
    for thread in &audit.threads {
        let after = last.threads.iter().find(|after| after.id == thread.id).unwrap();
        assert!(after.voluntary >= thread.voluntary, "what was read last is kept");
    }
    assert_eq!(last.memory, audit.memory);
}
