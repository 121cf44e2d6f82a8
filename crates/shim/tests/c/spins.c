/* Threads that wait in a loop of their own: more of them than CPUs. The first argument says what
 * else happens; each mode prints what it saw. The loop has an eight-byte no-operation near it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <linux/futex.h>
#include <time.h>
#include <unistd.h>

enum { WAITERS = 3, TRIES = 600 };

static volatile long flag;
extern unsigned char wait_jump[];

void wait_for(volatile long *at);
#if defined(__x86_64__)
__asm__(".text\n"
        ".p2align 4\n"
        ".globl wait_for\n"
        ".type wait_for,@function\n"
        "wait_for:\n"
        "mov (%rdi), %rax\n"
        "test %rax, %rax\n"
        "wait_jump:\n"
        ".byte 0x74, 0xf8\n" /* je wait_for */
        "ret\n"
        ".p2align 3\n"
        ".byte 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0\n"
        ".size wait_for, . - wait_for\n");
#else
unsigned char wait_jump[2];
void wait_for(volatile long *at)
{
    while (!*at)
        ;
}
#endif

static void *waits(void *unused)
{
    (void)unused;
    wait_for(&flag);
    return NULL;
}

static pthread_t threads[WAITERS];

static void start(void)
{
    for (int i = 0; i < WAITERS; i++)
        if (pthread_create(&threads[i], NULL, waits, NULL))
            exit(3);
}

static void nap(long us)
{
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&time, &time))
        ;
}

/* Waits until the loop's jump has another target; 0 if it keeps its own for a minute. */
static int is_changed(void)
{
    for (int i = 0; i < TRIES; i++) {
        if (((volatile unsigned char *)wait_jump)[1] != 0xf8)
            return 1;
        nap(100000);
    }
    return 0;
}

static void end(void)
{
    flag = 1;
    for (int i = 0; i < WAITERS; i++)
        pthread_join(threads[i], NULL);
}

static volatile sig_atomic_t signals;

static void count(int signal)
{
    (void)signal;
    signals++;
}

static int descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int found = 0;
    while (readdir(folder))
        found++;
    closedir(folder);
    return found;
}

static long now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000L + time.tv_nsec / 1000;
}

/* Calls that return EINTR after a signal, even with SA_RESTART (signal(7)). Each has a time limit
 * and nothing to report; -1 and another error than the one of the limit counts, and so does an
 * early return. */
enum { CALLS = 9, LIMIT_US = 3000 };

static int calls(long which, int epoll, int semaphore, int queue)
{
    struct timespec limit = {0, LIMIT_US * 1000};
    struct timeval select_limit = {0, LIMIT_US};
    struct sembuf down = {0, -1, 0};
    struct epoll_event event;
    struct { long kind; char text[8]; } message;
    sigset_t none;
    static int word;
    int result, expected = 0;
    sigemptyset(&none);
    sigaddset(&none, SIGUSR2);
    long begin = now_us();
    errno = 0;
    switch (which) {
    case 0: result = poll(NULL, 0, LIMIT_US / 1000); break;
    case 1: result = select(0, NULL, NULL, NULL, &select_limit); break;
    case 2: result = epoll_wait(epoll, &event, 1, LIMIT_US / 1000); break;
    case 3: result = nanosleep(&limit, NULL); break;
    case 4: result = clock_nanosleep(CLOCK_MONOTONIC, 0, &limit, NULL); break;
    case 5: result = semtimedop(semaphore, &down, 1, &limit); expected = EAGAIN; break;
    case 6: result = sigtimedwait(&none, NULL, &limit); expected = EAGAIN; break;
    case 7:
        result = (int)syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &limit, NULL, 0);
        expected = ETIMEDOUT;
        break;
    default:
        result = (int)msgrcv(queue, &message, sizeof message.text, 0, IPC_NOWAIT);
        return result != -1 || errno != ENOMSG;
    }
    int error = result == -1 ? errno : 0;
    return error != expected || now_us() - begin < LIMIT_US;
}

static void *calls_in_turn(void *made)
{
    long rounds = 40, wrong = 0;
    int semaphore = semget(IPC_PRIVATE, 1, 0600), queue = msgget(IPC_PRIVATE, 0600);
    int epoll = epoll_create1(0);
    while (rounds--)
        for (long which = 0; which < CALLS; which++) {
            /* Some of its time in its own code, so that it is sampled. */
            long until = now_us() + 1000;
            while (now_us() < until)
                ;
            wrong += calls(which, epoll, semaphore, queue);
        }
    semctl(semaphore, 0, IPC_RMID);
    msgctl(queue, IPC_RMID, NULL);
    close(epoll);
    *(long *)made = wrong;
    return NULL;
}

static void *ends_the_process(void *unused)
{
    (void)unused;
    end();
    return NULL;
}

int main(int count_of, char **arguments)
{
    const char *mode = count_of > 1 ? arguments[1] : "";
    if (!strcmp(mode, "child"))
        return 7;
    if (!strcmp(mode, "signals")) {
        for (int number = 1; number < 65; number++) {
            struct sigaction action;
            memset(&action, 0, sizeof action);
            action.sa_handler = count;
            sigaction(number, &action, NULL);
        }
    }
    int before = descriptors();
    start();
    if (!strcmp(mode, "calls")) {
        pthread_t caller[2];
        long wrong[2];
        for (int i = 0; i < 2; i++)
            pthread_create(&caller[i], NULL, calls_in_turn, &wrong[i]);
        for (int i = 0; i < 2; i++)
            pthread_join(caller[i], NULL);
        printf("wrong %ld ", wrong[0] + wrong[1]);
    }
    printf("changed %d ", is_changed());
    if (!strcmp(mode, "signals"))
        printf("signals %d descriptors %d ", (int)signals, descriptors() - before);
    if (!strcmp(mode, "fork")) {
        int status = 0;
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            /* The child waits in the changed loop, too, and starts threads of its own. */
            start();
            end();
            _exit(5);
        }
        waitpid(child, &status, 0);
        printf("child %d ", WEXITSTATUS(status));
        child = fork();
        if (!child) {
            execl("/proc/self/exe", "spins", "child", (char *)NULL);
            _exit(9);
        }
        waitpid(child, &status, 0);
        printf("exec %d ", WEXITSTATUS(status));
    }
    fflush(stdout);
    if (!strcmp(mode, "last")) {
        pthread_t ender;
        pthread_create(&ender, NULL, ends_the_process, NULL);
        pthread_exit(NULL);
    }
    end();
    printf("ended\n");
    return 0;
}
