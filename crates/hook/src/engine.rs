//! Engines of virtual machines, and the steps of a guest's life at which they call a hook.

use std::path::{Path, PathBuf};
use trimtab_linux::text::printable;

/// Longest name of a guest in bytes: the names of files have 255. Chosen.
const NAME_MAX: usize = 200;

/// An engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HookEngine {
    /// libvirt, which runs `/etc/libvirt/hooks/qemu` and the files of `qemu.d`.
    Libvirt,
    /// Proxmox VE, which runs a guest's hookscript.
    Proxmox,
    /// Incus, which announces what happens to its instances.
    Incus,
}

/// A step of a guest's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HookStep {
    /// The guest will be started: its cores are chosen and reserved.
    Reserve,
    /// Its process runs: its vCPUs are bound.
    Place,
    /// Its process runs, and the engine was restarted: it gets its cores if it has none.
    Renew,
    /// It has ended: its cores are given back.
    Release,
    /// Nothing is to be done.
    Nothing,
}

impl HookEngine {
    /// Returns its name, as on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Libvirt => "libvirt",
            Self::Proxmox => "proxmox",
            Self::Incus => "incus",
        }
    }

    /// Returns the step that the words of a call mean, and the name of the guest. libvirt's are
    /// `GUEST OPERATION SUB-OPERATION EXTRA`, those of Proxmox VE `VMID PHASE`.
    ///
    /// # Errors
    /// The words are not those of a call, or the name cannot be used.
    ///
    /// # Examples
    /// ```
    /// use trimtab_hook::engine::{HookEngine, HookStep};
    ///
    /// let words = ["web", "prepare", "begin", "-"].map(str::to_owned);
    /// let (name, step) = HookEngine::Libvirt.step(&words)?;
    /// assert_eq!((name, step), ("web", HookStep::Reserve));
    /// # Ok::<(), String>(())
    /// ```
    pub fn step(self, words: &[String]) -> Result<(&str, HookStep), String> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (name, step) = match (self, words.as_slice()) {
            (Self::Libvirt, [name, operation, sub, ..]) => (*name, libvirt_step(operation, sub)),
            (Self::Proxmox, [name, phase]) => {
                if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(format!("\"{}\" is no number of a guest", printable(name.as_bytes())));
                }
                (*name, proxmox_step(phase))
            }
            (Self::Libvirt, _) => {
                return Err("libvirt calls a hook with GUEST OPERATION SUB-OPERATION EXTRA".to_owned());
            }
            (Self::Proxmox, _) => return Err("Proxmox VE calls a hookscript with VMID PHASE".to_owned()),
            (Self::Incus, _) => return Err("Incus calls no hook: leave the words out".to_owned()),
        };
        usable(name)?;
        Ok((name, step))
    }

    /// Returns the files in which the engine may have noted the process of a guest. libvirt 9
    /// escapes names there as in XML.
    pub fn pid_files(self, root: &Path, name: &str) -> Vec<PathBuf> {
        let file = |folder: &str, name: &str| root.join(folder).join(format!("{name}.pid"));
        match self {
            Self::Libvirt => {
                let folder = "run/libvirt/qemu";
                vec![file(folder, &escaped(name)), file(folder, name)]
            }
            Self::Proxmox => vec![file("run/qemu-server", name)],
            Self::Incus => Vec::new(),
        }
    }

    /// Returns the identity of a guest in a hold.
    pub fn id(self, name: &str) -> String {
        format!("{}:{name}", self.word())
    }

    /// Returns the name of a guest for people, as `trimtab ps` shows it.
    pub fn label(self, name: &str) -> String {
        format!("vm {} ({})", printable(name.as_bytes()), self.word())
    }
}

/// Checks that a name can be part of a file's name. Engines permit no others.
///
/// # Errors
/// It cannot.
pub fn usable(name: &str) -> Result<(), String> {
    let is_bad =
        name.is_empty() || name.len() > NAME_MAX || name == "." || name == ".." || name.contains(['/', '\0']);
    if is_bad {
        let start: String = name.chars().take(20).collect();
        return Err(format!("the name \"{}\" of a guest cannot be used", printable(start.as_bytes())));
    }
    Ok(())
}

/// Returns a text as XML has it.
fn escaped(text: &str) -> String {
    let pairs = [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("'", "&apos;"), ("\"", "&quot;")];
    pairs.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

fn libvirt_step(operation: &str, sub: &str) -> HookStep {
    match (operation, sub) {
        ("prepare", "begin") => HookStep::Reserve,
        ("started", "begin") => HookStep::Place,
        ("reconnect", "begin") => HookStep::Renew,
        ("release", "end") => HookStep::Release,
        // `migrate` and `restore` change nothing: an empty output leaves the domain as it is.
        _ => HookStep::Nothing,
    }
}

fn proxmox_step(phase: &str) -> HookStep {
    match phase {
        "pre-start" => HookStep::Reserve,
        "post-start" => HookStep::Place,
        "post-stop" => HookStep::Release,
        _ => HookStep::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(engine: HookEngine, line: &str) -> Result<(String, HookStep), String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        engine.step(&words).map(|(name, step)| (name.to_owned(), step))
    }

    #[test]
    fn the_calls_of_both_engines_are_known() {
        use HookStep::*;
        for (line, expected) in [
            ("web prepare begin -", Reserve),
            ("web start begin -", Nothing),
            ("web started begin -", Place),
            ("web stopped end -", Nothing),
            ("web release end destroyed", Release),
            ("web migrate begin -", Nothing),
            ("web restore begin -", Nothing),
            ("web reconnect begin -", Renew),
            ("web attach begin -", Nothing),
            ("web prepare end -", Nothing),
            ("web later begin -", Nothing),
        ] {
            assert_eq!(step(HookEngine::Libvirt, line), Ok(("web".to_owned(), expected)), "{line}");
        }
        for (line, expected) in [
            ("100 pre-start", Reserve),
            ("100 post-start", Place),
            ("100 pre-stop", Nothing),
            ("100 post-stop", Release),
        ] {
            assert_eq!(step(HookEngine::Proxmox, line), Ok(("100".to_owned(), expected)), "{line}");
        }
    }

    #[test]
    fn calls_and_names_that_cannot_be_used_are_errors() {
        for line in ["web", "web prepare", "../web prepare begin -", ".. prepare begin -", " prepare begin -"]
        {
            assert!(step(HookEngine::Libvirt, line).is_err(), "{line}");
        }
        for line in ["web pre-start", "100", "10/0 pre-start", "100 pre-start more", " pre-start"] {
            assert!(step(HookEngine::Proxmox, line).is_err(), "{line}");
        }
        assert!(step(HookEngine::Incus, "web started").is_err());
        let long = format!("{} prepare begin -", "x".repeat(NAME_MAX + 1));
        assert!(step(HookEngine::Libvirt, &long).unwrap_err().len() < 100);
    }

    #[test]
    fn the_process_of_a_guest_is_where_the_engine_notes_it() {
        let files = HookEngine::Libvirt.pid_files(Path::new("/"), "a&lt;<\"'");
        let names = ["a&amp;lt;&lt;&quot;&apos;.pid", "a&lt;<\"'.pid"];
        assert_eq!(files, names.map(|name| Path::new("/run/libvirt/qemu").join(name)));
        let files = HookEngine::Proxmox.pid_files(Path::new("/"), "100");
        assert_eq!(files, [Path::new("/run/qemu-server/100.pid")]);
    }

    #[test]
    fn a_label_shows_no_control_characters() {
        assert_eq!(HookEngine::Libvirt.label("a b\u{1b}[31m"), "vm a b\\x1b[31m (libvirt)");
        assert_eq!(HookEngine::Incus.id("web"), "incus:web");
    }
}
