// Cores on call, as another project uses them: by the header alone. Each word of the command line is a step:
//   plan           says how many threads the plan of a core has
//   reserve        reserves a core and says "held LIST", or the code and the text of the error
//   wait           the same, waiting for up to a minute; says "waiting" when the wait begins
//   cancel         the same, and ends the wait at the first look
//   refuse         the same, and ends the wait at the first line about it
//   bind           binds the thread and says the number of its CPUs
//   child          a forked child releases the cores and ends
//   release        releases the cores and says so
//   list           says how many holds the library lists
//   threads        four threads reserve and release the machine's cores a hundred times each; says how often
//   bad            calls with invalid arguments, and says how many are refused as such
//   input          says "ready" and waits until standard input ends
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <trimtab/trimtab.h>

static trimtab_cores *cores;

static int first_look(void *data, const char *line) {
    if (line && !*(int *)data) {
        *(int *)data = 1;
        printf("waiting ");
        fflush(stdout);
    }
    return 0;
}

static int no_look(void *data, const char *line) {
    (void)data;
    return line == NULL;
}

static int no_line(void *data, const char *line) {
    (void)data;
    return line != NULL;
}

// Prints the value of a field of a document, which is a text without escapes.
static void field(const char *json, const char *name) {
    const char *at = strstr(json, name);
    if (!at) {
        printf("no %s ", name);
        return;
    }
    at += strlen(name) + 2; // the colon and the quotation mark
    printf("%.*s ", (int)strcspn(at, "\""), at);
}

static void reserve(int64_t wait_ms, int (*look)(void *, const char *)) {
    struct trimtab_cores_wanted wanted = {sizeof wanted, "1", NULL, NULL, NULL, "cores.c", 0, 0, 0, NULL, NULL};
    int told = 0;
    char *error = NULL, *json = NULL;
    wanted.wait_ms = wait_ms;
    wanted.look = look;
    wanted.data = &told;
    int code = trimtab_cores_reserve(&wanted, &cores, &error);
    if (code) {
        printf("error %d: %s ", code, error);
        trimtab_cores_free(error);
        return;
    }
    code = trimtab_cores_describe(cores, &json, NULL);
    printf("held ");
    field(code ? "" : json, "\"reserved\"");
    trimtab_cores_free(json);
}

static void *many(void *count) {
    for (int at = 0; at < 100; at++) {
        struct trimtab_cores_wanted wanted = {sizeof wanted, "1", NULL, NULL, NULL, NULL, 0, 0, -1, NULL, NULL};
        trimtab_cores *mine;
        if (!trimtab_cores_reserve(&wanted, &mine, NULL)) {
            __atomic_add_fetch((int *)count, 1, __ATOMIC_RELAXED);
            trimtab_cores_release(mine);
        }
    }
    return NULL;
}

static int bad(void) {
    struct trimtab_cores_wanted good = {sizeof good, "1", NULL, NULL, NULL, NULL, 0, 0, 0, NULL, NULL}, one;
    trimtab_cores *mine;
    char *json;
    int refused = 0;
#define REFUSED(call) refused += (call) == TRIMTAB_CORES_ARGUMENT
    REFUSED(trimtab_cores_reserve(NULL, &mine, NULL));
    REFUSED(trimtab_cores_reserve(&good, NULL, NULL));
    one = good, one.size = 0;
    REFUSED(trimtab_cores_reserve(&one, &mine, NULL));
    one = good, one.size = sizeof one + 8;
    REFUSED(trimtab_cores_plan(&one, &json, NULL));
    one = good, one.cores = "two";
    REFUSED(trimtab_cores_plan(&one, &json, NULL));
    one = good, one.cores = "\xff";
    REFUSED(trimtab_cores_plan(&one, &json, NULL));
    one = good, one.cpus = "7-3";
    REFUSED(trimtab_cores_plan(&one, &json, NULL));
    one = good, one.near = "tape:0";
    REFUSED(trimtab_cores_plan(&one, &json, NULL));
    one = good, one.settings = "colour=red";
    REFUSED(trimtab_cores_plan(&one, &json, NULL));
    one = good, one.flags = 64;
    REFUSED(trimtab_cores_plan(&one, &json, NULL));
    one = good, one.wait_ms = -2;
    REFUSED(trimtab_cores_plan(&one, &json, NULL));
    REFUSED(trimtab_cores_plan(&good, NULL, NULL));
    REFUSED(trimtab_cores_describe(NULL, &json, NULL));
    REFUSED(trimtab_cores_bind_thread(NULL, NULL));
    REFUSED(trimtab_cores_list(NULL, NULL));
    trimtab_cores_release(NULL);
    trimtab_cores_free(NULL);
    return refused;
}

int main(int count, char **word) {
    for (int at = 1; at < count; at++) {
        const char *step = word[at];
        char *json = NULL, *error = NULL;
        if (!strcmp(step, "plan")) {
            struct trimtab_cores_wanted wanted = {sizeof wanted, "1", NULL, NULL, NULL, NULL, 0, 0, 0, NULL, NULL};
            if (trimtab_cores_plan(&wanted, &json, NULL)) return 2;
            printf("%s ", strstr(json, "\"threads\":1") ? "1" : json);
            trimtab_cores_free(json);
        } else if (!strcmp(step, "reserve")) {
            reserve(0, NULL);
        } else if (!strcmp(step, "wait")) {
            reserve(60000, first_look);
        } else if (!strcmp(step, "cancel")) {
            reserve(-1, no_look);
        } else if (!strcmp(step, "refuse")) {
            reserve(-1, no_line);
        } else if (!strcmp(step, "bind")) {
            cpu_set_t set;
            if (trimtab_cores_bind_thread(cores, NULL)) return 3;
            sched_getaffinity(0, sizeof set, &set);
            printf("%d ", CPU_COUNT(&set));
        } else if (!strcmp(step, "child")) {
            fflush(stdout);
            int child = fork();
            if (!child) {
                trimtab_cores_release(cores);
                _exit(0);
            }
            waitpid(child, NULL, 0);
        } else if (!strcmp(step, "release")) {
            trimtab_cores_release(cores);
            printf("released ");
        } else if (!strcmp(step, "list")) {
            int holds = 0;
            if (trimtab_cores_list(&json, &error)) {
                fprintf(stderr, "%s\n", error);
                return 4;
            }
            for (const char *hold = json; (hold = strstr(hold, "\"age_s\"")); hold++) holds++;
            printf("%d ", holds);
            trimtab_cores_free(json);
        } else if (!strcmp(step, "threads")) {
            pthread_t thread[4];
            int done = 0;
            for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, many, &done);
            for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
            printf("%d ", done);
        } else if (!strcmp(step, "bad")) {
            printf("%d ", bad());
        } else if (!strcmp(step, "input")) {
            char byte;
            printf("ready\n");
            fflush(stdout);
            while (read(0, &byte, 1) > 0) {}
        }
        fflush(stdout);
    }
    printf("\n");
    return 0;
}
