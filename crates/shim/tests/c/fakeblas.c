// Stand-in for a BLAS library with threads: it has OpenBLAS's functions for its number of threads, or
// MKL's if MKL is defined, or BLIS's if BLIS is (0: one number for the process; 1: one for each thread, and a
// function that says so; 2: one for each thread, without that function, as AMD's build). A product stores the
// number of threads that it would use, and waits until as many calls are inside as `blas_together` says. It
// checks that its arguments arrive.
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

int blas_together = 1;
// Where a product with a wrong argument goes, as in programs whose error handler does not return.
jmp_buf blas_error;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int inside, ended;

#ifdef MKL
static int number = 8;
static __thread int own;
int MKL_Get_Max_Threads(void) { return own ? own : number; }
int MKL_Set_Num_Threads_Local(int threads) {
    int before = own;
    own = threads;
    return before;
}
static int threads(void) { return MKL_Get_Max_Threads(); }
#elif defined BLIS
#if BLIS
static __thread long number = 8;
#if BLIS == 1
long bli_info_get_enable_tls(void) { return 1; }
#endif
#else
static volatile long number = 8;
#endif
long bli_thread_get_num_threads(void) { return number; }
void bli_thread_set_num_threads(long threads) { number = threads; }
static int threads(void) { return (int)number; }
#else
static volatile int number = 8;
int openblas_get_parallel(void) { return 1; }
int openblas_get_num_threads(void) { return number; }
void openblas_set_num_threads(int threads) { number = threads; }
static int threads(void) { return number; }
#endif

void blas_wait_for(int calls) {
    pthread_mutex_lock(&lock);
    while (inside < calls) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

void cblas_dgemm(int order, int ta, int tb, int m, int n, int k, double alpha, const double *a, int lda,
                 const double *b, int ldb, double beta, double *c, int ldc) {
    if (order == 0) longjmp(blas_error, 1);
    if (order != 101 || ta != 111 || tb != 112 || m != 2 || n != 3 || k != 4 || alpha != 0.5 || a[0] != 1.5 || lda != 5 ||
        b[0] != 2.5 || ldb != 6 || beta != 0.25 || ldc != 7) {
        fprintf(stderr, "an argument is lost\n");
        abort();
    }
    c[0] = threads();
    pthread_mutex_lock(&lock);
    inside++;
    pthread_cond_broadcast(&changed);
    while (inside < blas_together && !ended) pthread_cond_wait(&changed, &lock);
    ended = 1;
    pthread_mutex_unlock(&lock);
}

// The calls of the next step begin.
void blas_again(int together) {
    blas_together = together;
    inside = ended = 0;
}

int dgesv_(const int *n, const int *nrhs, double *a, const int *lda, int *pivots, double *b, const int *ldb, int *info) {
    if (*n != 1 || *nrhs != 2 || *lda != 3 || *ldb != 4 || a[0] != 1.5 || pivots[0] != 9 || b[0] != 2.5) abort();
    *info = threads();
    return 77;
}
