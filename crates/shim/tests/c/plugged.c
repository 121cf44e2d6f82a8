// Opens a library, lets it open a team, and closes it, three times. A second library stays open: GNU's
// runtime crashes if it is unloaded while its threads wait, also without the library under test.
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **word) {
    if (count > 2 && !dlopen(word[2], RTLD_NOW | RTLD_LOCAL)) return 4;
    for (int time = 0; time < 3 && count > 1; time++) {
        void *library = dlopen(word[1], RTLD_NOW | RTLD_LOCAL);
        if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
        int (*size)(void) = (int (*)(void))dlsym(library, "size_of_team");
        if (!size) return 2;
        printf("%d ", size());
        if (dlclose(library)) return 3;
    }
    printf("\n");
    return 0;
}
