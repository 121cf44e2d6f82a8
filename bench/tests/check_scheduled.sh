#!/bin/sh
# Quick checks of the kernels that read OMP_SCHEDULE:   check_scheduled.sh BUILD_DIRECTORY PROGRAM...
# Class S must verify with static, dynamic and guided loops, for numbers of threads that share the work evenly or
# unevenly.  The program must ask its runtime for the schedule; the plain program of the same kernel must not.

build=$1
shift
failures=0

# Nothing is measured here, and other work may need the cores.
export OMP_WAIT_POLICY=passive
unset OMP_DYNAMIC OMP_THREAD_LIMIT

fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}

# asks FILE: whether its loops ask the runtime, of GCC or of LLVM, for their next turns
asks() {
    nm -u "$1" | grep -Eq 'GOMP_loop_[a-z_]*runtime|__kmpc_dispatch_init'
}

for program; do
    for schedule in static static,1 dynamic dynamic,3 guided guided,2; do
        for threads in 1 2 3; do
            json=$(OMP_SCHEDULE=$schedule OMP_NUM_THREADS=$threads timeout 300 "$build/scheduled/$program" S --json)
            case $json in
            *"\"threads\":$threads,"*'"verified":true'*) ;;
            *) fail "$program, $threads threads, OMP_SCHEDULE=$schedule: $json" ;;
            esac
        done
    done
    if command -v nm >/dev/null; then
        asks "$build/scheduled/$program" || fail "scheduled/$program does not ask its runtime for a schedule"
        if asks "$build/$program"; then fail "$program asks its runtime for a schedule: its loops are to be static"; fi
    else
        echo "skipped: nm is not here, so nothing shows that $program asks its runtime for a schedule" >&2
    fi
done

if [ $failures -ne 0 ]; then
    echo "$failures checks of the kernels that read OMP_SCHEDULE failed" >&2
    exit 1
fi
echo "kernels that read OMP_SCHEDULE: all checks passed"
