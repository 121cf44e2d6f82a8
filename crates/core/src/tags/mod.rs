//! Registry of tags: the requests to balance certain threads, with their owners, as a value.
//!
//! Problem: a daemon that moves threads for all users must identify the user of each request. It
//! must not let a user move threads of others, and a flood of requests must not exhaust it. Idea:
//! all of this is decided here, without a clock or a file: facts about a process, the requesting
//! user, and the time are arguments, and the result is a tag or a typed refusal.
//!
//! Terms: a *mark* is the tagged object (a process with its descendants, one thread, a control
//! group, a virtual machine, one of its CPUs); a *tag* is a mark with its requester. The kernel
//! reuses process numbers, so a mark has the start time too, and a tag ends with its object.
//!
//! Properties: tagging twice has the effect of tagging once, and clearing an object that is not
//! tagged is not an error. Only the owner and root can clear a user's tags, and they never apply to
//! another user's threads. The number of tags is bounded for each user and for all. Equal input
//! gives equal output.
//!
//! Source: the two hypercalls of Rao, Wang, Zhou and Xu, HPCA 2013, by which a guest names those of
//! its vCPUs that are sensitive to their placement.

mod ask;
mod bucket;
mod port;
mod refusal;
mod status;
mod turns;
mod why;

pub use ask::{Answer, Ask, LINE_MAX, Request, Response, VERSION, What};
pub use bucket::Bucket;
pub use port::{GARBAGE_MAX, Port, PortLine, PortState};
pub use refusal::Refusal;
pub use status::{ClientStatus, Cost, GuestStatus, Status, TagStatus};
pub use turns::Turns;
pub use why::{Explainer, LastDecision, ProgramFigures, Stillness, Why, would};

use crate::time::{Moment, Span};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Tags per user other than root, at most. Chosen: a thread each of a large machine.
pub const TAGS_OF_USER_MAX: usize = 512;
/// Tags in total, at most. Chosen: the number that status and rounds of the loop can process in a
/// millisecond.
pub const TAGS_MAX: usize = 4_096;

/// Number of tags reserved for root. Chosen: enough for an operator after users have used all
/// theirs.
const ROOT_TAGS: usize = 512;
/// Tagged control groups per user other than root, at most: each may hold any number of processes,
/// which are listed repeatedly. Chosen.
pub const CGROUPS_OF_USER_MAX: usize = 16;
/// Changes of tags per user or guest, at once and then per second: each tag that is added or
/// removed causes work in the balancer. Chosen: all tags of a user, twice; and more often than any
/// user intends.
const CHANGES_BURST: u32 = 2 * TAGS_OF_USER_MAX as u32;
const CHANGES_PER_SECOND: u32 = 4;
/// Number of rates kept before those that have recovered are dropped.
const RATES_MAX: usize = 1_024;

/// Upper bound of program numbers: balancers keep some state for each program.
const PROGRAMS_MAX: u32 = 4 * TAGS_MAX as u32;

/// Requesting user, as reported by the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Requester {
    /// User id.
    pub uid: u32,
}

impl Requester {
    /// Returns whether the user may move threads of other users. Only root may: `CAP_SYS_NICE` of a
    /// process can be read, but not whether the process had it when it connected, and the process
    /// may since have become a program that has it.
    pub fn over_others(self) -> bool {
        self.uid == 0
    }
}

/// Threads that the daemon may move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Threads of all users.
    All,
    /// Threads of this user.
    User(u32),
}

/// Owner of a process: the users that the kernel compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Process.
    pub pid: u32,
    /// Real user id.
    pub real: u32,
    /// Effective user id.
    pub effective: u32,
}

impl Owner {
    /// Returns whether the process belongs to this user, by the rule of `sched_setaffinity`.
    pub fn is(&self, uid: u32) -> bool {
        uid == self.real || uid == self.effective
    }
}

/// Tagged object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// A process and its descendants.
    Process {
        /// Process number.
        pid: u32,
        /// Start time, in the kernel's ticks.
        start: u64,
    },
    /// One thread.
    Thread {
        /// Process number.
        pid: u32,
        /// Thread number.
        tid: u32,
        /// Start time, in the kernel's ticks.
        start: u64,
    },
    /// Processes of a control group and of those below it.
    Cgroup(String),
    /// All CPUs of a virtual machine.
    Vm {
        /// Name of the machine.
        name: String,
        /// Process of its monitor.
        pid: u32,
        /// Start time of the monitor.
        start: u64,
    },
    /// One CPU of a virtual machine.
    Vcpu {
        /// Name of the machine.
        vm: String,
        /// Process of its monitor.
        pid: u32,
        /// Start time of the monitor.
        start: u64,
        /// CPU, as the guest numbers it.
        index: u32,
    },
}

impl Mark {
    /// Returns the process of the mark; `None` for a control group.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Process { pid, .. }
            | Self::Thread { pid, .. }
            | Self::Vm { pid, .. }
            | Self::Vcpu { pid, .. } => Some(*pid),
            Self::Cgroup(_) => None,
        }
    }

    /// Returns whether a request means this mark.
    pub fn is(&self, what: &What) -> bool {
        match (self, what) {
            // Clearing a process also clears its threads.
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

/// Requester of a tag.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// A user, through the socket.
    User(u32),
    /// A guest, through the port of its machine.
    Guest(String),
    /// No user or guest: the thread was already bound (`--pinned`).
    Pinned,
    /// A file of the administrator, by the declaration's place in it.
    Declared(String),
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Guest(vm) => write!(f, "the guest of {vm}"),
            Self::Pinned => f.write_str("its mask"),
            Self::Declared(place) => write!(f, "the declaration in {place}"),
        }
    }
}

/// Number of a tag, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TagId(pub u64);

/// A tag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tag {
    /// Tagged object.
    pub mark: Mark,
    /// Requester.
    pub by: By,
    /// Limits the tag to the threads of this user; `None` for all.
    pub only: Option<u32>,
    /// Group of the tag; tags of one group are one program.
    pub group: Option<String>,
    /// Whether its threads are only observed: decisions about them are reported and not carried
    /// out.
    pub observe: bool,
    /// Program number of the tag, or of its group. Numbers are reused as late as possible.
    pub program: u32,
    /// Moment at which the tag was made.
    pub since: Moment,
    /// Moment of the latest request for the tag.
    pub renewed: Moment,
    /// Moment at which the tag ends unless it is requested again; `None` for no such moment.
    pub leaves: Option<Moment>,
}

/// Terms of a tag.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Terms {
    /// Limits the tag to the threads of this user; `None` for all.
    pub only: Option<u32>,
    /// Group of the tag.
    pub group: Option<String>,
    /// Whether its threads are only observed.
    pub observe: bool,
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

/// Result of clearing tags.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cleared {
    /// Tags that were removed.
    pub tags: Vec<TagId>,
    /// Number of further tags that the request meant but that belong to others.
    pub others: u32,
}

impl Registry {
    /// Creates an empty registry for a daemon with this reach.
    pub fn new(reach: Reach) -> Self {
        Self { reach, tags: BTreeMap::new(), next: 0, programs: 0, generation: 0, rates: BTreeMap::new() }
    }

    /// Checks whether a user may have a process's threads moved.
    ///
    /// # Errors
    /// [`Refusal::NotYours`], [`Refusal::Reach`].
    pub fn may(&self, who: Requester, owner: Owner) -> Result<(), Refusal> {
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

    /// Adds a tag for a user. `owner` is the owner of the marked process, read just before. Returns
    /// the tag and whether it is new.
    ///
    /// # Errors
    /// The user may not tag the process, or there are too many tags.
    pub fn tag(
        &mut self,
        who: Requester,
        mark: Mark,
        owner: Option<Owner>,
        group: Option<String>,
        now: Moment,
    ) -> Result<(TagId, bool), Refusal> {
        if let Some(owner) = owner {
            self.may(who, owner)?;
        }
        let only = (!who.over_others()).then_some(who.uid);
        self.add(By::User(who.uid), mark, Terms { only, group, observe: false }, now)
    }

    /// Adds a tag for a guest, or for a thread that was already bound. Returns the tag and whether
    /// it is new.
    ///
    /// # Errors
    /// There are too many tags.
    pub fn tag_by(&mut self, by: By, mark: Mark, now: Moment) -> Result<(TagId, bool), Refusal> {
        self.add(by, mark, Terms::default(), now)
    }

    /// Adds a tag that a file declares. Returns the tag and whether it is new.
    ///
    /// # Errors
    /// There are too many tags.
    pub fn declare(
        &mut self,
        by: By,
        mark: Mark,
        terms: Terms,
        now: Moment,
    ) -> Result<(TagId, bool), Refusal> {
        self.add(by, mark, terms, now)
    }

    fn add(&mut self, by: By, mark: Mark, terms: Terms, now: Moment) -> Result<(TagId, bool), Refusal> {
        let Terms { only, group, observe } = terms;
        let known = self.tags.iter().find(|(_, tag)| tag.mark == mark && tag.by == by).map(|(id, _)| *id);
        if let Some(id) = known {
            let is_same = |tag: &Tag| tag.group == group && tag.observe == observe;
            let same = self.tags.get(&id).is_some_and(is_same);
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
        let limit = if is_root { TAGS_MAX } else { TAGS_MAX - ROOT_TAGS };
        if self.tags.len() >= limit && known.is_none() {
            return Err(Refusal::TooMany { limit });
        }
        self.change(&by, now).map_err(|wait| Refusal::TooOften { ms: 1 + wait.0 / 1_000_000 })?;
        // The terms changed: the new tag replaces the old one.
        known.map(|id| self.tags.remove(&id));
        let fellow = self.tags.values().find(|tag| group.is_some() && tag.by == by && tag.group == group);
        let program = fellow.map_or_else(
            || {
                // The next free number, so that a number is not reused soon.
                let used = |number: u32| self.tags.values().any(|tag| tag.program == number);
                let after = (self.programs + 1..PROGRAMS_MAX).chain(0..PROGRAMS_MAX);
                self.programs = after.into_iter().find(|number| !used(*number)).unwrap_or(0);
                self.programs
            },
            |tag| tag.program,
        );
        let id = TagId(self.next);
        self.next += 1;
        self.generation += 1;
        let (since, renewed, leaves) = (now, now, None);
        self.tags.insert(id, Tag { mark, by, only, group, observe, program, since, renewed, leaves });
        Ok((id, true))
    }

    /// Renames places of declarations that have moved within their files: their tags stay.
    pub fn rename(&mut self, places: &BTreeMap<String, String>) {
        for tag in self.tags.values_mut() {
            if let By::Declared(place) = &mut tag.by
                && let Some(new) = places.get(place)
            {
                place.clone_from(new);
            }
        }
    }

    /// Clears the tags that a request means; without a name, all of the user's own.
    pub fn clear(&mut self, who: Requester, what: Option<&What>, now: Moment) -> Cleared {
        let meant = |tag: &Tag| what.is_none_or(|what| tag.mark.is(what));
        let own = |tag: &Tag| tag.by == By::User(who.uid);
        // A declared tag would come back: its file has to change.
        let declared = |tag: &Tag| matches!(tag.by, By::Declared(_));
        let theirs = |tag: &Tag| own(tag) || (who.over_others() && what.is_some() && !declared(tag));
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
            // A clear is never refused, but it counts against the rate of later tags.
            let _ = self.change(&By::User(who.uid), now);
        }
        cleared
    }

    /// Counts one change of a requester's tags.
    ///
    /// # Errors
    /// There were too many changes; the span is the time until the next is allowed.
    fn change(&mut self, by: &By, now: Moment) -> Result<(), Span> {
        // Root is not limited, and masks and files are read rarely.
        if matches!(by, By::User(0) | By::Pinned | By::Declared(_)) {
            return Ok(());
        }
        if self.rates.len() > RATES_MAX {
            self.rates.retain(|_, rate| !rate.is_full(now));
        }
        let new = || Bucket::new(CHANGES_BURST, CHANGES_PER_SECOND);
        self.rates.entry(by.clone()).or_insert_with(new).take(now)
    }

    /// Schedules the end of a guest's tag for a later moment, unless it is tagged again until then.
    /// A guest that changes its mind often causes no moves.
    pub fn clear_later(&mut self, by: &By, mark: &Mark, at: Moment) {
        let meant = |tag: &&mut Tag| tag.by == *by && tag.mark == *mark;
        for tag in self.tags.values_mut().filter(meant) {
            tag.leaves.get_or_insert(at);
        }
    }

    /// Ends the tags that are due, and those of guests that were not requested again for as long as
    /// the lease.
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

    /// Clears tags of a guest, or those of bound threads.
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

    /// Ends a tag because its object no longer exists.
    pub fn end(&mut self, id: TagId) {
        if self.tags.remove(&id).is_some() {
            self.generation += 1;
        }
    }

    /// Returns the tags, ascending.
    pub fn tags(&self) -> impl Iterator<Item = (TagId, &Tag)> {
        self.tags.iter().map(|(id, tag)| (*id, tag))
    }

    /// Returns a tag by its number.
    pub fn get(&self, id: TagId) -> Option<&Tag> {
        self.tags.get(&id)
    }

    /// Returns the number of tags.
    pub fn len(&self) -> usize {
        self.tags.len()
    }

    /// Returns whether there is no tag.
    pub fn is_empty(&self) -> bool {
        self.tags.is_empty()
    }

    /// Returns a number that changes whenever a tag is added or removed.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

#[cfg(test)]
mod tests;
