//! Detached threads. A user at the limit of processes gets an error that names the limit, instead
//! of a panic.

use anyhow::{Context, Result};
use std::thread::Builder;

/// Starts a named thread that does this work and is not joined.
///
/// # Errors
/// The user may have no more threads.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    Builder::new().name(name.to_owned()).spawn(work).map(drop).with_context(|| {
        format!(
            "cannot start a thread ({name}); `ulimit -u` and the group's pids.max say how many there may be"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
    use std::thread;

    #[test]
    fn a_refused_thread_is_reported_with_the_limit() {
        let refused = thread::spawn(|| {
            // As at the limit of a user's processes, for this thread alone.
            let calls = [libc::SYS_clone, libc::SYS_clone3].map(|call| (call, vec![])).into();
            let again = SeccompAction::Errno(libc::EAGAIN.unsigned_abs());
            let here = std::env::consts::ARCH.try_into().unwrap();
            let filter: BpfProgram =
                SeccompFilter::new(calls, SeccompAction::Allow, again, here).unwrap().try_into().unwrap();
            seccompiler::apply_filter(&filter).unwrap();
            format!("{:#}", spawn("keys", || ()).unwrap_err())
        });
        let told = refused.join().unwrap();
        assert!(told.contains("cannot start a thread (keys)") && told.contains("ulimit -u"), "{told}");
    }
}
