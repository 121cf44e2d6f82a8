//! Ranks that are processes and read each other's memory: their results, the rank that they name
//! when that fails, and their behaviour if it is forbidden.
//!
//! `TRIMTAB_PULLING_SECONDS` (2 unless set) is the duration of the random calls,
//! `TRIMTAB_PULLING_SEED` their seed.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    unsafe_code,
    reason = "tests with processes, and with buffers by address"
)]
#![cfg(not(any(trimtab_model, miri)))]

mod help;

use help::{Lot, ended, inherited, number, seed, spawn};
use std::process::Child;
use std::time::{Duration, Instant};
use trimtab_team::{
    CollectiveCall, Error, Kernel, Kind, Operator, Options, Rank, Result, Shared, Sync, Team, Type,
};

/// More than any machine needs: the test is that an answer comes at all.
const LIMIT: Duration = Duration::from_secs(120);
const HEAP: usize = 32 << 20;

/// Work of a started process.
const PLAYS: u64 = 0;
const CALLS_UNTIL_TOLD: u64 = 1;
const IS_REPLACED: u64 = 2;
const HIDES: u64 = 3;
const FORBIDS: u64 = 4;
const FORBIDS_LATER: u64 = 5;
const IS_TOLD_OFF: u64 = 6;

/// Kinds whose long calls are read from other ranks' memory, for any number of ranks.
const READ: [Kind; 2] = [Kind::Alltoall, Kind::ReduceScatter];

/// Lets any process of this user read this one; otherwise only its ancestors may (Yama).
fn show() {
    // SAFETY: a request to the kernel, which may not know it.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
}

/// From now on this thread, and everything it starts, cannot read other processes' memory: as in
/// some containers.
fn forbid() {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
    let rules = [(libc::SYS_process_vm_readv, Vec::new())].into();
    let (allow, refuse) = (SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32));
    let here = std::env::consts::ARCH.try_into().unwrap();
    let filter: BpfProgram = SeccompFilter::new(rules, allow, refuse, here).unwrap().try_into().unwrap();
    seccompiler::apply_filter(&filter).unwrap();
}

/// From now on only root may look into this process; and it is not root.
fn hide() {
    // SAFETY: requests to the kernel about this process, of which only one thread matters.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::setgid(65534) | libc::setuid(65534), 0);
        }
        assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0), 0);
    }
}

/// A buffer that begins at any address, with bytes around it that must not change.
struct Buffer {
    bytes: Vec<u8>,
    from: usize,
    len: usize,
}

const AROUND: usize = 64;

impl Buffer {
    fn new(len: usize, shift: usize) -> Self {
        Self { bytes: vec![0xa5; len + 2 * AROUND + shift], from: AROUND + shift, len }
    }
    fn at(&mut self) -> *mut u8 {
        self.bytes[self.from..].as_mut_ptr()
    }
    fn get(&self) -> &[u8] {
        let (around, rest) = self.bytes.split_at(self.from);
        let (bytes, behind) = rest.split_at(self.len);
        assert!(around.iter().chain(behind).all(|byte| *byte == 0xa5), "written beside the buffer");
        bytes
    }
}

/// Returns the data that a rank gives: bytes in which no number is too large to be added.
fn given(step: u64, rank: u32, elements: Type, bytes: usize) -> Vec<u8> {
    let mut lot = Lot(step << 8 ^ u64::from(rank));
    let mut all: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| lot.next().to_le_bytes()).collect();
    all.truncate(bytes);
    all.iter_mut().skip(elements.size() - 1).step_by(elements.size()).for_each(|byte| *byte &= 0x3f);
    all
}

/// A random call, which all ranks draw alike.
#[derive(Debug, Clone, Copy)]
struct RandomCall {
    kind: Kind,
    elements: Type,
    operator: Operator,
    sync: Sync,
    root: u32,
    count: usize,
    /// Whether ranks may have their buffers in the segment.
    some_in_segment: bool,
    /// Whether ranks may start the call and wait for its end.
    some_started: bool,
}

impl RandomCall {
    fn draw(all: &mut Lot, ranks: u32) -> Self {
        let kind = all.of(&Kind::ALL);
        let kind = if all.below(2) == 0 {
            all.of(&[Kind::Allreduce, READ[0], READ[1], Kind::Allgather, Kind::Broadcast])
        } else {
            kind
        };
        let elements = all.of(&Type::ALL);
        let operator = all.of(&[Operator::Sum, Operator::Max, Operator::Prod]);
        let sync = all.of(&[Sync::MINE, Sync::STRICT, Sync::LOOSE]);
        let root = all.below(ranks.into()) as u32;
        // Around the least size that is read, times ranks if there are slices, and a piece that is
        // combined; and any size.
        let edge = all.of(&[32 << 10, (64 << 10) * ranks as usize, 64 << 10, 96 << 10]);
        let count = match all.below(4) {
            0 => all.below(90_000) as usize,
            1 => edge / elements.size() - 1,
            2 => edge / elements.size() + all.below(3) as usize,
            _ => edge / elements.size(),
        };
        let some_in_segment = all.below(3) == 0;
        let some_started = all.below(4) == 0;
        Self { kind, elements, operator, sync, root, count, some_in_segment, some_started }
    }

    /// Makes the call. The buffers must be as long as its shape requires.
    fn make(&self, rank: &Rank, input: *const u8, output: *mut u8, started: bool) -> Result<()> {
        let Self { kind, elements, operator, sync, root, count, .. } = *self;
        let heavy = kind.combines();
        let call = CollectiveCall {
            kind,
            elements,
            operator: heavy.then_some(operator),
            kernel: if heavy { Some(Kernel::of(elements, operator)?) } else { None },
            count,
            root,
            input,
            output,
            sync,
        };
        if !started {
            // SAFETY: buffers are as long as the shape requires, and live until the call is over.
            return unsafe { rank.call(&call) };
        }
        // SAFETY: as above: nothing is left under way.
        let request = unsafe { rank.start(call) }?;
        rank.wait(&request)
    }

    /// Makes the call with buffers as this rank draws them. Returns the result, and whether the
    /// call was started and in place.
    fn as_drawn(
        &self,
        rank: &Rank,
        own: &mut Lot,
        input: &[u8],
        gets: usize,
        block: Option<&Shared<u8>>,
    ) -> Result<(Vec<u8>, bool, bool)> {
        let (kind, gives) = (self.kind, input.len());
        let shift = own.below(9) as usize;
        let mut from = Buffer::new(gives, shift);
        let mut to = Buffer::new(gets, own.below(9) as usize);
        // SAFETY: both have the same length.
        unsafe { std::ptr::copy_nonoverlapping(input.as_ptr(), from.at(), gives) };
        let started = self.some_started && own.below(2) == 0;
        let in_place = gives == gets && (kind == Kind::Broadcast || own.below(3) == 0);
        let (source, target) = match block {
            Some(block) if own.below(2) == 0 => {
                block.store(0, input)?;
                (block.own(), if own.below(2) == 0 || in_place { block.own() } else { to.at() })
            }
            _ => (from.at(), if in_place { from.at() } else { to.at() }),
        };
        // A broadcast has one buffer, wherever it lies.
        let (source, target) = match kind {
            Kind::Broadcast if rank.rank() == self.root => (source, source),
            Kind::Broadcast => (to.at(), to.at()),
            _ if gives != gets && source == target => (source, to.at()),
            _ => (source, target),
        };
        self.make(rank, source, target, started)?;
        // SAFETY: the bytes that the call has written.
        let got = unsafe { std::slice::from_raw_parts(target, gets) }.to_vec();
        // A rank may use its own buffers again at once, however slow the others are.
        for buffer in [&mut from, &mut to] {
            let (at, len) = (buffer.at(), buffer.len);
            // SAFETY: the buffer's own bytes.
            unsafe { std::ptr::write_bytes(at, 0xee, len) };
        }
        rank.fence()?;
        from.get();
        to.get();
        Ok((got, started, in_place))
    }

    /// Makes the call through cells. Returns the result.
    fn by_cells(&self, rank: &Rank, input: &[u8], gets: usize) -> Result<Vec<u8>> {
        let (mut from, mut to) = (Buffer::new(input.len(), 0), Buffer::new(gets, 0));
        // SAFETY: both have the same length.
        unsafe { std::ptr::copy_nonoverlapping(input.as_ptr(), from.at(), input.len()) };
        if self.kind == Kind::Broadcast && rank.rank() == self.root {
            to = from;
            from = Buffer::new(0, 0);
        }
        let source = if self.kind == Kind::Broadcast { to.at() } else { from.at() };
        self.make(rank, source, to.at(), true)?;
        Ok(to.get().to_vec())
    }
}

/// Makes one random call, twice: as drawn, and through cells, as started calls are made.
fn play(rank: &Rank, all: &mut Lot, own: &mut Lot, step: u64) -> Result<()> {
    let (ranks, me) = (rank.ranks(), rank.rank());
    let call = RandomCall::draw(all, ranks);
    let (gives, gets) = call.kind.shape(ranks, call.count, me == call.root);
    let size = call.elements.size();
    let input = given(step, me, call.elements, gives * size);
    let block =
        if call.some_in_segment { Some(rank.alloc::<u8>(call.count * size * ranks as usize)?) } else { None };
    let (got, started, in_place) = call.as_drawn(rank, own, &input, gets * size, block.as_ref())?;
    // An exclusive scan leaves the output of rank 0 as it was: in place, that is the input.
    let is_left = call.kind == Kind::Exscan && me == 0 && got == input;
    assert!(
        call.by_cells(rank, &input, gets * size)? == got || is_left,
        "rank {me} of {ranks}, step {step}: {call:?}, started {started}, in place {in_place}"
    );
    if let Some(block) = block {
        rank.fence()?;
        rank.free(block)?;
    }
    Ok(())
}

fn plays(rank: &Rank, seed: u64, until: Duration) {
    let (mut all, mut own) = (Lot(seed), Lot(seed ^ u64::from(rank.rank()) << 40));
    let begin = Instant::now();
    for step in 0.. {
        play(rank, &mut all, &mut own, seed ^ step).unwrap();
        let mut on = [u8::from(begin.elapsed() < until)];
        rank.mine().broadcast(&mut on, 0).unwrap();
        if on[0] == 0 {
            break;
        }
    }
}

/// Makes a long call with a known result. Returns whether the result is right.
fn once(rank: &Rank, kind: Kind, step: u64) -> Result<bool> {
    const COUNT: usize = 50_000;
    let (ranks, me) = (u64::from(rank.ranks()), u64::from(rank.rank()));
    let value = |rank: u64| step << 8 | rank;
    let sum: u64 = (0..ranks).map(value).sum();
    let all = COUNT * ranks as usize;
    Ok(match kind {
        Kind::Alltoall | Kind::Allgather => {
            let mut out = vec![0; all];
            let input = vec![value(me); if kind == Kind::Alltoall { all } else { COUNT }];
            if kind == Kind::Alltoall {
                rank.mine().alltoall(&input, &mut out)
            } else {
                rank.mine().allgather(&input, &mut out)
            }?;
            out.chunks(COUNT).zip(0..).all(|(block, rank)| block.iter().all(|is| *is == value(rank)))
        }
        Kind::ReduceScatter => {
            let mut out = vec![0; COUNT];
            rank.mine().reduce_scatter(&vec![value(me); all], &mut out, Operator::Sum)?;
            out.iter().all(|is| *is == sum)
        }
        _ => {
            let mut out = vec![value(me); COUNT];
            rank.mine().allreduce_in_place(&mut out, Operator::Sum)?;
            out.iter().all(|is| *is == sum)
        }
    })
}

fn until_told(rank: &Rank, kind: Kind) -> Error {
    let begin = Instant::now();
    for step in 0.. {
        match once(rank, kind, step) {
            Ok(right) => assert!(right, "{kind:?} gave something else at step {step}"),
            Err(error) => return error,
        }
        assert!(begin.elapsed() < LIMIT, "nothing was noticed: {kind:?}");
    }
    unreachable!()
}

fn kind_of(code: u64) -> Kind {
    Kind::ALL[code as usize]
}

fn code(kind: Kind) -> u64 {
    Kind::ALL.iter().position(|other| *other == kind).unwrap() as u64
}

/// Not a test: the work of a started process, with one thread for each of its ranks, from one on.
#[test]
fn some_ranks() {
    let Some((mut team, first)) = inherited(LIMIT, None) else { return };
    show();
    let word = |name: &str| number(name).unwrap_or(0);
    match word("PULL_HOW") {
        HIDES => hide(),
        FORBIDS => forbid(),
        IS_TOLD_OFF => {
            let fd = std::os::fd::AsFd::as_fd(&team.fd()).try_clone_to_owned().unwrap();
            let mapping = trimtab_team::segment::memfd::Mapping::adopt(fd).unwrap();
            team = Team::adopt(mapping, Options { pull: false, gather: LIMIT, ..Options::new(1) }).unwrap();
        }
        _ => {}
    }
    let work = |number: u32| {
        let rank = team.join(Some(number)).unwrap();
        let kind = kind_of(word("PULL_KIND"));
        match word("PULL_HOW") {
            CALLS_UNTIL_TOLD => {
                let code = match until_told(&rank, kind) {
                    Error::PeerDied(rank) => 100 + rank as i32,
                    Error::Revoked(_) => 99,
                    _ => 98,
                };
                std::process::exit(code);
            }
            IS_REPLACED => {
                let after = Duration::from_millis(word("PULL_AFTER"));
                std::thread::spawn(move || {
                    std::thread::sleep(after);
                    let error = std::os::unix::process::CommandExt::exec(
                        std::process::Command::new("sleep").arg("60"),
                    );
                    panic!("{error}");
                });
                until_told(&rank, kind);
            }
            FORBIDS_LATER => {
                assert!(once(&rank, kind, 0).unwrap());
                forbid();
                let error = until_told(&rank, kind).to_string();
                assert!(error.contains("TRIMTAB_TEAM_PULL=off"), "{error}");
            }
            how => {
                assert!(how == PLAYS || !rank.pulls());
                plays(&rank, word("PULL_SEED"), LIMIT);
            }
        }
    };
    std::thread::scope(|scope| {
        for number in first..first + word("PULL_THREADS").max(1) as u32 {
            scope.spawn(move || work(number));
        }
    });
}

/// Makes random calls in processes of `threads` ranks each; returns whether they read each other's
/// memory.
fn game(ranks: u32, threads: u32, hows: &[(u32, u64)], until: Duration, seed: u64) -> bool {
    let team = Team::new(Options { heap: HEAP, gather: LIMIT, ..Options::new(ranks) }).unwrap();
    let mut children = Vec::new();
    for first in (threads..ranks).step_by(threads as usize) {
        let how = hows.iter().find(|how| how.0 == first).map_or(PLAYS, |how| how.1);
        let words =
            [("PULL_HOW", how), ("PULL_SEED", seed), ("PULL_THREADS", u64::from(threads.min(ranks - first)))];
        children.push(spawn(&team, first, "some_ranks", &words));
    }
    let pulls = std::thread::scope(|scope| {
        let ranks = (0..threads).map(|number| {
            let team = &team;
            scope.spawn(move || {
                let rank = team.join(Some(number)).unwrap();
                plays(&rank, seed, until);
                rank.pulls()
            })
        });
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
    });
    for child in &mut children {
        assert!(ended(child, Instant::now() + LIMIT).is_some_and(|status| status.success()), "seed {seed}");
    }
    assert!(pulls.iter().all(|each| *each == pulls[0]));
    pulls[0]
}

/// Returns whether this machine lets processes read each other's memory; prints a message if not.
fn is_allowed(test: &str) -> bool {
    show();
    let allowed = game(2, 1, &[], Duration::ZERO, 1);
    if !allowed {
        eprintln!("SKIPPED (1): {test}: processes may not read each other's memory here");
    }
    allowed
}

#[test]
fn results_by_cma_equal_those_by_cells() {
    show();
    let (seed, all) = (seed("TRIMTAB_PULLING_SEED"), number("TRIMTAB_PULLING_SECONDS").unwrap_or(2));
    eprintln!("TRIMTAB_PULLING_SEED={seed}");
    let until = Duration::from_millis(1000 * all / 6);
    let pulls: Vec<bool> = [(2, 1), (3, 1), (4, 1), (5, 1), (4, 2), (5, 2)]
        .map(|(ranks, threads)| game(ranks, threads, &[], until, seed ^ u64::from(ranks)))
        .into();
    if pulls.contains(&false) {
        eprintln!("SKIPPED (1): results_by_cma_equal_those_by_cells: by cells only, here");
    }
}

#[test]
fn one_rank_that_cannot_be_read_makes_all_ranks_use_cells() {
    show();
    for how in [HIDES, FORBIDS, IS_TOLD_OFF] {
        assert!(!game(3, 1, &[(2, how)], Duration::from_millis(100), how), "{how}");
    }
}

#[test]
fn a_team_of_threads_needs_no_right_to_read_other_processes() {
    let team = Team::new(Options::new(2)).unwrap();
    std::thread::scope(|scope| {
        for number in 0..2 {
            let team = &team;
            scope.spawn(move || assert!(!team.join(Some(number)).unwrap().pulls()));
        }
    });
}

/// Loses rank 2, which `ends` after `after` milliseconds, and checks two survivors, of which one is
/// in this process.
fn lose(kind: Kind, how: u64, after: u64, ends: impl Fn(&mut Child) + Send) {
    let team = Team::new(Options { gather: LIMIT, ..Options::new(3) }).unwrap();
    let words = |how| [("PULL_HOW", how), ("PULL_KIND", code(kind)), ("PULL_AFTER", after)];
    let mut other = spawn(&team, 1, "some_ranks", &words(CALLS_UNTIL_TOLD));
    let mut victim = spawn(&team, 2, "some_ranks", &words(how));
    let rank = team.join(Some(0)).unwrap();
    std::thread::scope(|scope| {
        let victim = &mut victim;
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(after));
            ends(victim);
        });
        assert_eq!(until_told(&rank, kind), Error::PeerDied(2), "{kind:?} after {after} ms");
    });
    let status = ended(&mut other, Instant::now() + LIMIT);
    assert_eq!(status.and_then(|status| status.code()), Some(102), "{kind:?} after {after} ms");
    // The remaining team continues, and reads as before.
    let pulls = rank.pulls();
    let left = rank.shrink(LIMIT).unwrap();
    assert_eq!((left.ranks(), left.pulls()), (1, pulls));
    assert!(once(&left, kind, 7).unwrap());
    let _ = victim.kill();
    victim.wait().unwrap();
}

#[test]
fn a_rank_killed_during_long_calls_is_named_and_no_wrong_result_is_accepted() {
    show();
    for after in [1, 7, 20, 41] {
        for kind in [Kind::Alltoall, Kind::ReduceScatter, Kind::Allreduce, Kind::Allgather] {
            lose(kind, CALLS_UNTIL_TOLD, after, |victim| victim.kill().unwrap());
        }
    }
}

#[test]
fn a_process_that_becomes_another_program_is_not_read_as_if_it_were_the_old_one() {
    show();
    for after in [3, 15, 30] {
        for kind in READ {
            lose(kind, IS_REPLACED, after, |_| ());
        }
    }
}

#[test]
fn a_rank_that_lost_the_right_to_read_reports_it_with_a_remedy() {
    if !is_allowed("a_rank_that_lost_the_right_to_read_reports_it_with_a_remedy") {
        return;
    }
    let team = Team::new(Options { gather: LIMIT, ..Options::new(2) }).unwrap();
    let words = [("PULL_HOW", FORBIDS_LATER), ("PULL_KIND", code(Kind::Alltoall))];
    let mut child = spawn(&team, 1, "some_ranks", &words);
    let rank = team.join(Some(0)).unwrap();
    assert_eq!(until_told(&rank, Kind::Alltoall), Error::Revoked(1));
    assert!(ended(&mut child, Instant::now() + LIMIT).unwrap().success());
}

#[test]
fn parts_of_a_team_read_as_the_whole_does() {
    if !is_allowed("parts_of_a_team_read_as_the_whole_does") {
        return;
    }
    let team = Team::new(Options { gather: LIMIT, heap: 64 << 20, ..Options::new(3) }).unwrap();
    // SAFETY: the parts of the C library that the children use are safe after fork, and they end.
    let children = [1, 2].map(|number| unsafe {
        let child = libc::fork();
        if child == 0 {
            let right = in_parts(&team, number);
            libc::_exit(i32::from(!right));
        }
        child
    });
    assert!(in_parts(&team, 0));
    for child in children {
        let mut status = 1;
        // SAFETY: a child of this process.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
    }
}

fn in_parts(team: &Team, number: u32) -> bool {
    show();
    let rank = team.join(Some(number)).unwrap();
    // Ranks 2 and 0, in this order.
    let part = rank.split((number != 1).then_some(4), -(number as i32), 16 << 20).unwrap();
    let right = part
        .is_none_or(|part| part.pulls() && (0..20).all(|step| once(&part, Kind::Alltoall, step).unwrap()));
    rank.barrier().unwrap();
    right && (0..20).all(|step| once(&rank, Kind::Alltoall, step).unwrap())
}

#[test]
fn the_facts_of_a_call_name_cma() {
    if !is_allowed("the_facts_of_a_call_name_cma") {
        return;
    }
    let team = Team::new(Options { gather: LIMIT, ..Options::new(2) }).unwrap();
    let words = [("PULL_HOW", CALLS_UNTIL_TOLD), ("PULL_KIND", code(Kind::Alltoall))];
    let mut child = spawn(&team, 1, "some_ranks", &words);
    let rank = team.join(Some(0)).unwrap();
    let told = |bytes| rank.explain(Kind::Alltoall, bytes).contains("read it from each other's memory");
    assert_eq!([64 << 10, 16 << 10].map(told), [true, false]);
    child.kill().unwrap();
    child.wait().unwrap();
}
