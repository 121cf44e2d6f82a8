// Calls of BLAS under a budget. Each word of the command line is a step:
//   one      a product on the initial thread
//   pool     three threads, each of which begins its product after the one before
//   team     a team of two threads that multiply at the same time
//   solve    a function of Fortran's form that returns a number
//   forked   goes on in a child while another thread is in a call; the parent then ends both calls
//   jump     a product whose error handler jumps out of it
//   stay     stays in a call until standard input ends
//   set      the program sets three threads (not MKL's)
//   pause    a while without calls
//   number   the library's number now
// It prints the number of threads of each call.
#define _GNU_SOURCE
#include <omp.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void cblas_dgemm(int, int, int, int, int, int, double, const double *, int, const double *, int, double, double *, int);
int dgesv_(const int *, const int *, double *, const int *, int *, double *, const int *, int *);
void blas_again(int), blas_wait_for(int);
extern jmp_buf blas_error;
#ifdef MKL
int MKL_Get_Max_Threads(void);
#define get MKL_Get_Max_Threads
#elif defined BLIS
long bli_thread_get_num_threads(void);
void bli_thread_set_num_threads(long);
#define get() (int)bli_thread_get_num_threads()
#define set bli_thread_set_num_threads
#else
int openblas_get_num_threads(void);
void openblas_set_num_threads(int);
#define get openblas_get_num_threads
#define set openblas_set_num_threads
#endif

static int first = 101;

__attribute__((noinline)) static int product(void) {
    double a = 1.5, b = 2.5, c = 0;
    cblas_dgemm(first, 111, 112, 2, 3, 4, 0.5, &a, 5, &b, 6, 0.25, &c, 7);
    return (int)c;
}

static int sizes[8];

static void *work(void *number) {
    int at = (int)(long)number;
    blas_wait_for(at);
    sizes[at] = product();
    return 0;
}

int main(int count, char **word) {
    for (volatile int at = 1; at < count; at++) {
        if (!strcmp(word[at], "one")) {
            blas_again(1);
            printf("%d ", product());
        } else if (!strcmp(word[at], "pool")) {
            pthread_t thread[3];
            blas_again(3);
            for (long number = 0; number < 3; number++) pthread_create(&thread[number], 0, work, (void *)number);
            for (int number = 0; number < 3; number++) pthread_join(thread[number], 0);
            printf("%d,%d,%d ", sizes[0], sizes[1], sizes[2]);
        } else if (!strcmp(word[at], "team")) {
            blas_again(2);
#pragma omp parallel num_threads(2)
            {
                int number = omp_get_thread_num();
                blas_wait_for(number);
                sizes[number] = product();
            }
            printf("%d,%d ", sizes[0], sizes[1]);
        } else if (!strcmp(word[at], "solve")) {
            int n = 1, nrhs = 2, lda = 3, ldb = 4, pivots = 9, info = 0;
            double a = 1.5, b = 2.5;
            int result = dgesv_(&n, &nrhs, &a, &lda, &pivots, &b, &ldb, &info);
            printf("%d:%d ", result, info);
        } else if (!strcmp(word[at], "forked") || !strcmp(word[at], "stay")) {
            pthread_t thread;
            blas_again(2);
            pthread_create(&thread, 0, work, (void *)0);
            blas_wait_for(1);
            if (word[at][0] == 's') {
                char byte;
                printf("%d ", get());
                fflush(stdout);
                while (read(0, &byte, 1) > 0) {}
            } else {
                int child = fork(), status = 0;
                if (child == 0) continue;
                if (waitpid(child, &status, 0) != child || status) return 1;
            }
            int own = product();
            pthread_join(thread, 0);
            printf("%d,%d %d ", sizes[0], own, get());
            if (word[at][0] == 'f') break;
        } else if (!strcmp(word[at], "jump")) {
            first = 0;
            if (!setjmp(blas_error)) product();
            first = 101;
        } else if (!strcmp(word[at], "set")) {
#ifndef MKL
            set(3);
#endif
        } else if (!strcmp(word[at], "pause")) {
            usleep(100000);
        } else if (!strcmp(word[at], "number")) {
            printf("%d ", get());
        }
        fflush(stdout);
    }
    printf("\n");
    return 0;
}
