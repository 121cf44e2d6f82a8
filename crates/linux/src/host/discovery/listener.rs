//! Interface of discovery to the other parts of a host: calls as processes and threads come and go.

use super::thread_table::{Thread, ThreadTable};
use crate::process::{Pid, Stat, Tid};
use trimtab_core::ids::ThreadId;
use trimtab_core::observe::ProgramInfo;

/// Ways in which a process was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A root names it.
    Root,
    /// A root names the control group that it is in.
    Group,
    /// It is a virtual machine that a root names.
    VirtualMachine,
    /// It is a child of this process, which is under watch.
    ChildOf(Pid),
}

/// A part, or all parts, of a host that keep something for each thread. Every call has a default
/// that does nothing, so that a host which only counts threads needs none of them.
///
/// The table is as it is after the change that is told, but for ends: [`Self::thread_ended`] gets
/// the thread that was removed, and [`Self::process_dropped`] comes before its threads end.
pub trait ThreadListener {
    /// A program was found, or has another name.
    fn program_named(&mut self, _info: ProgramInfo) {}

    /// A process was taken in. Its threads follow.
    fn process_found(&mut self, _table: &ThreadTable, _pid: Pid, _origin: Origin) {}

    /// A process has ended, and all its threads before it.
    fn process_ended(&mut self, _pid: Pid) {}

    /// A process lives, and no root means it any more: it and its threads are about to be
    /// forgotten.
    fn process_dropped(&mut self, _table: &ThreadTable, _pid: Pid) {}

    /// A thread was taken in; false refuses it, since it has ended already.
    fn thread_found(&mut self, _table: &ThreadTable, _id: ThreadId, _stat: &Stat) -> bool {
        true
    }

    /// A thread has ended. `told` says that a sample has told of it before.
    fn thread_ended(&mut self, _id: ThreadId, _thread: &Thread, _told: bool) {}

    /// A thread has another name.
    fn thread_renamed(&mut self, _table: &ThreadTable, _id: ThreadId) {}

    /// The roots' interest in a thread, or its program, is another.
    fn interest_changed(&mut self, _table: &ThreadTable, _id: ThreadId) {}

    /// A new thread of a virtual machine is none of its CPUs.
    fn bystander_found(&mut self, _table: &ThreadTable, _pid: Pid, _tid: Tid) {}

    /// Whether a child of a process that is not meant as a whole is to be watched all the same.
    fn wants_child(&self, _child: Pid, _parent: Pid) -> bool {
        false
    }

    /// Whether a process is part of the host itself.
    fn is_own(&self, _pid: Pid) -> bool {
        false
    }
}

/// A listener that keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl ThreadListener for Silent {}
