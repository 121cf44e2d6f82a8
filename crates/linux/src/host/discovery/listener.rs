//! Interface of discovery to the other parts of a host: calls as processes and threads start and
//! end.

use super::thread_table::{ThreadTable, WatchedThread};
use crate::process::{Pid, Stat, Tid};
use trimtab_core::ids::ThreadId;
use trimtab_core::observe::ProgramInfo;

/// Way in which a process was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessOrigin {
    /// A root names the process.
    Root,
    /// A root names the process's control group.
    Group,
    /// The process is a virtual machine that a root names.
    VirtualMachine,
    /// The process is a child of this process, which is under watch.
    ChildOf(Pid),
}

/// A part, or all parts, of a host that keep state for each thread. Every call has a default that
/// does nothing, so a host that only counts threads implements none of them.
///
/// The table shows the state after the reported change, except for ends: [`Self::thread_ended`]
/// gets the thread that was removed, and [`Self::process_dropped`] comes before its threads end.
pub trait ThreadListener {
    /// Reports a program that was found or renamed.
    fn program_named(&mut self, _info: ProgramInfo) {}

    /// Reports a new process. Its threads follow.
    fn process_found(&mut self, _table: &ThreadTable, _pid: Pid, _origin: ProcessOrigin) {}

    /// Reports that a process has ended, after all its threads.
    fn process_ended(&mut self, _pid: Pid) {}

    /// Reports that a process lives but no root covers it any more: the process and its threads are
    /// about to be removed.
    fn process_dropped(&mut self, _table: &ThreadTable, _pid: Pid) {}

    /// Reports a new thread; returns false to refuse it because it has ended already.
    fn thread_found(&mut self, _table: &ThreadTable, _id: ThreadId, _stat: &Stat) -> bool {
        true
    }

    /// Reports that a thread has ended. `told`: whether a sample has reported the thread before.
    fn thread_ended(&mut self, _id: ThreadId, _thread: &WatchedThread, _told: bool) {}

    /// Reports that a thread has another name.
    fn thread_renamed(&mut self, _table: &ThreadTable, _id: ThreadId) {}

    /// Reports that the roots' interest in a thread, or its program, has changed.
    fn interest_changed(&mut self, _table: &ThreadTable, _id: ThreadId) {}

    /// Reports a new thread of a virtual machine that is not one of its CPUs.
    fn bystander_found(&mut self, _table: &ThreadTable, _pid: Pid, _tid: Tid) {}

    /// Returns whether to watch a child of a process that no root covers as a whole.
    fn wants_child(&self, _child: Pid, _parent: Pid) -> bool {
        false
    }

    /// Returns whether a process is part of the host itself.
    fn is_own(&self, _pid: Pid) -> bool {
        false
    }
}

/// A listener that keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl ThreadListener for Silent {}
