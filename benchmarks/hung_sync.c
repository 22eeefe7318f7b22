/* For LD_PRELOAD: a disk that takes writes and does not return from syncs, while the file $HUNG exists. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static void wait_while_hung(void) {
    const char *path = getenv("HUNG");
    while (path != NULL && access(path, F_OK) == 0)
        usleep(1000);
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (real == NULL)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_while_hung();
    return real(fd);
}

int fsync(int fd) {
    static int (*real)(int);
    if (real == NULL)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_while_hung();
    return real(fd);
}
