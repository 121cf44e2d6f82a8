//! Who asked for which threads to be looked after: the registry of tags, as a value.
//!
//! Problem: a daemon that moves threads for everybody must know whose wish each is, must not be a way to move what is not one's
//! own, and must not be worn down by whoever floods it. Idea: all of that is decided here, where no clock and no file is read: what was
//! found about a process, who asks, and the time are arguments, and what comes of them is a tag or a typed refusal.
//!
//! Terms: a *mark* is what was tagged (a process with all that comes from it, one thread, a control group, a virtual machine, one of
//! its CPUs); a *tag* is a mark and by whom. Numbers of processes are used again, so a mark has the time of the start too, and a
//! tag dies with what it marks.
//!
//! Properties: to tag twice is to tag once, and to clear what is not tagged is no error; one user's tags are never cleared by another but
//! root, and mean no other user's threads; there is a bound on tags for each user and for all; equal input gives equal output.
//!
//! Source: the two hypercalls of Rao, Wang, Zhou and Xu, HPCA 2013, by which a guest says which of its CPUs mind where they run.

mod ask;
mod bucket;
mod port;
mod refusal;
mod status;

pub use ask::{Answer, Ask, LINE_MAX, Request, Response, VERSION, What};
pub use bucket::Bucket;
pub use port::{GARBAGE_MAX, Port, PortLine, PortState};
pub use refusal::Refusal;
pub use status::{ClientStatus, Cost, GuestStatus, Status, TagStatus};

use crate::time::{Moment, Span};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// So many tags a user may have who is not root. Chosen: a thread each of a large machine.
pub const TAGS_OF_USER_MAX: usize = 512;
/// So many tags there may be. Chosen: what status and rounds of the loop can go through in a millisecond.
pub const TAGS_MAX: usize = 4_096;

/// Of these, so many are root's alone. Chosen: what an operator may need to tag while users have tagged all that they may.
const OF_ROOT: usize = 512;
/// So many control groups a user may have tagged who is not root: each may hold any number of processes, which are listed again and again.
/// Chosen.
pub const CGROUPS_OF_USER_MAX: usize = 16;
/// Each tag that comes or goes is work for whoever looks after threads: so many may do so at once for each user or guest, and so many a
/// second after that. Chosen: all that one may have, twice; and more often than anybody means to.
const CHANGES: u32 = 2 * TAGS_OF_USER_MAX as u32;
const CHANGES_A_SECOND: u32 = 4;
/// So many rates are remembered before those that have recovered are forgotten.
const RATES_KEPT: usize = 1_024;

/// Numbers of programs are below this: whoever looks after programs remembers something of each.
const PROGRAMS: u32 = 4 * TAGS_MAX as u32;

/// Who asks, as the kernel says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Who {
    /// The user.
    pub uid: u32,
}

impl Who {
    /// Whether threads of other users are this one's to move. Only root's: whether a process has `CAP_SYS_NICE` can be read, but not
    /// whether it had it when it connected, and whoever connects may become a program that has it.
    pub fn over_others(self) -> bool {
        self.uid == 0
    }
}

/// Whose threads whoever moves them may move at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Everybody's.
    All,
    /// This user's.
    User(u32),
}

/// Whose a process is: the users that the kernel compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Its process.
    pub pid: u32,
    /// The real user.
    pub real: u32,
    /// The effective one.
    pub effective: u32,
}

impl Owner {
    /// Whether it is this user's, as for `sched_setaffinity`.
    pub fn is(&self, uid: u32) -> bool {
        uid == self.real || uid == self.effective
    }
}

/// What is tagged.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// A process and all that comes from it.
    Process {
        /// Its number.
        pid: u32,
        /// When it started, in the kernel's ticks.
        start: u64,
    },
    /// One thread.
    Thread {
        /// Its process.
        pid: u32,
        /// Its number.
        tid: u32,
        /// When it started, in the kernel's ticks.
        start: u64,
    },
    /// The processes of a control group and of those below it.
    Cgroup(String),
    /// All CPUs of a virtual machine.
    Vm {
        /// What it is called.
        name: String,
        /// The process of its monitor.
        pid: u32,
        /// When that started.
        start: u64,
    },
    /// One CPU of a virtual machine.
    Vcpu {
        /// What the machine is called.
        vm: String,
        /// The process of its monitor.
        pid: u32,
        /// When that started.
        start: u64,
        /// The CPU, as the guest numbers it.
        index: u32,
    },
}

impl Mark {
    /// The process that it is in, where it is one.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Process { pid, .. }
            | Self::Thread { pid, .. }
            | Self::Vm { pid, .. }
            | Self::Vcpu { pid, .. } => Some(*pid),
            Self::Cgroup(_) => None,
        }
    }

    /// Whether it is meant by these words.
    pub fn is(&self, what: &What) -> bool {
        match (self, what) {
            // Who clears a process does not want a thread of it to stay behind.
            (Self::Process { pid, .. } | Self::Thread { pid, .. }, What::Process { pid: meant }) => {
                pid == meant
            }
            (Self::Thread { pid, tid, .. }, What::Thread { pid: of, tid: meant }) => {
                (pid, tid) == (of, meant)
            }
            (Self::Cgroup(path), What::Cgroup(meant)) => path == meant,
            (Self::Vm { name: vm, pid, .. } | Self::Vcpu { vm, pid, .. }, What::Vm(meant)) => {
                vm == meant || pid.to_string() == *meant
            }
            _ => false,
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, .. } => write!(f, "process {pid}"),
            Self::Thread { pid, tid, .. } => write!(f, "thread {pid}:{tid}"),
            Self::Cgroup(path) => write!(f, "group {path}"),
            Self::Vm { name, pid, .. } => write!(f, "machine {name} (process {pid})"),
            Self::Vcpu { vm, index, .. } => write!(f, "CPU {index} of machine {vm}"),
        }
    }
}

/// By whom a tag is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// A user, through the socket.
    User(u32),
    /// A guest, through the port of its machine.
    Guest(String),
    /// Nobody: the thread was bound by somebody (`--pinned`).
    Pinned,
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Guest(vm) => write!(f, "the guest of {vm}"),
            Self::Pinned => f.write_str("its mask"),
        }
    }
}

/// A tag's number, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TagId(pub u64);

/// A tag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tag {
    /// What.
    pub mark: Mark,
    /// By whom.
    pub by: By,
    /// Only this user's threads are meant.
    pub only: Option<u32>,
    /// Which work the threads belong to; tags of one group are one program.
    pub group: Option<String>,
    /// The program, as a number: that of the tag, or of its group. Numbers are used again, as late as can be.
    pub program: u32,
    /// Since when.
    pub since: Moment,
    /// When it was asked for last.
    pub renewed: Moment,
    /// When it goes, unless it is asked for again.
    pub leaves: Option<Moment>,
}

/// All tags.
#[derive(Clone, Debug)]
pub struct Registry {
    reach: Reach,
    tags: BTreeMap<TagId, Tag>,
    next: u64,
    programs: u32,
    generation: u64,
    rates: BTreeMap<By, Bucket>,
}

/// What came of clearing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cleared {
    /// Those that are gone.
    pub tags: Vec<TagId>,
    /// How many more were meant that are others'.
    pub others: u32,
}

impl Registry {
    /// An empty one, for somebody with this reach.
    pub fn new(reach: Reach) -> Self {
        Self { reach, tags: BTreeMap::new(), next: 0, programs: 0, generation: 0, rates: BTreeMap::new() }
    }

    /// Whether somebody may have a process's threads moved.
    ///
    /// # Errors
    /// [`Refusal::NotYours`], [`Refusal::Reach`].
    pub fn may(&self, who: Who, owner: Owner) -> Result<(), Refusal> {
        if !who.over_others() && !owner.is(who.uid) {
            return Err(Refusal::NotYours { pid: owner.pid, uid: owner.effective });
        }
        match self.reach {
            Reach::User(uid) if !owner.is(uid) => {
                Err(Refusal::Reach { pid: owner.pid, uid: owner.effective, own: uid })
            }
            _ => Ok(()),
        }
    }

    /// Tags for a user. `owner` is whose the marked process is, as was just read.
    ///
    /// # Errors
    /// It is not this user's to tag, or there are too many.
    pub fn tag(
        &mut self,
        who: Who,
        mark: Mark,
        owner: Option<Owner>,
        group: Option<String>,
        now: Moment,
    ) -> Result<(TagId, bool), Refusal> {
        if let Some(owner) = owner {
            self.may(who, owner)?;
        }
        let only = (!who.over_others()).then_some(who.uid);
        self.add(By::User(who.uid), mark, only, group, now)
    }

    /// Tags for a guest, or for who was bound already.
    ///
    /// # Errors
    /// There are too many.
    pub fn tag_by(&mut self, by: By, mark: Mark, now: Moment) -> Result<(TagId, bool), Refusal> {
        self.add(by, mark, None, None, now)
    }

    fn add(
        &mut self,
        by: By,
        mark: Mark,
        only: Option<u32>,
        group: Option<String>,
        now: Moment,
    ) -> Result<(TagId, bool), Refusal> {
        let known = self.tags.iter().find(|(_, tag)| tag.mark == mark && tag.by == by).map(|(id, _)| *id);
        if let Some(id) = known {
            let same = self.tags.get(&id).is_some_and(|tag| tag.group == group);
            if same {
                if let Some(tag) = self.tags.get_mut(&id) {
                    (tag.renewed, tag.leaves) = (now, None);
                }
                return Ok((id, false));
            }
        }
        let is_root = by == By::User(0);
        if !is_root {
            let theirs = || self.tags.iter().filter(|(id, tag)| tag.by == by && Some(**id) != known);
            if theirs().count() >= TAGS_OF_USER_MAX {
                return Err(Refusal::TooMany { limit: TAGS_OF_USER_MAX });
            }
            let is_group = |mark: &Mark| matches!(mark, Mark::Cgroup(_));
            if is_group(&mark)
                && theirs().filter(|(_, tag)| is_group(&tag.mark)).count() >= CGROUPS_OF_USER_MAX
            {
                return Err(Refusal::TooManyGroups { limit: CGROUPS_OF_USER_MAX });
            }
        }
        let limit = if is_root { TAGS_MAX } else { TAGS_MAX - OF_ROOT };
        if self.tags.len() >= limit && known.is_none() {
            return Err(Refusal::TooMany { limit });
        }
        self.change(&by, now).map_err(|wait| Refusal::TooOften { ms: 1 + wait.0 / 1_000_000 })?;
        // Of another program from now on: another tag.
        known.map(|id| self.tags.remove(&id));
        let fellow = self.tags.values().find(|tag| group.is_some() && tag.by == by && tag.group == group);
        let program = fellow.map_or_else(
            || {
                // The next that is free, so that a number is not used again soon.
                let used = |number: u32| self.tags.values().any(|tag| tag.program == number);
                let after = (self.programs + 1..PROGRAMS).chain(0..PROGRAMS);
                self.programs = after.into_iter().find(|number| !used(*number)).unwrap_or(0);
                self.programs
            },
            |tag| tag.program,
        );
        let id = TagId(self.next);
        self.next += 1;
        self.generation += 1;
        self.tags.insert(id, Tag { mark, by, only, group, program, since: now, renewed: now, leaves: None });
        Ok((id, true))
    }

    /// Clears what a user means; all of the user's own where nothing is named.
    pub fn clear(&mut self, who: Who, what: Option<&What>, now: Moment) -> Cleared {
        let meant = |tag: &Tag| what.is_none_or(|what| tag.mark.is(what));
        let own = |tag: &Tag| tag.by == By::User(who.uid);
        let theirs = |tag: &Tag| own(tag) || (who.over_others() && what.is_some());
        let mut cleared = Cleared::default();
        for (id, tag) in self.tags.iter().filter(|(_, tag)| meant(tag)) {
            if theirs(tag) {
                cleared.tags.push(*id);
            } else if what.is_some() {
                cleared.others += 1;
            }
        }
        for id in &cleared.tags {
            self.end(*id);
            // It is never refused, and tells on what is tagged next.
            let _ = self.change(&By::User(who.uid), now);
        }
        cleared
    }

    /// One more tag of theirs comes or goes.
    ///
    /// # Errors
    /// There were too many: how long until there may be one.
    fn change(&mut self, by: &By, now: Moment) -> Result<(), Span> {
        // Root's own business; and masks are looked at seldom.
        if matches!(by, By::User(0) | By::Pinned) {
            return Ok(());
        }
        if self.rates.len() > RATES_KEPT {
            self.rates.retain(|_, rate| !rate.is_full(now));
        }
        let new = || Bucket::new(CHANGES, CHANGES_A_SECOND);
        self.rates.entry(by.clone()).or_insert_with(new).take(now)
    }

    /// Clears what a guest tagged, at a later moment: unless it is tagged again until then, so that a guest which cannot make up its mind has
    /// nothing moved to and fro.
    pub fn clear_later(&mut self, by: &By, mark: &Mark, at: Moment) {
        let meant = |tag: &&mut Tag| tag.by == *by && tag.mark == *mark;
        for tag in self.tags.values_mut().filter(meant) {
            tag.leaves.get_or_insert(at);
        }
    }

    /// Ends the tags that were to go by now, and those of guests that were not asked for again for so long.
    pub fn end_due(&mut self, now: Moment, lease: Span) {
        let over = |tag: &Tag| {
            tag.leaves.is_some_and(|at| at <= now)
                || (matches!(tag.by, By::Guest(_)) && now.since(tag.renewed) > lease)
        };
        let due: Vec<(TagId, By)> =
            self.tags.iter().filter(|(_, tag)| over(tag)).map(|(id, tag)| (*id, tag.by.clone())).collect();
        for (id, by) in due {
            self.end(id);
            let _ = self.change(&by, now);
        }
    }

    /// Clears what a guest, or nobody, tagged.
    pub fn clear_by(&mut self, by: &By, meant: impl Fn(&Mark) -> bool) -> Vec<TagId> {
        let ids: Vec<TagId> = self
            .tags
            .iter()
            .filter(|(_, tag)| tag.by == *by && meant(&tag.mark))
            .map(|(id, _)| *id)
            .collect();
        for id in &ids {
            self.end(*id);
        }
        ids
    }

    /// What a tag marked is no more.
    pub fn end(&mut self, id: TagId) {
        if self.tags.remove(&id).is_some() {
            self.generation += 1;
        }
    }

    /// The tags, ascending.
    pub fn tags(&self) -> impl Iterator<Item = (TagId, &Tag)> {
        self.tags.iter().map(|(id, tag)| (*id, tag))
    }

    /// A tag by its number.
    pub fn get(&self, id: TagId) -> Option<&Tag> {
        self.tags.get(&id)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.tags.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tags.is_empty()
    }

    /// A number that changes whenever a tag comes or goes.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

#[cfg(test)]
mod tests;
