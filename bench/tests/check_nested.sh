#!/bin/sh
# Quick checks of the programs with nested teams:   check_nested.sh BUILD_DIRECTORY
# Small problems must verify in several shapes, also with more threads than
# cores, in words and as JSON of the documented form.  Invalid command lines
# are refused with status 2, impossible requests with status 3; nothing crashes.

build=$1
failures=0

fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}

# ends STATUS PROGRAM ARGUMENT...: with that status, one line on stderr, no report
ends() {
    wanted=$1
    shift
    message=$("$@" 2>&1 >/dev/null)
    status=$?
    [ $status -eq "$wanted" ] || fail "$* (exit status $status, not $wanted)"
    [ -n "$message" ] || fail "$* (says nothing)"
    [ "$(printf '%s\n' "$message" | wc -l)" -eq 1 ] || fail "$* (not one line: $message)"
}

# report PATTERN PROGRAM ARGUMENT...: the JSON is one line, of this pattern (grep -E);
# N stands for a number, L for a list of numbers, Q for best, median and samples.
report() {
    pattern=$1
    shift
    json=$("$@" --json) || fail "$* --json"
    number='-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?'
    list="\\[$number(,$number)*\\]"
    pattern=$(printf '%s' "$pattern" | sed -E \
        -e 's/Q/\\{"best":N,"median":N,"samples":L\\}/g' -e "s/L/$(escaped "$list")/g" \
        -e "s/N/$(escaped "$number")/g")
    printf '%s\n' "$json" | grep -Eqx "$pattern" || fail "$* --json: $json"
    [ "$(printf '%s\n' "$json" | wc -l)" -eq 1 ] || fail "$* --json (not one line)"
}

# Escapes a text for a replacement by sed.
escaped() {
    printf '%s' "$1" | sed -e 's/[\\&/]/\\&/g'
}

# verified PROGRAM ARGUMENT...: in words
verified() {
    words=$("$@") || fail "$*"
    case $words in
    *"VERIFICATION SUCCESSFUL"*) ;;
    *) fail "$* (not verified)" ;;
    esac
}

stream="$build/nested_stream --elements 5003 --repetitions 3"
syncbench="$build/nested_syncbench --repetitions 3 --target-us 10"
solver="$build/nested_solver --cells 11 --repetitions 2"

for shape in 1x1 1x2 2x1 2x2 3x5; do
    outer=${shape%x*}
    inner=${shape#*x}
    teams=$((outer - 1))
    for init in team master; do
        report "\\{\"kernel\":\"nested_stream\",\"outer\":$outer,\"inner\":$inner,\"init\":\"$init\",\"elements\":5003,\"repetitions\":3,\"setup_seconds\":N,\"sum_gbs\":Q,\"wall_gbs\":Q,\"teams\":\\[\\{\"gbs\":Q\\}(,\\{\"gbs\":Q\\}){$teams}\\],\"verified\":true\\}" \
            $stream --init $init $shape
        team='\{"seconds":Q,"steps":N,"residual":N\}'
        report "\\{\"kernel\":\"nested_solver\",\"outer\":$outer,\"inner\":$inner,\"init\":\"$init\",\"cells\":11,\"repetitions\":2,\"seconds\":Q,\"teams\":\\[$team(,$team){$teams}\\],\"verified\":true\\}" \
            $solver --init $init $shape
    done
    team='\{"reference_us":N,"samples":L\}'
    construct="\\{\"construct\":\"[a-z_]+\",\"inner_repetitions\":N,\"average_us\":Q,\"worst_us\":Q,\"teams\":\\[$team(,$team){$teams}\\]\\}"
    report "\\{\"kernel\":\"nested_syncbench\",\"outer\":$outer,\"inner\":$inner,\"repetitions\":3,\"delay_ns\":100,\"delay_length\":N,\"constructs\":\\[$construct(,$construct){8}\\],\"verified\":true\\}" \
        $syncbench $shape
    echo "nested programs $shape: verified"
done
verified $stream 1x2
verified $syncbench 2x1
verified $solver 2x1

# The smallest problems, and fewer elements than threads.
verified "$build/nested_stream" --elements 1 --repetitions 1 1x3
verified "$build/nested_syncbench" --repetitions 1 --delay-ns 0 --target-us 1
verified "$build/nested_solver" --cells 1 --repetitions 1 2x2

for program in nested_stream nested_syncbench nested_solver; do
    "$build/$program" --help | grep -q '^usage: ' || fail "$program --help"
    for shape in '' x 2 2x x2 0x1 1x0 -1x2 +1x2 ' 1x2' 1x2x3 2y2 1.5x2 16385x1 200x200 \
        99999999999999999999x1 1x99999999999999999999 4294967297x1; do
        ends 2 "$build/$program" "$shape"
    done
    for value in '' 0 -1 x 1e3 3.5 100001 99999999999999999999999 18446744073709551617; do
        ends 2 "$build/$program" --repetitions "$value"
    done
    ends 2 "$build/$program" --repetitions
    ends 2 "$build/$program" --no-such-option
    ends 2 "$build/$program" 1x1 1x1
    # A runtime that gives fewer threads, and a report that cannot be written.
    KMP_WARNINGS=off OMP_THREAD_LIMIT=2 ends 3 "$build/$program" --repetitions 1 2x3
    if [ -w /dev/full ]; then
        "$build/$program" --repetitions 1 >/dev/full 2>&1
        [ $? -eq 3 ] || fail "$program >/dev/full (exit status not 3)"
    fi
    # Runtimes that cannot start a thread end the program in different ways.
    (
        ulimit -v 300000 || exit 0
        "$build/$program" --repetitions 1 400x1 >/dev/null 2>&1
        [ $? -eq 3 ]
    ) || fail "$program without room for threads (exit status not 3)"
done
ends 2 "$build/nested_stream" --init nobody
ends 3 "$build/nested_stream" --elements 1099511627776
ends 3 "$build/nested_solver" --cells 4096

[ $failures -eq 0 ] || exit 1
echo "all checks of nested teams passed"
