/*
 * The table of penalized keys: how long penalties are, what is evicted, what
 * Redis has to know, and what a killed worker leaves behind.
 */

#include "unit.h"

#include <ngx_config.h>
#include <ngx_core.h>

#include <sys/mman.h>

#include "ngx_rl_penalties.h"
#include "nginx.h"
#include "process.h"

#define MAX_STEPS  20000
#define NOW        1000000
#define MINUTE     60000
#define HOUR       (60 * MINUTE)

static const ngx_rl_penalty_time_t  doubled = { MINUTE, HOUR, 2000 };


static ngx_rl_penalties_t *
table_make(void)
{
    ngx_rl_penalties_t  *p;

    p = mmap(NULL, sizeof(ngx_rl_penalties_t), PROT_READ|PROT_WRITE,
             MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(p, MAP_FAILED);

    return p;
}


static void
table_free(ngx_rl_penalties_t *p)
{
    assert_int_equal(munmap(p, sizeof(ngx_rl_penalties_t)), 0);
}


/* The n-th key of a set. */
static ngx_rl_penalized_t
row(uint64_t n)
{
    ngx_rl_penalized_t made = { 0 };
    made.id.hi = NGX_RL_PENALTIES_SETS * n + 7;
    made.id.lo = n;
    made.kind = n;
    memset(made.name.data, (int) n, sizeof(made.name.data));

    return made;
}


static ngx_int_t
begin(ngx_rl_penalties_t *p, uint64_t n, uint64_t now_ms)
{
    ngx_rl_penalized_t made = row(n);

    return ngx_rl_penalties_begin(p, &made, &doubled, now_ms);
}


/* Milliseconds that are left; a request looks for the key as long. */
static uint64_t
left(ngx_rl_penalties_t *p, uint64_t n, uint64_t now_ms)
{
    ngx_rl_penalized_t made = row(n);
    uint64_t until_ms = ngx_rl_penalties_until(p, &made.id, now_ms);

    assert_true(until_ms == 0 || ngx_rl_penalties_any(p, now_ms));

    return until_ms ? until_ms - now_ms : 0;
}


/* The row of that number, which is whole. Returns whether it is there. */
static ngx_uint_t
get(ngx_rl_penalties_t *p, uint64_t n, ngx_rl_penalized_t *found)
{
    ngx_rl_penalized_t made = row(n);
    ngx_uint_t at = 0;

    while (ngx_rl_penalties_next(p, &at, found) == NGX_OK) {
        if (found->id.lo == n) {
            assert_int_equal(found->id.hi, made.id.hi);
            assert_int_equal(found->kind, n);
            assert_memory_equal(found->name.data, made.name.data,
                                sizeof(made.name.data));
            return 1;
        }
    }

    return 0;
}


static void
test_time(void **state)
{
    ngx_rl_penalties_t *p = table_make();

    assert_int_equal(left(p, 1, NOW), 0);
    assert_false(ngx_rl_penalties_any(p, 0));
    assert_int_equal(begin(p, 1, NOW), NGX_OK);
    assert_int_equal(left(p, 1, NOW), MINUTE);
    assert_int_equal(left(p, 1, NOW + MINUTE - 1), 1);
    assert_int_equal(left(p, 1, NOW + MINUTE), 0);
    assert_false(ngx_rl_penalties_any(p, NOW + MINUTE));
    assert_int_equal(left(p, 2, NOW), 0);

    /* another worker was first */

    assert_int_equal(begin(p, 1, NOW + 1), NGX_BUSY);
    assert_int_equal(left(p, 1, NOW + 1), MINUTE - 1);

    /* each repetition is twice as long, up to the longest */

    uint64_t now = NOW + MINUTE;

    for (uint64_t ms = 2 * MINUTE; ms < 4 * HOUR; ms *= 2) {
        assert_int_equal(begin(p, 1, now), NGX_OK);
        assert_int_equal(left(p, 1, now), ngx_min(ms, HOUR));
        now += ngx_min(ms, HOUR);
    }

    /* and is forgotten after that time */

    assert_int_equal(begin(p, 1, now + HOUR - 1), NGX_OK);
    now += HOUR - 1 + HOUR;
    assert_int_equal(left(p, 1, now), 0);
    assert_int_equal(begin(p, 1, now + HOUR), NGX_OK);
    assert_int_equal(left(p, 1, now + HOUR), MINUTE);

    table_free(p);
}


static void
test_growth(void **state)
{
    ngx_rl_penalty_time_t  times[] = {
        { MINUTE, HOUR, 1000 }, { MINUTE, HOUR, 1500 }, { HOUR, MINUTE, 2000 },
            { 1, HOUR, 1001 }
    };
    uint64_t                      expected[] = {
        MINUTE, MINUTE * 9 / 4, MINUTE, 1 };

    ngx_rl_penalties_t *p = table_make();

    for (ngx_uint_t i = 0; i < 4; i++) {
        ngx_rl_penalized_t made = row(i + 1);
        made.times = 99;    /* is not read */

        assert_int_equal(ngx_rl_penalties_begin(p, &made, &times[i], 1),
                         NGX_OK);
        assert_int_equal(ngx_rl_penalties_begin(p, &made, &times[i],
                                                made.until_ms), NGX_OK);
        assert_int_equal(ngx_rl_penalties_begin(p, &made, &times[i],
                                                made.until_ms), NGX_OK);
        assert_int_equal(made.times, 3);
        assert_int_equal(left(p, i + 1, made.until_ms - expected[i]),
                         expected[i]);
        assert_int_equal(made.forget_ms - made.until_ms, times[i].max_ms);
    }

    table_free(p);
}


/* Penalties under way keep their places; of the others the oldest goes. */
static void
test_full(void **state)
{
    ngx_rl_penalties_t *p = table_make();

    for (uint64_t i = 1; i <= NGX_RL_PENALTIES_WAYS; i++) {
        assert_int_equal(begin(p, i, NOW + i), NGX_OK);
    }

    assert_int_equal(begin(p, 100, NOW + 20), NGX_DECLINED);
    ngx_rl_penalized_t found = row(100);
    found.until_ms = found.forget_ms = NOW + HOUR;
    assert_int_equal(ngx_rl_penalties_put(p, &found, NOW + 20), NGX_DECLINED);
    assert_int_equal(left(p, 100, NOW + 20), 0);

    for (uint64_t i = 1; i <= NGX_RL_PENALTIES_WAYS; i++) {
        assert_true(left(p, i, NOW + 20) > 0);
    }

    /* two have ended */

    assert_int_equal(begin(p, 100, NOW + MINUTE + 2), NGX_OK);
    assert_false(get(p, 1, &found));
    assert_true(get(p, 2, &found));
    assert_int_equal(begin(p, 101, NOW + MINUTE + 2), NGX_OK);
    assert_false(get(p, 2, &found));
    assert_int_equal(begin(p, 102, NOW + MINUTE + 2), NGX_DECLINED);
    assert_true(left(p, 3, NOW + MINUTE + 2) == 1);

    table_free(p);
}


static void
test_redis(void **state)
{
    ngx_rl_penalized_t  found;

    ngx_rl_penalties_t *p = table_make();

    assert_int_equal(p->changes, 0);
    assert_int_equal(begin(p, 1, NOW), NGX_OK);
    assert_true(get(p, 1, &found));
    uint64_t change = found.change;
    assert_in_range(change, 1, p->changes);

    /* what Redis has is older than this gateway's change */

    ngx_rl_penalized_t other = row(1);
    other.until_ms = other.forget_ms = NOW + 1;
    assert_int_equal(ngx_rl_penalties_put(p, &other, NOW), NGX_OK);
    assert_int_equal(left(p, 1, NOW), MINUTE);

    ngx_rl_penalties_sent(p, &other.id, change - 1);
    assert_true(get(p, 1, &found) && found.change == change);
    ngx_rl_penalties_sent(p, &other.id, change);
    assert_true(get(p, 1, &found) && found.change == 0);

    assert_int_equal(ngx_rl_penalties_put(p, &other, NOW), NGX_OK);
    assert_int_equal(left(p, 1, NOW), 1);

    /* one that is over, of a key that is not here */

    other = row(2);
    assert_int_equal(ngx_rl_penalties_put(p, &other, NOW), NGX_OK);
    assert_false(get(p, 2, &found));
    assert_int_equal(ngx_rl_penalties_end(p, &other.id, NOW), NGX_DECLINED);

    /* ended by hand: the next one is no repetition, and Redis must know */

    assert_int_equal(begin(p, 2, NOW), NGX_OK);
    change = p->changes;
    assert_int_equal(ngx_rl_penalties_end(p, &other.id, NOW), NGX_OK);
    assert_int_equal(left(p, 2, NOW), 0);
    assert_true(get(p, 2, &found));
    assert_true(found.change > change);
    assert_int_equal(found.times, 0);

    /* another gateway was no later than a change that is not sent yet */

    assert_int_equal(begin(p, 4, NOW), NGX_OK);
    other = row(4);
    other.until_ms = other.forget_ms = NOW + 5;
    other.changed_ms = NOW;
    assert_int_equal(ngx_rl_penalties_put(p, &other, NOW), NGX_OK);
    assert_int_equal(left(p, 4, NOW), MINUTE);

    /* and now it was later */

    other.changed_ms = NOW + 1;
    assert_int_equal(ngx_rl_penalties_put(p, &other, NOW + 2), NGX_OK);
    assert_int_equal(left(p, 4, NOW + 2), 3);
    other = row(2);

    /* Redis is empty: what counts is sent once more, what is over is not */

    ngx_rl_penalties_sent(p, &other.id, found.change);
    assert_int_equal(begin(p, 3, NOW), NGX_OK);
    assert_true(get(p, 3, &found));
    ngx_rl_penalties_sent(p, &found.id, found.change);
    change = p->changes;
    ngx_rl_penalties_resend(p, NOW + 5, 0);
    assert_int_equal(p->changes, change + 1);
    assert_true(get(p, 3, &found) && found.change == change + 1);

    table_free(p);
}


/* Sent again: those of the last two minutes, ended ones, too, and no others. */
static void
test_recent(void **state)
{
    ngx_rl_penalized_t  found;

    ngx_rl_penalties_t *p = table_make();

    for (uint64_t n = 1; n <= 5; n++) {
        assert_int_equal(begin(p, n, NOW + n * MINUTE), NGX_OK);
        assert_true(get(p, n, &found));
        assert_int_equal(found.changed_ms, NOW + n * MINUTE);
        ngx_rl_penalties_sent(p, &found.id, found.change);
    }

    found = row(2);
    assert_int_equal(ngx_rl_penalties_end(p, &found.id,
                                          NOW + 5 * MINUTE - 1000), NGX_OK);
    assert_true(get(p, 2, &found));
    ngx_rl_penalties_sent(p, &found.id, found.change);

    uint64_t change = p->changes;
    ngx_rl_penalties_resend(p, NOW + 5 * MINUTE + 1000, 1);
    assert_int_equal(p->changes, change + 2);

    for (uint64_t n = 1; n <= 5; n++) {
        assert_true(get(p, n, &found));
        assert_int_equal(found.change != 0, n == 2 || n == 4);
    }

    assert_int_equal(p->set, 0);
    p->set = (uint64_t) 1 << 53;
    assert_int_equal(p->set, (uint64_t) 1 << 53);

    table_free(p);
}


/* Of two networks that collide in no count. */
static ngx_int_t
begin_of(ngx_rl_penalties_t *p, uint64_t n, uint64_t network, uint64_t now_ms)
{
    ngx_rl_penalized_t made = row(n);
    made.id.hi = n;    /* all over the table */
    made.network = network;

    return ngx_rl_penalties_begin(p, &made, &doubled, now_ms);
}


static void
test_networks(void **state)
{
    uint64_t  n;

    ngx_rl_penalties_t *p = table_make();
    uint64_t now = NOW;

    for (n = 1; n <= NGX_RL_PENALTIES_NET_V6; n++) {
        assert_int_equal(begin_of(p, n, 3, now), NGX_OK);
    }

    assert_int_equal(begin_of(p, n, 3, now), NGX_ABORT);
    assert_int_equal(begin_of(p, n - 1, 3, now), NGX_BUSY);
    assert_int_equal(begin_of(p, n, 7, now), NGX_OK);

    ngx_rl_penalized_t other = row(n + 1);
    other.id.hi = n + 1;
    other.network = 3;
    other.until_ms = other.forget_ms = now + HOUR;
    assert_int_equal(ngx_rl_penalties_put(p, &other, now), NGX_ABORT);

    /* what another gateway says of a key that is there */

    other = row(1);
    other.id.hi = 1;
    other.network = 3;
    other.until_ms = other.forget_ms = now + HOUR;
    other.changed_ms = now + 1;
    assert_int_equal(ngx_rl_penalties_put(p, &other, now), NGX_OK);

    /* without a network there is no such limit */

    for (n = 1000; n < 2000; n++) {
        assert_int_equal(begin_of(p, n, 0, now), NGX_OK);
    }

    for (n = 2000; n < 2000 + NGX_RL_PENALTIES_NET_V4; n++) {
        assert_int_equal(begin_of(p, n, 10, now), NGX_OK);
    }

    assert_int_equal(begin_of(p, n, 10, now), NGX_ABORT);

    /* all but one are over: counted anew, 100 ms later at the soonest */

    now += MINUTE;

    for (n = 3000; n < 3000 + NGX_RL_PENALTIES_NET_V6 - 1; n++) {
        assert_int_equal(begin_of(p, n, 3, now), NGX_OK);
    }

    assert_int_equal(begin_of(p, n, 3, now), NGX_ABORT);
    other = row(1);
    other.id.hi = 1;
    assert_int_equal(ngx_rl_penalties_end(p, &other.id, now), NGX_OK);
    assert_int_equal(begin_of(p, n, 3, now + 99), NGX_ABORT);
    assert_int_equal(begin_of(p, n, 3, now + 100), NGX_OK);
    assert_int_equal(begin_of(p, n + 1, 3, now + 100), NGX_ABORT);

    table_free(p);
}


/*
 * A client that fails from one address after the other, one a millisecond. Its
 * networks are penalized where they are crowded, and then its requests are
 * rejected. Returns how many of the addresses got a penalty of their own.
 */
typedef struct {
    uint32_t    halves[2];     /* the wide network, the narrow one */
    uint64_t    until_ms[2];   /* of their own rows */
    ngx_uint_t  own[2];        /* how often they got a row */
} nets_t;

static ngx_int_t
attack(ngx_rl_penalties_t *p, nets_t *nets, uint64_t n, uint64_t now)
{
    if (nets->until_ms[0] > now || nets->until_ms[1] > now) {
        assert_true(ngx_rl_penalties_any_network(p, now));
        return NGX_BUSY;
    }

    ngx_rl_penalized_t made = row(n);
    made.id.hi = n * 0x9e3779b97f4a7c15;
    made.network = (uint64_t) nets->halves[0] << 32 | nets->halves[1];
    ngx_int_t rc = ngx_rl_penalties_begin(p, &made, &doubled, now);

    if (rc != NGX_ABORT || made.until_ms == 0) {
        return rc;
    }

    /* it never outlives the first row of the network */

    assert_true(ngx_rl_penalties_own(made.network));
    assert_in_range(made.until_ms, now + 1,
                    now < NOW + MINUTE ? NOW + MINUTE : now + MINUTE);

    ngx_uint_t narrow = (made.network >> 32 || nets->halves[0] == 0);
    made.id.hi = made.id.lo = ~(uint64_t) nets->halves[narrow];

    assert_int_equal(ngx_rl_penalties_begin(p, &made, NULL, now), NGX_OK);
    assert_int_equal(made.forget_ms, made.until_ms);
    assert_int_equal(ngx_rl_penalties_until(p, &made.id, now), made.until_ms);
    nets->until_ms[narrow] = made.until_ms;
    nets->own[narrow]++;

    return NGX_ABORT;
}


/* Rows in force. */
static ngx_uint_t
in_force(ngx_rl_penalties_t *p, uint64_t now)
{
    ngx_uint_t          at, n;
    ngx_rl_penalized_t  found;

    for (at = 0, n = 0; ngx_rl_penalties_next(p, &at, &found) == NGX_OK;
         /* void */)
    {
        n += (found.until_ms > now);
    }

    return n;
}


static void
test_crowds(void **state)
{
    uint64_t    n;
    ngx_uint_t  narrow;

    const struct {
        ngx_uint_t    addresses;
        ngx_uint_t    most;      /* rows of addresses in force */
        uint32_t      wide;
        uint32_t      narrow;
        ngx_uint_t    narrows;   /* of the client */
    } clients[] = {
        { 80000, NGX_RL_PENALTIES_NET_V6, 0x41, 0x83, 1 }, { 80000,
            NGX_RL_PENALTIES_WIDE, 0x41, 0x83, 256 }, { 2000,
            NGX_RL_PENALTIES_NET_V4, 0, 0x82, 1 }
    };

    for (ngx_uint_t i = 0; i < 3; i++) {
        ngx_rl_penalties_t *p = table_make();
        uint64_t now = NOW;
        nets_t nets = { 0 };
        nets.halves[0] = clients[i].wide;

        /* somebody's, from before */

        assert_int_equal(begin(p, 1, now), NGX_OK);

        ngx_uint_t escaped = 0;
        ngx_uint_t many = 0;

        for (n = 0; n < clients[i].addresses; n++, now++) {
            narrow = n * 7919 % clients[i].narrows;

            if (clients[i].narrows > 1) {
                nets.until_ms[1] = 0;    /* of another one */
            }

            nets.halves[1] = clients[i].narrow + 4 * narrow;
            ngx_int_t rc = attack(p, &nets, 1000 + n, now);
            assert_int_not_equal(rc, NGX_DECLINED);
            many += (rc == NGX_OK);
            escaped += (rc == NGX_ABORT);

            if (n % 100 == 0) {
                assert_in_range(in_force(p, now), 1, clients[i].most + 4);
            }

            /* none in force is lost, before the first one ends */

            if (n % 1000 == 0 && n < MINUTE) {
                assert_int_equal(in_force(p, now),
                                 1 + many + ngx_min(n / 1000, 2)
                                 + nets.own[0] + nets.own[1]);
            }

            /* another one, from elsewhere */

            if (n % 1000 == 999) {
                rc = begin_of(p, 1000000 + n / 1000 % 2, 0xdeadbe43, now);
                assert_true(rc == NGX_OK || rc == NGX_BUSY);
            }

            assert_int_equal(left(p, 1, now),
                             MINUTE - ngx_min(now - NOW, MINUTE));
        }

        print_message("%d addresses: %d penalties, %d without, networks "
                      "%d %d\n", (int) n, (int) many, (int) escaped,
                      (int) nets.own[0], (int) nets.own[1]);
        assert_true(nets.own[clients[i].narrows == 1] > 0);
        assert_in_range(many, clients[i].most, 2 * clients[i].most);
        table_free(p);
    }
}


static int
step(ngx_rl_penalties_t *p, uint64_t n, uint64_t now_ms, int kill_at)
{
    pid_t pid = spawn();

    if (pid == 0) {
        step_begin();
        (void) begin(p, n, now_ms);
        step_end();
    }

    return step_kill(pid, kill_at, NULL, NULL);
}


/* The row that is written is missing or whole, and all others are there. */
static void
test_every_instruction(void **state)
{
    int                 i, missing, whole;
    ngx_rl_penalized_t  found;

    ngx_rl_penalties_t *p = table_make();

    for (uint64_t n = 1; n < NGX_RL_PENALTIES_WAYS; n++) {
        assert_int_equal(begin(p, n, NOW), NGX_OK);
    }

    int steps = step(p, 50, NOW, MAX_STEPS);
    assert_in_range(steps, 20, MAX_STEPS - 1);
    assert_true(get(p, 50, &found));
    missing = whole = 0;

    int stride = step_choose(steps, &i);

    for ( /* void */ ; i < steps; i += stride) {
        found = row(50);
        (void) ngx_rl_penalties_end(p, &found.id, NOW);
        step(p, 50, NOW, i);

        if (!get(p, 50, &found)) {
            missing++;
            assert_int_equal(begin(p, 50, NOW), NGX_OK);

        } else if (found.until_ms > NOW) {
            assert_int_equal(found.until_ms, NOW + MINUTE);
            assert_int_equal(found.forget_ms, NOW + MINUTE + HOUR);
            assert_int_equal(found.times, 1);
            whole++;
        }

        for (uint64_t n = 1; n < NGX_RL_PENALTIES_WAYS; n++) {
            assert_int_equal(left(p, n, NOW), MINUTE);
            assert_true(get(p, n, &found));
        }
    }

    print_message("%d of %d deaths: %d missing, %d whole\n", missing + whole,
                  (steps + stride - 1) / stride, missing, whole);
    assert_true(missing + whole > 0);
    table_free(p);
}


/* A leader that looks as soon as there is a change. */
typedef struct {
    ngx_rl_penalties_t  *penalties;
    uint64_t             changes;  /* when it looked; 0: not yet */
    ngx_uint_t           found;    /* the row */
} leader_t;


static void
leader_look(void *data)
{
    leader_t *leader = data;

    ngx_rl_penalized_t  unused;

    if (leader->changes == 0) {
        leader->changes = leader->penalties->changes;
        leader->found = leader->changes && get(leader->penalties, 50, &unused);
    }
}


/* What it has not found makes it look again. */
static void
test_look_between(void **state)
{
    leader_t leader = { 0 };
    leader.penalties = table_make();
    pid_t pid = spawn();

    if (pid == 0) {
        step_begin();
        (void) begin(leader.penalties, 50, NOW);
        step_end();
    }

    (void) step_kill(pid, MAX_STEPS, leader_look, &leader);
    assert_true(leader.changes > 0);
    assert_true(leader.found
                || leader.penalties->changes
                   != leader.changes);
    table_free(leader.penalties);
}


static void
test_leader(void **state)
{
    ngx_rl_penalties_t *p = table_make();
    pid_t pid = spawn();

    if (pid == 0) {
        _exit(!ngx_rl_lock_lead(&p->leader));
    }

    reap(pid, 0);

    /* it has died, and left nothing */

    assert_true(ngx_rl_lock_lead(&p->leader));
    assert_true(ngx_rl_lock_lead(&p->leader));
    pid = spawn();

    if (pid == 0) {
        _exit(ngx_rl_lock_lead(&p->leader));
    }

    reap(pid, 0);
    ngx_rl_lock_leave(&p->leader);
    pid = spawn();

    if (pid == 0) {
        _exit(!ngx_rl_lock_lead(&p->leader));
    }

    reap(pid, 0);
    table_free(p);
}
