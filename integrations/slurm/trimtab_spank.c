/* Plug-in for Slurm (SPANK): the steps of srun get their cores from trimtab on each node. docs/slurm.md says how to build it, how
 * to load it, and what its options mean.
 *
 * Idea. Slurm chooses the node and the CPUs of a step. Within these CPUs, slurmstepd reserves the cores and gets an order for each
 * of its tasks (trimtab_ranks_reserve): CPUs, memory policy, variables. It does so when all tasks are forked and bound by Slurm,
 * and none has started its program yet: the masks of the tasks then are the CPUs that Slurm granted, whatever its configuration
 * says. The orders reach the tasks through memory that was shared before the fork. Each task carries out its own.
 *
 * Properties. The tasks were forked before the reservation, so they have no descriptor of it: the cores are free when slurmstepd
 * ends in any way. A step that cannot be placed runs with Slurm's own binding, and says so in one line; `strict` fails it.
 * libtrimtab is opened when a step needs it: without it, slurmd, slurmstepd and srun work as before. Nothing here ends a process,
 * or waits without a bound. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <trimtab/trimtab.h>

SPANK_PLUGIN(trimtab, 1)

/* Most tasks of a step on a node. Chosen: above the hardware threads of every machine; the memory is used as it is written. */
#define TASKS_MAX 8192
/* Longest order of a task, its variables included; longer ones are refused. */
#define ORDER_MAX (64 * 1024)
/* CPUs that a mask of this plug-in can name. The kernel's own limit is 8192. */
#define CPUS_MAX 8192
#define LINE_MAX_BYTES 4096
#define SETTINGS_MAX 256
#define REFUSAL_MAX 1024

typedef struct {
    unsigned char bytes[CPUS_MAX / 8];
} mask_t;

/* The options of a step, or of the site. */
struct wishes {
    bool off, strict, audit;
    char settings[SETTINGS_MAX]; /* for trimtab_cores_wanted.settings */
};

/* An order in the shared memory. `length` is 0 if the task keeps Slurm's binding. */
struct slot {
    uint32_t length;
    uint32_t fails; /* 1: the step is strict, and cannot be placed */
    mask_t mask; /* the task's mask by Slurm */
    char text[ORDER_MAX];
};

/* Functions of libtrimtab. */
static struct {
    void *handle;
    int (*reserve)(const struct trimtab_ranks_wanted *, trimtab_ranks **, char **);
    int (*order)(const trimtab_ranks *, uint32_t, char **, char **);
    int (*tell)(const trimtab_ranks *, char **, char **, char **);
    void (*release)(trimtab_ranks *);
    int (*enter)(const char *, int (*)(void *, const char *, const char *), void *, char **, char **);
    int (*check)(const char *, char **);
    void (*free)(char *);
} library;

/* The site's arguments, from plugstack.conf. */
static struct {
    bool on;                  /* for steps that say nothing */
    const char *partitions;   /* in which steps that say nothing use it; NULL: all */
    const char *library;      /* file of libtrimtab */
    struct wishes wishes;     /* options that every step has */
} site = {.library = "libtrimtab.so.0"};

/* The step. */
static struct {
    bool asked;             /* --trimtab was given */
    bool fails;             /* it is strict, and cannot be placed */
    struct wishes wishes;
    char refused[REFUSAL_MAX]; /* why its options cannot be read; empty if they can */
    struct slot *slots;     /* shared with the tasks; NULL: nothing is placed */
    uint32_t tasks, forked; /* tasks on this node, and those that exist */
    pid_t *pids;
    trimtab_ranks *ranks;
} step;

/* ---- Words ---- */

static const char KNOWN[] =
    "known: on, off, strict, audit, strategy=compact|scatter|balanced|stride:N, memory=auto|local|bind|preferred|interleave|weighted|none, "
    "smt=1|all, threads=N, wait=auto|spin|yield|sleep|keep, pin=auto|mask, thp=inherit|off|advised|on";

static bool fail(char *why, size_t size, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(why, size, format, list);
    va_end(list);
    return false;
}

/* Reads KEY=VALUE into the settings. A comma separates options, so '+' stands for it in a list: memory=bind:0+1. */
static bool read_setting(const char *word, size_t length, struct wishes *into, char *why, size_t size) {
    static const char *const KEYS[] = {"strategy", "memory", "smt", "threads", "wait", "pin", "thp"};
    const char *equals = memchr(word, '=', length);
    size_t name = equals ? (size_t)(equals - word) : length, used = strlen(into->settings);
    const char *key = NULL;
    for (size_t at = 0; equals && at < sizeof KEYS / sizeof *KEYS; at++)
        if (strlen(KEYS[at]) == name && !memcmp(word, KEYS[at], name)) key = KEYS[at];
    if (equals && name == 3 && !memcmp(word, "mem", 3)) key = "memory";
    if (!key) return fail(why, size, "\"%.*s\" is no option of --trimtab (%s)", (int)(length > 60 ? 60 : length), word, KNOWN);
    size_t value = length - name - 1;
    if (!value) return fail(why, size, "%s= has no value (%s)", key, KNOWN);
    if (used + strlen(key) + value + 3 > sizeof into->settings)
        return fail(why, size, "the options of --trimtab are too long: at most %d characters", SETTINGS_MAX);
    char mark[32];
    snprintf(mark, sizeof mark, " %s=", key);
    if (strstr(into->settings, mark)) return fail(why, size, "%s is given twice", key);
    used += (size_t)sprintf(into->settings + used, "%s", mark);
    for (size_t at = 0; at < value; at++) {
        char letter = equals[1 + at];
        bool plain = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9');
        if (!plain && !strchr(":._-+", letter))
            return fail(why, size, "the value of %s has a character that no value has (%s)", key, KNOWN);
        into->settings[used++] = letter == '+' ? ',' : letter;
    }
    into->settings[used] = 0;
    return true;
}

/* Reads the options of --trimtab. */
static bool read_wishes(const char *text, struct wishes *into, char *why, size_t size) {
    memset(into, 0, sizeof *into);
    if (!text || !*text || !strcmp(text, "(null)")) return true;
    for (const char *at = text;;) {
        size_t length = strcspn(at, ",");
        if (length == 3 && !memcmp(at, "off", 3)) {
            into->off = true;
        } else if (length == 6 && !memcmp(at, "strict", 6)) {
            into->strict = true;
        } else if (length == 5 && !memcmp(at, "audit", 5)) {
            into->audit = true;
        } else if (!(length == 2 && !memcmp(at, "on", 2)) && !read_setting(at, length, into, why, size)) {
            return false;
        }
        if (!at[length]) break;
        at += length + 1;
    }
    if (into->off && strcmp(text, "off")) return fail(why, size, "off stands alone: drop it, or the other options");
    return true;
}

/* Whether a list with commas has this word. */
static bool has_word(const char *list, const char *word) {
    for (const char *at = list; word && *word && *at;) {
        size_t length = strcspn(at, ",");
        if (length == strlen(word) && !memcmp(at, word, length)) return true;
        at += length + (at[length] == ',');
    }
    return false;
}

/* Writes the CPUs of a mask as "0-3,8". */
static bool list_of(const mask_t *mask, char *to, size_t size) {
    size_t used = 0;
    to[0] = 0;
    for (unsigned from = 0; from < CPUS_MAX; from++) {
        if (!(mask->bytes[from / 8] & 1 << from % 8)) continue;
        unsigned last = from;
        while (last + 1 < CPUS_MAX && mask->bytes[(last + 1) / 8] & 1 << (last + 1) % 8) last++;
        int more = snprintf(to + used, size - used, last > from ? "%s%u-%u" : "%s%u", used ? "," : "", from, last);
        if (more < 0 || (size_t)more >= size - used) return false;
        used += (size_t)more;
        from = last;
    }
    return used > 0;
}

/* Reads a number without a sign at `*at`, and moves on. */
static bool read_number(const char **at, unsigned long *number) {
    char *end;
    if (**at < '0' || **at > '9') return false;
    *number = strtoul(*at, &end, 10);
    *at = end;
    return true;
}

/* Counts the numbers of a list such as "0-3,8"; 0 if it is none. */
static uint32_t count_of(const char *list) {
    uint32_t count = 0;
    while (list && *list) {
        unsigned long from, last;
        if (!read_number(&list, &from)) return 0;
        last = from;
        if (*list == '-' && (list++, !read_number(&list, &last))) return 0;
        if (last < from || last - from >= CPUS_MAX || (*list && *list != ',')) return 0;
        count += (uint32_t)(last - from + 1);
        list += *list == ',';
    }
    return count;
}

static bool strict(void) {
    return step.wishes.strict || site.wishes.strict;
}

static bool audit(void) {
    return step.wishes.audit || site.wishes.audit;
}

/* Says in the output of the job that a step is not placed, and why. A strict step then fails in its tasks: Slurm does not heed a
 * failure of the hooks before. */
__attribute__((format(printf, 1, 2))) static void unplaced(const char *format, ...) {
    char why[LINE_MAX_BYTES], node[256] = "?";
    va_list list;
    va_start(list, format);
    vsnprintf(why, sizeof why, format, list);
    va_end(list);
    gethostname(node, sizeof node - 1);
    for (char *at = why; *at; at++)
        if (*at == '\n') *at = ' ';
    if (strict()) {
        slurm_spank_log("trimtab: %s: %s (strict)", node, why);
        step.fails = true;
        if (step.slots)
            for (uint32_t task = 0; task < step.tasks; task++) step.slots[task].fails = 1;
        return;
    }
    slurm_spank_log("trimtab: %s: %s; the step runs with Slurm's own binding", node, why);
}

/* ---- libtrimtab ---- */

static bool find(const char *name, void *function) {
    *(void **)function = dlsym(library.handle, name);
    return *(void **)function != NULL;
}

/* Opens libtrimtab. The reason why it cannot be used is written to `why`. */
static bool open_library(char *why, size_t size) {
    if (library.handle) return true;
    library.handle = dlopen(site.library, RTLD_NOW | RTLD_LOCAL);
    if (!library.handle) {
        const char *cause = dlerror();
        return fail(why, size, "libtrimtab cannot be used: %s", cause ? cause : site.library);
    }
    if (find("trimtab_ranks_reserve", &library.reserve) && find("trimtab_ranks_order", &library.order) &&
        find("trimtab_ranks_tell", &library.tell) && find("trimtab_ranks_release", &library.release) &&
        find("trimtab_rank_enter", &library.enter) && find("trimtab_cores_check_settings", &library.check) &&
        find("trimtab_cores_free", &library.free))
        return true;
    /* It stays loaded: some of its functions may be known by now. */
    void *old = library.handle;
    memset(&library, 0, sizeof library);
    dlclose(old);
    return fail(why, size, "%s is older than this plug-in: install the library of the same version", site.library);
}

static void free_text(char *text) {
    if (text) library.free(text);
}

/* ---- Options ---- */

static int option(int value, const char *text, int remote) {
    char why[REFUSAL_MAX];
    (void)value;
    step.asked = true;
    if (!read_wishes(text, &step.wishes, why, sizeof why)) {
        if (remote) {
            /* The plug-in of another version has let it pass where it was typed. */
            memset(&step.wishes, 0, sizeof step.wishes);
            step.wishes.strict = has_word(text, "strict");
            memcpy(step.refused, why, sizeof step.refused);
            return 0;
        }
        slurm_error("trimtab: %s", why);
        return -1;
    }
    /* Values are checked where the user types them, if the library is there. The nodes check them in any case. */
    if (!remote && step.wishes.settings[0] && open_library(why, sizeof why)) {
        char *error = NULL;
        if (library.check(step.wishes.settings, &error)) {
            slurm_error("trimtab: --trimtab: %s", error ? error : "invalid");
            free_text(error);
            return -1;
        }
    }
    return 0;
}

static struct spank_option trimtab_option = {
    "trimtab", "OPTIONS", "place the tasks of each step by trimtab: on, off, strict, audit, strategy=..., memory=..., ...", 2, 0, option,
};

/* Reads the arguments of the line in plugstack.conf. */
static void read_site(int count, char *arguments[]) {
    for (int at = 0; at < count; at++) {
        const char *text = arguments[at];
        char why[LINE_MAX_BYTES];
        if (!strcmp(text, "default=on")) {
            site.on = true;
        } else if (!strcmp(text, "default=off")) {
            site.on = false;
        } else if (!strncmp(text, "partitions=", 11) && text[11]) {
            site.partitions = text + 11;
        } else if (!strncmp(text, "library=/", 9)) {
            site.library = text + 8;
        } else if (!strncmp(text, "options=", 8)) {
            if (read_wishes(text + 8, &site.wishes, why, sizeof why) && !site.wishes.off) continue;
            slurm_error("trimtab: plugstack.conf, %s: %s", text, site.wishes.off ? "write default=off" : why);
            memset(&site.wishes, 0, sizeof site.wishes);
        } else {
            slurm_error("trimtab: plugstack.conf: \"%s\" is ignored (known: default=on|off, partitions=NAME,..., options=OPTION,..., "
                        "library=/FILE)", text);
        }
    }
}

/* Whether the step is to be placed. */
static bool wanted(spank_t spank) {
    uint32_t number = SLURM_BATCH_SCRIPT;
    /* A batch script, and the steps that belong to Slurm, have no tasks to place: holding their CPUs would only keep them from the
     * steps inside. */
    if (spank_get_item(spank, S_JOB_STEPID, &number) != ESPANK_SUCCESS || number > SLURM_MAX_NORMAL_STEP_ID) return false;
    if (step.asked) return !step.wishes.off;
    if (!site.on) return false;
    char partition[256] = "";
    if (!site.partitions) return true;
    return spank_getenv(spank, "SLURM_JOB_PARTITION", partition, sizeof partition) == ESPANK_SUCCESS &&
           has_word(site.partitions, partition);
}

/* ---- slurmstepd ---- */

static bool mask_of(pid_t process, mask_t *mask) {
    memset(mask, 0, sizeof *mask);
    return sched_getaffinity(process, sizeof *mask, (cpu_set_t *)(void *)mask) == 0;
}

/* Makes the settings of a step: its own, and those of the site that it does not name. */
static void settings_of(char *to, size_t size) {
    char rest[SETTINGS_MAX], *save = NULL;
    snprintf(to, size, "%s", step.wishes.settings);
    snprintf(rest, sizeof rest, "%s", site.wishes.settings);
    for (char *word = strtok_r(rest, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char mark[SETTINGS_MAX];
        snprintf(mark, sizeof mark, " %.*s=", (int)strcspn(word, "="), word);
        size_t used = strlen(to);
        if (!strstr(to, mark)) snprintf(to + used, size - used, " %s", word);
    }
}

/* Asks for cores, with all that is known of the step. */
static int reserve(spank_t spank, const char *cpus, uint32_t cores_max, char **error) {
    struct trimtab_cores_wanted cores = {.size = sizeof cores};
    struct trimtab_ranks_wanted ranks = {.size = sizeof ranks};
    uint32_t job = 0, number = 0;
    int words = 0;
    char **command = NULL, **environment = NULL;
    char label[256], folder[64], settings[2 * SETTINGS_MAX];
    spank_get_item(spank, S_JOB_ID, &job);
    spank_get_item(spank, S_JOB_STEPID, &number);
    if (spank_get_item(spank, S_JOB_ARGV, &words, &command) != ESPANK_SUCCESS) command = NULL;
    if (spank_get_item(spank, S_JOB_ENV, &environment) != ESPANK_SUCCESS) environment = NULL;
    size_t used = (size_t)snprintf(label, sizeof label, "slurm step %u.%u:", job, number);
    for (int at = 0; command && command[at] && used < sizeof label; at++)
        used += (size_t)snprintf(label + used, sizeof label - used, " %s", command[at]);
    for (char *letter = label; *letter; letter++)
        if (*letter < ' ' || *letter > '~') *letter = '?'; /* a cut text need not be UTF-8 any more */
    /* The tasks were forked in the folder in which their program starts. */
    snprintf(folder, sizeof folder, "/proc/%d/cwd", (int)step.pids[0]);
    settings_of(settings, sizeof settings);
    cores.cpus = cpus;
    cores.label = label;
    cores.settings = settings[0] ? settings : NULL;
    cores.flags = strict() ? TRIMTAB_CORES_STRICT : 0;
    ranks.cores = &cores;
    ranks.ranks = step.tasks;
    ranks.cores_max = cores_max;
    ranks.pids = (const uint32_t *)step.pids;
    ranks.environment = (const char *const *)environment;
    ranks.command = (const char *const *)command;
    ranks.folder = folder;
    /* Slurm lets steps use the same CPUs only if that was asked for: --overlap, or a partition with OverSubscribe. */
    ranks.shared_with = "slurm step ";
    return library.reserve(&ranks, &step.ranks, error);
}

/* Writes the orders of all tasks, or none. */
static bool give_orders(char *why, size_t size) {
    for (uint32_t task = 0; task < step.tasks; task++) {
        char *order = NULL, *error = NULL;
        if (library.order(step.ranks, task, &order, &error)) {
            fail(why, size, "%s", error ? error : "there is no order for a task");
            free_text(error);
            return false;
        }
        size_t length = strlen(order);
        bool fits = length < ORDER_MAX;
        if (fits) memcpy(step.slots[task].text, order, length + 1);
        free_text(order);
        if (!fits) return fail(why, size, "the variables of a task are longer than %d characters", ORDER_MAX);
        step.slots[task].length = (uint32_t)length;
    }
    return true;
}

static void forget_orders(void) {
    for (uint32_t task = 0; task < step.tasks; task++) step.slots[task].length = 0;
    if (step.ranks) library.release(step.ranks);
    step.ranks = NULL;
}

/* Reserves the cores of the step, and gives each task its order. All tasks exist, and wait. */
static void place(spank_t spank) {
    mask_t all = {{0}};
    char cpus[LINE_MAX_BYTES], why[LINE_MAX_BYTES], node[256] = "?", *line = NULL, *warnings = NULL, *error = NULL, *list = NULL;
    for (uint32_t task = 0; task < step.tasks; task++)
        for (size_t at = 0; at < sizeof all.bytes; at++) all.bytes[at] |= step.slots[task].mask.bytes[at];
    if (!list_of(&all, cpus, sizeof cpus)) {
        unplaced("the CPUs of its tasks cannot be listed");
        return;
    }
    /* Tasks that Slurm does not bind may run on more CPUs than the step was given. */
    uint32_t cores = spank_get_item(spank, S_STEP_ALLOC_CORES, &list) == ESPANK_SUCCESS ? count_of(list) : 0;
    if (reserve(spank, cpus, cores, &error)) {
        unplaced("%s", error ? error : "no cores can be reserved");
        free_text(error);
        return;
    }
    if (!give_orders(why, sizeof why)) {
        forget_orders();
        unplaced("%s", why);
        return;
    }
    gethostname(node, sizeof node - 1);
    if (library.tell(step.ranks, &line, &warnings, &error) == 0) {
        if (audit()) slurm_spank_log("trimtab: %s: %s", node, line);
        char *save = NULL;
        for (char *each = warnings ? strtok_r(warnings, "\n", &save) : NULL; each; each = strtok_r(NULL, "\n", &save))
            slurm_spank_log("trimtab: %s: %s", node, each);
    }
    free_text(line);
    free_text(warnings);
    free_text(error);
}

/* Called once for the task's own process. */
static int set_variable(void *data, const char *name, const char *value) {
    spank_t spank = data;
    spank_err_t code = value ? spank_setenv(spank, name, value, 1) : spank_unsetenv(spank, name);
    return code == ESPANK_SUCCESS || (!value && code == ESPANK_ENV_NOEXIST) ? 0 : -1;
}

/* ---- Hooks ---- */

int slurm_spank_init(spank_t spank, int count, char *arguments[]) {
    spank_context_t context = spank_context();
    if (context != S_CTX_LOCAL && context != S_CTX_REMOTE && context != S_CTX_ALLOCATOR) return 0;
    read_site(count, arguments);
    if (spank_option_register(spank, &trimtab_option) != ESPANK_SUCCESS)
        slurm_error("trimtab: --trimtab cannot be registered; another plug-in may have an option of this name");
    return 0;
}

/* Prepares the step: the library, and the memory that slurmstepd shares with the tasks. */
static void prepare(spank_t spank) {
    char why[LINE_MAX_BYTES];
    if (step.refused[0]) {
        unplaced("%s", step.refused);
        return;
    }
    if (spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &step.tasks) != ESPANK_SUCCESS || !step.tasks) {
        unplaced("the number of its tasks is unknown");
        return;
    }
    if (step.tasks > TASKS_MAX) {
        unplaced("%u tasks on a node are more than the %d that it can place", step.tasks, TASKS_MAX);
        return;
    }
    if (!open_library(why, sizeof why)) {
        unplaced("%s", why);
        return;
    }
    step.pids = calloc(step.tasks, sizeof *step.pids);
    size_t size = (size_t)step.tasks * sizeof *step.slots;
    void *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (step.pids && shared != MAP_FAILED) {
        step.slots = shared;
        return;
    }
    if (shared != MAP_FAILED) munmap(shared, size);
    unplaced("there is no memory for the orders of its tasks");
}

/* slurmstepd, before it forks the tasks. */
int slurm_spank_user_init(spank_t spank, int count, char *arguments[]) {
    (void)count, (void)arguments;
    if (spank_context() == S_CTX_REMOTE && wanted(spank)) prepare(spank);
    return 0;
}

/* slurmstepd, for each task: all of them are forked and wait, and this one is bound. */
int slurm_spank_task_post_fork(spank_t spank, int count, char *arguments[]) {
    pid_t process = 0;
    int task = -1;
    (void)count, (void)arguments;
    if (spank_context() != S_CTX_REMOTE || !step.slots || step.forked >= step.tasks) return 0;
    bool known = spank_get_item(spank, S_TASK_PID, &process) == ESPANK_SUCCESS &&
                 spank_get_item(spank, S_TASK_ID, &task) == ESPANK_SUCCESS && task >= 0 && (uint32_t)task < step.tasks;
    if (!known || !mask_of(process, &step.slots[task].mask)) {
        int cause = errno;
        step.forked = step.tasks; /* the others are not placed either */
        unplaced("the CPUs of a task cannot be read: %s", known ? strerror(cause) : "Slurm does not name it");
        return 0;
    }
    step.pids[task] = process;
    if (++step.forked == step.tasks) place(spank);
    return 0;
}

/* Carries out the order of a task, in its process. Returns whether the task may start. */
static bool enter(spank_t spank, const struct slot *slot, int task) {
    mask_t now;
    if (!mask_of(0, &now) || memcmp(&now, &slot->mask, sizeof now)) {
        unplaced("task %d: this version of Slurm binds its tasks later than the plug-in expects", task);
        return !strict();
    }
    char *missing = NULL, *error = NULL;
    bool entered = library.enter(slot->text, set_variable, spank, &missing, &error) == 0;
    if (!entered) {
        unplaced("task %d: %s", task, error ? error : "its order cannot be carried out");
        sched_setaffinity(0, sizeof slot->mask, (const cpu_set_t *)(const void *)&slot->mask);
    } else if (missing && *missing) {
        slurm_spank_log("trimtab: task %d: %s", task, missing);
    }
    free_text(error);
    free_text(missing);
    return entered || !strict();
}

/* The task, before it executes its program. */
int slurm_spank_task_init(spank_t spank, int count, char *arguments[]) {
    int task = -1;
    (void)count, (void)arguments;
    if (spank_context() != S_CTX_REMOTE) return 0;
    if (step.fails) return -1;
    if (!step.slots || spank_get_item(spank, S_TASK_ID, &task) != ESPANK_SUCCESS) return 0;
    if (task < 0 || (uint32_t)task >= step.tasks) return 0;
    const struct slot *slot = &step.slots[task];
    if (slot->fails) return -1;
    return !slot->length || enter(spank, slot, task) ? 0 : -1;
}

/* slurmstepd, when all tasks have ended. */
int slurm_spank_exit(spank_t spank, int count, char *arguments[]) {
    (void)spank, (void)count, (void)arguments;
    if (spank_context() == S_CTX_REMOTE && step.ranks) {
        library.release(step.ranks);
        step.ranks = NULL;
    }
    return 0;
}
