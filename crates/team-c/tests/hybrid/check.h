/* Failure messages of the programs of these tests. */
#ifndef CHECK_H
#define CHECK_H
#include <stdio.h>
#include <stdlib.h>
#include <trimtab/team.h>
#include <unistd.h>

#define OK(call) expect(call, TRIMTAB_OK, #call, __LINE__)
#define FAILS(code, call) expect(call, code, #call, __LINE__)
#define IS(what) ((what) ? (void)0 : wrong(#what, __LINE__))

static inline void wrong(const char *what, int line) {
    fprintf(stderr, "line %d: %s\n", line, what);
    fflush(NULL);
    /* At once: other loaded libraries may wait for other processes when a program ends. */
    _exit(1);
}

static inline void expect(int got, int code, const char *what, int line) {
    if (got == code) return;
    fprintf(stderr, "line %d: %s: %s (%s), not %s\n", line, what, trimtab_error_text(got), trimtab_last_error(),
            trimtab_error_text(code));
    fflush(NULL);
    _exit(1);
}

#endif
