//! Change of a program's code that lets a wait loop yield, one byte at a time.
//!
//! Problem: other threads execute the loop while it is changed, and there is no room in it. Idea:
//! the only byte of the loop that changes is the distance of its short backward jump, so that each
//! thread sees the old target or the new one. The new target must be near. It is inside a
//! no-operation, with which compilers fill the space before aligned code: processors ignore the
//! last bytes of the longer forms, so that a jump is hidden there, and a thread that executes the
//! no-operation is not affected. That jump leads to the *trampoline*, instructions in memory of
//! their own, which yield and jump to the head of the loop.
//!
//! A jump has five bytes: its code and a distance of four, the lowest first. The longest form has
//! room for all of them. In a shorter form the last bytes of the distance are those of the
//! instructions that follow, which stay. So they determine where the trampoline must be, up to the
//! bytes that are free ([`HiddenJump::targets`]). The trick is known from binary rewriting as
//! instruction punning (Chamith and others, PLDI 2017; E9Patch, PLDI 2020).
//!
//! The trampoline keeps all registers. It changes the flags, which the loop does not read before it
//! sets them ([`WaitLoop`]). It uses the stack below the 128 bytes that belong to the function.

use super::wait_loop::{Code, WaitLoop};

/// Longest distance of a short jump.
const NEAR: u64 = 128;
/// Bytes of code around a loop that a detour may need.
pub const REACH: u64 = NEAR + 48;
/// Length of a jump over any distance of 2 GiB.
const JUMP: u64 = 5;

/// No-operations, and the number of their last bytes that have no effect. Assemblers choose these
/// forms for padding (GNU as, LLVM); prefixes before them change nothing.
const FORMS: [(&[u8], u64); 4] = [
    (&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], 5),
    (&[0x0f, 0x1f, 0x80, 0, 0, 0, 0], 4),
    (&[0x0f, 0x1f, 0x44, 0, 0], 2),
    (&[0x0f, 0x1f, 0x40, 0], 1),
];
/// Further no-operations in padding.
const FILLERS: [&[u8]; 4] = [&[0x90], &[0x66, 0x90], &[0x0f, 0x1f, 0x00], &[0x66, 0x0f, 0x1f, 0x44, 0, 0]];
/// Alignment of code behind padding.
const ALIGNED: u64 = 8;

/// Bytes to be written at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// The address.
    pub at: u64,
    bytes: [u8; 5],
    length: usize,
}

impl Write {
    fn new(at: u64, from: &[u8]) -> Self {
        let mut bytes = [0; 5];
        let length = from.len().min(bytes.len());
        for (to, &byte) in bytes.iter_mut().zip(from) {
            *to = byte;
        }
        Self { at, bytes, length }
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// Jump that can be hidden in a no-operation near a loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HiddenJump {
    /// Its address.
    pub at: u64,
    /// Number of its bytes that are free, 1 to 5.
    free: u64,
    /// Its other bytes, as the high part of its distance.
    fixed: i64,
}

impl HiddenJump {
    /// Yields those that the jump of a loop reaches, the one with the most freedom first.
    pub fn near<'a>(code: &Code<'a>, found: &WaitLoop) -> impl Iterator<Item = Self> + use<'a> {
        let (code, end) = (*code, found.end());
        let (head, first) = (found.head, end.saturating_sub(NEAR));
        FORMS.into_iter().flat_map(move |(form, free)| {
            let hidden = form.len() as u64 - free;
            (first..end.saturating_add(NEAR)).filter_map(move |at| {
                let nop = at.checked_sub(hidden)?;
                let behind = nop + form.len() as u64;
                let apart = behind <= head || nop >= end;
                let is_padding = code.from(nop).starts_with(form) && ends_aligned(&code, behind);
                if !apart || !is_padding || short(end, at).is_none() {
                    return None;
                }
                // The jump's last bytes must not be those of the loop, one of which changes.
                let clear = at + JUMP <= head || at >= end;
                let rest = code.from(behind).get(..(JUMP - free) as usize).filter(|_| clear)?;
                let mut distance = [0; 4];
                for (to, &byte) in distance.iter_mut().rev().zip(rest.iter().rev()) {
                    *to = byte;
                }
                let fixed = i64::from(i32::from_le_bytes(distance));
                // No program has code at negative addresses.
                (at + JUMP).checked_add_signed(fixed)?;
                Some(Self { at, free, fixed })
            })
        })
    }

    /// Returns whether a detour by this leaves the bytes of another hidden jump as they are. The
    /// last bytes of a jump may belong to another loop, or to another no-operation.
    pub fn spares(&self, found: &WaitLoop, other: u64) -> bool {
        let bytes = other..other.saturating_add(JUMP);
        let distance = found.end() - 1;
        let apart = self.at.saturating_add(self.free) <= bytes.start || self.at >= bytes.end;
        apart && !bytes.contains(&distance)
    }

    /// Returns the first and the last address to which the jump can lead.
    pub fn targets(&self) -> (u64, u64) {
        let end = self.at + JUMP;
        if self.free == JUMP {
            return (end.saturating_sub(1 << 31), end.saturating_add((1 << 31) - 1));
        }
        let first = end.saturating_add_signed(self.fixed);
        (first, first.saturating_add((1 << (8 * (self.free - 1))) - 1))
    }
}

/// Returns whether only padding is between an address and the next aligned one. Bytes within other
/// instructions that look like a no-operation are excluded by that in seven of eight cases.
fn ends_aligned(code: &Code<'_>, mut at: u64) -> bool {
    while !at.is_multiple_of(ALIGNED) {
        let forms = FORMS.iter().map(|&(form, _)| form).chain(FILLERS);
        match forms.into_iter().find(|form| code.from(at).starts_with(form)) {
            Some(form) => at += form.len() as u64,
            None => return false,
        }
    }
    true
}

/// Writes that make a detour, in their order. The second puts it into effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Detour {
    /// The jump to the trampoline, hidden in a no-operation.
    pub far: Write,
    /// The new distance of the loop's jump: one byte.
    pub near: Write,
}

impl Detour {
    /// Returns how a wait loop gets by a hidden jump to a trampoline; `None` if the jump cannot
    /// lead there.
    pub fn new(found: &WaitLoop, hidden: &HiddenJump, trampoline: u64) -> Option<Self> {
        let (first, last) = hidden.targets();
        if !(first..=last).contains(&trampoline) {
            return None;
        }
        let distance = i32::try_from(i128::from(trampoline) - i128::from(hidden.at + JUMP)).ok()?;
        let [a, b, c, d] = distance.to_le_bytes();
        let jump = [0xe9, a, b, c, d];
        let far = Write::new(hidden.at, jump.get(..hidden.free as usize)?);
        let near = Write::new(found.end() - 1, &[short(found.end(), hidden.at)?]);
        Some(Self { far, near })
    }
}

/// Returns the distance of a short jump that ends at `end`.
fn short(end: u64, target: u64) -> Option<u8> {
    let distance = i64::try_from(i128::from(target) - i128::from(end)).ok()?;
    Some(i8::try_from(distance).ok()? as u8)
}

/// Length of a trampoline.
pub const TRAMPOLINE: usize = 68;

/// Returns the instructions of a trampoline at `at`, which goes on at `head`. While the word at
/// `state` is not 0, it yields and counts that in the word behind; otherwise it pauses.
pub fn trampoline(at: u64, head: u64, state: u64) -> Option<[u8; TRAMPOLINE]> {
    let mut made = [0; TRAMPOLINE];
    let mut length = 0;
    let mut put = |bytes: &[u8]| {
        for &byte in bytes {
            if let Some(to) = made.get_mut(length) {
                *to = byte;
            }
            length += 1;
        }
        at + length as u64
    };
    let back = |end: u64| i32::try_from(i128::from(head) - i128::from(end + 5)).ok().map(i32::to_le_bytes);
    put(&[0x48, 0x8d, 0x64, 0x24, 0x80]); // lea -128(%rsp), %rsp
    put(&[0x50, 0x48, 0xb8]); // push %rax; mov $state, %rax
    put(&state.to_le_bytes());
    put(&[0x80, 0x38, 0x00, 0x74, 0x1f]); // cmpb $0, (%rax); je to the pause
    put(&[0x51, 0x41, 0x53]); // push %rcx; push %r11
    put(&[0x48, 0xff, 0x40, 0x08]); // incq 8(%rax)
    put(&[0xb8, 24, 0, 0, 0, 0x0f, 0x05]); // sched_yield, which changes rax, rcx and r11
    put(&[0x41, 0x5b, 0x59, 0x58]); // pop %r11; pop %rcx; pop %rax
    let end = put(&[0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]); // lea 128(%rsp), %rsp
    let [a, b, c, d] = back(end)?;
    put(&[0xe9, a, b, c, d]);
    put(&[0xf3, 0x90, 0x58]); // pause; pop %rax
    let end = put(&[0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]);
    let [a, b, c, d] = back(end)?;
    put(&[0xe9, a, b, c, d]);
    (length <= TRAMPOLINE).then_some(made)
}
