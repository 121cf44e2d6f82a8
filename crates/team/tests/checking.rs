//! Checked calls: differences found in the same call, filled outputs, and reports of all ranks.
#![allow(clippy::unwrap_used, unsafe_code, reason = "a test that starts calls on buffers")]
#![cfg(not(any(trimtab_model, miri)))]

use std::process::Command;
use std::sync::{Barrier, Mutex};
use std::time::Duration;
use trimtab_team::endpoint::POISON;
use trimtab_team::{CollectiveCall, Element, Error, Kind, Operator, Options, Rank, Result, Sync, Team};

/// Runs a function on each rank of a checked team, and returns the outcome of each.
fn team(ranks: u32, work: impl Fn(&Rank) -> Result<()> + std::marker::Sync) -> Vec<Result<()>> {
    let deadline = Some(Duration::from_secs(60));
    let team = Team::new(Options { heap: 1 << 16, deadline, check: true, ..Options::new(ranks) }).unwrap();
    let told = Mutex::new(vec![Ok(()); ranks as usize]);
    let come = Barrier::new(ranks as usize);
    std::thread::scope(|scope| {
        for number in 0..ranks {
            let (team, work, told, come) = (team.clone(), &work, &told, &come);
            scope.spawn(move || {
                let rank = team.join(Some(number)).unwrap();
                let outcome = work(&rank);
                told.lock().unwrap()[number as usize] = outcome;
                // No rank leaves before all have their outcome.
                come.wait();
            });
        }
    });
    told.into_inner().unwrap()
}

#[test]
fn a_difference_is_an_error_at_all_ranks_in_the_same_call_and_no_data_has_moved() {
    for ranks in [2, 3, 5] {
        for kind in [Kind::Broadcast, Kind::Reduce, Kind::Gather, Kind::Scatter] {
            let told = team(ranks, |rank| {
                rank.barrier()?;
                let root = u32::from(rank.rank() == 1);
                let (gives, gets) = kind.shape(ranks, 8, rank.rank() == root);
                let (input, mut output) = (vec![rank.rank(); gives], vec![77_u32; gets]);
                let outcome = match kind {
                    Kind::Broadcast => rank.mine().broadcast(&mut output, root),
                    Kind::Reduce => rank.mine().reduce(&input, &mut output, Operator::Sum, root),
                    Kind::Gather => rank.mine().gather(&input, &mut output, root),
                    _ => rank.mine().scatter(&input, &mut output, root),
                };
                assert!(output.iter().all(|value| [77, u32::MAX].contains(value)), "{output:?}");
                outcome
            });
            let mismatch = |told: &Result<()>| matches!(told, Err(Error::Mismatch { .. }));
            assert!(told.iter().all(mismatch), "{ranks} ranks, {}: {told:?}", kind.name());
        }
    }
}

#[test]
fn checked_calls_that_agree_give_the_results_of_unchecked_ones() {
    let told = team(3, |rank| {
        for sync in [Sync::MINE, Sync::LOOSE, Sync::STRICT] {
            for count in [1, 500, 40_000] {
                let (input, mut output) = (vec![rank.rank() + 1; count], vec![0; count]);
                rank.with(sync).allreduce(&input, &mut output, Operator::Sum)?;
                assert!(output.iter().all(|sum| *sum == 6));
                rank.with(sync).broadcast(&mut output, 2)?;
                rank.fence()?;
            }
        }
        Ok(())
    });
    assert_eq!(told, [Ok(()), Ok(()), Ok(())]);
}

#[test]
fn the_output_of_a_started_call_is_filled_until_its_data_is_there() {
    let come = Barrier::new(2);
    let told = team(2, |rank| {
        let (input, mut output) = (vec![rank.rank(); 100], vec![0_u32; 200]);
        let call = CollectiveCall {
            kind: Kind::Allgather,
            elements: u32::TYPE,
            operator: None,
            kernel: None,
            count: 100,
            root: 0,
            input: input.as_ptr().cast(),
            output: output.as_mut_ptr().cast(),
            sync: Sync::MINE,
        };
        if rank.rank() == 1 {
            come.wait();
        }
        // SAFETY: both live until the call is over.
        let request = unsafe { rank.start(call) }?;
        if rank.rank() == 0 {
            // Rank 1 has not called yet.
            assert!(!rank.test(&request)?);
            assert!(output.iter().all(|value| *value == u32::from_ne_bytes([POISON; 4])));
            come.wait();
        }
        rank.wait(&request)?;
        assert!((0..200).all(|at| output[at] == u32::from(at >= 100)));
        Ok(())
    });
    assert_eq!(told, [Ok(()), Ok(())]);
}

#[test]
fn a_report_has_the_last_calls_of_all_ranks() {
    let told = team(2, |rank| {
        let block = rank.alloc::<u8>(640)?;
        rank.mine().allreduce_in_place(&mut [1.0, 2.0], Operator::Max)?;
        rank.barrier()?;
        let report = rank.report();
        for words in ["rank 0", "rank 1", "is alive", "allreduce of 2 f64 by max", "allocation of 640 bytes"]
        {
            assert!(report.contains(words), "{words} in {report}");
        }
        assert_eq!(report.matches("allreduce of 2 f64").count(), 2, "{report}");
        rank.barrier()?;
        rank.free(block)
    });
    assert_eq!(told, [Ok(()), Ok(())]);
}

#[test]
fn blocks_of_different_sizes_are_an_error_before_any_rank_has_one_and_freed_blocks_are_filled() {
    let told = team(3, |rank| {
        let block = rank.alloc::<u16>(40)?;
        block.store(0, &[rank.rank() as u16; 40])?;
        let memory = block.own();
        rank.barrier()?;
        rank.free(block)?;
        for at in 0..40 {
            // SAFETY: within the segment, which the rank keeps; no other rank uses this memory.
            assert_eq!(unsafe { memory.add(at).read_volatile() }, u16::from_ne_bytes([POISON; 2]));
        }
        rank.barrier()?;
        assert!(rank.alloc::<u8>(if rank.rank() == 1 { 4000 } else { 10 }).is_err());
        rank.barrier()
    });
    for (me, told) in told.iter().enumerate() {
        let words = told.as_ref().unwrap_err().to_string();
        assert!(words.contains("of 4000 bytes") && words.contains("of 10 bytes"), "rank {me}: {words}");
    }
}

#[test]
fn a_report_says_where_ranks_run_and_for_which_rank_they_wait() {
    let told = team(2, |rank| {
        if rank.rank() == 0 {
            return rank.barrier();
        }
        let begin = std::time::Instant::now();
        loop {
            let report = rank.report();
            let waits = |line: &str| {
                line.starts_with("rank 0 is alive") && line.contains("and waits for rank 1; its last calls")
            };
            if report.lines().any(waits) {
                return rank.barrier();
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{report}");
        }
    });
    assert_eq!(told, [Ok(()), Ok(())]);
}

#[test]
fn the_text_of_an_error_has_the_calls_of_all_ranks_if_calls_are_checked() {
    let texts = Mutex::new(Vec::new());
    team(2, |rank| {
        let count = 2 + rank.rank() as usize;
        let outcome = rank.mine().allreduce_in_place(&mut vec![0_i16; count], Operator::Min);
        let error = outcome.clone().unwrap_err();
        texts.lock().unwrap().push(rank.describe_error(&error));
        let argument = Error::Argument("of one rank alone".to_owned());
        assert_eq!(rank.describe_error(&argument), argument.to_string());
        outcome
    });
    for text in texts.into_inner().unwrap() {
        for words in ["all ranks of a team make the same calls", "rank 0", "of 2 i16", "rank 1", "of 3 i16"] {
            assert!(text.contains(words), "{words} in {text}");
        }
    }
}

/// The program that the next test starts; alone it does nothing.
#[test]
fn as_a_program() {
    if std::env::var_os("TRIMTAB_TEAM_CHECK").is_none() {
        return;
    }
    let team = Team::new(Options::new(2)).unwrap();
    std::thread::scope(|scope| {
        for number in 0..2 {
            let team = team.clone();
            scope.spawn(move || {
                let rank = team.join(Some(number)).unwrap();
                let count = 3 + number as usize;
                while rank.mine().broadcast(&mut vec![0_u16; count], 0).is_ok() {}
            });
        }
    });
}

#[test]
fn the_variable_makes_an_unchanged_program_report_all_ranks() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "as_a_program", "--nocapture"])
        .env("TRIMTAB_TEAM_CHECK", "on")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    for words in ["made different calls", "rank 0", "broadcast of 3 u16", "rank 1", "broadcast of 4 u16"] {
        assert!(said.contains(words), "{words} in {said}");
    }
    let refused = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "as_a_program", "--nocapture"])
        .env("TRIMTAB_TEAM_CHECK", "maybe")
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("neither on nor off"));
}
