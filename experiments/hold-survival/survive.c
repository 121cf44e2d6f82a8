/* Ways to keep a hold that a program's `closefrom` would end.   survive WAY FILE PROGRAM [WORD]...

   Locks a byte of FILE as a launcher locks a CPU, leaves the descriptor to the program at number 600, and starts the program:
     descriptor   by exec, with the descriptor alone
     record       by exec; the number and the start of the process are written into the file before
     parent       in a child; this process keeps the descriptor, hands signals on, and ends as the child ended
   survive check PID START COUNT   checks a record as other launches would have to, and prints nanoseconds for each check. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pid_t child;

static void die(const char *what) {
    perror(what);
    exit(125);
}

static void hand_on(int signal) { kill(child, signal); }

/* Returns the start of a process in ticks, 0 if there is none. */
static unsigned long long start_of(int pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0) return 0;
    text[length] = 0;
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

static int check(int pid, unsigned long long start, long count) {
    struct timespec begin, end;
    long same = 0;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (long round = 0; round < count; round++) same += start_of(pid) == start;
    clock_gettime(CLOCK_MONOTONIC, &end);
    double ns = (end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec);
    printf("%.0f %s\n", ns / count, same == count ? "lives" : "is gone");
    return 0;
}

int main(int count, char **words) {
    if (count == 5 && !strcmp(words[1], "check"))
        return check(atoi(words[2]), strtoull(words[3], NULL, 10), atol(words[4]));
    if (count < 4) return fprintf(stderr, "survive WAY FILE PROGRAM [WORD]...\n"), 125;
    int file = open(words[2], O_RDWR | O_CREAT, 0600);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    if (file < 0 || fcntl(file, F_OFD_SETLK, &lock)) die(words[2]);
    if (fcntl(file, F_DUPFD, 600) < 0) die("600");
    close(file);
    if (!strcmp(words[1], "record")) {
        char record[64];
        int length = snprintf(record, sizeof record, "%d %llu\n", getpid(), start_of(getpid()));
        if (pwrite(600, record, length, 0) != length) die("record");
    } else if (!strcmp(words[1], "parent")) {
        child = fork();
        if (child < 0) die("fork");
        if (child) {
            int status, handed[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH};
            for (unsigned at = 0; at < sizeof handed / sizeof *handed; at++) signal(handed[at], hand_on);
            close(0), close(1), close(2);
            while (waitpid(child, &status, 0) < 0) {}
            if (WIFSIGNALED(status)) {
                signal(WTERMSIG(status), SIG_DFL);
                raise(WTERMSIG(status));
            }
            return WEXITSTATUS(status);
        }
    }
    execvp(words[3], words + 3);
    die(words[3]);
}
