// Preloaded into a server: while the file exists that CHAOS_SYNC_FAILS names, syncs fail as on a dying disk.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int fails(void) {
    const char *file = getenv("CHAOS_SYNC_FAILS");
    return file != NULL && access(file, F_OK) == 0;
}

int fdatasync(int fd) {
    if (fails()) {
        errno = EIO;
        return -1;
    }
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return real(fd);
}

int fsync(int fd) {
    if (fails()) {
        errno = EIO;
        return -1;
    }
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return real(fd);
}
