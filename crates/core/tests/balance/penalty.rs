//! Policies of the uncore penalty over a machine of nodes.

use crate::nodes::{Nodes, run, settings};
use trimtab_core::balance::Kind;

#[test]
fn table() {
    for (threads, nodes, cores) in
        [(4, 2, 4), (8, 2, 8), (8, 2, 4), (16, 2, 16), (16, 2, 8), (32, 4, 16), (32, 4, 8)]
    {
        let mut line = format!("{threads:3} on {nodes} x {cores:2}:");
        for kind in [Kind::Float, Kind::BrmPaper, Kind::Brm, Kind::Serial] {
            let (mut sum, mut worst, mut moves, mut start) = (0.0, f64::INFINITY, 0, f64::INFINITY);
            for seed in 0..4 {
                let model = Nodes::mixed(seed, threads, nodes, cores);
                let (best, first) = (model.best(), model.pace());
                let ran = run(model, kind, &settings(kind, seed));
                sum += ran.late / best / 4.0;
                worst = worst.min(ran.late / best);
                start = start.min(ran.late / first);
                moves += ran.nodes.moves.len();
            }
            line +=
                &format!("  {kind} {sum:.3} [{worst:.3}, {start:.3} of start] {:.1}/s", moves as f64 / 120.0);
        }
        println!("{line}");
    }
}
