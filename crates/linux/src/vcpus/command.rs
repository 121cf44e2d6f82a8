//! Command line of a virtual machine's monitor: its program, the machine's name, its QMP sockets.

use super::Monitor;
use crate::process::Pid;
use crate::text;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximal number of sockets of one machine that are tried. libvirt's machines have one or two.
const SOCKETS_MAX: usize = 4;

/// The arguments of a process.
#[derive(Debug)]
pub(super) struct CommandLine(Vec<Vec<u8>>);

impl CommandLine {
    /// Reads the arguments as the kernel shows them; empty if it does not show them.
    pub(super) fn of(proc: &Path, pid: Pid) -> Self {
        Self::parse(&text::read(&proc.join(format!("{pid}/cmdline"))).unwrap_or_default())
    }

    fn parse(text: &[u8]) -> Self {
        Self(text.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect())
    }

    /// Returns the program, if it is one that runs virtual machines.
    pub(super) fn monitor(&self) -> Option<Monitor> {
        let program = Path::new(OsStr::from_bytes(self.0.first()?)).file_name()?.as_bytes();
        let qemu = [b"qemu-system-".as_slice(), b"qemu-kvm"];
        match program {
            b"kvm" | b"qemu" => Some(Monitor::Qemu),
            program if qemu.iter().any(|start| program.starts_with(start)) => Some(Monitor::Qemu),
            program if program.starts_with(b"firecracker") => Some(Monitor::Firecracker),
            program if program.starts_with(b"cloud-hyperviso") => Some(Monitor::CloudHypervisor),
            b"crosvm" => Some(Monitor::Crosvm),
            b"lkvm" | b"lkvm-static" | b"kvmtool" => Some(Monitor::Kvmtool),
            _ => None,
        }
    }

    /// Returns the machine's name.
    pub(super) fn name(&self) -> Option<String> {
        let bytes = match self.monitor()? {
            // The first key of QEMU's option is `guest` and may be left out.
            Monitor::Qemu => self.values("name").find_map(|value| value_of(value, "guest", true))?,
            Monitor::Firecracker => self.values("id").next()?.to_vec(),
            Monitor::Crosvm => self.values("name").next()?.to_vec(),
            Monitor::Kvmtool => self.values("name").chain(self.values("n")).next()?.to_vec(),
            Monitor::CloudHypervisor | Monitor::Other => return None,
        };
        Some(String::from_utf8_lossy(&bytes).into_owned()).filter(|name| !name.is_empty())
    }

    /// Returns the sockets on which QEMU can be queried, as QEMU names them.
    pub(super) fn sockets(&self) -> Vec<PathBuf> {
        if self.monitor() != Some(Monitor::Qemu) {
            return Vec::new();
        }
        let short = self.values("qmp").chain(self.values("qmp-pretty"));
        let short = short.filter_map(|value| {
            let rest = value.strip_prefix(b"unix:")?;
            value_of(rest, "path", true)
        });
        // A monitor on a device that was defined earlier.
        let controls: Vec<Vec<u8>> = self
            .values("mon")
            .filter(|value| value_of(value, "mode", false).as_deref() == Some(b"control"))
            .filter_map(|value| value_of(value, "chardev", true))
            .collect();
        let long = self
            .values("chardev")
            .filter(|value| value.starts_with(b"socket,"))
            .filter(|value| value_of(value, "id", false).is_some_and(|id| controls.contains(&id)))
            .filter_map(|value| value_of(value, "path", false));
        let paths = short.chain(long).filter(|path| !path.is_empty()).take(SOCKETS_MAX);
        paths.map(|path| PathBuf::from(OsStr::from_bytes(&path))).collect()
    }

    /// Returns the values of an option, as in `-name x`, `--name x`, `--name=x`.
    fn values<'a>(&'a self, option: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().enumerate().skip(1).filter_map(move |(at, word)| {
            let word = word.strip_prefix(b"-")?;
            let word = word.strip_prefix(b"-").unwrap_or(word);
            match word.strip_prefix(option.as_bytes())? {
                [] => self.0.get(at + 1).map(Vec::as_slice),
                [b'=', value @ ..] => Some(value),
                _ => None,
            }
        })
    }
}

/// Returns the value of a key in QEMU's lists of keys, `a=b,c=d`; two commas encode a comma in the
/// value. With `first`, the first value belongs to this key even if the key is omitted.
fn value_of(list: &[u8], key: &str, first: bool) -> Option<Vec<u8>> {
    let mut parts: Vec<Vec<u8>> = vec![Vec::new()];
    let mut bytes = list.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte == b',' && bytes.next_if_eq(&b',').is_none() {
            parts.push(Vec::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(byte);
        }
    }
    let named = parts.iter().find_map(|part| part.strip_prefix(key.as_bytes())?.strip_prefix(b"="));
    let alone = parts.first().filter(|part| first && !part.contains(&b'='));
    named.map(<[u8]>::to_vec).or_else(|| alone.cloned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(text: &str) -> CommandLine {
        CommandLine::parse(text.replace(' ', "\0").as_bytes())
    }

    #[test]
    fn monitors_and_their_names_are_known() {
        use Monitor::{CloudHypervisor, Crosvm, Firecracker, Kvmtool, Qemu};
        for (text, monitor, name) in [
            ("/usr/bin/qemu-system-x86_64 -name x -m 4", Qemu, Some("x")),
            ("qemu-system-aarch64 -name guest=web-1,debug-threads=on", Qemu, Some("web-1")),
            ("qemu-kvm -name debug-threads=on,guest=a,,b", Qemu, Some("a,b")),
            ("/usr/libexec/qemu-kvm -name debug-threads=on", Qemu, None),
            ("kvm --name=y,process=z", Qemu, Some("y")),
            // libvirt, Proxmox and KubeVirt (names: NAMESPACE_NAME).
            ("/usr/bin/qemu-system-x86_64 -name guest=web,debug-threads=on -S -object x", Qemu, Some("web")),
            ("/usr/bin/kvm -id 100 -name db-1,debug-threads=on -no-shutdown -smp 4", Qemu, Some("db-1")),
            (
                "/usr/libexec/qemu-kvm -name guest=default_vm-1,debug-threads=on -S -pidfile /p",
                Qemu,
                Some("default_vm-1"),
            ),
            ("qemu-system-x86_64 -name", Qemu, None),
            ("qemu-system-x86_64 -names q", Qemu, None),
            ("./firecracker --api-sock /s --id fc7", Firecracker, Some("fc7")),
            ("cloud-hypervisor --api-socket /s", CloudHypervisor, None),
            ("/usr/bin/crosvm run --name c bzImage", Crosvm, Some("c")),
            ("lkvm run -n k -c 2", Kvmtool, Some("k")),
        ] {
            assert_eq!(line(text).monitor(), Some(monitor), "{text}");
            assert_eq!(line(text).name().as_deref(), name, "{text}");
        }
        for other in ["", "sh -c qemu-system-x86_64", "/usr/bin/kvm-ok", "qemu-img create -name x"] {
            assert_eq!((line(other).monitor(), line(other).name()), (None, None), "{other}");
        }
    }

    #[test]
    fn qmp_sockets_are_read_from_the_command_line() {
        let sockets = |text: &str| {
            let found = line(text).sockets();
            found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(sockets("qemu-system-x86_64 -qmp unix:/no/s,server=on,wait=off"), "/no/s");
        assert_eq!(sockets("qemu-system-x86_64 -qmp-pretty unix:q.sock,server"), "q.sock");
        assert_eq!(
            sockets(
                "qemu-system-x86_64 -chardev socket,id=a,path=/no/a,server=on -chardev socket,id=b,path=/no/b \
                     -mon chardev=a,mode=control -mon b"
            ),
            "/no/a"
        );
        assert_eq!(sockets("qemu-system-x86_64 -chardev socket,id=a,fd=3 -mon chardev=a,mode=control"), "");
        assert_eq!(sockets("qemu-system-x86_64 -qmp tcp:localhost:4444,server"), "");
        assert_eq!(sockets("firecracker -qmp unix:/no/s"), "");
    }

    proptest! {
        #[test]
        fn any_command_line_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..80), list in "[a-c=,]{0,12}") {
            let mut text = b"qemu-system-x86_64\0-name\0".to_vec();
            text.extend(&bytes);
            let command = CommandLine::parse(&text);
            let _ = (command.name(), command.sockets());
            let _ = value_of(list.as_bytes(), "a", true);
        }
    }
}
