/*
 * Limits: what an operator may ask of each algorithm, and what it becomes.
 */

#include "ngx_rl_limit.h"

#include "ngx_rl_hash.h"
#include "ngx_rl_text.h"
#include "ngx_rl_window.h"

#define NGX_RL_DAY_US    ((uint64_t) 86400 * 1000000)

/* the longest that each has: by ngx_rl_calendar_e, from DAY on */
static const uint64_t  ngx_rl_calendar_days[] = { 1, 31, 7 };

const char *const  ngx_rl_algorithm_names[] = {
    "token_bucket",
    "leaky_bucket",
    "fixed_window",
    "sliding_window",
    "sliding_log",
    "concurrency",
    NULL
};


uint64_t
ngx_rl_limit_word(const u_char *text, size_t len)
{
    if (len == 1 && text[0] == '0') {
        return NGX_RL_TOKENS_NONE;
    }

    return (len == sizeof("unlimited") - 1
            && memcmp(text, "unlimited", len) == 0)
           ? NGX_RL_TOKENS_ANY : 0;
}


/* How much of its bucket a limit, whose capacity is set, uses undelayed. */
static const char *
ngx_rl_limit_free(ngx_rl_limit_t *limit, const ngx_rl_spec_t *spec)
{
    uint64_t  free;

    limit->free_us = UINT64_MAX;

    if (limit->algorithm != NGX_RL_LEAKY_BUCKET || spec->nodelay
        || spec->delay >= limit->capacity - 1)
    {
        return NULL;
    }

    /* what the first of a burst, and those without delay, use */

    free = spec->delay + 1;
    limit->free_us = free * limit->rate.step_us
                     + (free * limit->rate.step_frac
                        + limit->rate.scale - 1) / limit->rate.scale;

    if (limit->window_us - limit->free_us > NGX_RL_MAX_DELAY_US) {
        return "a burst that the rate drains within 24 days, or \"delay=\" "
               "or \"nodelay\"";
    }

    return NULL;
}


static const char *
ngx_rl_limit_bucket(ngx_rl_limit_t *limit, const ngx_rl_spec_t *spec)
{
    uint64_t  capacity;

    if (spec->period_us == 0 || spec->period_us > NGX_RL_MAX_PERIOD_US) {
        return "a period of at most 366 days";
    }

    capacity = spec->capacity ? spec->capacity : spec->tokens;

    if (spec->algorithm == NGX_RL_LEAKY_BUCKET) {

        if (spec->burst >= NGX_RL_MAX_TOKENS) {
            return "a burst from 0 to 1073741823";
        }

        capacity = spec->burst + 1;
    }

    if (capacity > NGX_RL_MAX_TOKENS) {
        return "a capacity from 1 to 1073741824";
    }

    if (ngx_rl_rate_init(&limit->rate, spec->tokens, spec->period_us, capacity)
        != 0)
    {
        return (spec->algorithm == NGX_RL_LEAKY_BUCKET)
               ? "a burst that the rate drains within 35 years"
               : "a capacity that the rate fills within 35 years";
    }

    limit->capacity = limit->rate.capacity;
    limit->window_us = limit->rate.span_us + (limit->rate.span_frac != 0);

    return ngx_rl_limit_free(limit, spec);
}


/*
 * A counter's state has 12 bits for the code. UTC's days and months have one of
 * their own; all other calendars share those behind. Calendars of one time zone
 * have different codes. Calendars of two zones may have the same code: if a
 * rule changes from one to the other, the window in its state keeps its end.
 */
static void
ngx_rl_limit_calendar(ngx_rl_limit_t *limit, const ngx_rl_spec_t *spec)
{
    uint32_t  number;

    limit->month_day = 1;

    if (spec->calendar == NGX_RL_CALENDAR_MONTH && spec->month_day) {
        limit->month_day = spec->month_day;
    }

    limit->tz = spec->tz;
    limit->window_us = NGX_RL_DAY_US * ngx_rl_calendar_days[spec->calendar - 1];

    if (limit->tz == NULL && limit->month_day == 1
        && spec->calendar <= NGX_RL_CALENDAR_MONTH)
    {
        limit->code = NGX_RL_CODE_CALENDAR + spec->calendar;
        return;
    }

    /* of the zone's: months from each day on, days, weeks */

    number = (spec->calendar == NGX_RL_CALENDAR_MONTH)
             ? limit->month_day : 31 + (uint32_t) spec->calendar;

    if (limit->tz) {
        number += limit->tz->name % NGX_RL_CODE_OTHERS;
        limit->window_us += NGX_RL_TZ_STEP_US;
    }

    limit->code = NGX_RL_CODE_OWES + 1 + number % NGX_RL_CODE_OTHERS;
}


static const char *
ngx_rl_limit_window(ngx_rl_limit_t *limit, const ngx_rl_spec_t *spec)
{
    limit->capacity = (uint32_t) spec->tokens;

    if (spec->calendar) {
        ngx_rl_limit_calendar(limit, spec);
        return NULL;
    }

    if (spec->period_us == 0 || spec->period_us > NGX_RL_MAX_PERIOD_US) {
        return "a window of at most 366 days";
    }

    limit->window_us = spec->period_us;
    limit->code = ngx_rl_span_encode(spec->period_us);

    if (spec->algorithm == NGX_RL_SLIDING_LOG && spec->tokens > NGX_RL_MAX_LOG)
    {
        return "a limit of at most 10000 requests for sliding_log";
    }

    if (spec->algorithm == NGX_RL_SLIDING_WINDOW
        && spec->tokens
           > NGX_RL_MAX_WEIGHT / ((spec->period_us + 999) / 1000))
    {
        return "a lower limit or a shorter window for sliding_window: their "
               "product is at most 2^53 request-milliseconds";
    }

    return NULL;
}


static const char *
ngx_rl_limit_prepare(ngx_rl_limit_t *limit, const ngx_rl_spec_t *spec)
{
    /* nothing is counted: as if in windows of a second */

    if (spec->tokens >= NGX_RL_TOKENS_NONE) {
        limit->algorithm = NGX_RL_FIXED_WINDOW;
        limit->window_us = 1000000;
        limit->unlimited = (spec->tokens == NGX_RL_TOKENS_ANY);
        return NULL;
    }

    limit->algorithm = spec->algorithm;
    limit->calendar = spec->calendar;

    if (spec->tokens == 0 || spec->tokens > NGX_RL_MAX_TOKENS) {
        return "a limit from 1 to 1073741824";
    }

    if (spec->calendar && spec->algorithm != NGX_RL_FIXED_WINDOW) {
        return "a calendar for fixed_window only";
    }

    switch (spec->algorithm) {

    case NGX_RL_TOKEN_BUCKET:
    case NGX_RL_LEAKY_BUCKET:
        return ngx_rl_limit_bucket(limit, spec);

    case NGX_RL_CONCURRENCY:
        limit->capacity = (uint32_t) spec->tokens;
        return NULL;

    default:
        return ngx_rl_limit_window(limit, spec);
    }
}


/* Multiplied by odd constants, so that each number reaches the upper bits. */
static uint16_t
ngx_rl_limit_mark(const ngx_rl_limit_t *limit)
{
    uint64_t  mark;

    mark = limit->algorithm + 8 * (limit->calendar ? limit->code : 0);
    mark = (mark ^ limit->capacity) * 0x9e3779b97f4a7c15ULL;
    mark = ((mark >> 32) ^ limit->window_us) * 0xbf58476d1ce4e5b9ULL;
    mark = ((mark >> 32) ^ limit->rate.period_us) * 0x9e3779b97f4a7c15ULL;
    mark = ((mark >> 32) ^ limit->rate.scale) * 0xbf58476d1ce4e5b9ULL;

    return (uint16_t) (mark >> 48) | 1;
}


uint64_t
ngx_rl_limit_seconds(const ngx_rl_limit_t *limit)
{
    uint64_t  span_us, more_us;

    span_us = limit->window_us - (limit->tz ? NGX_RL_TZ_STEP_US : 0);

    /* by which a rounded rate is slower; not a second that a client sees */

    more_us = limit->capacity / NGX_RL_MAX_SCALE + 1;
    span_us -= (span_us > more_us) ? more_us : 0;

    return ngx_rl_seconds_up(span_us);
}


/* Writes the limit's text, once for all responses that show it. */
static void
ngx_rl_limit_write(ngx_rl_limit_t *limit)
{
    u_char  *p;

    p = ngx_rl_number_write(limit->text, limit->capacity);
    limit->digits = (uint8_t) (p - limit->text);

    if (limit->algorithm != NGX_RL_CONCURRENCY) {
        memcpy(p, ", ", 2);
        memcpy(p + 2, limit->text, limit->digits);
        memcpy(p + 2 + limit->digits, ";w=", 3);
        p = ngx_rl_number_write(p + 2 + limit->digits + 3,
                                ngx_rl_limit_seconds(limit));
    }

    limit->text_len = (uint8_t) (p - limit->text);
}


const char *
ngx_rl_limit_init(ngx_rl_limit_t *limit, const ngx_rl_spec_t *spec)
{
    const char  *expected;

    memset(limit, 0, sizeof(ngx_rl_limit_t));

    expected = ngx_rl_limit_prepare(limit, spec);

    if (expected == NULL) {
        limit->mark = ngx_rl_limit_mark(limit);
        limit->whole = limit->mark;
        ngx_rl_limit_write(limit);
    }

    return expected;
}


void
ngx_rl_limit_words(const ngx_rl_limit_t *limit, uint64_t *tokens,
    uint64_t *seconds)
{
    size_t    i;
    uint64_t  all;

    static const uint64_t  units[] = { 1, 60, 3600, 86400 };

    *tokens = limit->capacity;
    *seconds = ngx_rl_limit_seconds(limit);

    if (limit->algorithm != NGX_RL_LEAKY_BUCKET
        && (limit->algorithm != NGX_RL_TOKEN_BUCKET
            || limit->window_us >= 1000000))
    {
        return;
    }

    for (i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        all = units[i] * 1000000 * limit->rate.scale;

        if (all % limit->rate.period_us == 0) {
            *tokens = all / limit->rate.period_us;
            *seconds = units[i];
            return;
        }
    }
}


uint64_t
ngx_rl_limit_reset(const ngx_rl_limit_t *limit, uint64_t now_ms,
    uint64_t reset_us)
{
    uint64_t  at_us;

    at_us = now_ms * 1000 + reset_us;

    return (limit->algorithm == NGX_RL_FIXED_WINDOW && reset_us)
           ? (at_us + 500000) / 1000000 : ngx_rl_seconds_up(at_us);
}


int
ngx_rl_limit_share(const ngx_rl_limit_t *limit, uint32_t n, uint32_t i,
    ngx_rl_limit_t *share)
{
    *share = *limit;
    share->capacity = limit->capacity / n + (i < limit->capacity % n);

    switch (limit->algorithm) {

    case NGX_RL_TOKEN_BUCKET:

        /* both are those of a rate in lowest terms, rounded already */

        if (ngx_rl_rate_init(&share->rate, limit->rate.scale,
                             limit->rate.period_us * n, share->capacity)
            != 0)
        {
            return -1;
        }

        share->window_us = share->rate.span_us + (share->rate.span_frac != 0);
        break;

    case NGX_RL_FIXED_WINDOW:
    case NGX_RL_SLIDING_WINDOW:
        break;

    default:
        return -1;
    }

    share->mark = ngx_rl_limit_mark(share);

    return share->capacity ? 0 : -1;
}


const char *
ngx_rl_limit_narrow(const ngx_rl_limit_t *whole, const ngx_rl_spec_t *own,
    ngx_rl_limit_t *narrow)
{
    uint64_t        open;
    ngx_rl_rate_t  *rate;

    *narrow = *whole;
    rate = &narrow->rate;

    if (whole->capacity == 0) {
        return NULL;
    }

    open = (own->burst < rate->capacity) ? own->burst + 1 : rate->capacity;

    rate->open = (uint32_t) open;
    rate->open_us = open * rate->step_us + open * rate->step_frac / rate->scale;
    rate->open_frac = (uint32_t) (open * rate->step_frac % rate->scale);

    narrow->capacity = rate->open;
    narrow->window_us = rate->open_us + (rate->open_frac != 0);
    narrow->mark = ngx_rl_limit_mark(narrow);
    ngx_rl_limit_write(narrow);

    return ngx_rl_limit_free(narrow, own);
}


/* A bucket's span, its code and the use of it are the same in both. */
void
ngx_rl_limit_halve(const ngx_rl_limit_t *limit, ngx_rl_limit_t *halves)
{
    ngx_rl_rate_t  *rate;

    *halves = *limit;
    halves->capacity = limit->capacity * 2;

    if (limit->rate.scale == 0) {
        return;
    }

    rate = &halves->rate;

    rate->capacity *= 2;
    rate->scale *= 2;
    rate->span_frac *= 2;
    rate->open *= 2;
    rate->open_frac *= 2;
    rate->step_us = rate->period_us / rate->scale;
    rate->step_frac = (uint32_t) (rate->period_us % rate->scale);
}


uint64_t
ngx_rl_limit_delay(const ngx_rl_limit_t *limit, const ngx_rl_answer_t *answer)
{
    uint64_t  used_us;

    if (limit->algorithm != NGX_RL_LEAKY_BUCKET || answer->granted == 0) {
        return 0;
    }

    /* Redis rounds up, and says anything */

    used_us = ngx_rl_min(answer->reset_us, limit->window_us);

    if (used_us <= limit->free_us) {
        return 0;
    }

    used_us -= limit->free_us;

    return used_us - used_us % 1000;
}


uint32_t
ngx_rl_limit_used(const ngx_rl_limit_t *limit, uint32_t remaining)
{
    return (uint32_t) ((uint64_t) (limit->capacity - remaining) * 255
                       / limit->capacity);
}


void
ngx_rl_concurrency_take(uint32_t *in_use, const ngx_rl_limit_t *limit,
    uint32_t cost, uint32_t want, ngx_rl_answer_t *answer)
{
    answer->granted = 0;
    answer->retry_us = 0;
    answer->reset_us = 0;

    if (cost && *in_use >= limit->capacity) {
        answer->retry_us = NGX_RL_PERMIT_RETRY_US;

    } else if (cost && want != NGX_RL_LOOK) {
        (*in_use)++;
        answer->granted = 1;
    }

    answer->remaining = (*in_use < limit->capacity)
                        ? limit->capacity - *in_use : 0;
}


/* The parameters of items of RateLimit-Policy and RateLimit. */

#define ngx_rl_quota_put(p, text)                                             \
    ((u_char *) memcpy(p, text, sizeof(text) - 1) + sizeof(text) - 1)


uint64_t
ngx_rl_quota_more_us(const ngx_rl_limit_t *limit, const ngx_rl_answer_t *answer)
{
    uint64_t              others, others_us;
    const ngx_rl_rate_t  *rate;

    if (limit->algorithm == NGX_RL_CONCURRENCY) {
        return NGX_RL_NEVER;
    }

    if (answer->retry_us && answer->retry_us != NGX_RL_NEVER) {
        return answer->retry_us;
    }

    if (ngx_rl_limit_left(limit, answer) || !ngx_rl_limit_is_bucket(limit)) {
        return answer->reset_us;
    }

    /* a span is below 2^50 microseconds, a fraction of it below 2^52 */

    rate = &limit->rate;
    others = rate->open - 1;
    others_us = others * rate->step_us + others * rate->step_frac / rate->scale;

    return (answer->reset_us > others_us) ? answer->reset_us - others_us
                                          : answer->reset_us;
}


u_char *
ngx_rl_quota_policy(u_char *out, const ngx_rl_limit_t *limit)
{
    u_char  *p;
    size_t   start, len;

    /* "120;w=60" of "120, 120;w=60" */

    start = (limit->algorithm == NGX_RL_CONCURRENCY)
            ? 0 : limit->digits + sizeof(", ") - 1;
    len = limit->text_len - start;

    p = ngx_rl_quota_put(out, ";q=");
    memcpy(p, limit->text + start, len);
    p += len;

    return start ? p : ngx_rl_quota_put(p, ";qu=\"concurrent-requests\"");
}


u_char *
ngx_rl_quota_left(u_char *out, uint32_t remaining, uint64_t more_us)
{
    u_char  *p;

    p = ngx_rl_quota_put(out, ";r=");
    p = ngx_rl_number_write(p, remaining);

    if (more_us != NGX_RL_NEVER) {
        p = ngx_rl_quota_put(p, ";t=");
        p = ngx_rl_number_write(p, ngx_rl_seconds_up(more_us));
    }

    return p;
}


/*
 * The id is the key of the hash: the output of a keyed hash and all of its
 * input do not reveal the key. A client that had the id could choose which
 * place of the table, or which hash of Redis, it loads.
 */
ngx_rl_id_t
ngx_rl_quota_shown(const u_char *id)
{
    return ngx_rl_siphash(id, (const u_char *) "pk", 2, 2, 4);
}


void
ngx_rl_quota_pk(u_char out[NGX_RL_PK_TEXT], const u_char *id)
{
    size_t       i;
    u_char      *p, pk[NGX_RL_PK_BYTES];
    uint32_t     three;
    ngx_rl_id_t  hash;

    static const char  digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    hash = ngx_rl_quota_shown(id);
    memcpy(pk, &hash, sizeof(pk));

    p = ngx_rl_quota_put(out, ";pk=:");

    for (i = 0; i < NGX_RL_PK_BYTES; i += 3) {
        three = (uint32_t) pk[i] << 16 | (uint32_t) pk[i + 1] << 8 | pk[i + 2];

        *p++ = (u_char) digits[three >> 18];
        *p++ = (u_char) digits[three >> 12 & 63];
        *p++ = (u_char) digits[three >> 6 & 63];
        *p++ = (u_char) digits[three & 63];
    }

    *p = ':';
}


/*
 * Amounts: what a tier or an override says of a limit, on top of what the rule
 * says; and limits that are multiplied.
 */

#define NGX_RL_MILLION    1000000

/* by which a bucket's rate rounds a time: 2^-22 us for each of 2^30 tokens */
#define NGX_RL_MARGIN_US  512

typedef unsigned __int128  ngx_rl_wide_t;


/* In lowest terms; both are above 0. */
static void
ngx_rl_amount_reduce(ngx_rl_wide_t *a, ngx_rl_wide_t *b)
{
    ngx_rl_wide_t  x, y, rest;

    x = *a;
    y = *b;

    while (y) {
        rest = x % y;
        x = y;
        y = rest;
    }

    *a /= x;
    *b /= x;
}


int
ngx_rl_amount_rate(double rate, uint64_t *tokens, uint64_t *period_us)
{
    double         micro, off;
    ngx_rl_wide_t  n, us;

    if (!(rate > 0 && rate <= NGX_RL_MAX_TOKENS)) {
        return -1;
    }

    /* below 2^51: the nearest whole number is exact */

    micro = rate * NGX_RL_MILLION;
    n = (uint64_t) (micro + 0.5);
    us = (uint64_t) NGX_RL_MILLION * NGX_RL_MILLION;
    off = micro - (double) (uint64_t) n;

    if (n != 0 && off < micro * 1e-12 && off > -micro * 1e-12) {
        ngx_rl_amount_reduce(&n, &us);

        if (n <= NGX_RL_MAX_TOKENS) {
            *tokens = (uint64_t) n;
            *period_us = (uint64_t) us;
            return 0;
        }
    }

    /*
     * As many requests as a period can have, and the period rounded up: the
     * rate becomes lower, by a millionth at most.
     */

    micro = rate * (double) (NGX_RL_MAX_PERIOD_US / NGX_RL_MILLION);
    micro += micro * 1e-12;

    if (micro < 1) {
        return -1;
    }

    n = (micro < NGX_RL_MAX_TOKENS) ? (uint64_t) micro : NGX_RL_MAX_TOKENS;
    micro = (double) (uint64_t) n * NGX_RL_MILLION / rate;
    us = (uint64_t) micro;
    us += (micro > (double) (uint64_t) us);
    us = ngx_rl_min(us, NGX_RL_MAX_PERIOD_US);

    ngx_rl_amount_reduce(&n, &us);

    *tokens = (uint64_t) n;
    *period_us = (uint64_t) us;

    return 0;
}


/* spec: what is inherited. */
static const char *
ngx_rl_amount_bucket(const ngx_rl_amount_t *amount, ngx_rl_spec_t *spec)
{
    uint64_t  capacity;

    capacity = spec->capacity ? spec->capacity : spec->tokens;

    if (amount->rated) {
        spec->window_us = spec->window_us ? spec->window_us : spec->period_us;
        spec->tokens = amount->tokens;
        spec->period_us = amount->period_us;

    } else if (amount->tokens) {

        if (amount->calendar) {
            return "a window of some length for a bucket";
        }

        spec->period_us = amount->period_us ? amount->period_us
                          : spec->window_us ? spec->window_us
                          : spec->period_us;

        if (spec->period_us == 0) {
            return "a window with the limit";
        }

        spec->tokens = amount->tokens;
        spec->window_us = 0;
        capacity = amount->tokens;

    } else if (spec->tokens == 0) {
        return "a limit or a refill rate with the capacity";
    }

    if (amount->capacity) {
        capacity = amount->capacity;
    }

    if (spec->algorithm == NGX_RL_TOKEN_BUCKET) {

        if (capacity == 0) {
            return "a capacity with the refill rate";
        }

        spec->capacity = capacity;

    } else if (amount->capacity) {

        /* a leaky bucket holds one request that is on time, and the burst */

        spec->burst = amount->capacity - 1;
    }

    return NULL;
}


/* Where the capacity is the limit. */
static const char *
ngx_rl_amount_limit(const ngx_rl_amount_t *amount, ngx_rl_spec_t *spec)
{
    if (amount->tokens && amount->capacity
        && amount->tokens != amount->capacity)
    {
        return "the same number as limit and capacity, since the algorithm is "
               "no bucket";
    }

    spec->tokens = amount->tokens ? amount->tokens : amount->capacity;

    return NULL;
}


/* The same. */
static const char *
ngx_rl_amount_window(const ngx_rl_amount_t *amount, ngx_rl_spec_t *spec)
{
    uint64_t       period_us;
    ngx_rl_wide_t  us;

    if (!amount->rated) {
        period_us = amount->period_us ? amount->period_us
                    : spec->window_us ? spec->window_us : spec->period_us;

        if (amount->calendar) {
            spec->calendar = amount->calendar;
            spec->period_us = 0;

        } else if (amount->period_us || spec->calendar == 0) {
            spec->calendar = NGX_RL_CALENDAR_NONE;
            spec->period_us = period_us;
        }

        spec->window_us = 0;

        if (spec->calendar == 0 && spec->period_us == 0) {
            return "a window with the limit";
        }

        return ngx_rl_amount_limit(amount, spec);
    }

    /* the limit that takes as long as its window */

    if (amount->capacity) {
        spec->tokens = amount->capacity;
    }

    if (spec->tokens == 0) {
        return "a capacity with the refill rate";
    }

    us = (ngx_rl_wide_t) spec->tokens * amount->period_us;
    us = (us + amount->tokens - 1) / amount->tokens;
    us = (us + 999) / 1000 * 1000;

    if (us > NGX_RL_MAX_PERIOD_US) {
        return "a capacity that the refill rate fills within 366 days";
    }

    spec->calendar = NGX_RL_CALENDAR_NONE;
    spec->period_us = (uint64_t) us;
    spec->window_us = 0;

    return NULL;
}


const char *
ngx_rl_amount_inherit(const ngx_rl_spec_t *base, const ngx_rl_amount_t *amount,
    ngx_rl_spec_t *spec)
{
    *spec = *base;

    /* for amounts on top of it, the window stays known */

    if (amount->tokens >= NGX_RL_TOKENS_NONE) {
        spec->tokens = amount->tokens;

        if (amount->period_us || amount->calendar) {
            spec->period_us = amount->period_us;
            spec->calendar = amount->calendar;
            spec->window_us = 0;
        }

        return NULL;
    }

    if (base->tokens >= NGX_RL_TOKENS_NONE) {
        spec->tokens = 0;
    }

    if (amount->tokens == 0 && (amount->period_us || amount->calendar)) {
        return "a limit with the window";
    }

    if (amount->tokens == 0 && (amount->capacity == 0 || amount->rated)) {
        return "a limit, a capacity or a refill rate";
    }

    switch (base->algorithm) {

    case NGX_RL_TOKEN_BUCKET:
    case NGX_RL_LEAKY_BUCKET:
        return ngx_rl_amount_bucket(amount, spec);

    case NGX_RL_CONCURRENCY:

        /* The same. */

        if (amount->rated || amount->period_us || amount->calendar) {
            return "a limit alone for concurrency";
        }

        return ngx_rl_amount_limit(amount, spec);

    default:
        return ngx_rl_amount_window(amount, spec);
    }
}


static uint64_t
ngx_rl_amount_times(uint64_t n, uint64_t millionths, uint64_t max)
{
    ngx_rl_wide_t  wide;

    if (n == 0) {
        return 0;
    }

    wide = (ngx_rl_wide_t) n * millionths / NGX_RL_MILLION;

    return (wide == 0) ? 1 : (wide > max) ? max : (uint64_t) wide;
}


/* Periods are rounded up, so that the rate is not above what it should be. */
static void
ngx_rl_amount_times_rate(const ngx_rl_spec_t *base, uint64_t millionths,
    ngx_rl_spec_t *spec)
{
    ngx_rl_wide_t  n, us, tokens;

    n = (ngx_rl_wide_t) base->tokens * millionths;
    us = (ngx_rl_wide_t) base->period_us * NGX_RL_MILLION;

    ngx_rl_amount_reduce(&n, &us);

    if (us > NGX_RL_MAX_PERIOD_US) {
        tokens = n * NGX_RL_MAX_PERIOD_US / us;
        tokens = tokens ? tokens : 1;
        us = (tokens * us + n - 1) / n;
        n = tokens;
    }

    if (n > NGX_RL_MAX_TOKENS) {
        us = (us * NGX_RL_MAX_TOKENS + n - 1) / n;
        n = NGX_RL_MAX_TOKENS;
    }

    /* rounded up, it never is 0 */

    us = ngx_rl_min(us, NGX_RL_MAX_PERIOD_US);
    spec->tokens = (uint64_t) n;
    spec->period_us = us ? (uint64_t) us : 1;
}


/*
 * Rounding up, and the one token that stays at least, may take a bucket out of
 * the algorithm's bounds: it then gets the most that its rate bears.
 */
static void
ngx_rl_amount_fit(ngx_rl_spec_t *spec)
{
    uint64_t       *held;
    ngx_rl_wide_t   most;

    most = NGX_RL_MAX_SPAN_US - NGX_RL_MARGIN_US;
    most = most * spec->tokens / spec->period_us;

    if (spec->algorithm == NGX_RL_TOKEN_BUCKET) {
        held = &spec->capacity;

    } else {
        held = &spec->burst;
        most -= (most != 0);
    }

    *held = (uint64_t) ngx_rl_min(*held, most);

    if (spec->algorithm == NGX_RL_LEAKY_BUCKET && !spec->nodelay
        && spec->delay < spec->burst)
    {
        most = NGX_RL_MAX_DELAY_US - NGX_RL_MARGIN_US;
        most = most * spec->tokens / spec->period_us + spec->delay;
        spec->burst = (uint64_t) ngx_rl_min(spec->burst, most);
    }
}


void
ngx_rl_amount_scale(const ngx_rl_spec_t *base, uint64_t millionths,
    ngx_rl_spec_t *spec)
{
    uint64_t        most;
    ngx_rl_limit_t  unused;

    *spec = *base;

    /* a limit that is not known stays so, as one does that has no period */

    if (base->tokens == 0 || base->tokens >= NGX_RL_TOKENS_NONE
        || millionths == 0
        || (base->period_us == 0
            && base->algorithm != NGX_RL_FIXED_WINDOW
            && base->algorithm != NGX_RL_CONCURRENCY))
    {
        return;
    }

    switch (base->algorithm) {

    case NGX_RL_TOKEN_BUCKET:
        spec->capacity = ngx_rl_amount_times(
                             base->capacity ? base->capacity : base->tokens,
                             millionths, NGX_RL_MAX_TOKENS);
        ngx_rl_amount_times_rate(base, millionths, spec);
        break;

    case NGX_RL_LEAKY_BUCKET:
        spec->burst = ngx_rl_amount_times(base->burst, millionths,
                                          NGX_RL_MAX_TOKENS - 1);
        ngx_rl_amount_times_rate(base, millionths, spec);
        break;

    default:
        most = NGX_RL_MAX_TOKENS;

        if (base->algorithm == NGX_RL_SLIDING_LOG) {
            most = NGX_RL_MAX_LOG;
        }

        if (base->algorithm == NGX_RL_SLIDING_WINDOW) {
            most = NGX_RL_MAX_WEIGHT / ((base->period_us + 999) / 1000);
        }

        most = ngx_rl_min(most, NGX_RL_MAX_TOKENS);
        spec->tokens = ngx_rl_amount_times(base->tokens, millionths, most);
        return;
    }

    if (ngx_rl_limit_init(&unused, spec) != NULL) {
        ngx_rl_amount_fit(spec);
    }
}
