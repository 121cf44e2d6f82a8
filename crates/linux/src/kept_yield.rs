//! Effect of `sched_yield` on this kernel, kept until the next boot: measuring it takes 10 ms of a
//! start.
//!
//! The file is text: the program's version, the boot id, and the share of the CPU that a computing
//! thread gets beside a yielding one, as bits of a double, or `posix`. It is trusted as the models
//! of machines in the same folder are.

use crate::boot;
use crate::calibrate::YieldKind;
use crate::machine::cache;
use std::path::{Path, PathBuf};
use trimtab_core::fingerprint::BOOT_ID;

/// Largest share of a weak yield that is kept. Measured: 0.50 on Linux 6.1. A share between this
/// one and that of a yield as POSIX wants it may be a disturbed measurement, and the next start
/// measures again.
const KEPT_SHARE_MAX: f64 = 0.75;

/// Returns the effect that an earlier start measured; `None` if there is none of this boot, or
/// none that can be trusted.
pub fn load(folder: &Path) -> Option<YieldKind> {
    let boot = boot_id()?;
    parse(std::str::from_utf8(&cache::read(&slot(folder, &boot)?)?).ok()?, &boot)
}

/// Keeps a measured effect that is clear. A failure is not told: the next start measures again.
pub fn store(folder: &Path, kind: YieldKind) {
    if matches!(kind, YieldKind::Weak { share } if share > KEPT_SHARE_MAX) {
        return;
    }
    let Some(boot) = boot_id() else { return };
    let Some(file) = slot(folder, &boot) else { return };
    let _ = cache::write(&file, text(kind, &boot).as_bytes());
}

fn boot_id() -> Option<String> {
    let id = String::from_utf8(boot::id(Path::new(BOOT_ID)).ok()?).ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Returns the file, by the first two digits of the boot id: as for models, there are never more
/// than 256.
fn slot(folder: &Path, boot: &str) -> Option<PathBuf> {
    let digits = boot.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
    Some(folder.join(format!("yield.{digits}")))
}

fn text(kind: YieldKind, boot: &str) -> String {
    let share = match kind {
        YieldKind::Posix => "posix".to_owned(),
        YieldKind::Weak { share } => format!("{:016x}", share.to_bits()),
    };
    format!("{}\n{boot}\n{share}\n", env!("CARGO_PKG_VERSION"))
}

fn parse(text: &str, boot: &str) -> Option<YieldKind> {
    let mut lines = text.strip_suffix('\n')?.split('\n');
    if lines.next() != Some(env!("CARGO_PKG_VERSION")) || lines.next() != Some(boot) {
        return None;
    }
    let kind = match lines.next()? {
        "posix" => YieldKind::Posix,
        bits => {
            let share = f64::from_bits(u64::from_str_radix(bits, 16).ok()?);
            YieldKind::Weak { share: Some(share).filter(|share| (0.0..=1.0).contains(share))? }
        }
    };
    lines.next().is_none().then_some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_kept_effect_is_that_of_this_boot_and_of_no_other() {
        for kind in [YieldKind::Posix, YieldKind::Weak { share: 0.503 }] {
            let kept = text(kind, "3f00-1");
            assert_eq!(parse(&kept, "3f00-1"), Some(kind));
            assert_eq!(parse(&kept, "3f00-2"), None);
            for damaged in [&kept[..kept.len() - 1], &kept[1..], &format!("{kept}posix\n"), ""] {
                assert_eq!(parse(damaged, "3f00-1"), None, "{damaged:?}");
            }
        }
        let version = env!("CARGO_PKG_VERSION");
        for share in ["", "posix ", "7ff8000000000000", "bff0000000000000", "4000000000000000", "half"] {
            assert_eq!(parse(&format!("{version}\nb\n{share}\n"), "b"), None, "{share}");
        }
    }

    #[test]
    fn a_file_that_another_user_could_write_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        store(folder.path(), YieldKind::Weak { share: 0.8 });
        assert_eq!(load(folder.path()), None, "not clear");
        store(folder.path(), YieldKind::Posix);
        assert_eq!(load(folder.path()), Some(YieldKind::Posix));
        let file = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(load(folder.path()), None);
    }
}
