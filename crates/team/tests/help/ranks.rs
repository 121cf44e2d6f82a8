// Included by the examples in this crate's documentation.

use trimtab_team::{Options, Rank, Result, Team};

/// Makes a team, and runs `work` in one thread for each of its ranks. Panics if a rank fails.
pub fn run(ranks: u32, work: impl Fn(Rank) -> Result<()> + Sync) {
    let team = Team::new(Options { heap: 1 << 20, ..Options::new(ranks) }).unwrap();
    std::thread::scope(|scope| {
        for number in 0..ranks {
            let (team, work) = (&team, &work);
            scope.spawn(move || work(team.join(Some(number)).unwrap()).unwrap());
        }
    });
}
