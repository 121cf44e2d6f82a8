/* Ranks of MPI communicators as teams: a team's collectives give the same results as MPI's. Argument: world, parts, killed FILE, or ends FILE. */
#include "check.h"
#include <signal.h>
#include <string.h>
#include <trimtab/team_mpi.h>

#define MPI(call) IS((call) == MPI_SUCCESS)
#define MOST 20000

static trimtab_rank join(MPI_Comm comm, int *me, int *all) {
    trimtab_team team;
    trimtab_rank rank;
    uint32_t number, size;
    MPI(MPI_Comm_rank(comm, me));
    MPI(MPI_Comm_size(comm, all));
    OK(trimtab_team_of_comm(comm, NULL, &team));
    OK(trimtab_team_join(team, *me, &rank));
    OK(trimtab_team_free(team));
    OK(trimtab_rank_number(rank, &number));
    OK(trimtab_rank_size(rank, &size));
    IS(number == (uint32_t)*me && size == (uint32_t)*all);
    return rank;
}

/* Every collective by both, MPI's alternately before and after the team's. */
static void same(MPI_Comm comm, trimtab_rank rank, int me, int all, int n) {
    size_t bytes = (size_t)(n * all) * sizeof(double);
    double *in = malloc(bytes), *mpi = malloc(bytes), *team = malloc(bytes);
    int root = n % all;
    IS(in && mpi && team);
    /* Whole numbers, whose sums are the same in any order. */
    for (int i = 0; i < n * all; i++) in[i] = (double)((me + 1) * 1000 + i % 977);
#define BLANK (memset(mpi, 0, bytes), memset(team, 0, bytes))
#define SAME IS(memcmp(mpi, team, bytes) == 0)
    BLANK;
    MPI(MPI_Allreduce(in, mpi, n, MPI_DOUBLE, MPI_SUM, comm));
    OK(trimtab_allreduce(rank, in, team, n, TRIMTAB_F64, TRIMTAB_SUM, TRIMTAB_MINE));
    SAME;
    BLANK;
    OK(trimtab_alltoall(rank, in, team, n, TRIMTAB_F64, TRIMTAB_MINE));
    MPI(MPI_Alltoall(in, n, MPI_DOUBLE, mpi, n, MPI_DOUBLE, comm));
    SAME;
    BLANK;
    MPI(MPI_Allgather(in, n, MPI_DOUBLE, mpi, n, MPI_DOUBLE, comm));
    OK(trimtab_allgather(rank, in, team, n, TRIMTAB_F64, TRIMTAB_LOOSE));
    SAME;
    BLANK;
    OK(trimtab_scan(rank, in, team, n, TRIMTAB_F64, TRIMTAB_MAX, TRIMTAB_MINE));
    MPI(MPI_Scan(in, mpi, n, MPI_DOUBLE, MPI_MAX, comm));
    SAME;
    BLANK;
    MPI(MPI_Reduce_scatter_block(in, mpi, n, MPI_DOUBLE, MPI_SUM, comm));
    OK(trimtab_reduce_scatter(rank, in, team, n, TRIMTAB_F64, TRIMTAB_SUM, TRIMTAB_STRICT));
    SAME;
    BLANK;
    OK(trimtab_reduce(rank, in, me == root ? team : NULL, n, TRIMTAB_F64, TRIMTAB_MIN, (uint32_t)root, TRIMTAB_MINE));
    MPI(MPI_Reduce(in, mpi, n, MPI_DOUBLE, MPI_MIN, root, comm));
    SAME;
    BLANK;
    MPI(MPI_Scatter(in, n, MPI_DOUBLE, mpi, n, MPI_DOUBLE, root, comm));
    OK(trimtab_scatter(rank, me == root ? in : NULL, team, n, TRIMTAB_F64, (uint32_t)root, TRIMTAB_MINE));
    SAME;
    BLANK;
    memcpy(team, in, bytes / all);
    memcpy(mpi, in, bytes / all);
    OK(trimtab_broadcast(rank, team, n, TRIMTAB_F64, (uint32_t)root, TRIMTAB_MINE));
    MPI(MPI_Bcast(mpi, n, MPI_DOUBLE, root, comm));
    SAME;
    free(in);
    free(mpi);
    free(team);
}

/* Both under way at once. */
static void together(MPI_Comm comm, trimtab_rank rank, int me, int all) {
    int64_t from_left = -1, mine = me, sum = 0, of_mpi = 0;
    MPI_Request requests[3];
    MPI_Status statuses[3];
    trimtab_request started;
    int done = 0;
    struct trimtab_collective call =
        trimtab_collective_of(TRIMTAB_ALLREDUCE, &mine, &sum, 1, TRIMTAB_I64, TRIMTAB_SUM, 0, TRIMTAB_MINE);
    MPI(MPI_Irecv(&from_left, 1, MPI_INT64_T, (me + all - 1) % all, 5, comm, &requests[0]));
    MPI(MPI_Isend(&mine, 1, MPI_INT64_T, (me + 1) % all, 5, comm, &requests[1]));
    MPI(MPI_Iallreduce(&mine, &of_mpi, 1, MPI_INT64_T, MPI_SUM, comm, &requests[2]));
    OK(trimtab_barrier(rank));
    OK(trimtab_start(rank, &call, &started));
    MPI(MPI_Waitall(3, requests, statuses));
    while (!done) OK(trimtab_test(rank, started, &done));
    IS(from_left == (me + all - 1) % all && sum == of_mpi && sum == (int64_t)all * (all - 1) / 2);
}

/* A large message is under way while all wait in the team: the sender's hook must progress it. */
static void sends(MPI_Comm comm, trimtab_rank rank, int me, int all) {
    enum { LONG = 1 << 20 };
    int *data = calloc(LONG, sizeof *data);
    IS(data);
    OK(trimtab_rank_progress(rank, trimtab_mpi_progress, &comm));
    if (me == 0) {
        MPI_Request sent;
        for (int i = 0; i < LONG; i++) data[i] = i;
        MPI(MPI_Isend(data, LONG, MPI_INT, all - 1, 7, comm, &sent));
        OK(trimtab_barrier(rank));
        MPI(MPI_Wait(&sent, MPI_STATUS_IGNORE));
    } else {
        if (me == all - 1) {
            MPI(MPI_Recv(data, LONG, MPI_INT, 0, 7, comm, MPI_STATUS_IGNORE));
            for (int i = 0; i < LONG; i++) IS(data[i] == i);
        }
        OK(trimtab_barrier(rank));
    }
    OK(trimtab_rank_progress(rank, NULL, NULL));
    free(data);
}

/* Memory that one rank writes and the others can only read, though none of them started another. */
static void published(trimtab_rank rank, int me, int all) {
    trimtab_view view;
    const void *address;
    void *own = NULL;
    OK(trimtab_publish(rank, (uint32_t)all - 1, MOST * sizeof(double), &view, &address, &own));
    for (int i = 0; me == all - 1 && i < MOST; i++) ((double *)own)[i] = i;
    OK(trimtab_barrier(rank));
    for (int i = 0; i < MOST; i++) IS(((const double *)address)[i] == i);
    OK(trimtab_view_free(view));
}

static void world(void) {
    int me, all;
    trimtab_rank rank = join(MPI_COMM_WORLD, &me, &all);
    static const int counts[] = {1, 7, 500, MOST};
    for (int c = 0; c < 4; c++) same(MPI_COMM_WORLD, rank, me, all, counts[c]);
    together(MPI_COMM_WORLD, rank, me, all);
    published(rank, me, all);
    if (all > 1) sends(MPI_COMM_WORLD, rank, me, all);
    OK(trimtab_rank_leave(rank));
}

/* Teams of sub-communicators: this machine's ranks, in another order; and halves, side by side. */
static void parts(void) {
    MPI_Comm here, half;
    int me, all, there, number, size;
    MPI(MPI_Comm_rank(MPI_COMM_WORLD, &me));
    MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, -me, MPI_INFO_NULL, &here));
    trimtab_rank whole = join(here, &there, &all);
    IS(there == all - 1 - me);
    same(here, whole, there, all, 100);
    MPI(MPI_Comm_split(MPI_COMM_WORLD, me % 2, me, &half));
    trimtab_rank part = join(half, &number, &size);
    IS(size == all / 2 && number == me / 2);
    /* The halves do not wait for each other. */
    if (me % 2) same(half, part, number, size, 300);
    OK(trimtab_barrier(whole));
    if (me % 2 == 0) same(half, part, number, size, 300);
    together(here, whole, there, all);
    OK(trimtab_rank_leave(part));
    OK(trimtab_rank_leave(whole));
    MPI(MPI_Comm_free(&half));
    MPI(MPI_Comm_free(&here));
}

/* The last rank is killed, or ends without leaving when MPI is over; all others get its number. */
static void dies(const char *file, int killed) {
    int me, all;
    trimtab_rank rank = join(MPI_COMM_WORLD, &me, &all);
    /* Launchers end the others by this signal. */
    signal(SIGTERM, SIG_IGN);
    /* A team goes on without MPI. */
    if (!killed) MPI(MPI_Finalize());
    OK(trimtab_barrier(rank));
    if (me == all - 1) {
        if (killed) kill(getpid(), SIGKILL);
        _exit(0);
    }
    FAILS(TRIMTAB_PEER_DIED, trimtab_barrier(rank));
    char named[20], line[100];
    snprintf(named, sizeof named, "rank %d", all - 1);
    IS(strstr(trimtab_last_error(), named));
    int said = snprintf(line, sizeof line, "rank %d of %d knows\n", me, all);
    int out = open(file, O_WRONLY | O_APPEND | O_CREAT, 0600);
    IS(out >= 0 && write(out, line, (size_t)said) == said);
    _exit(0);
}

int main(int count, char **words) {
    int given;
    MPI(MPI_Init_thread(&count, &words, MPI_THREAD_SERIALIZED, &given));
    if (!strcmp(words[1], "world")) world();
    if (!strcmp(words[1], "parts")) parts();
    if (!strcmp(words[1], "killed")) dies(words[2], 1);
    if (!strcmp(words[1], "ends")) dies(words[2], 0);
    MPI(MPI_Finalize());
    return 0;
}
