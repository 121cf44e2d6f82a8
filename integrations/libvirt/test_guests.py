"""Guests of libvirt, Proxmox VE and Incus that get their cores from trimtab (host.py). `make test-libvirt` runs it.

libvirt and QEMU are real; Proxmox VE and Incus are played by their documented contracts, with a real QEMU. The masks are read from
/proc, the holds from the ledger.
"""

import json
import os
import shutil
import subprocess
import unittest
from pathlib import Path

from host import IS_GUEST, Host, Unavailable, eventually, kill, threads, vcpu_masks

HERE = Path(__file__).resolve().parent
PROGRAMS = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target")) / "debug"
HOOK = "/etc/libvirt/hooks/qemu.d/trimtab"
SNIPPET = "/var/lib/vz/snippets/trimtab"
CPUS = sorted(os.sched_getaffinity(0))
HOST = None


def setUpModule():
    global HOST
    if os.geteuid() != 0:
        raise unittest.SkipTest("a host of virtual machines needs root")
    if len(CPUS) < 2:
        raise unittest.SkipTest("the guests of the tests need two CPUs")
    for program in ("libvirtd", "virsh", "qemu-system-x86_64", "nsenter", "unshare"):
        if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            raise unittest.SkipTest(f"{program} is not installed: scripts/packages libvirt")
    HOST = Host(PROGRAMS)
    try:
        HOST.start()
        HOST.trimtab("hook", "libvirt", "--install")
        HOST.trimtab("hook", "proxmox", "--install")
        HOST.start_libvirtd()
    except BaseException as error:
        HOST.stop()
        if isinstance(error, Unavailable):
            raise unittest.SkipTest(str(error)) from error
        raise


def tearDownModule():
    if HOST:
        HOST.stop()


class Guests(unittest.TestCase):
    def nothing_is_held(self):
        eventually(lambda: HOST.holds() == {}, f"nothing is held: {HOST.holds()}")

    def is_placed(self, label, pid, vcpus):
        """Each vCPU has a CPU of its own in the hold, and the other threads stay in the hold. Returns the CPUs."""
        held, holder = HOST.holds()[label]
        masks = vcpu_masks(pid)
        self.assertEqual(holder, pid)
        self.assertEqual(sorted(masks), list(range(vcpus)))
        self.assertTrue(all(len(mask) == 1 for mask in masks.values()), masks)
        self.assertEqual(len(set.union(*masks.values())), vcpus, masks)
        self.assertTrue(all(mask <= held for _, mask in threads(pid)), threads(pid))
        return held


class Libvirt(Guests):
    def setUp(self):
        self.addCleanup(self.nothing_is_held)
        self.addCleanup(HOST.clear)

    def placed(self, name, vcpus=1):
        return self.is_placed(f"vm {name} (libvirt)", HOST.qemu(name), vcpus)

    def test_a_guest_gets_cores_and_each_vcpu_a_cpu(self):
        HOST.define("web", vcpus=2)
        HOST.begin("web")
        held = self.placed("web", 2)
        said = HOST.trimtab("hook", "libvirt", "--explain", "web").stdout
        masks = vcpu_masks(HOST.qemu("web"))
        for number, mask in masks.items():
            self.assertIn(f"vCPU {number}: CPUs {mask.pop()}\n", said)
        self.assertRegex(said, r"reserved CPUs \S+ for 2 vCPUs")
        self.assertIn("memory: ", said)
        if held == set(CPUS):
            refused = HOST.trimtab("run", "-c", "1", "true", check=False)
            self.assertEqual(refused.returncode, 124, refused)
            self.assertIn("held", refused.stderr)

    def test_guests_exclude_each_other_until_they_are_destroyed(self):
        names = [f"g{at}" for at in range(len(CPUS) + 1)] if len(CPUS) <= 4 else ["g0", "g1"]
        for name in names:
            HOST.define(name)
            HOST.begin(name)
        held = [self.placed(name) for name in names[:2]]
        self.assertFalse(held[0] & held[1], held)
        without = [name for name in names if f"vm {name} (libvirt)" not in HOST.holds()]
        for name in without:
            # It runs, where libvirt let it.
            self.assertEqual(vcpu_masks(HOST.qemu(name))[0], set(CPUS))
            self.assertIn("no cores of its own: ", HOST.trimtab("hook", "libvirt", "--explain", name).stdout)
        HOST.virsh("destroy", "--domain", "g0")
        eventually(lambda: "vm g0 (libvirt)" not in HOST.holds(), "the cores are free again")
        self.assertIn("vm g1 (libvirt)", HOST.holds())
        HOST.begin("g0")
        self.assertFalse(self.placed("g0") & held[1])

    def test_a_required_guest_is_refused_with_the_reason(self):
        HOST.rules("[[guest]]\nname = 'db-*'\nrequired = true\ncores = '4096'\n[[guest]]\nname = 'plain'\ncores = 'none'\n")
        HOST.define("db-1")
        refused = HOST.begin("db-1", check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("db-1 needs cores of its own (required in hook.toml)", refused.stderr)
        self.assertIn("4096", refused.stderr)
        self.assertEqual(HOST.holds(), {})
        HOST.define("plain")
        HOST.begin("plain")
        self.assertEqual(HOST.holds(), {})
        self.assertIn("hook.toml says", HOST.trimtab("hook", "libvirt", "--explain", "plain").stdout)

    def test_a_kill_of_qemu_frees_the_cores(self):
        HOST.define("web")
        HOST.begin("web")
        self.placed("web")
        kill(HOST.qemu("web"))
        eventually(lambda: HOST.holds() == {}, "the cores are free again")

    def test_a_kill_of_libvirtd_changes_no_hold(self):
        HOST.define("web")
        HOST.begin("web")
        held = self.placed("web")
        kill(HOST.daemon_pid())
        HOST.daemon.wait()
        self.assertEqual(self.placed("web"), held)
        HOST.start_libvirtd()
        # libvirt connects with its guests after it answers.
        eventually(lambda: "it has its cores" in HOST.trimtab("hook", "libvirt", "--explain", "web").stdout, "the hook is called again")
        self.assertEqual(HOST.virsh("domstate", "web").stdout.strip(), "paused")
        self.assertEqual(self.placed("web"), held)
        # A guest that lost its hold gets one when libvirt connects with it again.
        number = json.loads(HOST.trimtab("ps", "--json").stdout)["holds"][0]["hold"]
        HOST.trimtab("release", number)
        eventually(lambda: HOST.holds() == {}, "the hold is released")
        kill(HOST.daemon_pid())
        HOST.daemon.wait()
        HOST.start_libvirtd()
        eventually(lambda: HOST.holds() != {}, "the guest has cores again")
        self.placed("web")

    def test_hostile_names_are_names(self):
        for name in ["a b; touch $(touch bad) `touch bad`", "-c", "ü\u202e<&>'\"", "*"]:
            with self.subTest(name=name):
                HOST.define(name)
                HOST.begin(name)
                held, pid = next(iter(HOST.holds().values()))
                self.assertEqual(pid, HOST.qemu(name))
                self.assertTrue(all(mask <= held for _, mask in threads(pid)))
                self.assertNotIn("\u202e", next(iter(HOST.holds())))
                HOST.virsh("destroy", "--domain", name)
                self.nothing_is_held()
        self.assertNotEqual(HOST.on("test", "-e", "/bad", check=False).returncode, 0)

    def test_pins_of_the_domain_are_reserved_and_kept(self):
        cpu = CPUS[-1]
        HOST.define("web", more=f"<cputune><vcpupin vcpu='0' cpuset='{cpu}'/></cputune>")
        HOST.begin("web")
        held, pid = HOST.holds()["vm web (libvirt)"]
        self.assertIn(cpu, held)
        self.assertEqual(vcpu_masks(pid), {0: {cpu}})

    def test_a_plan_in_words_of_libvirt_is_accepted(self):
        HOST.rules("[[guest]]\nname = '*'\ncores = 'none'\n")
        for memory in ("auto", "bind"):
            name = f"web-{memory}"
            plan = HOST.trimtab("plan", "--survey", "none", "-c", "2", "--mem", memory, "--format", "libvirt").stdout
            HOST.define(name, more=plan)
            HOST.begin(name)
            masks = vcpu_masks(HOST.qemu(name))
            for number, mask in masks.items():
                self.assertIn(f"<vcpupin vcpu='{number}' cpuset='{','.join(map(str, mask))}'/>", plan)
            self.assertEqual([len(mask) for mask in masks.values()], [1, 1], masks)
            HOST.virsh("destroy", "--domain", name)

    def test_pins_are_written_into_the_domain(self):
        HOST.define("web", vcpus=2, more="<iothreads>1</iothreads>")
        HOST.trimtab("hook", "libvirt", "--write", "web")
        xml = HOST.virsh("dumpxml", "--inactive", "web").stdout
        for element in ("<vcpupin vcpu='0' ", "<vcpupin vcpu='1' ", "<emulatorpin ", "<iothreadpin iothread='1' "):
            self.assertIn(element, xml)
        HOST.begin("web")
        self.placed("web", 2)
        self.assertIn("its own settings bind it", HOST.trimtab("hook", "libvirt", "--explain", "web").stdout)
        missing = HOST.trimtab("hook", "libvirt", "--write", "nothing", check=False)
        self.assertEqual(missing.returncode, 2, missing)
        self.assertIn("nothing", missing.stderr)


@unittest.skipUnless(IS_GUEST, "control groups of version 2 are for an emulated machine: make test-libvirt GUEST=1")
class ControlGroups(Libvirt):
    """All tests with libvirt again, in control groups, and memory."""

    def test_memory_is_confined_to_the_nodes_of_the_cores(self):
        HOST.rules("[[guest]]\nname = '*'\nsettings = 'memory=bind'\n")
        nodes = {}
        for name in ("near", "far"):
            HOST.define(name)
            HOST.begin(name)
            (cpu,) = self.placed(name)
            (node,) = (path.name[4:] for path in Path(f"/sys/devices/system/cpu/cpu{cpu}").glob("node[0-9]*"))
            self.assertIn(f"memory: nodes {node} only", HOST.trimtab("hook", "libvirt", "--explain", name).stdout)
            pid = HOST.qemu(name)
            status = Path(f"/proc/{pid}/status").read_text()
            self.assertRegex(status, rf"(?m)^Mems_allowed_list:\t{node}$")
            nodes[name] = node
        self.assertEqual(len(set(nodes.values())), 2, "a node each, or this shows little")
        # Without the setting memory is left alone.
        HOST.clear()
        HOST.define("near")
        HOST.begin("near")
        self.placed("near")
        status = Path(f"/proc/{HOST.qemu('near')}/status").read_text()
        self.assertRegex(status, r"(?m)^Mems_allowed_list:\t0-1$")


class Calls(Guests):
    """Calls of the hook without an engine: what an engine that lies, hangs or ends costs."""

    def setUp(self):
        self.addCleanup(self.nothing_is_held)
        self.addCleanup(lambda: HOST.on("rm", "-f", "/etc/trimtab/hook.toml"))

    def call(self, text, *words, **more):
        return HOST.on(HOOK, *words, input=text, check=False, **more)

    def test_a_domain_that_cannot_be_read_costs_the_placement_only(self):
        bomb = "<!DOCTYPE d [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]><domain><vcpu>&b;</vcpu></domain>"
        for text in ["", "<domain>", "<domain><vcpu>x</vcpu></domain>", bomb, "<domain>" + "<a>" * 300000, "x" * 5000000]:
            called = self.call(text, "web", "prepare", "begin", "-")
            self.assertEqual((called.returncode, called.stdout), (0, ""), called.stderr)
            self.assertIn("web runs without cores of its own", called.stderr)
        for words in [["web"], ["../web", "prepare", "begin", "-"], [], ["web", "later", "begin", "-"]]:
            self.assertEqual(self.call("<domain/>", *words).returncode, 0, words)
        HOST.rules("[[guest]]\nname = '*'\nrequired = true\n")
        refused = self.call("<domain>", "web", "prepare", "begin", "-")
        self.assertEqual(refused.returncode, 1, refused)
        HOST.rules("nonsense")
        self.assertEqual(self.call("<domain><vcpu>1</vcpu></domain>", "web", "prepare", "begin", "-").returncode, 0)

    def test_an_engine_that_hangs_is_not_waited_for(self):
        for rules, expected in [("", 0), ("[[guest]]\nname = '*'\nrequired = true\n", 1)]:
            HOST.rules(rules)
            words = [PROGRAMS / "trimtab", "hook", "libvirt", "--limit", "200ms", "--", "web", "prepare", "begin", "-"]
            child = HOST.background(*words, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
            with child:
                # The domain never ends.
                child.stdin.write("<domain>")
                child.stdin.flush()
                self.assertEqual(child.wait(timeout=60), expected)
                self.assertIn("not ready after 0.2 s", child.stderr.read())

    def test_an_engine_that_ends_frees_the_cores_of_a_guest_that_did_not_start(self):
        engine = HOST.background("sleep", "600")
        words = ["hook", "libvirt", "--engine-pid", str(engine.pid), "--", "web", "prepare", "begin", "-"]
        HOST.trimtab(*words, input="<domain><vcpu>1</vcpu></domain>")
        self.assertIn("vm web (libvirt)", HOST.holds())
        # A second start before the first one ended has one hold, not two.
        HOST.trimtab(*words, input="<domain><vcpu>1</vcpu></domain>")
        self.assertEqual(len(HOST.holds()), 1)
        kill(engine.pid)
        engine.wait()
        eventually(lambda: HOST.holds() == {}, "the cores are free again")

    def test_a_pid_that_is_no_machine_is_refused(self):
        engine = HOST.background("sleep", "600")
        words = ["hook", "libvirt", "--engine-pid", str(engine.pid), "--", "web"]
        domain = "<domain><vcpu>1</vcpu></domain>"
        HOST.trimtab(*words, "prepare", "begin", "-", input=domain)
        for text in [str(engine.pid), "1", "-5", "x", "99999999999"]:
            HOST.write("/run/libvirt/qemu/web.pid", text)
            called = HOST.trimtab(*words, "started", "begin", "-", input=domain)
            self.assertIn("web runs without cores of its own", called.stderr)
            self.assertEqual(threads(engine.pid)[0][1], set(CPUS))
        HOST.on("rm", "/run/libvirt/qemu/web.pid")
        HOST.trimtab(*words, "release", "end", "-", input=domain)
        eventually(lambda: HOST.holds() == {}, "the cores are free again")
        kill(engine.pid)
        engine.wait()

    def test_a_guest_starts_where_trimtab_is_missing(self):
        text = HOST.read(HOOK)
        for program, expected in [("/nowhere/trimtab", 0), ("/bin/false", 1), ("/bin/true", 0), ("/bin/cat", 1)]:
            HOST.write("/run/hook", text.replace(str(PROGRAMS / "trimtab"), program), 0o755)
            called = HOST.on("/run/hook", "web", "prepare", "begin", "-", input="", check=False)
            self.assertEqual(called.returncode, expected, program)
        HOST.write("/run/dies", "#!/bin/sh\nkill -9 $$\n", 0o755)
        HOST.write("/run/hook", text.replace(str(PROGRAMS / "trimtab"), "/run/dies"), 0o755)
        self.assertEqual(HOST.on("/run/hook", "web", "prepare", "begin", "-", check=False).returncode, 0)

    def test_a_script_of_others_is_left_alone(self):
        mine = "#!/bin/sh\nexit 0\n"
        text = HOST.read(HOOK)
        HOST.write(HOOK, mine, 0o755)
        for option in ("--install", "--uninstall"):
            self.assertEqual(HOST.trimtab("hook", "libvirt", option, check=False).returncode, 2)
        self.assertEqual(HOST.read(HOOK), mine)
        HOST.write(HOOK, text, 0o755)
        HOST.trimtab("hook", "libvirt", "--uninstall")
        self.assertNotEqual(HOST.on("test", "-e", HOOK, check=False).returncode, 0)
        HOST.trimtab("hook", "libvirt", "--install")
        self.assertEqual(HOST.read(HOOK), text)


class Proxmox(Guests):
    def test_a_hookscript_places_a_guest(self):
        self.addCleanup(self.nothing_is_held)
        HOST.write("/etc/pve/qemu-server/100.conf", "name: web\ncores: 2\nsockets: 1\nmemory: 32\n[before]\ncores: 9\n")
        # The task that starts the guest; the hold is its own until the guest runs.
        worker = HOST.background("sh", "-c", f"{SNIPPET} 100 pre-start; read line; {SNIPPET} 100 post-start", stdin=subprocess.PIPE)
        eventually(lambda: "vm 100 (proxmox)" in HOST.holds(), "the cores are reserved")
        child = HOST.machine("web", "/run/qemu-server/100.pid", vcpus=2)
        worker.communicate("\n", timeout=60)
        self.assertEqual(worker.returncode, 0)
        self.is_placed("vm 100 (proxmox)", child.pid, 2)
        for phase in ("pre-stop", "post-stop"):
            HOST.on(SNIPPET, "100", phase)
        eventually(lambda: HOST.holds() == {}, "the cores are free again")
        kill(child.pid)
        child.wait()

    def test_a_guest_without_a_configuration_starts(self):
        called = HOST.on(SNIPPET, "101", "pre-start")
        self.assertIn("101 runs without cores of its own", called.stderr)
        self.assertIn("101.conf", called.stderr)


# The client of Incus: the events come from a pipe, the answers from files.
INCUS = """#!/bin/sh
case $1 in
monitor) exec cat /run/incus/events ;;
query) case $2 in
    *state*) cat /run/incus/state ;;
    *) cat /run/incus/instances ;;
    esac ;;
esac
"""


class Incus(Guests):
    def test_events_place_guests(self):
        self.addCleanup(self.nothing_is_held)
        HOST.write("/run/incus/client", INCUS, 0o755)
        HOST.on("mkfifo", "/run/incus/events")
        HOST.write("/run/incus/instances", "[]")
        follower = HOST.background(
            PROGRAMS / "trimtab", "hook", "incus", "--client", "/run/incus/client", "--once", "--limit", "10s",
            stderr=subprocess.PIPE,
        )
        events = HOST.background("sh", "-c", "exec cat >/run/incus/events", stdin=subprocess.PIPE)
        child = HOST.machine("web", "/run/incus/web.pid")
        instance = {"name": "web", "project": "default", "type": "virtual-machine", "status": "Running", "expanded_config": {}}
        HOST.write("/run/incus/instances", json.dumps([instance, instance | {"name": "box", "type": "container"}]))
        HOST.write("/run/incus/state", json.dumps({"pid": child.pid, "status": "Running"}))
        event = {"type": "lifecycle", "metadata": {"action": "instance-started", "source": "/1.0/instances/web"}}
        for line in ["nonsense", json.dumps({"type": "lifecycle"}), json.dumps(event)]:
            events.stdin.write(line + "\n")
        events.stdin.flush()
        eventually(lambda: "vm web (incus)" in HOST.holds(), "the cores are reserved")
        eventually(lambda: len(vcpu_masks(child.pid)[0]) == 1, "the vCPU is bound")
        self.is_placed("vm web (incus)", child.pid, 1)
        kill(child.pid)
        child.wait()
        eventually(lambda: HOST.holds() == {}, "the cores are free again")
        events.stdin.close()
        _, said = follower.communicate(timeout=60)
        self.assertEqual(follower.returncode, 0, said)
        self.assertEqual(said.count("no event of Incus"), 2, said)

    def test_a_client_that_is_missing_is_named(self):
        failed = HOST.trimtab("hook", "incus", "--client", "/nowhere/incus", "--once", check=False)
        self.assertEqual(failed.returncode, 2, failed)
        self.assertIn("/nowhere/incus", failed.stderr)


if __name__ == "__main__":
    unittest.main()
