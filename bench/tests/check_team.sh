#!/bin/sh
# Quick checks of the peers of the team library:   check_team.sh BUILD_DIRECTORY
# Every installed peer must measure every operation on small data, verified, and
# report it in the documented form; a missing peer is named.  Invalid command lines
# are refused with status 2, and a wrong result is detected.

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
    if command -v timeout >/dev/null; then timeout 120 "$@"; else "$@"; fi
}

number='[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?'

# report KIND RANKS OP BYTES MODE NAME ARGUMENT...: two lines of this form
report() {
    kind=$1 ranks=$2 op=$3 bytes=$4 mode=$5 name=$6
    shift 6
    set -- "$name" -n "$ranks" -o "$op" -z "$bytes" -m "$mode" -B 2 -T 1 "$@"
    lines=$(limited "$peer" "$@") || fail "$* (exit status $?)"
    [ "$op" = barrier ] && bytes=0
    pattern="\\{\"peer\":\"$name\",\"kind\":\"$kind\",\"ranks\":$ranks,\"op\":\"$op\",\"bytes\":$bytes,\"mode\":\"$mode\""
    pattern="$pattern,\"us\":$number,\"cpu_us\":$number,\"foreign\":($number|null)\\}"
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

for name in openmpi mpich libgomp libomp pthread multiprocessing mpi4py gloo torch-trimtab; do
    if ! why=$("$peer" "$name" --here 2>&1); then
        echo "skipped: $name: ${why#peer: }" >&2
        continue
    fi
    kind=process
    case $name in libgomp | libomp | pthread) kind=thread ;; esac
    for op in barrier bcast allreduce alltoall; do
        report $kind 2 $op 1000 stream $name
    done
    report $kind 2 allreduce 8 strict $name -p
    refused $name -o allreduce -z 1001
    "$peer" $name -h | grep -q '^usage: ' || fail "$name -h"
    case $name in
    libgomp | libomp | pthread)
        # More ranks than CPUs, than elements, and than both; one rank; and blocks of odd sizes.
        for op in barrier bcast allreduce alltoall; do
            report thread 5 $op 24 stream $name
            report thread 1 $op 8 strict $name
        done
        report thread 3 alltoall 1 strict $name
        report thread 3 bcast 4097 strict $name
        report thread 3 allreduce 80008 stream $name
        ;;
    esac
done
for op in barrier bcast allreduce alltoall; do
    report process 2 $op 1000 stream pthread -k process
    report process 5 $op 24 strict pthread -k process
done

for value in "" -1 0 x 513 1.5; do
    refused pthread -n "$value"
done
for value in "" 0 inf 1e3 . 1.2.3 3600001; do
    refused pthread -T "$value"
done
refused pthread -o scan
refused pthread -m loose
refused pthread -k fibre
refused pthread -z 0
refused pthread -z 2000000000
refused pthread -B 0
refused pthread -z
refused pthread -x
refused pthread word
refused nobody
if [ -w /dev/full ]; then
    "$TEAM_PROGRAMS/team_pthread" -B 1 -T 1 >/dev/full 2>&1
    [ $? -eq 1 ] || fail "a report that cannot be written (exit status not 1)"
fi

# Wrong operations: the measurement under test reports each on stderr.
"$TEAM_PROGRAMS/tests/team_test" >/dev/null 2>"$TEAM_PROGRAMS/tests/team_test.log" || {
    grep FAILED "$TEAM_PROGRAMS/tests/team_test.log" >&2
    fail "team_test"
}
[ "$(grep -c 'wrong result' "$TEAM_PROGRAMS/tests/team_test.log")" -eq 11 ] || fail "team_test: not as many complaints as faults"

if [ $failures -ne 0 ]; then
    echo "$failures checks of the team library's peers failed" >&2
    exit 1
fi
echo "team: all checks passed"
