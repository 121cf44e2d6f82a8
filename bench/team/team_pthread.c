/*
 * Threads or processes that wait at a pthread_barrier_t, the barrier of the C
 * library.  It sleeps at once; it never spins.
 *
 * Processes are forked, and share a mapping that contains the barrier
 * (PTHREAD_PROCESS_SHARED).
 */
#define _GNU_SOURCE

#include "team/shared.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct team {
    struct shared shared; /* first: rank->team is seen as either */
    pthread_barrier_t barrier;
};

static void barrier(struct rank *rank)
{
    struct team *team = rank->team;
    pthread_barrier_wait(&team->barrier);
}

static struct peer peer = {
    .name = "pthread",
    .operate = {barrier, shared_bcast, shared_allreduce, shared_alltoall},
    .prepare = shared_prepare,
    .gather = shared_gather,
};

/* Shared by children too. */
static struct team *begin(const struct cell *cell)
{
    pthread_barrierattr_t attributes;
    struct team *team = mmap(NULL, sizeof *team, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (team == MAP_FAILED)
        cannot("get shared memory");
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, cell->processes ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE);
    if (pthread_barrier_init(&team->barrier, &attributes, (unsigned)cell->ranks) != 0)
        cannot("make a barrier");
    team->shared.barrier = barrier;
    team->shared.staged = cell->processes;
    shared_begin(&team->shared, cell);
    return team;
}

struct thread {
    pthread_t id;
    struct rank rank;
    int status;
};

static void *run(void *argument)
{
    struct thread *thread = argument;
    thread->status = measure(&peer, &thread->rank);
    return NULL;
}

static int in_threads(const struct cell *cell, struct team *team)
{
    static struct thread threads[RANKS_MAX];
    for (int me = 0; me < cell->ranks; me++) {
        threads[me].rank = (struct rank){.cell = cell, .me = me, .team = team};
        /* The first thread is as new as the others: if it had been bound before, the others would inherit its
         * binding. */
        if (pthread_create(&threads[me].id, NULL, run, &threads[me]) != 0)
            cannot("start all threads");
    }
    for (int me = 0; me < cell->ranks; me++)
        pthread_join(threads[me].id, NULL);
    return threads[0].status;
}

/* The children: a rank each, that ends with the program. */
static int in_processes(const struct cell *cell, struct team *team)
{
    const pid_t parent = getpid();
    for (int me = 0; me < cell->ranks; me++) {
        const pid_t child = fork();
        if (child < 0)
            cannot("start all processes");
        if (child > 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(TEAM_EXIT_CANNOT_RUN);
        struct rank rank = {.cell = cell, .me = me, .team = team};
        _exit(measure(&peer, &rank));
    }
    int worst = TEAM_EXIT_DONE;
    for (int ended = 0; ended < cell->ranks; ended++) {
        int status = 0;
        if (wait(&status) < 0)
            cannot("wait for the processes");
        const int code = WIFEXITED(status) ? WEXITSTATUS(status) : TEAM_EXIT_CANNOT_RUN;
        /* The others may wait for this one: they end with the program. */
        if (code == TEAM_EXIT_CANNOT_RUN)
            cannot("go on without a rank that ended early");
        worst = code > worst ? code : worst;
    }
    return worst;
}

int main(int argc, char **argv)
{
    const struct cell cell = read_cell("team_pthread", true, true, argc, argv);
    struct team *team = begin(&cell);
    peer.processes = cell.processes;
    return cell.processes ? in_processes(&cell, team) : in_threads(&cell, team);
}
