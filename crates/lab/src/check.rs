//! `trimtab check`: checks a plan from a file with the checker, which shares no code with the
//! planner.

use anyhow::{Context, Result, bail};
use std::io::Read;
use trimtab_cli::args::CheckArgs;
use trimtab_cli::commands::plan::{PlanDocument, READ_TOO, SCHEMA};
use trimtab_core::check::{check, check_nesting};
use trimtab_front::exit::{self, Exit};
use trimtab_front::process_env::World;
use trimtab_front::stdout::print;

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`] when the file is not a plan or its machine cannot be loaded.
pub fn run(world: &World, args: &CheckArgs) -> Result<u8, Exit> {
    let findings = findings(world, args).map_err(|cause| Exit::new(exit::FAILED, cause))?;
    if findings.is_empty() {
        return Ok(exit::DONE);
    }
    print(&findings.join("\n")).map_err(|error| Exit::new(exit::FAILED, error))?;
    Ok(exit::NO)
}

fn findings(world: &World, args: &CheckArgs) -> Result<Vec<String>> {
    let standard_input = args.plan.as_os_str() == "-";
    let name = if standard_input { "standard input".to_owned() } else { args.plan.display().to_string() };
    let text = if standard_input {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        text
    } else {
        std::fs::read_to_string(&args.plan).with_context(|| format!("cannot read {name}"))?
    };
    let value: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("{name} is not JSON"))?;
    match value.get("schema").and_then(|schema| schema.as_str()) {
        Some(schema) if schema == SCHEMA || READ_TOO.contains(&schema) => {}
        Some(other) => bail!("{name} has schema {other}; this version of trimtab reads {SCHEMA}"),
        None => bail!("{name} is not a plan: it has no schema; trimtab plan --json writes one"),
    }
    let document: PlanDocument =
        serde_json::from_value(value).with_context(|| format!("{name} is not a plan"))?;
    let (machine, _) = document.machine.load(world)?;
    let (plan, whole) = (&document.plan, document.whole.as_ref());
    let findings = check(&machine, &document.request, &document.taken, whole.unwrap_or(plan));
    let outside = whole.map(|whole| plan.mask.difference(&whole.mask)).filter(|cpus| !cpus.is_empty());
    let outside =
        outside.map(|cpus| format!("the rank's part contains CPUs {cpus}, which are not in the allotment"));
    let nested = document.nest.iter().flat_map(|listing| check_nesting(&document.plan, listing));
    let nested = nested.map(|finding| finding.to_string());
    Ok(findings.iter().map(ToString::to_string).chain(outside).chain(nested).collect())
}
