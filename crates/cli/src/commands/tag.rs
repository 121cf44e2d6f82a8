//! `trimtab tag`, `trimtab untag` and `trimtab reload`: requests to the service.

use crate::args::{ReloadArgs, TagArgs, TargetArgs, Task, UntagArgs};
use crate::commands::print;
use crate::exit::{self, Exit};
use crate::say::Volume;
use crate::world::World;
use anyhow::anyhow;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use trimtab_agent::service::client::Client;
use trimtab_agent::targets::cgroup;
use trimtab_core::tags::{Answer, Ask, What};
use trimtab_core::words::plural;
use trimtab_linux::text::printable;

/// Tags all targets; a refused target does not stop the others.
///
/// # Errors
/// [`exit::FAILED`]: no service runs, or a target is refused.
pub fn tag(world: &World, args: &TagArgs) -> Result<u8, Exit> {
    let ask = |what| Ask::Tag { what, group: args.group.clone() };
    let asks = whats(world, &args.what).into_iter().map(ask);
    all(world, args.socket.as_deref(), asks.collect(), args.quiet)
}

/// Removes tags.
///
/// # Errors
/// [`exit::FAILED`]: no service runs, or a tag belongs to another user.
pub fn clear(world: &World, args: &UntagArgs) -> Result<u8, Exit> {
    let ask = |what| Ask::Clear { what: Some(what) };
    let mut asks: Vec<Ask> = whats(world, &args.what).into_iter().map(ask).collect();
    if args.all {
        asks.push(Ask::Clear { what: None });
    }
    all(world, args.socket.as_deref(), asks, args.quiet)
}

fn whats(world: &World, args: &TargetArgs) -> Vec<What> {
    let paths = world.paths();
    let task = |task: &Task| match task.tid {
        Some(tid) => What::Thread { pid: task.pid, tid },
        None => What::Process { pid: task.pid },
    };
    let group = |path: &PathBuf| {
        What::Cgroup(cgroup(&paths, path).to_string_lossy().trim_end_matches('/').to_owned())
    };
    let tasks = args.tasks.iter().map(task);
    tasks.chain(args.cgroup.iter().map(group)).chain(args.vm.iter().cloned().map(What::Vm)).collect()
}

fn words(what: Option<&What>) -> String {
    match what {
        None => "all your tags".to_owned(),
        Some(What::Process { pid }) => format!("process {pid}"),
        Some(What::Thread { pid, tid }) => format!("thread {pid}:{tid}"),
        Some(What::Cgroup(path)) => format!("group {}", printable(path.as_bytes())),
        Some(What::Vm(name)) => format!("machine {}", printable(name.as_bytes())),
    }
}

fn all(world: &World, socket: Option<&Path>, asks: Vec<Ask>, quiet: bool) -> Result<u8, Exit> {
    let (said, refused) = answers(world, socket, asks).map_err(|cause| Exit::new(exit::FAILED, cause))?;
    if !quiet && !said.is_empty() {
        print(&said).map_err(|error| Exit::new(exit::FAILED, error))?;
    }
    match refused {
        None => Ok(exit::DONE),
        Some(cause) => Err(Exit::new(exit::FAILED, cause)),
    }
}

/// Has the service read its files of declared tags again, and prints what changed.
///
/// # Errors
/// [`exit::FAILED`]: no service runs, a file cannot be used, or the user may not ask for it.
pub fn reload(world: &World, args: &ReloadArgs) -> Result<u8, Exit> {
    let changes = changes(world, args).map_err(|cause| Exit::new(exit::FAILED, cause))?;
    if !args.quiet {
        print(&changes).map_err(|error| Exit::new(exit::FAILED, error))?;
    }
    Ok(exit::DONE)
}

fn changes(world: &World, args: &ReloadArgs) -> Result<String, anyhow::Error> {
    let mut service = Client::find(&world.paths(), args.socket.as_deref(), &Volume::Normal)?;
    match service.ask_patiently(&Ask::Reload)? {
        Answer::Reloaded { declarations, changes } => {
            let mut said = String::new();
            for change in &changes {
                let _ = writeln!(said, "{}", printable(change.as_bytes()));
            }
            let changed = if changes.is_empty() {
                "nothing changed".to_owned()
            } else {
                plural(changes.len(), "change")
            };
            let _ = writeln!(said, "{}: {changed}", plural(declarations, "declaration"));
            Ok(said)
        }
        Answer::Refused(refusal) => Err(anyhow!("{}", printable(refusal.to_string().as_bytes()))),
        Answer::Tagged { .. } | Answer::Cleared { .. } | Answer::Status(_) => Err(strange()),
    }
}

fn strange() -> anyhow::Error {
    anyhow!("the service sent an answer to another request")
}

/// Sends the requests. Returns a text of all that was done, and the first refusal.
fn answers(
    world: &World,
    socket: Option<&Path>,
    asks: Vec<Ask>,
) -> Result<(String, Option<anyhow::Error>), anyhow::Error> {
    let mut service = Client::find(&world.paths(), socket, &Volume::Normal)?;
    let (mut said, mut refused) = (String::new(), Vec::new());
    for ask in asks {
        let what = match &ask {
            Ask::Tag { what, .. } => words(Some(what)),
            Ask::Clear { what } => words(what.as_ref()),
            Ask::Status | Ask::Reload => String::new(),
        };
        match service.ask_patiently(&ask)? {
            Answer::Tagged { what, new } => {
                let how = if new { "tagged" } else { "tagged already" };
                let _ = writeln!(said, "{}: {how}", printable(what.as_bytes()));
            }
            Answer::Cleared { tags: 0, others } if others > 0 => {
                let tags = plural(others, "tag");
                refused.push(format!("{what}: {tags} of other users, which only they and root may clear"));
            }
            Answer::Cleared { tags: 0, .. } => {
                let _ = writeln!(said, "{what}: was not tagged");
            }
            Answer::Cleared { tags, .. } => {
                let _ = writeln!(said, "{what}: cleared {}", plural(tags, "tag"));
            }
            Answer::Refused(refusal) => refused.push(refusal.to_string()),
            Answer::Status(_) | Answer::Reloaded { .. } => return Err(strange()),
        }
    }
    let refused = match refused.as_slice() {
        [] => None,
        [one] => Some(anyhow!("{}", printable(one.as_bytes()))),
        [one, more @ ..] => Some(anyhow!("{}; and {} more refused", printable(one.as_bytes()), more.len())),
    };
    Ok((said, refused))
}
