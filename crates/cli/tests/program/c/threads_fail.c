/* Ends with the given status after a second thread has ended. */
#include <pthread.h>
#include <stdlib.h>

static void *nothing(void *argument) { return argument; }

int main(int count, char **words) {
    pthread_t thread;
    if (count < 2 || pthread_create(&thread, NULL, nothing, NULL)) return 77;
    pthread_join(thread, NULL);
    return atoi(words[1]);
}
