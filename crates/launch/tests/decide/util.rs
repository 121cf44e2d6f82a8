//! Facts, requests and plans for the tests of this folder.

use std::ffi::OsString;
use trimtab_core::place::Action;
use trimtab_core::place::runtimes::Runtime;
use trimtab_core::setting::Setting;
use trimtab_core::topology::parse_synthetic;
use trimtab_launch::facts::ProgramFacts;
use trimtab_launch::*;

pub(crate) const MACHINES: [&str; 4] = ["core:1", "pack:2 core:4 pu:2", "numa:4 core:2", "l3:2 core:3"];

pub(crate) fn facts(machine: &str) -> LaunchFacts {
    LaunchFacts {
        program: Some(program(None)),
        library: Ok("/lib/trimtab.so".into()),
        blas_library: Ok("/lib/blas/libtrimtab_shim_blas.so".into()),
        glibc: Some((2, 36)),
        pid: 7,
        ..LaunchFacts::idle(parse_synthetic(machine).unwrap())
    }
}

pub(crate) fn program(openmp: Option<Runtime>) -> ProgramFacts {
    ProgramFacts {
        path: "/bin/app".into(),
        family: None,
        script: false,
        go: false,
        openmp,
        preload: Ok(()),
        closed: None,
        starts_threads: false,
        sets_teams: false,
        launcher: None,
    }
}

pub(crate) fn environment(variables: &[(&str, &str)]) -> Environment {
    variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect()
}

pub(crate) fn sources(variables: &[(&str, &str)]) -> Sources {
    Sources {
        environment: environment(variables),
        command: vec!["/bin/app".to_owned()],
        ..Sources::default()
    }
}

pub(crate) fn tuning(setting: &str, cores: u32) -> Option<Result<Tuning, String>> {
    let setting: Setting = setting.parse().unwrap();
    let (found_on, gained) = ("a day".to_owned(), "2.00 times as fast".to_owned());
    Some(Ok(Tuning { name: "t".to_owned(), setting, cores, found_on, gained }))
}

pub(crate) fn value(plan: &LaunchPlan, name: &str) -> Option<Action> {
    plan.environment.iter().find(|variable| variable.name == name).map(|variable| variable.action.clone())
}

pub(crate) fn set_to(text: &str) -> Option<Action> {
    Some(Action::Set { value: text.to_owned() })
}

pub(crate) fn said(plan: &LaunchPlan) -> String {
    plan.reasons.iter().map(|reason| reason.text.clone() + "\n").collect()
}
