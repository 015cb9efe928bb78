/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers for CUPTI and a clock, which do not take the GIL: what torch 2.13 has as `_cupti_monitor_*`, for the torch
 * of the GPU machine that has none. gcc -shared -fPIC -O2 -o pool.so pool.c
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <x86intrin.h>

enum { MOST = 4096 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t bytes = 8 << 20, valid[MOST];
static uint8_t *done[MOST];
static int head, tail, allocated;

static void request(uint8_t **buffer, size_t *size, size_t *most_records)
{
    *buffer = aligned_alloc(8, bytes);
    *size = *buffer ? bytes : 0;
    *most_records = 0;
    __atomic_add_fetch(&allocated, 1, __ATOMIC_SEQ_CST);
}

static void complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t used)
{
    pthread_mutex_lock(&lock);
    if (tail < MOST) {
        done[tail] = buffer;
        valid[tail++] = used;
    }
    pthread_mutex_unlock(&lock);
}

static uint64_t ticks(void) { return __rdtsc(); }

uint64_t pool_request(void) { return (uint64_t)request; }
uint64_t pool_complete(void) { return (uint64_t)complete; }
uint64_t pool_clock(void) { return (uint64_t)ticks; }
uint64_t pool_now(void) { return ticks(); }
int pool_allocated(void) { return allocated; }
int pool_pending(void) { return tail - head; }
uint64_t pool_address(void) { return (uint64_t)done[head]; }
uint64_t pool_next(void) { return valid[head++]; }
void pool_configure(size_t size) { bytes = size; }
void pool_reset(void)
{
    for (int n = 0; n < tail; n++)
        free(done[n]);
    head = tail = allocated = 0;
}
