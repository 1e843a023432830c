/*
 * A circuit breaker for one shard, in memory that processes share. While it is
 * closed calls are made; it opens where too many fail, and then nobody waits
 * for the shard; from time to time one call probes it.
 *
 *     CLOSED --- 3 timeouts in a second, or half of 20 calls and more --> OPEN
 *     OPEN ----- its time has come: one caller probes --------------> PROBING
 *     PROBING -- a good reply --> CLOSED; anything else, or nothing --> OPEN
 *
 * All of its state is two words, each changed by compare and swap: no lock is
 * held, so a process may die anywhere.
 */

#ifndef NGX_RATELIMIT_BREAKER_H_INCLUDED
#define NGX_RATELIMIT_BREAKER_H_INCLUDED

#include <stdatomic.h>

#include "ngx_ratelimit_types.h"

#define NGX_RATELIMIT_BREAKER_TIMEOUTS    3      /* in a second: it opens */
#define NGX_RATELIMIT_BREAKER_CALLS       20     /* in a second: half of them */
#define NGX_RATELIMIT_BREAKER_MIN_MS      500    /* until the first probe, */
#define NGX_RATELIMIT_BREAKER_MAX_MS      1000   /* doubled up to this */

/* zeroed: closed */
typedef struct {
    _Atomic uint64_t  state;
    _Atomic uint64_t  timeouts;   /* the last two */
} ngx_ratelimit_breaker_t;

typedef enum {
    NGX_RATELIMIT_BREAKER_CLOSED = 0,
    NGX_RATELIMIT_BREAKER_OPEN,
    NGX_RATELIMIT_BREAKER_PROBING
} ngx_ratelimit_breaker_state_e;

typedef enum {
    NGX_RATELIMIT_BREAKER_PASS = 0,   /* make the call */
    NGX_RATELIMIT_BREAKER_REFUSE,     /* do not: nobody shall wait */
    NGX_RATELIMIT_BREAKER_PROBE       /* make it as the probe, wait not */
} ngx_ratelimit_breaker_advice_e;

typedef enum {
    NGX_RATELIMIT_BREAKER_GOOD = 0,
    NGX_RATELIMIT_BREAKER_FAILED,     /* at once */
    NGX_RATELIMIT_BREAKER_TIMED_OUT   /* after its deadline */
} ngx_ratelimit_breaker_outcome_e;

typedef enum {
    NGX_RATELIMIT_BREAKER_SAME = 0,
    NGX_RATELIMIT_BREAKER_OPENED,     /* by this very report */
    NGX_RATELIMIT_BREAKER_CLOSED_NOW  /* by this very report */
} ngx_ratelimit_breaker_change_e;


/*
 * Whether to make a call. now_ms: a monotonic clock that all processes share,
 * below 2^44. lost_ms: a probe without a report for so long is lost, and the
 * next caller probes; 0: this caller cannot probe, and is refused where another
 * would. wait_ms, where refused: until the next probe, 1 or more; else 0.
 */
ngx_ratelimit_breaker_advice_e ngx_ratelimit_breaker_ask(
    ngx_ratelimit_breaker_t *breaker, uint64_t now_ms, uint64_t lost_ms,
    uint64_t *wait_ms);

/*
 * What became of a call that was made; probe: as the probe. random: for the
 * jitter, any number. While the breaker is not closed only a probe's report
 * counts, of one that was taken for lost only a good one. Of all processes one
 * is told of each change.
 */
ngx_ratelimit_breaker_change_e ngx_ratelimit_breaker_report(
    ngx_ratelimit_breaker_t *breaker, ngx_ratelimit_breaker_outcome_e outcome,
    int probe, uint64_t now_ms, uint32_t random);

/*
 * Something tells that the shard may be back, a new connection for example:
 * where the breaker is open the next call is a probe.
 */
void ngx_ratelimit_breaker_hint(ngx_ratelimit_breaker_t *breaker,
    uint64_t now_ms);

/* For the status and the log. */
ngx_ratelimit_breaker_state_e ngx_ratelimit_breaker_state(
    ngx_ratelimit_breaker_t *breaker);

#endif /* NGX_RATELIMIT_BREAKER_H_INCLUDED */
