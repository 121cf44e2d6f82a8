/* Which communicators have teams. A communicator gets its team once its collectives have taken MPI as long as making a team takes
 * (TRIMTAB_MPI_AFTER), so that a short program does not pay for one. All ranks agree on it through MPI. A rank that waits in a team calls MPI's
 * progress, so that messages under way reach ranks that are not in the collective yet. */
#include "trimtab_mpi.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Collectives of a communicator before the ranks first look at their time. They look again at each doubling. */
enum { CALLS_USUAL = 16 };
/* Time of MPI in a communicator's collectives from which it gets a team, in ms: making one takes 3 to 11 ms. */
enum { MS_USUAL = 5 };
/* Teams of a process at a time: each has some hundred KiB for each rank. */
enum { TEAMS_MAX = 64 };
/* Collectives of a communicator of which each is timed. Of later ones one of so many is, since a look at the clock takes a tenth of a short
 * collective. */
enum { TIMED_ALL = 64, TIMED_ONE_OF = 8 };
/* Time for the ranks of a communicator to find each other. */
#define GATHER_NS 20000000000ull
/* Letters of the name of a team. */
enum { NAME_LETTERS = 32 };

int teams_on;
atomic_ulong communicators_freed;
__thread struct near_parts near_parts;

/* What TRIMTAB_MPI_AFTER says, agreed by all ranks: a number of collectives, or a time with `ms`. */
static int after_calls = CALLS_USUAL, after_ms = MS_USUAL;
__thread struct timed timed;
static int key = MPI_KEYVAL_INVALID;
/* Whether any thread may call a collective: then the team's rank is the process, and otherwise the thread. */
static int threads;
/* A communicator of this rank alone, for MPI's progress. */
static MPI_Comm own = MPI_COMM_NULL;

/* No function of MPI is called while this is held: MPI may hold a lock of its own when it calls `forget`. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Of all communicators, behind the lock: what was carried out by those that were freed, and by none. */
static struct part *parts;
static int teams;
static unsigned long freed_by_team, freed_by_mpi;

static void leave(struct part *part) {
    if (part->by != BY_TEAM) return;
    trimtab_rank_leave(part->team);
    part->by = BY_MPI;
    teams--;
}

/* A communicator is freed. */
static int forget(MPI_Comm comm, int keyval, void *value, void *extra) {
    struct part *part = value, **at = &parts;
    (void)comm, (void)keyval, (void)extra;
    /* The program's error handler may have jumped out of a timed call. */
    if (timed.part == part) timed.part = NULL;
    pthread_mutex_lock(&lock);
    while (*at && *at != part) at = &(*at)->next;
    if (*at) *at = part->next;
    freed_by_team += part->by_team;
    freed_by_mpi += part->by_mpi;
    leave(part);
    pthread_mutex_unlock(&lock);
    atomic_fetch_add_explicit(&communicators_freed, 1, memory_order_acq_rel);
    free(part);
    return MPI_SUCCESS;
}

/* Whether all ranks of a communicator are of this process's MPI_COMM_WORLD. If one is not, every rank sees such a one. */
static int within_world(MPI_Comm comm, int size) {
    MPI_Group world, group;
    int *theirs = malloc(sizeof(int) * 2 * (size_t)size), within = 0;
    if (!theirs) return 0;
    if (PMPI_Comm_group(MPI_COMM_WORLD, &world) == MPI_SUCCESS) {
        if (PMPI_Comm_group(comm, &group) == MPI_SUCCESS) {
            for (int i = 0; i < size; i++) theirs[i] = i;
            within = PMPI_Group_translate_ranks(group, size, theirs, world, theirs + size) == MPI_SUCCESS;
            for (int i = 0; within && i < size; i++) within = theirs[size + i] != MPI_UNDEFINED;
            PMPI_Group_free(&group);
        }
        PMPI_Group_free(&world);
    }
    free(theirs);
    return within;
}

/* The part of a communicator, made if it is new; NULL if there is none: then MPI carries out its calls, at all ranks. */
static struct part *found(MPI_Comm comm) {
    struct part *part = NULL;
    unsigned long freed = atomic_load_explicit(&communicators_freed, memory_order_acquire);
    size_t at = near_place(comm);
    int there = 0, inter = 0;
    if (comm == MPI_COMM_NULL || PMPI_Comm_get_attr(comm, key, &part, &there) != MPI_SUCCESS) return NULL;
    if (!there) {
        part = calloc(1, sizeof *part);
        if (!part) return NULL;
        part->comm = comm;
        if (PMPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS || PMPI_Comm_rank(comm, &part->rank) != MPI_SUCCESS ||
            PMPI_Comm_size(comm, &part->size) != MPI_SUCCESS || PMPI_Comm_set_attr(comm, key, part) != MPI_SUCCESS) {
            free(part);
            return NULL;
        }
        part->by = inter || part->size == 1 || !within_world(comm, part->size) ? BY_MPI : BY_UNDECIDED;
        pthread_mutex_lock(&lock);
        part->next = parts;
        parts = part;
        pthread_mutex_unlock(&lock);
    }
    if (near_parts.freed != freed) memset(&near_parts, 0, sizeof near_parts);
    near_parts.freed = freed;
    near_parts.at[at].comm = comm;
    near_parts.at[at].part = part;
    return part;
}

static int read_file(const char *path, void *bytes, size_t count) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, bytes, count);
    if (file >= 0) close(file);
    return got == (ssize_t)count;
}

static uint64_t inode(const char *path) {
    struct stat at;
    return stat(path, &at) == 0 ? (uint64_t)at.st_ino : 0;
}

/* Whether all ranks say yes. A rank that does not get the answer says no to the rest. */
static int all_agree(MPI_Comm comm, int yes) {
    int all = 0;
    return PMPI_Allreduce(&yes, &all, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS && all;
}

/* Takes a place among the teams of this process, or gives one back. */
static int team_more(int more) {
    pthread_mutex_lock(&lock);
    int may = teams + more <= TEAMS_MAX;
    if (may) teams += more;
    pthread_mutex_unlock(&lock);
    return may;
}

/* Lets MPI progress while this rank waits in a team. */
static int progress(void *context) {
    int there;
    (void)context;
    PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, own, &there, MPI_STATUS_IGNORE);
    return 0;
}

/* The name of a communicator's team, the same at all ranks; 0 if it cannot have one. */
static int named(struct part *part, int may, char *name) {
    /* What all ranks of a team have in common, and random numbers that name this team. */
    struct {
        unsigned char random[NAME_LETTERS / 2], machine[36];
        uint64_t user, processes, net;
    } first, mine;
    memset(&mine, 0, sizeof mine);
    may = may && read_file("/proc/sys/kernel/random/boot_id", mine.machine, sizeof mine.machine) &&
          read_file("/dev/urandom", mine.random, sizeof mine.random);
    mine.user = geteuid();
    mine.processes = inode("/proc/self/ns/pid");
    mine.net = inode("/proc/self/ns/net");
    memcpy(&first, &mine, sizeof first);
    if (PMPI_Bcast(&first, (int)sizeof first, MPI_BYTE, 0, part->comm) != MPI_SUCCESS) return 0;
    may = may && memcmp(first.machine, mine.machine, sizeof mine.machine) == 0 && first.user == mine.user &&
          first.processes == mine.processes && first.net == mine.net;
    for (size_t i = 0; i < sizeof first.random; i++) snprintf(name + 2 * i, 3, "%02x", first.random[i]);
    return all_agree(part->comm, may);
}

/* Makes the team of a communicator, if all its ranks are on this machine and want it. */
static void decide(struct part *part) {
    char name[NAME_LETTERS + 1];
    struct trimtab_team_options options;
    trimtab_team team = 0;
    int place = team_more(1), code;
    part->by = BY_MPI;
    if (!named(part, place, name)) {
        if (place) team_more(-1);
        return;
    }
    code = trimtab_team_options_init(&options, (uint32_t)part->size);
    options.heap = 0;
    options.gather_ns = GATHER_NS;
    if (code == TRIMTAB_OK) code = trimtab_team_of_job((uint32_t)part->rank, name, &options, &team);
    if (all_agree(part->comm, code == TRIMTAB_OK)) {
        code = (threads ? trimtab_team_join_process : trimtab_team_join)(team, part->rank, &part->team);
        if (code == TRIMTAB_OK) code = trimtab_rank_progress(part->team, progress, NULL);
        if (all_agree(part->comm, code == TRIMTAB_OK)) part->by = BY_TEAM;
        else if (part->team) trimtab_rank_leave(part->team);
    }
    if (code != TRIMTAB_OK)
        fprintf(stderr, "trimtab: rank %d of a communicator of %d: no team, its collectives stay with MPI: %s\n", part->rank,
                part->size, trimtab_last_error());
    if (team) trimtab_team_free(team);
    if (part->by != BY_TEAM) team_more(-1);
}

/* Whether MPI has taken so long in the collectives of a communicator, at any rank, that a team is worth its making. All ranks get the same
 * answer at the same call. */
static int worth(struct part *part) {
    unsigned calls = part->calls, first = (unsigned)after_calls;
    uint64_t most = 0;
    if (after_ms == 0) return calls >= first;
    /* At the first look, and whenever the number of calls has doubled. */
    while (calls > first && calls % 2 == 0) calls /= 2;
    if (calls != first) return 0;
    return PMPI_Allreduce(&part->ns, &most, 1, MPI_UINT64_T, MPI_MAX, part->comm) == MPI_SUCCESS && most / 1000000 >= (uint64_t)after_ms;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* The part that this thread remembers, or NULL. */
static struct part *near(MPI_Comm comm) {
    size_t at = near_place(comm);
    if (near_parts.freed != atomic_load_explicit(&communicators_freed, memory_order_acquire)) return NULL;
    return near_parts.at[at].comm == comm ? near_parts.at[at].part : NULL;
}

/* Whether the collective of this number is timed. The golden ratio spreads those that are over all places in a loop of the program: every
 * eighth call may always be the same short one. */
static int is_timed(unsigned calls) {
    return calls <= TIMED_ALL || (uint32_t)(calls * UINT32_C(2654435769)) < UINT32_MAX / TIMED_ONE_OF;
}

struct part *part_slow(MPI_Comm comm) {
    struct part *part = near(comm);
    timed.part = NULL;
    if (!part) part = found(comm);
    if (part && part->by == BY_UNDECIDED) {
        part->calls++;
        if (worth(part)) decide(part);
    }
    if (part && part->by == BY_TEAM) return part;
    if (part) part->by_mpi++;
    if (part && part->by == BY_UNDECIDED && after_ms && is_timed(part->calls)) {
        timed.part = part;
        timed.from = now_ns();
    }
    return NULL;
}

void part_returned(void) {
    uint64_t ns = now_ns() - timed.from;
    timed.part->ns += timed.part->calls <= TIMED_ALL ? ns : TIMED_ONE_OF * ns;
    timed.part = NULL;
}

/* Reads TRIMTAB_MPI_AFTER: `100` are collectives, `20ms` are a time in them. */
static void read_after(const char *said) {
    char *rest;
    long number = said ? strtol(said, &rest, 10) : 0;
    if (!said) return;
    if (rest == said || number < 0 || number > 1000000000 || (*rest && strcmp(rest, "ms"))) {
        fprintf(stderr, "trimtab: TRIMTAB_MPI_AFTER is a number of collectives (100) or a time (20ms), not `%s`: %dms is used\n", said, MS_USUAL);
        return;
    }
    if (*rest) {
        after_ms = (int)number;
    } else {
        after_calls = (int)number;
        after_ms = 0;
    }
}

/* MPI has begun: all ranks of the program agree whether teams are used at all, and when a communicator gets one. */
void begin(void) {
    int level = MPI_THREAD_SINGLE, said[3], agreed[3];
    const char *asked = getenv("TRIMTAB_MPI");
    /* One function of MPI for this may call another one. */
    if (own != MPI_COMM_NULL) return;
    PMPI_Query_thread(&level);
    threads = level > MPI_THREAD_FUNNELED;
    said[0] = !(asked && !strcmp(asked, "off"));
    if (said[0] && PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &key, NULL) != MPI_SUCCESS) said[0] = 0;
    if (said[0] && PMPI_Comm_dup(MPI_COMM_SELF, &own) != MPI_SUCCESS) said[0] = 0;
    read_after(getenv("TRIMTAB_MPI_AFTER"));
    /* The minimum of all: the greatest number is the least of its negatives. */
    said[1] = -after_calls;
    said[2] = -after_ms;
    if (PMPI_Allreduce(said, agreed, 3, MPI_INT, MPI_MIN, MPI_COMM_WORLD) != MPI_SUCCESS) return;
    after_calls = -agreed[1];
    after_ms = -agreed[2];
    teams_on = agreed[0];
}

void leave_all(unsigned long *by_team, unsigned long *by_mpi) {
    teams_on = 0;
    pthread_mutex_lock(&lock);
    *by_team = freed_by_team;
    *by_mpi = freed_by_mpi;
    for (struct part *part = parts; part; part = part->next) {
        *by_team += part->by_team;
        *by_mpi += part->by_mpi;
        leave(part);
    }
    pthread_mutex_unlock(&lock);
    if (own != MPI_COMM_NULL) PMPI_Comm_free(&own);
}
