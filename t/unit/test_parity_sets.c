/*
 * C against Lua: what lives in sorted sets, the sliding log and concurrency.
 *
 * STEPS and SEED in the environment choose another sequence; a failure prints
 * the seed and the step.
 *
 * Where the two cannot agree, by design, and the sequence does not go: C gives
 * back places by the time of the take, Lua by the request's name. So nothing is
 * given back that was taken behind the newest place's time, or before the clock
 * was set back or the window grew; nor what a faster clock saw expire, nor what
 * more than 64 later places stand before; nor by a name that has taken twice,
 * which no request does. That leases expire and are renewed is Lua's alone; the
 * test keeps the leases beside C.
 */

#include "parity_sets.h"


static void
random_limit(counter_t *counter)
{
    static const uint64_t  periods[] = { 1, 1, 10, 60, 3600, 366 * 86400 };

    ngx_rl_spec_t spec = { 0 };

    if (kind == 'l') {
        spec.algorithm = NGX_RL_SLIDING_LOG;
        spec.period_us = periods[rnd(6)] * 1000000;
        spec.tokens = rnd(8) ? rnd_log(30)
                             : rnd(8) ? rnd_log(1000)
                                      : rnd_log(NGX_RL_MAX_LOG);
    } else {
        spec.algorithm = NGX_RL_CONCURRENCY;
        spec.tokens = rnd(8) ? rnd_log(8) : rnd_log(NGX_RL_MAX_TOKENS);
    }

    if (spec.tokens > NGX_RL_MAX_LOG && kind == 'l') {
        spec.tokens = NGX_RL_MAX_LOG;
    }

    assert_null(ngx_rl_limit_init(&counter->limit, &spec));
}


/* Places of before a longer window may have expired by the shorter one. */
static void
change_limit(unsigned key, unsigned field)
{
    unsigned  i;

    counter_t *counter = &counters[key][field];
    uint64_t window_us = counter->limit.window_us;

    random_limit(counter);

    for (i = 0; i < REQUESTS && counter->limit.window_us > window_us; i++) {
        if (requests[i].key == key) {
            requests[i].granted[field] = 0;
        }
    }
}


static uint64_t
random_step(uint64_t now, const ngx_rl_limit_t *limit)
{
    uint64_t  window_us;

    if (now > LATEST) {
        return START;
    }

    window_us = limit->window_us ? limit->window_us : LEASE_US;

    /* mostly no longer than that others' windows go on */

    if (window_us > 10000000 && rnd(12)) {
        window_us = 10000000;
    }

    switch (rnd(16)) {
    case 0: case 1: case 2: case 3:
        return now;

    case 4: case 5: case 6:
        return now + rnd_log(1000);

    case 7: case 8:
        return now + rnd_log(1000000);

    case 9: case 10: case 11: case 12:
        return now + rnd(2 * window_us / (rnd(8) ? 200 : limit->capacity) + 2);

    case 13:
        return now + (rnd(40) ? rnd_log(1000000) : window_us);

    case 14:

        /* a worker, or a replica, that is a little behind */

        return now - rnd(900000);

    default:

        /* the clock is set back; of leases: test_script_sets.c */

        if (rnd(60) || kind == 'c') {
            return now + rnd(window_us) / (rnd(20) ? 1000 : 1);
        }

        return now - rnd_log((uint64_t) 1 << 40);
    }
}


static uint32_t
random_tokens(uint32_t capacity)
{
    switch (rnd(12)) {
    case 0:
        return 0;

    case 1:
        return capacity;

    case 2:
        return capacity + 1;

    case 3: case 4:
        return 1 + rnd(capacity);

    default:
        return rnd(3) ? 1 : rnd_log(capacity);
    }
}


static void
fill_arg(const check_t *check, parity_arg_t *arg)
{
    const ngx_rl_limit_t  *limit = &check->counter->limit;

    arg->kind = check->dry_run ? kind - 'a' + 'A' : kind;
    arg->cost = check->cost;
    arg->want = (check->want == NGX_RL_LOOK) ? -1 : (int64_t) check->want;
    arg->want = check->charge ? -1 - (int64_t) check->charge : arg->want;
    arg->capacity = limit->capacity;
    arg->a = (kind == 'l') ? limit->window_us : LEASE_US;
    arg->b = 0;
    arg->ahead = 0;
    arg->share = 0;
    arg->keep = 0;
    arg->len = 0;
}


/* What a request's counter is asked for. */
static void
random_check(check_t *check, const request_t *request, unsigned field,
    int is_new)
{
    uint32_t  granted;

    uint32_t capacity = check->counter->limit.capacity;
    granted = request->granted[field];

    check->want = 0;
    check->charge = 0;
    check->dry_run = (rnd(8) == 0);
    check->cost = 1;

    if (kind == 'c') {
        if (!is_new && rnd(2)) {
            check->cost = rnd(2) ? -1 : 1;
            check->want = (check->cost == 1) ? rnd(2) : 0;

        } else if (rnd(10) == 0) {
            check->cost = 0;

        } else if (rnd(10) == 0) {
            check->want = NGX_RL_LOOK;
        }

        return;
    }

    if (rnd(30) == 0) {
        check->cost = -1 - (int64_t) random_tokens(capacity);
        check->want = NGX_RL_LOOK;
        return;
    }

    if (!is_new && granted && rnd(4)) {
        granted = rnd(2) ? granted : 1 + (uint32_t) rnd(granted);

        if (request->taken_us + check->counter->limit.window_us > latest
            && log_finds(check->counter, request->taken_us, granted))
        {
            check->cost = -(int64_t) granted;
            return;
        }
    }

    if (!is_new && rnd(2)) {
        check->cost = 0;

        if (rnd(2)) {
            check->want = random_tokens(capacity);
        } else {
            check->charge = random_tokens(capacity);
        }

        return;
    }

    check->cost = rnd(4) ? 1 : random_tokens(capacity);
    check->want = rnd(4) ? 0 : rnd(3) ? random_tokens(capacity) : NGX_RL_LOOK;
}


static request_t *
random_call(parity_call_t *call, check_t *checks)
{
    request_t *request = &requests[rnd(REQUESTS)];
    int is_new = (request->name == 0 || rnd(2));

    if (is_new) {
        memset(request, 0, sizeof(request_t));
        request->name = ++names;
        request->key = rnd(KEYS);
    }

    call->key = request->key;
    call->name = (char *) &request->name;
    call->n = rnd(2) ? 1 : 1 + rnd(FIELDS);
    unsigned first = rnd(FIELDS);

    for (unsigned i = 0; i < FIELDS; i++) {
        if (request->granted[i] && rnd(2)) {
            /* likely to be given back: nobody else is there to be denied */

            call->n = 1;
            first = i;
        }
    }

    for (unsigned i = 0; i < call->n; i++) {
        call->args[i].field = (first + i) % FIELDS;
        checks[i].counter = &counters[call->key][call->args[i].field];

        if (rnd(50) == 0) {
            change_limit(call->key, call->args[i].field);
        }
    }

    seen.again += !is_new;

    return request;
}


static void
random_checks(parity_call_t *call, check_t *checks, request_t *request,
    int is_new)
{
    for (unsigned i = 0; i < call->n; i++) {
        random_check(&checks[i], request, call->args[i].field, is_new);
        fill_arg(&checks[i], &call->args[i]);
    }
}


/* An operator gave the newest back, which may be those of any request. */
static void
forget(unsigned key, unsigned field)
{
    for (unsigned i = 0; i < REQUESTS; i++) {
        if (requests[i].key == key) {
            requests[i].granted[field] = 0;
        }
    }

    seen.topped_up++;
}


/* What the request has now, as far as it may give it back. */
static void
remember(request_t *request, const parity_call_t *call, const check_t *checks,
    parity_answer_t *answers, int is_new)
{
    for (unsigned i = 0; i < call->n; i++) {
        unsigned field = call->args[i].field;

        if (checks[i].cost < 0 && checks[i].want == NGX_RL_LOOK) {
            forget(call->key, field);

        } else if (checks[i].cost < 0 || (!is_new && checks[i].cost > 0)) {
            request->granted[field] = 0;

        } else if (is_new && checks[i].cost > 0 && kind == 'l'
                   && log_newest_us(checks[i].counter) == call->now_us)
        {
            request->taken_us = call->now_us;
            request->granted[field] = answers[i][0];
        }
    }
}


/* Leaves a set's life in milliseconds, -2 where it is not there. */
static int64_t
set_pttl(uint64_t now, unsigned key, unsigned field)
{
    model_function("pttl");
    lua_pushnumber(parity.lua, (double) now);
    push_set(key, field);
    model_call(2, 1);
    int64_t ms = (int64_t) lua_tonumber(parity.lua, -1);
    lua_pop(parity.lua, 1);

    return ms;
}


static uint64_t
counter_fresh_us(const counter_t *counter)
{
    uint32_t  i;
    uint64_t  fresh_us;

    if (kind == 'l') {
        return counter->log.fresh_us;
    }

    for (i = 0, fresh_us = 0; i < counter->in_use; i++) {
        if (counter->leases[i].deadline_us > fresh_us) {
            fresh_us = counter->leases[i].deadline_us;
        }
    }

    return fresh_us;
}


/* A set that is no more must equal a fresh one at the latest time shown. */
static void
check_dropped(uint64_t now, unsigned key, unsigned field)
{
    counter_t *counter = &counters[key][field];

    if (set_pttl(now, key, field) != -2
        || (counter->log.count == 0 && counter->in_use == 0))
    {
        return;
    }

    if (counter_fresh_us(counter) > latest) {
        fail_msg("SEED=%llu step %lu: set %u lost while in use",
                 (unsigned long long) parity.first_seed, parity.step, field);
    }

    memset(&counter->log, 0, sizeof(counter->log));
    counter->in_use = 0;
    seen.dropped++;
}


static void
check_all_dropped(uint64_t now)
{
    for (unsigned key = 0; key < KEYS; key++) {
        for (unsigned field = 0; field < FIELDS; field++) {
            check_dropped(now, key, field);
        }
    }
}


/* Each set lives as long as it is of use, and holds what C counts. */
static void
check_sets(const parity_call_t *call, const check_t *checks,
    parity_answer_t *answers)
{
    for (unsigned i = 0; i < call->n; i++) {
        unsigned field = call->args[i].field;
        uint32_t used = (kind == 'l') ? checks[i].counter->log.count
                                      : checks[i].counter->in_use;

        int64_t ms = set_pttl(call->now_us, call->key, field);
        assert_true(ms != -1);
        assert_true(used == 0 || ms >= answers[i][2]);

        model_function("card");
        push_set(call->key, field);
        model_call(1, 1);
        double members = lua_tonumber(parity.lua, -1);
        lua_pop(parity.lua, 1);

        if (members != used) {
            fail_msg("SEED=%llu step %lu: %.0f members, %u counted",
                     (unsigned long long) parity.first_seed, parity.step,
                     members, used);
        }
    }
}


static void
run_sequence(char which)
{
    check_t          checks[PARITY_COUNTERS];
    parity_call_t    call;
    parity_answer_t  answers[PARITY_COUNTERS];

    kind = which;
    parity_start();
    memset(&seen, 0, sizeof(seen));
    memset(counters, 0, sizeof(counters));
    memset(requests, 0, sizeof(requests));

    for (unsigned key = 0; key < KEYS; key++) {
        for (unsigned field = 0; field < FIELDS; field++) {
            random_limit(&counters[key][field]);
        }
    }

    call.now_us = latest = START;

    for ( /* void */ ; parity.step < parity.steps; parity.step++) {
        uint64_t name = names;
        request_t *request = random_call(&call, checks);
        int is_new = (names != name);
        uint64_t next = random_step(call.now_us, &checks[0].counter->limit);

        if (kind == 'c' && next + 900000 < latest) {
            next = latest;
        }

        if (next + 1000000 < latest) {
            check_all_dropped(call.now_us);
            latest = next;
            seen.set_back++;

            for (unsigned i = 0; i < REQUESTS; i++) {
                memset(requests[i].granted, 0, sizeof(requests[i].granted));
            }
        }

        call.now_us = next;
        latest = (next > latest) ? next : latest;

        for (unsigned i = 0; i < call.n; i++) {
            check_dropped(next, call.key, call.args[i].field);
        }

        random_checks(&call, checks, request, is_new);
        run_c(next, request, checks, call.n, answers);
        parity_compare(&call, answers);
        remember(request, &call, checks, answers, is_new);
        check_sets(&call, checks, answers);
    }

    print_message("%c: %lu steps: %llu granted, %llu denied, %llu given back, "
                  "%llu charged, %llu under a name of before, %llu dropped, "
                  "%llu times set back, longest %llu; %.0f ZADD, "
                  "%.0f PEXPIRE\n", kind, parity.steps,
                  (unsigned long long) seen.granted,
                  (unsigned long long) seen.denied,
                  (unsigned long long) seen.given,
                  (unsigned long long) seen.charged,
                  (unsigned long long) seen.again,
                  (unsigned long long) seen.dropped,
                  (unsigned long long) seen.set_back,
                  (unsigned long long) seen.longest,
                  model_total("ZADD"), model_total("PEXPIRE"));

    if (parity.steps >= 10000) {
        assert_true(seen.granted > parity.steps / 10);
        assert_true(seen.denied > parity.steps / 10);
        assert_true(seen.given > parity.steps / 100);
        assert_true(kind == 'c' || seen.topped_up > parity.steps / 1000);
        assert_true(seen.dropped > 0);
    }
}


static void
test_sliding_log(void **state)
{
    /* of 100 sequences, three have no log as long as it shall be once */

    for (unsigned runs = 0; runs < 4 && seen.longest <= 500; runs++) {
        run_sequence('l');
    }

    if (parity.steps >= 10000) {
        assert_true(seen.never > 0 && seen.charged > 0 && seen.set_back > 0);
        assert_true(seen.longest > 500);
        assert_true(model_total("PEXPIRE") < model_total("ZADD") / 2);
    }
}


static void
test_concurrency(void **state)
{
    run_sequence('c');
}
