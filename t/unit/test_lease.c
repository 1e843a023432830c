/*
 * Leases: who is paid, who is rejected, when Redis is asked, for how much; what
 * comes back to one, what is charged, what goes back to Redis; and what a
 * counter that was reset makes of all that.
 */

#include "lease.h"

LIMIT(bucket_100, TOKEN_BUCKET, 100, 3600 * SECOND)
LIMIT(leaky_100, LEAKY_BUCKET, 100, 3600 * SECOND)
LIMIT(fixed_100, FIXED_WINDOW, 100, 3600 * SECOND)
LIMIT(sliding_100, SLIDING_WINDOW, 100, 3600 * SECOND)

LIMIT(fast_bucket, TOKEN_BUCKET, 100000, 10 * SECOND)
LIMIT(faster_bucket, TOKEN_BUCKET, 1000000, 10 * SECOND)
LIMIT(small_bucket, TOKEN_BUCKET, 10, 10000)
LIMIT(slow_bucket, TOKEN_BUCKET, 100, 100 * SECOND)       /* one a second */
LIMIT(quick_bucket, TOKEN_BUCKET, 100, 50000)
LIMIT(minute_bucket, TOKEN_BUCKET, 100, 60 * SECOND)
LIMIT(second_bucket, TOKEN_BUCKET, 1000, SECOND)
LIMIT(mixed_bucket, TOKEN_BUCKET, 10000, 10 * SECOND)
LIMIT(mixed_other, TOKEN_BUCKET, 100, 10 * SECOND)
LIMIT(large_bucket, TOKEN_BUCKET, 10000, 36000 * SECOND)
LIMIT(large_fixed, FIXED_WINDOW, 10000, 36000 * SECOND)
LIMIT(large_sliding, SLIDING_WINDOW, 10000, 36000 * SECOND)
LIMIT(most_bucket, TOKEN_BUCKET, 1u << 30, SECOND)
LIMIT(most_fixed, FIXED_WINDOW, 1u << 30, 60 * SECOND)
LIMIT(thousand_sliding, SLIDING_WINDOW, 1000, 60 * SECOND)
LIMIT(long_bucket, TOKEN_BUCKET, 1, (uint64_t) 100 * 86400 * SECOND)
LIMIT(long_fixed, FIXED_WINDOW, 1, (uint64_t) 100 * 86400 * SECOND)
LIMIT(minute, FIXED_WINDOW, 100, 60 * SECOND)
LIMIT(minute_200, FIXED_WINDOW, 200, 60 * SECOND)
LIMIT(minute_10, FIXED_WINDOW, 10, 60 * SECOND)
LIMIT(minute_10000, FIXED_WINDOW, 10000, 60 * SECOND)
LIMIT(minute_sliding, SLIDING_WINDOW, 100, 60 * SECOND)
LIMIT(sliding_10, SLIDING_WINDOW, 10, 60 * SECOND)
LIMIT(log_10, SLIDING_LOG, 10, 60 * SECOND)
LIMIT(days_10, FIXED_WINDOW, 10, (uint64_t) 100 * 86400 * SECOND)
LIMIT(one_bucket, TOKEN_BUCKET, 1, 3600 * SECOND)
LIMIT(ten_bucket, TOKEN_BUCKET, 10, 100 * SECOND)
LIMIT(ten_fixed, FIXED_WINDOW, 10, 100 * SECOND)
LIMIT(ten_sliding, SLIDING_WINDOW, 10, 100 * SECOND)
LIMIT(second_fixed, FIXED_WINDOW, 100, SECOND)
LIMIT(second_sliding, SLIDING_WINDOW, 100, SECOND)


/* used 20 of 100 */
static const step_t  paid_in_hand[] = {
    TAKE(0, 1, ASK),
    FILL(1, 1, 10, 80, 720000, 0),
    TAKE(2, 3, PAID, LEFT(87)),
    TAKE(2, 7, PAID, LEFT(80)),
    TAKE(2, 1, ASK),
    { 0 }
};

/* those in hand pay their part */
static const step_t  too_few_in_hand[] = {
    FILL(0, 1, 3, 50, 30000, 0),
    TAKE(1, 5, ASK),
    IN_HAND(3),
    SIZE(1, 5, 9, 2, 6, 0, UP_TO(UINT32_MAX)),
    FILL(2, 2, 6, 44, 29998, 0),
    TAKE(2, 9, PAID),
    { 0 }
};

static const step_t  pay[] = {
    FILL(0, 1, 5, 50, 30000, 0),
    PAY(1, 3, 1, LEFT(52)),
    PAY(1, 3, 0),
    PAY(1, 1, 0, OTHER),
    { 0 }
};

/* What a counter takes in about 100 ms is what a lease is for. */
static const step_t  size[] = {

    /* too slow */
    DEMAND(0, 1, 1), DEMAND(500, 501, 1),
    SIZE(600, 2, 7, 2, 7, 0),

    /* 4 in each ms, over the wrap of 32 bits; a request that is paid is none */
    NEW, DEMAND(0, 1400, 4),
    SIZE(1400, 1, 1, 1, 1, 350, UP_TO(600)),

    /* silence */
    SIZE(3000, 1, 1, 1, 1, 0),
    { 0 }
};

/* A worker reads the clock once an event: others may be a little ahead. */
static const step_t  clocks_of_workers[] = {
    DEMAND(0, 700, 4),
    SIZE(700, 1, 1, 1, 1, 491),

    /* 700 began a tick */
    TAKE(697, 1, ASK),
    SIZE(700, 1, 1, 1, 1, 491),

    /* asked ahead, rejected: for others, too */
    FILL(700, 1, 3, 90000, 1000, 0),
    TAKE(720, 1, PAID, ASKS(1)),
    TAKE(718, 1, PAID, ASKS(0)),
    NEW, FILL(700, 1, 0, 0, 10000, 500),
    TAKE(697, 1, DENIED, RETRY(1, 502)),
    { 0 }
};

/* One rejection is no reason not to ask, not for a small counter either. */
static const step_t  ahead_of_small[] = {
    DEMAND(0, 500, 1),
    FILL(500, 9, 0, 8, 2, 1),
    FILL(520, 1, 3, 7, 3, 0),
    TAKE(540, 1, PAID, ASKS(1)),
    { 0 }
};

/* Longer than the clock of a lease counts. */
static const step_t  denied_for_long[] = {
    FILL(0, 1, 0, 0, 8640000000, 8640000000),
    TAKE(50, 1, DENIED, RETRY(8639999000, 8640001000)),
    { 0 }
};

/* Then Redis is asked before that clock goes round. */
static const step_t  denied_half_round[] = {
    FILL(0, 1, 0, 0, 8640000000, 8640000000),
    TAKE(2147483000, 1, DENIED, RETRY(6492516000, 6492519000)),
    TAKE(2147484000, 1, ASK), TAKE(4294968000, 1, ASK),
    { 0 }
};

/* A reply that was late by 400 ms is one of 399 ms ago: others take 1. */
static const step_t  denied_late[] = {
    FILL(1000, 1, 0, 0, 90000, 9000, AGO(400)),
    TAKE(1001, 1, DENIED, RETRY(8599, 8602)),
    TAKE(9590, 1, DENIED), TAKE(9610, 1, ASK),

    /* it is over when it comes */
    NEW, FILL(1000, 1, 0, 0, 90000, 200, AGO(400)),
    TAKE(1002, 1, ASK),
    { 0 }
};

static const step_t  denied[] = {
    TAKE(0, 2, ASK),
    FILL(1, 2, 0, 1, 99000, 1000),
    TAKE(1, 2, DENIED, LEFT(1), RETRY(1000, 1002)),

    /* for a part of that, Redis may have it */
    TAKE(1, 1, ASK),

    /* more of it comes a token a second */
    TAKE(401, 5, DENIED, RETRY(3600, 3603)),
    TAKE(1000, 2, DENIED, RETRY(0, 2)),
    TAKE(1200, 2, ASK),

    /* a grant ends it */
    FILL(1200, 2, 0, 1, 99000, 1000),
    TAKE(1200, 2, DENIED),
    FILL(1200, 1, 1, 20, 80000, 0),
    TAKE(1200, 2, ASK),
    { 0 }
};

/* What is in hand counts: 5 are wanted, 2 asked for, 1 is there. */
static const step_t  denied_with_tokens[] = {
    FILL(0, 1, 3, 1, 30000, 0),
    FILL(1, 2, 0, 1, 30000, 30000),
    TAKE(2, 5, DENIED), TAKE(2, 4, ASK), TAKE(2, 2, PAID),
    TAKE(2, 3, DENIED), TAKE(2, 1, PAID),
    { 0 }
};

/* What is left, Redis has to say; and it is no rejection of less. */
static const step_t  never[] = {
    TAKE(0, 101, ASK),
    FILL(1, 101, 0, 7, 65000, NEVER),
    TAKE(50, 101, DENIED, NO_RETRY),
    TAKE(50, 100, ASK),
    { 0 }
};

/* Others give back what they do not need: it is asked once more. */
static const step_t  window_denied_twice[] = {
    FILL(0, 1, 0, 0, 30000, 30000),
    TAKE(50, 1, DENIED, RETRY(29949, 29952)),

    /* the other worker's call was under way at the time: the same rejection */
    FILL(50, 1, 0, 0, 30001, 30001, AGO(51)),
    TAKE(300, 1, ASK),
    FILL(301, 1, 0, 0, 29699, 29699),
    TAKE(20000, 1, DENIED, RETRY(9999, 10002)),

    /* remembered until the window ends, also where nobody came */
    TAKE(29990, 1, DENIED),
    TAKE(30001, 1, ASK),
    { 0 }
};

/* A window that has counted nothing yet rejects by its predecessor. */
static const step_t  sliding_denied[] = {

    /* 50 seconds before its end; the predecessor was full */
    FILL(0, 2, 0, 1, 50000, 2000),
    TAKE(5, 2, DENIED, RETRY(1994, 1997)),

    /* each token more waits as long as the others, here 6 seconds */
    TAKE(5, 9, DENIED, RETRY(43995, 43997)),
    TAKE(5, 10, DENIED, RETRY(49995, 49997)),
    TAKE(5, 1, ASK),

    /* the window of now has counted, too: for more, Redis does not say */
    NEW, FILL(0, 2, 0, 1, 90000, 2000),
    TAKE(5, 9, DENIED, RETRY(89995, 89997)),
    TAKE(5, 2, DENIED, RETRY(1994, 1997)),

    /* all that weighs when it can be paid is of the window of now */
    NEW, FILL(0, 2, 0, 0, 90000, 42000),
    TAKE(5, 9, DENIED, RETRY(83995, 83997)),

    /* one that has counted lasts on as its successor's predecessor */
    NEW, FILL(0, 1, 3, 0, 60100, 0),
    TAKE(98, 1, PAID),
    TAKE(101, 1, ASK),

    /* a spent one does not say when it has more: not in this ms */
    NEW, FILL(0, 1, 1, 0, 90000, 0),
    TAKE(0, 1, PAID), TAKE(0, 1, DENIED), TAKE(1, 1, ASK),
    { 0 }
};

/* The entries of a log do not end evenly: for more, Redis does not say. */
static const step_t  log_denied[] = {
    FILL(0, 2, 0, 1, 50000, 2000),
    TAKE(5, 2, DENIED, RETRY(1994, 1997)),
    TAKE(5, 9, DENIED, RETRY(49995, 49997)),
    { 0 }
};

/* A fixed window may owe so much that the next one is too small, too. */
static const step_t  fixed_owes[] = {

    /* 4 can be paid when it ends, maybe no more */
    FILL(0, 4, 0, 0, 30000, 30000),
    TAKE(50, 4, DENIED, RETRY(29950, 29950)), TAKE(50, 5, ASK),

    /* 5 cannot, which changes nothing for 4 */
    FILL(50, 5, 0, 0, 29950, 89950),
    TAKE(60, 4, DENIED, RETRY(29940, 29940)), TAKE(60, 5, ASK),

    /* others gave back, and now 7 can: so can 5, whoever asks for it */
    FILL(60, 7, 0, 0, 29940, 29940),
    TAKE(70, 7, DENIED, RETRY(29930, 29930)), TAKE(70, 8, ASK),
    FILL(70, 5, 0, 0, 29930, 29930),
    TAKE(80, 7, DENIED, RETRY(29920, 29920)),

    /* that was of this window alone */
    NEW, FILL(0, 7, 0, 0, 500, 500), TAKE(50, 7, DENIED),
    FILL(510, 4, 0, 0, 59990, 59990),
    TAKE(520, 4, DENIED), TAKE(520, 7, ASK),

    /* in two windows all can be paid */
    NEW, FILL(0, 4, 0, 0, 30000, 90000),
    TAKE(50, 9, DENIED, RETRY(89950, 89950)),

    /* one that has some left owes nothing */
    NEW, FILL(0, 5, 0, 3, 30000, 30000),
    TAKE(50, 9, DENIED, RETRY(29950, 29950)),

    /* what is in hand is there, and what goes back is left */
    NEW, FILL(0, 1, 3, 0, 30000, 0), FILL(1, 2, 0, 0, 29999, 29999),
    TAKE(2, 1, PAID, LEFT(2)),
    NEW, FILL(0, 1, 3, 0, 30000, 0), FILL(1, 2, 0, 0, 29999, 29999),
    SWEEP_ALL(150, 3), GIVE(160, 110, 2, 2),
    TAKE(160, 1, PAID, LEFT(4)),
    { 0 }
};

/* 5 wait for longer than the ledger counts: what it knows of 4 stays. */
static const step_t  owes_for_long[] = {
    FILL(0, 4, 0, 0, 86400000, 86400000),
    FILL(50, 5, 0, 0, 86399950, 8726399950),
    TAKE(60, 4, DENIED, RETRY(86399940, 86399940)), TAKE(60, 5, ASK),
    { 0 }
};

/* Tokens of a fixed window are worth nothing then. */
static const step_t  window_ends[] = {
    FILL(0, 1, 20, 30, 1000, 0),
    TAKE(990, 1, PAID), TAKE(1000, 1, ASK),
    SWEEP_ALL(1000, 0), PAY(1001, 1, 0),
    { 0 }
};

/* Those of a sliding window go back. */
static const step_t  sliding_ends[] = {
    FILL(0, 1, 20, 30, 61000, 0),
    TAKE(990, 1, PAID), TAKE(1000, 1, ASK),
    CHARGED(1001, 5, 0), STALE(1001, 19), STALE(1001, 0),
    { 0 }
};

/* A reply that comes when its window is over is for who waits alone. */
static const step_t  late_fixed[] = {
    FILL(10, 1, 9, 50, 30, 0, AGO(10)),
    FILL(40, 1, 9, 50, 30, 0, AGO(40), UNFIT),
    TAKE(40, 1, ASK),
    { 0 }
};

static const step_t  late_sliding[] = {
    FILL(10, 1, 9, 50, 1030, 0, AGO(10)),
    FILL(40, 1, 9, 50, 1030, 0, AGO(40), UNFIT),
    TAKE(40, 1, ASK),
    { 0 }
};

/* Of a bucket there is nothing that ends. */
static const step_t  late_bucket[] = {
    FILL(5000, 1, 9, 50, 30, 0, AGO(5000)),
    TAKE(5000, 9, PAID),
    { 0 }
};

/* Within a fixed window; as soon as less is left that is what clients see. */
static const step_t  remaining_never_rises[] = {
    FILL(0, 1, 5, 20, 5000, 0),
    TAKE(1, 1, PAID, LEFT(24)),

    /* others gave back; somebody gave back all */
    FILL(2, 1, 5, 50, 4998, 0),
    TAKE(3, 1, PAID, LEFT(24)),
    SWEEP_ALL(100, 8),
    FILL(101, 0, 0, 100, 0, 0, UNFIT),
    FILL(102, 1, 5, 95, 4898, 0),
    TAKE(103, 1, PAID, LEFT(24)),

    /* a second of silence */
    FILL(3000, 1, 1, 90, 2000, 0),
    TAKE(3000, 1, PAID, LEFT(24)),
    FILL(3001, 1, 1, 22, 1999, 0),
    TAKE(3001, 1, PAID, LEFT(22)),

    /* another window */
    FILL(5001, 1, 1, 90, 59999, 0),
    TAKE(5001, 1, PAID, LEFT(90)),
    { 0 }
};

/* Of two calls that were under way at a time the later answer comes first. */
static const step_t  answers_cross[] = {
    FILL(1, 1, 20, 60, 1440001, 0),
    FILL(1, 1, 20, 80, 720001, 0),
    TAKE(1, 1, PAID, LEFT(99)),

    /* one of a call that was sent behind them all is believed */
    FILL(2, 1, 1, 50, 1800001, 0),
    TAKE(2, 1, PAID, LEFT(89)),
    { 0 }
};

/* Whatever Redis says, no client sees more than the limit, or below 0. */
static const step_t  garbage[] = {
    FILL(0, 1, 1u << 30, 1u << 30, 90000, 0),
    FILL(1, 1, 1u << 30, 1u << 30, 90000, 0),
    IN_HAND(1, UP_TO(1u << 30)),
    TAKE(1, 1, PAID),
    FILL(2, 1, 0, 0, 90000, 0),
    TAKE(2, 1, PAID),
    TAKE(5000, 1, PAID, UP_TO(ASK)),
    FILL(5000, 1, 1, 1u << 30, 90000, 0),
    TAKE(5000, 1, PAID),
    { 0 }
};

static const step_t  return_to_window[] = {
    GIVE(10, 5, 1, 0),
    FILL(100, 1, 5, 20, 900, 0),
    TAKE(110, 4, PAID),
    GIVE(120, 110, 4, 4), IN_HAND(5),
    GIVE(120, 110, 4, 0, OTHER),

    /* what was paid before there was this lease is another window's */
    GIVE(120, 99, 1, 0),

    /* and behind the end this one's, too */
    TAKE(120, 4, PAID),
    GIVE(1001, 120, 4, 0),
    FILL(1002, 1, 5, 20, 59998, 0),
    GIVE(1010, 120, 4, 0), GIVE(1010, 999, 4, 0), IN_HAND(5),

    /* never more than the limit, however many */
    GIVE(1010, 1005, 96, 0), GIVE(1010, 1005, UINT32_MAX, 0),
    GIVE(1010, 1005, 95, 95),
    { 0 }
};

/* The request that asked first may be the window before's: Redis knows. */
static const step_t  return_of_the_first[] = {
    FILL(100, 1, 1, 0, 900, 0),
    TAKE(100, 1, PAID), TAKE(101, 1, DENIED),
    GIVE(102, 99, 1, 0), TAKE(102, 1, ASK),
    { 0 }
};

/* Not what has come back by itself. */
static const step_t  return_to_bucket[] = {
    FILL(0, 1, 5, 20, 45000, 0),
    GIVE(2, 0, 4, 4), GIVE(2000, 0, 4, 0),
    { 0 }
};

static const step_t  return_to_quick[] = {
    FILL(0, 1, 5, 20, 40, 0),
    GIVE(40, 0, 4, 4), GIVE(60, 0, 4, 0),
    { 0 }
};

static const step_t  charge[] = {
    CHARGED(1, 7, 0),
    FILL(0, 1, 5, 20, 900, 0),
    CHARGED(1, 7, 0, OTHER), CHARGED(1, 3, 3), CHARGED(1, 7, 2),
    CHARGED(1, 7, 0),
    { 0 }
};

/* What is not in hand is owed: only Redis knows for how long. */
static const step_t  charge_ends_a_rejection[] = {
    FILL(0, 1, 2, 0, 100000, 0),
    TAKE(0, 1, PAID), CHARGED(1, 1, 1),
    TAKE(1, 1, DENIED),
    CHARGED(1, 1, 0), TAKE(1, 1, ASK),
    { 0 }
};

/* A window that ends tomorrow, of which the next one is owed, of 100 days. */
static const step_t  next_is_owed[] = {
    FILL(0, 1, 0, 0, 86400000, 8726400000),
    TAKE(50, 1, ASK),
    { 0 }
};

/* What goes back is left as it was in hand. */
static const step_t  sweep_tells_the_same[] = {
    DEMAND(0, 600, 4),
    FILL(600, 1, 5000, 4000, 21600001, 0),
    TAKE(600, 1, PAID, LEFT(8999)),
    SWEEP(601, 3900, UP_TO(4700)), IN_HAND(4999 - 4700, UP_TO(4999 - 3900)),
    TAKE(602, 1, PAID, LEFT(8998)),
    { 0 }
};

/*
 * The last token was granted, came back and went on to Redis: it may be asked
 * for, and a rejection that overtook it stands for a moment only.
 */
static const step_t  sweep_ends_a_rejection[] = {
    FILL(0, 1, 1, 0, 3600000, 0),
    TAKE(1, 1, PAID), TAKE(2, 1, DENIED),
    GIVE(3, 1, 1, 1), SWEEP_ALL(150, 1),
    TAKE(151, 1, ASK),
    FILL(152, 1, 0, 0, 3599849, 3599849),
    TAKE(153, 1, DENIED, RETRY(3599840, 3599850)),
    TAKE(260, 1, ASK),
    FILL(261, 1, 0, 0, 3599740, 3599740),
    TAKE(500, 1, DENIED), TAKE(900, 1, DENIED),
    { 0 }
};

/* The same where it came back too late for the lease. */
static const step_t  return_ends_a_rejection[] = {
    FILL(0, 1, 1, 0, 3600000, 0),
    TAKE(1, 1, PAID), TAKE(2, 1, DENIED),
    GIVE(1002, 1, 1, 0), TAKE(1003, 1, ASK),
    { 0 }
};

static const step_t  sweep_when_silent[] = {

    /* the worker ends */
    DEMAND(800, 1300, 4),
    FILL(1300, 1, 50, 400, 29300, 0),
    SWEEP(1300, 0), SWEEP_ALL(1300, 50),

    /* forgotten: nothing is to be given back twice */
    FILL(1400, 1, 50, 400, 29300, 0),
    SWEEP_ALL(60000, 0),
    { 0 }
};

static const step_t  limit_changes[] = {
    FILL(0, 1, 5, 80, 30000, 0),

    /* its tokens stay its own */
    TAKE(1, 1, ASK, OTHER),
    PAY(1, 1, 0, OTHER),
    FILL(1, 1, 1, 3, 30000, 0, OTHER, UNFIT),
    SWEEP(1, 0, OTHER),
    SIZE(1, 1, 2, 1, 2, 0, OTHER),
    TAKE(2, 1, PAID),

    /* until they have gone back, under their own limit */
    STALE(1, 0, OTHER),
    SWEEP_ALL(3, 4),
    TAKE(3, 1, ASK, OTHER),
    FILL(3, 1, 2, 3, 30000, 0, OTHER),
    TAKE(3, 1, PAID, OTHER, LEFT(4)),

    /* a rejection is of its limit */
    NEW, FILL(0, 1, 0, 0, 30000, 30000, OTHER),
    TAKE(1, 1, DENIED, OTHER), TAKE(1, 1, ASK),

    /* and all goes back, whose ever it is */
    FILL(1, 1, 5, 80, 30000, 0),
    SWEEP_ALL(2, 5, OTHER),
    { 0 }
};

/* A counter was reset: what Redis said of it before rejects nothing. */
static const step_t  forgot_denied[] = {
    DEMAND(0, 100, 1),
    FILL(100, 1, 0, 0, 90000, 9000),
    TAKE(110, 1, DENIED),

    /* of another moment: before that, it was said later */
    FORGOT(99),
    TAKE(111, 1, DENIED),
    FORGOT(111),
    TAKE(112, 1, ASK), TAKE(113, 1, ASK),

    /* what was asked before is of the counter as it was */
    FILL(114, 1, 0, 0, 90000, 9000, AGO(3)),
    TAKE(115, 1, ASK),

    /* and what is asked behind it counts */
    FILL(116, 1, 0, 0, 90000, 9000),
    TAKE(117, 1, DENIED),
    { 0 }
};

/* Tokens in hand are spent; what never fits never does. */
static const step_t  forgot_in_hand[] = {
    DEMAND(0, 100, 1),
    FILL(100, 3, 3, 0, 90000, 0),
    FORGOT(101),
    TAKE(102, 1, PAID), TAKE(102, 11, DENIED), TAKE(102, 5, ASK),
    TAKE(102, 2, PAID), TAKE(102, 1, ASK),
    { 0 }
};

/* A fixed window's clients see what there is again. */
static const step_t  forgot_left[] = {
    FILL(100, 1, 0, 0, 90000, 90000),
    FORGOT(101),
    TAKE(102, 1, ASK),
    FILL(103, 2, 2, 8, 90000, 0),
    TAKE(104, 1, PAID, LEFT(9)),
    { 0 }
};

/* Also where tokens in hand were spent meanwhile, and Redis asked ahead. */
static const step_t  forgot_left_in_hand[] = {
    FILL(100, 3, 3, 0, 90000, 0),
    TAKE(101, 1, PAID, LEFT(2)),
    FORGOT(102),
    TAKE(103, 1, PAID, LEFT(1)),
    FILL(104, 2, 2, 8, 90000, 0),
    TAKE(105, 1, PAID, LEFT(10)),

    /* of what was said since, it never rises again */
    FILL(106, 1, 0, 5, 90000, 0),
    TAKE(107, 1, PAID, LEFT(6)),
    FILL(108, 1, 0, 9, 90000, 0),
    TAKE(109, 1, PAID, LEFT(6)),
    { 0 }
};

#define ALL  { bucket_100, fixed_100, sliding_100 }
#define TEN  { ten_bucket, ten_fixed, ten_sliding }

static const case_t  cases[] = {
    { "denied for long", denied_for_long, { long_bucket, long_fixed } },
    { "denied half round", denied_half_round, { long_bucket } },
    { "paid in hand", paid_in_hand,
      { bucket_100, fixed_100, sliding_100, leaky_100 } },
    { "too few in hand", too_few_in_hand, { minute } },
    { "pay", pay, { minute }, minute_200 },
    { "size", size, { fast_bucket } },
    { "clocks of workers", clocks_of_workers, { fast_bucket } },
    { "ahead of small", ahead_of_small, { small_bucket } },
    { "denied late", denied_late, { slow_bucket, ten_sliding } },
    { "denied", denied, { slow_bucket } },
    { "denied with tokens", denied_with_tokens, { minute } },
    { "never", never, ALL },
    { "window denied twice", window_denied_twice, { minute } },
    { "sliding denied", sliding_denied, { sliding_10 } },
    { "log denied", log_denied, { log_10 } },
    { "fixed owes", fixed_owes, { minute_10 } },
    { "owes for long", owes_for_long, { days_10 } },
    { "window ends", window_ends, { minute } },
    { "sliding ends", sliding_ends, { minute_sliding } },
    { "late, fixed", late_fixed, { second_fixed } },
    { "late, sliding", late_sliding, { second_sliding } },
    { "late, bucket", late_bucket, { second_bucket } },
    { "remaining never rises", remaining_never_rises, { minute } },
    { "answers cross", answers_cross, ALL },
    { "garbage", garbage, { most_bucket, most_fixed, thousand_sliding } },
    { "return to window", return_to_window, { minute }, minute_200 },
    { "return of the first", return_of_the_first, { minute } },
    { "return to bucket", return_to_bucket, { minute_bucket } },
    { "return to quick", return_to_quick, { quick_bucket } },
    { "charge", charge, { minute }, minute_200 },
    { "charge ends a rejection", charge_ends_a_rejection,
      { ten_bucket, ten_fixed } },
    { "next is owed", next_is_owed, { long_fixed } },
    { "sweep tells the same", sweep_tells_the_same,
      { large_bucket, large_fixed, large_sliding } },
    { "sweep when silent", sweep_when_silent, { minute_10000 } },
    { "sweep ends a rejection", sweep_ends_a_rejection, { one_bucket } },
    { "return ends a rejection", return_ends_a_rejection, { one_bucket } },
    { "limit changes", limit_changes, { minute }, minute_10 },
    { "forgot: denied", forgot_denied, TEN },
    { "forgot: in hand", forgot_in_hand, { ten_bucket } },
    { "forgot: left", forgot_left, { ten_fixed } },
    { "forgot: left in hand", forgot_left_in_hand, { ten_fixed } }
};


static ngx_rl_ledger_e
take(lease_t *lease, const limit_t *limit, int64_t ms, uint32_t cost,
    unsigned *ahead)
{
    answer_t         answer;
    ngx_rl_ledger_e  rc;

    env_t env = at(ms);
    rc = ngx_rl_ledger_take(lease, limit, &env, cost, &answer, ahead);
    assert_answer(rc, limit, cost, &answer);

    return rc;
}


static void
fill(lease_t *lease, const limit_t *limit, int64_t ms, answer_t answer)
{
    ask_t  ask = { .cost = 1, .want = 1 };

    env_t env = at(ms);
    assert_true(ngx_rl_ledger_fill(lease, limit, &env, env.now_us, &ask,
                                  &answer));
}


static uint32_t
sweep(lease_t *lease, const limit_t *limit, int64_t ms)
{
    ask_t  call;

    env_t env = at(ms);
    assert_int_equal(ngx_rl_ledger_sweep(lease, limit, &env, 0, &call), 0);

    return (uint32_t) -call.debit;
}


static void
test_place(void **state)
{
    ask_t  ask;

    /* ngx_rl_table.h: what a place has, and reads */

    assert_true(sizeof(lease_t) <= 64);
    assert_int_equal(offsetof(lease_t, busy_us), 0);

    /* without a place: what waits alone */

    limit_t limit = fast_bucket();
    env_t env = at(0);
    ngx_rl_ledger_ask(NULL, &limit, &env, 2, 7, &ask);
    assert_int_equal(ask.cost, 2);
    assert_int_equal(ask.want, 7);
    assert_int_equal(ask.ahead, 0);
}


/* A full counter is lost if this gateway has used more than half of it. */
static void
test_lost(void **state)
{
    const struct {
        uint32_t  in_hand;
        unsigned  lost;
    } cases[] = { { 4, 1 }, { 5, 0 }, { 6, 0 } };

    limit_t limit = minute_10();
    answer_t full = said(0, 10, 0, 0);
    ask_t ask = { 0 };
    ask.cost = ask.want = 4;

    for (size_t i = 0; i < COUNT(cases); i++) {
        lease_t lease = { 0 };
        fill(&lease, &limit, 0, said(cases[i].in_hand, 0, 30000, 0));
        env_t env = at(1);
        full.granted = 0;
        full.remaining = 0;
        full.reset_us = full.retry_us = 29999000;
        (void) ngx_rl_ledger_fill(&lease, &limit, &env, env.now_us, &ask,
                                  &full);
        assert_true(lease.left < 0);

        env = at(200);
        full = said(0, 10, 0, 0);
        assert_int_equal(ngx_rl_ledger_lost(&lease, &limit, &env, env.now_us,
                                            &ask, &full),
                         cases[i].lost);
    }
}


/* Who waited has been counted as demand already. */
static void
test_pay_no_demand(void **state)
{
    answer_t  answer;

    lease_t lease = { 0 };
    limit_t limit = minute();
    env_t env = at(1);

    fill(&lease, &limit, 0, said(5, 50, 30000, 0));
    uint32_t count = lease.count;
    assert_true(ngx_rl_ledger_pay(&lease, &limit, &env, 3, &answer));
    assert_int_equal(answer.granted, 3);
    assert_int_equal(lease.count, count);
}


static void
test_ahead_once(void **state)
{
    int       told;
    ask_t     ask;
    int64_t   ms;
    unsigned  ahead;

    limit_t limit = faster_bucket();
    lease_t lease = { 0 };

    /* a slow counter never */

    fill(&lease, &limit, 0, said(2, 9000, 1000, 0));
    assert_int_equal(take(&lease, &limit, 0, 1, &ahead), PAID);
    assert_int_equal(ahead, 0);

    demand(&lease, &limit, 1, 500, 4);

    /* plenty in hand; then almost nothing: one is told, in each second */

    fill(&lease, &limit, 500, said(20000, 9000, 1000, 0));
    assert_int_equal(take(&lease, &limit, 520, 1, &ahead), PAID);
    assert_int_equal(ahead, 0);

    for (ms = 520, told = 0; ms < 1610; ms++) {
        lease.tokens = 5;
        assert_int_equal(take(&lease, &limit, ms, 4, &ahead), PAID);
        assert_true(ahead == 0 || ms == 520 || ms == 1520);
        told += ahead;
    }

    assert_int_equal(told, 2);

    /* once it has been answered, or has failed, soon again */

    env_t env = at(1610);
    ngx_rl_ledger_ask(&lease, &limit, &env, 0, 0, &ask);
    assert_int_equal(ask.cost, 0);
    assert_int_equal(ask.want, 0);
    assert_true(ask.ahead > 0);

    ngx_rl_ledger_failed(&lease, &limit, &env, &ask);
    lease.tokens = 5;
    assert_int_equal(take(&lease, &limit, 1700, 1, &ahead), PAID);
    assert_int_equal(ahead, 1);
}


/* All goes back when there was no demand for 100 ms, however many sweep. */
static void
test_sweep(void **state)
{
    limit_t limit = minute_10000();
    lease_t lease = { 0 };

    demand(&lease, &limit, 0, 600, 4);
    fill(&lease, &limit, 600, said(5000, 4000, 30000, 0));
    demand(&lease, &limit, 600, 601, 1);

    uint32_t back = sweep(&lease, &limit, 601);
    assert_in_range(back, 3900, 4700);
    assert_int_equal(back + lease.tokens, 4999);

    back = lease.tokens;
    back -= sweep(&lease, &limit, 660);
    back -= sweep(&lease, &limit, 710);
    assert_true(lease.tokens > 0);
    assert_int_equal(sweep(&lease, &limit, 760), back);
    assert_int_equal(lease.tokens, 0);
    assert_int_equal(sweep(&lease, &limit, 800), 0);
}


/* The demand of one limit keeps nothing in hand of another. */
static void
test_limits_mixed(void **state)
{
    int64_t   ms;
    uint32_t  back;
    unsigned  ahead;

    limit_t one = mixed_bucket();
    limit_t other = mixed_other();
    lease_t lease = { 0 };

    demand(&lease, &one, 0, 600, 4);
    fill(&lease, &one, 600, said(500, 4000, 5000, 0));

    for (ms = 601, back = 0; ms < 1500; ms++) {
        assert_int_equal(take(&lease, &other, ms, 1, &ahead), ASK);
        back += (ms % 100) ? 0 : sweep(&lease, &one, ms);
    }

    assert_in_range(back, 450, 500);

    /* a worker that was killed would have given them back */

    memset(&lease, 0, sizeof(lease));
    fill(&lease, &one, 0, said(500, 4000, 5000, 0));

    for (ms = 1; ms < 1000; ms++) {
        assert_int_equal(take(&lease, &other, ms, 1, &ahead), ASK);
        assert_int_equal(lease.tokens, 500);
    }

    assert_int_equal(take(&lease, &other, 1000, 1, &ahead), ASK);
    assert_int_equal(lease.tokens, 0);
    fill(&lease, &other, 1000, said(2, 3, 9500, 0));
    assert_int_equal(take(&lease, &other, 1001, 1, &ahead), PAID);
}


/* What nobody gives back since its worker was killed, who spends of it does. */
static void
test_nobody_sweeps(void **state)
{
    int64_t   ms;
    unsigned  ahead, told;

    limit_t limit = minute_10000();
    lease_t lease = { 0 };
    fill(&lease, &limit, 0, said(500, 4000, 30000, 0));

    for (ms = 100, told = 0; ms <= 2500; ms += 100) {
        assert_int_equal(take(&lease, &limit, ms, 1, &ahead), PAID);
        assert_true(ahead == 0 || ms >= 1000);
        told += ahead;
    }

    /* not each of them: who is told does something */

    assert_int_equal(told, 2);
}


static unsigned
denies(lease_t *lease, const limit_t *limit, int64_t ms)
{
    answer_t  answer;

    env_t env = at(ms);

    return ngx_rl_ledger_rejects(lease, limit, &env, 1, &answer);
}


/* What Redis has rejected, of a counter of which each request asks. */
static void
test_denies(void **state)
{
    static const ngx_rl_ledger_call_t  ask = { .cost = 1, .want = 1 };

    limit_t limit = one_bucket();
    limit_t other = bucket_100();
    answer_t answer = said(0, 0, 3600000, 3600000);
    env_t env = at(0);

    lease_t lease = { 0 };
    assert_int_equal(denies(&lease, &limit, 0), 0);

    (void) ngx_rl_ledger_fill(&lease, &limit, &env, env.now_us, &ask, &answer);
    assert_int_equal(denies(&lease, &limit, 3599000), 1);
    assert_int_equal(denies(&lease, &limit, 3600100), 0);

    /* it holds its place for a minute behind the last request */

    memset(&lease, 0, sizeof(lease));
    (void) ngx_rl_ledger_fill(&lease, &limit, &env, env.now_us, &ask, &answer);
    assert_in_range(lease.busy_us, AT_US(59000), AT_US(61000));
    assert_int_equal(denies(&lease, &limit, 50000), 1);
    assert_in_range(lease.busy_us, AT_US(109000), AT_US(111000));
    assert_int_equal(denies(&lease, &limit, 1000000), 1);
    assert_int_equal(denies(&lease, &limit, 3599000), 1);
    assert_in_range(lease.busy_us, AT_US(3599000), AT_US(3601100));

    /* another limit ends it, also if this one applies again */

    memset(&lease, 0, sizeof(lease));
    (void) ngx_rl_ledger_fill(&lease, &limit, &env, env.now_us, &ask, &answer);
    assert_int_equal(denies(&lease, &limit, 1), 1);
    assert_int_equal(denies(&lease, &other, 2), 0);
    assert_int_equal(denies(&lease, &limit, 3), 0);

    /* what is over stays over: its clock goes round in 49 days */

    answer = said(0, 0, 3600000, 10000);
    memset(&lease, 0, sizeof(lease));
    (void) ngx_rl_ledger_fill(&lease, &limit, &env, env.now_us, &ask, &answer);

    for (int64_t ms = 0; ms < (int64_t) (100 * DAY / 1000); ms += 900) {
        assert_int_equal(denies(&lease, &limit, ms), ms < 10000);
    }
}


int
main(void)
{
    struct CMUnitTest  tests[8 + COUNT(cases)] = {
        cmocka_unit_test(test_place), cmocka_unit_test(test_pay_no_demand),
            cmocka_unit_test(test_ahead_once), cmocka_unit_test(test_sweep),
            cmocka_unit_test(test_limits_mixed),
            cmocka_unit_test(test_nobody_sweeps), cmocka_unit_test(test_denies),
            cmocka_unit_test(test_lost),
            };

    cases_add(&tests[8], cases, COUNT(cases));

    return cmocka_run_group_tests(tests, NULL, NULL);
}
