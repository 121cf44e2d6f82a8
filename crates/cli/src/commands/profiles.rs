//! `trimtab profiles`: what `trimtab tune` found and keeps, to look at, hand on and remove.

use crate::args::{PlaceArgs, ProfilesArgs, ProfilesCommand};
use crate::commands::print;
use crate::commands::tune_team::page::date;
use crate::exit::{self, Exit};
use crate::kept::{Conditions, Kept, Store};
use crate::say::{self, Volume};
use crate::table::{Align, Table};
use crate::world::World;
use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;
use trimtab_launch::options::words;

/// The version of the JSON.
const SCHEMA: &str = "trimtab.profiles/1";

/// A profile as it is listed.
#[derive(Serialize)]
struct Listed {
    name: String,
    #[serde(flatten)]
    kept: Kept,
    /// Why it would not be applied now; nothing where it would.
    idle: Option<String>,
}

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    profiles: Vec<Listed>,
}

/// Carries out what is asked for.
///
/// # Errors
/// [`exit::FAILED`] when there is no such profile, or a file cannot be read or written.
pub fn run(world: &World, args: &ProfilesArgs) -> Result<u8, Exit> {
    let store = Store::of(world)
        .ok_or_else(|| anyhow!("neither XDG_DATA_HOME nor HOME says where profiles are kept"));
    let done = store.and_then(|store| match &args.command {
        None => list(&store, args.json),
        Some(ProfilesCommand::List { json }) => list(&store, *json),
        Some(ProfilesCommand::Show { name, json }) => show(&store, name, *json),
        Some(ProfilesCommand::Export { name, output }) => export(&store, name, output.as_deref()),
        Some(ProfilesCommand::Import { file }) => import(&store, file),
        Some(ProfilesCommand::Remove { name, .. }) => remove(&store, name.as_deref()),
    });
    done.map_err(|cause| Exit::new(exit::FAILED, cause))
}

/// Why a profile would not be applied here and now.
fn idle(kept: &Kept) -> Option<String> {
    let of = &kept.conditions;
    let met = Conditions::of(&of.program, &[], &PlaceArgs::default(), of.cores);
    match met {
        Err(_) => Some("the program is not there".to_owned()),
        // What it was started with is not known here.
        Ok(met) => of
            .differs(&Conditions { arguments: of.arguments.clone(), asked: of.asked.clone(), ..met })
            .map(str::to_owned),
    }
}

fn listed(store: &Store) -> Vec<Listed> {
    let mut all = Vec::new();
    for name in store.names() {
        match store.read(&name) {
            Ok(Some(kept)) => all.push(Listed { idle: idle(&kept), name, kept }),
            Ok(None) => {}
            Err(error) => say::warning(
                Volume::Normal,
                &format!(
                    "{} does not count: {error:#} (trimtab profiles remove {name})",
                    store.path(&name).display()
                ),
            ),
        }
    }
    all
}

fn json(profiles: Vec<Listed>) -> Result<()> {
    Ok(print(&serde_json::to_string_pretty(&Document { schema: SCHEMA, profiles })?)?)
}

fn list(store: &Store, as_json: bool) -> Result<u8> {
    let all = listed(store);
    if as_json {
        json(all)?;
        return Ok(exit::DONE);
    }
    if all.is_empty() {
        print("No profiles: trimtab tune ./app finds one.")?;
        return Ok(exit::DONE);
    }
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("PROGRAM", Align::Left),
        ("SETTING", Align::Left),
        ("GAIN", Align::Right),
        ("FOUND", Align::Left),
        ("APPLIES", Align::Left),
    ]);
    for Listed { name, kept, idle } in all {
        table.row([
            name,
            format!("{} {}", kept.conditions.program.display(), kept.conditions.arguments)
                .trim_end()
                .to_owned(),
            kept.setting.to_string(),
            format!("{:+.0} %", (kept.gain - 1.0) * 100.0),
            date(kept.when),
            idle.map_or("yes".to_owned(), |why| format!("no: {why}")),
        ]);
    }
    print(&table.to_string())?;
    Ok(exit::DONE)
}

/// The name that begins so.
fn named(store: &Store, beginning: &str) -> Result<String> {
    let mut names: Vec<String> =
        store.names().into_iter().filter(|name| name.starts_with(beginning)).collect();
    match names.len() {
        0 => bail!("there is no profile \"{beginning}\": trimtab profiles lists them"),
        1 => Ok(names.swap_remove(0)),
        _ => bail!("\"{beginning}\" is the beginning of {}", names.join(" and ")),
    }
}

fn read(store: &Store, beginning: &str) -> Result<(String, Kept)> {
    let name = named(store, beginning)?;
    let kept =
        store.read(&name).with_context(|| format!("{} does not count", store.path(&name).display()))?;
    let kept = kept.ok_or_else(|| anyhow!("the profile {name} has just gone"))?;
    Ok((name, kept))
}

fn show(store: &Store, beginning: &str, as_json: bool) -> Result<u8> {
    let (name, kept) = read(store, beginning)?;
    let idle = idle(&kept);
    if as_json {
        json(vec![Listed { name, kept, idle }])?;
        return Ok(exit::DONE);
    }
    let of = &kept.conditions;
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let values =
        |values: &[f64]| values.iter().map(|value| format!("{value:.4}")).collect::<Vec<_>>().join(" ");
    let mut text = String::new();
    let _ = writeln!(text, "profile    {name}, found {} by trimtab {}", date(kept.when), kept.version);
    let _ = writeln!(text, "setting    {}", kept.setting);
    let _ = writeln!(text, "as options {}", words(&kept.setting).join(" "));
    let _ = writeln!(
        text,
        "gain       {:+.1} % over {} (95 % sure of {:+.1} to {:+.1} %)",
        percent(kept.gain),
        kept.from,
        percent(kept.low),
        percent(kept.high)
    );
    for (knob, gain) in &kept.adds {
        let _ = writeln!(text, "           {knob} adds {:+.1} % to the others", percent(*gain));
    }
    let unit = if kept.metric == "time" {
        "seconds".to_owned()
    } else {
        format!("of {}, {} is better", kept.metric, if kept.higher { "more" } else { "less" })
    };
    let _ = writeln!(text, "evidence   {unit}, runs in turn");
    let _ = writeln!(text, "  before   {}", values(&kept.before));
    let _ = writeln!(text, "  after    {}", values(&kept.after));
    let _ = writeln!(text, "program    {} ({} bytes)", of.program.display(), of.size);
    let _ = writeln!(text, "arguments  {}", if of.arguments.is_empty() { "none" } else { &of.arguments });
    let _ = writeln!(text, "machine    {}", of.machine);
    let _ = writeln!(text, "cores      {} ({})", of.cores, of.asked);
    let _ = writeln!(text, "applies    {}", idle.map_or("yes".to_owned(), |why| format!("no: {why}")));
    print(&text)?;
    Ok(exit::DONE)
}

fn export(store: &Store, beginning: &str, output: Option<&Path>) -> Result<u8> {
    let (_, kept) = read(store, beginning)?;
    let text = kept.text()?;
    match output {
        None => print(&text)?,
        Some(path) => {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?
        }
    }
    Ok(exit::DONE)
}

fn import(store: &Store, file: &Path) -> Result<u8> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let kept = Kept::parse(&text).with_context(|| format!("{} is not taken", file.display()))?;
    let name = store.write(&kept)?;
    let applies = match idle(&kept) {
        None => "it applies".to_owned(),
        Some(why) => format!("it does not apply here: {why}"),
    };
    print(&format!("{name}: {applies}"))?;
    Ok(exit::DONE)
}

fn remove(store: &Store, beginning: Option<&str>) -> Result<u8> {
    let names = match beginning {
        Some(beginning) => vec![named(store, beginning)?],
        None => store.names(),
    };
    for name in &names {
        store.remove(name)?;
    }
    print(&if names.is_empty() {
        "nothing to remove".to_owned()
    } else {
        format!("removed {}", names.join(", "))
    })?;
    Ok(exit::DONE)
}
