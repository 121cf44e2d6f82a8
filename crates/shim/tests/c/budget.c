// Teams under a budget. Each word of the command line is a step of the process:
//   flat        opens a team without a number
//   NUMBER      opens a team with that number
//   nest        opens a team of teams, none with a number
//   serial      opens a team that its if clause makes serial
//   unused      states a number for a team that its if clause makes serial
//   hold        opens a team without a number, says so, and computes in it until standard input ends
//   sleep       the same, but sleeps in it
//   fork        goes on in a child, and waits for it
//   forkin      goes on in a new program of a child that a team's first thread forked; the new
//               program starts once that team has ended
//   exec        goes on in a new program of the same process
//   wait        waits until standard input ends
//   args        opens a team that gets many values, and prints their sum
//   many        opens a million teams of two and prints nothing
// It prints the size of each team; of teams of teams the sizes of the inner ones.
#define _GNU_SOURCE
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int ended;

static void size(void) {
#pragma omp single
    printf("%d ", omp_get_num_threads());
}

static void until_input_ends(int computes) {
    char byte;
    if (computes) {
#pragma omp parallel
        {
#pragma omp single nowait
            {
                printf("%d ", omp_get_num_threads());
                fflush(stdout);
                while (read(0, &byte, 1) > 0) {}
                ended = 1;
            }
            while (!ended) {}
        }
    } else {
#pragma omp parallel
        {
#pragma omp single
            {
                printf("%d ", omp_get_num_threads());
                fflush(stdout);
                while (read(0, &byte, 1) > 0) {}
            }
        }
    }
}

static int finish(int child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

int main(int count, char **word) {
    for (int at = 1; at < count; at++) {
        const char *step = word[at];
        if (!strcmp(step, "flat")) {
#pragma omp parallel
            size();
        } else if (atoi(step) > 0) {
#pragma omp parallel num_threads(atoi(step))
            size();
        } else if (!strcmp(step, "nest")) {
            int sizes[64] = {0}, outer = 0;
#pragma omp parallel
            {
#pragma omp single
                outer = omp_get_num_threads();
                int number = omp_get_thread_num();
#pragma omp parallel
                {
#pragma omp single
                    sizes[number] = omp_get_num_threads();
                }
            }
            printf("%d:", outer);
            for (int inner = 0; inner < outer; inner++) printf("%d%c", sizes[inner], inner + 1 < outer ? ',' : ' ');
        } else if (!strcmp(step, "serial")) {
#pragma omp parallel if (count < 0)
            size();
        } else if (!strcmp(step, "unused")) {
#pragma omp parallel num_threads(7) if (count < 0)
            size();
        } else if (!strcmp(step, "hold")) {
            until_input_ends(1);
        } else if (!strcmp(step, "sleep")) {
            until_input_ends(0);
        } else if (!strcmp(step, "fork") || !strcmp(step, "forkin")) {
            int child = -1, team_end[2] = {-1, -1};
            fflush(stdout);
            if (step[4]) {
                if (pipe(team_end)) return 97;
#pragma omp parallel
#pragma omp master
                {
                    child = fork();
                    if (child == 0) {
                        // The other threads of the team do not exist here: its end would not come.
                        // The parent's team has ended when the parent closes its end of the pipe.
                        char byte;
                        close(team_end[1]);
                        while (read(team_end[0], &byte, 1) > 0) {}
                        close(team_end[0]);
                        word[at] = word[0];
                        execv("/proc/self/exe", word + at);
                        _exit(98);
                    }
                }
                close(team_end[0]);
                close(team_end[1]);
            } else {
                child = fork();
            }
            if (child > 0) return finish(child);
        } else if (!strcmp(step, "exec")) {
            fflush(stdout);
            word[at] = word[0];
            execv("/proc/self/exe", word + at);
            return 98;
        } else if (!strcmp(step, "wait")) {
            char byte;
            fflush(stdout);
            while (read(0, &byte, 1) > 0) {}
        } else if (!strcmp(step, "args")) {
            // More values than registers for arguments.
            int a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8, i = 9, j = 10, k = 11, sum = 0;
#pragma omp parallel firstprivate(a, b, c, d, e, f) shared(g, h, i, j, k) reduction(+ : sum)
            sum += (a + b + c + d + e + f + g + h + i + j + k) * (omp_get_thread_num() == 0);
            printf("%d ", sum);
        } else if (!strcmp(step, "many")) {
            for (int team = 0; team < 1000000; team++) {
#pragma omp parallel num_threads(2)
                __asm__ volatile("");
            }
        }
        fflush(stdout);
    }
    printf("\n");
    return 0;
}
