/*
 * The kernels by a team (trimtab/team.h): threads, processes, or processes of
 * several threads each.
 *
 * Resident: outgoing memory is a block in the team's segment.  Nothing is sent:
 * ranks wait for each other and read the data of other ranks in place.  Stream:
 * outgoing memory is the rank's own, and parcels are exchanged by
 * trimtab_alltoall, padded to the longest if they are not equally long, or by
 * trimtab_allgather if a rank sends the same to all.
 */
#define _GNU_SOURCE

#include "team/kernels/kernel.h"

#include <trimtab/team.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Room beside a block in the segment, for its alignment. */
#define SLACK 4096

/* Data of a rank. */
struct seat {
    trimtab_rank rank;
    trimtab_block block;
    unsigned char *outgoing;
    unsigned char *packed; /* parcels, each in as much room as the longest needs */
    unsigned char *incoming;
    size_t packed_bytes;
    size_t incoming_bytes;
};

static void check(int code, const char *what)
{
    if (code == TRIMTAB_OK)
        return;
    fprintf(stderr, "kernels_team: %s: %s: %s\n", what, trimtab_error_text(code), trimtab_last_error());
    exit(TEAM_EXIT_CANNOT_RUN);
}

static trimtab_rank seat_of(const struct rank *rank)
{
    return ((const struct seat *)rank->team)->rank;
}

static void barrier(struct rank *rank)
{
    check(trimtab_barrier(seat_of(rank)), "barrier");
}

static void sum(struct rank *rank, const void *in, void *out, size_t count, enum number type)
{
    const uint32_t elements = type == NUMBER_I32 ? TRIMTAB_I32 : TRIMTAB_F64;
    check(trimtab_allreduce(seat_of(rank), in, out, count, elements, TRIMTAB_SUM, TRIMTAB_MINE), "allreduce");
}

static void alltoall(struct rank *rank, const void *in, void *out, size_t bytes)
{
    check(trimtab_alltoall(seat_of(rank), in, out, bytes, TRIMTAB_U8, TRIMTAB_MINE), "alltoall");
}

static void gather(struct rank *rank, const double *mine, int count, double *all)
{
    check(trimtab_allgather(seat_of(rank), mine, all, (size_t)count, TRIMTAB_F64, TRIMTAB_MINE), "allgather");
}

static unsigned char *outgoing(struct rank *rank, size_t bytes)
{
    struct seat *seat = rank->team;
    void *own;
    if (rank->job->resident)
        check(trimtab_alloc(seat->rank, bytes, &seat->block, &own), "alloc");
    else
        own = fresh(bytes, 1);
    seat->outgoing = own;
    return own;
}

/* Enlarges memory to at least this number of bytes; its contents are lost. */
static void enlarge(unsigned char **memory, size_t *has, size_t bytes)
{
    if (bytes <= *has)
        return;
    if (*memory != NULL)
        give_back(*memory, *has, 1);
    *memory = fresh(bytes, 1);
    *has = bytes;
}

/* Gives all ranks the beginning of this rank's outgoing memory, as much as the longest parcel needs. */
static void send_same(struct seat *seat, struct parcels *parcels, size_t ranks)
{
    size_t longest = 0;
    for (size_t r = 0; r < ranks; r++)
        longest = parcels->take[r] > longest ? parcels->take[r] : longest;
    enlarge(&seat->incoming, &seat->incoming_bytes, ranks * longest);
    check(trimtab_allgather(seat->rank, seat->outgoing, seat->incoming, longest / sizeof(int32_t), TRIMTAB_I32, TRIMTAB_MINE),
          "allgather");
    for (size_t r = 0; r < ranks; r++)
        parcels->arrived[r] = seat->incoming + r * longest;
}

static void send(struct rank *rank, struct parcels *parcels)
{
    struct seat *seat = rank->team;
    const size_t ranks = (size_t)rank->job->ranks;
    const unsigned char *from = seat->outgoing;
    uint64_t longest = parcels->send[0];
    if (parcels->same) {
        send_same(seat, parcels, ranks);
        return;
    }
    if (!parcels->even) {
        for (size_t r = 1; r < ranks; r++)
            longest = parcels->send[r] > longest ? parcels->send[r] : longest;
        check(trimtab_allreduce(seat->rank, &longest, &longest, 1, TRIMTAB_U64, TRIMTAB_MAX, TRIMTAB_MINE), "allreduce");
        enlarge(&seat->packed, &seat->packed_bytes, ranks * longest);
        for (size_t r = 0; r < ranks; r++)
            memcpy(seat->packed + r * longest, from + parcels->send_at[r], parcels->send[r]);
        from = seat->packed;
    }
    enlarge(&seat->incoming, &seat->incoming_bytes, ranks * longest);
    /* All parcels consist of whole words. */
    check(trimtab_alltoall(seat->rank, from, seat->incoming, longest / sizeof(int32_t), TRIMTAB_I32, TRIMTAB_MINE), "alltoall");
    for (size_t r = 0; r < ranks; r++)
        parcels->arrived[r] = seat->incoming + r * longest;
}

static void show(struct rank *rank, struct parcels *parcels)
{
    const struct seat *seat = rank->team;
    if (!rank->job->resident) {
        send(rank, parcels);
        return;
    }
    barrier(rank);
    for (int r = 0; r < rank->job->ranks; r++) {
        void *block;
        check(trimtab_block_of(seat->rank, seat->block, (uint32_t)r, &block), "block_of");
        parcels->arrived[r] = (unsigned char *)block + parcels->take_at[r];
    }
}

static void over(struct rank *rank)
{
    if (rank->job->resident)
        barrier(rank);
}

static struct ways ways = {
    .name = "team",
    .barrier = barrier,
    .sum = sum,
    .alltoall = alltoall,
    .gather = gather,
    .outgoing = outgoing,
    .exchange = show,
    .over = over,
};

struct thread {
    pthread_t id;
    const struct job *job;
    trimtab_team team;
    int me;
    int status;
};

static void *run(void *argument)
{
    struct thread *thread = argument;
    struct seat seat = {0};
    struct rank rank = {.job = thread->job, .ways = &ways, .me = thread->me, .team = &seat};
    check(trimtab_team_join(thread->team, thread->me, &seat.rank), "join");
    thread->status = run_kernel(&rank);
    check(trimtab_rank_leave(seat.rank), "leave");
    return NULL;
}

/* The threads of one process, from rank `first` on. */
static int in_threads(const struct job *job, trimtab_team team, int first)
{
    static struct thread threads[RANKS_MAX];
    const int count = job->ranks / job->processes;
    for (int i = 0; i < count; i++) {
        threads[i] = (struct thread){.job = job, .team = team, .me = first + i};
        /* The first thread is as new as the others: if it had been bound before, the others would inherit its
         * binding. */
        if (pthread_create(&threads[i].id, NULL, run, &threads[i]) != 0)
            cannot("start all threads");
    }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i].id, NULL);
    return threads[0].status;
}

static int in_processes(const struct job *job, trimtab_team team)
{
    const pid_t parent = getpid();
    for (int process = 0; process < job->processes; process++) {
        const pid_t child = fork();
        if (child < 0)
            cannot("start all processes");
        if (child > 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(TEAM_EXIT_CANNOT_RUN);
        _exit(in_threads(job, team, process * (job->ranks / job->processes)));
    }
    /* A rank that waits for an ended rank is notified by the team, and ends too. */
    int worst = TEAM_EXIT_DONE;
    bool lost = false;
    for (int ended = 0; ended < job->processes; ended++) {
        int status = 0;
        if (wait(&status) < 0)
            cannot("wait for the processes");
        const int code = WIFEXITED(status) ? WEXITSTATUS(status) : TEAM_EXIT_CANNOT_RUN;
        lost |= code == TEAM_EXIT_CANNOT_RUN;
        worst = code > worst ? code : worst;
    }
    return lost ? TEAM_EXIT_CANNOT_RUN : worst;
}

int main(int argc, char **argv)
{
    static char kind[24];
    const struct job job = read_job("kernels_team", true, true, argc, argv);
    const int threads = job.ranks / job.processes;
    struct trimtab_team_options options;
    trimtab_team team;

    if (job.processes == 1)
        ways.kind = "thread";
    else if (threads == 1)
        ways.kind = "process";
    else
        ways.kind = (snprintf(kind, sizeof kind, "%dx%d", job.processes, threads), kind);
    ways.processes = threads == 1 && job.processes > 1;
    check(trimtab_team_options_init(&options, (uint32_t)job.ranks), "options");
    if (job.resident)
        options.heap = (size_t)job.ranks * (kernel_of(&job)->outgoing_bytes(&job) + SLACK) + SLACK;
    check(trimtab_team_new(&options, &team), "a team");
    return job.processes == 1 ? in_threads(&job, team, 0) : in_processes(&job, team);
}
