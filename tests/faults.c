/* SPDX-License-Identifier: Apache-2.0
 *
 * A disk that fails, for LD_PRELOAD: the n-th call that changes something below a folder fails, or writes half.
 * fault_set(folder, n, error): error is an errno, 0 writes half of what was asked for. fault_fired(): whether it did. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static char folder[4096];
static int left, error, fired;

void fault_set(const char *where, int n, int with) {
    snprintf(folder, sizeof folder, "%s", where);
    left = n, error = with, fired = 0;
}

int fault_fired(void) { return fired; }

static int hit_path(const char *path) {
    if (!folder[0] || strncmp(path, folder, strlen(folder)) || --left) return 0;
    return fired = 1;
}

static int hit(int file) {
    char link[64], path[4096];
    if (!folder[0] || left <= 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return hit_path(path);
}

#define NEXT(name) static __typeof__(name) *next; if (!next) next = dlsym(RTLD_NEXT, #name)
#define FAIL do { errno = error ? error : EIO; return -1; } while (0)

ssize_t write(int file, const void *data, size_t size) {
    NEXT(write);
    if (!hit(file)) return next(file, data, size);
    if (error) FAIL;
    return next(file, data, size > 1 ? size / 2 : size);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    NEXT(pwrite64);
    if (!hit(file)) return next(file, data, size, at);
    if (error) FAIL;
    return next(file, data, size > 1 ? size / 2 : size, at);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t at) { return pwrite64(file, data, size, at); }

int fsync(int file) { NEXT(fsync); if (hit(file)) FAIL; return next(file); }
int fdatasync(int file) { NEXT(fdatasync); if (hit(file)) FAIL; return next(file); }
int ftruncate64(int file, off64_t size) { NEXT(ftruncate64); if (hit(file)) FAIL; return next(file, size); }
int ftruncate(int file, off_t size) { return ftruncate64(file, size); }
int rename(const char *from, const char *to) { NEXT(rename); if (hit_path(to)) FAIL; return next(from, to); }

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    NEXT(renameat);
    if (hit(to_folder)) FAIL;
    return next(from_folder, from, to_folder, to);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    NEXT(linkat);
    if (hit(to_folder)) FAIL;
    return next(from_folder, from, to_folder, to, flags);
}
