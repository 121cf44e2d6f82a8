//! Threads that take parts from a counter; as many as the standard library says there is
//! parallelism.
use std::sync::atomic::{AtomicU64, Ordering};

fn main() {
    let threads = std::thread::available_parallelism().map_or(0, |count| count.get());
    let (next, total) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| loop {
                let part = next.fetch_add(1, Ordering::Relaxed);
                if part >= 64 {
                    break;
                }
                let sum = (0..20_000_000).fold(0u64, |sum, i| sum.wrapping_add((i * part) ^ (sum >> 3)));
                total.fetch_add(sum, Ordering::Relaxed);
            });
        }
    });
    println!("threads {threads} total {}", total.into_inner());
}
