//! A QMP socket, whose listener may be any process.
#![no_main]
use libfuzzer_sys::fuzz_target;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use trimtab_linux::vcpus::qmp;

fuzz_target!(|bytes: &[u8]| {
    let (ours, mut theirs) = UnixStream::pair().expect("two ends");
    // All bytes fit between the two ends, so that neither end blocks.
    if bytes.len() > 32 << 10 || theirs.write_all(bytes).is_err() {
        return;
    }
    theirs.shutdown(Shutdown::Write).expect("it is connected");
    let _ = qmp::ask_over(OwnedFd::from(ours), Duration::from_secs(5));
});
