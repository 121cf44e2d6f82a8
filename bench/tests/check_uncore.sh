#!/bin/sh
# Quick checks of the micro-benchmark of placement:   check_uncore.sh BUILD_DIRECTORY
# Windows of a few thousand turns must verify in every mode, with more
# threads than cores, and be reported in the documented form; with --wait nothing
# is measured before a line arrives.  Invalid command lines are refused with
# status 2, impossible requests with status 3.

program=$1/uncore_lists
failures=0

fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}

# refused STATUS ARGUMENT...: one line on stderr, nothing on stdout except the threads
refused() {
    wanted=$1
    shift
    message=$("$program" "$@" 2>&1 >/dev/null)
    status=$?
    [ $status -eq "$wanted" ] || fail "$* (exit status $status, not $wanted)"
    [ "$(printf '%s\n' "$message" | grep -c .)" -eq 1 ] || fail "$* (not one line: $message)"
}

number='[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?'
amount="\"turns\":[0-9]+,\"steps\":[0-9]+,\"adds\":[0-9]+,\"seconds\":$number,\"cpu_seconds\":$number,\"turn_ns\":$number,\"turn_cpu_ns\":$number"
thread="\\{\"kernel\":\"uncore_lists\",\"window\":[0-9]+,\"thread\":[0-9]+,\"tid\":[0-9]+,\"cpu\":[0-9]+,$amount\\}"
total="\\{\"kernel\":\"uncore_lists\",\"window\":[0-9]+,\"threads\":[0-9]+,\"private\":[0-9]+,\"first\":[0-9]+,\"chains\":[0-9]+,\"order\":\"[a-z]+\""
total="$total,\"shared\":[0-9]+,\"every\":[0-9]+,\"phase\":[0-9]+,\"barrier\":\"[a-z]+\",\"touch\":\"[a-z]+\",\"pages\":\"[a-z]+\",$amount,\"verified\":true\\}"

# report THREADS WINDOWS ARGUMENT...: all lines of this form
report() {
    threads=$1 windows=$2
    shift 2
    lines=$("$program" --threads "$threads" --repeats "$windows" "$@") || fail "$* (exit status $?)"
    [ "$(printf '%s\n' "$lines" | sed -n 1p | grep -Ecx "threads( [0-9]+){$threads}")" -eq 1 ] || fail "$*: $lines"
    [ "$(printf '%s\n' "$lines" | grep -Ecx "$thread")" -eq $((threads * windows)) ] || fail "$*: $lines"
    [ "$(printf '%s\n' "$lines" | grep -Ecx "$total")" -eq "$windows" ] || fail "$*: $lines"
}

for chains in 1 2 3 4 5 6 7 8; do
    report 1 2 --private 8192 --turns 1000 --chains $chains
done
for order in random sequential; do
    for touch in own first; do
        report 3 1 --private 65536 --turns 5000 --order $order --touch $touch --share 640 --every 7
    done
done
for pages in default huge small; do
    report 1 1 --private 4194304 --turns 100 --pages $pages 2>/dev/null
done
report 1 1 --private 64 --turns 5            # one node, its own successor
report 1 1 --private 100 --share 100 --turns 5
report 3 2 --private 0 --share 64 --turns 1000
report 2 2 --private 4096 --turns 5000 --phase 1500
report 2 1 --private 4096 --seconds 0.01 --phase 100
for barrier in spin yield sleep hyb; do
    report 2 2 --private 4096 --first 65536 --turns 5000 --phase 500 --barrier $barrier
done
report 2 1 --private 4096 --first 0 --share 64 --turns 100
report 3 1 --private 4096 --turns 5000 --pause 0.001
report 2 1 --private 4096 --seconds 0.01
report 2 1 --private 4096 --turns 10 --cpus 0
report 2 1 --private 4096 --turns 10 --cpus 0 --home 0
report 2 1 --private 4096 --turns 10 --start 0
report 2 1 --private 4096 --turns 10 --start 0 --home 0

# As many turns and additions as requested, in total over the threads.
lines=$("$program" --threads 2 --private 4096 --chains 4 --share 64 --every 3 --turns 1000 | tail -n 1)
case $lines in
*'"turns":2000,"steps":8000,"adds":666,'*) ;;
*) fail "amounts: $lines" ;;
esac

# The first thread's list has its own size; a thread without a list makes no steps.
lines=$("$program" --threads 3 --private 4096 --first 0 --share 64 --turns 1000 | tail -n 1)
case $lines in
*'"private":4096,"first":0,'*'"turns":3000,"steps":2000,"adds":3000,'*) ;;
*) fail "--first: $lines" ;;
esac

# A thread that begins on a CPU keeps the mask of the program, and one with a CPU of --cpus does not.
mask_with() {
    mkfifo "$1" || return
    "$program" --private 4096 --wait "$2" 0 <"$1" >"$1.out" 2>/dev/null &
    exec 9>"$1"
    while ! grep -q '^threads ' "$1.out"; do sleep 0.05; done
    tid=$(sed -n 's/^threads //p' "$1.out")
    sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "/proc/$tid/status"
    exec 9>&-
    wait
}
folder=$(mktemp -d)
own=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
case $own in
0*)
    [ "$(mask_with "$folder/start" --start)" = "$own" ] || fail "--start keeps the mask"
    [ "$(mask_with "$folder/cpus" --cpus)" = 0 ] || fail "--cpus binds"
    ;;
esac
rm -r "$folder"

# Two windows need three lines, the last of which may be missing.
[ "$(printf '\n\n\n' | "$program" --private 4096 --turns 10 --repeats 2 --wait | grep -c verified)" -eq 2 ] || fail "--wait"
[ "$(printf '\n\n' | "$program" --private 4096 --turns 10 --repeats 2 --wait | grep -c verified)" -eq 2 ] || fail "--wait, last line missing"
message=$(printf '\n' | "$program" --private 4096 --turns 10 --repeats 2 --wait 2>&1 >/dev/null)
[ $? -eq 3 ] || fail "--wait with one line (exit status)"
[ -n "$message" ] || fail "--wait with one line (no message)"
[ "$("$program" --private 4096 --wait </dev/null 2>/dev/null | grep -c .)" -eq 1 ] || fail "--wait measured without a line"

"$program" --help | grep -q '^usage: ' || fail "--help"
refused 2 --no-such-option
refused 2 word
refused 2 --cpus 0,
refused 2 --cpus ,0
refused 2 --cpus 0,x
refused 2 --cpus 99999
refused 2 --cpus
refused 2 --chains 9
refused 2 --chains 0
refused 2 --threads 0
refused 2 --order backwards
refused 2 --seconds -1
refused 2 --private -1
refused 3 --private 64 --chains 2
refused 3 --private 0
refused 3 --private 64 --first 0
refused 3 --first 64 --chains 2
refused 2 --barrier kneel
refused 2 --pause -1
refused 3 --home 0
refused 3 --cpus 0 --start 0
refused 3 --start 1023
refused 3 --share 63
refused 3 --private 200000000000 --threads 1000
if [ -w /dev/full ]; then
    "$program" --private 4096 --turns 10 >/dev/full 2>&1
    [ $? -eq 3 ] || fail "a report that cannot be written (exit status not 3)"
fi

if [ $failures -ne 0 ]; then
    echo "$failures checks of the micro-benchmark of placement failed" >&2
    exit 1
fi
echo "uncore: all checks passed"
