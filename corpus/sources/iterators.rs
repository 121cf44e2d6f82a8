//! A parallel iterator of Rayon's, and the threads of its pool.
use rayon::prelude::*;

fn main() {
    let total: u64 = (0..800_000_000u64).into_par_iter().map(|i| (i ^ (i >> 7)) % 1013).sum();
    println!("threads {} total {total}", rayon::current_num_threads());
}
