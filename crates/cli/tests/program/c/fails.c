/* Ends with the given status after a region; with a second word also in a child, or with data on descriptor 2. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words) {
    int threads = 0;
#pragma omp parallel
#pragma omp atomic
    threads++;
    if (threads < 1) return 78;
    const char *how = count > 2 ? words[2] : "";
    if (!strcmp(how, "child")) {
        pid_t pid = fork();
        if (!pid) exit(9);
        waitpid(pid, 0, 0);
    }
    if (!strcmp(how, "data")) {
        close(2);
        if (open(words[3], O_WRONLY | O_CREAT, 0600) != 2) return 77;
    }
    return atoi(words[1]);
}
