/*
 * C against Lua: one random sequence through src/core and through the scripts
 * that run inside Redis must give the same decisions. Here: what lives in a
 * bucket's hash. A call for one counter is made twice: as it is, and in another
 * bucket with a look at a second counter, which takes the script's other way.
 *
 * STEPS and SEED in the environment choose another sequence; a failure prints
 * the seed and the step.
 */

#include "parity.h"

#include "counter.h"

#define KEYS    3
#define FIELDS  220

/* one counter of a call, beside its arguments there */
typedef struct {
    counter_t  *counter;
    int64_t     cost;
    uint32_t    want;      /* below 0 of cost: for how many ms it was taken;
                              LOOK: an operator gives it */
    uint32_t    ahead;     /* of a lease */
    uint32_t    share;     /* 0: no lease */
    uint32_t    charge;    /* spent already; 0: the others count */
    uint32_t    keep;      /* of the capacity, for others */
    limit_t     whole;     /* the counter's limit, while that is a part */
    int         dry_run;
} check_t;

static counter_t  counters[KEYS][FIELDS];

/* what a sequence has met, and must meet in a thousand steps */
enum {
    GRANTED, DENIED, NEVER_PAID, GIVEN, LOOKED, DRY_RUN,
    AHEAD,       /* leases cut down to what they may ask for, */
    SHARED,      /* to their share of what is left, */
    REFUSED,     /* denied, alone or with others */
    CHARGED,
    OWED,        /* of these more than there was */
    TOPPED_UP,
    KEPT,        /* denied, though the bucket had the cost */
    EVENTS
};

static const struct {
    const char  *name;
    unsigned     least;
} events[] = {
    { "granted", 100 }, { "denied", 100 }, { "never", 0 },
    { "given back", 10 }, { "looked", 0 }, { "dry run", 0 },
    { "ahead", 10 }, { "shared", 10 }, { "refused", 10 }, { "charged", 10 },
    { "owed", 1 }, { "topped up", 10 }, { "kept", 1 }
};

static uint64_t  seen[EVENTS];


/* When the counter equals a fresh one. */
static uint64_t
counter_fresh_us(const counter_t *counter)
{
    if (counter->kind == 't') {
        return counter->state.tb.span_code ? counter->state.tb.tat_us : 0;
    }

    return counter->state.w.fresh_us;
}


static void
fill_arg(const check_t *check, parity_arg_t *arg)
{
    counter_t  *counter = check->counter;

    arg->kind = check->dry_run ? counter->kind - 'a' + 'A' : counter->kind;
    arg->cost = check->cost;
    arg->want = (check->want == NGX_RL_LOOK) ? -1 : (int64_t) check->want;
    arg->want = check->charge ? -1 - (int64_t) check->charge : arg->want;
    arg->capacity = counter->limit.capacity;
    arg->ahead = check->ahead;
    arg->share = check->share;
    arg->keep = check->keep;
    arg->len = 0;

    if (counter->kind == 't') {
        arg->a = counter->limit.rate.period_us;
        arg->b = counter->limit.rate.scale;
    }
}


/* What a lease takes: its grant is reckoned here, C then takes just that. */
static void
lease_c(uint64_t now, const check_t *check, answer_t *answer)
{
    uint32_t  share;

    counter_t copy = *check->counter;
    counter_take(&copy, now, check->cost, NGX_RL_LOOK, answer);

    if (answer->retry_us) {
        counter_take(check->counter, now, check->cost, check->want, answer);
        seen[REFUSED]++;
        return;
    }

    uint32_t left = answer->remaining;
    uint32_t granted = (check->want < left) ? check->want : left;

    if (granted < check->cost) {
        granted = check->cost;
    }

    share = (left - granted) / check->share;

    if (check->ahead < share) {
        granted += check->ahead;
        seen[AHEAD] += (check->ahead != 0);

    } else {
        granted += share;
        seen[SHARED] += (share != 0);
    }

    counter_take(check->counter, now, granted, 0, answer);

    assert_true(answer->retry_us == 0);
    assert_int_equal(answer->granted, granted);
}


/* What has been spent is taken, and never denied. */
static void
charge_c(uint64_t now, const check_t *check, answer_t *answer)
{
    answer_t  look;

    counter_t copy = *check->counter;
    counter_take(&copy, now, 0, 0, &look);
    uint32_t left = look.remaining;

    counter_take(check->counter, now, check->charge, CHARGE, answer);

    assert_true(answer->granted <= check->charge);
    assert_true(answer->granted == check->charge || answer->granted >= left);
    assert_int_equal(answer->remaining,
                     left > answer->granted ? left - answer->granted : 0);

    seen[CHARGED]++;
    seen[OWED] += (answer->granted > left);
}


/* A counter of which a check may use a part has that limit meanwhile. */
static void
part_c(check_t *check)
{
    ngx_rl_spec_t own = { 0 };
    check->whole = check->counter->limit;
    own.burst = check->whole.capacity - check->keep - 1;

    assert_null(ngx_rl_limit_narrow(&check->whole, &own,
                                    &check->counter->limit));
}


static void
whole_c(uint64_t now, const check_t *check, const answer_t *answer)
{
    answer_t  other;

    check->counter->limit = check->whole;

    counter_t copy = *check->counter;
    counter_take(&copy, now, check->cost, NGX_RL_LOOK, &other);
    seen[KEPT] += (answer->retry_us && other.retry_us == 0);
}


/* All or nothing over the checks, in C. */
static void
run_c(uint64_t now, check_t *checks, unsigned n, parity_answer_t *answers)
{
    answer_t  answer;

    int denied = 0;

    for (unsigned i = 0; i < n; i++) {
        check_t *check = &checks[i];

        if (check->keep) {
            part_c(check);
        }

        if (check->cost >= 0 && !check->dry_run) {
            counter_t copy = *check->counter;
            counter_take(&copy, now, check->cost, check->want, &answer);
            denied |= (answer.retry_us != 0);
        }
    }

    for (unsigned i = 0; i < n; i++) {
        check_t *check = &checks[i];

        if (check->cost < 0) {
            if (!denied) {
                uint64_t age_us = (uint64_t) check->want * 1000;
                uint64_t taken_us = age_us < now ? now - age_us : 0;

                if (check->want == NGX_RL_LOOK) {
                    taken_us = NGX_RL_WHENEVER;
                    seen[TOPPED_UP]++;
                }

                state_give(&check->counter->state, &check->counter->limit, now,
                           taken_us, -check->cost);
                seen[GIVEN]++;
            }

            counter_take(check->counter, now, 0, 0, &answer);

        } else if (check->charge && !denied) {
            charge_c(now, check, &answer);

        } else if (check->share && !denied) {
            lease_c(now, check, &answer);

        } else {
            seen[REFUSED] += (check->share != 0);
            counter_take(check->counter, now, check->cost,
                         denied ? NGX_RL_LOOK : check->want, &answer);
        }

        if (check->keep) {
            whole_c(now, check, &answer);
        }

        seen[GRANTED] += (answer.granted != 0);
        seen[NEVER_PAID] += (answer.retry_us == NGX_RL_NEVER);
        seen[DENIED] += (answer.retry_us != 0);
        seen[LOOKED] += (check->cost >= 0 && check->want == NGX_RL_LOOK);
        seen[DRY_RUN] += (answer.retry_us != 0 && check->dry_run && !denied);

        fill_answer(&answer, answers[i]);
    }
}


/* Another limit for a counter in use: any, or one that is much like it. */
static void
change_limit(counter_t *counter)
{
    state_t        state;
    limit_t        limit;
    ngx_rl_spec_t  spec;

    spec = counter->spec;

    switch (rnd(4)) {
    case 0:
        spec.tokens += 1 + rnd(spec.tokens);
        break;

    case 1:
        spec.tokens -= rnd(spec.tokens);
        break;

    case 2:

        /* often the same code */

        if (spec.period_us) {
            spec.period_us += 1 + rnd(spec.period_us / 100 + 1);
        }

        break;

    default:
        state = counter->state;
        counter_make(counter, counter->kind);
        counter->state = state;
        return;
    }

    if (ngx_rl_limit_init(&limit, &spec) == NULL) {
        counter->spec = spec;
        counter->limit = limit;
    }
}


/* To about the end of a window: the state's, the limit's, the next one's. */
static uint64_t
random_edge(uint64_t now, const counter_t *counter)
{
    uint64_t        edge;
    const limit_t  *limit;

    limit = &counter->limit;
    uint64_t fresh_us = counter_fresh_us(counter);

    if (limit->calendar) {
        edge = now + window_left(limit, now);

    } else {
        edge = now + limit->window_us - now % limit->window_us;
    }

    if (fresh_us > now && rnd(2)) {
        edge = fresh_us;
    }

    if (counter->kind == 's' && rnd(2)) {
        edge += rnd(limit->window_us);
    }

    if (edge > now + 4000 * (uint64_t) 86400 * 1000000) {
        return now;
    }

    return rnd(2) ? edge + rnd(3) - 1 : edge + rnd(1000) * 1000;
}


static uint64_t
random_step(uint64_t now, const counter_t *counter)
{
    const limit_t  *limit;

    if (now > LATEST) {
        return START;
    }

    limit = &counter->limit;

    switch (rnd(16)) {
    case 0: case 1: case 2: case 3: case 4:
        return now;

    case 5: case 6:
        return now + rnd_log(1000);

    case 7: case 8: case 9:
        return now + rnd_log(10 * 1000000);

    case 10:
        return now + rnd(2 * limit->window_us / limit->capacity + 2);

    case 11:
        return now + rnd(rnd(8) ? 1000000 : limit->window_us / 64 + 1);

    case 12: case 13:
        return random_edge(now, counter);

    case 14:

        /* a worker, or a replica, that is a little behind */

        return now - rnd(900000);

    default:

        /* the clock is set back */

        return rnd(20) ? now : now - rnd_log((uint64_t) 1 << 40);
    }
}


static uint32_t
random_tokens(uint32_t capacity)
{
    switch (rnd(8)) {
    case 0:
        return 0;

    case 1:
        return capacity;

    case 2:
        return capacity < NGX_RL_MAX_TOKENS ? capacity + 1 : capacity;

    case 3: case 4:
        return 1 + rnd(capacity);

    case 5:
        return rnd_log(capacity);

    default:
        return 1;
    }
}


/* What is given back was mostly taken a moment ago. */
static uint32_t
random_age_ms(const limit_t *limit)
{
    switch (rnd(4)) {
    case 0:
        return 0;

    case 1:
        return rnd(1000);

    case 2:
        return rnd(limit->window_us / 1000 + 2);

    default:
        return rnd(3 * (limit->window_us / 1000 + 1));
    }
}


/* What a lease asks for: mostly as an engine would, else anything. */
static void
random_lease(check_t *check, uint32_t capacity)
{
    check->ahead = rnd(16) ? random_tokens(capacity)
                           : rnd((uint64_t) NGX_RL_MAX_TOKENS + 1);
    check->share = rnd(4) ? 1 + rnd(20) : rnd_log(NGX_RL_MAX_TOKENS);
}


static void
random_call(parity_call_t *call, check_t *checks)
{
    /* a few busy counters, and now and then any, so that buckets grow */

    unsigned first = rnd(rnd(4) ? 8 : FIELDS);

    call->key = rnd(KEYS);
    call->name = NULL;
    call->n = rnd(2) ? 1 : 1 + rnd(PARITY_COUNTERS);

    for (unsigned i = 0; i < call->n; i++) {
        check_t *check = &checks[i];

        call->args[i].field = (first + i) % FIELDS;
        check->counter = &counters[call->key][call->args[i].field];

        if (rnd(100) == 0) {
            change_limit(check->counter);
        }

        uint32_t capacity = check->counter->limit.capacity;

        check->cost = random_tokens(capacity);
        check->want = rnd(2) ? 0 : random_tokens(capacity);
        check->dry_run = (rnd(8) == 0);
        check->ahead = check->share = check->charge = check->keep = 0;

        /* mostly one that can be paid: else 16 counters never pass together */

        if (call->n > 1 && rnd(8)) {
            check->cost = rnd(2);
        }

        if (rnd(10) == 0) {
            check->cost = -check->cost;
            check->want = rnd(4) ? random_age_ms(&check->counter->limit)
                                 : NGX_RL_LOOK;

        } else if (rnd(10) == 0) {
            check->charge = random_tokens(capacity);
            check->charge += rnd(2) ? 0 : random_tokens(capacity);
            check->charge = check->charge < NGX_RL_MAX_TOKENS
                            ? check->charge : NGX_RL_MAX_TOKENS;
            check->cost = check->charge ? 0 : check->cost;

        } else if (rnd(10) == 0) {
            check->want = NGX_RL_LOOK;

        } else if (rnd(3) == 0) {
            random_lease(check, capacity);

        } else if (check->counter->kind == 't' && rnd(2)) {
            check->keep = rnd(capacity);
        }

        fill_arg(check, &call->args[i]);
    }
}


/* Taken in the very first microsecond of this window or the one before. */

/* What depends on the time: the gateway's windows, and exact ages. */
static void
fill_times(parity_call_t *call, check_t *checks)
{
    for (unsigned i = 0; i < call->n; i++) {

        if (checks[i].counter->kind != 't') {
            parity_window(&call->args[i], &checks[i].counter->limit,
                          call->now_us);
        }

        if (checks[i].cost >= 0 || checks[i].want == NGX_RL_LOOK || rnd(4)) {
            continue;
        }

        uint64_t window_us = checks[i].counter->limit.window_us;
        uint64_t age_us = call->now_us % window_us + rnd(2) * window_us;

        checks[i].want = age_us / 1000;
        call->args[i].want = checks[i].want;
    }
}


static int
field_exists(uint64_t now, unsigned key, unsigned field)
{
    model_function("exists");
    lua_pushnumber(parity.lua, (double) now);
    push_key(key);
    push_field(field);
    model_call(3, 1);
    int there = lua_toboolean(parity.lua, -1);
    lua_pop(parity.lua, 1);

    return there;
}


/*
 * A counter that the bucket lost must have been equal to a fresh one at the
 * latest time that the clock has shown.
 */
static void
check_dropped(uint64_t now, uint64_t latest, unsigned key, unsigned field)
{
    counter_t *counter = &counters[key][field];
    int there = field_exists(now, key, field);

    assert_int_equal(field_exists(now, key + KEYS, field), there);

    if (!there) {
        if (counter_fresh_us(counter) >= latest) {
            fail_msg("SEED=%llu step %lu: field %u lost while in use",
                     (unsigned long long) parity.first_seed, parity.step,
                     field);
        }

        memset(&counter->state, 0, sizeof(state_t));
    }
}


static void
check_all_dropped(uint64_t now, uint64_t latest)
{
    for (unsigned key = 0; key < KEYS; key++) {
        for (unsigned field = 0; field < FIELDS; field++) {
            check_dropped(now, latest, key, field);
        }
    }
}


/* The value of a field in Redis is the counter's state. */
static void
check_state(unsigned key, unsigned field, const counter_t *counter)
{
    size_t          i, len;
    uint64_t        got[4];
    const char     *sizes;

    uint64_t  bucket[] = { counter->state.tb.tat_us, counter->state.tb.tat_frac,
        counter->state.tb.span_code };
    uint64_t  window[] = { counter->state.w.fresh_us, counter->state.w.count,
        counter->state.w.code, counter->state.w.before };

    sizes = (counter->kind == 't') ? "732" : (counter->kind == 'f') ? "742"
                                                                    : "7424";

    model_function("value");
    push_key(key);
    push_field(field);
    model_call(2, 1);

    unsigned char *p = (unsigned char *) lua_tolstring(parity.lua, -1, &len);

    for (i = 0; sizes[i]; i++) {
        got[i] = 0;

        for (size_t size = sizes[i] - '0'; size && len; size--, len--) {
            got[i] = got[i] << 8 | *p++;
        }
    }

    lua_pop(parity.lua, 1);

    assert_int_equal(len, 0);
    assert_memory_equal(got, counter->kind == 't' ? bucket : window,
                        i * sizeof(uint64_t));
}


/* The same once more, in another bucket; never one counter alone. */
static void
run_wide(parity_call_t *call, parity_answer_t *answers)
{
    static const parity_arg_t  look = { 'T', FIELDS, 0, -1, 10, 100000, 1, 0,
                                        0 };
    static const parity_answer_t  looked = { 0, 10, 0, 0 };

    call->key += KEYS;

    if (call->n == 1) {
        call->args[1] = look;
        memcpy(answers[1], looked, sizeof(looked));
        call->n = 2;
    }

    parity_compare(call, answers);
}


static void
run_sequence(const char *kinds)
{
    check_t          checks[PARITY_COUNTERS];
    uint64_t         latest;
    parity_call_t    call;
    parity_answer_t  answers[PARITY_COUNTERS];

    parity_start();
    memset(seen, 0, sizeof(seen));

    for (unsigned key = 0; key < KEYS; key++) {
        for (unsigned field = 0; field < FIELDS; field++) {
            counter_make(&counters[key][field], kinds[rnd(strlen(kinds))]);
        }
    }

    call.now_us = latest = START;

    for ( /* void */ ; parity.step < parity.steps; parity.step++) {
        random_call(&call, checks);
        uint64_t next = random_step(call.now_us, checks[0].counter);

        if (next + 1000000 < call.now_us) {
            /* set back: what is lost by now was lost by the old time */

            check_all_dropped(call.now_us, latest);
            latest = next;
        }

        call.now_us = next;
        fill_times(&call, checks);
        latest = (next > latest) ? next : latest;

        for (unsigned i = 0; i < call.n; i++) {
            check_dropped(next, latest, call.key, call.args[i].field);
        }

        run_c(next, checks, call.n, answers);
        parity_compare(&call, answers);

        parity_call_t wide = call;
        run_wide(&wide, answers);

        for (unsigned i = 0; i < call.n; i++) {
            if ((checks[i].share || checks[i].charge) && answers[i][0] > 0) {
                check_state(call.key, call.args[i].field, checks[i].counter);
                check_state(wide.key, call.args[i].field, checks[i].counter);
            }
        }
    }
}


/* All of it is met, and expiry seldom has to be set. */
static void
test_kinds(void **state)
{
    const char *kinds = *state;

    run_sequence(kinds);
    print_message("%s: %lu steps", kinds, parity.steps);

    for (size_t i = 0; i < EVENTS; i++) {
        print_message(", %s %llu", events[i].name,
                      (unsigned long long) seen[i]);

        if (parity.steps >= 10000 && (i != KEPT || strchr(kinds, 't'))) {
            assert_true(seen[i] > parity.steps * events[i].least / 1000);
        }
    }

    print_message("; %.0f HGET, %.0f HSET, %.0f PTTL, %.0f PEXPIRE, "
                  "%.0f sweeps\n", model_total("HGET"), model_total("HSET"),
                  model_total("PTTL"), model_total("PEXPIRE"),
                  model_total("HSCAN"));

    if (parity.steps >= 10000) {
        assert_true(model_total("HGET") > parity.steps / 3.0);
        assert_true(model_total("HMGET") > parity.steps);
        assert_true(model_total("HSCAN") > 0);
        assert_true(model_total("HDEL") > 0);
        assert_true(model_total("PEXPIRE") < model_total("HSET") / 4);
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        { "token_bucket", test_kinds, NULL, NULL, "t" }, { "fixed_window",
            test_kinds, NULL, NULL, "f" }, { "sliding_window", test_kinds, NULL,
            NULL, "s" }, { "all_kinds", test_kinds, NULL, NULL, "tfs" }, };

    return cmocka_run_group_tests(tests, parity_setup, parity_teardown);
}
