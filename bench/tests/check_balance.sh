#!/bin/sh
# Quick checks of the programs for balancing and waiting:   check_balance.sh BUILD_DIRECTORY
# A few milliseconds of work must verify with every wait mode, bound or not, with
# more threads than cores, and be reported in the documented form.  Hogs report that
# they are ready, and end with their parent.  Invalid command lines are
# refused with status 2; nothing crashes.

build=$1
failures=0

fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}

# refused PROGRAM ARGUMENT...: status 2, one line on stderr
refused() {
    message=$("$@" 2>&1 >/dev/null)
    status=$?
    [ $status -eq 2 ] || fail "$* (exit status $status, not 2)"
    [ "$(printf '%s\n' "$message" | grep -c .)" -eq 1 ] || fail "$* (not one line: $message)"
}

number='-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?'
null="($number|null)"

# report THREADS PHASES WAIT PINNED PROGRAM ARGUMENT...: one line of JSON of this form
report() {
    threads=$1 phases=$2 wait=$3 pinned=$4
    shift 4
    json=$("$@") || fail "$* (exit status $?)"
    list="\\[$number(,$number){$((threads - 1))}\\]"
    pattern="\\{\"kernel\":\"balance_[a-z]+\",\"threads\":$threads,\"wait\":\"$wait\",\"pinned\":$pinned,\"phases\":$phases"
    pattern="$pattern,\"seconds\":$number,\"first\":$number,\"last\":$number,\"compute_seconds\":$list,\"cpu_seconds\":$list"
    pattern="$pattern,\"voluntary\":$number,\"involuntary\":$number,\"machine_cpus\":[0-9]+,\"own_seconds\":$number"
    pattern="$pattern,\"hog_seconds\":$number,\"foreign_seconds\":$null,\"steal_seconds\":$null"
    pattern="$pattern,\"sum\":\"[0-9a-f]{16}\",\"verified\":true\\}"
    printf '%s\n' "$json" | grep -Eqx "$pattern" || fail "$*: $json"
}

work="--rate 100000000 --work 0.004"
for wait in spin yield sleep hyb; do
    report 3 4 $wait false "$build/balance_spmd" $work --phase 0.001 --wait $wait
    report 2 1 $wait true "$build/balance_spmd" $work --threads 2 --pin --wait $wait
done
report 1 1 sleep false "$build/balance_spmd" $work --threads 1
for policy in active passive; do
    OMP_WAIT_POLICY=$policy OMP_NUM_THREADS=3 report 3 4 runtime false "$build/balance_omp" $work --phase 0.001
done
for threads in 1 3; do
    OMP_NUM_THREADS=$threads report $threads 4 flags false "$build/balance_pipeline" $work --phase 0.001
done
"$build/balance_spmd" --calibrate | grep -Eqx '\{"kernel":"balance_spmd","rate":[0-9]+\}' || fail "--calibrate"

# Equal work gives equal sums in every program.
one=$("$build/balance_spmd" $work | sed 's/.*"sum":"\([^"]*\)".*/\1/')
two=$("$build/balance_omp" $work --threads 3 | sed 's/.*"sum":"\([^"]*\)".*/\1/')
[ "$one" = "$two" ] || fail "sums differ: $one $two"

[ "$("$build/balance_hog" --limit 0.02 --duty 50)" = ready ] || fail "balance_hog"
[ "$("$build/balance_hog" --limit 0.02 --setsid)" = ready ] || fail "balance_hog --setsid"
# A hog with a limit of an hour ends with the shell that started it.
hog=$(sh -c '"$1" --limit 3600 >/dev/null & echo $!; sleep 0.1' sh "$build/balance_hog")
tries=0
while kill -0 "$hog" 2>/dev/null && [ $tries -lt 100 ]; do
    tries=$((tries + 1))
    sleep 0.05
done
kill -0 "$hog" 2>/dev/null && fail "balance_hog outlives its parent"

for program in balance_spmd balance_omp balance_pipeline balance_hog; do
    refused "$build/$program" --no-such-option
    refused "$build/$program" word
    "$build/$program" --help >/dev/null || fail "$program --help"
done
for value in "" -1 0 x 99999999999999999999 4097; do
    refused "$build/balance_spmd" --threads "$value"
done
for value in "" -1 inf nan 0x1 1e3 . 1.2.3 4000; do
    refused "$build/balance_spmd" --work "$value"
done
refused "$build/balance_spmd" --wait dozing
refused "$build/balance_spmd" --threads
refused "$build/balance_hog" --duty 101

if [ $failures -ne 0 ]; then
    echo "$failures checks of the balance programs failed" >&2
    exit 1
fi
echo "balance: all checks passed"
