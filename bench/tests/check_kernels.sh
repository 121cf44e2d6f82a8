#!/bin/sh
# Quick checks of the kernels by ranks:   check_kernels.sh BUILD_DIRECTORY
# Class S must verify with every installed library, for numbers of ranks that share the
# work evenly or unevenly, and with keys that all fall into few buckets.
# Invalid command lines are refused with status 2, and a wrong result is detected.

TEAM_PROGRAMS=$(cd "$1" && pwd)
export TEAM_PROGRAMS
peer=$(dirname "$0")/../team/peer
failures=0

fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}

# Ends ranks that would wait for each other without end.
limited() {
    if command -v timeout >/dev/null; then timeout 60 "$@"; else "$@"; fi
}

number='[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?'

# verified KIND RANKS KERNEL MODE NAME ARGUMENT...: two lines of this form
verified() {
    kind=$1 ranks=$2 kernel=$3 mode=$4 name=$5
    shift 5
    set -- "$name" kernels -n "$ranks" -K "$kernel" -m "$mode" -B 2 "$@"
    lines=$(limited "$peer" "$@") || fail "$* (exit status $?)"
    pattern="\\{\"peer\":\"$name\",\"kind\":\"$kind\",\"ranks\":$ranks,\"kernel\":\"$kernel\",\"class\":\"S\",\"mode\":\"$mode\""
    pattern="$pattern,\"seconds\":$number,\"comm_seconds\":$number,\"cpu_seconds\":$number,\"mops\":$number,\"foreign\":($number|null)\\}"
    [ "$(printf '%s\n' "$lines" | grep -Ecx "$pattern")" -eq 2 ] || fail "$*: $lines"
    [ "$(printf '%s\n' "$lines" | grep -c .)" -eq 2 ] || fail "$*: not two lines: $lines"
}

# refused NAME ARGUMENT...: status 2, nothing on stdout
refused() {
    said=$(limited "$peer" "$@" 2>/dev/null)
    status=$?
    [ $status -eq 2 ] || fail "$* (exit status $status, not 2)"
    [ -z "$said" ] || fail "$*: $said"
}

# With more ranks than CPUs, MPICH's ranks spin: that takes long, and shows nothing.
for name in openmpi mpich upcxx libgomp libomp; do
    if ! why=$("$peer" $name kernels --here 2>&1); then
        echo "skipped: $name: ${why#peer: }" >&2
        continue
    fi
    kind=process
    case $name in libgomp | libomp) kind=thread ;; esac
    for kernel in ft is ep cg mg; do
        for ranks in 1 2 3 4; do
            verified $kind $ranks $kernel stream $name
        done
    done
    verified $kind 2 ft stream $name -p
    for keys in low one; do
        verified $kind 3 is stream $name -d $keys
    done
    "$peer" $name kernels -h | grep -q '^usage: ' || fail "$name -h"
    refused $name kernels -k thread
    refused $name kernels -m resident
done

if why=$("$peer" team kernels --here 2>&1); then
    for kernel in ft is ep cg mg; do
        for mode in stream resident; do
            for ranks in 1 2 3 4 8; do
                verified thread $ranks $kernel $mode team -k thread
                # One process of one thread is called a thread.
                [ $ranks -eq 1 ] || verified process $ranks $kernel $mode team -k process
            done
            for shape in 2x2 4x2 2x4 3x2; do
                verified $shape $((${shape%x*} * ${shape#*x})) $kernel $mode team -k $shape
            done
        done
    done
    for keys in low one; do
        for mode in stream resident; do
            verified process 4 is $mode team -k process -d $keys
            verified 2x2 4 is $mode team -k 2x2 -d $keys
            verified thread 7 is $mode team -d $keys
        done
    done
    verified process 2 ft resident team -k process -p
    verified thread 2 is stream team -T 20
    for value in "" thread2 2x 0x2 3x2 x 2x2x1; do
        refused team kernels -n 4 -k "$value"
    done
    refused team kernels -m loose
    refused team kernels -n 65
    refused team kernels -n 0
    refused team kernels -c D
    refused team kernels -K lu
    refused team kernels -d high
    refused team kernels -B 0
    refused team kernels -T 0.5
    refused team kernels -K
    refused team kernels -x
    refused team kernels word
    if [ -w /dev/full ]; then
        "$TEAM_PROGRAMS/kernels_team" >/dev/full 2>&1
        [ $? -eq 1 ] || fail "a report that cannot be written (exit status not 1)"
    fi
else
    echo "skipped: team: ${why#peer: }" >&2
fi

# Wrong operations: each is reported on stderr.
limited "$TEAM_PROGRAMS/tests/kernels_test" >/dev/null 2>"$TEAM_PROGRAMS/tests/kernels_test.log" || {
    grep FAILED "$TEAM_PROGRAMS/tests/kernels_test.log" >&2
    fail "kernels_test"
}
[ "$(grep -c 'wrong result' "$TEAM_PROGRAMS/tests/kernels_test.log")" -eq 10 ] || fail "kernels_test: not as many complaints as faults"

if [ $failures -ne 0 ]; then
    echo "$failures checks of the kernels by ranks failed" >&2
    exit 1
fi
echo "kernels by ranks: all checks passed"
