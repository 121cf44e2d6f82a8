//! A team: its segment, and the joining of ranks.
//!
//! **Idea.** The process that makes a team has its segment. Others get the segment as threads of
//! the same process, by fork, or by an inherited descriptor ([`crate::segment::meet`]). A [`Team`]
//! can be sent to and shared with other threads. A thread becomes a rank by [`Team::join`], which
//! returns when all seats are taken. After that no further thread can join.

mod members;
mod options;

pub use options::{CHECK_VARIABLE, Options, TABLES_VARIABLE, Tables};

use crate::algorithm_table::AlgorithmTable;
use crate::cache_groups::{self, Groups};
use crate::cma::{self, Offer};
use crate::cpus::{allowed, quota};
use crate::endpoint::Endpoint;
use crate::flag::LINE_BYTES;
use crate::liveness::SeatHolder;
use crate::race_detector::RaceDetector;
use crate::rank::{Observers, Rank};
use crate::reduce::Operator;
use crate::segment::header::Header;
use crate::segment::layout::Geometry;
use crate::segment::meet::{Invitation, VARIABLE};
use crate::segment::meeting::Meeting;
use crate::segment::memfd::Mapping;
use crate::segment::seat::SharedSeat;
use crate::shared_layout::{Area, CELL_COUNT, CONTROL_BYTES, Mask};
use crate::tune::lazy::Lazy;
use crate::tune::store;
use crate::wait::{Patience, Policy};
use crate::{Error, Result};
use options::{check_wanted, least_cell};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Team of ranks on one machine: its segment of shared memory and its options.
///
/// Copies are of the same team. A team can be sent to and shared with other threads, unlike a
/// [`Rank`].
///
/// # Examples
/// ```
/// use trimtab_team::{Options, Team};
///
/// let team = Team::new(Options { heap: 1 << 20, ..Options::new(2) })?;
/// assert_eq!((team.ranks(), team.options().heap), (2, 1 << 20));
///
/// let copy = team.clone();
/// let other = std::thread::spawn(move || copy.join(Some(1))?.barrier());
/// team.join(Some(0))?.barrier()?;
/// other.join().expect("no panic")?;
/// # Ok::<(), trimtab_team::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Team {
    mapping: Arc<Mapping>,
    geometry: Geometry,
    options: Options,
    /// Whether the segment may be accessible outside of this process.
    given: Arc<AtomicBool>,
}

impl Team {
    /// Makes a team's segment. All its memory is allocated when this returns.
    ///
    /// # Examples
    /// ```
    /// use trimtab_team::{Options, Team};
    ///
    /// let team = Team::new(Options::new(4))?;
    /// assert_eq!(team.ranks(), 4);
    /// # Ok::<(), trimtab_team::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Argument` for a cell that is not a power of two of at least 1024 bytes, and for a number of
    /// ranks that is 0 or too large; `NoMemory` if the machine or the control group has too little;
    /// `System`.
    pub fn new(mut options: Options) -> Result<Self> {
        if !options.cell.is_power_of_two() || options.cell < 1024 {
            return Err(Error::Argument(format!(
                "a cell has a power of two of bytes, at least 1024, not {}",
                options.cell
            )));
        }
        options.cell = options.cell.max(least_cell(options.ranks));
        let stage = options.cell.checked_mul(CELL_COUNT).unwrap_or(usize::MAX / 2);
        let geometry = Geometry::plan_with(options.ranks, CONTROL_BYTES, stage, options.heap)?;
        let mapping = Arc::new(Mapping::create(geometry.total)?);
        Header::write(&mapping, &geometry, u128::from(std::process::id()), 1)?;
        Ok(Self { mapping, geometry, options, given: Arc::new(AtomicBool::new(false)) })
    }

    /// Adopts a segment that another process passed. Its header is checked. The options about
    /// waiting are this process's own; those about the segment are the segment's.
    ///
    /// # Examples
    /// ```
    /// use trimtab_team::segment::memfd::Mapping;
    /// use trimtab_team::{Options, Team};
    ///
    /// let team = Team::new(Options::new(4))?;
    /// // As it arrives over a socket, for instance.
    /// let fd = team.fd().try_clone_to_owned()?;
    /// let same = Team::adopt(Mapping::adopt(fd)?, Options::new(1))?;
    /// assert_eq!(same.ranks(), 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `NotATeam` if it is no team's segment, or one of another version.
    pub fn adopt(mapping: Mapping, options: Options) -> Result<Self> {
        let geometry = Header::check(&mapping)?;
        let cell = geometry.stage_bytes / CELL_COUNT;
        if geometry.control_bytes != CONTROL_BYTES
            || !cell.is_power_of_two()
            || cell < least_cell(geometry.ranks)
        {
            return Err(Error::NotATeam("laid out by another version".to_owned()));
        }
        let options = Options { ranks: geometry.ranks, cell, heap: geometry.heap_bytes, ..options };
        Ok(Self { mapping: Arc::new(mapping), geometry, options, given: Arc::new(AtomicBool::new(true)) })
    }

    /// Returns the team for which this process was started, and its rank there, from the variable
    /// `TRIMTAB_TEAM`; `None` if the variable is not set.
    ///
    /// # Examples
    /// ```
    /// use trimtab_team::{Options, Team};
    ///
    /// // A program that is one rank of several, or works alone.
    /// let (team, number) = match Team::inherited()? {
    ///     Some(invited) => invited,
    ///     None => (Team::new(Options::new(1))?, 0),
    /// };
    /// let rank = team.join(Some(number))?;
    /// rank.barrier()?;
    /// # Ok::<(), trimtab_team::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotATeam` if the variable, or the descriptor that it names, is not of a team.
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

    /// Passes the team to ranks 1 and above, which [`Team::meet`] it at a path in a folder that
    /// only this user can enter. Rank 0 is the caller's. Returns when all ranks have it, or when
    /// the time for joining ([`Options::gather`]) is over.
    ///
    /// # Examples
    /// ```
    /// use std::os::unix::fs::PermissionsExt;
    /// use trimtab_team::{Options, Team};
    ///
    /// let own = std::fs::Permissions::from_mode(0o700);
    /// let folder = tempfile::Builder::new().permissions(own).tempdir()?;
    /// let path = &folder.path().join("team");
    /// std::thread::scope(|scope| {
    ///     // Usually another process.
    ///     let peer = scope.spawn(|| {
    ///         let (team, number) = Team::meet(path, None, Options::new(2))?;
    ///         team.join(Some(number))?.barrier()
    ///     });
    ///     let team = Team::new(Options::new(2))?;
    ///     team.host(path)?;
    ///     team.join(Some(0))?.barrier()?;
    ///     peer.join().expect("no panic")
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Refused` if other users can enter the folder, another host listens there, or a rank does
    /// not connect in time; `System`.
    pub fn host(&self, path: &std::path::Path) -> Result<()> {
        self.host_at(&Meeting::at(path))
    }

    fn host_at(&self, meeting: &Meeting) -> Result<()> {
        let mut free: Vec<bool> = (0..self.geometry.ranks).map(|rank| rank != 0).collect();
        meeting.listen()?.serve(self.fd(), &mut free, self.options.gather)
    }

    /// Returns the team that another process of this user hosts at a path, and the rank that the
    /// host gave: the wanted rank, or any if `wanted` is `None`. Waits for the host at most for
    /// [`Options::gather`]. [`Team::host`] has an example.
    ///
    /// # Errors
    /// `Refused` if no host listens in time, another user does, or the rank is taken; `NotATeam` if
    /// the descriptor is not a team's segment.
    pub fn meet(path: &std::path::Path, wanted: Option<u32>, options: Options) -> Result<(Self, u32)> {
        Self::meet_at(&Meeting::at(path), wanted, options)
    }

    /// As [`Self::meet`], for a host that listens at the places of a job. [`Self::of_job`] has an
    /// example: it is this call, and for rank 0 the host.
    ///
    /// # Errors
    /// As [`Self::meet`].
    pub fn meet_at(meeting: &Meeting, wanted: Option<u32>, options: Options) -> Result<(Self, u32)> {
        let (mapping, rank) = meeting.join(wanted, options.gather)?;
        let team = Self::adopt(mapping, options)?;
        if rank >= team.ranks() || wanted.is_some_and(|wanted| wanted != rank) {
            return Err(Error::NotATeam(format!("the host gave rank {rank} of {}", team.ranks())));
        }
        Ok((team, rank))
    }

    /// Makes or joins the team of a job that another launcher started, for instance of an MPI
    /// communicator. Rank 0 makes and hosts the team; the others meet it under the job's key, which
    /// must be unique to this job. All ranks pass the same options.
    ///
    /// # Examples
    /// ```
    /// use trimtab_team::{Options, Team};
    ///
    /// // Usually the job's own name, and a process for each rank.
    /// let key = format!("example-{}", std::process::id());
    /// let worker = |number| {
    ///     let mut rank = Team::of_job(number, &key, Options::new(2))?.join(Some(number))?;
    ///     rank.barrier()
    /// };
    /// std::thread::scope(|scope| {
    ///     let one = scope.spawn(|| worker(1));
    ///     worker(0)?;
    ///     one.join().expect("no panic")
    /// })?;
    /// # Ok::<(), trimtab_team::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Refused` if the job's launcher reports that its ranks are on several machines, or the
    /// numbers of ranks differ; otherwise as [`Team::host`] and [`Team::meet`].
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
        let meeting = Meeting::of_job(key);
        if rank != 0 {
            let (team, _) = Self::meet_at(&meeting, Some(rank), options)?;
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
        team.host_at(&meeting)?;
        Ok(team)
    }

    /// Returns the name and value of the environment variable that makes a child process a rank.
    /// The descriptor must stay open over the child's exec
    /// ([`crate::segment::meet::keep_over_exec`]).
    ///
    /// # Examples
    /// ```
    /// use std::os::unix::process::CommandExt;
    /// use std::process::Command;
    /// use trimtab_team::segment::meet::keep_over_exec;
    /// use trimtab_team::{Options, Team};
    ///
    /// let team = Team::new(Options::new(2))?;
    /// let (name, value) = team.invitation(1);
    /// assert_eq!(name, "TRIMTAB_TEAM");
    /// // A program that calls `Team::inherited`.
    /// let mut worker = Command::new("true");
    /// worker.env(name, value);
    /// // SAFETY: changes a flag of a descriptor only, which is allowed between fork and exec.
    /// unsafe {
    ///     worker.pre_exec(move || keep_over_exec(team.fd()).map_err(std::io::Error::other));
    /// }
    /// assert!(worker.status()?.success());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn invitation(&self, rank: u32) -> (&'static str, String) {
        self.given.store(true, Ordering::Relaxed);
        let invitation = Invitation { fd: self.mapping.fd().as_raw_fd(), rank, ranks: self.geometry.ranks };
        (VARIABLE, invitation.to_value())
    }

    /// Returns the segment's descriptor, to be passed to another process. [`Self::adopt`] has an
    /// example.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.given.store(true, Ordering::Relaxed);
        self.mapping.fd()
    }

    /// Returns the number of ranks. [`Team`] has an example.
    pub fn ranks(&self) -> u32 {
        self.geometry.ranks
    }

    /// Returns the options. [`Team`] has an example.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Sets another wait policy and deadline for ranks of this process that join from now on.
    ///
    /// # Examples
    /// ```
    /// use trimtab_team::{Options, Policy, Team};
    ///
    /// let mut team = Team::new(Options::new(1))?;
    /// team.set_wait(Policy::Yield, None);
    /// assert_eq!(team.options().wait, Policy::Yield);
    /// # Ok::<(), trimtab_team::Error>(())
    /// ```
    pub fn set_wait(&mut self, wait: Policy, deadline: Option<Duration>) {
        (self.options.wait, self.options.deadline) = (wait, deadline);
    }

    /// Sets the function that ends waits ([`Options::interrupt`]) for ranks of this process that
    /// join from now on.
    ///
    /// # Examples
    /// ```
    /// use trimtab_team::{Error, Options, Team};
    ///
    /// let mut team = Team::new(Options::new(2))?;
    /// team.set_interrupt(Some(|| true)); // A handler of signals would have set a flag.
    /// // Rank 1 does not come.
    /// assert!(matches!(team.join(Some(0)), Err(Error::Interrupted)));
    /// # Ok::<(), trimtab_team::Error>(())
    /// ```
    pub fn set_interrupt(&mut self, interrupt: Option<fn() -> bool>) {
        self.options.interrupt = interrupt;
    }

    /// Makes the calling thread the rank of this number, or the first free rank, and waits until
    /// all other ranks have joined.
    ///
    /// # Examples
    /// ```
    /// use trimtab_team::{Options, Team};
    ///
    /// let team = Team::new(Options::new(2))?;
    /// std::thread::scope(|scope| {
    ///     let other = scope.spawn(|| team.join(Some(1))?.barrier());
    ///     let rank = team.join(Some(0))?;
    ///     rank.barrier()?;
    ///     other.join().expect("no panic")
    /// })?;
    /// # Ok::<(), trimtab_team::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Refused` if the seat is taken, the team has begun, or a rank does not join within
    /// [`Options::gather`]; `PeerDied` or `PeerLeft` for a rank that ended meanwhile; `Argument`
    /// for a number outside of the team or an invalid environment variable; `Interrupted`.
    pub fn join(&self, rank: Option<u32>) -> Result<Rank> {
        self.join_as(rank, false)
    }

    /// As [`Self::join`], for a rank that belongs to the process instead of the calling thread: it
    /// stays when that thread ends, and is lost when the process ends or its first thread does.
    /// Nothing of the rank depends on the thread that joined, so that code with a lock of its own
    /// may let other threads use it, one at a time, as the package for C does.
    ///
    /// # Examples
    /// ```
    /// use trimtab_team::{Options, Team};
    ///
    /// let team = Team::new(Options::new(1))?;
    /// std::thread::scope(|scope| {
    ///     let thread = scope.spawn(|| team.join_process(Some(0))?.barrier());
    ///     thread.join().expect("no panic")
    /// })?;
    /// # Ok::<(), trimtab_team::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn join_process(&self, rank: Option<u32>) -> Result<Rank> {
        self.join_as(rank, true)
    }

    fn join_as(&self, rank: Option<u32>, process: bool) -> Result<Rank> {
        if Header::state(&self.mapping).load(Ordering::Acquire) != crate::segment::header::STATE_GATHERING {
            return Err(Error::Refused(
                "the team has begun: a later thread needs a team of its own".to_owned(),
            ));
        }
        let tables = self.options.tables.by_environment(std::env::var(TABLES_VARIABLE).ok().as_deref())?;
        let check = check_wanted(self.options.check, std::env::var(CHECK_VARIABLE).ok().as_deref())?;
        let pull = cma::wanted(self.options.pull, std::env::var(cma::PULL_VARIABLE).ok().as_deref())?;
        let area = self.area();
        let _observed = RaceDetector::of_process().map(|detector| detector.call(area.address()));
        let own = if process { SeatHolder::own_process(false) } else { SeatHolder::own(false) };
        let seat = SharedSeat::take(&self.mapping, &self.geometry, rank, own)?;
        // A team of one process may still get threads of other processes.
        let offer = if pull { Offer::make(&self.mapping, &area, seat.rank()) } else { None };
        area.lines(seat.rank()).mask.publish(allowed());
        area.lines(seat.rank()).quota.publish(quota().unwrap_or(u32::MAX));
        let liveness = self.gather(&seat)?;
        let masks = (0..self.geometry.ranks).map(|rank| area.lines(rank).mask.published());
        let masks: Vec<_> = masks.collect();
        let all = masks
            .iter()
            .fold([0_u64; Mask::WORD_COUNT], |all, mask| std::array::from_fn(|at| all[at] | mask[at]));
        // All ranks must compute the same value, because they choose algorithms by it. Quotas may
        // differ between ranks, as their control groups do.
        let quotas = (0..self.geometry.ranks).filter_map(|rank| area.lines(rank).quota.published());
        let usable = all.iter().map(|word| word.count_ones()).sum::<u32>();
        let usable = usable.min(quotas.min().unwrap_or(u32::MAX));
        let crowded = self.geometry.ranks > usable.max(1);
        // Ranks that have left since count as well, so that all ranks compute the same value.
        let namespace = crate::liveness::namespace();
        let private = (0..self.geometry.ranks)
            .all(|rank| SharedSeat::is_ours(&self.mapping, &self.geometry, rank, namespace));
        let mut endpoint = Endpoint::new(
            area,
            seat.rank(),
            crowded,
            private,
            Patience::new(self.options.wait, crowded),
            Rc::new(liveness),
            (self.at(self.geometry.heap), self.geometry.heap_bytes),
        );
        if process {
            endpoint.serve_all_threads();
        }
        endpoint.set_deadline(self.options.deadline);
        endpoint.set_interrupt(self.options.interrupt);
        let whole = Whole { mapping: Arc::clone(&self.mapping), geometry: self.geometry };
        let mut rank = Rank::new(Rc::new(endpoint), Some((seat, whole)), self.geometry.heap_bytes)?;
        rank.mask = all;
        let first = rank.rank() == 0;
        let kept = first && tables != Tables::Usual;
        let kept: Option<AlgorithmTable> =
            if kept { store::kept(|| rank.key()).map(|tuning| tuning.table) } else { None };
        // Either all ranks measure algorithms, or none does.
        let direct = private && !self.given.load(Ordering::Relaxed);
        let mut said = [kept.is_some(), tables == Tables::Lazy, direct, offer.is_some() && !direct, check]
            .map(u64::from);
        rank.mine().broadcast(&mut said, 0)?;
        let table = if first { first_table(kept, crowded, &masks) } else { None };
        rank.install_of_first(table.as_ref())?;
        rank.endpoint.routes.kept_barrier.set(said[0] != 0);
        rank.endpoint.set_direct(private && said[2] != 0);
        if said[3] != 0 {
            self.meet_peers(&rank, offer)?;
        }
        // A rank that has joined may leave at once, and a rank that sees it leave must have joined:
        // therefore no rank continues before all have reached this point.
        rank.barrier()?;
        rank.endpoint.set_checked(said[4] != 0);
        rank.endpoint.follow_masks(true);
        if said[1] != 0 {
            rank.lazy = Some(Rc::new(Lazy::new()));
        }
        // The calls before this point are not the program's.
        rank.observers = Observers::of_process();
        Ok(rank)
    }

    /// Lets ranks read each other's memory if all of them can.
    fn meet_peers(&self, rank: &Rank, offer: Option<Offer>) -> Result<()> {
        let (peers, claim) = offer.map(|offer| offer.read_marks(&self.mapping, &self.area())).unzip();
        let peers = peers.flatten();
        let mut all = [u64::from(peers.is_some())];
        rank.mine().allreduce_in_place(&mut all, Operator::Min)?;
        // No rank reads the owner of this rank any more.
        drop(claim);
        rank.endpoint.set_peers(peers.filter(|_| all[0] != 0));
        Ok(())
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.mapping.base().wrapping_add(offset)
    }

    fn area(&self) -> Area {
        Whole { mapping: Arc::clone(&self.mapping), geometry: self.geometry }.area(self.geometry.ranks)
    }
}

/// A team's whole segment, kept to build a smaller team in it from the remaining ranks.
#[derive(Debug, Clone)]
pub(crate) struct Whole {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) geometry: Geometry,
}

impl Whole {
    /// Returns the flags and stages of a team of `ranks` ranks, at most as many as the segment has.
    pub(crate) fn area(&self, ranks: u32) -> Area {
        debug_assert!(ranks <= self.geometry.ranks);
        let at = |offset| self.mapping.base().wrapping_add(offset);
        let cell = self.geometry.stage_bytes / CELL_COUNT;
        // SAFETY: the geometry is within the mapping, which the owner of the area keeps; a new
        // segment is all zeroes, and one that is used again is cleared first.
        unsafe { Area::at(at(self.geometry.control), at(self.geometry.stage), ranks, cell) }
    }
}

const _: () = assert!(LINE_BYTES == crate::segment::layout::LINE_BYTES);

/// Returns the table with which rank 0 begins, for all ranks; `None` for the usual table, if no
/// ranks share a cache that others do not.
fn first_table(
    kept: Option<AlgorithmTable>,
    crowded: bool,
    masks: &[cache_groups::Cpus],
) -> Option<AlgorithmTable> {
    // For two ranks, groups have no effect.
    let groups =
        if masks.len() > 2 { cache_groups::numbers(masks, &cache_groups::domains()) } else { Vec::new() };
    if Groups::new(&groups, masks.len() as u32).are_any() {
        return Some(AlgorithmTable { groups, ..kept.unwrap_or_else(|| AlgorithmTable::usual(crowded)) });
    }
    // The kept groups may have been tuned with other masks.
    kept.map(|table| AlgorithmTable { groups: Vec::new(), ..table })
}
