/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for libcupti where there is no GPU: the functions that PyProf calls, with the prototypes of
 * cupti_activity.h. What the test hands it with fake_add comes back at the next flush, in as many buffers as it takes,
 * which are asked for and completed on another thread, as CUPTI does.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void (*request_t)(uint8_t **buffer, size_t *size, size_t *most_records);
typedef void (*complete_t)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);

enum { KINDS = 64, MAX_LIMIT_REACHED = 12, INVALID_KIND = 21 };

static request_t request;
static complete_t complete;
static uint8_t *pending;
static size_t pending_bytes, dropped;
static int sizes[KINDS], errors[KINDS], enabled[KINDS], thread_ids, version_error;
static uint32_t version = 130001;
static int64_t clock_offset;

/* What the test sets and reads. */
void fake_version(uint32_t number, int error) { version = number; version_error = error; }
void fake_size(int kind, int bytes) { sizes[kind] = bytes; }
void fake_error(int kind, int code) { errors[kind] = code; }
void fake_clock(int64_t offset) { clock_offset = offset; }
int fake_enabled(int kind) { return enabled[kind]; }
int fake_thread_ids(void) { return thread_ids; }
void fake_dropped(size_t count) { dropped = count; }
void fake_add(const void *records, size_t bytes)
{
    pending = realloc(pending, pending_bytes + bytes);
    memcpy(pending + pending_bytes, records, bytes);
    pending_bytes += bytes;
}

int cuptiGetVersion(uint32_t *out) { *out = version; return version_error; }

int cuptiGetResultString(int code, const char **text)
{
    *text = code == 35 ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "CUPTI_ERROR_FAKE";
    return 0;
}

int cuptiGetTimestamp(uint64_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *out = now.tv_sec * 1000000000ll + now.tv_nsec + clock_offset;
    return 0;
}

int cuptiGetCallbackName(int domain, uint32_t number, const char **name)
{
    if (domain == 2 && number == 211) { *name = "cudaLaunchKernel_v7000"; return 0; }
    if (domain == 1 && number == 307) { *name = "cuLaunchKernel"; return 0; }
    return 1;
}

int cuptiGetThreadIdType(int *out) { *out = thread_ids; return 0; }
int cuptiSetThreadIdType(int kind) { thread_ids = kind; return 0; }
int cuptiActivityRegisterCallbacks(request_t r, complete_t c) { request = r; complete = c; return 0; }
int cuptiActivityEnable(int kind) { if (!errors[kind]) enabled[kind] = 1; return errors[kind]; }
int cuptiActivityDisable(int kind) { enabled[kind] = 0; return 0; }
int cuptiActivityEnableRuntimeApi(uint32_t number, uint8_t on) { return 0; }

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *out)
{
    *out = dropped;
    dropped = 0;
    return 0;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record)
{
    uint8_t *next = *record ? *record + sizes[*(int32_t *)*record] : buffer;
    if (*record && !sizes[*(int32_t *)*record]) return INVALID_KIND;
    if (next >= buffer + valid) return MAX_LIMIT_REACHED;
    *record = next;
    return 0;
}

static void *deliver(void *unused)
{
    size_t at = 0;
    while (at < pending_bytes) {
        uint8_t *buffer = NULL;
        size_t size = 0, most = 0, valid = 0;
        request(&buffer, &size, &most);
        if (!buffer) {
            for (; at < pending_bytes; at += sizes[*(int32_t *)(pending + at)]) dropped++;
            break;
        }
        while (at < pending_bytes) {
            size_t record = sizes[*(int32_t *)(pending + at)];
            if (valid + record > size) break;
            memcpy(buffer + valid, pending + at, record);
            valid += record;
            at += record;
        }
        complete(NULL, 0, buffer, size, valid);
    }
    return unused;
}

int cuptiActivityFlushAll(uint32_t flag)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, deliver, NULL)) return 1;
    pthread_join(thread, NULL);
    free(pending);
    pending = NULL;
    pending_bytes = 0;
    return 0;
}
