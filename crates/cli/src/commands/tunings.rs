//! `trimtab tune list|show|export|import|remove`: the stored tunings.

use crate::args::{PlaceArgs, TuningCommand, TuningsArgs};
use crate::commands::print;
use crate::exit::{self, Exit};
use crate::say::{self, Volume};
use crate::table::{Align, Table};
use crate::tuning_store::{Conditions, Kept, Store};
use crate::world::World;
use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;
use trimtab_front::date::date;
use trimtab_launch::options::words;

/// Schema of the JSON document.
const SCHEMA: &str = "trimtab.profiles/1";

/// A tuning as it is listed.
#[derive(Serialize)]
struct Listed {
    name: String,
    #[serde(flatten)]
    kept: Kept,
    /// Why the tuning would not be applied now; `None` if it would.
    idle: Option<String>,
}

#[derive(Serialize)]
struct TuningsJson {
    schema: &'static str,
    profiles: Vec<Listed>,
}

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`] when the tuning does not exist, or a file cannot be read or written.
pub fn run(world: &World, args: &TuningsArgs) -> Result<u8, Exit> {
    let store = Store::of(world)
        .ok_or_else(|| anyhow!("neither XDG_DATA_HOME nor HOME is set, so there is no folder for tunings"));
    let done = store.and_then(|store| match &args.command {
        None => list(&store, args.json),
        Some(TuningCommand::List { json }) => list(&store, *json),
        Some(TuningCommand::Show { name, json }) => show(&store, name, *json),
        Some(TuningCommand::Export { name, output }) => export(&store, name, output.as_deref()),
        Some(TuningCommand::Import { file }) => import(&store, file),
        Some(TuningCommand::Remove { name, .. }) => remove(&store, name.as_deref()),
    });
    done.map_err(|cause| Exit::new(exit::FAILED, cause))
}

/// Returns why a tuning would not be applied here and now.
fn idle(kept: &Kept) -> Option<String> {
    let of = &kept.conditions;
    let met = Conditions::of(&of.program, &[], &PlaceArgs::default(), of.cores);
    match met {
        Err(_) => Some("the program does not exist".to_owned()),
        // The arguments and options of the program are not known here.
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
                    "{} is ignored: {error:#} (trimtab tune remove {name})",
                    store.path(&name).display()
                ),
            ),
        }
    }
    all
}

fn json(profiles: Vec<Listed>) -> Result<()> {
    Ok(print(&serde_json::to_string_pretty(&TuningsJson { schema: SCHEMA, profiles })?)?)
}

fn list(store: &Store, as_json: bool) -> Result<u8> {
    let all = listed(store);
    if as_json {
        json(all)?;
        return Ok(exit::DONE);
    }
    if all.is_empty() {
        print("No tunings: trimtab tune ./app finds one.")?;
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

/// Returns the full name of the tuning whose name begins so.
fn named(store: &Store, beginning: &str) -> Result<String> {
    let mut names: Vec<String> =
        store.names().into_iter().filter(|name| name.starts_with(beginning)).collect();
    match names.len() {
        0 => bail!("there is no tuning \"{beginning}\": see trimtab tune list"),
        1 => Ok(names.swap_remove(0)),
        _ => bail!("\"{beginning}\" is ambiguous: {}", names.join(" and ")),
    }
}

fn read(store: &Store, beginning: &str) -> Result<(String, Kept)> {
    let name = named(store, beginning)?;
    let kept =
        store.read(&name).with_context(|| format!("{} cannot be used", store.path(&name).display()))?;
    let kept = kept.ok_or_else(|| anyhow!("the tuning {name} has just been removed"))?;
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
    let _ = writeln!(text, "tuning     {name}, found {} by trimtab {}", date(kept.when), kept.version);
    let _ = writeln!(text, "setting    {}", kept.setting);
    let _ = writeln!(text, "as options {}", words(&kept.setting).join(" "));
    let _ = writeln!(
        text,
        "gain       {:+.1} % over {} (95 % confidence: {:+.1} to {:+.1} %)",
        percent(kept.gain),
        kept.from,
        percent(kept.low),
        percent(kept.high)
    );
    for (knob, gain) in &kept.adds {
        let _ = writeln!(text, "           {knob} contributes {:+.1} %", percent(*gain));
    }
    let unit = if kept.metric == "time" {
        "seconds".to_owned()
    } else {
        format!("of {}, {} is better", kept.metric, if kept.higher { "more" } else { "less" })
    };
    let _ = writeln!(text, "evidence   {unit}, alternating runs");
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
    let kept = Kept::parse(&text).with_context(|| format!("{} is not imported", file.display()))?;
    let name = store.write(&kept)?;
    let applies = match idle(&kept) {
        None => "applies here".to_owned(),
        Some(why) => format!("does not apply here: {why}"),
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
