/*
 * A lease: tokens of a counter that Redis has debited already, which the
 * workers of a node spend without asking. What is spent was debited first, so
 * a lease that is lost leaves too few tokens in the fleet, never too many.
 *
 * These functions decide; who calls them holds the lock of the lease, makes the
 * calls to Redis, and lets the requests wait. sync=async uses the same memory
 * the other way round: it spends first and debits behind.
 */

#ifndef NGX_RATELIMIT_LEASE_H_INCLUDED
#define NGX_RATELIMIT_LEASE_H_INCLUDED

#include "ngx_ratelimit_limit.h"

/* unspent tokens go back after so long */
#define NGX_RATELIMIT_LEASE_HOLD_MS  100

/*
 * In shared memory, zeroed when it is made. Instants are of the clock of now_us
 * (monotonic, < 2^51), those in ms are its lower 32 bits.
 */
typedef struct {
    uint64_t  busy_us;      /* until then it says something; first: the table
                               of leases reads it */
    uint64_t  fresh_us;     /* when the counter in Redis equals a fresh one */
    uint32_t  tokens;       /* in hand; async: spent, not debited yet */
    int32_t   remaining;    /* of windows: in Redis */
    uint32_t  answered_ms;  /* when Redis said so */
    uint32_t  retry_ms;     /* from then on until denied_cost can be paid; 0:
                               nothing is denied */
    uint32_t  denied_cost;  /* async: spent, and not there when Redis was told:
                               with the next time it is */
    uint32_t  rate;         /* sixteenths of a token in HOLD_MS */
    uint32_t  tick_ms;      /* when count began */
    uint32_t  count;        /* tokens asked for since */
    uint32_t  asked_ms;     /* when Redis was last asked ahead of need */
    uint32_t  since_ms;     /* when answered was set; async: since then
                               something is spent and not debited */
    union {
        uint32_t  told;     /* of a fixed window: the least that a client was
                               told to be left */
        uint32_t  capacity; /* async: that remaining is of */
    };
    uint16_t  mark;         /* of the limit that all this was said of */
    uint8_t   strikes;      /* how often it was found spent, see the .c file */
    unsigned  asking:1;     /* ahead of need; for a second at most */
    unsigned  answered:1;   /* what Redis has said still counts */
    unsigned  async:1;      /* the memory is used so */
    unsigned  before:1;     /* of a sliding window: its predecessor alone has
                               counted anything */
    unsigned  unnamed:1;    /* Redis has not said when denied_cost can be paid:
                               retry_ms is when it may be asked */
} ngx_ratelimit_lease_t;

typedef enum {
    NGX_RATELIMIT_LEASE_PAID = 0,
    NGX_RATELIMIT_LEASE_DENIED,
    NGX_RATELIMIT_LEASE_ASK         /* Redis has to be asked */
} ngx_ratelimit_lease_e;

/* What is known to who asks. */
typedef struct {
    uint64_t  now_us;
    uint32_t  nodes;        /* that share the counter, 1 and more */
    uint32_t  rtt_ms;       /* of a call, rounded up */
    uint64_t  forgot_us;    /* what Redis said until then denies nothing: a
                               counter was reset; 0: all counts */
} ngx_ratelimit_lease_env_t;

/*
 * What Redis is asked for: at least cost, want where they are there, then as
 * many of ahead as are a share-th of what is left (rounded down).
 */
typedef struct {
    uint32_t  cost;
    uint32_t  want;
    uint32_t  ahead;
    uint32_t  share;
} ngx_ratelimit_lease_ask_t;


/*
 * Takes cost, 1 and more. PAID: out of the tokens in hand. DENIED: Redis has
 * said so (since forgot_us), the moment that it named has not come, and this
 * cost is no less; or it exceeds the capacity (retry_us NEVER), and Redis has
 * said what is left.
 * Both fill the answer. ASK: as said; the answer is left as it is. *ahead,
 * where PAID: whether Redis is to be asked now for more, before they are
 * needed; who gets that calls ngx_ratelimit_lease_size() with nothing queued,
 * and sweeps from now on; or forgets it: a second later the next one is told.
 *
 * A lease that is there under another limit (a limit that has changed, or
 * depends on the request) is not touched while it has tokens: ASK.
 */
ngx_ratelimit_lease_e ngx_ratelimit_lease_take(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint32_t cost, ngx_ratelimit_answer_t *answer, unsigned *ahead);

/*
 * Fills the answer with what is known of the counter, for a request that costs
 * nothing. If nothing is known the answer stays as it is, and so does the lease
 * in any case.
 */
void ngx_ratelimit_lease_look(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    ngx_ratelimit_answer_t *answer);

/*
 * Where take has said ASK: whether the request is to ask for itself alone: the
 * counter is too slow for a lease, and nobody else asks for it now. Who is told
 * so tells ngx_ratelimit_lease_fill() the answer, with the cost as all that was
 * asked for, and then pays; or ngx_ratelimit_lease_failed(); or forgets it.
 */
unsigned ngx_ratelimit_lease_alone(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env);

/*
 * How much to ask for: head is the cost of the first that waits, queued that of
 * all who wait, the first included; both 0: ahead of need. lease may be NULL:
 * there is no place for one, and what waits is all that is asked for.
 */
void ngx_ratelimit_lease_size(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint32_t head, uint32_t queued, ngx_ratelimit_lease_ask_t *ask);

/*
 * What Redis has answered to ask, which was sent at asked_us: answer->granted
 * tokens come to those in hand. Returns 1, or 0 where they do not: the lease
 * has tokens of another limit, or the answer is of a window that is over by
 * now. Then the caller spends them on those who wait, or gives them back.
 */
int ngx_ratelimit_lease_fill(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint64_t asked_us, const ngx_ratelimit_lease_ask_t *ask,
    const ngx_ratelimit_answer_t *answer);

/*
 * Before Redis is asked: takes out the tokens of the sliding window that is
 * over, which nobody can spend. Returns how many, to be given back. Those of
 * another limit go back under that one, by who sweeps for it: as many of a
 * bucket with another rate would be worth something else.
 */
uint32_t ngx_ratelimit_lease_stale(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env);

/*
 * How old the tokens in hand are, for who gives them back: of a window as old
 * as that, see ngx_ratelimit_window_age_us(). Called before they are taken out.
 */
uint64_t ngx_ratelimit_lease_age_us(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, uint64_t now_us);

/* An ask has failed. */
void ngx_ratelimit_lease_failed(ngx_ratelimit_lease_t *lease);

/*
 * Pays for one who waited, without counting it once more as demand. Returns 1
 * and the answer; or 0: there are not so many in hand.
 */
int ngx_ratelimit_lease_pay(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint32_t cost, ngx_ratelimit_answer_t *answer);

/*
 * Puts tokens back that were paid out of the lease at taken_us: another counter
 * denied, or the response cost less. Returns how many of them the lease takes:
 * all or, where it is not the one that paid (its window is over, its limit
 * another), none.
 */
uint32_t ngx_ratelimit_lease_return(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint64_t taken_us, uint32_t tokens);

/* Takes up to so many tokens in hand, and returns how many. */
uint32_t ngx_ratelimit_lease_charge(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint32_t tokens);

/*
 * Takes out what has to go back to Redis: tokens that were not spent in time;
 * with all set every one, also of another limit. Returns how many: 0 and more.
 * Called each HOLD_MS while tokens are in hand; with all when the worker ends.
 */
uint32_t ngx_ratelimit_lease_sweep(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    unsigned all);


/*
 * sync=async: PAID or DENIED, at once, by what this node knows: what Redis has
 * last said less what was spent since, or a fresh counter where it has said
 * nothing. *ask: whether Redis is to be told now; who gets that does, or
 * forgets it: a second later the next one is told.
 */
ngx_ratelimit_lease_e ngx_ratelimit_async_take(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint32_t cost, ngx_ratelimit_answer_t *answer, unsigned *ask);

/* As ngx_ratelimit_lease_look(), under async; fills the answer in any case. */
void ngx_ratelimit_async_look(const ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    ngx_ratelimit_answer_t *answer);

/* How much to debit now, that for which there was not enough included. */
uint32_t ngx_ratelimit_async_debt(const ngx_ratelimit_lease_t *lease);

/*
 * Whether Redis is to be told now of what was spent: there is something, and
 * nobody tells it. Who gets that does, or forgets it, as with take.
 */
unsigned ngx_ratelimit_async_due(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_lease_env_t *env);

/* Redis could not be told: not before HOLD_MS have passed is it tried again. */
void ngx_ratelimit_async_failed(ngx_ratelimit_lease_t *lease, uint64_t now_us);

/*
 * The worker ends: how much Redis is to be told, 0 where somebody does already.
 * It counts as debited.
 */
uint32_t ngx_ratelimit_async_leave(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env);

/*
 * Tokens that were spent come back: as many as are not debited yet, which is
 * returned. More are spent: returns how many of them are debited behind. The
 * caller tells Redis of the rest, which it then charges in any case.
 */
uint32_t ngx_ratelimit_async_return(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint32_t tokens);
uint32_t ngx_ratelimit_async_charge(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint32_t tokens);

/*
 * Redis was told debt, debited answer->granted of it, and answered. What was
 * not there other nodes had spent as well: this one denies until it can be
 * debited, so that what refills is spent once in the end. A fixed window
 * forgets it: nothing comes back before its end.
 */
void ngx_ratelimit_async_fill(ngx_ratelimit_lease_t *lease,
    const ngx_ratelimit_limit_t *limit, const ngx_ratelimit_lease_env_t *env,
    uint64_t asked_us, uint32_t debt, const ngx_ratelimit_answer_t *answer);

#endif /* NGX_RATELIMIT_LEASE_H_INCLUDED */
