//! Signals taken one by one instead of by handlers, and forwarded.
//!
//! A parent that represents its program must identify the sender of a signal: the terminal sends
//! its signals to the whole group, so that the program has them already, while a signal that
//! another process sends to the parent alone has to be forwarded. Handlers of the usual kind do not
//! get the sender; waiting for a blocked signal returns it. In this way no code runs in an
//! interrupted context.

use super::errno;
use rustix::io::Errno;
use std::ffi::c_int;
use std::mem::MaybeUninit;

/// Sender of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sender {
    /// The kernel: the terminal, a timer, the end of a child.
    Kernel,
    /// A process, by its number; 0 for one outside our process-id namespace.
    Process(u32),
}

/// A signal that was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceivedSignal {
    /// Its number.
    pub number: c_int,
    /// Its sender.
    pub sender: Sender,
    /// The word that was queued with it, if any.
    pub word: Option<usize>,
}

/// State of the signals before [`block`].
#[derive(Clone, Copy)]
pub struct Inherited {
    mask: libc::sigset_t,
    child: libc::sigaction,
}

impl std::fmt::Debug for Inherited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inherited").finish_non_exhaustive()
    }
}

/// Returns all signals but SIGPIPE, which concerns this process's own writing. The kernel leaves
/// out those that cannot be blocked.
fn all() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is valid memory of the right type, and all zero is a valid (empty) set; both
    // calls only write to it, and fail for signal numbers that do not exist, which SIGPIPE is not.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        libc::sigdelset(set.as_mut_ptr(), libc::SIGPIPE);
        set.assume_init()
    }
}

/// Returns a set of one signal.
fn only(number: c_int) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: as above; a number that is not a signal leaves the set empty.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), number);
        set.assume_init()
    }
}

/// Blocks all signals of the calling thread, and of threads it starts from now on, so that [`next`]
/// gets them. Ended children are kept until they are waited for, even if this process was started
/// with SIGCHLD ignored.
///
/// # Errors
/// None that a kernel gives in practice.
pub fn block() -> Result<Inherited, Errno> {
    let (set, mut mask) = (all(), MaybeUninit::<libc::sigset_t>::zeroed());
    // SAFETY: the new set is initialised, the old one is written to valid memory of the right type,
    // for which all zero is valid already.
    let blocked = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, mask.as_mut_ptr()) };
    if blocked != 0 {
        return Err(Errno::from_raw_os_error(blocked));
    }
    let default = MaybeUninit::<libc::sigaction>::zeroed();
    let mut child = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zero is the default action without flags; the old one is written to valid memory
    // of the right type.
    let answer = unsafe { libc::sigaction(libc::SIGCHLD, default.as_ptr(), child.as_mut_ptr()) };
    if answer < 0 {
        return Err(errno::last());
    }
    // SAFETY: both were zeroed, which is valid, and then written by calls that succeeded.
    unsafe { Ok(Inherited { mask: mask.assume_init(), child: child.assume_init() }) }
}

impl Inherited {
    /// Restores the signal mask of the calling thread and the action of SIGCHLD.
    pub fn restore(&self) {
        // SAFETY: both values were written by the kernel in `block` and are of the right types;
        // null asks for no old value.
        unsafe {
            libc::sigaction(libc::SIGCHLD, &raw const self.child, std::ptr::null_mut());
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, std::ptr::null_mut());
        }
    }
}

/// Returns whether this process ignores a signal, for example because its parent ignored it.
pub fn is_ignored(number: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action only asks; the old one is written to valid memory of the right
    // type.
    let asked = unsafe { libc::sigaction(number, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all-zero is a valid `sigaction`, and the call above may have overwritten it with
    // another.
    asked == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Guard: while it lives, children that end are kept until they are waited for, even if this
/// process was started with SIGCHLD ignored.
pub struct ChildrenKept(libc::sigaction);

impl std::fmt::Debug for ChildrenKept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChildrenKept").finish_non_exhaustive()
    }
}

/// Sets the default action of SIGCHLD until the guard is dropped.
///
/// # Errors
/// None that a kernel gives in practice.
pub fn keep_children() -> Result<ChildrenKept, Errno> {
    let (default, mut before) =
        (MaybeUninit::<libc::sigaction>::zeroed(), MaybeUninit::<libc::sigaction>::zeroed());
    // SAFETY: all zero is the default action without flags; the old one is written to valid memory
    // of the right type.
    if unsafe { libc::sigaction(libc::SIGCHLD, default.as_ptr(), before.as_mut_ptr()) } < 0 {
        return Err(errno::last());
    }
    // SAFETY: zeroed at first, which is valid, and written by the call that succeeded.
    Ok(ChildrenKept(unsafe { before.assume_init() }))
}

impl Drop for ChildrenKept {
    fn drop(&mut self) {
        // SAFETY: the action was written by the kernel; null asks for no old one.
        unsafe { libc::sigaction(libc::SIGCHLD, &raw const self.0, std::ptr::null_mut()) };
    }
}

/// Waits for the next of the signals that [`block`] holds back.
///
/// # Errors
/// None that a kernel gives in practice. A stop and continuation meanwhile is not an error.
pub fn next() -> Result<ReceivedSignal, Errno> {
    let (set, mut info) = (all(), MaybeUninit::<libc::siginfo_t>::zeroed());
    loop {
        // SAFETY: the set is initialised, and the kernel writes the signal to valid memory of the
        // right type.
        let number = unsafe { libc::sigwaitinfo(&raw const set, info.as_mut_ptr()) };
        if number > 0 {
            // SAFETY: zeroed at first, which is valid, and written by the call that succeeded.
            let info = unsafe { info.assume_init() };
            // Every signal that a process sends (user, queue, thread-directed) has a code of at
            // most zero.
            let sender = if info.si_code <= 0 && number != libc::SIGCHLD {
                // SAFETY: signals that a process sends carry its number in this field.
                Sender::Process(u32::try_from(unsafe { info.si_pid() }).unwrap_or(0))
            } else {
                Sender::Kernel
            };
            let word = (info.si_code == libc::SI_QUEUE).then(|| {
                // SAFETY: queued signals, and only they, carry a word in this field.
                unsafe { info.si_value() }.sival_ptr.addr()
            });
            return Ok(ReceivedSignal { number, sender, word });
        }
        match errno::last() {
            Errno::INTR => {}
            error => return Err(error),
        }
    }
}

/// Sends a signal of any number to a process.
///
/// # Errors
/// `ESRCH` when it has ended, `EPERM` when it belongs to another user by now.
pub fn send(process: u32, number: c_int) -> Result<(), Errno> {
    let process = libc::pid_t::try_from(process).ok().filter(|&pid| pid > 0).ok_or(Errno::SRCH)?;
    // SAFETY: takes integers only; a positive number names one process.
    if unsafe { libc::kill(process, number) } < 0 { Err(errno::last()) } else { Ok(()) }
}

/// Sends a signal with a word to a process.
///
/// # Errors
/// As [`send`]; `EAGAIN` when too many are queued.
pub fn queue(process: u32, number: c_int, word: usize) -> Result<(), Errno> {
    let process = libc::pid_t::try_from(process).ok().filter(|&pid| pid > 0).ok_or(Errno::SRCH)?;
    let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(word) };
    // SAFETY: takes integers and a value that is passed on and never followed; a positive number
    // names one process.
    if unsafe { libc::sigqueue(process, number, value) } < 0 { Err(errno::last()) } else { Ok(()) }
}

/// Stops this process, as a signal of the terminal does, until it is continued. The kernel does not
/// stop members of an orphaned group, which nothing could continue; then the call returns at once.
pub fn stop(number: c_int) {
    let set = only(number);
    // Raised while the signal is blocked: if the terminal's own signal is pending too, the two stop
    // this process once, since a continuation clears the pending ones.
    // SAFETY: the set is initialised; null asks for no old value; raise takes an integer. None of
    // the signals that stop has a handler here.
    unsafe {
        libc::raise(number);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// Ends this process by a signal, as its program ended, and without a core file of its own. Returns
/// only if the signal does not end a process.
pub fn die(number: c_int) {
    let default = MaybeUninit::<libc::sigaction>::zeroed();
    let set = only(number);
    // SAFETY: PR_SET_DUMPABLE takes an integer and touches no memory; the action, all zero, is the
    // default one; the set is initialised; raise takes an integer. No handler runs.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        libc::sigaction(number, default.as_ptr(), std::ptr::null_mut());
        libc::raise(number);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
}
