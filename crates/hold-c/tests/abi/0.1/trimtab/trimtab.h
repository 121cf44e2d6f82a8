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

/* Binds the calling thread to the cores. Threads and processes that it starts from now on inherit that. */
int trimtab_cores_bind_thread(const trimtab_cores *cores, char **error);

/* Gives the cores back. In a forked child, only the child's part in them ends. NULL is nothing. */
void trimtab_cores_release(trimtab_cores *cores);

/* Says which cores would be reserved now, and why, as JSON: the same document without a reservation. */
int trimtab_cores_plan(const struct trimtab_cores_wanted *wanted, char **json, char **error);

/* Lists the holds of this machine, as JSON: the document of trimtab ps --json. */
int trimtab_cores_list(char **json, char **error);

/* Frees a text of this library. NULL is nothing. */
void trimtab_cores_free(char *text);

/* The version of the library: "0.1.0". Not to be freed. */
const char *trimtab_cores_version(void);

#ifdef __cplusplus
}
#endif

#endif
