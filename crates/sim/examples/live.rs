//! What was measured on real machines, beside the simulator: `cargo run --release -p trimtab-sim --example live [SET]`.

#![expect(clippy::print_stdout, reason = "a table is what it is for")]

use trimtab_sim::live::{LiveError, SETS, find};

/// Runs of each cell.
const RUNS: u64 = 9;

fn main() -> Result<(), LiveError> {
    let sets = match std::env::args().nth(1) {
        Some(name) => vec![*find(&name)?],
        None => SETS.to_vec(),
    };
    for set in sets {
        let simulated: Result<Vec<f64>, LiveError> =
            set.cells()?.iter().map(|cell| set.simulated(cell, RUNS)).collect();
        println!("{}", set.report(&simulated?)?);
    }
    Ok(())
}
