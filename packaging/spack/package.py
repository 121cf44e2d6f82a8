# ruff: noqa: F403, F405 names of Spack, as its recipes use them
# Recipe of Spack 1.0 and later, filled in by scripts/recipes. Not built yet; docs/packages.md says what was tried.
from spack_repo.builtin.build_systems.generic import Package

from spack.package import *


class Trimtab(Package):
    """Places, separates and balances parallel programs on multicore and NUMA machines, without a daemon and
    without privilege, and gives the reasons of its decisions."""

    homepage = "@REPOSITORY@"
    url = "@REPOSITORY@/releases/download/v@VERSION@/trimtab-@VERSION@.tar.gz"

    license("MIT OR Apache-2.0")

    version("@VERSION@", sha256="@SHA256@")

    depends_on("c", type="build")
    depends_on("rust@1.90:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("hwloc@2.8:2")

    requires("platform=linux", msg="trimtab reads Linux's own files")

    def setup_build_environment(self, env):
        # Programs that Spack finds the libraries of; static ones would need archives of the C library.
        env.set("TRIMTAB_LINK", "dynamic")
        env.set("BUILT", "target/release")
        env.set("PREFIX", self.prefix)
        env.set("DESTDIR", "")

    def install(self, spec, prefix):
        which("cargo")("build", "--release", "--locked", "--workspace", "--target-dir", "target")
        Executable("scripts/install")("install")

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        trimtab = Executable(self.prefix.bin.trimtab)
        trimtab("--version")
        trimtab("run", "--share", "true")
