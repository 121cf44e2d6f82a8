/*
 * The micro-benchmark of placement: private lists and shared lines.
 *
 * Problem: placement changes the time that a thread's loads wait beyond its own core:
 * for memory of another node, for a last-level cache or memory controller that other
 * threads use too, for lines that others write.  One program produces all three in
 * adjustable amounts.
 *
 * Method: every thread walks a list of its own (list.h), whose size decides which
 * level of the hierarchy answers.  After a given number of turns it adds to a random
 * line of an area that all threads share, with one atomic instruction.  After a given
 * number of turns it may wait for the others at a barrier, spinning or otherwise.  A
 * turn moves each chain by one node; a step is one node.  With a list of another size
 * for the first thread, the others wait for it at each barrier: most of the counted
 * events are then those of waiting threads.
 *
 * A parent that counts hardware events of the threads can do so for exactly the
 * measured window: with --wait the program names its threads, and then waits for a
 * line on stdin before every window and before its end.  Until the line arrives all
 * threads sleep.
 *
 * With a pause, threads sleep now and then, so that many of them can be observed at
 * work on a few CPUs.
 *
 * Memory: the private bytes of each thread and the shared ones.
 *
 * Source: J. Rao, K. Wang, X. Zhou and C. Xu, "Optimizing Virtual Machine Scheduling
 * in NUMA Multicore Systems", HPCA 2013: the micro-benchmark's idea and its three
 * parameters (threads, private set, shared size).
 */
#define _GNU_SOURCE

#include "balance/barrier.h"
#include "balance/clock.h"
#include "balance/options.h"
#include "common/memory.h"
#include "common/output.h"
#include "common/report.h"
#include "uncore/list.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 1024
/* Turns between two readings of the clock. */
#define BLOCK 2048

enum touch { TOUCH_OWN, TOUCH_FIRST };
enum pages { PAGES_DEFAULT, PAGES_HUGE, PAGES_SMALL };

static const char *const order_words[] = {"random", "sequential", NULL};
static const char *const touch_words[] = {"own", "first", NULL};
static const char *const page_words[] = {"default", "huge", "small", NULL};

static const struct balance_program program = {"uncore_lists", "private lists and shared lines"};

/* Values of the options. */
static struct {
    long long threads;
    long long private_bytes;
    long long first_bytes; /* of thread 0, if not as private_bytes */
    long long chains;
    long long shared_bytes;
    long long every;
    long long phase;
    long long turns;
    double seconds;
    double pause; /* seconds between two blocks of turns */
    long long repeats;
    struct counts cpus;
    struct counts start;
    long long home; /* a CPU, or none */
    int order, touch, pages, barrier;
    bool wait;
} asked = {.threads = 1, .private_bytes = 4 << 20, .first_bytes = -1, .chains = 1, .every = 1, .seconds = 0.2, .repeats = 1, .home = -1};

struct shared_line {
    _Alignas(LINE_BYTES) uint64_t sum;
};

/* A thread, and its results in the last window. */
struct worker {
    _Alignas(LINE_BYTES) struct list list;
    struct node *heads[CHAINS_MAX];
    uint64_t starts[CHAINS_MAX]; /* the places where the chains began, ever */
    uint64_t all_turns;          /* of all windows */
    uint64_t random;
    bool sound;                  /* the list visits all nodes once */
    pid_t tid;
    int error;                   /* of binding it to its CPU */
    uint64_t turns;
    uint64_t adds;
    double began, ended;         /* on CLOCK_MONOTONIC */
    double cpu;                  /* CPU seconds */
    int on;                      /* the CPU it ended on */
};

static struct worker *workers;
static cpu_set_t own_mask; /* of the program when it started; read only for --start */
static struct shared_line *shared;
static size_t shared_lines;
static struct barrier phases;
static pthread_barrier_t gate;
static bool leaving;                 /* read after the gate only */
static _Atomic uint64_t last_phase;  /* of this window, once thread 0 has decided */

/* One function for each number of chains, so that their heads stay in registers. */
static inline __attribute__((always_inline)) void walk(struct worker *worker, uint64_t turns,
                                                       int chains)
{
    struct node *at[CHAINS_MAX];
    for (int c = 0; c < chains; c++)
        at[c] = worker->heads[c];
    for (uint64_t turn = 0; turn < turns; turn++)
        for (int c = 0; c < chains; c++)
            at[c] = at[c]->next;
    for (int c = 0; c < chains; c++)
        worker->heads[c] = at[c];
}

static void walk_chains(struct worker *worker, uint64_t turns)
{
    switch (worker->list.length == 0 ? 0 : asked.chains) {
    case 1: walk(worker, turns, 1); break;
    case 2: walk(worker, turns, 2); break;
    case 3: walk(worker, turns, 3); break;
    case 4: walk(worker, turns, 4); break;
    case 5: walk(worker, turns, 5); break;
    case 6: walk(worker, turns, 6); break;
    case 7: walk(worker, turns, 7); break;
    case 8: walk(worker, turns, 8); break;
    default: break;
    }
}

static void add_to_shared(struct worker *worker)
{
    __atomic_add_fetch(&shared[random_below(&worker->random, shared_lines)].sum, 1,
                       __ATOMIC_SEQ_CST);
    worker->adds++;
}

/* Makes this number of turns, with the additions that fall among them. */
static void work(struct worker *worker, uint64_t turns)
{
    const uint64_t every = (uint64_t)asked.every;
    const uint64_t end = worker->all_turns + turns;
    if (shared_lines == 0) {
        walk_chains(worker, turns);
    } else {
        for (uint64_t turn = worker->all_turns; turn < end;) {
            const uint64_t due = every - turn % every;
            const uint64_t now = due < end - turn ? due : end - turn;
            walk_chains(worker, now);
            turn += now;
            if (now == due)
                add_to_shared(worker);
        }
    }
    worker->all_turns = end;
    worker->turns += turns;
}

/* The bytes of a thread's list. */
static long long bytes_of(size_t number)
{
    return number == 0 && asked.first_bytes >= 0 ? asked.first_bytes : asked.private_bytes;
}

static void pause_for(double seconds)
{
    if (seconds <= 0)
        return;
    const double whole = floor(seconds);
    const struct timespec time = {(time_t)whole, (long)(1e9 * (seconds - whole))};
    nanosleep(&time, NULL);
}

/* One window: a number of turns, or of seconds. */
static void measure(struct worker *worker)
{
    const bool by_time = asked.turns == 0;
    const uint64_t block = asked.phase > 0 ? (uint64_t)asked.phase : BLOCK;
    const uint64_t turns = (uint64_t)asked.turns;
    worker->turns = 0;
    worker->adds = 0;
    const double cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    worker->began = seconds_of(CLOCK_MONOTONIC);
    for (uint64_t phase = 1;; phase++) {
        work(worker, by_time || turns - worker->turns > block ? block : turns - worker->turns);
        const bool over = by_time ? seconds_of(CLOCK_MONOTONIC) - worker->began >= asked.seconds
                                  : worker->turns == turns;
        if (!over)
            pause_for(asked.pause);
        if (asked.phase == 0) {
            if (over)
                break;
            continue;
        }
        /* All threads must leave at the same barrier: thread 0 publishes the last phase before
         * it arrives. */
        if (worker == workers && over)
            atomic_store(&last_phase, phase);
        barrier_wait(&phases);
        if (phase >= atomic_load(&last_phase))
            break;
    }
    worker->ended = seconds_of(CLOCK_MONOTONIC);
    worker->cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID) - cpu;
    worker->on = sched_getcpu();
}

static void prepare(struct worker *worker)
{
    if (worker->list.length == 0) {
        worker->sound = true;
        return;
    }
    link_list(&worker->list, (enum order)asked.order, (uint64_t)(worker - workers) + 1);
    worker->sound = visits_all_once(&worker->list);
    for (long long c = 0; c < asked.chains; c++) {
        worker->starts[c] = worker->list.length * (uint64_t)c / (uint64_t)asked.chains;
        worker->heads[c] = node_at(&worker->list, worker->starts[c]);
    }
}

static int bind_to(long long cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    return pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

/* Moves this thread to a CPU, and leaves it there with the mask that the program had. */
static int begin_on(long long cpu)
{
    const int error = bind_to(cpu);
    if (error != 0)
        return error;
    while (sched_getcpu() != (int)cpu)
        sched_yield();
    return pthread_setaffinity_np(pthread_self(), sizeof own_mask, &own_mask);
}

static void *run(void *argument)
{
    struct worker *worker = argument;
    const size_t number = (size_t)(worker - workers);
    worker->tid = (pid_t)syscall(SYS_gettid);
    worker->random = number + 1;
    const long long cpu = asked.cpus.length > 0 ? asked.cpus.values[number % asked.cpus.length] : -1;
    const long long first = asked.home >= 0 ? asked.home : cpu;
    if (first >= 0)
        worker->error = bind_to(first);
    if (asked.touch == TOUCH_OWN) {
        prepare(worker);
    } else if (number == 0) {
        for (long long i = 0; i < asked.threads; i++)
            prepare(&workers[i]);
    }
    if (worker->error == 0 && cpu >= 0 && cpu != first)
        worker->error = bind_to(cpu);
    if (worker->error == 0 && asked.start.length > 0)
        worker->error = begin_on(asked.start.values[number % asked.start.length]);
    pthread_barrier_wait(&gate); /* all are ready */
    for (;;) {
        pthread_barrier_wait(&gate); /* the window opens */
        if (leaving)
            return NULL;
        measure(worker);
        pthread_barrier_wait(&gate); /* and is closed */
    }
}

static void *map_lines(size_t bytes)
{
    void *area = allocate_untouched(bytes, 1);
    if (asked.pages != PAGES_DEFAULT &&
        madvise(area, bytes, asked.pages == PAGES_HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) != 0)
        give_up(&program, "this kernel has no transparent huge pages to ask for (--pages default asks nothing)");
    return area;
}

/* Sleeps until a line arrives; false at the end of stdin. */
static bool line_comes(void)
{
    int c;
    while ((c = getchar()) != EOF)
        if (c == '\n')
            return true;
    return false;
}

/* Whether each chain stands where its turns have brought it, and the shared lines hold all
 * additions. */
static bool all_right(uint64_t all_adds)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < shared_lines; i++)
        sum += shared[i].sum;
    bool right = sum == all_adds;
    for (long long i = 0; i < asked.threads; i++) {
        const struct worker *worker = &workers[i];
        right = right && worker->sound;
        for (long long c = 0; c < asked.chains && worker->list.length > 0; c++)
            right = right && worker->heads[c]->place ==
                                 (worker->starts[c] + worker->all_turns) % worker->list.length;
    }
    return right;
}

/* Nodes that a thread visited. */
static uint64_t steps_of(const struct worker *worker)
{
    return worker->list.length > 0 ? worker->turns * (uint64_t)asked.chains : 0;
}

static void print_amount(uint64_t turns, uint64_t steps, uint64_t adds, double seconds, double cpu, long long threads)
{
    printf(",\"turns\":%llu,\"steps\":%llu,\"adds\":%llu,\"seconds\":", (unsigned long long)turns,
           (unsigned long long)steps, (unsigned long long)adds);
    print_json_number(seconds);
    printf(",\"cpu_seconds\":");
    print_json_number(cpu);
    /* For one thread: nanoseconds per turn, elapsed and of CPU time. */
    printf(",\"turn_ns\":");
    print_json_number(1e9 * seconds * (double)threads / (double)turns);
    printf(",\"turn_cpu_ns\":");
    print_json_number(1e9 * cpu / (double)turns);
}

static bool print_window(long long window, uint64_t *all_adds)
{
    uint64_t turns = 0;
    uint64_t steps = 0;
    uint64_t adds = 0;
    double cpu = 0.0;
    double began = workers[0].began;
    double ended = workers[0].ended;
    for (long long i = 0; i < asked.threads; i++) {
        const struct worker *worker = &workers[i];
        printf("{\"kernel\":\"uncore_lists\",\"window\":%lld,\"thread\":%lld,\"tid\":%d,\"cpu\":%d", window, i,
               (int)worker->tid, worker->on);
        print_amount(worker->turns, steps_of(worker), worker->adds, worker->ended - worker->began, worker->cpu, 1);
        printf("}\n");
        turns += worker->turns;
        steps += steps_of(worker);
        adds += worker->adds;
        cpu += worker->cpu;
        began = worker->began < began ? worker->began : began;
        ended = worker->ended > ended ? worker->ended : ended;
    }
    *all_adds += adds;
    const bool right = all_right(*all_adds);
    printf("{\"kernel\":\"uncore_lists\",\"window\":%lld,\"threads\":%lld,\"private\":%lld,\"first\":%lld,\"chains\":%lld,\"order\":\"%s\"",
           window, asked.threads, asked.private_bytes, bytes_of(0), asked.chains, order_words[asked.order]);
    printf(",\"shared\":%lld,\"every\":%lld,\"phase\":%lld,\"barrier\":\"%s\",\"touch\":\"%s\",\"pages\":\"%s\"", asked.shared_bytes,
           asked.every, asked.phase, wait_words[asked.barrier], touch_words[asked.touch], page_words[asked.pages]);
    print_amount(turns, steps, adds, ended - began, cpu, asked.threads);
    printf(",\"verified\":%s}\n", right ? "true" : "false");
    fflush(stdout);
    return right;
}

static void read_command_line(int argc, char **argv)
{
    const double bytes = 1e12;
    const struct balance_option options[] = {
        {"--threads", "how many threads", OPTION_COUNT, &asked.threads, 1, THREADS_MAX, NULL},
        {"--private", "bytes of each thread's list, 0 for none", OPTION_COUNT, &asked.private_bytes, 0, bytes, NULL},
        {"--first", "bytes of the first thread's list, if not as the others'", OPTION_COUNT, &asked.first_bytes, 0, bytes, NULL},
        {"--chains", "independent walks through it at a time", OPTION_COUNT, &asked.chains, 1, CHAINS_MAX, NULL},
        {"--order", "of the nodes in memory", OPTION_WORD, &asked.order, 0, 0, order_words},
        {"--share", "bytes of the lines that all threads add to, 0 for none", OPTION_COUNT, &asked.shared_bytes, 0, 1e11, NULL},
        {"--every", "turns from one addition to the next", OPTION_COUNT, &asked.every, 1, 1e9, NULL},
        {"--phase", "turns between two barriers, 0 for none", OPTION_COUNT, &asked.phase, 0, 1e12, NULL},
        {"--barrier", "how threads wait at barriers", OPTION_WORD, &asked.barrier, 0, 0, wait_words},
        {"--turns", "of each thread in a window; 0 to go by --seconds", OPTION_COUNT, &asked.turns, 0, 1e15, NULL},
        {"--seconds", "of a window", OPTION_NUMBER, &asked.seconds, 1e-6, 3600, NULL},
        {"--pause", "seconds that a thread sleeps after each 2048 turns, or each phase", OPTION_NUMBER, &asked.pause, 0, 3600, NULL},
        {"--repeats", "how many windows", OPTION_COUNT, &asked.repeats, 1, 1e6, NULL},
        {"--cpus", "thread i is bound to the CPU number i of this list, as 0,2", OPTION_LIST, &asked.cpus, 0, CPU_SETSIZE - 1, NULL},
        {"--home", "the CPU where threads are bound while they write their lists, needs --cpus or --start", OPTION_COUNT, &asked.home, 0, CPU_SETSIZE - 1, NULL},
        {"--start", "thread i begins on the CPU number i of this list, and may then be moved", OPTION_LIST, &asked.start, 0, CPU_SETSIZE - 1, NULL},
        {"--touch", "which thread writes a list first", OPTION_WORD, &asked.touch, 0, 0, touch_words},
        {"--pages", "transparent huge pages", OPTION_WORD, &asked.pages, 0, 0, page_words},
        {"--wait", "wait for a line on stdin before each window and before the end", OPTION_FLAG, &asked.wait, 0, 0, NULL},
    };
    parse_options(&program, options, sizeof options / sizeof options[0], argc, argv);
}

static void start_workers(void)
{
    const size_t threads = (size_t)asked.threads;
    shared_lines = (size_t)asked.shared_bytes / LINE_BYTES;
    bool lists = true;
    for (size_t i = 0; i < threads; i++) {
        const size_t length = (size_t)bytes_of(i) / LINE_BYTES;
        if ((bytes_of(i) > 0 && length < (size_t)asked.chains) || (asked.shared_bytes > 0 && shared_lines == 0))
            give_up(&program, "a list needs a line of 64 bytes for each chain, and a shared area one at least");
        if (length >= UINT32_MAX || shared_lines >= UINT32_MAX)
            give_up(&program, "a list has less than 2^32 nodes");
        lists = lists && length > 0;
    }
    if (asked.home >= 0 && asked.cpus.length == 0 && asked.start.length == 0)
        give_up(&program, "--home needs --cpus or --start, where the threads then go");
    if (asked.cpus.length > 0 && asked.start.length > 0)
        give_up(&program, "--cpus binds threads, which --start does not: only one of them can be given");
    if (asked.start.length > 0 && sched_getaffinity(0, sizeof own_mask, &own_mask) != 0)
        give_up(&program, "the CPUs that this program may use cannot be read");
    if (!lists && shared_lines == 0)
        give_up(&program, "nothing to do: neither a list nor --share has bytes");
    require_memory((double)asked.private_bytes * (double)(asked.threads - 1) + (double)bytes_of(0) + (double)asked.shared_bytes);
    workers = aligned_alloc(_Alignof(struct worker), threads * sizeof *workers);
    if (workers == NULL || pthread_barrier_init(&gate, NULL, (unsigned)threads + 1) != 0)
        give_up(&program, "not enough memory");
    phases = (struct barrier){.threads = (unsigned)threads, .wait = (enum wait)asked.barrier};
    if (shared_lines > 0)
        shared = map_lines(shared_lines * LINE_BYTES);
    for (size_t i = 0; i < threads; i++) {
        const size_t length = (size_t)bytes_of(i) / LINE_BYTES;
        workers[i] = (struct worker){.list = {.length = length}};
        if (length > 0)
            workers[i].list.nodes = map_lines(length * LINE_BYTES);
    }
}

int main(int argc, char **argv)
{
    read_command_line(argc, argv);
    start_workers();
    pthread_t *handles = calloc((size_t)asked.threads, sizeof *handles);
    if (handles == NULL)
        give_up(&program, "not enough memory");
    for (long long i = 0; i < asked.threads; i++)
        if (pthread_create(&handles[i], NULL, run, &workers[i]) != 0)
            give_up(&program, "cannot start all threads");
    pthread_barrier_wait(&gate);
    for (long long i = 0; i < asked.threads; i++)
        if (workers[i].error != 0)
            give_up(&program, "cannot bind a thread to its CPU of --cpus, --start or --home: it is not there, or not allowed here");
    printf("threads");
    for (long long i = 0; i < asked.threads; i++)
        printf(" %d", (int)workers[i].tid);
    printf("\n");
    fflush(stdout);

    bool verified = true;
    uint64_t all_adds = 0;
    for (long long window = 0; window < asked.repeats; window++) {
        if (asked.wait && !line_comes())
            give_up(&program, "stdin ended before all windows were measured");
        atomic_store(&last_phase, UINT64_MAX);
        pthread_barrier_wait(&gate);
        pthread_barrier_wait(&gate);
        verified = print_window(window, &all_adds) && verified;
    }
    if (asked.wait)
        (void)line_comes(); /* the end of stdin is as good a sign */
    leaving = true;
    pthread_barrier_wait(&gate);
    for (long long i = 0; i < asked.threads; i++)
        pthread_join(handles[i], NULL);
    free(handles);
    free(workers);
    return finish_output(verified);
}
