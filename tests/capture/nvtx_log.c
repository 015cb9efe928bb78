/* SPDX-License-Identifier: Apache-2.0
 *
 * A tool that listens to NVTX: writes each range that is closed as a line of the file NVTX_LOG,
 *
 *     thread <tab> start <tab> end <tab> domain <tab> payload <tab> text
 *
 * in ns of the monotonic clock; the default domain is "-", no payload is -1. NVTX loads it when NVTX_INJECTION64_PATH
 * names it before the first call. Layout of the structures and numbers of the callbacks: nvtx3/nvToolsExt.h,
 * nvtx3/nvtxDetail/nvtxTypes.h (NVTX 3).
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ETID_CALLBACKS = 1, MODULE_CORE = 1, MODULE_CORE2 = 5 };
enum { RANGE_PUSH_EX = 8, RANGE_PUSH_A = 9, RANGE_POP = 11 };
enum { DOMAIN_PUSH_EX = 4, DOMAIN_POP = 5, DOMAIN_REGISTER_STRING_A = 10, DOMAIN_CREATE_A = 12 };
enum { MESSAGE_ASCII = 1, MESSAGE_REGISTERED = 3, PAYLOAD_INT64 = 2 };
enum { DEPTH = 256 };

typedef void (*function_t)(void);
typedef struct {
    size_t struct_size;
    int (*get_module_function_table)(int module, function_t ***table, unsigned int *size);
} callbacks_t;
typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    int64_t payload;
    int32_t message_type;
    const char *message;
} attributes_t;
typedef struct {
    const char *domain, *text;
    int64_t start, payload;
} range_t;

static FILE *out;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread range_t stack[DEPTH]; /* of all domains: each pops its own innermost */
static __thread int depth;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int push(const char *domain, const char *text, int64_t payload) {
    if (depth < DEPTH) stack[depth] = (range_t){domain, strdup(text), now(), payload};
    return depth++;
}

static int pop(const char *domain) {
    int64_t end = now();
    int i = depth - 1;
    while (i >= 0 && (i >= DEPTH || strcmp(stack[i].domain, domain))) i--;
    if (i < 0) {
        pthread_mutex_lock(&lock);
        fprintf(out, "unbalanced pop in %s\n", domain);
        pthread_mutex_unlock(&lock);
        return -1;
    }
    pthread_mutex_lock(&lock);
    fprintf(out, "%ld\t%lld\t%lld\t%s\t%lld\t%s\n", syscall(SYS_gettid), (long long)stack[i].start, (long long)end,
            domain, (long long)stack[i].payload, stack[i].text);
    pthread_mutex_unlock(&lock);
    free((char *)stack[i].text);
    memmove(stack + i, stack + i + 1, sizeof *stack * (depth - i - 1));
    return --depth;
}

static int push_ex(const char *domain, const attributes_t *a) {
    int known = a->message_type == MESSAGE_ASCII || a->message_type == MESSAGE_REGISTERED;
    return push(domain, known ? a->message : "?", a->payload_type == PAYLOAD_INT64 ? a->payload : -1);
}

static int range_push_a(const char *text) { return push("-", text, -1); }
static int range_push_ex(const attributes_t *a) { return push_ex("-", a); }
static int range_pop(void) { return pop("-"); }
static int domain_push_ex(void *domain, const attributes_t *a) { return push_ex(domain ? domain : "-", a); }
static int domain_pop(void *domain) { return pop(domain ? domain : "-"); }
static void *domain_create(const char *name) { return strdup(name); }      /* a handle is the name itself */
static void *register_string(void *domain, const char *text) {
    pthread_mutex_lock(&lock);
    fprintf(out, "registered\t%s\t%s\n", domain ? (char *)domain : "-", text);
    pthread_mutex_unlock(&lock);
    return strdup(text);
}

static void flush(void) { fflush(out); }

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
    const callbacks_t *callbacks = export_table(ETID_CALLBACKS);
    function_t **core, **core2;
    unsigned int size, size2;
    const char *path = getenv("NVTX_LOG");
    if (!path || !callbacks || !callbacks->get_module_function_table(MODULE_CORE, &core, &size) || size <= RANGE_POP ||
        !callbacks->get_module_function_table(MODULE_CORE2, &core2, &size2) || size2 <= DOMAIN_CREATE_A)
        return 0;
    if (!(out = fopen(path, "w"))) return 0;
    atexit(flush);
    *core[RANGE_PUSH_EX] = (function_t)range_push_ex;
    *core[RANGE_PUSH_A] = (function_t)range_push_a;
    *core[RANGE_POP] = (function_t)range_pop;
    *core2[DOMAIN_PUSH_EX] = (function_t)domain_push_ex;
    *core2[DOMAIN_POP] = (function_t)domain_pop;
    *core2[DOMAIN_REGISTER_STRING_A] = (function_t)register_string;
    *core2[DOMAIN_CREATE_A] = (function_t)domain_create;
    return 1;
}
