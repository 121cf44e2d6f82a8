#!/bin/sh
# Quick checks of built kernels:   check.sh BUILD_DIRECTORY KERNEL...
# The library's tests must pass.  Class S must verify in words, and as JSON
# with 1, 2 and mostly 3 threads.  Invalid command lines must be refused
# with status 2 and one line on stderr, and problems too large for memory with
# status 3.

build=$1
shift
failures=0

# Nothing is measured here, and other work may need the cores.
export OMP_WAIT_POLICY=passive

fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}

# refused PROGRAM ARGUMENT...: bad usage is distinguished from other failures
refused() {
    message=$("$@" 2>&1 >/dev/null)
    status=$?
    [ $status -eq 2 ] || fail "$* (exit status $status, not 2)"
    case $message in
    *"S W A B C"*) ;;
    *) fail "$* (message does not name the classes: $message)" ;;
    esac
    [ "$(printf '%s\n' "$message" | wc -l)" -eq 1 ] || fail "$* (message is not one line)"
}

# limited_memory PROGRAM ARGUMENT...: to be called in a subshell, because the limit stays in force
limited_memory() {
    ulimit -v 100000 && OMP_NUM_THREADS=1 "$@"
}

# The library's tests also write one report, of a wrong result without numbers.
expected='{"kernel":"none","class":"S","size":[4,5,6],"iterations":0,"threads":1,'
expected=$expected'"setup_seconds":0.000000,"seconds":1.000000,"mops":null,'
expected=$expected'"verified":false,"values":{"a":null}}'
report=$("$build/tests/common_test") || fail "common_test"
[ "$report" = "$expected" ] || fail "common_test (report: $report)"

for kernel; do
    program=$build/$kernel
    words=$(OMP_NUM_THREADS=1 "$program" S) || fail "$kernel S in words"
    case $words in
    *"VERIFICATION SUCCESSFUL"*) ;;
    *) fail "$kernel S in words (not verified)" ;;
    esac
    # Thousands of barriers, as in CG, and threads that wait for each other's planes,
    # as in LU, take long with more threads than cores.  If threads spin without limit, as with
    # flags, other work on one of two cores is enough to delay them.
    case $kernel in
    cg | lu) counts="1 2" ;;
    lu-flags)
        counts=1
        if [ "$(nproc)" -ge 4 ]; then
            counts="1 2"
        else
            echo "SKIPPED: $kernel S, 2 threads, which spin for each other, on fewer than 4 CPUs (lu-mz waits by the same flags)"
        fi
        ;;
    *) counts="1 2 3" ;;
    esac
    for threads in $counts; do
        json=$(OMP_NUM_THREADS=$threads "$program" --json) || fail "$kernel --json, $threads threads"
        case $json in
        "{\"kernel\":\"$kernel\",\"class\":\"S\","*"\"threads\":$threads,"*"\"verified\":true,"*"}}") ;;
        *) fail "$kernel --json, $threads threads: $json" ;;
        esac
        echo "$kernel S, $threads threads: verified"
    done
    "$program" --help | grep -q '^usage: ' || fail "$kernel --help"
    refused "$program" X
    refused "$program" ''
    refused "$program" SS
    refused "$program" S A
    refused "$program" --no-such-option
    # EP needs hardly any memory.
    if [ "$kernel" != ep ]; then
        if (limited_memory "$program" --help) >/dev/null 2>&1; then
            message=$( (limited_memory "$program" B) 2>&1 >/dev/null)
            [ $? -eq 3 ] || fail "$kernel B in 100 MB (exit status not 3)"
            case $message in
            "cannot allocate an array"*) ;;
            *) fail "$kernel B in 100 MB (message: $message)" ;;
            esac
        else
            echo "SKIPPED: $kernel B in 100 MB, where this build cannot even start"
        fi
    fi
    # A report that cannot be written must not look like a success.
    if [ -w /dev/full ]; then
        OMP_NUM_THREADS=1 "$program" S >/dev/full 2>&1
        [ $? -eq 3 ] || fail "$kernel S >/dev/full (exit status not 3)"
    fi
done

[ $failures -eq 0 ] || exit 1
echo "all checks passed"
