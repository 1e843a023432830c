/*
 * What table.c and flood.c share: shared memory, keys, and a check in the table
 * as a worker makes it.
 */

#ifndef BENCH_COUNTERS_H_INCLUDED
#define BENCH_COUNTERS_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include <sys/mman.h>
#include <time.h>

#include "ngx_rl_table.h"
#include "ngx_rl_token_bucket.h"

#define MB  ((size_t) 1000000)


static inline void
fail(const char *what)
{
    fprintf(stderr, "bench: %s failed\n", what);
    exit(1);
}


static inline uint64_t
mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;

    return x ^ (x >> 31);
}


static inline ngx_rl_id_t
key(uint64_t n)
{
    ngx_rl_id_t  id;

    id.hi = mix(2 * n);
    id.lo = mix(2 * n + 1);

    return id;
}


static inline double
clock_ns(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return ts.tv_sec * 1e9 + ts.tv_nsec;
}


static inline void *
map(size_t size)
{
    void  *p;

    p = mmap(NULL, size, PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        fail("mmap");
    }

    return p;
}


static inline ngx_rl_table_t *
table_make(size_t size)
{
    ngx_rl_table_t  *table;

    static const ngx_rl_hash_key_t  hash_key;

    table = map(size);

    if (ngx_rl_table_init(table, size, &hash_key) != NGX_OK) {
        fail("init");
    }

    return table;
}


/* One check of a token bucket. Returns the tokens granted. */
static inline uint32_t
check(ngx_rl_table_t *table, const ngx_rl_rate_t *rate, uint64_t n,
    uint64_t now_us, uint32_t cost)
{
    ngx_rl_id_t            id;
    ngx_rl_entry_t         e;
    ngx_rl_answer_t        answer;
    ngx_rl_token_bucket_t  tb;

    id = key(n);
    ngx_rl_table_lock(table, &id, now_us, &e);

    tb.tat_us = e.state.fresh_us;
    tb.tat_frac = e.state.extra;
    tb.span_code = e.state.aux;

    ngx_rl_token_bucket_pay(&tb, rate, now_us, cost, 0, &answer);

    if (answer.granted == 0) {
        ngx_rl_table_unlock(&e);
        return 0;
    }

    e.state.fresh_us = tb.tat_us;
    e.state.extra = tb.tat_frac;
    e.state.aux = tb.span_code;

    ngx_rl_table_store(&e, ngx_rl_token_bucket_used(rate, answer.reset_us));

    return answer.granted;
}

#endif /* BENCH_COUNTERS_H_INCLUDED */
