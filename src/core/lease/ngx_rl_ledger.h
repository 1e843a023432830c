/*
 * A ledger: a gateway's account of one counter in Redis, which its workers
 * share. With sync=lease it has tokens in hand: Redis has debited them already,
 * and the workers spend them without asking. If a ledger is lost, too few
 * tokens are left in the fleet, never too many.
 *
 * With sync=async it debits behind: requests are decided at once, by what Redis
 * said last and what this gateway has spent since. That is owed until a call
 * debits it. A debit always succeeds: what is not there is owed in Redis, up to
 * one capacity, and all gateways wait until it has come back. So no call is
 * repeated, and each is caused by a request.
 *
 * These functions decide. The caller holds the lock of the ledger, which lies
 * in the table of leases, makes the calls to Redis, and lets the requests wait.
 */

#ifndef NGX_RL_LEDGER_H_INCLUDED
#define NGX_RL_LEDGER_H_INCLUDED

#include "ngx_rl_limit.h"

/* unspent tokens go back after so long; calls that debit are so far apart, or
   further */
#define NGX_RL_LEDGER_HOLD_MS  100

/*
 * In shared memory, zeroed when it is made. Instants are of the clock of now_us
 * (monotonic, < 2^51), those in ms are its lower 32 bits.
 */
typedef struct {
    uint64_t          busy_us;      /* until then it says something; first: the
                                       table of leases reads it */

    union {
        struct {
            uint64_t  fresh_us;     /* when the counter equals a fresh one, by
                                       all that is debited or owed */
            uint32_t  tokens;       /* in hand; the table of leases reads it */
            int32_t   left;         /* of windows: neither in hand nor owed;
                                       below 0: more is owed than was there,
                                       or may be (in hand, a fixed one) */
        };

        /* debiting behind: a bucket, whose instant is fresh_us */
        ngx_rl_token_bucket_t  tb;
    };

    uint32_t          answered_ms;  /* when Redis last answered */
    uint32_t          asked_ms;     /* when Redis was last asked: ahead of need,
                                       or to debit */
    uint32_t          began_ms;     /* of windows: this one counts since */
    uint32_t          rejected_cost;  /* cannot be paid; 0: nothing is known to
                                         be rejected */
    uint32_t          retry_ms;     /* so long after answered_ms it can; 0:
                                       nothing is rejected, or the moment is
                                       not known */

    union {

        /* with tokens in hand: the demand */
        struct {
            uint32_t  rate;         /* sixteenths of a token in HOLD_MS */
            uint32_t  tick_ms;      /* when count began */
            uint32_t  count;        /* tokens asked for since */
            uint32_t  shown;        /* of a fixed window: the fewest tokens left
                                       that an answer has named */
        };

        /* debiting behind */
        struct {
            int32_t   owed;         /* spent, and not debited in Redis;
                                       below 0: it came back, and Redis does
                                       not have it */
            uint32_t  owed_ms;      /* something is owed since */
            uint32_t  capacity;     /* of a window: that left is of */
        };
    };

    uint16_t          mark;         /* of the limit */
    uint8_t           strikes;      /* how often it was found spent, see the .c
                                       file */
    unsigned          asking:1;     /* ahead of need, or to debit; for a second
                                       at most */
    unsigned          answered:1;   /* what Redis has said still counts */
    unsigned          before:1;     /* of a sliding window: its predecessor
                                       alone has counted anything */
    unsigned          unnamed:1;    /* Redis has not said when rejected_cost can
                                       be paid, or it is too far away: after
                                       retry_ms it may be asked */
    unsigned          overtaken:2;  /* answers that may have overtaken tokens on
                                       their way back to Redis */
    unsigned          bucket:1;     /* debits behind: it is not a window */
    unsigned          away:1;       /* the same: the last call has failed */
} ngx_rl_ledger_t;

typedef enum {
    NGX_RL_LEDGER_PAID = 0,
    NGX_RL_LEDGER_REJECTED,
    NGX_RL_LEDGER_ASK,        /* Redis has to be asked */
    NGX_RL_LEDGER_FRESH       /* the same, and the window is over that Redis has
                                 told of */
} ngx_rl_ledger_e;

/* The caller's view of the time and of the fleet. */
typedef struct {
    uint64_t  now_us;
    uint32_t  gateways;     /* that share the counter, 1 and more */
    uint32_t  rtt_ms;       /* of a call, rounded up */
    uint64_t  forgot_us;    /* a counter was reset: what Redis said until then
                               rejects nothing; 0: none was */
    unsigned  behind;       /* of the ledger: sync=async */
    uint32_t  interval_ms;  /* behind: calls that debit are so far apart; below
                               HOLD_MS: HOLD_MS */
    uint32_t  share;        /* behind: with more than 1 a gateway spends a
                               share-th of what it knew to be left, and of the
                               rate, from a failed call to the next answer */
} ngx_rl_ledger_env_t;

/* What a call says to Redis. */
typedef struct {

    /*
     * With tokens in hand: it asks for cost at least, for want if there are as
     * many, and then for ahead, of which it gets a share-th of what is left
     * (rounded down).
     */
    uint32_t  cost;
    uint32_t  want;
    uint32_t  ahead;
    uint32_t  share;

    /* debiting behind: one of the two, or nothing */
    int32_t   debit;        /* below 0: gives back, also tokens in hand */
    uint32_t  look;         /* when can so much be paid? */
    uint32_t  owed_ms;      /* the debit was owed since */
    uint32_t  asked_ms;     /* of the call */
    uint64_t  age_us;       /* of what it gives back */
} ngx_rl_ledger_call_t;

/* what take() and spent() want of the caller, in *next */
#define NGX_RL_LEDGER_CALL   1   /* Redis is to be called now */
#define NGX_RL_LEDGER_SWEEP  2   /* its sweeps are to begin */


/*
 * Takes cost, 1 and more. PAID: out of the tokens in hand, or of what is known
 * to be left. REJECTED: Redis has rejected this cost or a lower one (since
 * forgot_us), and the moment that it named has not come; or, behind, it is more
 * than what is left. Or the cost exceeds the capacity (retry_us NEVER), and
 * Redis has said what is left. Both fill the answer.
 *
 * ASK leaves it as it is. With tokens in hand the request has to ask; behind,
 * Redis has said nothing, and the gateway's own counter decides. What that
 * grants goes to spent(), with its answer. FRESH, behind, of a sliding window:
 * that counter is to have as much left as the answer says, since its windows
 * end at other moments than those in Redis.
 *
 * *next is CALL: the caller is to call Redis now, and nobody waits for that.
 * It makes the call by ask(), with nothing queued, and sweeps from now on. If
 * it does not, another caller gets CALL a second later. SWEEP, behind: the next
 * sweep tells Redis of all that is spent until then.
 *
 * With tokens in hand a ledger of another limit (the limit has changed, or
 * depends on the request) is not touched: ASK.
 */
ngx_rl_ledger_e ngx_rl_ledger_take(ngx_rl_ledger_t *ledger,
    const ngx_rl_limit_t *limit, const ngx_rl_ledger_env_t *env, uint32_t cost,
    ngx_rl_answer_t *answer, unsigned *next);
void ngx_rl_ledger_spent(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, const ngx_rl_answer_t *answer,
    unsigned *next);

/*
 * For a counter of which each request asks. Returns 1 and the answer, as
 * REJECTED above, if Redis has rejected the cost.
 */
unsigned ngx_rl_ledger_rejects(ngx_rl_ledger_t *ledger,
    const ngx_rl_limit_t *limit, const ngx_rl_ledger_env_t *env, uint32_t cost,
    ngx_rl_answer_t *answer);

/*
 * An answer rejects a cost until retry_us: how long a request waits that costs
 * so much more (cost + more <= capacity). If that is not known, until reset_us.
 */
uint64_t ngx_rl_ledger_later_us(const ngx_rl_limit_t *limit,
    const ngx_rl_answer_t *answer, uint32_t cost, uint32_t more);

/*
 * Fills the answer with what is known of the counter, for a request that costs
 * nothing. If nothing is known the answer stays as it is, and so does the
 * ledger in any case.
 */
void ngx_rl_ledger_look(const ngx_rl_ledger_t *ledger,
    const ngx_rl_limit_t *limit, const ngx_rl_ledger_env_t *env,
    ngx_rl_answer_t *answer);

/*
 * Pays for a request that waited, without counting it once more as demand.
 * Returns 1 and the answer; or 0: there are not so many in hand.
 */
unsigned ngx_rl_ledger_pay(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, uint32_t cost, ngx_rl_answer_t *answer);

/*
 * Tokens come back that were paid at taken_us: another counter rejected, or the
 * response cost less. Returns how many of them the ledger sees to: all, or none
 * where it is not the one that paid (its window is over, its limit another).
 * The caller is to sweep, and tells Redis itself of the others.
 */
uint32_t ngx_rl_ledger_give(ngx_rl_ledger_t *ledger,
    const ngx_rl_limit_t *limit, const ngx_rl_ledger_env_t *env,
    uint64_t taken_us, uint32_t tokens);

/* Tokens go back to Redis without the ledger: no rejection stands. */
void ngx_rl_ledger_gave(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, uint32_t tokens);

/*
 * So many more are spent. Returns how many the ledger sees to: those that are
 * in hand or, behind, all, whatever is left. If not all, no rejection stands.
 */
uint32_t ngx_rl_ledger_charge(ngx_rl_ledger_t *ledger,
    const ngx_rl_limit_t *limit, const ngx_rl_ledger_env_t *env,
    uint32_t tokens);

/*
 * After ASK: whether the request is to ask for itself alone, because the
 * counter is too slow for tokens in hand and no other request asks for it now.
 * The caller then asks for its cost alone, passes the answer to fill(), and
 * pays; or it calls failed(), or nothing.
 */
unsigned ngx_rl_ledger_alone(ngx_rl_ledger_t *ledger,
    const ngx_rl_limit_t *limit, const ngx_rl_ledger_env_t *env);

/*
 * A call is made now: what it says; returns 0: nothing. head is the cost of the
 * first request that waits, queued that of all. Both are 0 if nobody waits.
 * ledger NULL: there is no place for one, and the call asks for queued alone.
 *
 * In hand, also where it returns 0, a debit below 0 is of tokens of a sliding
 * window that is over, which nobody can spend: the caller gives them back, by
 * another call. Tokens of another limit go back under that limit, by the worker
 * that sweeps for it: in a bucket with another rate they would be worth
 * something else.
 *
 * A debit is owed no more from here on. It is at most one capacity, the rest
 * comes with the next call; there is none while another is under way.
 */
unsigned ngx_rl_ledger_ask(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, uint32_t head, uint32_t queued,
    ngx_rl_ledger_call_t *call);

/*
 * Redis has answered a call of asked_us: answer->granted tokens come to those
 * in hand. Returns 1, or 0 if they do not, because the ledger has tokens of
 * another limit, or the answer is of a window that is over by now. The caller
 * then pays the requests that wait and gives back the rest.
 */
unsigned ngx_rl_ledger_fill(ngx_rl_ledger_t *ledger,
    const ngx_rl_limit_t *limit, const ngx_rl_ledger_env_t *env,
    uint64_t asked_us, const ngx_rl_ledger_call_t *call,
    const ngx_rl_answer_t *answer);

/*
 * Whether Redis has lost the counter, by an answer to a call of asked_us that
 * is about to fill the ledger: it tells of a fresh counter, and the ledger
 * knows that the counter stays in use for a second more. If other gateways
 * share it, they may have given back what they had taken ahead, which is half
 * of the capacity at most: then more than half of it must have been in use.
 */
unsigned ngx_rl_ledger_lost(const ngx_rl_ledger_t *ledger,
    const ngx_rl_limit_t *limit, const ngx_rl_ledger_env_t *env,
    uint64_t asked_us, const ngx_rl_ledger_call_t *call,
    const ngx_rl_answer_t *answer);

/*
 * A call has failed. behind: it surely has not run, and is owed again; debit 0
 * in the call: it may have run.
 */
void ngx_rl_ledger_failed(ngx_rl_ledger_t *ledger, const ngx_rl_limit_t *limit,
    const ngx_rl_ledger_env_t *env, const ngx_rl_ledger_call_t *call);

/*
 * Called each HOLD_MS, under the limit that the caller sweeps for, while tokens
 * are in hand or something is owed. With all set the worker ends: everything
 * goes to Redis, and tokens of another limit too. The caller makes the call,
 * unless its debit is 0; nobody waits for it.
 *
 * Returns whether the caller is to call Redis by ask() now.
 */
unsigned ngx_rl_ledger_sweep(ngx_rl_ledger_t *ledger,
    const ngx_rl_limit_t *limit, const ngx_rl_ledger_env_t *env, unsigned all,
    ngx_rl_ledger_call_t *call);

#endif /* NGX_RL_LEDGER_H_INCLUDED */
