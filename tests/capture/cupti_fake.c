/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for libcupti where there is no GPU: the functions that PyProf calls, with the prototypes of
 * cupti_activity.h, and the contract behind them:
 *
 * - One state for the process: the callbacks that were registered last get all buffers, those that were asked of the
 *   callbacks before as well; a kind or a function that anybody disables is disabled for all; one clock for all records.
 * - A buffer is asked for and handed back on the thread that launches, under the library's lock, which every call takes.
 * - A buffer that is refused costs its records, which are counted.
 *
 * Kineto's half is here too, as libkineto/src/CuptiActivityApi.cpp has it: it registers itself at every start,
 * whatever it will record, names its own clock, and disables what it enabled.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef void (*request_t)(uint8_t **buffer, size_t *size, size_t *most_records);
typedef void (*complete_t)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);
typedef uint64_t (*clock_t_)(void);

enum { KINDS = 64, MAX_LIMIT_REACHED = 12, INVALID_KIND = 21, INVALID_PARAMETER = 1, FUNCTIONS = 1024 };
enum { DRIVER = 4, RUNTIME = 5 };

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static request_t request;
static complete_t complete;
static clock_t_ record_clock;
static uint8_t *current; /* the buffer that is being filled */
static size_t current_size, current_valid, dropped, delay_us;
static int sizes[KINDS], errors[KINDS], enabled[KINDS], thread_ids, version_error, left_out[2][FUNCTIONS];
static uint32_t version = 130001;

enum { KINETO_BYTES = 1 << 14, KINETO_MOST = 32 };
static uint8_t kineto_buffers[KINETO_MOST][KINETO_BYTES];
static int kineto_given[KINETO_MOST], kineto_stopped, kineto_kinds[KINDS], kineto_count, kineto_unknown;
static int kineto_records[KINDS];

static uint64_t unix_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* What the test sets and reads. */
void fake_version(uint32_t number, int error) { version = number; version_error = error; }
void fake_size(int kind, int bytes) { sizes[kind] = bytes; }
void fake_error(int kind, int code) { errors[kind] = code; }
void fake_delay(size_t us) { delay_us = us; }
int fake_enabled(int kind) { return enabled[kind]; }
int fake_left_out(int driver, int function) { return left_out[driver][function]; }
int fake_thread_ids(void) { return thread_ids; }
void fake_dropped(size_t count) { dropped = count; }

/* Now, on the clock of the records: the library's own until somebody names one. */
uint64_t fake_now(void) { return record_clock ? record_clock() : unix_ns() - 1600000000000000000ull; }

/* A process that has not used the library yet. */
void fake_reset(void)
{
    request = NULL;
    complete = NULL;
    record_clock = NULL;
    current = NULL;
    current_valid = dropped = delay_us = 0;
    thread_ids = 0;
    memset(enabled, 0, sizeof enabled);
    memset(errors, 0, sizeof errors);
    memset(left_out, 0, sizeof left_out);
    memset(kineto_given, 0, sizeof kineto_given);
    memset(kineto_records, 0, sizeof kineto_records);
    kineto_stopped = kineto_count = kineto_unknown = 0;
}

static void hand_back(void)
{
    uint8_t *buffer = current;
    current = NULL;
    if (buffer) complete(NULL, 0, buffer, current_size, current_valid);
    current_valid = 0;
}

static void write_record(const uint8_t *record, size_t bytes)
{
    if (current && current_valid + bytes > current_size) hand_back();
    if (!current) {
        size_t most = 0;
        current_size = 0;
        if (request) request(&current, &current_size, &most);
    }
    if (!current || bytes > current_size) { dropped++; return; }
    memcpy(current + current_valid, record, bytes);
    current_valid += bytes;
}

/* A traced call: its records, of the kinds and functions that are recorded. */
void fake_add(const uint8_t *records, size_t bytes)
{
    pthread_mutex_lock(&lock);
    if (delay_us) usleep(delay_us);
    for (size_t at = 0; at < bytes;) {
        int32_t kind = *(int32_t *)(records + at), function = *(int32_t *)(records + at + 4);
        int api = kind == RUNTIME || kind == DRIVER;
        if (enabled[kind] && !(api && left_out[kind == DRIVER][function])) write_record(records + at, sizes[kind]);
        at += sizes[kind];
    }
    pthread_mutex_unlock(&lock);
}

/* A traced call that leaves no record. */
void fake_call(void)
{
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
}

int cuptiGetVersion(uint32_t *out) { *out = version; return version_error; }

int cuptiGetResultString(int code, const char **text)
{
    *text = code == 35 ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "CUPTI_ERROR_FAKE";
    return 0;
}

int cuptiGetTimestamp(uint64_t *out) { *out = fake_now(); return 0; }

int cuptiGetCallbackName(int domain, uint32_t number, const char **name)
{
    if (domain == 2 && number == 211) { *name = "cudaLaunchKernel_v7000"; return 0; }
    if (domain == 1 && number == 307) { *name = "cuLaunchKernel"; return 0; }
    return 1;
}

int cuptiGetThreadIdType(int *out) { *out = thread_ids; return 0; }
int cuptiSetThreadIdType(int kind) { thread_ids = kind; return 0; }

int cuptiActivityRegisterCallbacks(request_t r, complete_t c)
{
    pthread_mutex_lock(&lock);
    request = r;
    complete = c;
    pthread_mutex_unlock(&lock);
    return 0;
}

int cuptiActivityRegisterTimestampCallback(clock_t_ clock)
{
    if (!clock) return INVALID_PARAMETER;
    record_clock = clock;
    return 0;
}

int cuptiActivityEnable(int kind)
{
    pthread_mutex_lock(&lock);
    if (!errors[kind]) enabled[kind] = 1;
    pthread_mutex_unlock(&lock);
    return errors[kind];
}

int cuptiActivityDisable(int kind)
{
    pthread_mutex_lock(&lock);
    enabled[kind] = 0;
    pthread_mutex_unlock(&lock);
    return 0;
}

int cuptiActivityEnableRuntimeApi(uint32_t number, uint8_t on) { left_out[0][number] = !on; return 0; }
int cuptiActivityEnableDriverApi(uint32_t number, uint8_t on) { left_out[1][number] = !on; return 0; }

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

int cuptiActivityFlushAll(uint32_t flag)
{
    pthread_mutex_lock(&lock);
    hand_back();
    pthread_mutex_unlock(&lock);
    return 0;
}

/* ------------------------------------------------------------------------------------------------------ Kineto */

static uint64_t kineto_clock(void) { return unix_ns() / 3; } /* ticks, as those of the processor */

static void kineto_request(uint8_t **buffer, size_t *size, size_t *most)
{
    *size = KINETO_BYTES;
    *most = 0;
    for (int number = 0; number < KINETO_MOST; number++)
        if (!kineto_given[number]) {
            kineto_given[number] = 1;
            *buffer = kineto_buffers[number];
            return;
        }
    kineto_stopped = 1; /* "Exceeded max GPU buffer count - terminating tracing" */
    *buffer = NULL;
}

static void kineto_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    size_t number = (buffer - &kineto_buffers[0][0]) / KINETO_BYTES;
    if (number >= KINETO_MOST || !kineto_given[number]) { kineto_unknown++; return; } /* its records are lost */
    kineto_given[number] = 0;
    for (size_t at = 0; at < valid; at += sizes[*(int32_t *)(buffer + at)]) kineto_records[*(int32_t *)(buffer + at)]++;
}

void fake_kineto_start(const int *kinds, int count)
{
    static const int driver_functions[] = {304, 392, 686};
    cuptiActivityRegisterTimestampCallback(kineto_clock);
    cuptiActivityRegisterCallbacks(kineto_request, kineto_complete);
    kineto_count = count;
    for (int at = 0; at < count; at++) {
        kineto_kinds[at] = kinds[at];
        cuptiActivityEnable(kinds[at]);
        if (kinds[at] == RUNTIME) cuptiActivityEnableRuntimeApi(17, 0);
        if (kinds[at] == DRIVER)
            for (int f = 0; f < 3; f++) cuptiActivityEnableDriverApi(driver_functions[f], 0);
    }
    kineto_stopped = 0;
}

void fake_kineto_stop(void)
{
    for (int at = 0; at < kineto_count; at++) cuptiActivityDisable(kineto_kinds[at]);
    kineto_count = 0;
    cuptiActivityFlushAll(1);
}

void fake_kineto_overflow(void) { kineto_stopped = 1; }
int fake_kineto_stopped(void) { return kineto_stopped; }
int fake_kineto_unknown(void) { return kineto_unknown; }
int fake_kineto_records(int kind)
{
    int found = kineto_records[kind];
    kineto_records[kind] = 0;
    return found;
}
