//! `--thp`: the kernel's setting inside the program.

use crate::util::{Sandbox, need, python, skip};

/// Prints `PR_GET_THP_DISABLE`.
const ASK: &str = "import ctypes; print(ctypes.CDLL(None).prctl(42, 0, 0, 0, 0))";

/// Returns whether this kernel knows "except where advised", new in 6.18.
fn advised_is_known() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|word| word.trim().parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(18))
}

#[test]
fn off_is_off_and_inherit_leaves_alone() {
    need!(python(), "Python is not installed");
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run("-c 1 --thp off").python(ASK).ends().ok(), "1");
    assert_eq!(sandbox.run("-c 1 --thp inherit").python(ASK).ends().ok(), "0");
    assert_eq!(sandbox.run("-c 1").python(ASK).ends().ok(), "0");
    // A setting that was off before stays off unless an option changes it.
    let nested = "import os, sys; os.execvp(os.environ['T'], ['trimtab', 'run', '--survey', 'none', '-c', '1', '--', sys.executable, '-c', sys.argv[1]])";
    assert_eq!(sandbox.run("-c 1 --thp off").python(nested).arg(ASK).ends().ok(), "1");
}

#[test]
fn advised_is_set_if_the_kernel_supports_it() {
    need!(python(), "Python is not installed");
    let sandbox = Sandbox::new();
    let outcome = sandbox.run("-c 1 --thp advised").python(ASK).ends();
    if advised_is_known() {
        // Bit 0: disabled; bit 1: except where advised.
        assert_eq!(outcome.ok(), "3");
    } else {
        skip("a kernel before 6.18 does not know \"advised\": only the warning is tested");
        outcome.warns(&["huge pages"]);
        sandbox.run("-c 1 --strict --thp advised").python(ASK).ends().fails(125, &["--strict"]);
    }
}

#[test]
fn children_inherit_it() {
    need!(python(), "Python is not installed");
    let sandbox = Sandbox::new();
    let call = sandbox.run("-c 1 --thp off").arg("env").arg(python().unwrap()).args(["-c", ASK]);
    assert_eq!(call.ends().ok(), "1");
}
