//! Options of `trimtab sim swarm`.

use clap::Args;

/// Look for faults of the policies in scenarios drawn at random.
#[derive(Args, Debug)]
pub struct SwarmArgs {}
