//! Site and rules files: settings of an administrator for all users, and of a user.
//!
//! `site.toml` limits: how much `auto` takes, how much one run may have, which CPUs are kept for
//! housekeeping. `rules.toml` holds per program known settings (huge pages, memory policy, ...), by
//! glob on its name, or on its path if the pattern contains a slash. Layers: `/etc/trimtab`, then
//! the user's folder, then flags; a user's limits can be tighter than the site's, never looser.

use crate::toml_text::{NamePattern, TomlFault, parse};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use thiserror::Error;
use trimtab_core::place::HugePages;
pub use trimtab_launch::rules::{Rule, Site};

/// Why a file was not used.
#[derive(Debug, Error)]
pub enum SiteError {
    /// It exists but cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// It does not parse.
    #[error("{path}, {fault}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// The fault, and its place.
        fault: TomlFault,
    },
}

/// The rules of one file, compiled.
#[derive(Debug, Default)]
pub struct Rules(Vec<(NamePattern, Rule)>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesFile {
    #[serde(default)]
    rule: Vec<toml::Spanned<RuleText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    program: NamePattern,
    thp: Option<HugePages>,
    mem: Option<String>,
    strategy: Option<String>,
    smt: Option<toml::Value>,
    pin: Option<String>,
    why: Option<String>,
}

/// Parses a site file.
///
/// # Errors
/// [`SiteError::Parse`] with the position and the expected words.
pub fn parse_site(text: &str, path: &Path) -> Result<Site, SiteError> {
    let site: Site = parse(text).map_err(in_file(path))?;
    let limits = [
        (site.auto_cores, "auto-cores"),
        (site.max_cores, "max-cores"),
        (site.max_cores_per_user, "max-cores-per-user"),
    ];
    for (limit, name) in limits {
        if limit == Some(0) {
            let at = text.find(name).unwrap_or(0);
            let problem = format!("{name} = 0 would not allow any run");
            return Err(in_file(path)(TomlFault::at(text, at, &problem)));
        }
    }
    Ok(site)
}

impl Rules {
    /// Parses a rules file.
    ///
    /// # Errors
    /// [`SiteError::Parse`] with the position and the expected words.
    pub fn parse(text: &str, path: &Path) -> Result<Self, SiteError> {
        let file: RulesFile = parse(text).map_err(in_file(path))?;
        let mut rules = Vec::new();
        for spanned in file.rule {
            let at = spanned.span().start;
            let fault = |problem: String| in_file(path)(TomlFault::at(text, at, &problem));
            let words = spanned.into_inner();
            let smt = words.smt.map(|value| match value {
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::String(word) => word,
                other => other.to_string(),
            });
            let mask_only = match words.pin.as_deref() {
                None | Some("auto") => false,
                Some("mask") => true,
                Some(other) => return Err(fault(format!("pin \"{other}\" is unknown (known: auto, mask)"))),
            };
            let program = words.program.to_string();
            rules.push((
                words.program,
                Rule {
                    program,
                    thp: words.thp,
                    mem: words.mem.map(|text| text.parse()).transpose().map_err(fault)?,
                    strategy: words.strategy.map(|text| text.parse()).transpose().map_err(fault)?,
                    smt: smt.map(|text| text.parse()).transpose().map_err(fault)?,
                    mask_only,
                    why: words.why,
                },
            ));
        }
        Ok(Self(rules))
    }

    /// Returns the last rule that matches a program: later lines are the more specific ones.
    pub fn of(&self, program: &Path) -> Option<&Rule> {
        let name = program.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let path = program.to_string_lossy();
        let matches = |pattern: &NamePattern| {
            if pattern.as_str().contains('/') { pattern.matches(&path) } else { pattern.matches(&name) }
        };
        self.0.iter().rev().find(|(pattern, _)| matches(pattern)).map(|(_, rule)| rule)
    }
}

/// The site's and the user's files.
#[derive(Debug, Default)]
pub struct Policy {
    /// The limits in force.
    pub site: Site,
    /// The site's rules, then the user's.
    rules: Vec<Rules>,
}

impl Policy {
    /// Reads the files of these folders, outermost first. An absent file or folder has no rules. A
    /// file that cannot be used is an error, because running against a site's limits is worse than
    /// not running.
    ///
    /// # Errors
    /// The first file that exists and cannot be used.
    pub fn read(folders: &[PathBuf]) -> Result<Self, SiteError> {
        let mut policy = Self::default();
        for (depth, folder) in folders.iter().enumerate() {
            // Most machines and users have no such folder.
            if matches!(folder.try_exists(), Ok(false)) {
                continue;
            }
            let site = folder.join("site.toml");
            if let Some(text) = read(&site)? {
                let found = parse_site(&text, &site)?;
                policy.site = if depth == 0 { found } else { policy.site.tightened(found) };
            }
            let rules = folder.join("rules.toml");
            if let Some(text) = read(&rules)? {
                policy.rules.push(Rules::parse(&text, &rules)?);
            }
        }
        Ok(policy)
    }

    /// Returns the rules for a program: each setting from the innermost layer that has one.
    pub fn of(&self, program: &Path) -> Option<Rule> {
        let mut matching = self.rules.iter().filter_map(|rules| rules.of(program));
        let mut sum = matching.next()?.clone();
        for rule in matching {
            sum = sum.overlaid(rule.clone());
        }
        Some(sum)
    }
}

fn read(path: &Path) -> Result<Option<String>, SiteError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error)
            if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(source) => Err(SiteError::Read { path: path.to_owned(), source }),
    }
}

/// Adds the file to a fault of its text.
fn in_file(path: &Path) -> impl Fn(TomlFault) -> SiteError {
    move |fault| SiteError::Parse { path: path.to_owned(), fault }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::proptest;
    use trimtab_core::place::MemoryPolicy;
    use trimtab_core::place::Smt;
    use trimtab_core::place::Strategy;

    fn rules(text: &str) -> Result<Rules, SiteError> {
        Rules::parse(text, Path::new("rules.toml"))
    }

    #[test]
    fn limits_tighten_inwards() {
        let site = |text| parse_site(text, Path::new("site.toml")).unwrap();
        let both = site("auto-cores = 8\nreserved-cpus = \"0\"")
            .tightened(site("auto-cores = 16\nmax-cores = 4\nreserved-cpus = \"1\""));
        assert_eq!(both, site("auto-cores = 8\nmax-cores = 4\nreserved-cpus = \"0-1\""));
        let both = site("yield-to = \"ann\"").tightened(site("yield-to = \"bob\""));
        assert_eq!(both, site("yield-to = \"ann,bob\""));
    }

    #[test]
    fn rules_match_names_and_paths_and_the_last_wins() {
        let rules = rules(
            "[[rule]]\nprogram = \"cg.*\"\nthp = \"off\"\n[[rule]]\nprogram = \"/opt/*/cg.C\"\nthp = \"advised\"\nmem = \"interleave\"\nsmt = 2\n",
        )
        .unwrap();
        assert_eq!(rules.of(Path::new("/home/me/cg.C")).unwrap().thp, Some(HugePages::Off));
        let path = rules.of(Path::new("/opt/npb/cg.C")).unwrap();
        assert_eq!((path.thp, path.smt), (Some(HugePages::Advised), Some(Smt::Threads(2))));
        assert_eq!(path.mem.as_ref().unwrap().policy, Some(MemoryPolicy::Interleave));
        assert!(rules.of(Path::new("/bin/ls")).is_none());
    }

    #[test]
    fn layers_join_setting_by_setting() {
        let folders = tempfile::tempdir().unwrap();
        let (outer, inner) = (folders.path().join("site"), folders.path().join("user"));
        for (folder, text) in [
            (&outer, "[[rule]]\nprogram = \"db*\"\nthp = \"off\"\nwhy = \"latency\"\n"),
            (&inner, "[[rule]]\nprogram = \"dbase\"\nstrategy = \"scatter\"\n"),
        ] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("rules.toml"), text).unwrap();
        }
        let policy = Policy::read(&[outer, inner, folders.path().join("absent")]).unwrap();
        let rule = policy.of(Path::new("/usr/bin/dbase")).unwrap();
        assert_eq!((rule.thp, rule.strategy), (Some(HugePages::Off), Some(Strategy::Scatter)));
        assert_eq!(rule.why.as_deref(), Some("latency"));
    }

    #[test]
    fn faults_name_file_line_and_column() {
        for (text, place) in [
            ("auto-cores = \"x\"", "line 1, column 14"),
            ("\nmax-core = 3", "line 2, column 1"),
            ("reserved-cpus = \"3-1\"", "line 1, column 17"),
            ("max-cores = 0", "line 1, column 1"),
            ("\nmax-cores-per-user = 0", "line 2, column 1"),
            ("yield-to = \"a b\"", "line 1, column 12"),
        ] {
            let error = parse_site(text, Path::new("site.toml")).unwrap_err().to_string();
            assert!(error.contains(place), "{error}");
        }
        for (text, word) in [
            ("[[rule]]\nthp = \"off\"", "program"),
            ("[[rule]]\nprogram = \"a\"\nthp = \"never\"", "never"),
            ("[[rule]]\nprogram = \"a[\"", "not a valid pattern"),
            ("[[rule]]\nprogram = \"a\"\nmem = \"hbn\"", "not a memory policy"),
            ("[[rule]]\nprogram = \"a\"\npin = \"hard\"", "known: auto, mask"),
            ("[[rules]]", "unknown field"),
        ] {
            let error = rules(text).unwrap_err().to_string();
            assert!(error.contains(word) && error.starts_with("rules.toml, line"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "(\\[\\[rule\\]\\]\n|program = \"[a-z*\\[]{0,4}\"\n|smt = .{0,4}\n|.{0,6}\n){0,6}") {
            let _ = rules(&text);
            let _ = parse_site(&text, Path::new("x"));
        }
    }
}
