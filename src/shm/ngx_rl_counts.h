/*
 * The counts of a gateway's workers, for its metrics. A row is the counts of
 * one rule, or of one zone. It has words in the block of each worker, which
 * only that worker writes; a reader adds the blocks up.
 *
 * A block belongs to a place of lives, so to one living worker at a time. The
 * counts of a dead worker stay, and its successor goes on from there.
 *
 * A rule keeps its row by its name, over reloads and versions of a document. A
 * row that no worker uses any more is shown for an hour, and may then become
 * another rule's. So no count is lost that a scrape has not seen.
 */

#ifndef NGX_RL_COUNTS_H_INCLUDED
#define NGX_RL_COUNTS_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_rl_tally.h"
#include "ngx_rl_lock.h"

#define NGX_RL_COUNTS_LAYOUT  3    /* another one: memory of its own */

#define NGX_RL_COUNTS_ROWS    4096
#define NGX_RL_COUNTS_BLOCKS  64
#define NGX_RL_COUNTS_WORDS   40   /* of a row in a block */
#define NGX_RL_COUNTS_NAME    64   /* bytes of a zone's, of a rule's */

/*
 * The kinds of rows; the last two are histograms. The first rows, one of each
 * kind without a name, are for all that finds no row of its own.
 */
typedef enum {
    NGX_RL_COUNTS_RULE = 0,
    NGX_RL_COUNTS_ZONE,
    NGX_RL_COUNTS_WAIT,
    NGX_RL_COUNTS_DELAY,
    NGX_RL_COUNTS_KINDS
} ngx_rl_counts_kind_e;

/* the words of a zone's row */
typedef enum {
    NGX_RL_COUNTS_DENIED = 0,
    NGX_RL_COUNTS_DENIED_DRY_RUN,
    NGX_RL_COUNTS_LOST,         /* counters that Redis has lost */
    NGX_RL_COUNTS_LEASE_CALLS,
    NGX_RL_COUNTS_PENALIZED,    /* requests */
    NGX_RL_COUNTS_BY_NETWORK,   /* requests: their key is too new */
    NGX_RL_COUNTS_TOO_MANY,     /* requests with too many rules */
    NGX_RL_COUNTS_PENALTIES     /* by action; behind them those that had no
                                   place, those of networks */
} ngx_rl_counts_of_zone_e;

/* the row of all that finds none */
#define ngx_rl_counts_others(kind)                                            \
    ((uint32_t) (kind) * NGX_RL_COUNTS_WORDS)

typedef struct ngx_rl_counts_s  ngx_rl_counts_t;

/* A row, all blocks added up. */
typedef struct {
    ngx_rl_counts_kind_e  kind;
    uint32_t              place;      /* that counts_use() told */
    unsigned              shared:1;   /* its zone has a Redis */
    ngx_str_t             zone;       /* in text */
    ngx_str_t             rule;
    u_char                text[2 * NGX_RL_COUNTS_NAME];
    uint64_t              words[NGX_RL_COUNTS_WORDS];
} ngx_rl_counts_row_t;


/* calls and globals inside the module then need no table of addresses */
#pragma GCC visibility push(hidden)

/* This worker's block, and whether other workers write it, too. */
extern uint64_t    *ngx_rl_counts_block;
extern ngx_uint_t   ngx_rl_counts_shared;

#pragma GCC visibility pop


/* bytes; zeroed and aligned to a cache line before init */
size_t ngx_rl_counts_size(void);
ngx_int_t ngx_rl_counts_init(void *memory);

/*
 * A worker begins, after its life has, and ends. Before it begins, and where
 * there is no memory, counts go nowhere.
 */
void ngx_rl_counts_begin(ngx_rl_counts_t *counts);
void ngx_rl_counts_end(void);

/*
 * The row of that name, made if there is none; rule may be empty. A row is the
 * place of its first word in a block, the same in all workers. If there is no
 * room for one more, it is the kind's. Each use ends with a release.
 */
uint32_t ngx_rl_counts_use(ngx_rl_counts_kind_e kind, const ngx_str_t *zone,
    const ngx_str_t *rule, ngx_uint_t shared);
void ngx_rl_counts_release(uint32_t row);

/*
 * Reads the next row that is to be shown, of that zone or, where zone is NULL,
 * of all; *at is 0 at first. Takes no lock. Returns NGX_OK, or NGX_DONE: there
 * are no more.
 */
ngx_int_t ngx_rl_counts_next(uint32_t *at, const ngx_str_t *zone,
    ngx_rl_counts_row_t *row);

/* Counts a time in a histogram. */
void ngx_rl_counts_time(uint32_t row, uint64_t us);


/*
 * Adds to a word of the row. Only the common block has more than one writer, so
 * no locked instruction is needed.
 */
static ngx_inline void
ngx_rl_count(uint32_t row, ngx_uint_t word, uint64_t n)
{
    uint64_t  *count;

    count = ngx_rl_counts_block + row + word;

    if (ngx_rl_counts_shared) {
        (void) __atomic_fetch_add(count, n, __ATOMIC_RELAXED);

    } else {
        *count += n;
    }
}

#endif /* NGX_RL_COUNTS_H_INCLUDED */
