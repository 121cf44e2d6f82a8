//! A team: a segment, and how ranks come to sit in it.
//!
//! **Idea.** Whoever makes a team has its segment; others get it as threads of the same process, by fork, or by an inherited descriptor
//! ([`crate::segment::meet`]). A [`Team`] can be sent and shared; a thread becomes a rank by [`Team::join`], which returns when all
//! seats are taken. From then on nobody else can join.

use crate::algorithm_table::Table;
use crate::cache_groups::{self, Groups};
use crate::cma::{self, Offer};
use crate::endpoint::{Company, Endpoint};
use crate::flag::LINE;
use crate::liveness::{Sitter, Watch};
use crate::meter::Meter;
use crate::rank::Rank;
use crate::reduce::Operator;
use crate::segment::header::{BEGUN, Header};
use crate::segment::layout::Geometry;
use crate::segment::meet::{Invitation, VARIABLE};
use crate::segment::memfd::Mapping;
use crate::segment::seat::{DEAD, LEFT, Seat, TAKEN, TakenSeat};
use crate::shared_layout::{Area, CELLS, CONTROL, Mask};
use crate::tune::lazy::Lazy;
use crate::tune::store;
use crate::wait::{Patience, Policy};
use crate::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What is asked of a new team.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How many ranks.
    pub ranks: u32,
    /// Bytes of the heap that all share.
    pub heap: usize,
    /// Bytes that a rank can have under way in one round: a power of two, at least 1024. More where there are so many ranks that an element
    /// for each would not fit.
    pub cell: usize,
    /// How ranks wait.
    pub wait: Policy,
    /// A call that has waited in vain for so long is broken off, and the team with it; never, if not given. It counts from the call's first
    /// wait on that was more than spinning, however many follow; of a started call, from when it is waited for.
    pub deadline: Option<Duration>,
    /// How long ranks wait for each other to join.
    pub gather: Duration,
    /// Where the table of ways comes from; what rank 0 says of it counts for all.
    pub tables: Tables,
    /// Whether ranks that are processes read each other's memory, where the kernel lets all of them: one that does not want it forbids it to
    /// all. `TRIMTAB_TEAM_PULL=off` forbids it, too.
    pub pull: bool,
    /// Asked every few milliseconds by who waits, also for others to join: whether to break the wait off, and the team with it. For
    /// languages that handle signals between their own steps.
    pub interrupt: Option<fn() -> bool>,
}

/// Where a team's table of ways comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tables {
    /// From what was tuned on this machine ([`crate::tune::store`]), if anything was.
    #[default]
    Kept,
    /// The usual ways, whatever was tuned.
    Usual,
    /// As `Kept`; and what was not tuned is tried out in the first calls of its kind, size and manner ([`crate::tune::lazy`] says what that may cost).
    Lazy,
}

/// A variable that says `kept`, `usual` or `lazy` for programs that say nothing else of their tables.
pub const TABLES: &str = "TRIMTAB_TEAM_TABLES";

impl Tables {
    /// What the environment says counts where a program leaves it at the default.
    fn by_environment(self, said: Option<&str>) -> Result<Self> {
        match (self, said) {
            (Self::Kept, Some("usual")) => Ok(Self::Usual),
            (Self::Kept, Some("lazy")) => Ok(Self::Lazy),
            (_, None | Some("" | "kept" | "usual" | "lazy")) => Ok(self),
            (_, Some(other)) => {
                Err(Error::Argument(format!("{TABLES} is \"{other}\", which is none of kept, usual, lazy")))
            }
        }
    }
}

impl Options {
    /// For so many ranks, with a heap of 16 MiB.
    pub fn new(ranks: u32) -> Self {
        Self {
            ranks,
            heap: 16 << 20,
            cell: 32 << 10,
            wait: Policy::Auto,
            deadline: None,
            gather: Duration::from_secs(30),
            tables: Tables::Kept,
            pull: true,
            interrupt: None,
        }
    }
}

/// A cell must hold the longest element for each rank, or rounds that share it out would never end.
fn least_cell(ranks: u32) -> usize {
    (ranks as usize * 8).next_power_of_two().max(1024)
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Team {
    mapping: Arc<Mapping>,
    geometry: Geometry,
    options: Options,
    /// Whether anybody outside of this process may have the segment.
    given: Arc<AtomicBool>,
}

impl Team {
    /// Makes a team's segment: all its memory is there when this returns.
    pub fn new(mut options: Options) -> Result<Self> {
        if !options.cell.is_power_of_two() || options.cell < 1024 {
            return Err(Error::Argument(format!(
                "a cell has a power of two of bytes, at least 1024, not {}",
                options.cell
            )));
        }
        options.cell = options.cell.max(least_cell(options.ranks));
        let stage = options.cell.checked_mul(CELLS).unwrap_or(usize::MAX / 2);
        let geometry = Geometry::plan_with(options.ranks, CONTROL, stage, options.heap)?;
        let mapping = Arc::new(Mapping::create(geometry.total)?);
        Header::write(&mapping, &geometry, u128::from(std::process::id()), 1)?;
        Ok(Self { mapping, geometry, options, given: Arc::new(AtomicBool::new(false)) })
    }

    /// The team of which another process passed the segment. What it says of itself is checked; how to wait is this process's to say.
    pub fn adopt(mapping: Mapping, options: Options) -> Result<Self> {
        let geometry = Header::check(&mapping)?;
        let cell = geometry.stage_bytes / CELLS;
        if geometry.control_bytes != CONTROL || !cell.is_power_of_two() || cell < least_cell(geometry.ranks) {
            return Err(Error::NotATeam("laid out by another version".to_owned()));
        }
        let options = Options { ranks: geometry.ranks, cell, heap: geometry.heap_bytes, ..options };
        Ok(Self { mapping: Arc::new(mapping), geometry, options, given: Arc::new(AtomicBool::new(true)) })
    }

    /// The team that this process was started into, and the rank it has there: `TRIMTAB_TEAM` says so. `None` where it is not set.
    pub fn inherited() -> Result<Option<(Self, u32)>> {
        let Ok(value) = std::env::var(VARIABLE) else { return Ok(None) };
        let invitation = Invitation::parse(&value)?;
        let team = Self::adopt(invitation.accept()?, Options::new(invitation.ranks))?;
        if team.geometry.ranks != invitation.ranks {
            return Err(Error::NotATeam(format!(
                "{VARIABLE} speaks of {} ranks, the segment of {}",
                invitation.ranks, team.geometry.ranks
            )));
        }
        Ok(Some((team, invitation.rank)))
    }

    /// Passes the team to the ranks from 1 on, which [`Team::meet`] it at a path in a folder of this user's alone; rank 0 is the caller's.
    /// Returns when all have it, or after the time that ranks are waited for.
    pub fn host(&self, path: &std::path::Path) -> Result<()> {
        let mut free: Vec<bool> = (0..self.geometry.ranks).map(|rank| rank != 0).collect();
        crate::segment::socket::Host::listen(path)?.serve(self.fd(), &mut free, self.options.gather)
    }

    /// The team that another process of this user hosts at a path, and the rank it gave: the wanted one, or any.
    pub fn meet(path: &std::path::Path, wanted: Option<u32>, options: Options) -> Result<(Self, u32)> {
        let (mapping, rank) = crate::segment::socket::join(path, wanted, options.gather)?;
        let team = Self::adopt(mapping, options)?;
        if rank >= team.ranks() || wanted.is_some_and(|wanted| wanted != rank) {
            return Err(Error::NotATeam(format!("the host gave rank {rank} of {}", team.ranks())));
        }
        Ok((team, rank))
    }

    /// The team of a job that something else started, an MPI communicator's for instance: rank 0 makes and hosts it, the others meet it under
    /// the job's name, which is this job's alone. All pass the same options.
    ///
    /// # Errors
    /// `Refused` where the job's launcher says that its ranks are on several machines, and as [`Team::host`] and [`Team::meet`].
    pub fn of_job(rank: u32, key: &str, options: Options) -> Result<Self> {
        for name in ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "LOCAL_WORLD_SIZE"] {
            let local = std::env::var(name).ok().and_then(|value| value.parse::<u32>().ok());
            if let Some(local) = local.filter(|local| *local < options.ranks) {
                return Err(Error::Refused(format!(
                    "{name} says that {local} of {} ranks are on this machine: a team is of one machine",
                    options.ranks
                )));
            }
        }
        let path = crate::segment::socket::place(key)?;
        if rank != 0 {
            let (team, _) = Self::meet(&path, Some(rank), options)?;
            return if team.ranks() == options.ranks {
                Ok(team)
            } else {
                Err(Error::Refused(format!(
                    "the job's team has {} ranks, not {}",
                    team.ranks(),
                    options.ranks
                )))
            };
        }
        let team = Self::new(options)?;
        team.host(&path)?;
        Ok(team)
    }

    /// What a child needs in its environment to be a rank: name and value. The descriptor must be kept over its exec
    /// ([`crate::segment::meet::keep_over_exec`]).
    pub fn invitation(&self, rank: u32) -> (&'static str, String) {
        self.given.store(true, Ordering::Relaxed);
        let invitation = Invitation { fd: self.mapping.fd().as_raw_fd(), rank, ranks: self.geometry.ranks };
        (VARIABLE, invitation.to_value())
    }

    /// The segment's descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.given.store(true, Ordering::Relaxed);
        self.mapping.fd()
    }

    /// How many ranks it has.
    pub fn ranks(&self) -> u32 {
        self.geometry.ranks
    }

    /// What was asked for.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Another way of waiting, for ranks of this process that join from now on.
    pub fn set_wait(&mut self, wait: Policy, deadline: Option<Duration>) {
        (self.options.wait, self.options.deadline) = (wait, deadline);
    }

    /// Who is asked whether waits are to end ([`Options::interrupt`]), for ranks of this process that join from now on.
    pub fn set_interrupt(&mut self, interrupt: Option<fn() -> bool>) {
        self.options.interrupt = interrupt;
    }

    /// Makes the calling thread a rank, that of this number or the first that is free, and waits for the others to come.
    pub fn join(&self, rank: Option<u32>) -> Result<Rank> {
        if Header::state(&self.mapping).load(Ordering::Acquire) != crate::segment::header::GATHERING {
            return Err(Error::Refused(
                "the team has begun: who comes later needs a team of its own".to_owned(),
            ));
        }
        let tables = self.options.tables.by_environment(std::env::var(TABLES).ok().as_deref())?;
        let pull = cma::wanted(self.options.pull, std::env::var(cma::PULL).ok().as_deref())?;
        let seat = Seat::take(&self.mapping, &self.geometry, rank)?;
        let area = self.area();
        // A team of one process may have others' threads in it yet.
        let offer = if pull { Offer::make(&self.mapping, &area, seat.rank()) } else { None };
        area.lines(seat.rank()).mask.tell(allowed());
        area.lines(seat.rank()).quota.tell(quota().unwrap_or(u32::MAX));
        let company = self.gather(&seat)?;
        let masks = (0..self.geometry.ranks).map(|rank| area.lines(rank).mask.told());
        let masks: Vec<_> = masks.collect();
        let all =
            masks.iter().fold([0_u64; Mask::WORDS], |all, mask| std::array::from_fn(|at| all[at] | mask[at]));
        // All ranks must come to the same: they go by it when they choose algorithms. Quotas may differ, as control groups do.
        let quotas = (0..self.geometry.ranks).filter_map(|rank| area.lines(rank).quota.told());
        let usable = all.iter().map(|word| word.count_ones()).sum::<u32>();
        let usable = usable.min(quotas.min().unwrap_or(u32::MAX));
        let crowded = self.geometry.ranks > usable.max(1);
        // Also of who has left since, so that all come to the same answer.
        let private = (0..self.geometry.ranks).all(|rank| Seat::is_ours(&self.mapping, &self.geometry, rank));
        let station = Endpoint::new(
            area,
            seat.rank(),
            crowded,
            private,
            Patience::new(self.options.wait, crowded),
            Rc::new(company),
            (self.at(self.geometry.heap), self.geometry.heap_bytes),
        );
        station.set_deadline(self.options.deadline);
        station.set_interrupt(self.options.interrupt);
        let whole = Whole { mapping: Arc::clone(&self.mapping), geometry: self.geometry };
        let mut rank = Rank::new(Rc::new(station), Some((seat, whole)), self.geometry.heap_bytes)?;
        rank.mask = all;
        let first = rank.rank() == 0;
        let kept = first && tables != Tables::Usual;
        let kept: Option<Table> =
            if kept { store::kept(|| rank.key()).map(|tuning| tuning.table) } else { None };
        // All must try ways out, or none.
        let direct = private && !self.given.load(Ordering::Relaxed);
        let mut said =
            [kept.is_some(), tables == Tables::Lazy, direct, offer.is_some() && !direct].map(u64::from);
        rank.mine().broadcast(&mut said, 0)?;
        let table = if first { first_table(kept, crowded, &masks) } else { None };
        rank.install_of_first(table.as_ref())?;
        rank.station.routes.kept_barrier.set(said[0] != 0);
        rank.station.set_direct(private && said[2] != 0);
        if said[3] != 0 {
            let (peers, claim) = offer.map(|offer| offer.look(&self.mapping, &area)).unzip();
            let peers = peers.flatten();
            let mut all = [u64::from(peers.is_some())];
            rank.mine().allreduce_in_place(&mut all, Operator::Min)?;
            // Nobody asks any more whose this rank is.
            drop(claim);
            rank.station.set_peers(peers.filter(|_| all[0] != 0));
        }
        // Whoever has joined may leave at once, and whom that fails must have joined: nobody is through before all have come this far.
        rank.barrier()?;
        if said[1] != 0 {
            rank.lazy = Some(Rc::new(Lazy::new()));
        }
        // What was called until here was not the program's.
        rank.meter = Meter::of_process();
        Ok(rank)
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.mapping.base().wrapping_add(offset)
    }

    fn area(&self) -> Area {
        Whole { mapping: Arc::clone(&self.mapping), geometry: self.geometry }.area(self.geometry.ranks)
    }

    /// A rank whose process died in its seat, or while it sat down.
    fn abandoned(&self) -> Option<u32> {
        (0..self.geometry.ranks).find(|rank| Seat::abandoned(&self.mapping, &self.geometry, *rank))
    }

    /// Waits until every seat is taken, by somebody who has told all that others go by.
    fn gather(&self, seat: &TakenSeat) -> Result<Members> {
        let begin = Instant::now();
        let mut nap = Duration::from_micros(20);
        loop {
            let state = |rank| Seat::state(&self.mapping, &self.geometry, rank).load(Ordering::Acquire);
            // Who has a seat may not have told yet which processors it may use.
            let told = |rank| self.area().lines(rank).quota.told().is_some();
            let is_there = |rank: &u32| state(*rank) == TAKEN && told(*rank);
            let missing: Vec<u32> = (0..self.geometry.ranks).filter(|rank| !is_there(rank)).collect();
            if missing.is_empty() {
                break;
            }
            if let Some(rank) = missing.iter().find(|rank| matches!(state(**rank), LEFT | DEAD)) {
                // It may have been so quick that it is through with all it wanted; then the team has begun.
                if Header::state(&self.mapping).load(Ordering::Acquire) != BEGUN {
                    // Who found a death before us has left since: the death is the reason.
                    return Err(self.abandoned().map_or(Error::PeerLeft(*rank), Error::PeerDied));
                }
                break;
            }
            // Seldom enough that asking the system costs nothing beside the naps.
            if nap >= Duration::from_millis(1)
                && let Some(rank) = self.abandoned()
            {
                return Err(Error::PeerDied(rank));
            }
            if self.options.interrupt.is_some_and(|asked| asked()) {
                return Err(Error::Interrupted);
            }
            if begin.elapsed() > self.options.gather {
                return Err(Error::Refused(format!(
                    "rank {} waited {:?} in vain for rank {} to join",
                    seat.rank(),
                    self.options.gather,
                    missing[0]
                )));
            }
            std::thread::sleep(nap);
            nap = (nap * 2).min(Duration::from_millis(1));
        }
        Header::state(&self.mapping).store(BEGUN, Ordering::Release);
        let sitters: Vec<(u32, Sitter)> = (0..self.geometry.ranks)
            .filter_map(|rank| Seat::holder(&self.mapping, &self.geometry, rank).map(|sitter| (rank, sitter)))
            .collect();
        let own = std::process::id();
        Ok(Members {
            watch: Watch::new(seat.rank(), own, &sitters),
            holders: sitters.into_iter().filter(|(_, who)| who.holds && who.pid != own).collect(),
            mapping: Arc::clone(&self.mapping),
            geometry: self.geometry,
        })
    }
}

/// A team's segment, for who makes another team in it of those who are left.
#[derive(Debug, Clone)]
pub(crate) struct Whole {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) geometry: Geometry,
}

impl Whole {
    /// The flags and stages, for as many ranks or fewer.
    pub(crate) fn area(&self, ranks: u32) -> Area {
        debug_assert!(ranks <= self.geometry.ranks);
        let at = |offset| self.mapping.base().wrapping_add(offset);
        let cell = self.geometry.stage_bytes / CELLS;
        // SAFETY: the geometry lies within the mapping, which whoever has the area keeps; a new segment is all zeroes, and
        // one that is used again is cleared first.
        unsafe { Area::at(at(self.geometry.control), at(self.geometry.stage), ranks, cell) }
    }
}

/// The ranks of a whole team, as who waits sees them.
struct Members {
    watch: Watch,
    /// Those of other processes who have a hold of their seats.
    holders: Vec<(u32, Sitter)>,
    mapping: Arc<Mapping>,
    geometry: Geometry,
}

impl Members {
    fn has_let_go(&self, (rank, sitter): &(u32, Sitter)) -> bool {
        Seat::let_go(&self.mapping, *rank, sitter)
    }
}

impl Company for Members {
    fn dead(&self) -> Option<u32> {
        let replaced = || {
            // In this order: who left gave up its hold after that.
            let gone = |holder: &&(u32, Sitter)| self.has_let_go(holder) && !self.left(holder.0);
            self.holders.iter().find(gone).map(|(rank, _)| *rank)
        };
        self.watch.dead(|rank| self.left(rank)).or_else(replaced)
    }

    fn left(&self, rank: u32) -> bool {
        Seat::state(&self.mapping, &self.geometry, rank).load(Ordering::Acquire) == LEFT
    }

    fn gone(&self, rank: u32) -> bool {
        let replaced = || self.holders.iter().any(|holder| holder.0 == rank && self.has_let_go(holder));
        self.left(rank) || self.watch.ended(rank) || replaced()
    }
}

const _: () = assert!(LINE == crate::segment::layout::LINE);

/// Whether so many ranks that may use this thread's processors are more than there are for them.
pub fn crowded_here(ranks: u32) -> bool {
    let usable = allowed().iter().map(|word| word.count_ones()).sum::<u32>().min(quota().unwrap_or(u32::MAX));
    ranks > usable.max(1)
}

/// The table with which rank 0 begins, for all; `None` for the usual one where nobody is nearer to one than to another.
fn first_table(kept: Option<Table>, crowded: bool, masks: &[cache_groups::Cpus]) -> Option<Table> {
    // Two are near each other or not, and nothing follows from that.
    let groups =
        if masks.len() > 2 { cache_groups::numbers(masks, &cache_groups::domains()) } else { Vec::new() };
    if Groups::new(&groups, masks.len() as u32).are_any() {
        return Some(Table { groups, ..kept.unwrap_or_else(|| Table::usual(crowded)) });
    }
    // It may have been tuned with other masks.
    kept.map(|table| Table { groups: Vec::new(), ..table })
}

/// The processors that this thread may use.
fn allowed() -> [u64; Mask::WORDS] {
    let mut words = [0_u64; Mask::WORDS];
    // SAFETY: the kernel fills at most as many bytes as it is told there are.
    let filled =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&words), words.as_mut_ptr()) };
    // A machine of more processors than fit: there are enough for any team.
    if filled < 0 { [u64::MAX; 16] } else { words }
}

/// How many processors' time this process's control group may use, if that is bounded (version 2).
fn quota() -> Option<u32> {
    let path = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = path.lines().find_map(|line| line.strip_prefix("0::"))?.trim_start_matches('/').to_owned();
    let mut folder = std::path::Path::new("/sys/fs/cgroup").join(path);
    let mut least: Option<u32> = None;
    // The narrowest of its ancestors counts.
    while folder.starts_with("/sys/fs/cgroup") {
        if let Ok(text) = std::fs::read_to_string(folder.join("cpu.max")) {
            let mut words = text.split_whitespace().map(str::parse::<u64>);
            if let (Some(Ok(quota)), Some(Ok(period))) = (words.next(), words.next()) {
                let cpus = u32::try_from(quota / period.max(1)).unwrap_or(u32::MAX).max(1);
                least = Some(least.map_or(cpus, |least| least.min(cpus)));
            }
        }
        if !folder.pop() {
            break;
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_where_tables_come_from_to_who_says_nothing_else() {
        let by = |tables: Tables, said| tables.by_environment(said);
        assert_eq!(by(Tables::Kept, None), Ok(Tables::Kept));
        assert_eq!(by(Tables::Kept, Some("lazy")), Ok(Tables::Lazy));
        assert_eq!(by(Tables::Kept, Some("usual")), Ok(Tables::Usual));
        assert_eq!(by(Tables::Usual, Some("lazy")), Ok(Tables::Usual));
        assert!(
            by(Tables::Kept, Some("lasy")).unwrap_err().to_string().contains("none of kept, usual, lazy")
        );
    }
}
