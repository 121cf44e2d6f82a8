/* Cores on call: reserves free cores of this machine for a program that asks for them itself. Link with -ltrimtab.
 *
 *     struct trimtab_cores_wanted wanted = {sizeof wanted};
 *     wanted.cores = "4";                                   // as for trimtab run -c
 *     wanted.wait_ms = 600000;                              // waits in line for up to ten minutes
 *     trimtab_cores *cores;
 *     char *error = NULL;
 *     if (trimtab_cores_reserve(&wanted, &cores, &error)) {
 *         fprintf(stderr, "%s\n", error);
 *         trimtab_cores_free(error);
 *         return 1;
 *     }
 *     trimtab_cores_bind_thread(cores, NULL);               // this thread, and what it starts from now on
 *     work();
 *     trimtab_cores_release(cores);
 *
 * The cores exclude every other run of trimtab and every other caller of this library, of any user. The kernel gives them back
 * when the process ends in any way, SIGKILL included; forked children keep them until they end too, programs that are executed
 * do not. Memory of a field that is not set is zero. A structure's first field is its size: programs built with this header work
 * with later libraries.
 *
 * All functions may be called by any thread at any time. The library has no state and keeps no thread of its own, prints nothing
 * and ends nothing; it reads the environment of the process when it is called (TRIMTAB_LEDGER, TRIMTAB_CONFIG, TRIMTAB_HOLD).
 * Texts are UTF-8. The caller frees every text that it gets by trimtab_cores_free(). `error` may be NULL. */
#ifndef TRIMTAB_TRIMTAB_H
#define TRIMTAB_TRIMTAB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum trimtab_cores_code {
    TRIMTAB_CORES_OK,
    TRIMTAB_CORES_BUSY,      /* not enough free cores now, or not in time */
    TRIMTAB_CORES_NEVER,     /* this machine, or its site's rules, can never give them; or something cannot be read */
    TRIMTAB_CORES_CANCELLED, /* `look` ended the wait */
    TRIMTAB_CORES_ARGUMENT,  /* an invalid argument */
    TRIMTAB_CORES_SYSTEM,    /* a system call failed */
    TRIMTAB_CORES_FAULT      /* a fault inside the library, which was contained */
};

enum trimtab_cores_flags {
    TRIMTAB_CORES_OR_FEWER = 1, /* fewer cores are accepted if there are not enough */
    TRIMTAB_CORES_SHARE = 2,    /* cores held by others may be used too */
    TRIMTAB_CORES_NO_RULES = 4, /* files of the site and of the user do not count */
    TRIMTAB_CORES_STRICT = 8    /* an error where nothing can be reserved; without it the document has a warning */
};

struct trimtab_cores_wanted {
    size_t size;          /* sizeof(struct trimtab_cores_wanted) */
    const char *cores;    /* "4", "50%", "2xl3", "node"; NULL: all that are idle */
    const char *cpus;     /* CPUs to choose from, as "0-7,16" or "S0:0-3"; NULL: all */
    const char *near;     /* device to be near to, as "gpu:0"; NULL: none */
    const char *settings; /* as for trimtab run --set: "smt=all strategy=scatter"; NULL: none */
    const char *label;    /* name of the holder in trimtab ps; NULL: the name of the program */
    uint32_t flags;       /* of enum trimtab_cores_flags */
    int32_t priority;     /* in the queue, within the site's rules */
    int64_t wait_ms;      /* how long to wait for cores: 0 not at all, -1 without a limit */
    /* Called by the waiting thread: with a line about the wait when there is one, and with NULL every few milliseconds. The wait
     * ends when it returns another number than 0. NULL: no calls. */
    int (*look)(void *data, const char *line);
    void *data; /* for `look` */
};

/* Reserved cores. */
typedef struct trimtab_cores trimtab_cores;

/* Reserves cores. On success `cores` is the caller's until trimtab_cores_release(). */
int trimtab_cores_reserve(const struct trimtab_cores_wanted *wanted, trimtab_cores **cores, char **error);

/* Describes reserved cores, as JSON (schema trimtab.cores/1 in docs/json-launching.md): CPUs, threads, variables for a program. */
int trimtab_cores_describe(const trimtab_cores *cores, char **json, char **error);

/* Changes the number of cores: adds free ones near to them, or gives some back. Programs on the cores, and threads that are bound
 * to them, get new masks. No other thread may use `cores` during the call. */
int trimtab_cores_resize(trimtab_cores *cores, unsigned number, char **error);

/* Reserves a part of reserved cores. Parts exclude each other; a part holds the whole as long as it lasts, so the whole may be
 * released before. `wanted` is as for trimtab_cores_reserve(). */
int trimtab_cores_reserve_part(const trimtab_cores *whole, const struct trimtab_cores_wanted *wanted, trimtab_cores **part,
                               char **error);

/* Binds the calling thread to the cores. Threads and processes that it starts from now on inherit that. */
int trimtab_cores_bind_thread(const trimtab_cores *cores, char **error);

/* Gives the cores back. In a forked child, only the child's part in them ends. NULL is nothing. */
void trimtab_cores_release(trimtab_cores *cores);

/* Says which cores would be reserved now, and why, as JSON: the same document without a reservation. */
int trimtab_cores_plan(const struct trimtab_cores_wanted *wanted, char **json, char **error);

enum trimtab_cores_target_kind {
    TRIMTAB_CORES_PROCESS = 1, /* the process with the PID `number` */
    TRIMTAB_CORES_PIDFD = 2,   /* the process of the pidfd `number`, which stays the caller's */
    TRIMTAB_CORES_CGROUP = 3   /* the processes of the control group (version 2) with the folder `cgroup` */
};

struct trimtab_cores_target {
    size_t size;   /* sizeof(struct trimtab_cores_target) */
    uint32_t kind; /* of enum trimtab_cores_target_kind */
    int number;
    const char *cgroup;
};

/* Reserves cores for a process or a control group that runs already, and binds its threads to them. The hold lasts until the
 * target ends, in any way, also if the caller ends before: a small process, the keeper (the program trimtab-lab of this
 * installation), has it. The target must belong to the caller's user, unless that is root. `json` describes the hold
 * (trimtab.cores/1); its field `hold` names it. */
int trimtab_cores_hold(const struct trimtab_cores_wanted *wanted, const struct trimtab_cores_target *target, char **json,
                       char **error);

/* Changes the number of cores of a hold, from outside. `hold` is a process of it, as text, or its number ("0x1a2b"). `json` says
 * what was done (trimtab.resize/1). */
int trimtab_cores_resize_hold(const char *hold, unsigned number, char **json, char **error);

/* Ends a hold that a keeper has; its threads get the masks back that they had before. `json` says what was done
 * (trimtab.release/1). */
int trimtab_cores_release_hold(const char *hold, char **json, char **error);

/* Lists the holds of this machine, as JSON: the document of trimtab ps --json. */
int trimtab_cores_list(char **json, char **error);

/* Cores for the ranks of a launcher that starts them itself, as a workload manager does. The launcher reserves once, and holds the
 * cores as long as it lives; each of its children carries out an order before it executes a rank's program. */
struct trimtab_ranks_wanted {
    size_t size;                              /* sizeof(struct trimtab_ranks_wanted) */
    const struct trimtab_cores_wanted *cores; /* `cpus` are those that the launcher was granted; `cores` does not count */
    uint32_t ranks;                           /* number of ranks on this machine */
    uint32_t cores_max;                       /* most cores to take; 0: all cores of these CPUs */
    const uint32_t *pids;                     /* process of each rank; NULL: they do not exist yet */
    const char *const *environment;           /* of the ranks, "NAME=value", up to a NULL; NULL: empty */
    const char *const *command;               /* of the ranks, up to a NULL; NULL: not known */
    const char *folder;                       /* in which they start; NULL: that of this process */
    const char *shared_with;                  /* beginning of the labels of holders with which cores are shared; NULL: none */
};

/* Ranks with reserved cores. */
typedef struct trimtab_ranks trimtab_ranks;

/* Reserves cores for ranks, as trimtab_cores_reserve(). On success `ranks` is the caller's until trimtab_ranks_release(). */
int trimtab_ranks_reserve(const struct trimtab_ranks_wanted *wanted, trimtab_ranks **ranks, char **error);

/* Gives the order of a rank, from 0. It is empty if there are more ranks than cores: the launcher then binds them itself. */
int trimtab_ranks_order(const trimtab_ranks *ranks, uint32_t rank, char **order, char **error);

/* Gives a line about the placement of all ranks, and the warnings, a line each. */
int trimtab_ranks_tell(const trimtab_ranks *ranks, char **line, char **warnings, char **error);

/* Gives the cores back, as trimtab_cores_release(). */
void trimtab_ranks_release(trimtab_ranks *ranks);

/* Carries out an order on this process: CPUs, memory policy. `variable` is called for each variable of the rank, with NULL for one
 * that is removed, and ends the call when it returns another number than 0. `missing` gets the settings that this kernel refuses,
 * a line each. */
int trimtab_rank_enter(const char *order, int (*variable)(void *data, const char *name, const char *value), void *data,
                       char **missing, char **error);

/* Checks the text of trimtab_cores_wanted.settings, without a look at the machine. */
int trimtab_cores_check_settings(const char *settings, char **error);

/* Frees a text of this library. NULL is nothing. */
void trimtab_cores_free(char *text);

/* The version of the library: "0.1.0". Not to be freed. */
const char *trimtab_cores_version(void);

#ifdef __cplusplus
}
#endif

#endif
