//! Hooks of virtual machines, as a user calls them. `make test-libvirt` has guests.

use crate::util::Sandbox;

#[test]
fn the_configuration_of_hooks_is_checked() {
    let sandbox = Sandbox::new();
    let good = sandbox.write("good.toml", "[[guest]]\nname = \"db-*\"\ncores = \"2\"\nrequired = true\n");
    let bad = sandbox.write("bad.toml", "[[guest]]\nnam = \"db-*\"\n");
    let said = sandbox.trimtab("hook libvirt --check --config").arg(&good).ends().ok();
    assert!(said.contains("guests db-*: cores: 2, or no start\n"), "{said}");
    sandbox
        .trimtab("hook libvirt --check --config")
        .arg(&bad)
        .ends()
        .fails(2, &["bad.toml", "line 2", "nam"]);
    let missing = sandbox.path("missing.toml");
    sandbox.trimtab("hook incus --check --config").arg(&missing).ends().fails(2, &["missing.toml"]);
}

#[test]
fn tasks_that_an_engine_does_not_have_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.trimtab("hook incus --install").ends().fails(2, &["Incus calls no hook"]);
    sandbox.trimtab("hook proxmox --write 100").ends().fails(2, &["only domains of libvirt"]);
    sandbox.trimtab("hook libvirt --explain ../x").ends().fails(2, &["cannot be used"]);
    sandbox.trimtab("hook libvirt --explain a-guest-that-never-was").ends().fails(2, &["no hook of libvirt"]);
    sandbox.trimtab("hook xen").ends().fails_with(2, "xen");
    sandbox.trimtab("hook libvirt --check --uninstall").ends().fails_with(2, "--uninstall");
    // Words of an engine that this version does not know cost nothing.
    for words in ["libvirt -- web later begin -", "proxmox -- 100 pre-stop", "libvirt"] {
        let called = sandbox.trimtab(&format!("hook {words}")).ends();
        assert_eq!(called.code, Some(0), "{words}: {called}");
    }
}
