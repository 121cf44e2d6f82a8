# trimtab.  GNU make:   make help

PREFIX  ?= /usr/local
DESTDIR ?=
CARGO   ?= cargo
# What `make install` installs: release; quick, which builds in less time and starts more slowly; or dev, to debug with.
PROFILE ?= release

TARGET := $(or $(CARGO_TARGET_DIR),target)
BUILT  := $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))

# Unoptimised programs and libraries, with one test, so that dependencies have the features that tests want: for programs alone, and
# for single packages, cargo chooses fewer features, and builds half of the workspace a second time. TRIMTAB_BUILT=yes: it is built.
UNOPTIMISED := $(if $(TRIMTAB_BUILT),@true,$(CARGO) build --workspace --lib --bins --test numa)

.PHONY: build help guide dist dist-smoke test test-beside test-models test-python test-torch test-numa test-misses test-systemd test-slurm test-libvirt test-containers test-mpi test-k8s demo bench-launch bench-nested bench-balance bench-uncore bench-cost bench-oversub corpus corpus-test check-all lint install uninstall clean

build: ## build trimtab (the default); says what is missing, installs nothing
	TRIMTAB_INSTALL=no scripts/packages build
	$(if $(filter dev,$(PROFILE)),$(UNOPTIMISED),$(CARGO) build --profile $(PROFILE) --workspace)

help: ## say what can be made
	@echo 'make [TARGET] [PREFIX=/usr/local] [DESTDIR=]'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile

# Tests check the book without mdBook, whose building takes minutes.
guide: ## make a book of docs/ in target/guide; builds mdBook in target/tools first, some minutes, if it is missing
	CARGO="$(CARGO)" scripts/mdbook build docs
	@echo 'the book is target/guide/index.html'

# Static programs with hwloc inside, and no path of this machine: a build of its own, in target/dist.
dist: ## make a release archive in dist/ that runs where it is unpacked (a build of its own, some minutes; ARGS='--old-glibc', '--check-reproducible')
	TRIMTAB_INSTALL=no scripts/packages build
	CARGO="$(CARGO)" scripts/dist $(ARGS)

dist-smoke: ## run the archives in dist/ here and in bare roots (downloads 60 MB for each, once), after installing or naming what is missing
	scripts/packages dist
	@if ! ls dist/*-"$$(uname -m)"-linux.tar.gz >/dev/null 2>&1; then echo 'there is no archive for this machine in dist/: run "make dist" first' >&2; exit 1; fi
	for archive in dist/*-"$$(uname -m)"-linux.tar.gz; do scripts/dist-smoke $(ARGS) "$$archive" || exit 1; done

test: ## build and run every test, after installing missing packages (root on Debian or Ubuntu) or naming them
	scripts/packages build test
	scripts/wheels
	scripts/test
	$(MAKE) --no-print-directory test-beside

# What `make test` runs besides the workspace's tests.
test-beside:
	@case " $$TRIMTAB_RESTS " in *" python "*) echo 'SKIPPED: the Python package: nothing that it tests changed (make test-python)';; \
	*) set -x; scripts/test-python;; esac
	$(MAKE) --no-print-directory corpus-test packaging-test

test-python: ## build the Python package and run its tests, in an environment of its own below target/python
	scripts/test-python

test-torch: ## torch.distributed over teams, after installing torch and mpi4py (140 MB; root on Debian or Ubuntu) or naming them
	scripts/packages build torch
	scripts/test-python -k Torch -k communicators

test-models: ## try the flags of teams in all orders that threads and memory may take: a minute, and building
	scripts/packages build
	scripts/test-models

test-numa: ## run trimtab on emulated machines with several NUMA nodes (QEMU), after installing or naming what is missing
	scripts/packages build numa
	scripts/test-numa $(ARGS)

test-misses: ## far memory counted in an emulated machine, before and under --balance=brm: a minute or two where nothing else runs
	scripts/packages build numa
	scripts/test-numa 4n2c

# GUEST=1 is for holds that the unit enforces, in an emulated machine: a minute with KVM, and four without.
test-systemd: ## the service's unit under a systemd that is booted in a container (a minute, root), after installing or naming what is missing
	scripts/packages build systemd
	$(UNOPTIMISED)
	$(if $(GUEST),testbed/guest -c && testbed/guest -t 2n2c -l 600 -- packaging/tests/enforced.py "$(abspath $(TARGET))/debug" || [ $$? = 125 ],python3 -B packaging/tests/booted.py "$(abspath $(TARGET))/debug")

test-slurm: ## steps of Slurm placed by the plug-in, on two hosts of this machine (two minutes, root), after installing or naming what is missing
	scripts/packages build slurm
	$(UNOPTIMISED)
	cd integrations/slurm && CARGO_TARGET_DIR="$(abspath $(TARGET))" python3 -B -m unittest -v $(ARGS)

# GUEST=1 is for control groups of version 2, in an emulated machine of two nodes.
test-libvirt: ## guests of libvirt placed by the hook, and the hooks of Proxmox VE and Incus (a minute, root), after installing or naming what is missing
	scripts/packages build libvirt
	$(UNOPTIMISED)
	cd integrations/libvirt && CARGO_TARGET_DIR="$(abspath $(TARGET))" $(if $(GUEST),$(abspath testbed/guest) -t 2n1c -m 1024 -l 1500 --) python3 -B -m unittest -v $(if $(GUEST),$(or $(ARGS),test_guests.ControlGroups),$(ARGS))

test-containers: ## containers of podman, docker and Compose placed by plans (half a minute, root), after installing or naming what is missing
	scripts/packages build containers
	$(UNOPTIMISED)
	cd integrations/containers && CARGO_TARGET_DIR="$(abspath $(TARGET))" python3 -B -m unittest -v $(ARGS)

test-mpi: ## collectives of MPI programs carried out by teams, compared with each MPI's own (a minute), after installing or naming what is missing
	scripts/packages build test
	scripts/wheels
	$(UNOPTIMISED)
	cd integrations/mpi && CARGO_TARGET_DIR="$(abspath $(TARGET))" python3 -B -m unittest $(ARGS)

# The kubelet is built once, in some ten minutes; without KUBELET=1 the bed has containerd alone. GUEST=1 is for control groups of
# version 2: the bed runs in an emulated machine of two memory nodes.
IN_GUEST = $(if $(GUEST),$(abspath testbed/guest) -t 2n1c -m 1536 -l 3000 --)
test-k8s: ## pods placed by the plug-in: containerd (CONTAINERD=2: version 2), with KUBELET=1 a kubelet too, and CHURN=200 pods that come and go (three minutes, root), after fetching missing parts
	scripts/packages build k8s
	$(UNOPTIMISED)
	CARGO_TARGET_DIR="$(abspath $(TARGET))" integrations/kubernetes/testbed/fetch $(if $(KUBELET),kubelet) $(if $(filter 2,$(CONTAINERD)),containerd2)
	cd integrations/kubernetes/testbed && CARGO_TARGET_DIR="$(abspath $(TARGET))" CONTAINERD="$(CONTAINERD)" $(IN_GUEST) python3 -B -m unittest $(if $(ARGS),$(ARGS),test_pods $(if $(KUBELET),test_kubelet test_daemonset))
	$(if $(CHURN),cd integrations/kubernetes/testbed && CARGO_TARGET_DIR="$(abspath $(TARGET))" CONTAINERD="$(CONTAINERD)" $(IN_GUEST) python3 -B churn.py $(if $(KUBELET),--kubelet) $(CHURN))

# TABLE=1 puts the results into docs/corpus.md.
corpus: ## run programs of others plainly and by trimtab, and compare (an hour or more; ARGS='--rounds 15 zstd xz', '--part ci')
	scripts/packages build
	$(CARGO) build --release --workspace
	corpus/run --install --trimtab $(TARGET)/release/trimtab $(if $(TABLE),--table) $(ARGS)

corpus-test: ## test the runner of the corpus, without its programs: seconds
	@if python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then python3 -B -m unittest discover --start-directory corpus/tests --top-level-directory corpus; \
	else echo 'SKIPPED: the runner of the corpus: no Python 3.9 or newer here'; fi

check-all: ## run everything that can fail: all of .ci/run, counted misses, the whole corpus (an hour or more)
	TRIMTAB_BEDS=all ZONE_CLASSES='W A' .ci/run
	$(MAKE) --no-print-directory test-misses
	$(MAKE) --no-print-directory corpus ARGS='--rounds 0'

# An archive of `make dist` saves the build, and Rust. Without one, what the demonstration needs is built, which is less than half:
# no laboratory, and no optimisation across crates.
ARCHIVE := $(firstword $(wildcard dist/trimtab-*-$(shell uname -m)-linux.tar.gz))
demo: ## two minutes: a real program alone and two at once, plain and under trimtab (of an archive in dist/, if one is there)
	@echo 'trimtab at work on a real program: $(if $(ARCHIVE),first $(ARCHIVE) is unpacked,first what is needed is looked for and built)'
	scripts/packages $(if $(ARCHIVE),,build) demo
ifeq ($(ARCHIVE),)
	@echo 'building trimtab without its laboratory: the first time 5 minutes of processor time, 3 minutes on two free cores'
	@begin=$$(date +%s) && set -x && $(CARGO) build --locked --profile quick -p trimtab -p trimtab-discover -p trimtab-shim && \
	{ set +x; } 2>/dev/null && echo "built in $$(($$(date +%s) - begin)) seconds"
else
	@echo 'trimtab of $(ARCHIVE) is shown, without a build: remove it to show this source'
	@if [ -e $(ARCHIVE).sha256 ]; then set -x; cd dist && sha256sum --check --quiet $(notdir $(ARCHIVE)).sha256; fi
	rm -rf "$(TARGET)/demo" && mkdir -p "$(TARGET)/demo" && tar -xzf $(ARCHIVE) --strip-components=1 -C "$(TARGET)/demo"
endif
	$(MAKE) --no-print-directory -C bench CC=gcc build/gcc/cg
	scripts/demo --trimtab "$(TARGET)/$(if $(ARCHIVE),demo/bin,quick)/trimtab"

# RECORD=1 keeps the samples in experiments/launch-cost/results and puts the table into docs/performance.md.
bench-launch: ## measure what starting a program through trimtab and its peers costs (RECORD=1 keeps it)
	scripts/packages build measure
	$(CARGO) build --release --workspace
	experiments/launch-cost/measure --trimtab $(TARGET)/release/trimtab $(if $(RECORD),--record)

bench-nested: ## measure nested OpenMP teams, bound and unbound (ARGS='--quick', '--rounds 15 --json FILE --svg FILE')
	scripts/packages build nested
	$(CARGO) build --release --workspace
	$(MAKE) -C bench
	$(TARGET)/release/trimtab bench nested --programs bench/build/gcc $(ARGS)

# RECORD=1 keeps the samples and the table in experiments/balance/results.
bench-balance: ## measure balancing and waiting on too few cores (RECORD=1 keeps it; ARGS='--quick', '--only omp')
	scripts/packages build nested
	$(CARGO) build --release --workspace
	$(MAKE) -C bench
	$(if $(RECORD),experiments/balance/measure --trimtab $(TARGET)/release/trimtab --record,$(TARGET)/release/trimtab bench balance --programs bench/build/gcc) $(ARGS)

bench-uncore: ## measure what placement costs a thread, and which index shows it (ARGS='--quick', '--json FILE --svg FILE')
	scripts/packages build nested
	$(CARGO) build --release --workspace
	$(MAKE) -C bench
	$(TARGET)/release/trimtab bench uncore --programs bench/build/gcc $(ARGS)

bench-cost: ## measure what looking at programs costs, and what counting does to them (ARGS='--quick', '--only looks --json FILE')
	scripts/packages build nested
	$(CARGO) build --release --workspace
	$(MAKE) -C bench
	$(TARGET)/release/trimtab bench cost --programs bench/build/gcc $(ARGS)

bench-oversub: ## measure more threads than cores, alone and two programs at once (ARGS='--quick', '--kernels cg,lu --json FILE --svg FILE')
	scripts/packages build nested
	$(CARGO) build --release --workspace
	$(MAKE) -C bench
	$(MAKE) -C bench CC=clang
	$(TARGET)/release/trimtab bench oversub --programs bench/build/gcc $(ARGS)

.PHONY: deb rpm image wheel wheel-smoke dist-aarch64 packages-aarch64 test-aarch64 package-smoke package-smoke-aarch64 packaging-test compatible
# Of the programs of the release archive. Of an unoptimised build, packages that try the packaging itself: they are not for
# use, and not in dist.
PACKED  = $(if $(filter dev,$(PROFILE)),build,dist)
PACKAGE = CARGO='$(CARGO)' $(if $(filter dev,$(PROFILE)),BUILT='$(BUILT)' QUICK=1 DIST='$(TARGET)/package/dist',BUILT='$(TARGET)/dist/release') scripts/package

deb: $(PACKED) ## make Debian packages in dist, after installing debhelper (root on Debian or Ubuntu) or naming it
	scripts/packages deb
	$(PACKAGE) deb
	@if ! lintian --version >/dev/null 2>&1; then echo 'lintian is not installed: the packages are not checked'; \
	elif [ '$(PROFILE)' != dev ]; then set -x; lintian --fail-on error,warning dist/*.deb; fi

rpm: $(PACKED) ## make RPM packages in dist, after installing rpmbuild (root on Debian or Ubuntu) or naming it
	scripts/packages rpm
	$(PACKAGE) rpm

image: dist ## make a container image in dist/ from the release archive, without a registry or a container engine (podman load, docker load)
	for archive in dist/*-linux.tar.gz; do scripts/image "$$archive" || exit 1; done

dist-aarch64: ## make a release archive for aarch64 in dist/ on any machine (downloads 60 MB of Debian, once; then some minutes)
	scripts/packages cross
	CARGO="$(CARGO)" scripts/cross aarch64 scripts/dist $(ARGS)

packages-aarch64: dist-aarch64 ## make Debian and RPM packages and a wheel for aarch64 in dist/, on any machine
	scripts/packages deb rpm
	for kind in deb rpm; do CARGO="$(CARGO)" BUILT='$(TARGET)/dist/aarch64-unknown-linux-gnu/release' scripts/cross aarch64 scripts/package $$kind || exit 1; done
	for archive in dist/*-aarch64-linux.tar.gz; do CARGO="$(CARGO)" scripts/wheel "$$archive" || exit 1; done

package-smoke-aarch64: ## install the packages and the wheel for aarch64 in bare systems (Debian 12 and 13), emulated, and use them: minutes; needs root
	scripts/packages cross
	TRIMTAB_INSTALL=yes scripts/cross aarch64 scripts/package-smoke --architecture arm64

# The crates that decide: tests that ask the kernel would ask this machine's.
test-aarch64: ## run unit tests of two crates, and the archive in dist/, as programs for aarch64, emulated by qemu-user: minutes
	scripts/packages cross
	scripts/cross aarch64 $(CARGO) test -p trimtab-core -p trimtab-launch --lib $(ARGS)
	for archive in dist/*-aarch64-linux.tar.gz; do if [ -e "$$archive" ]; then \
	scripts/cross aarch64 --emulate scripts/dist-smoke --in "$(TARGET)/cross/aarch64/root" "$$archive" || exit 1; \
	else echo 'SKIPPED: an archive for aarch64: there is none in dist/ (make dist-aarch64)'; fi; done

wheel: dist ## make a Python wheel in dist/ of the release archive and the module for teams (fetches maturin and zig from PyPI, 90 MB, once)
	for archive in dist/*-linux.tar.gz; do CARGO="$(CARGO)" scripts/wheel "$$archive" || exit 1; done

wheel-smoke: ## install the wheels in dist/ that this machine can run into environments of all Pythons here, use and remove them
	for wheel in dist/trimtab-*"$$(uname -m)".whl; do scripts/wheel-smoke "$$wheel" || exit 1; done

packaging-test: ## test the scripts that release and pack, and the recipes, without building anything: seconds
	@if python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then python3 -B -m unittest discover --start-directory packaging/tests --top-level-directory packaging; \
	else echo 'SKIPPED: the scripts that release and pack: no Python 3.9 or newer here'; fi
	scripts/publish --check

package-smoke: ## install the packages and the wheel of dist in bare systems (Debian 12 and 13, or SUITES=testing), use, upgrade and remove them; needs root
	TRIMTAB_INSTALL=yes scripts/package-smoke $(SUITES)

compatible: ## say whether everything compiles with the oldest compiler, and whether crates keep the interfaces of the last release: minutes
	scripts/compatible

lint: ## format, clippy, documentation, licences: warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --document-private-items
	cd python && $(CARGO) fmt --check
	cd packaging/preload && $(CARGO) fmt --check
	$(CARGO) clippy --manifest-path python/Cargo.toml --target-dir $(TARGET) --locked --all-targets -- -D warnings
	@if ruff --version >/dev/null 2>&1; then set -x; ruff check --select E4,E7,E9,F python bench/team corpus packaging integrations scripts/release scripts/publish scripts/wheel scripts/libraries scripts/recipes; \
	else echo 'ruff is not installed: Python is not checked (pip install ruff)'; fi
	@if $(CARGO) deny --version >/dev/null 2>&1; then set -x; $(CARGO) deny check bans licenses sources; \
	else echo 'cargo-deny is not installed: licences are not checked (cargo install --locked cargo-deny)'; fi

# Building is for the user, installing may be for root, who need not have a compiler.
install: ## install what `make` built below $(DESTDIR)$(PREFIX)
	BUILT='$(BUILT)' PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install install

uninstall: ## remove what `make install` installed, and the directories that it created
	BUILT='$(BUILT)' PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install uninstall

clean: ## remove everything that was built
	$(CARGO) clean
	rm -rf bench/build dist
