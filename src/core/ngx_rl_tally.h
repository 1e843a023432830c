/*
 * What operators are shown of a stream of events: a histogram of times, log
 * lines with a limit, the heaviest keys.
 *
 * The heaviest keys, in bounded memory: Space-Saving (Metwally, Agrawal, El
 * Abbadi, "Efficient computation of frequent and top-k elements in data
 * streams") over a sample of it. Two summaries take turns, of a minute each:
 * the list is of the last one to two minutes. The caller locks. If it dies
 * inside, a key is missing, or counts for a little more or less, for these
 * minutes.
 */

#ifndef NGX_RL_TALLY_H_INCLUDED
#define NGX_RL_TALLY_H_INCLUDED

#include <stdatomic.h>

#include "ngx_rl_types.h"

/* A histogram of times: words that a caller keeps. */

#define NGX_RL_HISTOGRAM_BOUNDS  16

/* the buckets, the last one above all bounds; then the sum in microseconds */
#define NGX_RL_HISTOGRAM_SUM    (NGX_RL_HISTOGRAM_BOUNDS + 1)
#define NGX_RL_HISTOGRAM_WORDS  (NGX_RL_HISTOGRAM_BOUNDS + 2)

/* the greatest time of each bucket, in microseconds, increasing */
extern const uint64_t ngx_rl_histogram_bounds_us[NGX_RL_HISTOGRAM_BOUNDS];

/* The number of the bucket of a time. */
unsigned ngx_rl_histogram_bucket(uint64_t us);

/*
 * Limits log lines: of one kind, one line in an interval. The next line says
 * how many were suppressed. A kind lives in the memory of a worker or in
 * memory that workers share: no lock is held, so a process may die anywhere.
 *
 *     char  note[NGX_RL_LOG_NOTE];
 *
 *     if (ngx_rl_log_due(&limit, ngx_current_msec, NGX_RL_LOG_MS, note)) {
 *         ngx_log_error(level, log, 0, "... \"%V\"%s", &value, note);
 *     }
 */

#define NGX_RL_LOG_MS    1000   /* the interval of most kinds */

/* bytes of the longest note, with its NUL */
#define NGX_RL_LOG_NOTE                                                       \
    sizeof(" (18446744073709551615 similar lines suppressed)")

/* zeroed: no line so far */
typedef struct {
    _Atomic uint64_t  written_ms;   /* the last line; 0: none */
    _Atomic uint64_t  suppressed;   /* since then */
} ngx_rl_log_limit_t;

/*
 * Whether a line of this kind may be written at now_ms, of a clock that all
 * who share it read. Returns 1, and the text to end the line with: empty, or
 * how many lines were suppressed. Returns 0 and counts the line otherwise.
 */
int ngx_rl_log_due(ngx_rl_log_limit_t *limit, uint64_t now_ms,
    uint64_t interval_ms, char note[NGX_RL_LOG_NOTE]);

#define NGX_RL_TOP_ENTRIES  256
#define NGX_RL_TOP_NAME     80       /* bytes, the caller's */
#define NGX_RL_TOP_TURN_MS  60000
#define NGX_RL_TOP_SAMPLES  100      /* a second, about */

/* Which of the stream are taken, and for how many each of these counts. */
typedef struct {
    uint64_t  left;        /* one more is taken when this becomes 0 */
    uint64_t  weight;      /* of the next one */
    uint64_t  carried;     /* of one that could not be counted */
    uint64_t  seen;        /* of the stream, in this second, about */
    uint64_t  taken;       /* of them */
} ngx_rl_sampler_t;

typedef struct {
    ngx_rl_id_t    id;        /* 0: there is none */
    uint64_t       count;     /* maybe too much, */
    uint64_t       error;     /* by this at most */
    uint64_t       variance;  /* of the count: it is a sample's */
    uint64_t       kind;      /* a number of the caller's */
    unsigned char  name[NGX_RL_TOP_NAME];
} ngx_rl_top_entry_t;

typedef struct {
    uint64_t            total;
    uint64_t            weight;   /* the largest */
    ngx_rl_top_entry_t  entries[NGX_RL_TOP_ENTRIES];
} ngx_rl_top_half_t;

/* Zeroed memory is an empty one. */
typedef struct {
    uint64_t            began_ms[2];  /* the turns; 0: it is empty */
    uint64_t            current;      /* 0 or 1 */
    ngx_rl_top_half_t   halves[2];
} ngx_rl_top_t;

/* One key of a list. */
typedef struct {
    const ngx_rl_top_entry_t  *entry;
    uint64_t                   count;
    uint64_t                   at_least;
    uint64_t                   at_most;
} ngx_rl_top_key_t;

/* A list: at most twice as many keys as a summary has. */
typedef struct {
    uint64_t           began_ms;
    uint64_t           total;
    uint64_t           others;    /* no key that is in neither summary
                                    has more */
    uint32_t           nkeys;
    ngx_rl_top_key_t   keys[2 * NGX_RL_TOP_ENTRIES];
} ngx_rl_top_list_t;

/* The first one of the stream is taken. */
void ngx_rl_sampler_init(ngx_rl_sampler_t *sampler);

/*
 * One is taken, left is 0: returns its weight. random is any number. The gaps
 * are random, from 1 to twice the weight, so that no rhythm of the stream
 * matters; above twice the samples of a second they grow.
 */
uint64_t ngx_rl_sampler_take(ngx_rl_sampler_t *sampler, uint64_t random);

/* The one just taken was not counted: the next one counts for both. */
void ngx_rl_sampler_carry(ngx_rl_sampler_t *sampler, uint64_t weight);

/* A second is over: what the weight is from now on. */
void ngx_rl_sampler_tick(ngx_rl_sampler_t *sampler, uint64_t random);

/*
 * Begins another turn where it is time to; now_ms is monotonic but for that of
 * other callers, which may be a little ahead, and not 0.
 */
void ngx_rl_top_turn(ngx_rl_top_t *top, uint64_t now_ms);

/* Counts a key of this turn that is there: 1, or 0: it is not. */
int ngx_rl_top_count(ngx_rl_top_t *top, const ngx_rl_id_t *id, uint64_t weight);

/* Counts a key, in the place of the lightest one if it is not there. */
void ngx_rl_top_enter(ngx_rl_top_t *top, const ngx_rl_id_t *id, uint64_t weight,
    uint64_t kind, const unsigned char name[NGX_RL_TOP_NAME]);

/*
 * Lists the keys, the heaviest first, by what they have at least. The numbers
 * hold for 99.7 % of the keys, and for all if each one of the stream was taken.
 * The list points into top.
 */
void ngx_rl_top_list(const ngx_rl_top_t *top, ngx_rl_top_list_t *list);

#endif /* NGX_RL_TALLY_H_INCLUDED */
