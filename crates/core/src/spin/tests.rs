use super::decode::decode;
use super::detour::{Detour, HiddenJump, REACH, TRAMPOLINE, trampoline};
use super::wait_loop::{Code, WaitLoop};
use super::{Seen, Watch, handoff, read, tuning};
use proptest::prelude::*;

const START: u64 = 0x5555_5540_1000;

fn around(bytes: &[u8], at: u64) -> Option<WaitLoop> {
    WaitLoop::around(&Code { start: START, bytes }, START + at)
}

/// Loops as compilers make them, with the addresses of their instructions and of the jump.
const WAITS: [(&str, &[u8], &[u64]); 9] = [
    ("NPB's sync_left: mov (%rax), %edx; test; je", &[0x8b, 0x10, 0x85, 0xd2, 0x74, 0xfa], &[0, 2, 4]),
    (
        "sync_right: mov (%rsi,%rdx,4), %eax; cmp $1; je",
        &[0x8b, 0x04, 0x96, 0x83, 0xf8, 0x01, 0x74, 0xf8],
        &[0, 3, 6],
    ),
    (
        "mov (%r12), %eax; cmp $1, %eax; jne",
        &[0x41, 0x8b, 0x04, 0x24, 0x83, 0xf8, 0x01, 0x75, 0xf7],
        &[0, 4, 7],
    ),
    ("mov (%rsi), %rdx; cmp %rcx, %rdx; jl", &[0x48, 0x8b, 0x16, 0x48, 0x39, 0xca, 0x7c, 0xf8], &[0, 3, 6]),
    ("cmpl $0, (%rdi); je", &[0x83, 0x3f, 0x00, 0x74, 0xfb], &[0, 3]),
    ("pause; cmpb $0, flag(%rip); je", &[0xf3, 0x90, 0x80, 0x3d, 1, 2, 0, 0, 0, 0x74, 0xf5], &[0, 2, 9]),
    // A byte is loaded, the rest of the register stays.
    ("mov (%rdi), %al; test %al, %al; je", &[0x8a, 0x07, 0x84, 0xc0, 0x74, 0xfa], &[0, 2, 4]),
    // As without optimisation: the address is computed in each iteration.
    (
        "mov -4(%rbp), %eax; sub $1, %eax; cltq; shl $7, %rax; cmp (%rdx,%rax), %rcx; jg",
        &[
            0x8b, 0x45, 0xfc, 0x83, 0xe8, 1, 0x48, 0x98, 0x48, 0xc1, 0xe0, 7, 0x48, 0x3b, 0x0c, 0x02, 0x7f,
            0xee,
        ],
        &[0, 3, 6, 8, 12, 16],
    ),
    // A fence; an exit in the middle; the way back is unconditional.
    (
        "lock orq $0, (%rsp); mov (%rdi), %eax; test; jne out; jmp",
        &[0xf0, 0x48, 0x83, 0x0c, 0x24, 0, 0x8b, 0x07, 0x85, 0xc0, 0x75, 0x02, 0xeb, 0xf2],
        &[0, 6, 8, 10, 12],
    ),
];

/// Loops that do something, or that end by themselves.
const WORKS: [(&str, &[u8]); 16] = [
    ("counts: mov (%rdi), %eax; dec %ecx; jne", &[0x8b, 0x07, 0xff, 0xc9, 0x75, 0xfa]),
    ("counts: add $1, %ecx; cmp (%rdi), %ecx; jne", &[0x83, 0xc1, 1, 0x3b, 0x0f, 0x75, 0xf9]),
    ("sums: add (%rdi), %eax; cmp %eax, %ecx; jne", &[0x03, 0x07, 0x39, 0xc1, 0x75, 0xfa]),
    ("stores: mov %eax, (%rdi); cmp (%rsi), %ecx; jne", &[0x89, 0x07, 0x3b, 0x0e, 0x75, 0xfa]),
    ("adds to memory: addl $1, (%rdi); cmp (%rsi), %ecx; jne", &[0x83, 0x07, 1, 0x3b, 0x0e, 0x75, 0xf9]),
    ("walks a list: mov (%rax), %rax; test %rax, %rax; jne", &[0x48, 0x8b, 0, 0x48, 0x85, 0xc0, 0x75, 0xf8]),
    ("takes a lock: xchg %eax, (%rdi); test; jne", &[0x87, 0x07, 0x85, 0xc0, 0x75, 0xfa]),
    ("adds atomically: lock addl $1, (%rdi)", &[0xf0, 0x83, 0x07, 1, 0x3b, 0x0e, 0x75, 0xf8]),
    ("changes a bit: lock orl $1, (%rdi)", &[0xf0, 0x83, 0x0f, 1, 0x3b, 0x0e, 0x75, 0xf8]),
    ("calls: call 0; cmp (%rdi), %ecx; jne", &[0xe8, 0, 0, 0, 0, 0x3b, 0x0f, 0x75, 0xf7]),
    ("reads the time: rdtsc; cmp (%rdi), %eax; jne", &[0x0f, 0x31, 0x3b, 0x07, 0x75, 0xfa]),
    ("loads nothing: cmp %eax, %ecx; jne", &[0x39, 0xc1, 0x75, 0xfc]),
    ("has no exit: mov (%rdi), %eax; jmp", &[0x8b, 0x07, 0xeb, 0xfc]),
    // The jump depends on flags that the iteration before has set.
    ("uses old flags: mov (%rdi), %eax; je", &[0x8b, 0x07, 0x74, 0xfc]),
    ("copies by words: movw; cmp; jne", &[0x66, 0x8b, 0x07, 0x39, 0xc1, 0x75, 0xf9]),
    ("adds with carry: adc (%rdi), %eax", &[0x13, 0x07, 0x39, 0xc1, 0x75, 0xfa]),
];

#[test]
fn loops_that_wait_are_recognised_from_each_of_their_instructions() {
    for (name, bytes, instructions) in WAITS {
        let jump = START + instructions.last().unwrap();
        for &at in instructions {
            assert_eq!(around(bytes, at), Some(WaitLoop { head: START, jump }), "{name} at {at}");
        }
        assert_eq!(jump + 2 - START, bytes.len() as u64, "{name}");
    }
}

#[test]
fn loops_that_do_something_are_left_alone() {
    for (name, bytes) in WORKS {
        assert_eq!(around(bytes, 0), None, "{name}");
    }
}

#[test]
fn a_loop_is_not_recognised_from_between_its_instructions() {
    for (name, bytes, instructions) in WAITS {
        for at in (0..bytes.len() as u64).filter(|at| !instructions.contains(at)) {
            let found = around(bytes, at).filter(|found| found.head == START);
            assert_eq!(found, None, "{name} at {at}");
        }
    }
}

/// Lengths by the assembler (GNU as 2.40), with forms that a wrong reading of the address would get
/// wrong.
#[test]
fn lengths_are_those_of_the_assembler() {
    for (bytes, length) in [
        (&[0x8b, 0x04, 0x25, 1, 2, 3, 4][..], 7), // mov 0x4030201, %eax
        (&[0x64, 0x8b, 0x04, 0x25, 0xf4, 0xff, 0xff, 0xff], 8), // mov %fs:-12, %eax
        (&[0x48, 0x8b, 0x44, 0xc5, 0x08], 5),     // mov 8(%rbp,%rax,8), %rax
        (&[0x48, 0x8b, 0x84, 0xc5, 0, 1, 0, 0], 8), // mov 256(%rbp,%rax,8), %rax
        (&[0x48, 0x8b, 0x05, 1, 0, 0, 0], 7),     // mov 1(%rip), %rax
        (&[0x66, 0x81, 0x3f, 0x34, 0x12], 5),     // cmpw $0x1234, (%rdi)
        (&[0x81, 0x3f, 0x34, 0x12, 0, 0], 6),     // cmpl $0x1234, (%rdi)
        (&[0xf6, 0x07, 1], 3),                    // testb $1, (%rdi)
        (&[0xf7, 0x47, 8, 1, 0, 0, 0], 7),        // testl $1, 8(%rdi)
        (&[0x66, 0xf7, 0x07, 1, 0], 5),           // testw $1, (%rdi)
        (&[0x49, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8], 10), // movabs, %r8
        (&[0x0f, 0xb6, 0x07], 3),                 // movzbl (%rdi), %eax
        (&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], 8),  // nopl 0(%rax,%rax)
        (&[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], 10),
        (&[0x0f, 0xae, 0xf0], 3),       // mfence
        (&[0xf3, 0x0f, 0x1e, 0xfa], 4), // endbr64
        (&[0x0f, 0x84, 1, 0, 0, 0], 6), // je
        (&[0x8d, 0x73, 0xff], 3),       // lea -1(%rbx), %esi
    ] {
        assert_eq!(decode(bytes).map(|made| made.length), Some(length), "{bytes:x?}");
        assert_eq!(decode(&bytes[..bytes.len() - 1]), None, "cut: {bytes:x?}");
    }
    // Stores, calls, traps, system calls, other processors' words, and the second byte of rsp.
    for bytes in [
        &[0x89, 0x07][..],
        &[0xc7, 0x07, 0, 0, 0, 0],
        &[0xe8, 0, 0, 0, 0],
        &[0xcc],
        &[0x0f, 0x05],
        &[0xc5, 0xf8, 0x77],
        &[0xff, 0xc9],
        &[0x84, 0xe4],
        &[0x49, 0x90],
        &[],
    ] {
        assert_eq!(decode(bytes), None, "{bytes:x?}");
    }
}

const NOPS: [&[u8]; 4] = [
    &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
    &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
    &[0x0f, 0x1f, 0x44, 0, 0],
    &[0x0f, 0x1f, 0x40, 0],
];
const LOOP: [u8; 6] = [0x8b, 0x10, 0x85, 0xd2, 0x74, 0xfa];

/// Follows jumps in code from the loop's jump on, as a processor would; returns where they end.
fn follow(bytes: &[u8], mut at: u64) -> u64 {
    for _ in 0..2 {
        let from = usize::try_from(at.wrapping_sub(START)).unwrap_or(usize::MAX);
        at = match bytes.get(from..) {
            Some([0x74, distance, ..]) => (at + 2).wrapping_add_signed(i64::from(*distance as i8)),
            Some([0xe9, a, b, c, d, ..]) => {
                (at + 5).wrapping_add_signed(i64::from(i32::from_le_bytes([*a, *b, *c, *d])))
            }
            _ => return at,
        };
    }
    at
}

proptest! {
    /// Wherever a no-operation is, and whatever follows it: a detour ends at the trampoline,
    /// changes one byte of the loop, and leaves the no-operation one of the same length.
    #[test]
    fn a_detour_leads_to_the_trampoline_and_changes_nothing_else(
        mut before in proptest::collection::vec(0xc0u8..0xd0, 1024), kind in 0usize..4, place in 300usize..700,
        end in (40usize..120).prop_map(|at| at * 8), filled in any::<bool>(), part in any::<u64>(),
    ) {
        let fill = if filled { 2 } else { 0 };
        let nop = end - fill - NOPS[kind].len();
        prop_assume!(end <= place || nop >= place + LOOP.len());
        before[place..place + LOOP.len()].copy_from_slice(&LOOP);
        before[nop..nop + NOPS[kind].len()].copy_from_slice(NOPS[kind]);
        before[end - fill..end].copy_from_slice(&[0x66, 0x90][..fill]);
        let code = Code { start: START, bytes: &before };
        let found = around(&before, place as u64).unwrap();
        let slots: Vec<HiddenJump> = HiddenJump::near(&code, &found).collect();
        let (hidden, behind) = (nop as i64 + 3, place as i64 + 6);
        let apart = nop + 8 <= place || nop > place;
        let possible = (-128..128).contains(&(hidden - behind)) && apart;
        prop_assert_eq!(slots.len(), usize::from(possible), "{:?}", slots);
        let Some(slot) = slots.first() else { return Ok(()) };
        let (first, last) = slot.targets();
        let to = first + part % (last - first + 1);
        let made = Detour::new(&found, slot, to).unwrap();
        prop_assert_eq!(Detour::new(&found, slot, last + 1), None);
        let mut after = before.clone();
        for write in [made.far, made.near] {
            // After each write, the loop goes to its head or to the trampoline.
            let at = (write.at - START) as usize;
            after[at..at + write.bytes().len()].copy_from_slice(write.bytes());
            prop_assert_eq!(follow(&after, found.jump), if write == made.near { to } else { found.head });
        }
        for at in (0..before.len()).filter(|&at| before[at] != after[at]) {
            prop_assert!(at == place + 5 || (nop + 3..nop + NOPS[kind].len()).contains(&at), "{}", at);
        }
        prop_assert_eq!(decode(&after[nop..]).unwrap().length, NOPS[kind].len());
        prop_assert_eq!(HiddenJump::near(&Code { start: START, bytes: &after }, &found).count(), 0, "used once");
    }

    /// Nothing is too strange to be read.
    #[test]
    fn any_bytes_are_read_without_a_fault(bytes in proptest::collection::vec(any::<u8>(), 0..400), at in 0u64..500) {
        if let Some(found) = around(&bytes, at) {
            prop_assert!(found.head <= START + at && START + at <= found.jump);
            prop_assert!((found.end() - START) as usize <= bytes.len());
            for slot in HiddenJump::near(&Code { start: START, bytes: &bytes }, &found) {
                prop_assert!(slot.at.abs_diff(found.end()) < REACH && slot.targets().0 <= slot.targets().1);
            }
        }
        if let Some(made) = decode(&bytes) {
            prop_assert!((1..=15).contains(&made.length) && made.length <= bytes.len());
        }
    }

    /// A wait loop changes no register from one iteration to the next: a naive processor that
    /// executes a recognised loop of three simple instructions twice finds the same state.
    #[test]
    fn what_counts_as_waiting_is_the_same_in_the_next_iteration(
        kinds in proptest::collection::vec((0u8..5, 0u8..4, 0u8..4), 1..5), memory in any::<[u32; 4]>(), start in any::<[u32; 4]>(),
    ) {
        let mut bytes = Vec::new();
        for &(kind, to, from) in &kinds {
            let both = 0xc0 | from << 3 | to;
            match kind {
                0 => bytes.extend([0x8b, to << 3 | 7]), // mov (%rdi), to
                1 => bytes.extend([0x89, both]),
                2 => bytes.extend([0x01, both]),
                3 => bytes.extend([0x83, 0xc0 | to, 1]),
                _ => bytes.extend([0x39, both]),
            }
        }
        bytes.extend([0x83, 0x3f, 0, 0x74]); // cmpl $0, (%rdi); je
        bytes.push(((bytes.len() + 1) as u8).wrapping_neg());
        let iterate = |mut registers: [u32; 4]| {
            for &(kind, to, from) in &kinds {
                let (to, from) = (usize::from(to), usize::from(from));
                match kind {
                    0 => registers[to] = memory[0],
                    1 => registers[to] = registers[from],
                    2 => registers[to] = registers[to].wrapping_add(registers[from]),
                    3 => registers[to] = registers[to].wrapping_add(1),
                    _ => {}
                }
            }
            registers
        };
        if around(&bytes, 0).is_some() {
            let once = iterate(start);
            prop_assert_eq!(iterate(once), once);
        }
    }

    /// Loops yield only while threads are more than CPUs, and only for a while after the last sign
    /// of it; windows become rare; the watch ends when the threads have gone, and not before.
    #[test]
    fn yields_need_more_threads_than_cpus_and_a_recent_switch(
        steps in proptest::collection::vec((0u32..6, any::<bool>(), 0u32..2), 1..200),
    ) {
        let mut watch = Watch::new();
        let (mut now, mut switches) = (0, 0);
        let (mut last_switch, mut last_crowded, mut sampled, mut found_ever) = (0, 0, 0, false);
        for (index, &(threads, switched, found)) in steps.iter().enumerate() {
            switches += u64::from(switched);
            if switched || index == 0 {
                last_switch = now;
            }
            if threads > 2 || index == 0 {
                last_crowded = now;
            }
            found_ever |= found > 0;
            let step = watch.step(Seen { now_us: now, threads, cpus: 2, switches, found });
            prop_assert!(!step.yields || now - last_crowded < tuning::END_US);
            prop_assert!(!step.yields || now - last_switch < tuning::YIELDING_US);
            prop_assert!(!step.samples || step.yields);
            sampled += u64::from(step.samples) * tuning::WINDOW_US;
            match step.next_us {
                None => {
                    prop_assert!(now - last_crowded >= tuning::END_US);
                    break;
                }
                Some(next) => {
                    prop_assert!((1..=tuning::IDLE_US).contains(&next));
                    now += next;
                }
            }
            // Windows and pauses double: without a find at most seven and the last are in a second.
            prop_assert!(found_ever || sampled <= tuning::WINDOW_US * (9 + now / tuning::PAUSE_US.1));
        }
    }
}

#[test]
fn a_crowded_process_is_sampled_at_once_and_no_longer_when_threads_have_ended() {
    let seen = Seen { now_us: 5, threads: 4, cpus: 2, switches: 7, found: 0 };
    let step = Watch::new().step(seen);
    assert!(step.yields && step.samples);
    // The threads that started it have gone.
    let mut watch = Watch::new();
    watch.step(seen);
    let step = watch.step(Seen { now_us: 5 + tuning::END_US, threads: 2, ..seen });
    assert!(!step.yields && !step.samples && step.next_us.is_none());
}

/// A program at a low address, and a no-operation whose fixed bytes lead far down.
#[test]
fn no_jump_leads_below_the_first_address() {
    for (start, count) in [(0x40_1000, 0), (START, 1)] {
        let mut bytes = LOOP.to_vec();
        bytes.extend([0xc3, 0xc3, 0xc3, 0xc3, 0xc3]);
        bytes.extend(NOPS[2]);
        bytes.extend([0x48, 0x89, 0xf8, 0xc3]);
        let code = Code { start, bytes: &bytes };
        let found = WaitLoop::around(&code, start).unwrap();
        let jumps: Vec<HiddenJump> = HiddenJump::near(&code, &found).collect();
        assert_eq!(jumps.len(), count);
        for jump in jumps {
            // 0xf88948 is the high part of the distance.
            assert_eq!(jump.targets().0, jump.at + 5 - 0x0776_b800);
        }
    }
}

/// Two loops and two no-operations, each of which borrows bytes of the next piece.
#[test]
fn a_second_detour_leaves_the_first_one_as_it_is() {
    // cmp (%rdi), %eax; jne: the changed byte is the fourth.
    let tiny: &[u8] = &[0x3b, 0x07, 0x75, 0xfc];
    for pieces in
        [[NOPS[3], tiny, NOPS[3], NOPS[0]], [NOPS[3], NOPS[3], tiny, NOPS[2]], [tiny, NOPS[3], NOPS[0], tiny]]
    {
        let mut bytes = vec![0xc3; 64];
        for piece in pieces {
            bytes.extend(piece);
            while !bytes.len().is_multiple_of(8) {
                bytes.push(0x90);
            }
        }
        bytes.extend(LOOP);
        bytes.resize(160, 0xc3);
        let code = Code { start: START, bytes: &bytes };
        let loops: Vec<WaitLoop> = (0..160).filter_map(|at| around(&bytes, at)).collect();
        for first in &loops {
            for jump in HiddenJump::near(&code, first) {
                let made = Detour::new(first, &jump, jump.targets().0).unwrap();
                for second in loops.iter().filter(|second| second.jump != first.jump) {
                    for other in HiddenJump::near(&code, second).filter(|other| other.at != jump.at) {
                        let then = Detour::new(second, &other, other.targets().0).unwrap();
                        let hidden = jump.at..jump.at + 5;
                        let hits = |write: &super::detour::Write| {
                            (write.at..write.at + write.bytes().len() as u64).any(|at| hidden.contains(&at))
                        };
                        let disturbs = hits(&then.far) || hits(&then.near);
                        assert_eq!(other.spares(second, jump.at), !disturbs, "{made:?} {then:?}");
                    }
                }
            }
        }
        assert!(loops.iter().any(|found| found.jump != loops[0].jump), "several loops");
    }
}

#[test]
fn jumps_of_a_trampoline_lead_back_to_the_loop() {
    let (at, head) = (0x7000_0000_0000u64, 0x7000_0123_4567u64);
    let made = trampoline(at, head, 0x1122_3344_5566_7788).unwrap();
    assert_eq!(made[8..16], 0x1122_3344_5566_7788u64.to_le_bytes());
    let jumps: Vec<usize> = (0..TRAMPOLINE).filter(|&place| made[place] == 0xe9).collect();
    assert_eq!(jumps, [47, TRAMPOLINE - 5]);
    for place in jumps {
        let distance = i32::from_le_bytes(made[place + 1..place + 5].try_into().unwrap());
        assert_eq!((at + place as u64 + 5).wrapping_add_signed(distance.into()), head);
    }
    // The test of the state skips to the pause.
    assert_eq!(made[19..21], [0x74, 0x1f]);
    assert_eq!(made[21 + 0x1f - 5], 0xe9);
    assert_eq!(made[21 + 0x1f..][..3], [0xf3, 0x90, 0x58]);
    assert_eq!(trampoline(at, 1, 0), None, "too far away");
}

#[test]
fn the_variable_is_read_as_written() {
    for told in [false, true] {
        assert_eq!(read(handoff(told)), Some(told));
    }
    for text in ["", "1", "1 keep", "2 yield", "1 yield told "] {
        assert_eq!(read(text), None);
    }
}
