/*
 * Counts: the names of the rows, behind a lock that no request takes, and the
 * blocks of the workers.
 *
 * The last word of a row in a block says how often that worker uses the row. A
 * worker begins with none: what a killed one has used ends with it.
 */

#include "ngx_rl_counts.h"

#include "ngx_rl_hash.h"

/* the block of all workers whose place has none; the others come by place */
#define NGX_RL_COUNTS_COMMON  0

#define NGX_RL_COUNTS_USES  (NGX_RL_COUNTS_WORDS - 1)

/* a row that is not used is shown for so long */
#define NGX_RL_COUNTS_ENDED_S  3600

typedef struct {
    _Atomic uint64_t  used_s;      /* its last use began, or ended */
    u_char            kind;
    u_char            shared;
    u_char            zone_len;
    u_char            rule_len;
    u_char            text[2 * NGX_RL_COUNTS_NAME];  /* zone, rule */
} ngx_rl_counts_name_t;

/* Each name is written before its id, and nrows comes last. */
struct ngx_rl_counts_s {
    _Alignas(NGX_RL_LINE) ngx_rl_lock_t          lock;
    _Atomic uint64_t              nrows;
    _Atomic uint64_t              nblocks;   /* ever used: no others are read,
                                                which would take memory */
    _Atomic uint64_t              ids[NGX_RL_COUNTS_ROWS];
    ngx_rl_counts_name_t   names[NGX_RL_COUNTS_ROWS];
    _Alignas(NGX_RL_LINE)
    uint64_t               blocks[NGX_RL_COUNTS_BLOCKS]
                                 [NGX_RL_COUNTS_ROWS]
                                 [NGX_RL_COUNTS_WORDS];
};

_Static_assert(NGX_RL_HISTOGRAM_WORDS < NGX_RL_COUNTS_USES,
               "a histogram fits a row");


/* until a worker has begun */
static uint64_t  ngx_rl_counts_nowhere
    [NGX_RL_COUNTS_KINDS * NGX_RL_COUNTS_WORDS];

uint64_t    *ngx_rl_counts_block = ngx_rl_counts_nowhere;
ngx_uint_t   ngx_rl_counts_shared;

static ngx_rl_counts_t  *ngx_rl_counts;

/* where the next search for an ended row begins, and when one was in vain */
static uint32_t  ngx_rl_counts_at;
static uint64_t  ngx_rl_counts_full_s;


size_t
ngx_rl_counts_size(void)
{
    return sizeof(ngx_rl_counts_t);
}


/* The blocks stay untouched: memory is used for what is counted. */
ngx_int_t
ngx_rl_counts_init(void *memory)
{
    ngx_rl_counts_t *counts = memory;

    uint32_t  kind;

    for (kind = 0; kind < NGX_RL_COUNTS_KINDS; kind++) {
        counts->names[kind].kind = (u_char) kind;
    }

    counts->nrows = NGX_RL_COUNTS_KINDS;
    counts->nblocks = NGX_RL_COUNTS_COMMON + 1;

    return NGX_OK;
}


void
ngx_rl_counts_begin(ngx_rl_counts_t *counts)
{
    uint32_t    row;
    ngx_uint_t  n;

    n = ngx_rl_life % NGX_RL_LIVES + 1;

    if (n >= NGX_RL_COUNTS_BLOCKS) {
        n = NGX_RL_COUNTS_COMMON;
    }

    ngx_rl_counts = counts;
    ngx_rl_counts_block = counts->blocks[n][0];
    ngx_rl_counts_shared = (n == NGX_RL_COUNTS_COMMON);

    ngx_rl_atomic_max(&counts->nblocks, n + 1);

    for (row = 0; row < counts->nrows && !ngx_rl_counts_shared; row++) {
        counts->blocks[n][row][NGX_RL_COUNTS_USES] = 0;
    }
}


static uint64_t
ngx_rl_counts_now(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec;
}


void
ngx_rl_counts_end(void)
{
    uint32_t   row;
    uint64_t  *uses;

    if (ngx_rl_counts == NULL || ngx_rl_counts_shared) {
        return;
    }

    for (row = 0; row < ngx_rl_counts->nrows; row++) {
        uses = &ngx_rl_counts_block[row * NGX_RL_COUNTS_WORDS
                                    + NGX_RL_COUNTS_USES];
        if (*uses) {
            ngx_rl_counts->names[row].used_s = ngx_rl_counts_now();
            *uses = 0;
        }
    }
}


/* Without an id its making was cut short. */
static ngx_uint_t
ngx_rl_counts_shown(uint32_t row)
{
    uint64_t          n, uses;
    ngx_rl_counts_t  *counts;

    counts = ngx_rl_counts;

    if (row < NGX_RL_COUNTS_KINDS) {
        return 1;
    }

    if (counts->ids[row] == 0) {
        return 0;
    }

    if ((int64_t) (ngx_rl_counts_now() - counts->names[row].used_s)
        < NGX_RL_COUNTS_ENDED_S)
    {
        return 1;
    }

    for (n = 0, uses = 0; n < counts->nblocks; n++) {
        uses += counts->blocks[n][row][NGX_RL_COUNTS_USES];
    }

    return uses != 0;
}


/*
 * The row of that id, else one that can be had; 0: there is none. Such a row is
 * searched for once in a second, not for each rule of a document.
 */
static uint32_t
ngx_rl_counts_find(uint64_t id)
{
    uint32_t          row, nrows, n;
    uint64_t          now_s;
    ngx_rl_counts_t  *counts;

    counts = ngx_rl_counts;
    nrows = (uint32_t) counts->nrows;

    for (row = NGX_RL_COUNTS_KINDS; row < nrows; row++) {
        if (atomic_load_explicit(&counts->ids[row], memory_order_relaxed) == id)
        {
            return row;
        }
    }

    if (nrows < NGX_RL_COUNTS_ROWS) {
        return nrows;
    }

    now_s = ngx_rl_counts_now();

    if (ngx_rl_counts_full_s == now_s) {
        return 0;
    }

    for (n = NGX_RL_COUNTS_KINDS; n < nrows; n++) {
        row = NGX_RL_COUNTS_KINDS
              + ngx_rl_counts_at++
                % (NGX_RL_COUNTS_ROWS - NGX_RL_COUNTS_KINDS);

        if (!ngx_rl_counts_shown(row)) {
            return row;
        }
    }

    ngx_rl_counts_full_s = now_s;

    return 0;
}


uint32_t
ngx_rl_counts_use(ngx_rl_counts_kind_e kind, const ngx_str_t *zone,
    const ngx_str_t *rule, ngx_uint_t shared)
{
    u_char                 text[2 * NGX_RL_COUNTS_NAME + 2], *p;
    uint32_t               row;
    uint64_t               id, n;
    ngx_rl_counts_t       *counts;
    ngx_rl_counts_name_t  *name;

    static const u_char  key[NGX_RL_SIPHASH_KEY_BYTES];

    counts = ngx_rl_counts;

    if (counts == NULL || zone->len > NGX_RL_COUNTS_NAME
        || rule->len > NGX_RL_COUNTS_NAME)
    {
        return ngx_rl_counts_others(kind);
    }

    /* no name has a zero */

    p = ngx_cpymem(text, zone->data, zone->len);
    *p++ = '\0';
    p = ngx_cpymem(p, rule->data, rule->len);
    *p++ = (u_char) kind;

    id = ngx_rl_siphash(key, text, p - text, 1, 3).lo;
    id = id ? id : 1;

    ngx_rl_lock(&counts->lock);

    row = ngx_rl_counts_find(id);

    if (row == 0) {
        ngx_rl_unlock(&counts->lock);
        return ngx_rl_counts_others(kind);
    }

    name = &counts->names[row];

    if (counts->ids[row] != id) {
        counts->ids[row] = 0;
        atomic_thread_fence(memory_order_release);

        for (n = 0; n < ngx_rl_counts->nblocks; n++) {
            ngx_memzero(ngx_rl_counts->blocks[n][row],
                        NGX_RL_COUNTS_WORDS * sizeof(uint64_t));
        }

        name->kind = (u_char) kind;
        name->zone_len = (u_char) zone->len;
        name->rule_len = (u_char) rule->len;
        p = ngx_cpymem(name->text, zone->data, zone->len);
        ngx_memcpy(p, rule->data, rule->len);
    }

    name->shared = (u_char) shared;
    name->used_s = ngx_rl_counts_now();
    counts->ids[row] = id;

    if (row == counts->nrows) {
        counts->nrows = row + 1;
    }

    row *= NGX_RL_COUNTS_WORDS;
    ngx_rl_count(row, NGX_RL_COUNTS_USES, 1);

    ngx_rl_unlock(&counts->lock);

    return row;
}


void
ngx_rl_counts_release(uint32_t row)
{
    uint32_t  n;

    n = row / NGX_RL_COUNTS_WORDS;

    if (n < NGX_RL_COUNTS_KINDS) {
        return;
    }

    ngx_rl_counts->names[n].used_s = ngx_rl_counts_now();
    ngx_rl_count(row, NGX_RL_COUNTS_USES, (uint64_t) -1);
}


ngx_int_t
ngx_rl_counts_next(uint32_t *at, const ngx_str_t *zone,
    ngx_rl_counts_row_t *row)
{
    uint32_t               i;
    uint64_t               n, id;
    ngx_uint_t             word;
    ngx_rl_counts_t       *counts;
    ngx_rl_counts_name_t  *name;

    counts = ngx_rl_counts;

    while (counts && *at < counts->nrows) {
        i = (*at)++;
        id = counts->ids[i];

        if (!ngx_rl_counts_shown(i)) {
            continue;
        }

        name = &counts->names[i];

        /* the sums are what costs */

        if (zone && (name->zone_len != zone->len
                     || ngx_memcmp(name->text, zone->data, zone->len) != 0))
        {
            continue;
        }

        row->kind = name->kind;
        row->place = i * NGX_RL_COUNTS_WORDS;
        row->shared = name->shared;
        row->zone.data = row->text;
        row->zone.len = name->zone_len;
        row->rule.data = row->text + name->zone_len;
        row->rule.len = name->rule_len;

        ngx_memcpy(row->text, name->text, sizeof(row->text));
        ngx_memzero(row->words, sizeof(row->words));

        for (n = 0; n < counts->nblocks; n++) {
            for (word = 0; word < NGX_RL_COUNTS_WORDS; word++) {
                row->words[word] += __atomic_load_n(&counts->blocks[n][i][word],
                                                    __ATOMIC_RELAXED);
            }
        }

        /* it may have become another one's meanwhile */

        atomic_thread_fence(memory_order_acquire);

        if (counts->ids[i] == id) {
            return NGX_OK;
        }
    }

    return NGX_DONE;
}


void
ngx_rl_counts_time(uint32_t row, uint64_t us)
{
    ngx_rl_count(row, ngx_rl_histogram_bucket(us), 1);
    ngx_rl_count(row, NGX_RL_HISTOGRAM_SUM, us);
}
