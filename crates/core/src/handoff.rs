//! Hand-off from the launcher to the shim, as one line of text.
//!
//! The launcher decides and becomes the program; the shim inside the program applies the plan. The
//! text is passed in an environment variable, [`VARIABLE`], because an exec keeps the variable and
//! it needs no file, descriptor or clean-up. Its text is
//!
//! ```text
//! 1 pid=4711 mask=0-3,8 slots=0/2/1/3,8 pin=born
//! ```
//!
//! - `1` is the version of all that follows. Another version is refused.
//! - `pid` is the process with the threads to pin. Its children inherit the variable and must not
//!   pin: each of them would put its first thread on the same slot. They run inside the mask.
//! - `mask` is every CPU the program may use, as the kernel writes lists: ascending, each CPU once,
//!   no steps.
//! - `slots` are the places for threads in slot order, each a CPU list, separated by `/`. Slot 0 is
//!   that of the initial thread. Every slot lies inside the mask. Slots may overlap, which is an
//!   oversubscribed plan. A plan without slots lets threads float.
//! - `pin` is `born` (each thread on its slot from its birth), `float` (each thread in the mask
//!   from its birth, even if its creator was narrowed: for programs whose slots an OpenMP runtime's
//!   own places cover), `mask` (no thread is touched) or `moved` (no thread is touched here, since
//!   a balancer moves them; the program is told the mask for each of them).
//! - `threads` follows only under a CPU quota below the mask: the number of threads that are worth
//!   starting.
//!
//! The order of the fields is fixed, with one space between them. CPU numbers are below
//! [`CPUS_MAX`].
//!
//! Two readers share one parser. [`Handoff`] owns its data. [`Text`] borrows and allocates nothing:
//! an allocator that is still starting may ask the shim for the CPU count, and could not allocate
//! then.

pub mod bearer;
mod changed;
mod nest;

pub use changed::{CHANGED_VARIABLE, changed_text, read_changed};
pub use nest::{Missed, NEST_VARIABLE, NestHandoff, NestHandoffError, Report, Roots};

pub use crate::ids::CPUS_MAX;

use crate::ids::{Id, OsCpu};
use crate::set::CpuSet;
use std::{fmt, ops::RangeInclusive, str::FromStr};
use thiserror::Error;

/// Environment variable that carries the text.
pub const VARIABLE: &str = "TRIMTAB_PLAN";

/// Version of the text that this code writes and understands.
pub const VERSION: u32 = 1;

/// Treatment of new threads by the shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pin {
    /// Each thread is created on its slot.
    Born,
    /// Each thread is created in the mask, even if an OpenMP runtime narrowed its creator to one
    /// slot.
    Float,
    /// No thread is touched; all live inside the mask they inherit.
    Mask,
    /// As `Mask`, and a balancer moves threads while the program runs. A program that asks for the
    /// mask of such a thread is told the mask of the plan.
    Moved,
}

impl Pin {
    const ALL: [Self; 4] = [Self::Born, Self::Float, Self::Mask, Self::Moved];

    const fn word(self) -> &'static str {
        match self {
            Self::Born => "born",
            Self::Float => "float",
            Self::Mask => "mask",
            Self::Moved => "moved",
        }
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A plan in the form that the shim needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handoff {
    /// Process with the threads to pin.
    pub pid: u32,
    /// Every CPU the program may use.
    pub mask: CpuSet,
    /// Places for threads, in slot order; each within the mask and not empty.
    pub slots: Vec<CpuSet>,
    /// Treatment of new threads.
    pub pin: Pin,
    /// Number of threads that are worth starting, if a quota makes it smaller than the mask; never
    /// 0.
    pub threads: Option<u32>,
}

impl fmt::Display for Handoff {
    /// Writes the text. A hand-off that breaks the rules of its fields (an empty mask, a slot
    /// outside it) is written as well; the reader refuses it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VERSION} pid={} mask={} slots=", self.pid, self.mask)?;
        for (at, slot) in self.slots.iter().enumerate() {
            write!(f, "{}{slot}", if at == 0 { "" } else { "/" })?;
        }
        write!(f, " pin={}", self.pin)?;
        self.threads.map_or(Ok(()), |threads| write!(f, " threads={threads}"))
    }
}

impl FromStr for Handoff {
    type Err = HandoffError;

    fn from_str(text: &str) -> Result<Self, HandoffError> {
        let set = |ranges: Ranges<'_>| ranges.flat_map(cpus).collect::<CpuSet>();
        let text = Text::read(text)?;
        Ok(Self {
            pid: text.pid,
            mask: set(text.mask()),
            slots: text.slots().map(set).collect(),
            pin: text.pin,
            threads: text.threads,
        })
    }
}

fn cpus((first, last): (OsCpu, OsCpu)) -> impl Iterator<Item = OsCpu> {
    (first.0..=last.0).map(OsCpu)
}

/// Error of a text that is not a hand-off. It holds no text of its own, so creating an error
/// allocates nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{problem} (at position {} of the plan)", at + 1)]
pub struct HandoffError {
    /// Byte offset of the fault, from 0.
    pub at: usize,
    /// Problem at that position.
    pub problem: Problem,
}

/// Problems of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Problem {
    /// The version of the text is unknown.
    #[error("version {0} is not understood, only version {VERSION}")]
    Version(u32),
    /// A field is missing, or not in its place.
    #[error("\"{0}\" is missing")]
    Missing(&'static str),
    /// Text follows the last field.
    #[error("nothing may follow the last field")]
    Trailing,
    /// A number is missing.
    #[error("a number is missing")]
    Number,
    /// A number is above its bound.
    #[error("the number is too large (at most {0})")]
    Large(u32),
    /// A number in a list is not above the one before it.
    #[error("the CPUs of a list must ascend")]
    Order,
    /// The mask has no CPU.
    #[error("the mask is empty")]
    EmptyMask,
    /// A slot has a CPU that is not in the mask.
    #[error("CPU {0} of a slot is not in the mask")]
    Outside(OsCpu),
    /// A count is 0 and must be at least 1.
    #[error("the number must not be 0")]
    Zero,
    /// The value of `pin` is unknown.
    #[error("\"pin\" is born, float, mask or moved")]
    Pin,
}

/// A hand-off read in place: checked as a whole, split on demand, nothing allocated.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    /// Process with the threads to pin.
    pub pid: u32,
    /// Treatment of new threads.
    pub pin: Pin,
    /// Number of threads that are worth starting, if it is smaller than the mask.
    pub threads: Option<u32>,
    mask: Field<'a>,
    slots: Field<'a>,
}

impl<'a> Text<'a> {
    /// Reads and checks the whole text.
    pub fn read(text: &'a str) -> Result<Self, HandoffError> {
        let mut fields = Fields { text, at: 0 };
        let version = fields.next("")?.number()?;
        if version != VERSION {
            return Err(HandoffError { at: 0, problem: Problem::Version(version) });
        }
        let pid = fields.next("pid=")?.number()?;
        let mask = fields.next("mask=")?;
        let slots = fields.next("slots=")?;
        let pin = fields.next("pin=")?;
        let threads = match fields.next("threads=") {
            Err(HandoffError { problem: Problem::Missing(_), .. }) => None,
            threads => Some(threads?),
        };
        if fields.at <= text.len() {
            return Err(HandoffError { at: fields.at, problem: Problem::Trailing });
        }
        if mask.text.is_empty() {
            return Err(HandoffError { at: mask.at, problem: Problem::EmptyMask });
        }
        let mut allowed = Bits::new();
        for range in mask.list() {
            allowed.insert(range?);
        }
        for range in slots.parts('/').flat_map(Field::list) {
            let Range { at, cpus } = range?;
            if let Some(cpu) = cpus.into_iter().find(|&cpu| !allowed.contains(cpu)) {
                return Err(HandoffError { at, problem: Problem::Outside(OsCpu(cpu)) });
            }
        }
        let word = Pin::ALL.into_iter().find(|word| word.word() == pin.text);
        let pin = word.ok_or(HandoffError { at: pin.at, problem: Problem::Pin })?;
        let threads = match threads {
            None => None,
            Some(field) => match field.number()? {
                0 => return Err(HandoffError { at: field.at, problem: Problem::Zero }),
                threads => Some(threads),
            },
        };
        Ok(Self { pid, pin, threads, mask, slots })
    }

    /// Returns the mask as runs of CPUs, first and last, ascending.
    pub fn mask(&self) -> Ranges<'a> {
        Ranges(self.mask.list())
    }

    /// Returns the slots in slot order, each as runs of CPUs, ascending.
    pub fn slots(&self) -> impl Iterator<Item = Ranges<'a>> + use<'a> {
        self.slots.parts('/').map(|slot| Ranges(slot.list()))
    }
}

/// CPUs of a checked list, as runs: first and last.
#[derive(Debug, Clone)]
pub struct Ranges<'a>(List<'a>);

impl Iterator for Ranges<'_> {
    type Item = (OsCpu, OsCpu);

    fn next(&mut self) -> Option<Self::Item> {
        let Range { cpus, .. } = self.0.next()?.ok()?;
        Some((OsCpu(*cpus.start()), OsCpu(*cpus.end())))
    }
}

/// Fields of the text from the left. `at` is past the end after the last field.
struct Fields<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Fields<'a> {
    /// Returns the value of the next field, which must begin with `key`.
    fn next(&mut self, key: &'static str) -> Result<Field<'a>, HandoffError> {
        let at = self.at;
        let missing = HandoffError { at: at.min(self.text.len()), problem: Problem::Missing(key) };
        let rest = self.text.get(at..).ok_or(missing)?;
        let field = rest.split(' ').next().unwrap_or_default();
        let value = field.strip_prefix(key).ok_or(missing)?;
        self.at = at + field.len() + 1;
        Ok(Field { text: value, at: at + key.len() })
    }
}

/// A piece of the text with its position.
#[derive(Debug, Clone, Copy)]
struct Field<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Field<'a> {
    fn number(self) -> Result<u32, HandoffError> {
        let fault = |problem| HandoffError { at: self.at, problem };
        if self.text.is_empty() || !self.text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(fault(Problem::Number));
        }
        self.text.parse().map_err(|_| fault(Problem::Large(u32::MAX)))
    }

    fn cpu(self) -> Result<u32, HandoffError> {
        const CPU_LAST: u32 = CPUS_MAX as u32 - 1;
        let large = HandoffError { at: self.at, problem: Problem::Large(CPU_LAST) };
        match self.number() {
            Ok(cpu) if cpu <= CPU_LAST => Ok(cpu),
            Ok(_) | Err(HandoffError { problem: Problem::Large(_), .. }) => Err(large),
            Err(other) => Err(other),
        }
    }

    /// Returns the pieces between separators; none if the text is empty.
    fn parts(self, separator: char) -> impl Iterator<Item = Field<'a>> + Clone + use<'a> {
        let whole = (!self.text.is_empty()).then_some(self);
        std::iter::successors(whole.map(|whole| whole.cut(separator)), move |(_, rest)| {
            rest.map(|rest| rest.cut(separator))
        })
        .map(|(part, _)| part)
    }

    /// Splits at the first separator: the text before it, and the text after it.
    fn cut(self, separator: char) -> (Self, Option<Self>) {
        match self.text.split_once(separator) {
            None => (self, None),
            Some((part, rest)) => {
                (Field { text: part, at: self.at }, Some(Field { text: rest, at: self.at + part.len() + 1 }))
            }
        }
    }

    fn list(self) -> List<'a> {
        List { rest: Some(self), end: 0 }
    }
}

/// A run of CPUs with its position in the text.
struct Range {
    at: usize,
    cpus: RangeInclusive<u32>,
}

/// Runs of a CPU list, each checked when it is reached.
#[derive(Debug, Clone)]
struct List<'a> {
    rest: Option<Field<'a>>,
    /// One more than the last CPU so far.
    end: u32,
}

impl Iterator for List<'_> {
    type Item = Result<Range, HandoffError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (item, rest) = self.rest?.cut(',');
        self.rest = rest;
        let (first, last) = item.cut('-');
        Some((|| {
            let cpus = first.cpu()?..=last.unwrap_or(first).cpu()?;
            if cpus.is_empty() || *cpus.start() < self.end {
                return Err(HandoffError { at: item.at, problem: Problem::Order });
            }
            self.end = cpus.end() + 1;
            Ok(Range { at: item.at, cpus })
        })())
    }
}

/// Every CPU the text may name, as bits: a [`CpuSet`] without the heap.
struct Bits([u64; CPUS_MAX / 64]);

impl Bits {
    const fn new() -> Self {
        Self([0; CPUS_MAX / 64])
    }

    fn insert(&mut self, Range { cpus, .. }: Range) {
        for cpu in cpus {
            if let Some(word) = self.0.get_mut(OsCpu(cpu).index() / 64) {
                *word |= 1 << (cpu % 64);
            }
        }
    }

    fn contains(&self, cpu: u32) -> bool {
        self.0.get(OsCpu(cpu).index() / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn a_plan_is_written_and_read() {
        let plan = Handoff {
            pid: 123,
            mask: set("0-3,8"),
            slots: ["0", "2", "1", "3,8"].map(set).to_vec(),
            pin: Pin::Born,
            threads: None,
        };
        assert_eq!(plan.to_string(), "1 pid=123 mask=0-3,8 slots=0/2/1/3,8 pin=born");
        let limited = Handoff { threads: Some(2), ..plan.clone() };
        assert_eq!(limited.to_string(), format!("{plan} threads=2"));
        for plan in [plan, limited] {
            assert_eq!(plan.to_string().parse(), Ok(plan));
        }
    }

    #[test]
    fn a_plan_may_have_no_slots() {
        let plan: Handoff = "1 pid=7 mask=5 slots= pin=mask".parse().unwrap();
        assert_eq!(plan, Handoff { pid: 7, mask: set("5"), slots: vec![], pin: Pin::Mask, threads: None });
        assert_eq!(plan.to_string(), "1 pid=7 mask=5 slots= pin=mask");
    }

    #[test]
    fn slots_keep_their_order_and_may_overlap() {
        let plan: Handoff = "1 pid=7 mask=0-1,3 slots=3/0-1/1,3/3 pin=born".parse().unwrap();
        assert_eq!(plan.slots, ["3", "0-1", "1,3", "3"].map(set));
    }

    #[test]
    fn faults_name_their_position() {
        use Problem::*;
        for (text, at, problem) in [
            ("", 0, Number),
            ("1", 1, Missing("pid=")),
            ("one pid=1", 0, Number),
            ("2 pid=1 mask=0 slots=0 pin=born", 0, Version(2)),
            ("2 of another shape", 0, Version(2)),
            ("1 mask=0 slots=0 pin=born", 2, Missing("pid=")),
            ("1 pid= mask=0 slots=0 pin=born", 6, Number),
            ("1 pid=-4 mask=0 slots=0 pin=born", 6, Number),
            ("1 pid=4294967296 mask=0 slots=0 pin=born", 6, Large(u32::MAX)),
            ("1  pid=1 mask=0 slots=0 pin=born", 2, Missing("pid=")),
            ("1 pid=1 mask= slots= pin=born", 13, EmptyMask),
            ("1 pid=1 mask=0,,1 slots=0 pin=born", 15, Number),
            ("1 pid=1 mask=0, slots=0 pin=born", 15, Number),
            ("1 pid=1 mask=3-1 slots=0 pin=born", 13, Order),
            ("1 pid=1 mask=0-3,3 slots=0 pin=born", 17, Order),
            ("1 pid=1 mask=0-3 slots=0/3,1 pin=born", 27, Order),
            ("1 pid=1 mask=0,1- slots=0 pin=born", 17, Number),
            ("1 pid=1 mask=0-4:2 slots=0 pin=born", 15, Number),
            ("1 pid=1 mask=0-8192 slots=0 pin=born", 15, Large(8191)),
            ("1 pid=1 mask=99999999999 slots=0 pin=born", 13, Large(8191)),
            ("1 pid=1 mask=0-3 slots=0//1 pin=born", 25, Number),
            ("1 pid=1 mask=0-3 slots=0/1/ pin=born", 27, Number),
            ("1 pid=1 mask=0-3 slots=0/1,3-5 pin=born", 27, Outside(OsCpu(4))),
            ("1 pid=1 mask=0-3 slots=0 pin=Born", 29, Pin),
            ("1 pid=1 mask=0-3 slots=0 pin=", 29, Pin),
            ("1 pid=1 mask=0-3 slots=0", 24, Missing("pin=")),
            ("1 pid=1 mask=0-3 slots=0 pin=born ", 34, Trailing),
            ("1 pid=1 mask=0-3 slots=0 pin=born x", 34, Trailing),
            ("1 pid=1 mask=0-3 slots=0 pin=born threads=", 42, Number),
            ("1 pid=1 mask=0-3 slots=0 pin=born threads=0", 42, Zero),
            ("1 pid=1 mask=0-3 slots=0 pin=born threads=2 x", 44, Trailing),
            ("1 pid=1 mask=0-3 slots=0 threads=2 pin=born", 25, Missing("pin=")),
        ] {
            assert_eq!(text.parse::<Handoff>(), Err(HandoffError { at, problem }), "{text:?}");
        }
    }

    #[test]
    fn an_error_teaches() {
        let error = "1 pid=1 mask=0-3 slots=0/7 pin=born".parse::<Handoff>().unwrap_err();
        assert_eq!(error.to_string(), "CPU 7 of a slot is not in the mask (at position 26 of the plan)");
    }

    fn slot() -> impl Strategy<Value = CpuSet> {
        prop::collection::btree_set(prop_oneof![0u32..300, 0..CPUS_MAX as u32], 1..9)
            .prop_map(|cpus| cpus.into_iter().map(OsCpu).collect())
    }

    proptest! {
        #[test]
        fn written_data_is_read_back(
            pid: u32,
            spare in slot(),
            slots in prop::collection::vec(slot(), 0..20),
            pin in proptest::sample::select(Pin::ALL.to_vec()),
            threads in proptest::option::of(1u32..),
        ) {
            let mask = slots.iter().fold(spare, |mask, slot| mask.union(slot));
            let plan = Handoff { pid, mask, slots, pin, threads };
            prop_assert_eq!(plan.to_string().parse(), Ok(plan));
        }

        #[test]
        fn any_text_is_read_or_refused_without_harm(
            text in "1 pid=[0-9]{0,3} mask=[-0-9,]{0,9} slots=[-0-9,/]{0,12} pin=(born|mask|x)( threads=[0-9]{0,2})?| ?[1-9a-z=]{0,6}|.{0,40}",
        ) {
            match text.parse::<Handoff>() {
                Ok(plan) => prop_assert_eq!(plan.to_string().parse(), Ok(plan)),
                Err(error) => prop_assert!(text.is_char_boundary(error.at), "{error} {text:?}"),
            }
        }

        #[test]
        fn damage_to_a_good_text_is_survived(at in 0usize..46, byte in prop::sample::select(&b" =/,-019az\xc3"[..]), cut: bool) {
            let mut text = b"1 pid=4711 mask=0-3,8 slots=0/2/1/3,8 pin=born".to_vec();
            if cut { text.remove(at); } else { text[at] = byte; }
            if let Ok(plan) = String::from_utf8_lossy(&text).parse::<Handoff>() {
                prop_assert_eq!(plan.to_string().parse(), Ok(plan));
            }
        }
    }
}
