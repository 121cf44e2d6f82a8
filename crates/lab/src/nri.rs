//! `trimtab nri`: the plug-in for container runtimes.

use crate::args::NriArgs;
use std::fmt::Write;
use std::sync::Arc;
use trimtab_agent::narrator::Narrator;
use trimtab_front::diagnostics::Volume;
use trimtab_front::exit::{self, Exit};
use trimtab_front::process_env::World;
use trimtab_front::sibling::{LAB, find};
use trimtab_front::stdout::print;
use trimtab_nri::config::{Class, ClassCores, Config, Qos};
use trimtab_nri::serve::{ServeOptions, configuration, serve};

/// Runs `trimtab nri`.
///
/// # Errors
/// The configuration cannot be used, or, with `--once`, the connection fails.
pub fn run(world: &World, args: &NriArgs) -> Result<u8, Exit> {
    let failed = |cause: anyhow::Error| Exit::new(exit::FAILED, cause);
    if args.check {
        let config = configuration(world, args.config.as_deref()).map_err(failed)?;
        print(&told(&config)).map_err(|error| failed(error.into()))?;
        return Ok(exit::DONE);
    }
    let options = ServeOptions {
        socket: args.socket.clone(),
        index: args.index.clone(),
        config: args.config.clone(),
        metrics: args.metrics.clone(),
        keeper: find(LAB).map_err(failed)?,
        once: args.once,
    };
    let narrator: Arc<dyn Narrator> = Arc::new(Volume::of(args.quiet, args.verbose));
    serve(&World::current, &options, &narrator).map_err(failed)?;
    Ok(exit::DONE)
}

/// Returns what a configuration means.
fn told(config: &Config) -> String {
    let mut text = match config.annotations {
        true => "a pod's annotation trimtab.io/cores counts\n".to_owned(),
        false => "annotations of pods do not count\n".to_owned(),
    };
    for class in &config.class {
        let _ = writeln!(text, "{}", told_class(class));
    }
    text += match config.shared {
        true => "all other containers share the CPUs that no hold has",
        false => "all other containers are left as they are",
    };
    text
}

fn told_class(class: &Class) -> String {
    let mut pods = Vec::new();
    if let Some(qos) = class.qos {
        let word = match qos {
            Qos::Guaranteed => "guaranteed",
            Qos::Burstable => "burstable",
            Qos::BestEffort => "besteffort",
        };
        pods.push(format!("of class {word}"));
    }
    if let Some(name) = &class.runtime_class {
        pods.push(format!("with RuntimeClass {name}"));
    }
    let cores = match &class.cores {
        ClassCores::Limit => "cores of the container's CPU limit, if that is a whole number".to_owned(),
        ClassCores::Request => "cores of the container's CPU request, if that is a whole number".to_owned(),
        ClassCores::Amount(amount) => format!("cores: {amount}"),
    };
    let settings = class.settings.iter().map(|settings| format!(", {settings}"));
    let near = class.near.iter().map(|device| format!(", near {device}"));
    let more: String = settings.chain(near).collect();
    format!("pods {}: {cores}{more}", pods.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_told_in_words() {
        let text = "shared = true\nannotations = false\n[[class]]\nqos = \"burstable\"\nruntime-class = \"fast\"\n\
                    cores = \"2\"\nsettings = \"memory=bind\"\nnear = \"gpu:0\"\n";
        let expected = "annotations of pods do not count\n\
                        pods of class burstable and with RuntimeClass fast: cores: 2, memory=bind, near gpu:0\n\
                        all other containers share the CPUs that no hold has";
        assert_eq!(told(&text.parse().unwrap()), expected);
        assert!(told(&Config::default()).ends_with("all other containers are left as they are"));
    }
}
