/*
 * Verifying, calibrating, timing and reporting.  See measure.h.
 */
#define _GNU_SOURCE

#include "team/measure.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Calls that are verified before the timed ones.  MPICH changes its algorithm after a few. */
#define WARM_UP 12
/* Largest number of ranks that arrive late, one after the other, at a barrier
 * that is verified. */
#define LATE_MAX 8
/* Delay of a late rank. */
#define LATE_NANOSECONDS 300000
/* The kernel counts a machine's CPU time in ticks of 10 ms: shares of it are computed over at least ten. */
#define WINDOW 0.1

static const char *const op_words[OP_COUNT] = {"barrier", "bcast", "allreduce", "alltoall"};

/* The machine and this team at one moment, in seconds. */
struct moment {
    double at;
    double busy; /* of all CPUs, since the machine was started; negative if it cannot be read */
    double own;  /* CPU time of all ranks */
};

struct batch {
    double began;
    double ended;
    double us;
    double cpu_us;
};

/* Results that rank 0 keeps until they can be printed. */
struct record {
    struct moment *moments; /* before the first call, before the first batch, then after each batch */
    struct batch *batches;
    int done;
    int printed;
};

/* CPU time of this rank, including all threads of its library. */
static double cpu_time(const struct peer *peer)
{
    return seconds_of(peer->processes ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_THREAD_CPUTIME_ID);
}

/* Fresh pages, so that the rank that writes them first has them on its own node. */
static unsigned char *buffer(const struct cell *cell)
{
    void *fresh = mmap(NULL, buffer_bytes(cell), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED)
        cannot("get memory for the buffers");
    return fresh;
}

size_t buffer_bytes(const struct cell *cell)
{
    const size_t bytes = cell->bytes > 0 ? cell->bytes : sizeof(double);
    return cell->op == OP_ALLTOALL ? bytes * (size_t)cell->ranks : bytes;
}

/* Byte i of a block from one rank to another: different for neighbouring ranks and bytes, and from one batch to the
 * next. */
static unsigned char byte_of(unsigned seed, int from, int to, size_t i)
{
    return (unsigned char)(seed * 59U + (unsigned)from * 31U + (unsigned)to * 17U + (unsigned)(i + (i >> 8)) * 3U);
}

/* Small integers, so that sums are exact in any order. */
static double number_of(unsigned seed, size_t i)
{
    return (double)((i + seed) % 17);
}

static void fill_bytes(unsigned char *to_fill, size_t bytes, unsigned seed, int from, int to)
{
    for (size_t i = 0; i < bytes; i++)
        to_fill[i] = byte_of(seed, from, to, i);
}

static bool are_bytes(const unsigned char *bytes, size_t count, unsigned seed, int from, int to)
{
    unsigned char differing = 0;
    for (size_t i = 0; i < count; i++)
        differing |= (unsigned char)(bytes[i] ^ byte_of(seed, from, to, i));
    return differing == 0;
}

/* Rewrites all buffers: the data to send, and values that cannot be the result. */
static void fill(const struct rank *rank, unsigned seed)
{
    const struct cell *cell = rank->cell;
    if (cell->op == OP_BARRIER)
        return;
    memset(rank->out, 0xff, buffer_bytes(cell)); /* of doubles: not a number */
    if (cell->op == OP_BCAST) {
        /* The other ranks use another seed, none of whose bytes is right. */
        fill_bytes(rank->in, cell->bytes, rank->me == 0 ? seed : seed + 1, 0, 0);
    } else if (cell->op == OP_ALLREDUCE) {
        double *numbers = (double *)(void *)rank->in;
        for (size_t i = 0; i < cell->bytes / sizeof(double); i++)
            numbers[i] = number_of(seed, i) + rank->me;
    } else {
        for (int to = 0; to < cell->ranks; to++)
            fill_bytes(rank->in + (size_t)to * cell->bytes, cell->bytes, seed, rank->me, to);
    }
}

static bool is_right(const struct rank *rank, unsigned seed)
{
    const struct cell *cell = rank->cell;
    bool right = true;
    if (cell->op == OP_BCAST) {
        right = are_bytes(rank->in, cell->bytes, seed, 0, 0);
    } else if (cell->op == OP_ALLREDUCE) {
        const double *sums = (const double *)(const void *)rank->out;
        const double ranks = cell->ranks;
        for (size_t i = 0; i < cell->bytes / sizeof(double); i++)
            right &= sums[i] == ranks * number_of(seed, i) + ranks * (ranks - 1.0) / 2.0;
    } else if (cell->op == OP_ALLTOALL) {
        for (int from = 0; from < cell->ranks; from++)
            right &= are_bytes(rank->out + (size_t)from * cell->bytes, cell->bytes, seed, from, rank->me);
    }
    return right;
}

/* Whether the value is true at all ranks; each rank gets the answer. */
static bool all_say(const struct peer *peer, struct rank *rank, bool so, double *all)
{
    const double mine = so ? 1.0 : 0.0;
    bool everyone = true;
    peer->gather(rank, &mine, 1, all);
    for (int i = 0; i < rank->cell->ranks; i++)
        everyone &= all[i] > 0.0;
    return everyone;
}

/* Verifies that no rank leaves a barrier before the last one has arrived, whichever is last.  All ranks
 * use the machine's clock. */
static bool barrier_holds(const struct peer *peer, struct rank *rank, double *all)
{
    const int ranks = rank->cell->ranks;
    bool holds = true;
    for (int late = 0; late < ranks && late < LATE_MAX; late++) {
        if (rank->me == ranks - 1 - late)
            nanosleep(&(struct timespec){.tv_nsec = LATE_NANOSECONDS}, NULL);
        double times[2] = {now(), 0.0};
        peer->operate[OP_BARRIER](rank);
        times[1] = now();
        peer->gather(rank, times, 2, all);
        double last_came = all[0];
        double first_left = all[1];
        for (int i = 1; i < ranks; i++) {
            last_came = all[2 * i] > last_came ? all[2 * i] : last_came;
            first_left = all[2 * i + 1] < first_left ? all[2 * i + 1] : first_left;
        }
        holds &= last_came <= first_left;
    }
    return holds;
}

/* Makes the first calls: each with other values, each verified. */
static bool warm_up(const struct peer *peer, struct rank *rank, double *all)
{
    bool right = barrier_holds(peer, rank, all);
    for (unsigned seed = 0; seed < WARM_UP; seed++) {
        fill(rank, seed);
        peer->operate[rank->cell->op](rank);
        right &= is_right(rank, seed);
    }
    return all_say(peer, rank, right, all);
}

static void call(const struct peer *peer, struct rank *rank, uint64_t calls)
{
    operation *const operate = peer->operate[rank->cell->op];
    operation *const barrier = peer->operate[OP_BARRIER];
    if (!rank->cell->strict || rank->cell->op == OP_BARRIER) {
        for (uint64_t i = 0; i < calls; i++)
            operate(rank);
        return;
    }
    for (uint64_t i = 0; i < calls; i++) {
        barrier(rank);
        operate(rank);
        barrier(rank);
    }
}

/* Returns the seconds of the slowest rank; sets the CPU seconds of all ranks, and their total CPU seconds so
 * far. */
static double timed(const struct peer *peer, struct rank *rank, uint64_t calls, double *all, double *cpu, double *own)
{
    peer->operate[OP_BARRIER](rank);
    const double cpu_began = cpu_time(peer);
    const double began = now();
    call(peer, rank, calls);
    const double ended = now();
    const double cpu_ended = cpu_time(peer);
    const double mine[3] = {ended - began, cpu_ended - cpu_began, cpu_ended};
    peer->gather(rank, mine, 3, all);
    double slowest = 0.0;
    *cpu = *own = 0.0;
    for (int i = 0; i < rank->cell->ranks; i++) {
        slowest = all[3 * i] > slowest ? all[3 * i] : slowest;
        *cpu += all[3 * i + 1];
        *own += all[3 * i + 2];
    }
    return slowest;
}

/*
 * Number of calls in a batch.  All ranks know the time of the slowest one and so
 * compute the same number.  The shortest of three runs counts: one that was
 * interrupted would make all batches too short.
 */
static uint64_t calibrate(const struct peer *peer, struct rank *rank, double *all)
{
    const double wanted = rank->cell->seconds;
    for (uint64_t calls = 1;; calls *= 2) {
        double least = wanted;
        for (int run = 0; run < 3 && least >= wanted / 2.0; run++) {
            double cpu, own;
            const double seconds = timed(peer, rank, calls, all, &cpu, &own);
            least = run == 0 || seconds < least ? seconds : least;
        }
        if (least >= wanted / 2.0) {
            const uint64_t enough = (uint64_t)((double)calls * wanted / least + 0.5);
            return enough > 0 ? enough : 1;
        }
    }
}

/* Share of the machine that other processes used around a batch: over the batch, and over as many neighbours
 * as the window needs. */
static double foreign(const struct record *record, int batch)
{
    const struct moment *const last = &record->moments[record->done + 1];
    const struct moment *before = &record->moments[batch + 1];
    const struct moment *after = &record->moments[batch + 2];
    const double spare = (WINDOW - (record->batches[batch].ended - record->batches[batch].began)) / 2.0;
    while (before > record->moments && before->at > record->batches[batch].began - spare)
        before--;
    while (after < last && after->at < record->batches[batch].ended + spare)
        after++;
    const double others = after->busy - before->busy - (after->own - before->own);
    const double share = others / ((after->at - before->at) * (double)sysconf(_SC_NPROCESSORS_ONLN));
    if (before->busy < 0.0 || after->busy < 0.0)
        return -1.0;
    return share < 0.0 ? 0.0 : share > 1.0 ? 1.0 : share;
}

/* Prints the batches whose neighbours are known by now, or all that are left. */
static void print_batches(const struct peer *peer, const struct cell *cell, struct record *record, bool all)
{
    for (; record->printed < record->done; record->printed++) {
        const struct batch *batch = &record->batches[record->printed];
        if (!all && now() < batch->ended + WINDOW / 2.0)
            break;
        printf("{\"peer\":\"%s\",\"kind\":\"%s\",\"ranks\":%d,\"op\":\"%s\",\"bytes\":%zu,\"mode\":\"%s\"", peer->name,
               peer->processes ? "process" : "thread", cell->ranks, op_words[cell->op], cell->bytes,
               cell->strict ? "strict" : "stream");
        printf(",\"us\":%.4f,\"cpu_us\":%.4f,\"foreign\":", batch->us, batch->cpu_us);
        const double share = foreign(record, record->printed);
        if (share < 0.0)
            printf("null}\n");
        else
            printf("%.3f}\n", share);
        fflush(stdout);
    }
}

static struct moment moment(double own)
{
    return (struct moment){.at = now(), .busy = machine_busy(), .own = own};
}

static int batches(const struct peer *peer, struct rank *rank, double *all)
{
    const struct cell *cell = rank->cell;
    const size_t count = (size_t)cell->batches;
    struct record record = {.moments = calloc(count + 2, sizeof *record.moments),
                            .batches = calloc(count, sizeof *record.batches)};
    if (record.moments == NULL || record.batches == NULL)
        cannot("get memory for the report");
    double cpu = 0.0;
    double own = 0.0;
    timed(peer, rank, 0, all, &cpu, &own);
    record.moments[0] = moment(own);
    bool right = warm_up(peer, rank, all);
    if (right) {
        const uint64_t calls = calibrate(peer, rank, all);
        timed(peer, rank, 0, all, &cpu, &own);
        record.moments[1] = moment(own);
        while (record.done < cell->batches && right) {
            const unsigned seed = WARM_UP + (unsigned)record.done;
            struct batch *batch = &record.batches[record.done];
            fill(rank, seed);
            batch->began = now();
            const double seconds = timed(peer, rank, calls, all, &cpu, &own);
            batch->ended = now();
            batch->us = seconds * 1e6 / (double)calls;
            batch->cpu_us = cpu * 1e6 / (double)calls;
            /* Reading the machine's time is expensive, and only the printing rank needs it. */
            if (rank->me == 0)
                record.moments[record.done + 2] = moment(own);
            record.done++;
            right = all_say(peer, rank, is_right(rank, seed), all);
            if (rank->me == 0 && right)
                print_batches(peer, cell, &record, false);
        }
    }
    if (rank->me == 0 && right)
        print_batches(peer, cell, &record, true);
    free(record.moments);
    free(record.batches);
    if (!right && rank->me == 0)
        fprintf(stderr, "%s: wrong result of %s with %d ranks, %zu bytes\n", peer->name, op_words[cell->op],
                cell->ranks, cell->bytes);
    return right ? TEAM_EXIT_DONE : TEAM_EXIT_WRONG_RESULT;
}

int measure(const struct peer *peer, struct rank *rank)
{
    const size_t bytes = buffer_bytes(rank->cell);
    if (rank->cell->pinned)
        pin(rank->me);
    rank->in = buffer(rank->cell);
    rank->out = buffer(rank->cell);
    memset(rank->in, 0, bytes);
    memset(rank->out, 0, bytes);
    double *all = calloc((size_t)rank->cell->ranks * GATHER_MAX, sizeof *all);
    if (all == NULL)
        cannot("get memory for the ranks' times");
    if (peer->prepare != NULL)
        peer->prepare(rank);
    int status = batches(peer, rank, all);
    if (rank->me == 0 && (fflush(stdout) != 0 || ferror(stdout))) {
        perror("team: cannot write the report");
        status = TEAM_EXIT_CANNOT_RUN;
    }
    /* Other threads may still read this rank's buffers until all have arrived
     * here. */
    peer->operate[OP_BARRIER](rank);
    munmap(rank->in, bytes);
    munmap(rank->out, bytes);
    free(all);
    return status;
}
