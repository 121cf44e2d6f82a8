//! The header of a segment: a peer may have written any bytes there.
#![no_main]
use libfuzzer_sys::fuzz_target;
use trimtab_team::segment::header::Header;

fuzz_target!(|input: ([u64; 4], bool, usize)| {
    let ([ranks, control, stage, heap], true_to_form, len) = input;
    let (magic, version) =
        if true_to_form { (u64::from_le_bytes(*b"trimteam"), 1) } else { (control, stage) };
    // Small numbers pass the most checks.
    for ranks in [ranks, ranks % 2000] {
        for cut in [0, 20, 40, 52] {
            if let Ok(g) =
                Header::parse([magic, version, ranks, control >> cut, stage >> cut, heap >> cut], len)
            {
                let ranks = g.ranks as usize;
                assert!(g.seats + ranks * 128 <= g.control && g.control + ranks * g.control_bytes <= g.stage);
                assert!(
                    g.stage + ranks * g.stage_bytes <= g.heap
                        && g.heap + g.heap_bytes <= g.total
                        && g.total <= len
                );
                assert!(
                    g.control.is_multiple_of(128)
                        && g.stage.is_multiple_of(128)
                        && g.heap.is_multiple_of(4096)
                );
            }
        }
    }
});
