/*
 * A lease: tokens of a counter that Redis has debited already, which the
 * workers of a gateway spend without asking. Tokens are debited before they are
 * spent: a lost lease leaves too few tokens in the fleet, never too many.
 *
 * These functions decide. The caller holds the lock of the lease, makes the
 * calls to Redis, and lets the requests wait.
 */

#ifndef NGX_RL_LEASE_H_INCLUDED
#define NGX_RL_LEASE_H_INCLUDED

#include "ngx_rl_limit.h"

/* unspent tokens go back after so long */
#define NGX_RL_LEASE_HOLD_MS  100

/*
 * In shared memory, zeroed when it is made. Instants are of the clock of now_us
 * (monotonic, < 2^51), those in ms are its lower 32 bits.
 */
typedef struct {
    uint64_t  busy_us;      /* until then it says something; first: the table
                               of leases reads it */
    uint64_t  fresh_us;     /* when the counter in Redis equals a fresh one */
    uint32_t  tokens;       /* in hand */
    int32_t   remaining;    /* of windows: in Redis */
    uint32_t  answered_ms;  /* when Redis said so */
    uint32_t  retry_ms;     /* from then on until denied_cost can be paid; 0:
                               nothing is denied */
    uint32_t  denied_cost;
    uint32_t  rate;         /* sixteenths of a token in HOLD_MS */
    uint32_t  tick_ms;      /* when count began */
    uint32_t  count;        /* tokens asked for since */
    uint32_t  asked_ms;     /* when Redis was last asked ahead of need */
    uint32_t  since_ms;     /* when answered was set */
    uint32_t  told;         /* of a fixed window: the fewest tokens left that
                               an answer to a client has named */
    uint16_t  mark;         /* of the limit */
    uint8_t   strikes;      /* how often it was found spent, see the .c file */
    unsigned  asking:1;     /* ahead of need; for a second at most */
    unsigned  answered:1;   /* what Redis has said still counts */
    unsigned  before:1;     /* of a sliding window: its predecessor alone has
                               counted anything */
    unsigned  unnamed:1;    /* when denied_cost can be paid Redis has not said,
                               or it is too far away: retry_ms is when it may
                               be asked */
    unsigned  gave:2;       /* answers that may have overtaken tokens on their
                               way back to Redis */
} ngx_rl_lease_t;

typedef enum {
    NGX_RL_LEASE_PAID = 0,
    NGX_RL_LEASE_DENIED,
    NGX_RL_LEASE_ASK         /* Redis has to be asked */
} ngx_rl_lease_e;

/* The caller's view of the time and of the fleet. */
typedef struct {
    uint64_t  now_us;
    uint32_t  nodes;        /* that share the counter, 1 and more */
    uint32_t  rtt_ms;       /* of a call, rounded up */
    uint64_t  forgot_us;    /* a counter was reset: what Redis said until then
                               rejects nothing; 0: none was */
} ngx_rl_lease_env_t;

/*
 * A call asks Redis for cost at least, for want if there are as many, and then
 * for ahead, of which it gets a share-th of what is left (rounded down).
 */
typedef struct {
    uint32_t  cost;
    uint32_t  want;
    uint32_t  ahead;
    uint32_t  share;
} ngx_rl_lease_ask_t;


/*
 * Takes cost, 1 and more. PAID: out of the tokens in hand. DENIED: Redis has
 * rejected this cost or a lower one (since forgot_us), and the moment that it
 * named has not come. Or the cost exceeds the capacity (retry_us NEVER), and
 * Redis has said what is left. Both fill the answer. ASK leaves it as it is.
 *
 * PAID may set *ahead: the caller is to ask for more tokens now, before they
 * are needed. It calls ngx_rl_lease_size() with nothing queued, and
 * sweeps from now on. If it does not, another caller gets *ahead a second
 * later.
 *
 * A lease under another limit (the limit has changed, or depends on the
 * request) is not touched while it has tokens: ASK.
 */
ngx_rl_lease_e ngx_rl_lease_take(ngx_rl_lease_t *lease,
    const ngx_rl_limit_t *limit, const ngx_rl_lease_env_t *env, uint32_t cost,
    ngx_rl_answer_t *answer, unsigned *ahead);

/*
 * For a counter of which each request asks. Returns 1 and the answer, as DENIED
 * above, if Redis has rejected the cost.
 */
unsigned ngx_rl_lease_denies(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint32_t cost, ngx_rl_answer_t *answer);

/*
 * Fills the answer with what is known of the counter, for a request that costs
 * nothing. If nothing is known the answer stays as it is, and so does the lease
 * in any case.
 */
void ngx_rl_lease_look(const ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, ngx_rl_answer_t *answer);

/*
 * After ASK: whether the request is to ask for itself alone, because the
 * counter is too slow for a lease and no other request asks for it now. The
 * caller then asks for its cost alone, passes the answer to
 * ngx_rl_lease_fill(), and pays; or it calls
 * ngx_rl_lease_failed(), or nothing.
 */
unsigned ngx_rl_lease_alone(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env);

/*
 * Says how much to ask for. head is the cost of the first request that waits,
 * queued that of all. Both are 0 if it asks ahead of need. lease NULL: there is
 * no place for one, and the call asks for queued alone.
 */
void ngx_rl_lease_size(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint32_t head, uint32_t queued,
    ngx_rl_lease_ask_t *ask);

/*
 * Redis has answered a call of asked_us: answer->granted tokens come to those
 * in hand. Returns 1, or 0 if they do not, because the lease has tokens of
 * another limit, or the answer is of a window that is over by now. The caller
 * then pays the requests that wait and gives back the rest.
 */
int ngx_rl_lease_fill(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint64_t asked_us,
    const ngx_rl_lease_ask_t *ask, const ngx_rl_answer_t *answer);

/*
 * Whether Redis has lost the counter, by an answer to a call of asked_us that
 * is about to fill the lease: it tells of a fresh counter, and
 * the lease knows that the counter stays in use for a second more. If other
 * gateways share it, they may have given back what they had taken ahead, which
 * is half of the capacity at most: then more than half of it must have been in
 * use.
 */
unsigned ngx_rl_lease_lost(const ngx_rl_lease_t *lease,
    const ngx_rl_limit_t *limit, const ngx_rl_lease_env_t *env,
    uint64_t asked_us, const ngx_rl_answer_t *answer);

/*
 * Before Redis is asked: takes out the tokens of a sliding window that is over,
 * which nobody can spend, and returns how many, to be given back. Tokens of
 * another limit go back under that limit, by the worker that sweeps for it: in
 * a bucket with another rate they would be worth something else.
 */
uint32_t ngx_rl_lease_stale(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env);

/*
 * How old the tokens in hand are, for a call that gives them back, see
 * ngx_rl_window_age_us(). Called before they are taken out.
 */
uint64_t ngx_rl_lease_age_us(const ngx_rl_lease_t *lease,
    const ngx_rl_limit_t *limit, uint64_t now_us);

/* An ask has failed. */
void ngx_rl_lease_failed(ngx_rl_lease_t *lease);

/*
 * Pays for a request that waited, without counting it once more as demand.
 * Returns 1 and the answer; or 0: there are not so many in hand.
 */
int ngx_rl_lease_pay(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint32_t cost, ngx_rl_answer_t *answer);

/*
 * Puts tokens back that were paid out of the lease at taken_us: another counter
 * denied, or the response cost less. Returns how many of them the lease takes:
 * all or, where it is not the one that paid (its window is over, its limit
 * another), none.
 */
uint32_t ngx_rl_lease_return(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint64_t taken_us, uint32_t tokens);

/* Tokens go back to Redis without the lease: no rejection stands. */
void ngx_rl_lease_gave(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint32_t tokens);

/* Takes up to so many tokens in hand, and returns how many. */
uint32_t ngx_rl_lease_charge(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint32_t tokens);

/*
 * Takes out what has to go back to Redis: tokens that were not spent in time;
 * with all set every one, also of another limit. Returns how many: 0 and more.
 * Called each HOLD_MS while tokens are in hand; with all when the worker ends.
 */
uint32_t ngx_rl_lease_sweep(ngx_rl_lease_t *lease, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, unsigned all);


#endif /* NGX_RL_LEASE_H_INCLUDED */
