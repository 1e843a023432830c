/*
 * A limit: an algorithm with its parameters, prepared for exact integer
 * arithmetic. The algorithms themselves: token_bucket, window, sliding_log; and
 * concurrency below. lua/concurrency.lua decides the same on a sorted set of
 * permits, each with a deadline.
 */

#ifndef NGX_RL_LIMIT_H_INCLUDED
#define NGX_RL_LIMIT_H_INCLUDED

#include "ngx_rl_token_bucket.h"
#include "ngx_rl_date.h"

#define NGX_RL_MAX_LOG     10000   /* requests in a sliding_log */

/*
 * The requests of a sliding_window times the milliseconds of its window: a Lua
 * number, too, holds this product exactly.
 */
#define NGX_RL_MAX_WEIGHT  ((uint64_t) 1 << 53)

/* the most by which a change of any zone's clock makes a window longer */
#define NGX_RL_TZ_STEP_US  ((uint64_t) 2 * 3600 * 1000000)

/* of a leaky_bucket: what nginx's timers bear everywhere is 2^31 ms */
#define NGX_RL_MAX_DELAY_US  ((uint64_t) 24 * 86400 * 1000000)

/* the text of a limit; 2^50 us is the longest window */
#define NGX_RL_LIMIT_BYTES                                                    \
    (sizeof("1073741824, 1073741824;w=1125899907") - 1)

typedef enum {
    NGX_RL_TOKEN_BUCKET = 0,
    NGX_RL_LEAKY_BUCKET,      /* a token bucket that delays */
    NGX_RL_FIXED_WINDOW,
    NGX_RL_SLIDING_WINDOW,
    NGX_RL_SLIDING_LOG,
    NGX_RL_CONCURRENCY
} ngx_rl_algorithm_e;

#define ngx_rl_limit_is_bucket(limit)                                         \
    ((limit)->algorithm <= NGX_RL_LEAKY_BUCKET)

/* where a fixed window begins and ends */
typedef enum {
    NGX_RL_CALENDAR_NONE = 0,   /* at multiples of its length */
    NGX_RL_CALENDAR_DAY,
    NGX_RL_CALENDAR_MONTH,
    NGX_RL_CALENDAR_WEEK        /* from Monday on */
} ngx_rl_calendar_e;

/* tokens that are no number: each request is rejected; there is no limit */
#define NGX_RL_TOKENS_NONE  (UINT64_MAX - 1)
#define NGX_RL_TOKENS_ANY   UINT64_MAX

/* A limit as an operator says it. A member that an algorithm ignores is 0. */
typedef struct {
    ngx_rl_algorithm_e  algorithm;
    ngx_rl_calendar_e   calendar;    /* fixed_window */
    uint64_t            tokens;      /* of the rate; limit; slots; NONE
                                        or ANY */
    uint64_t            period_us;   /* 0 with a calendar, and slots */
    uint64_t            capacity;    /* token_bucket; 0: tokens */
    uint64_t            burst;       /* leaky_bucket */
    uint64_t            delay;       /* leaky_bucket: first, undelayed */
    uint32_t            nodelay;     /* 1: of the burst, none waits */
    uint64_t            window_us;   /* that a limit without a window of its
                                        own is for, in place of this one;
                                        0: period_us */
    const ngx_rl_tz_t  *tz;          /* of a calendar; NULL: UTC */
    uint32_t            month_day;   /* of a month's window the first day,
                                        1..31; 0: 1 */
} ngx_rl_spec_t;

typedef struct {
    ngx_rl_algorithm_e   algorithm;
    ngx_rl_calendar_e    calendar;
    const ngx_rl_tz_t   *tz;         /* the spec's */
    uint32_t             month_day;
    uint32_t             capacity;   /* the most that can be left; 0: no counter
                                        is kept */
    uint32_t             code;       /* window_us in 12 bits, or the calendar;
                                        of windows */
    uint64_t             window_us;  /* until a spent counter equals a fresh
                                        one; 0: concurrency, the longest that
                                        the calendar has */
    uint64_t             free_us;    /* leaky_bucket: see delay() */
    ngx_rl_rate_t        rate;       /* of buckets */
    uint16_t             mark;       /* of all that: limits that differ hardly
                                        ever have the same; 1.. */
    uint16_t             whole;      /* the mark; of one that is narrowed, that
                                        of its whole */

    /* "120, 120;w=60", capacity and seconds, or "5" of concurrency; a share
       of a limit has the text of the whole, which is what clients see */
    uint8_t              digits;     /* of the capacity */
    uint8_t              text_len;
    uint8_t              unlimited;  /* with capacity 0 */
    u_char               text[NGX_RL_LIMIT_BYTES];
} ngx_rl_limit_t;


/* NONE of "0", ANY of "unlimited"; 0: the text is none of these. */
uint64_t ngx_rl_limit_word(const u_char *text, size_t len);

/*
 * Prepares a limit. Returns NULL, or what was expected as a constant string
 * ("a limit of at most 10000 requests for sliding_log").
 */
const char *ngx_rl_limit_init(ngx_rl_limit_t *limit, const ngx_rl_spec_t *spec);

/*
 * Part i, of n (1 and more), of a limit of requests: n of them together are the
 * limit, exactly. Each has an n-th of the capacity, and the first capacity % n
 * have one more; a bucket's rate is an n-th. Returns 0, or -1: a part would
 * have no capacity, its rate's period be too long, or the algorithm is none of
 * token_bucket, fixed_window and sliding_window.
 */
int ngx_rl_limit_share(const ngx_rl_limit_t *limit, uint32_t n, uint32_t i,
    ngx_rl_limit_t *share);

/*
 * The limit of a location that may use only some of a leaky bucket. It has
 * the burst, the delay and the nodelay of own. The burst is at most that of
 * whole. Returns NULL, or what was expected as a constant string.
 */
const char *ngx_rl_limit_narrow(const ngx_rl_limit_t *whole,
    const ngx_rl_spec_t *own, ngx_rl_limit_t *narrow);

/*
 * The same limit in half tokens: twice the capacity, of which each takes half
 * the time. For this gateway's counters alone, whose states are then in half
 * tokens, too: the capacity is up to 2^31.
 */
void ngx_rl_limit_halve(const ngx_rl_limit_t *limit, ngx_rl_limit_t *halves);

/*
 * How long a granted request is delayed, in microseconds: 0 unless the limit
 * is a leaky_bucket whose answer's reset_us is above free_us. Rounded down to
 * milliseconds, as limit_req does, and at most NGX_RL_MAX_DELAY_US,
 * whatever the answer says.
 */
uint64_t ngx_rl_limit_delay(const ngx_rl_limit_t *limit,
    const ngx_rl_answer_t *answer);

/* The tokens that an answer of this limit leaves. */
static inline uint32_t
ngx_rl_limit_left(const ngx_rl_limit_t *limit, const ngx_rl_answer_t *answer)
{
    return answer->remaining != NGX_RL_LATER
           ? answer->remaining
           : ngx_rl_token_bucket_remaining(&limit->rate, answer);
}

/* The window as clients see it, in seconds: a day has 24 hours. */
uint64_t ngx_rl_limit_seconds(const ngx_rl_limit_t *limit);

/*
 * The limit in words: so many tokens in so many seconds. If the capacity of a
 * bucket is a burst, or what comes back within a second, people do not call it
 * the limit: then it is the rate by the second, minute, hour or day.
 */
void ngx_rl_limit_words(const ngx_rl_limit_t *limit, uint64_t *tokens,
    uint64_t *seconds);

/*
 * The second of X-RateLimit-Reset: that of an answer of now_ms. A window ends
 * at a whole second. The clocks by which the rest of it and now are known
 * differ by some milliseconds, and Redis is away.
 */
uint64_t ngx_rl_limit_reset(const ngx_rl_limit_t *limit, uint64_t now_ms,
    uint64_t reset_us);

/* The share of a capacity that is used: 0 for none, 255 for all of it. */
uint32_t ngx_rl_limit_used(const ngx_rl_limit_t *limit, uint32_t remaining);

/*
 * The names of the algorithms as an operator writes them, in the order of
 * ngx_rl_algorithm_e, with NULL behind them.
 */
extern const char *const  ngx_rl_algorithm_names[];

/* The Retry-After of a permit: when one will be free is not known. */
#define NGX_RL_PERMIT_RETRY_US  1000000

/*
 * Takes a permit if fewer than the capacity are in use. cost 0 looks, and so
 * does want NGX_RL_LOOK. *in_use is the permits in use. granted is 0 or
 * 1, reset_us 0, and retry_us NGX_RL_PERMIT_RETRY_US if it rejects.
 */
void ngx_rl_concurrency_take(uint32_t *in_use, const ngx_rl_limit_t *limit,
    uint32_t cost, uint32_t want, ngx_rl_answer_t *answer);


/*
 * The parameters of a limit in the header fields RateLimit-Policy and
 * RateLimit: items of Structured Fields (RFC 9651), after
 * draft-ietf-httpapi-ratelimit-headers.
 */

/* of a hash of a client's id, what the client sees: base64 without padding */
#define NGX_RL_PK_BYTES  9

#define NGX_RL_PK_TEXT  (sizeof(";pk=:0123456789ab:") - 1)

/* the most that the parameters of an item take, without "pk" */
#define NGX_RL_QUOTA_BYTES                                                    \
    (sizeof(";q=1073741824;qu=\"concurrent-requests\"") - 1)

/*
 * How long until there is more of what a counter limits, by its answer. If it
 * rejects: until the cost can be paid. If it is an empty bucket: until its next
 * token. In all other cases: until it equals a fresh one.
 */
uint64_t ngx_rl_quota_more_us(const ngx_rl_limit_t *limit,
    const ngx_rl_answer_t *answer);

/*
 * Each writes the parameters of one item to out, which holds
 * NGX_RL_QUOTA_BYTES, and returns their end. more_us is as from
 * ngx_rl_quota_more_us(), and written in seconds, rounded up.
 */
u_char *ngx_rl_quota_policy(u_char *out, const ngx_rl_limit_t *limit);
u_char *ngx_rl_quota_left(u_char *out, uint32_t remaining, uint64_t more_us);

/* Another hash of a client's id of 16 bytes, which may be shown. */
ngx_rl_id_t ngx_rl_quota_shown(const u_char *id);

/* The parameter that names a client in both: its first bytes. */
void ngx_rl_quota_pk(u_char out[NGX_RL_PK_TEXT], const u_char *id);


/*
 * Amounts: a tier or an override names some parts of a limit, and inherits the
 * others. Also multiplies limits.
 */

/* 0: not said */
typedef struct {
    uint64_t            tokens;      /* "limit", or of the rate; NONE or ANY of
                                        a limit */
    uint64_t            period_us;   /* "window", or of the rate */
    uint64_t            capacity;
    ngx_rl_calendar_e   calendar;
    unsigned            rated:1;     /* tokens and period_us are a rate
                                        ("refill_rate"): the capacity is
                                        inherited; else tokens alone are a
                                        limit, whose window is, and which is
                                        the capacity, too */
} ngx_rl_amount_t;

/*
 * A rate of so many requests a second, 0 < rate <= 2^30, as whole tokens in a
 * whole number of microseconds: exact to the sixth decimal place where that
 * fits, within a millionth of itself otherwise. Returns 0, or -1: it is out of
 * range, or less than one request in 366 days.
 */
int ngx_rl_amount_rate(double rate, uint64_t *tokens, uint64_t *period_us);

/*
 * The spec of base, with the parts that amount names. The capacity of a
 * window, a log or concurrency is its limit. A rate and a capacity make a
 * limit and its window, in whole milliseconds. The burst of a leaky bucket is
 * its capacity less one; a limit does not change the burst. base may have no
 * limit yet (tokens 0): then amount must have it. Returns NULL, or what was
 * expected, as a constant string. The spec may still be one that
 * ngx_rl_limit_init() refuses.
 */
const char *ngx_rl_amount_inherit(const ngx_rl_spec_t *base,
    const ngx_rl_amount_t *amount, ngx_rl_spec_t *spec);

/*
 * base, whose limit is known, times millionths / 1000000, up to 1000000 times:
 * its rate and its capacity, its limit, its burst. Rounded down, at least 1
 * where it was, at most the largest that the algorithm bears: the result is one
 * that ngx_rl_limit_init() takes, if base is.
 */
void ngx_rl_amount_scale(const ngx_rl_spec_t *base, uint64_t millionths,
    ngx_rl_spec_t *spec);

#endif /* NGX_RL_LIMIT_H_INCLUDED */
