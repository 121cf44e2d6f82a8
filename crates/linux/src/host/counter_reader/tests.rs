//! Tests of counting in progress, with real threads and the kernel's own events, under made-up
//! prices, refusals and recipes.

use super::*;
use crate::host::{Discovery, DiscoveryOptions, Root, Sampler, Silent, Watch};
use crate::perf::{Missing, Role, Spec};
use crate::process;
use crate::process::Pid;
use crate::skip::skipped;
use crate::vcpus::{GuestPlace, Method, Monitor, Vcpu, VirtualMachine};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A program of one thread that computes until it is dropped.
struct Busy(Child);

impl Busy {
    fn new() -> Self {
        let mut shell = Command::new("sh");
        Self(shell.args(["-c", "while :; do :; done"]).stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> Pid {
        Pid(self.0.id())
    }

    fn tree(&self) -> Root {
        Root::Tree(self.pid())
    }

    /// Returns this program as a virtual machine with the program's thread as its vCPU.
    fn machine(&self) -> Root {
        let (pid, tid) = (self.pid(), self.pid().main_thread());
        let start = process::stat(Path::new("/proc"), pid).unwrap().start;
        let (place, found) = (GuestPlace::default(), Method::Names);
        Root::Vm(Box::new(VirtualMachine {
            pid,
            start,
            name: "x".to_owned(),
            monitor: Monitor::Other,
            vcpus: vec![Vcpu { index: Some(0), tid, start, place, found }],
            found,
            qmp: None,
            speaker: None,
            tried: Vec::new(),
        }))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const SOFTWARE: &str = "busy=task-clock,requests=page-faults";

fn recipe() -> Recipe {
    let event = |name: &str| name.parse::<Spec>().unwrap().resolve(Path::new("/sys")).unwrap();
    let events = vec![(Role::Busy, event("task-clock")), (Role::Requests, event("page-faults"))];
    Recipe { user_only: true, ..Recipe::of(events) }
}

/// Returns a made-up outcome of the ladder.
fn standing(recipe: Recipe, price: Price, thrift: CounterThrottle) -> Standing {
    Standing {
        rung: Rung::Exact,
        cpu: None,
        processor: None,
        groups: vec![recipe.clone()],
        recipe: Some(recipe),
        price: Some(price),
        thrift,
        missing: Vec::new(),
    }
}

const BARE: Price = Price { read: Span(800), one: Span(900), two: Span(1_200) };

/// A host that finds, reads and counts threads and cannot move one, with samples at made-up
/// moments.
struct Looks {
    discovery: Discovery,
    sampler: Sampler,
    counters: CounterReader,
    at: Moment,
    told: Vec<Rung>,
}

impl Looks {
    fn new(roots: &[Root], standing: Option<Standing>) -> Self {
        let proc = Arc::new(Procfs::open(Path::new("/proc")).unwrap());
        let budget = DescriptorBudget::of_this_process(None);
        let options = DiscoveryOptions { find_every: Span::ZERO, hands_off: true, tags: true };
        let mut discovery = Discovery::new(proc.clone(), budget.clone(), options);
        discovery.begin(roots, &mut Silent).unwrap();
        let choice = SOFTWARE.parse().unwrap();
        let mut counters = CounterReader::new(proc.clone(), budget.clone(), choice, None);
        counters.standing = standing;
        let sampler = Sampler::new(proc, budget);
        Self { discovery, sampler, counters, at: Moment(1_000_000_000), told: Vec::new() }
    }

    /// Takes one sample, this long after the previous one; returns its counts, by process.
    fn look(&mut self, after: Span) -> BTreeMap<Pid, Option<Counts>> {
        let wanted = Wanted { places: true, counts: true, ..Wanted::default() };
        self.at = self.at + after;
        self.discovery.find(self.at, &mut Silent);
        let mut sample = Sample { at: self.at, ..Sample::default() };
        for (id, thread) in self.discovery.table().threads() {
            let read = self.sampler.read(id, thread, None, &wanted);
            sample.threads.extend(read.map(|read| read.sample).ok());
        }
        let table = self.discovery.table();
        self.counters.count(&wanted, table, &|_| None, &mut sample);
        for notice in &sample.notices {
            if let Notice::Counting(rung) = notice {
                self.told.push(*rung);
            }
        }
        sample.threads.iter().map(|read| (table.threads[&read.id].pid, read.counts)).collect()
    }

    /// Takes samples until this holds, with some of a thread's work between two samples.
    fn until(&mut self, what: &str, after: Span, mut holds: impl FnMut(&mut Self) -> bool) {
        let begin = Instant::now();
        while !holds(self) {
            assert!(begin.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
            std::thread::sleep(Duration::from_millis(5));
            self.look(after);
        }
    }

    fn why(&self) -> Option<&Why> {
        self.counters.standing.as_ref()?.missing.first().map(|Missing { why, .. }| why)
    }

    fn counts_hardware(&self) -> bool {
        self.counters.recipe().is_some()
    }
}

fn may_count() -> bool {
    let may = Group::open(&recipe(), None).is_ok();
    if !may {
        skipped("nothing may be counted here");
    }
    may
}

const SAMPLE_PERIOD: Span = Span::from_ms(20);

#[test]
fn counters_that_exclude_guests_say_nothing_about_guests() {
    if !may_count() {
        return;
    }
    let (guest, program) = (Busy::new(), Busy::new());
    let without = || standing(Recipe { no_guests: true, ..recipe() }, BARE, CounterThrottle::FREE);
    let mut looks = Looks::new(&[guest.machine(), program.tree()], Some(without()));
    looks.until("the program is counted", SAMPLE_PERIOD, |looks| {
        let counted = looks.look(SAMPLE_PERIOD);
        assert_eq!(counted.get(&guest.pid()).copied().flatten(), None, "{counted:?}");
        counted.get(&program.pid()).is_some_and(Option::is_some)
    });
    assert_eq!((looks.counters.counted_threads(), looks.told.as_slice()), (1, &[Rung::Exact][..]));
    // The same with counters that see guests: then it is counted.
    let seeing = standing(recipe(), BARE, CounterThrottle::FREE);
    let mut looks = Looks::new(&[guest.machine()], Some(seeing));
    looks.until("the guest is counted", SAMPLE_PERIOD, |looks| {
        looks.look(SAMPLE_PERIOD).get(&guest.pid()).is_some_and(Option::is_some)
    });
    // Alone it leaves nothing to count by hardware, until another program runs.
    let mut looks = Looks::new(&[guest.machine()], Some(without()));
    looks.until("hardware is left", SAMPLE_PERIOD, |looks| !looks.counts_hardware());
    assert_eq!(looks.why(), Some(&Why::GuestsHidden));
    assert!(looks.told.iter().all(|rung| !rung.counts()), "{:?}", looks.told);
    for _ in 0..20 {
        looks.look(SAMPLE_PERIOD);
        assert!(!looks.counts_hardware(), "no other program has come");
    }
    let watch = Watch { program: trimtab_core::ids::ProgramId(9), only: None, start: None };
    let id = looks.discovery.watch(&program.tree(), watch, &mut Silent).unwrap();
    looks.discovery.find_next(id);
    looks.until("the program is counted", SAMPLE_PERIOD, |looks| {
        looks.look(SAMPLE_PERIOD).get(&program.pid()).is_some_and(Option::is_some)
    });
    assert_eq!(looks.told.last(), Some(&Rung::Exact));
}

/// Answers every attempt to count another thread than the caller with this error, in the calling
/// thread.
fn refuse_others(errno: Errno) {
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let other = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0).unwrap();
    let rule = seccompiler::SeccompRule::new(vec![other]).unwrap();
    let answer = SeccompAction::Errno(errno.raw_os_error().unsigned_abs());
    let rules = [(libc::SYS_perf_event_open, vec![rule])].into();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, answer, arch).unwrap();
    seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

#[test]
fn a_refusal_is_explained_by_the_kernels_answer() {
    if !may_count() {
        return;
    }
    for (errno, why) in [
        (Errno::ACCESS, Why::ThreadsRefused),
        (Errno::PERM, Why::ThreadsRefused),
        (Errno::BUSY, Why::Taken),
        (Errno::OPNOTSUPP, Why::GuestsHidden),
        (Errno::INVAL, Why::NoSuchEvents),
        (Errno::NOMEM, Why::Kernel(Errno::NOMEM)),
    ] {
        let run = move || {
            refuse_others(errno);
            let program = Busy::new();
            let mut looks = Looks::new(&[program.tree()], None);
            let mut standings = 0;
            looks.until("hardware is left", Span::from_ms(100), |looks| {
                standings += usize::from(looks.counters.standing.is_none());
                looks.why().is_some()
            });
            assert_eq!((looks.why(), looks.counters.counted_threads()), (Some(&why), 0));
            assert_eq!(looks.told.first(), Some(&Rung::Exact), "{errno}");
            // Whether a virtual machine has started meanwhile is checked once.
            assert_eq!(looks.counters.climbed_again.is_some(), errno == Errno::OPNOTSUPP);
        };
        std::thread::spawn(run).join().unwrap();
    }
}

#[test]
fn counters_that_cost_too_much_are_thinned_out_and_then_left_by_themselves() {
    if !may_count() {
        return;
    }
    // A nap every few milliseconds: each is a context switch.
    let nap = ["-c", "while :; do sleep 0.002; done"];
    let napping = Busy(Command::new("sh").args(nap).stdout(Stdio::null()).spawn().unwrap());
    let dear = Price { read: Span::from_us(20), one: Span::from_ms(26), two: Span::from_ms(92) };
    let mut looks = Looks::new(&[napping.tree()], Some(standing(recipe(), dear, CounterThrottle::FREE)));
    let mut one_in = Vec::new();
    // The reported time between two samples is so long that our own work is negligible: only the
    // price is too high.
    let long = Span::from_ms(10_000);
    looks.until("hardware is left", long, |looks| {
        let thrift = looks.counters.thrift();
        if looks.counts_hardware() && one_in.last() != Some(&thrift.one_in) {
            one_in.push(thrift.one_in);
        }
        !looks.counts_hardware()
    });
    assert_eq!(looks.why(), Some(&Why::TooDear));
    assert_eq!(looks.counters.counted_threads(), 0);
    // A round in which the thread did not run at all may have been cheap in between.
    assert!(
        one_in.starts_with(&[1, 2]) && one_in.ends_with(&[40]) && one_in.len() > 4,
        "thinned out first: {one_in:?}"
    );
    assert_eq!((looks.told.first(), looks.told.len()), (Some(&Rung::Exact), 2), "{:?}", looks.told);
    // If the switches were cheap, the same program would still be counted.
    let cheap = Price { read: Span(1), one: Span(1), two: Span(1) };
    let mut looks = Looks::new(&[napping.tree()], Some(standing(recipe(), cheap, CounterThrottle::FREE)));
    for _ in 0..one_in.len() * 100 {
        looks.look(long);
        assert!(looks.counts_hardware() && looks.counters.thrift().one_in == 1);
    }
}

#[test]
fn counters_that_others_hold_are_left_to_them() {
    if !may_count() {
        return;
    }
    let program = Busy::new();
    let mut looks = Looks::new(&[program.tree()], Some(standing(recipe(), BARE, CounterThrottle::FREE)));
    looks.until("it is counted", SAMPLE_PERIOD, |looks| looks.counters.counted_threads() == 1);
    // As if the counters had never run: the reading is missing, and the time that it could have
    // counted is not.
    looks.until("hardware is left", Span::from_ms(300), |looks| {
        if looks.counts_hardware() {
            (looks.counters.counted, looks.counters.starved) = (0, 1);
        }
        !looks.counts_hardware()
    });
    assert_eq!(looks.why(), Some(&Why::Taken));
}
