/* Calls every function of team.h, in threads, and checks the results, in C and C++. Then invalid calls. With arguments: a started rank. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <trimtab/team.h>
#include <unistd.h>

#define RANKS 3
#define MANY 5000
#define OK(call) expect(call, TRIMTAB_OK, #call, __LINE__)
#define FAILS(code, call) expect(call, code, #call, __LINE__)
#define IS(what) ((what) ? (void)0 : wrong(#what, __LINE__))

static void wrong(const char *what, int line) {
    fprintf(stderr, "line %d: %s\n", line, what);
    exit(1);
}

static void expect(int got, int code, const char *what, int line) {
    if (got == code) return;
    fprintf(stderr, "line %d: %s: %s (%s), not %s\n", line, what, trimtab_error_text(got), trimtab_last_error(),
            trimtab_error_text(code));
    exit(1);
}

static int checked(void) {
    const char *check = getenv("TRIMTAB_TEAM_CHECK");
    return check && !strcmp(check, "on");
}

static trimtab_team team;
static trimtab_rank ranks[RANKS];
static pthread_barrier_t all_have_joined;

static void most(void *into, const void *from, size_t count, void *context) {
    ++*(int *)context;
    for (size_t i = 0; i < count; i++)
        if (((const int *)from)[i] > ((int *)into)[i]) ((int *)into)[i] = ((const int *)from)[i];
}

static void collectives(trimtab_rank rank, uint32_t me) {
    static const size_t counts[] = {1, 7, MANY};
    for (size_t c = 0; c < 3; c++) {
        size_t n = counts[c];
        double *in = (double *)malloc(RANKS * n * sizeof *in), *out = (double *)malloc(RANKS * n * sizeof *out);
        for (size_t i = 0; i < RANKS * n; i++) in[i] = (double)(me * 1000000 + i);
        OK(trimtab_allreduce(rank, in, out, n, TRIMTAB_F64, TRIMTAB_SUM, TRIMTAB_MINE));
        for (size_t i = 0; i < n; i++) IS(out[i] == 3000000.0 + 3.0 * (double)i);
        OK(trimtab_scan(rank, in, out, n, TRIMTAB_F64, TRIMTAB_MAX, TRIMTAB_LOOSE));
        for (size_t i = 0; i < n; i++) IS(out[i] == in[i]);
        OK(trimtab_exscan(rank, in, out, n, TRIMTAB_F64, TRIMTAB_SUM, TRIMTAB_MINE));
        /* Rank 0 keeps the result of the scan. */
        for (size_t i = 0; i < n; i++) IS(out[i] == (me == 0 ? in[i] : me == 1 ? (double)i : 1000000.0 + 2.0 * (double)i));
        OK(trimtab_reduce(rank, in, me == 1 ? out : NULL, n, TRIMTAB_F64, TRIMTAB_MIN, 1, TRIMTAB_STRICT));
        for (size_t i = 0; me == 1 && i < n; i++) IS(out[i] == (double)i);
        OK(trimtab_alltoall(rank, in, out, n, TRIMTAB_F64, TRIMTAB_MINE));
        for (size_t i = 0; i < RANKS * n; i++) IS(out[i] == (double)(i / n * 1000000 + me * n + i % n));
        OK(trimtab_allgather(rank, in, out, n, TRIMTAB_F64, TRIMTAB_MINE));
        for (size_t i = 0; i < RANKS * n; i++) IS(out[i] == (double)(i / n * 1000000 + i % n));
        OK(trimtab_gather(rank, in, me == 2 ? out : NULL, n, TRIMTAB_F64, 2, TRIMTAB_MINE));
        OK(trimtab_scatter(rank, me == 2 ? out : NULL, in, n, TRIMTAB_F64, 2, TRIMTAB_MINE));
        for (size_t i = 0; i < n; i++) IS(in[i] == (double)(me * 1000000 + i));
        for (size_t i = 0; i < RANKS * n; i++) in[i] = (double)(me * 1000000 + i);
        OK(trimtab_reduce_scatter(rank, in, out, n, TRIMTAB_F64, TRIMTAB_SUM, TRIMTAB_MINE));
        for (size_t i = 0; i < n; i++) IS(out[i] == 3000000.0 + 3.0 * (double)(me * n + i));
        memset(out, 0, n * sizeof *out);
        if (me == 0) memcpy(out, in, n * sizeof *out);
        OK(trimtab_broadcast(rank, out, n, TRIMTAB_F64, 0, TRIMTAB_MINE));
        for (size_t i = 0; i < n; i++) IS(out[i] == (double)i);
        free(in);
        free(out);
    }
}

/* Calls in place, of two elements a block. */
static void in_place(trimtab_rank rank, uint32_t me) {
    int all[2 * RANKS], *own = all + 2 * me, sum = 0;
    for (int i = 0; i < 2 * RANKS; i++) all[i] = (int)me * 10 + i;
    OK(trimtab_allgather(rank, own, all, 2, TRIMTAB_I32, TRIMTAB_MINE));
    for (int i = 0; i < 2 * RANKS; i++) IS(all[i] == i / 2 * 10 + i);
    for (int i = 0; i < 2 * RANKS; i++) all[i] = (int)me * 10 + i;
    OK(trimtab_alltoall(rank, all, all, 2, TRIMTAB_I32, TRIMTAB_MINE));
    for (int i = 0; i < 2 * RANKS; i++) IS(all[i] == i / 2 * 10 + (int)me * 2 + i % 2);
    for (int i = 0; i < 2 * RANKS; i++) all[i] = (int)me * 10 + i;
    OK(trimtab_reduce_scatter(rank, all, all, 2, TRIMTAB_I32, TRIMTAB_SUM, TRIMTAB_MINE));
    for (int i = 0; i < 2; i++) IS(all[i] == 30 + RANKS * ((int)me * 2 + i));
    for (int i = 0; i < 2 * RANKS; i++) all[i] = (int)me * 10 + i;
    OK(trimtab_gather(rank, own, me == 1 ? all : NULL, 2, TRIMTAB_I32, 1, TRIMTAB_MINE));
    for (int i = 0; me == 1 && i < 2 * RANKS; i++) IS(all[i] == i / 2 * 10 + i);
    OK(trimtab_scatter(rank, me == 1 ? all : NULL, own, 2, TRIMTAB_I32, 1, TRIMTAB_MINE));
    IS(own[0] == (int)me * 12 && own[1] == (int)me * 12 + 1);
    for (uint32_t i = 0; i < RANKS; i++) sum += (int)i;
    int mine = (int)me;
    OK(trimtab_reduce(rank, &mine, me == 0 ? &mine : NULL, 1, TRIMTAB_I32, TRIMTAB_SUM, 0, TRIMTAB_MINE));
    IS(mine == (me == 0 ? sum : (int)me));
}

/* Rank r gives blocks of r + 1 elements, or r + 1 elements to each rank; places in reverse order, with a gap. */
static void varied(trimtab_rank rank, uint32_t me) {
    size_t mine = me + 1, counts[RANKS], places[RANKS], same[RANKS], end = 0;
    long in[RANKS * RANKS], out[RANKS * (RANKS + 2)];
    for (size_t r = RANKS; r-- > 0;) {
        counts[r] = r + 1;
        same[r] = mine;
        places[r] = end;
        end += r + 2;
    }
    for (size_t i = 0; i < RANKS * RANKS; i++) in[i] = (long)(me * 100 + i);
    memset(out, 0xff, sizeof out);
    OK(trimtab_allgatherv(rank, in, mine, out, counts, places, TRIMTAB_I64, TRIMTAB_MINE));
    for (size_t r = 0; r < RANKS; r++) {
        for (size_t i = 0; i < counts[r]; i++) IS(out[places[r] + i] == (long)(r * 100 + i));
        IS(out[places[r] + counts[r]] == -1);
    }
    memset(out, 0xff, sizeof out);
    OK(trimtab_gatherv(rank, in, mine, me == 2 ? out : NULL, me == 2 ? counts : NULL, NULL, TRIMTAB_I64, 2, TRIMTAB_STRICT));
    for (size_t r = 0, at = 0; me == 2 && r < RANKS; r++)
        for (size_t i = 0; i < counts[r]; i++) IS(out[at++] == (long)(r * 100 + i));
    memset(out, 0xff, sizeof out);
    OK(trimtab_alltoallv(rank, in, same, NULL, out, counts, places, TRIMTAB_I64, TRIMTAB_LOOSE));
    for (size_t r = 0; r < RANKS; r++)
        for (size_t i = 0; i < counts[r]; i++) IS(out[places[r] + i] == (long)(r * 100 + me * (r + 1) + i));
    memset(out, 0xff, sizeof out);
    OK(trimtab_scatterv(rank, me == 0 ? in : NULL, me == 0 ? counts : NULL, NULL, out, mine, TRIMTAB_I64, 0, TRIMTAB_MINE));
    for (size_t i = 0; i < mine; i++) IS(out[i] == (long)(me * (me + 1) / 2 + i));
    IS(out[mine] == -1);
}

/* A rank that waits calls its hook, until the other rank has seen enough of it. */
static volatile int steps;
static int step(void *context) {
    ++*(volatile int *)context;
    return 0;
}

static void hooked(trimtab_rank rank, uint32_t me) {
    if (me == 0) OK(trimtab_rank_progress(rank, step, (void *)&steps));
    while (me == 1 && steps < 5) usleep(100);
    OK(trimtab_barrier(rank));
    OK(trimtab_rank_progress(rank, NULL, NULL));
    OK(trimtab_barrier(rank));
}

static void started(trimtab_rank rank, uint32_t me) {
    int in[4] = {(int)me, 5, -(int)me, 9}, out[4], calls = 0, done = 0;
    struct trimtab_collective call =
        trimtab_collective_of(TRIMTAB_ALLREDUCE, in, out, 4, TRIMTAB_I32, 0, 0, TRIMTAB_MINE);
    call.own = most;
    call.context = &calls;
    trimtab_request request;
    OK(trimtab_start(rank, &call, &request));
    while (!done) OK(trimtab_test(rank, request, &done));
    IS(calls == RANKS - 1 && out[0] == 2 && out[1] == 5 && out[2] == 0 && out[3] == 9);
    FAILS(TRIMTAB_ARGUMENT, trimtab_test(rank, request, &done));
    OK(trimtab_start(rank, &call, &request));
    OK(trimtab_barrier(rank));
    OK(trimtab_wait(rank, request));
    FAILS(TRIMTAB_ARGUMENT, trimtab_wait(rank, request));
}

/* An operator that makes a forbidden call. */
static trimtab_rank busy[RANKS];
static void wicked(void *into, const void *from, size_t count, void *context) {
    uint32_t me = *(uint32_t *)context;
    trimtab_request request;
    int number = 0;
    struct trimtab_collective call = trimtab_collective_of(TRIMTAB_ALLREDUCE, &number, &number, 1, TRIMTAB_I32, 0, 0, TRIMTAB_MINE);
    FAILS(TRIMTAB_ARGUMENT, trimtab_barrier(busy[me]));
    FAILS(TRIMTAB_ARGUMENT, trimtab_start(busy[me], &call, &request));
    FAILS(TRIMTAB_REFUSED, trimtab_rank_leave(busy[me]));
    for (size_t i = 0; i < count; i++) ((int *)into)[i] += ((const int *)from)[i];
}

static void inside(trimtab_rank rank, uint32_t me) {
    int one = 1;
    busy[me] = rank;
    struct trimtab_collective call = trimtab_collective_of(TRIMTAB_ALLREDUCE, &one, &one, 1, TRIMTAB_I32, 0, 0, TRIMTAB_MINE);
    call.own = wicked;
    call.context = &me;
    OK(trimtab_call(rank, &call));
    IS(one == RANKS);
}

/* A thread that ends while a call is under way whose buffers were on its stack. */
static void *ends(void *number) {
    trimtab_rank rank;
    OK(trimtab_team_join(team, (int64_t)(intptr_t)number, &rank));
    /* A thread that comes after another has left waiting is refused. */
    pthread_barrier_wait(&all_have_joined);
    if (number) {
        /* The other rank is in another call, which a checked barrier may notice first. */
        int code = trimtab_barrier(rank);
        IS(code == TRIMTAB_PEER_LEFT || (checked() && code == TRIMTAB_MISMATCH));
        return NULL;
    }
    char in[3000], out[3000];
    trimtab_request request;
    struct trimtab_collective call =
        trimtab_collective_of(TRIMTAB_ALLREDUCE, in, out, sizeof in, TRIMTAB_U8, TRIMTAB_SUM, 0, TRIMTAB_MINE);
    memset(in, 1, sizeof in);
    OK(trimtab_start(rank, &call, &request));
    return NULL;
}

static void blocks(trimtab_rank rank, uint32_t me) {
    trimtab_block from, to;
    void *mine, *sum, *next;
    FAILS(TRIMTAB_ARGUMENT, trimtab_alloc(rank, 64, NULL, &mine));
    if (me == 0) FAILS(TRIMTAB_ARGUMENT, trimtab_alloc(rank, 64, &from, NULL));
    OK(trimtab_alloc(rank, MANY * sizeof(uint64_t), &from, &mine));
    OK(trimtab_alloc(rank, MANY * sizeof(uint64_t), &to, &sum));
    for (int i = 0; i < MANY; i++) ((uint64_t *)mine)[i] = me + 1;
    OK(trimtab_allreduce(rank, mine, sum, MANY, TRIMTAB_U64, TRIMTAB_PROD, TRIMTAB_MINE));
    for (int i = 0; i < MANY; i++) IS(((uint64_t *)sum)[i] == 6);
    OK(trimtab_block_of(rank, from, (me + 1) % RANKS, &next));
    IS(*(uint64_t *)next == (me + 1) % RANKS + 1);
    OK(trimtab_barrier(rank));
    FAILS(TRIMTAB_ARGUMENT, trimtab_block_of(rank, from, RANKS, &next));
    OK(trimtab_block_free(rank, from));
    OK(trimtab_block_free(rank, to));
    FAILS(TRIMTAB_ARGUMENT, trimtab_block_free(rank, to));
}

/* Memory that rank 1 publishes and the others may not write; a child that tries is killed. */
static void views(trimtab_rank rank, uint32_t me) {
    trimtab_view view;
    const void *address;
    void *own = &view;
    FAILS(TRIMTAB_ARGUMENT, trimtab_publish(rank, RANKS, 8, &view, &address, &own));
    FAILS(TRIMTAB_ARGUMENT, trimtab_publish(rank, 1, 0, &view, &address, &own));
    FAILS(TRIMTAB_ARGUMENT, trimtab_publish(rank, 1, 8, NULL, &address, &own));
    FAILS(TRIMTAB_ARGUMENT, trimtab_publish(rank, me, 8, &view, &address, NULL));
    OK(trimtab_publish(rank, 1, MANY * sizeof(int), &view, &address, me == 0 ? NULL : &own));
    IS(me == 0 || (me == 1 && own) || (me == 2 && !own));
    for (int i = 0; me == 1 && i < MANY; i++) ((int *)own)[i] = 3 * i;
    OK(trimtab_barrier(rank));
    for (int i = 0; i < MANY; i++) IS(((const int *)address)[i] == 3 * i);
    if (me == 2) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            *(volatile int *)(uintptr_t)address = 5;
            _exit(0);
        }
        IS(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    }
    OK(trimtab_barrier(rank));
    if (me == 1) OK(trimtab_view_free(view));
    OK(trimtab_barrier(rank));
    IS(me == 1 || ((const int *)address)[1] == 3);
    if (me != 1) OK(trimtab_view_free(view));
    FAILS(TRIMTAB_ARGUMENT, trimtab_view_free(view));
}

static void what_cannot_be(trimtab_rank rank, uint32_t me) {
    int32_t numbers[8] = {0};
    char text[300];
    FAILS(TRIMTAB_ARGUMENT, trimtab_allreduce(rank, NULL, numbers, 4, TRIMTAB_I32, TRIMTAB_SUM, TRIMTAB_MINE));
    FAILS(TRIMTAB_ARGUMENT, trimtab_allreduce(rank, numbers, NULL, 4, TRIMTAB_I32, TRIMTAB_SUM, TRIMTAB_MINE));
    FAILS(TRIMTAB_ARGUMENT, trimtab_allreduce(rank, numbers, numbers + 1, 4, TRIMTAB_I32, TRIMTAB_SUM, TRIMTAB_MINE));
    FAILS(TRIMTAB_ARGUMENT, trimtab_allreduce(rank, numbers, numbers, 4, 12, TRIMTAB_SUM, TRIMTAB_MINE));
    FAILS(TRIMTAB_ARGUMENT, trimtab_allreduce(rank, numbers, numbers, 4, TRIMTAB_I32, 7, TRIMTAB_MINE));
    FAILS(TRIMTAB_ARGUMENT, trimtab_allreduce(rank, numbers, numbers, 4, TRIMTAB_F32, TRIMTAB_XOR, TRIMTAB_MINE));
    FAILS(TRIMTAB_ARGUMENT, trimtab_allreduce(rank, numbers, numbers, 4, TRIMTAB_I32, TRIMTAB_SUM, 3));
    FAILS(TRIMTAB_ARGUMENT, trimtab_allreduce(rank, numbers, numbers, (size_t)-1 / 2, TRIMTAB_I32, TRIMTAB_SUM, TRIMTAB_MINE));
    FAILS(TRIMTAB_ARGUMENT, trimtab_broadcast(rank, numbers, 4, TRIMTAB_I32, RANKS, TRIMTAB_MINE));
    FAILS(TRIMTAB_ARGUMENT, trimtab_alltoall(rank, numbers, numbers + 1, 1, TRIMTAB_I32, TRIMTAB_MINE));
    FAILS(TRIMTAB_ARGUMENT, trimtab_allgather(rank, numbers + (me + 1) % RANKS, numbers, 1, TRIMTAB_I32, TRIMTAB_MINE));
    FAILS(TRIMTAB_ARGUMENT, trimtab_call_varied(rank, NULL));
    struct trimtab_varied barrier = {sizeof barrier, TRIMTAB_BARRIER, TRIMTAB_I32, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL};
    FAILS(TRIMTAB_ARGUMENT, trimtab_call_varied(rank, &barrier));
    FAILS(TRIMTAB_ARGUMENT, trimtab_allgatherv(rank, numbers, 1, numbers, NULL, NULL, TRIMTAB_I32, TRIMTAB_MINE));
    FAILS(TRIMTAB_ARGUMENT, trimtab_call(rank, NULL));
    struct trimtab_collective call = trimtab_collective_of(99, numbers, numbers, 1, TRIMTAB_I32, 0, 0, TRIMTAB_MINE);
    FAILS(TRIMTAB_ARGUMENT, trimtab_call(rank, &call));
    call.size--;
    FAILS(TRIMTAB_ARGUMENT, trimtab_call(rank, &call));
    FAILS(TRIMTAB_ARGUMENT, trimtab_start(rank, &call, NULL));
    FAILS(TRIMTAB_ARGUMENT, trimtab_barrier(0));
    FAILS(TRIMTAB_ARGUMENT, trimtab_barrier(rank + 1000000));
    /* The handle of another thread. */
    FAILS(TRIMTAB_ARGUMENT, trimtab_barrier(ranks[(me + 1) % RANKS]));
    IS(strstr(trimtab_last_error(), "another thread"));
    FAILS(TRIMTAB_ARGUMENT, trimtab_rank_number(rank, NULL));
    FAILS(TRIMTAB_ARGUMENT, trimtab_split(rank, -2, 0, 0, &ranks[me]));
    FAILS(TRIMTAB_ARGUMENT, trimtab_explain(rank, TRIMTAB_ALLREDUCE, 8, text, 3));
    OK(trimtab_explain(rank, TRIMTAB_ALLREDUCE, 1 << 20, text, sizeof text));
    IS(strstr(text, "allreduce of 1048576 bytes"));
    /* None of this was a call of the team; a null pointer is not a call. */
    OK(trimtab_allreduce(rank, NULL, NULL, 0, TRIMTAB_I32, TRIMTAB_SUM, TRIMTAB_MINE));
    OK(trimtab_barrier(rank));
}

static void *work(void *number) {
    uint32_t me, size;
    trimtab_rank rank, part;
    OK(trimtab_team_join(team, (int64_t)(intptr_t)number, &rank));
    OK(trimtab_rank_number(rank, &me));
    OK(trimtab_rank_size(rank, &size));
    IS(me == (uint32_t)(intptr_t)number && size == RANKS);
    ranks[me] = rank;
    pthread_barrier_wait(&all_have_joined);
    collectives(rank, me);
    in_place(rank, me);
    varied(rank, me);
    hooked(rank, me);
    started(rank, me);
    inside(rank, me);
    blocks(rank, me);
    views(rank, me);
    what_cannot_be(rank, me);
    OK(trimtab_split(rank, me == 1 ? -1 : 0, -(int32_t)me, 4096, &part));
    IS((part == 0) == (me == 1));
    if (part) {
        uint32_t there;
        OK(trimtab_rank_number(part, &there));
        IS(there == (me == 0));
        OK(trimtab_barrier(part));
        OK(trimtab_rank_leave(part));
    }
    if (me == 1) {
        OK(trimtab_rank_leave(rank));
        FAILS(TRIMTAB_ARGUMENT, trimtab_barrier(rank));
        FAILS(TRIMTAB_ARGUMENT, trimtab_rank_leave(rank));
        return NULL;
    }
    FAILS(TRIMTAB_PEER_LEFT, trimtab_barrier(rank));
    IS(strstr(trimtab_last_error(), "rank 1"));
    trimtab_rank left;
    OK(trimtab_shrink(rank, 10000000000, &left));
    FAILS(TRIMTAB_ARGUMENT, trimtab_barrier(rank));
    OK(trimtab_rank_size(left, &size));
    IS(size == 2);
    OK(trimtab_barrier(left));
    /* Different calls end the team, and all of its ranks make it usable again. */
    trimtab_rank usable;
    int code = TRIMTAB_OK;
    while (code == TRIMTAB_OK) {
        uint64_t value = 1;
        code = me == 0 ? trimtab_barrier(left) : trimtab_broadcast(left, &value, 1, TRIMTAB_U64, 0, TRIMTAB_MINE);
    }
    IS(code == TRIMTAB_MISMATCH);
    /* The calls of all ranks: in the error's text if calls are checked. */
    IS((strstr(trimtab_last_error(), "its last calls") != NULL) == checked());
    char report[4096];
    OK(trimtab_report(left, report, sizeof report));
    IS(strstr(report, "rank 0") && strstr(report, "rank 1") && strstr(report, "broadcast of 1 u64 with root 0"));
    FAILS(TRIMTAB_ARGUMENT, trimtab_report(left, report, 9));
    OK(trimtab_recover(left, 10000000000, &usable));
    FAILS(TRIMTAB_ARGUMENT, trimtab_barrier(left));
    OK(trimtab_barrier(usable));
    /* A rank that was not left leaves when its thread ends. */
    return NULL;
}

/* A rank in a process of its own. */
static int process(void) {
    trimtab_team inherited;
    trimtab_rank rank;
    uint32_t number;
    OK(trimtab_team_inherited(&inherited, &number));
    OK(trimtab_team_join(inherited, number, &rank));
    uint64_t sum = number + 1;
    OK(trimtab_allreduce(rank, &sum, &sum, 1, TRIMTAB_U64, TRIMTAB_SUM, TRIMTAB_MINE));
    IS(sum == 3);
    if (number == 1) kill(getpid(), 9);
    FAILS(TRIMTAB_PEER_DIED, trimtab_barrier(rank));
    IS(strstr(trimtab_last_error(), "rank 1"));
    return 7;
}

static void processes(const char *program) {
    struct trimtab_team_options options;
    trimtab_team pair;
    pid_t children[2];
    int status;
    OK(trimtab_team_options_init(&options, 2));
    OK(trimtab_team_new(&options, &pair));
    for (uint32_t number = 0; number < 2; number++) {
        char invitation[64];
        OK(trimtab_team_invitation(pair, number, invitation, sizeof invitation));
        if ((children[number] = fork()) == 0) {
            putenv(invitation);
            execl(program, program, "rank", (char *)NULL);
            _exit(9);
        }
    }
    IS(waitpid(children[0], &status, 0) == children[0] && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    IS(waitpid(children[1], &status, 0) == children[1] && WIFSIGNALED(status));
    OK(trimtab_team_free(pair));
    FAILS(TRIMTAB_ARGUMENT, trimtab_team_free(pair));
}

/* Ranks of the process: joined by threads that end, used by others. */
static void *joins(void *number) {
    uint32_t me = (uint32_t)(intptr_t)number;
    OK(trimtab_team_join_process(team, me, &ranks[me]));
    return NULL;
}

static void *uses(void *number) {
    uint32_t me = (uint32_t)(intptr_t)number;
    for (int round = 0; round < 100; round++) {
        int64_t value = me + round, sum = 0;
        OK(trimtab_allreduce(ranks[me], &value, &sum, 1, TRIMTAB_I64, TRIMTAB_SUM, TRIMTAB_MINE));
        IS(sum == 1 + 2 * round);
    }
    return NULL;
}

static void ranks_of_the_process(void) {
    struct trimtab_team_options options;
    pthread_t threads[2];
    OK(trimtab_team_options_init(&options, 2));
    OK(trimtab_team_new(&options, &team));
    FAILS(TRIMTAB_ARGUMENT, trimtab_team_join_process(team, 2, &ranks[0]));
    FAILS(TRIMTAB_ARGUMENT, trimtab_team_join_process(team, 0, NULL));
    for (intptr_t turn = 0; turn < 3; turn++) {
        for (intptr_t i = 0; i < 2; i++) pthread_create(&threads[i], NULL, turn ? uses : joins, (void *)i);
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    }
    int status;
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        FAILS(TRIMTAB_FORKED, trimtab_barrier(ranks[0]));
        _exit(0);
    }
    IS(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (int i = 0; i < 2; i++) OK(trimtab_rank_leave(ranks[i]));
    FAILS(TRIMTAB_ARGUMENT, trimtab_rank_leave(ranks[0]));
    OK(trimtab_team_free(team));
}

/* A child that is forked while other threads use the table of teams finds the table consistent. */
static volatile int looking;
static void *looks(void *nothing) {
    char invitation[64];
    (void)nothing;
    while (looking) OK(trimtab_team_invitation(team, 0, invitation, sizeof invitation));
    return NULL;
}

static void forks_while_others_look(void) {
    pthread_t threads[3];
    looking = 1;
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, looks, NULL);
    for (int i = 0; i < 60; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            char invitation[64];
            alarm(20);
            OK(trimtab_team_invitation(team, 0, invitation, sizeof invitation));
            OK(trimtab_team_free(team));
            _exit(0);
        }
        IS(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    looking = 0;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}

int main(int count, char **words) {
    if (count > 1) return process();
    struct trimtab_team_options options;
    pthread_t threads[RANKS];
    FAILS(TRIMTAB_REFUSED, trimtab_team_inherited(&team, &options.ranks));
    FAILS(TRIMTAB_ARGUMENT, trimtab_team_options_init(NULL, 1));
    FAILS(TRIMTAB_ARGUMENT, trimtab_team_new(NULL, &team));
    OK(trimtab_team_options_init(&options, 0));
    FAILS(TRIMTAB_ARGUMENT, trimtab_team_new(&options, &team));
    options.ranks = RANKS;
    options.wait = 4;
    FAILS(TRIMTAB_ARGUMENT, trimtab_team_new(&options, &team));
    options.wait = TRIMTAB_WAIT_AUTO;
    options.heap = ((size_t)1 << 40) - ((size_t)1 << 30);
    FAILS(TRIMTAB_NO_MEMORY, trimtab_team_new(&options, &team));
    options.heap = 1 << 20;
    options.size--;
    FAILS(TRIMTAB_ARGUMENT, trimtab_team_new(&options, &team));
    IS(strstr(trimtab_last_error(), "not that of any version"));
    options.size += 9;
    FAILS(TRIMTAB_ARGUMENT, trimtab_team_new(&options, &team));
    IS(strstr(trimtab_last_error(), "later header"));
    options.size -= 8;
    struct trimtab_team_options untouched = options;
    FAILS(TRIMTAB_ARGUMENT, trimtab_team_options_fill(&untouched, sizeof untouched - 8, 9));
    FAILS(TRIMTAB_ARGUMENT, trimtab_team_options_fill(&untouched, sizeof untouched + 8, 9));
    IS(!memcmp(&untouched, &options, sizeof options));
    OK(trimtab_team_new(&options, &team));
    forks_while_others_look();
    FAILS(TRIMTAB_ARGUMENT, trimtab_team_join(team, RANKS, &ranks[0]));
    FAILS(TRIMTAB_ARGUMENT, trimtab_team_join(team, -5, &ranks[0]));
    trimtab_team job;
    FAILS(TRIMTAB_ARGUMENT, trimtab_team_of_job(RANKS, "x", &options, &job));
    FAILS(TRIMTAB_ARGUMENT, trimtab_team_of_job(0, NULL, &options, &job));
    FAILS(TRIMTAB_ARGUMENT, trimtab_team_of_job(0, "x", NULL, &job));
    FAILS(TRIMTAB_ARGUMENT, trimtab_team_of_job(0, "x", &options, NULL));
    IS(!strcmp(trimtab_error_text(-1), "no such code") && !strcmp(trimtab_error_text(15), "no such code"));
    pthread_barrier_init(&all_have_joined, NULL, RANKS);
    for (intptr_t i = 0; i < RANKS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < RANKS; i++) pthread_join(threads[i], NULL);
    OK(trimtab_team_free(team));
    options.ranks = 2;
    OK(trimtab_team_new(&options, &team));
    pthread_barrier_destroy(&all_have_joined);
    pthread_barrier_init(&all_have_joined, NULL, 2);
    for (intptr_t i = 0; i < 2; i++) pthread_create(&threads[i], NULL, ends, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    OK(trimtab_team_free(team));
    ranks_of_the_process();
    processes(words[0]);
    return 0;
}
