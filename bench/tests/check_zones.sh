#!/bin/sh
# Quick checks of the multi-zone benchmarks:   check_zones.sh BUILD_DIRECTORY PROGRAM...
# Class S must verify with one and two outer threads, and one and two inner ones; if a
# thread spins for another, only if there is a CPU for each, and within a time limit.
# Its teams must have the requested sizes.  One step must give the same bits
# for all sizes of teams.  A slightly wrong result must not verify.  ZONE_CLASSES='W A' also runs
# these classes, by an outer team of two; class A takes a minute or two.

build=$1
shift
failures=0

# Nothing is measured here, and other work may need the cores.
export OMP_WAIT_POLICY=passive
unset OMP_MAX_ACTIVE_LEVELS OMP_THREAD_LIMIT OMP_DYNAMIC
cpus=$(nproc)

# Seconds for one run.  With threads that spin for each other, and other work on the CPUs, a run
# of milliseconds takes long, and is ended soon.
patience=300
spinning=15

fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}

# shape PROGRAM OUTER INNER
shape() {
    program=$1
    outer=$2
    inner=$3
    threads=$((outer * inner))
    limit=$patience
    if [ "$program" = lu-mz ] && [ "$inner" -gt 1 ]; then limit=$spinning; fi
    json=$(OMP_NUM_THREADS=$outer,$inner timeout $limit "$build/$program" S --json)
    status=$?
    if [ $status -eq 124 ] && [ $limit -eq $spinning ]; then
        echo "SKIPPED: $program S, teams of $outer x $inner: the CPUs have other work, so threads that spin for each other took over $limit s"
        return
    fi
    [ $status -eq 0 ] || fail "$program S, teams of $outer x $inner (exit status $status)"
    case $json in
    "{\"kernel\":\"$program\",\"class\":\"S\",\"size\":[24,24,6],"*",\"threads\":$threads,\"outer\":$outer,\"inner\":$inner,"*"\"verified\":true,"*"}}") ;;
    *) fail "$program S, teams of $outer x $inner: $json" ;;
    esac
    echo "$program S, teams of $outer x $inner: verified"
}

# values PROGRAM TEAMS: all bits of the results of one step, and the teams that it had
values() {
    OMP_NUM_THREADS=$2 timeout $patience "$build/tests/zones_test_$1" values 2>&1
}

for program; do
    case $(OMP_NUM_THREADS=1 "$build/$program" S) in
    *"VERIFICATION SUCCESSFUL"*) ;;
    *) fail "$program S in words (not verified)" ;;
    esac
    shape "$program" 1 1
    shape "$program" 2 1
    shape "$program" 4 1
    for outer in 1 2; do
        if [ "$program" != lu-mz ] || [ "$cpus" -ge $((2 * outer)) ]; then
            shape "$program" $outer 2
        else
            echo "SKIPPED: $program S, teams of $outer x 2, with threads that spin for each other on $cpus CPUs"
        fi
    done
    alone=$(values "$program" 1,1)
    for teams in 2,1 1,2 2,2 1,3 3,2; do
        same=$(printf '%s' "$alone" | sed "s/^1 x 1$/${teams%,*} x ${teams#*,}/")
        [ "$(values "$program" $teams)" = "$same" ] || fail "$program S, one step: teams of $teams differ from one thread"
    done
    echo "$program S, one step: the same bits with 2,1 1,2 2,2 1,3 3,2 as with one thread"
    # One number gives the outer team alone, and at most as many threads as zones are started.
    case $(OMP_NUM_THREADS=20 "$build/$program" S --json) in
    *'"threads":4,"outer":4,"inner":1,'*'"verified":true,'*) [ "$program" != lu-mz ] || fail "lu-mz S has 16 zones" ;;
    *'"threads":16,"outer":16,"inner":1,'*'"verified":true,'*) [ "$program" = lu-mz ] || fail "$program S has 4 zones" ;;
    *) fail "$program S, 20 threads" ;;
    esac
    for class in ${ZONE_CLASSES:-}; do
        case $(OMP_NUM_THREADS=2 timeout 600 "$build/$program" "$class" --json) in
        *"\"class\":\"$class\","*'"verified":true,'*) echo "$program $class: verified" ;;
        *) fail "$program $class" ;;
        esac
    done
    OMP_NUM_THREADS=1 "$build/tests/zones_test_$program" || fail "tests of $program"
    "$build/$program" --help | grep -q '^usage: ' || fail "$program --help"
    "$build/$program" X 2>/dev/null
    [ $? -eq 2 ] || fail "$program X (exit status not 2)"
done

[ $failures -eq 0 ] || exit 1
echo "all checks of the multi-zone benchmarks passed"
