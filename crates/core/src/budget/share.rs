//! Division of a hold's cores: among its processes, and within a process among its teams.
//!
//! Between processes the division is max-min fair: all demands are raised together, one thread at a
//! time, until the cores are used up; a demand that is met drops out. A remainder of fewer threads
//! than processes goes to the first processes in the order of the page, so that all processes
//! compute the same division. Within a process, threads that open teams at the
//! same time get equal parts. Of nested teams the outer one comes first, since inner regions are
//! shorter and synchronise more often; a thread of it divides its own part among its inner teams.
//!
//! Nothing here allocates: the preload library calls it when a team starts.

/// Observation of one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Observed {
    /// Threads in its open teams, 0 if none is open.
    pub computing: u32,
    /// Most threads that it wanted at a time since it was last observed.
    pub wants: u32,
    /// CPU time that it used since it was last observed, as a number of threads, rounded up; `None`
    /// if that is not known yet.
    pub used: Option<u32>,
    /// Whether it opened a team since it was last observed.
    pub opened: bool,
}

/// A process that uses less than this part of a core counts as waiting; one that uses it counts as
/// one more thread.
const IDLE_PART: u64 = 8;

/// Returns the number of threads that used this CPU time in this time, both in the same unit.
/// Rounded up, but for an eighth of a thread: waiting costs a little CPU time too.
pub fn threads_used(cpu: u64, elapsed: u64) -> u32 {
    let elapsed = elapsed.max(1);
    let less = elapsed / IDLE_PART;
    u32::try_from(cpu.saturating_add(elapsed - less) / elapsed).unwrap_or(u32::MAX)
}

/// Returns the demand of an observed process, at most `cores`.
///
/// A process that used no CPU time and opened no team waits: for I/O, for another process, for a
/// signal to continue. It lends all its cores. A process without open teams computes with as many
/// threads as it uses, and lends the rest.
pub fn demand(observed: &Observed, cores: u32) -> u32 {
    let Observed { computing, wants, used, opened } = *observed;
    let threads = match used {
        Some(0) if !opened => 0,
        _ if computing > 0 || opened => wants.max(computing),
        Some(used) => used,
        None => 1,
    };
    let least = u32::from(used != Some(0) || opened);
    threads.max(least).min(cores)
}

/// Returns the share of one process. `own` is its demand, `before` and `after` are the demands of
/// the processes before and after it in the page.
pub fn share<I: Iterator<Item = u32> + Clone>(cores: u32, before: I, own: u32, after: I) -> u32 {
    if own == 0 {
        return 0;
    }
    // The largest level to which all demands can be met.
    let met = |level: u32| {
        let sum = |demands: I| demands.fold(0u64, |sum, demand| sum + u64::from(demand.min(level)));
        sum(before.clone()) + sum(after.clone()) + u64::from(own.min(level))
    };
    let (mut level, mut above) = (0, cores.saturating_add(1));
    while above - level > 1 {
        let middle = level + (above - level) / 2;
        if met(middle) <= u64::from(cores) { level = middle } else { above = middle }
    }
    if own <= level {
        return own;
    }
    let left = u64::from(cores) - met(level);
    let ahead = before.filter(|&demand| demand > level).count() as u64;
    (level + u32::from(ahead < left)).max(1)
}

/// Position of a thread that opens an inner team: in all enclosing teams together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inside {
    /// Product of the sizes of the enclosing teams.
    pub threads: u32,
    /// Number of the thread among these, from 0.
    pub index: u32,
}

impl Inside {
    /// Returns the position outside all teams.
    pub const fn none() -> Self {
        Self { threads: 1, index: 0 }
    }

    /// Returns the position in one more team.
    pub fn then(self, size: u32, index: u32) -> Self {
        let size = size.max(1);
        Self {
            threads: self.threads.saturating_mul(size),
            index: self.index.saturating_mul(size).saturating_add(index.min(size - 1)),
        }
    }
}

/// Returns the size of a team that is about to start: from 1 to `wanted`.
///
/// `share` is the process's, `computing` the number of threads in its open teams. `inside` is the
/// position of the opening thread in them; `None` if it is in none, and so is not counted in
/// `computing` yet.
pub fn grant(share: u32, computing: u32, wanted: u32, inside: Option<Inside>) -> u32 {
    let room = share.saturating_sub(computing);
    let most = match inside {
        None => room,
        // The opening thread computes already, and is one of the new team.
        Some(inside) => part(share, inside).min(room.saturating_add(1)),
    };
    most.min(wanted).max(1)
}

/// Returns the most threads of a team outside all teams. `openers` is the number of threads of the
/// process that open such teams at the same time or did so a moment ago, the calling one included.
///
/// The workers of a pool pause between two calls of a library. Without this bound, the call that
/// begins in such a pause would get the whole share, and the next ones would be too many.
pub fn part_of_opener(share: u32, openers: u32) -> u32 {
    (share / openers.max(1)).max(1)
}

/// Returns the part of a share that belongs to one thread of the enclosing teams.
fn part(share: u32, inside: Inside) -> u32 {
    let threads = inside.threads.max(1);
    share / threads + u32::from(inside.index < share % threads)
}
