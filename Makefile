# trimtab.  GNU make:   make help

PREFIX  ?= /usr/local
DESTDIR ?=
CARGO   ?= cargo
# What `make install` installs: release, or dev for a build to debug with.
PROFILE ?= release

TARGET := $(or $(CARGO_TARGET_DIR),target)
BUILT  := $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
INSTALL ?= install

bindir     := $(DESTDIR)$(PREFIX)/bin
libexecdir := $(DESTDIR)$(PREFIX)/libexec/trimtab
libdir     := $(DESTDIR)$(PREFIX)/lib/trimtab
includedir := $(DESTDIR)$(PREFIX)/include/trimtab
# Libraries that others link with, where linkers look.
clibdir    := $(DESTDIR)$(PREFIX)/lib
# Which version of libtrimtab_team programs need, as crates/team-c/build.rs has it.
SOVERSION := 0
mandir     := $(DESTDIR)$(PREFIX)/share/man/man1
bashdir    := $(DESTDIR)$(PREFIX)/share/bash-completion/completions
zshdir     := $(DESTDIR)$(PREFIX)/share/zsh/site-functions
fishdir    := $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
# systemd reads rules of /usr/local too.
tmpfilesdir := $(DESTDIR)$(PREFIX)/lib/tmpfiles.d
unitdir     := $(DESTDIR)$(PREFIX)/lib/systemd/system

INSTALLED := $(bindir)/trimtab $(bindir)/trimtab-lab $(libexecdir)/trimtab-discover $(libdir)/libtrimtab_shim.so \
	$(includedir)/nesting.h $(includedir)/nesting.f90 $(includedir)/team.h $(includedir)/team_mpi.h \
	$(clibdir)/libtrimtab_team.so $(clibdir)/libtrimtab_team.so.$(SOVERSION) $(clibdir)/libtrimtab_team.a $(clibdir)/pkgconfig/trimtab-team.pc \
	$(bashdir)/trimtab $(zshdir)/_trimtab $(fishdir)/trimtab.fish \
	$(bashdir)/trimtab-lab $(zshdir)/_trimtab-lab $(fishdir)/trimtab-lab.fish $(tmpfilesdir)/trimtab.conf \
	$(unitdir)/trimtab.service

# What `trimtab bench` runs, installed if `make -C bench` has built it.
BENCH_PROGRAMS := nested_stream nested_syncbench nested_solver balance_spmd balance_omp balance_pipeline balance_hog uncore_lists

.PHONY: build help guide test test-models test-python test-torch test-numa test-misses demo bench-launch bench-nested bench-balance bench-uncore bench-cost bench-oversub corpus corpus-test check-all lint install uninstall clean

build: ## build trimtab (the default); says what is missing, installs nothing
	TRIMTAB_INSTALL=no scripts/packages build
	$(CARGO) build --profile $(PROFILE) --workspace

help: ## say what can be made
	@echo 'make [TARGET] [PREFIX=/usr/local] [DESTDIR=]'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile

# Tests check the book without mdBook, whose building takes minutes.
guide: ## make a book of docs/ in target/guide; builds mdBook in target/tools first, some minutes, if it is missing
	CARGO="$(CARGO)" scripts/mdbook build docs
	@echo 'the book is target/guide/index.html'

test: ## build and run every test, after installing missing packages (root on Debian or Ubuntu) or naming them
	scripts/packages build test
	scripts/wheels
	scripts/test
	scripts/test-python
	$(MAKE) --no-print-directory corpus-test

test-python: ## build the Python package and run its tests, in an environment of its own below target/python
	scripts/test-python

test-torch: ## torch.distributed over teams, after installing torch and mpi4py (140 MB; root on Debian or Ubuntu) or naming them
	scripts/packages build torch
	scripts/test-python -k Torch -k communicators

test-models: ## try the flags of teams in all orders that threads and memory may take: half a minute, and building
	scripts/packages build
	scripts/test-models

test-numa: ## run trimtab on emulated machines with several NUMA nodes (QEMU), after installing or naming what is missing
	scripts/packages build numa
	scripts/test-numa

test-misses: ## far memory counted in an emulated machine, before and under --balance=brm: a minute or two where nothing else runs
	scripts/packages build numa
	scripts/test-numa 4n2c

# TABLE=1 puts the results into docs/corpus.md.
corpus: ## run programs of others plainly and by trimtab, and compare (an hour or more; ARGS='--rounds 15 zstd xz', '--part ci')
	scripts/packages build
	$(CARGO) build --release --workspace
	corpus/run --install --trimtab $(TARGET)/release/trimtab $(if $(TABLE),--table) $(ARGS)

corpus-test: ## test the runner of the corpus, without its programs: seconds
	@if python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then python3 -B -m unittest discover --start-directory corpus/tests --top-level-directory corpus; \
	else echo 'SKIPPED: the runner of the corpus: no Python 3.9 or newer here'; fi

check-all: ## run everything that can fail: all of .ci/run, counted misses, the whole corpus (an hour or more)
	TRIMTAB_BEDS=all .ci/run
	$(MAKE) --no-print-directory test-misses
	$(MAKE) --no-print-directory corpus ARGS='--rounds 0'

demo: ## two minutes: a real program alone and two at once, plain and under trimtab
	scripts/packages build demo
	$(CARGO) build --release --workspace
	$(MAKE) -C bench
	scripts/demo --trimtab $(TARGET)/release/trimtab

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

lint: ## format, clippy, documentation, licences: warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --document-private-items
	cd python && $(CARGO) fmt --check
	$(CARGO) clippy --manifest-path python/Cargo.toml --target-dir $(TARGET) --locked --all-targets -- -D warnings
	@if ruff --version >/dev/null 2>&1; then set -x; ruff check --select E4,E7,E9,F python bench/team corpus; \
	else echo 'ruff is not installed: Python is not checked (pip install ruff)'; fi
	@if $(CARGO) deny --version >/dev/null 2>&1; then set -x; $(CARGO) deny check bans licenses sources; \
	else echo 'cargo-deny is not installed: licences are not checked (cargo install --locked cargo-deny)'; fi

# Building is for the user, installing may be for root, who need not have a compiler.
install: ## install what `make` built below $(DESTDIR)$(PREFIX)
	@test -x $(BUILT)/trimtab -a -x $(BUILT)/trimtab-lab || { echo 'nothing is built in $(BUILT): run "make" first' >&2; exit 1; }
	$(INSTALL) -D -m 755 $(BUILT)/trimtab $(bindir)/trimtab
	$(INSTALL) -D -m 755 $(BUILT)/trimtab-lab $(bindir)/trimtab-lab
	$(INSTALL) -D -m 755 $(BUILT)/trimtab-discover $(libexecdir)/trimtab-discover
	$(INSTALL) -D -m 644 $(BUILT)/libtrimtab_shim.so $(libdir)/libtrimtab_shim.so
	@for program in $(BENCH_PROGRAMS); do if test -x bench/build/gcc/$$program; then \
		$(INSTALL) -D -m 755 bench/build/gcc/$$program $(libexecdir)/bench/$$program; fi; done
	$(INSTALL) -D -m 644 include/trimtab/nesting.h $(includedir)/nesting.h
	$(INSTALL) -D -m 644 include/trimtab/nesting.f90 $(includedir)/nesting.f90
	$(INSTALL) -D -m 644 include/trimtab/team.h $(includedir)/team.h
	$(INSTALL) -D -m 644 include/trimtab/team_mpi.h $(includedir)/team_mpi.h
	$(INSTALL) -D -m 644 $(BUILT)/libtrimtab_team_c.so $(clibdir)/libtrimtab_team.so.$(SOVERSION)
	ln -sf libtrimtab_team.so.$(SOVERSION) $(clibdir)/libtrimtab_team.so
	$(INSTALL) -D -m 644 $(BUILT)/libtrimtab_team_c.a $(clibdir)/libtrimtab_team.a
	$(INSTALL) -d $(clibdir)/pkgconfig
	sed 's|@PREFIX@|$(PREFIX)|' packaging/trimtab-team.pc > $(clibdir)/pkgconfig/trimtab-team.pc
	chmod 644 $(clibdir)/pkgconfig/trimtab-team.pc
	$(INSTALL) -d $(mandir) $(bashdir) $(zshdir) $(fishdir)
	for program in trimtab trimtab-lab; do \
		$(BUILT)/trimtab-lab generate man $$program --to $(mandir) && \
		$(BUILT)/trimtab-lab generate bash $$program > $(bashdir)/$$program && \
		$(BUILT)/trimtab-lab generate zsh $$program > $(zshdir)/_$$program && \
		$(BUILT)/trimtab-lab generate fish $$program > $(fishdir)/$$program.fish && \
		chmod 644 $(mandir)/$$program*.1 $(bashdir)/$$program $(zshdir)/_$$program $(fishdir)/$$program.fish || exit 1; \
	done
	$(INSTALL) -D -m 644 packaging/tmpfiles.conf $(tmpfilesdir)/trimtab.conf
	$(INSTALL) -d $(unitdir)
	sed 's|@BINDIR@|$(PREFIX)/bin|' packaging/trimtab.service > $(unitdir)/trimtab.service
	chmod 644 $(unitdir)/trimtab.service
	@echo 'A service for tagged threads:  systemctl daemon-reload && systemctl enable --now trimtab'
	@echo 'A ledger that only root can replace:  systemd-tmpfiles --create $(PREFIX)/lib/tmpfiles.d/trimtab.conf'

uninstall: ## remove what `make install` installed
	rm -f $(mandir)/trimtab.1 $(mandir)/trimtab-*.1
	rm -f $(INSTALLED) $(addprefix $(libexecdir)/bench/,$(BENCH_PROGRAMS))
	rmdir $(libexecdir)/bench $(libexecdir) $(libdir) $(includedir) 2>/dev/null || true

clean: ## remove everything that was built
	$(CARGO) clean
	rm -rf bench/build
