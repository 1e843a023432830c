/*
 * C against Lua: one random sequence through src/core and through the scripts
 * that run inside Redis must give the same decisions. Here: what lives in a
 * bucket's hash.
 *
 * STEPS and SEED in the environment choose another sequence; a failure prints
 * the seed and the step.
 */

#include "counter.h"

#define KEYS    3
#define FIELDS  220

/* one counter of a call, beside its arguments there */
typedef struct {
    counter_t  *counter;
    int64_t     cost;
    uint32_t    want;      /* below 0 of cost: for how many ms it was taken */
    uint32_t    ahead;     /* of a lease */
    uint32_t    share;     /* 0: no lease */
    uint32_t    charge;    /* spent already; 0: the others count */
    int         dry_run;
} check_t;

static counter_t  counters[KEYS][FIELDS];

/* what a sequence has met */
static struct {
    uint64_t  granted;
    uint64_t  denied;
    uint64_t  never;
    uint64_t  given;
    uint64_t  looked;
    uint64_t  dry_run;
    uint64_t  ahead;       /* leases cut down to what they may ask for, */
    uint64_t  shared;      /* to their share of what is left, */
    uint64_t  refused;     /* denied, alone or with others */
    uint64_t  charged;
    uint64_t  owed;        /* of these more than there was */
} seen;


static void
fill_arg(const check_t *check, parity_arg_t *arg)
{
    counter_t  *counter = check->counter;

    arg->kind = check->dry_run ? counter->kind - 'a' + 'A' : counter->kind;
    arg->cost = check->cost;
    arg->want = (check->want == NGX_RATELIMIT_LOOK) ? -1
                                                    : (int64_t) check->want;
    arg->want = check->charge ? -1 - (int64_t) check->charge : arg->want;
    arg->capacity = counter->limit.capacity;
    arg->ahead = check->ahead;
    arg->share = check->share;

    if (counter->kind == 't') {
        arg->a = counter->limit.rate.period_us;
        arg->b = counter->limit.rate.scale;

    } else {
        arg->a = counter->limit.window_us;
        arg->b = counter->limit.calendar;
    }
}


/* What a lease takes: its grant is reckoned here, C then takes just that. */

static void
lease_c(uint64_t now, const check_t *check, ngx_ratelimit_answer_t *answer)
{
    uint32_t   left, granted, share;
    counter_t  copy;

    copy = *check->counter;
    counter_take(&copy, now, check->cost, NGX_RATELIMIT_LOOK, answer);

    if (answer->retry_us) {
        counter_take(check->counter, now, check->cost, check->want, answer);
        seen.refused++;
        return;
    }

    left = answer->remaining;
    granted = (check->want < left) ? check->want : left;

    if (granted < check->cost) {
        granted = check->cost;
    }

    share = (left - granted) / check->share;

    if (check->ahead < share) {
        granted += check->ahead;
        seen.ahead += (check->ahead != 0);

    } else {
        granted += share;
        seen.shared += (share != 0);
    }

    counter_take(check->counter, now, granted, 0, answer);

    assert_true(answer->retry_us == 0);
    assert_int_equal(answer->granted, granted);
}


/* What has been spent is taken, and never denied. */

static void
charge_c(uint64_t now, const check_t *check, ngx_ratelimit_answer_t *answer)
{
    uint32_t                left;
    counter_t               copy;
    ngx_ratelimit_answer_t  look;

    copy = *check->counter;
    counter_take(&copy, now, 0, 0, &look);
    left = look.remaining;

    counter_charge(check->counter, now, check->charge, answer);

    assert_true(answer->granted <= check->charge);
    assert_true(answer->granted == check->charge || answer->granted >= left);
    assert_int_equal(answer->remaining,
                     left > answer->granted ? left - answer->granted : 0);

    seen.charged++;
    seen.owed += (answer->granted > left);
}


/* All or nothing over the checks, in C. */

static void
run_c(uint64_t now, const check_t *checks, unsigned n,
    parity_answer_t *answers)
{
    int                      denied;
    unsigned                 i;
    uint64_t                 age_us;
    counter_t                copy;
    const check_t           *check;
    ngx_ratelimit_answer_t   answer;

    denied = 0;

    for (i = 0; i < n; i++) {
        check = &checks[i];

        if (check->cost >= 0 && !check->dry_run) {
            copy = *check->counter;
            counter_take(&copy, now, check->cost, check->want, &answer);
            denied |= (answer.retry_us != 0);
        }
    }

    for (i = 0; i < n; i++) {
        check = &checks[i];

        if (check->cost < 0) {

            if (!denied) {
                age_us = (uint64_t) check->want * 1000;
                counter_give(check->counter, now,
                             age_us < now ? now - age_us : 0,
                             -check->cost);
                seen.given++;
            }

            counter_take(check->counter, now, 0, 0, &answer);

        } else if (check->charge && !denied) {
            charge_c(now, check, &answer);

        } else if (check->share && !denied) {
            lease_c(now, check, &answer);

        } else {
            seen.refused += (check->share != 0);
            counter_take(check->counter, now, check->cost,
                         denied ? NGX_RATELIMIT_LOOK : check->want, &answer);
        }

        seen.granted += (answer.granted != 0);
        seen.never += (answer.retry_us == NGX_RATELIMIT_NEVER);
        seen.denied += (answer.retry_us != 0);
        seen.looked += (check->want == NGX_RATELIMIT_LOOK);
        seen.dry_run += (answer.retry_us != 0 && check->dry_run && !denied);

        fill_answer(&answer, answers[i]);
    }
}


/* Another limit for a counter in use: any, or one that is much like it. */

static void
change_limit(counter_t *counter)
{
    ngx_ratelimit_spec_t   spec;
    ngx_ratelimit_limit_t  limit;

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
        random_limit(counter);
        return;
    }

    if (ngx_ratelimit_limit_init(&limit, &spec) == NULL) {
        counter->spec = spec;
        counter->limit = limit;
    }
}


/* To about the end of a window: the state's, the limit's, the next one's. */

static uint64_t
random_edge(uint64_t now, const counter_t *counter)
{
    uint64_t                      edge, fresh_us;
    const ngx_ratelimit_limit_t  *limit;

    limit = &counter->limit;
    fresh_us = counter_fresh_us(counter);

    if (limit->calendar) {
        edge = now + ngx_ratelimit_fixed_window_left(limit, now);

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
    const ngx_ratelimit_limit_t  *limit;

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
        return capacity < NGX_RATELIMIT_MAX_TOKENS ? capacity + 1 : capacity;

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
random_age_ms(const ngx_ratelimit_limit_t *limit)
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
                           : rnd((uint64_t) NGX_RATELIMIT_MAX_TOKENS + 1);
    check->share = rnd(4) ? 1 + rnd(20)
                          : rnd_log(NGX_RATELIMIT_MAX_TOKENS);
}


static void
random_call(parity_call_t *call, check_t *checks)
{
    unsigned   i, first;
    uint32_t   capacity;
    check_t   *check;

    /* a few busy counters, and now and then any, so that buckets grow */

    first = rnd(rnd(4) ? 8 : FIELDS);

    call->key = rnd(KEYS);
    call->name = NULL;
    call->n = rnd(2) ? 1 : 1 + rnd(PARITY_COUNTERS);

    for (i = 0; i < call->n; i++) {
        check = &checks[i];

        call->args[i].field = (first + i) % FIELDS;
        check->counter = &counters[call->key][call->args[i].field];

        if (rnd(100) == 0) {
            change_limit(check->counter);
        }

        capacity = check->counter->limit.capacity;

        check->cost = random_tokens(capacity);
        check->want = rnd(2) ? 0 : random_tokens(capacity);
        check->dry_run = (rnd(8) == 0);
        check->ahead = check->share = check->charge = 0;

        /* mostly one that can be paid: else 16 counters never pass together */

        if (call->n > 1 && rnd(8)) {
            check->cost = rnd(2);
        }

        if (rnd(10) == 0) {
            check->cost = -check->cost;
            check->want = random_age_ms(&check->counter->limit);

        } else if (rnd(10) == 0) {
            check->charge = random_tokens(capacity);
            check->charge += rnd(2) ? 0 : random_tokens(capacity);
            check->charge = check->charge < NGX_RATELIMIT_MAX_TOKENS
                            ? check->charge : NGX_RATELIMIT_MAX_TOKENS;
            check->cost = check->charge ? 0 : check->cost;

        } else if (rnd(10) == 0) {
            check->want = NGX_RATELIMIT_LOOK;

        } else if (rnd(3) == 0) {
            random_lease(check, capacity);
        }

        fill_arg(check, &call->args[i]);
    }
}


/* Taken in the very first microsecond of this window or the one before. */

static void
exact_ages(parity_call_t *call, check_t *checks)
{
    unsigned  i;
    uint64_t  window_us, age_us;

    for (i = 0; i < call->n; i++) {

        if (checks[i].cost >= 0 || rnd(4)) {
            continue;
        }

        window_us = checks[i].counter->limit.window_us;
        age_us = call->now_us % window_us + rnd(2) * window_us;

        checks[i].want = age_us / 1000;
        call->args[i].want = checks[i].want;
    }
}


/*
 * A counter that the bucket lost must have been equal to a fresh one at the
 * latest time that the clock has shown.
 */
static void
check_dropped(uint64_t now, uint64_t latest, unsigned key, unsigned field)
{
    int         there;
    counter_t  *counter;

    counter = &counters[key][field];

    model_function("exists");
    lua_pushnumber(parity.lua, (double) now);
    push_key(key);
    push_field(field);
    model_call(3, 1);
    there = lua_toboolean(parity.lua, -1);
    lua_pop(parity.lua, 1);

    if (!there) {

        if (counter_fresh_us(counter) >= latest) {
            fail_msg("SEED=%llu step %lu: field %u lost while in use",
                     (unsigned long long) parity.first_seed, parity.step,
                     field);
        }

        counter_forget(counter);
    }
}


static void
check_all_dropped(uint64_t now, uint64_t latest)
{
    unsigned  key, field;

    for (key = 0; key < KEYS; key++) {
        for (field = 0; field < FIELDS; field++) {
            check_dropped(now, latest, key, field);
        }
    }
}


/* The value of a field in Redis is the counter's state. */

static void
check_state(unsigned key, unsigned field, const counter_t *counter)
{
    size_t          i, len, size;
    uint64_t        got[4];
    const char     *sizes;
    unsigned char  *p;

    uint64_t  bucket[] = { counter->tb.tat_us, counter->tb.tat_frac,
                           counter->tb.span_code };
    uint64_t  window[] = { counter->w.fresh_us, counter->w.count,
                           counter->w.code, counter->w.before };

    sizes = (counter->kind == 't') ? "732" : (counter->kind == 'f') ? "742"
                                                                    : "7424";

    model_function("value");
    push_key(key);
    push_field(field);
    model_call(2, 1);

    p = (unsigned char *) lua_tolstring(parity.lua, -1, &len);

    for (i = 0; sizes[i]; i++) {
        got[i] = 0;

        for (size = sizes[i] - '0'; size && len; size--, len--) {
            got[i] = got[i] << 8 | *p++;
        }
    }

    lua_pop(parity.lua, 1);

    assert_int_equal(len, 0);
    assert_memory_equal(got, counter->kind == 't' ? bucket : window,
                        i * sizeof(uint64_t));
}


static void
run_sequence(const char *kinds)
{
    check_t          checks[PARITY_COUNTERS];
    uint64_t         next, latest;
    unsigned         i, key, field;
    parity_call_t    call;
    parity_answer_t  answers[PARITY_COUNTERS];

    parity_start();
    memset(&seen, 0, sizeof(seen));
    memset(counters, 0, sizeof(counters));

    for (key = 0; key < KEYS; key++) {
        for (field = 0; field < FIELDS; field++) {
            counters[key][field].kind = kinds[rnd(strlen(kinds))];
            random_limit(&counters[key][field]);
        }
    }

    call.now_us = latest = START;

    for ( /* void */ ; parity.step < parity.steps; parity.step++) {
        random_call(&call, checks);
        next = random_step(call.now_us, checks[0].counter);

        if (next + 1000000 < call.now_us) {

            /* set back: what is lost by now was lost by the old time */

            check_all_dropped(call.now_us, latest);
            latest = next;
        }

        call.now_us = next;
        exact_ages(&call, checks);
        latest = (next > latest) ? next : latest;

        for (i = 0; i < call.n; i++) {
            check_dropped(next, latest, call.key, call.args[i].field);
        }

        run_c(next, checks, call.n, answers);
        parity_compare(&call, answers);

        for (i = 0; i < call.n; i++) {
            if ((checks[i].share || checks[i].charge) && answers[i][0] > 0) {
                check_state(call.key, call.args[i].field, checks[i].counter);
            }
        }
    }
}


/* That all of it was met, and expiry seldom had to be set. */

static void
check_seen(const char *kinds)
{
    if (parity.steps >= 10000) {
        assert_true(seen.granted > parity.steps / 10);
        assert_true(seen.denied > parity.steps / 10);
        assert_true(seen.never > 0 && seen.looked > 0 && seen.dry_run > 0);
        assert_true(seen.given > parity.steps / 100);
        assert_true(seen.ahead > parity.steps / 100);
        assert_true(seen.shared > parity.steps / 100);
        assert_true(seen.refused > parity.steps / 100);
        assert_true(seen.charged > parity.steps / 100);
        assert_true(seen.owed > parity.steps / 1000);
        assert_true(model_total("HGETALL") > 0);
        assert_true(model_total("HDEL") > 0);
        assert_true(model_total("PEXPIRE") < model_total("HSET") / 4);
    }

    print_message("%s: %lu steps: %llu granted, %llu denied, %llu given back, "
                  "leases: %llu whole, %llu shares, %llu refused; "
                  "%llu charged, %llu owed; "
                  "%.0f HSET, %.0f PEXPIRE, %.0f sweeps\n", kinds,
                  parity.steps, (unsigned long long) seen.granted,
                  (unsigned long long) seen.denied,
                  (unsigned long long) seen.given,
                  (unsigned long long) seen.ahead,
                  (unsigned long long) seen.shared,
                  (unsigned long long) seen.refused,
                  (unsigned long long) seen.charged,
                  (unsigned long long) seen.owed, model_total("HSET"),
                  model_total("PEXPIRE"), model_total("HGETALL"));
}


static void
test_token_bucket(void **state)
{
    (void) state;

    run_sequence("t");
    check_seen("t");
}


static void
test_fixed_window(void **state)
{
    (void) state;

    run_sequence("f");
    check_seen("f");
}


static void
test_sliding_window(void **state)
{
    (void) state;

    run_sequence("s");
    check_seen("s");
}


static void
test_all_kinds(void **state)
{
    (void) state;

    run_sequence("tfs");
    check_seen("tfs");
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_token_bucket),
        cmocka_unit_test(test_fixed_window),
        cmocka_unit_test(test_sliding_window),
        cmocka_unit_test(test_all_kinds),
    };

    return cmocka_run_group_tests(tests, parity_setup, parity_teardown);
}
