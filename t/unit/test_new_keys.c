/*
 * New values of a key: what a network may bring, how long a value is known, and
 * that a value takes one token, whichever processes see it and die.
 */

#include "local.h"

#include <sched.h>
#include <stdatomic.h>

#define NET   "network:192.0.2.0/24"
#define DAY   ((ngx_msec_t) 86400000)

static local_t         local;
static ngx_rl_limit_t  new_keys;

/* of other notes than these */
const ngx_rl_backend_t  ngx_rl_strict;


void
ngx_rl_leased_learn(ngx_rl_counter_t *counter, uint64_t asked_us,
    ngx_uint_t answered)
{
    (void) counter;
    (void) asked_us;
    (void) answered;
}


static void
make(uint64_t tokens, uint64_t seconds)
{
    uint64_t         secret[sizeof(ngx_rl_hash_key_t) / 8];

    local_make(&local, MIB, NGX_RL_TOKEN_BUCKET, tokens, seconds);

    for (size_t i = 0; i < COUNT(secret); i++) {
        secret[i] = mix(i);
    }

    ngx_rl_table_t *table = local.map.table;
    memcpy(&table->hash_key, secret, sizeof(secret));

    local.rule.key_salt = key(1);
    new_keys = local.limit;
    local.limiter.new_keys = &new_keys;
}


static ngx_rl_client_t
client_of(const char *value)
{
    ngx_rl_client_t client = { 0 };
    client.limiter = &local.limiter;
    client.key.data = (u_char *) value;
    client.key.len = strlen(value);

    return client;
}


static ngx_uint_t
known(const char *value, ngx_uint_t look)
{
    ngx_rl_client_t client = client_of(value);

    return ngx_rl_key_known(&client, &local.rule, look);
}


/* If the network takes the value's place, it has all of it. */
static ngx_uint_t
admit(const char *value, const char *network, ngx_uint_t look)
{
    ngx_str_t  text;

    text.data = (u_char *) network;
    text.len = strlen(network);

    ngx_rl_client_t client = client_of(value);
    ngx_uint_t own = ngx_rl_key_admit(&client, &local.rule, &text, look);

    ngx_rl_client_t want = client_of(own ? value : network);
    assert_ptr_equal(client.key.data, want.key.data);
    assert_int_equal(client.key.len, want.key.len);

    ngx_rl_id_t id = *ngx_rl_client_local(&client);
    assert_memory_equal(&id, ngx_rl_client_local(&want), sizeof(id));

    return own;
}


static const char *
numbered(ngx_uint_t n)
{
    static char  text[32];

    snprintf(text, sizeof(text), "value %u", (unsigned) n);

    return text;
}


static void
test_values(void **state)
{
    make(2, 3600);

    assert_false(known("a", 0));
    assert_true(admit("a", NET, 1));
    assert_false(known("a", 0));

    assert_true(admit("a", NET, 0));
    assert_true(known("a", 0));
    assert_true(admit("a", NET, 0));
    assert_true(admit("b", NET, 0));
    assert_true(admit("b", NET, 0));

    assert_false(admit("c", NET, 1));
    assert_false(admit("c", NET, 0));
    assert_false(known("c", 0));
    assert_true(admit("c", "network:unix:", 0));

    /* of another key */

    local.rule.key_salt = key(2);
    assert_false(known("a", 0));
    assert_true(admit("a", NET, 0));
    assert_true(admit("b", NET, 0));
    assert_false(admit("d", NET, 0));

    local_free(&local);
}


static void
test_time(void **state)
{
    make(1, 3600);

    assert_true(admit("a", NET, 0));
    assert_false(admit("b", NET, 0));

    ngx_current_msec += 3600000 - 1;
    assert_false(admit("b", NET, 0));
    ngx_current_msec++;
    assert_true(admit("b", NET, 1));
    assert_true(admit("b", NET, 0));

    /* a look makes nothing last longer */

    ngx_current_msec += DAY - 1;
    assert_true(known("b", 1));
    ngx_current_msec++;
    assert_false(known("b", 1));

    assert_true(admit("b", NET, 0));
    ngx_current_msec += DAY - 1;
    assert_true(known("b", 0));
    ngx_current_msec += DAY - 1;
    assert_true(known("b", 0));

    /* another rate: what is used stays so */

    assert_true(admit("c", NET, 0));
    assert_false(admit("d", NET, 0));
    local_limit(&local, NGX_RL_TOKEN_BUCKET, 10, 60);
    new_keys = local.limit;
    assert_false(admit("d", NET, 0));
    ngx_current_msec += 60000;
    assert_true(admit("d", NET, 0));

    local_free(&local);
}


/* Two workers see each value at once. */
static void
test_processes(void **state)
{
    enum { VALUES = 5000, WORKERS = 2 };

    int          i;
    pid_t        pids[WORKERS];
    ngx_uint_t   n;
    atomic_int  *seen;

    seen = mmap(NULL, sizeof(atomic_int), PROT_READ|PROT_WRITE,
                MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(seen, MAP_FAILED);

    make(VALUES, 86400);

    for (i = 0; i < WORKERS; i++) {
        pids[i] = spawn();

        if (pids[i] == 0) {
            for (n = 0; n < VALUES; n++) {
                atomic_fetch_add(seen, 1);

                while (atomic_load(seen) < (int) (n + 1) * WORKERS) {
                    sched_yield();
                }

                if (!known(numbered(n), 0) && !admit(numbered(n), NET, 0)) {
                    _exit(1);
                }
            }

            _exit(0);
        }
    }

    for (i = 0; i < WORKERS; i++) {
        reap(pids[i], 0);
    }

    assert_false(admit("one more", NET, 0));
    munmap(seen, sizeof(atomic_int));
    local_free(&local);
}


/*
 * A killed worker costs the network a token, or empties its bucket, as it may
 * any counter. Nothing stays locked.
 */
static void
test_killed(void **state)
{
    int         at, steps, stride;
    ngx_uint_t  i, n;

    steps = stride = at = 0;

    do {
        make(3, 86400);
        assert_true(admit("a", NET, 0));

        pid_t pid = spawn();

        if (pid == 0) {
            step_begin();
            (void) admit("b", NET, 0);
            step_end();
        }

        if (steps == 0) {
            steps = step_kill(pid, 1000000, NULL, NULL);
            stride = step_choose(steps, &at);
            assert_true(known("b", 0));

        } else {
            (void) step_kill(pid, at, NULL, NULL);
            at += stride;
        }

        assert_true(known("a", 0));
        assert_true(admit("b", NET, 0));

        for (n = 1, i = 0; i < 10; i++) {
            n += admit(numbered(i), NET, 0);
        }

        assert_in_range(n, 1, 3);

        local_free(&local);

    } while (at < steps);
}
