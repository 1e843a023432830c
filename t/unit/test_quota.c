/* RateLimit-Policy and RateLimit: their items, and how long until there is
   more. */

#include "unit.h"

#include "ngx_rl_limit.h"

#define S  ((uint64_t) 1000000)

/* the key of the SipHash-2-4 of "pk" that is shown, and is not shown itself */
static const u_char  id[] = "\0\1\2\377\376\375abcdefghij";


/* tokens in seconds; capacity is the algorithm's: capacity, or burst */
static ngx_rl_limit_t
limit_of(ngx_rl_algorithm_e algorithm, uint64_t tokens, uint64_t seconds,
    uint64_t capacity)
{
    ngx_rl_limit_t  limit;

    ngx_rl_spec_t spec = { 0 };

    spec.algorithm = algorithm;
    spec.tokens = tokens;
    spec.period_us = seconds * S;

    if (algorithm == NGX_RL_LEAKY_BUCKET) {
        spec.burst = capacity;

    } else {
        spec.capacity = capacity;
    }

    assert_null(ngx_rl_limit_init(&limit, &spec));

    return limit;
}


static void
assert_policy(ngx_rl_limit_t limit, const char *expected)
{
    u_char   text[NGX_RL_QUOTA_BYTES], *last;

    last = ngx_rl_quota_policy(text, &limit);

    assert_int_equal(last - text, strlen(expected));
    assert_memory_equal(text, expected, last - text);
}


static void
assert_left(uint32_t remaining, uint64_t more_us, const char *expected)
{
    u_char   text[NGX_RL_QUOTA_BYTES], *last;

    last = ngx_rl_quota_left(text, remaining, more_us);

    assert_int_equal(last - text, strlen(expected));
    assert_memory_equal(text, expected, last - text);
}


static void
assert_words(ngx_rl_limit_t limit, uint64_t tokens, uint64_t seconds)
{
    uint64_t  n, sec;

    ngx_rl_limit_words(&limit, &n, &sec);

    assert_int_equal(n, tokens);
    assert_int_equal(sec, seconds);
}


/* A rate as people write it, where the capacity is a burst. */
static void
test_words(void **state)
{
    assert_words(limit_of(NGX_RL_LEAKY_BUCKET, 10, 1, 20), 10, 1);
    assert_words(limit_of(NGX_RL_LEAKY_BUCKET, 10, 60, 20), 10, 60);
    assert_words(limit_of(NGX_RL_LEAKY_BUCKET, 5, 86400, 0), 5, 86400);
    assert_words(limit_of(NGX_RL_LEAKY_BUCKET, 10, 7, 20), 21, 15);
    assert_words(limit_of(NGX_RL_TOKEN_BUCKET, 3000, 1, 1), 3000, 1);
    assert_words(limit_of(NGX_RL_TOKEN_BUCKET, 30, 60, 11), 11, 22);
    assert_words(limit_of(NGX_RL_FIXED_WINDOW, 7, 60, 0), 7, 60);
}


static void
test_policy(void **state)
{
    assert_policy(limit_of(NGX_RL_TOKEN_BUCKET, 30, 60, 0), ";q=30;w=60");

    /* what it takes to fill it, rounded up: never 0 */

    assert_policy(limit_of(NGX_RL_TOKEN_BUCKET, 30, 60, 11), ";q=11;w=22");
    assert_policy(limit_of(NGX_RL_TOKEN_BUCKET, 1 << 30, 1, 1), ";q=1;w=1");
    assert_policy(limit_of(NGX_RL_LEAKY_BUCKET, 1, 1, 4), ";q=5;w=5");

    /* rates that are rounded, and one that is not */

    assert_policy(limit_of(NGX_RL_TOKEN_BUCKET, 5000011, 1, 0),
                  ";q=5000011;w=1");
    assert_policy(limit_of(NGX_RL_TOKEN_BUCKET, 99999999, 3600, 0),
                  ";q=99999999;w=3600");
    assert_policy(limit_of(NGX_RL_TOKEN_BUCKET, 1000000007, 7, 0),
                  ";q=1000000007;w=7");
    assert_policy(limit_of(NGX_RL_TOKEN_BUCKET, 7, 1, 8), ";q=8;w=2");
    assert_policy(limit_of(NGX_RL_FIXED_WINDOW, 7, 3600, 0), ";q=7;w=3600");

    /* the longest */

    assert_policy(limit_of(NGX_RL_TOKEN_BUCKET, 1, 1, 1 << 30),
                  ";q=1073741824;w=1073741824");
    assert_policy(limit_of(NGX_RL_CONCURRENCY, 1 << 30, 0, 0),
                  ";q=1073741824;qu=\"concurrent-requests\"");
}


static void
test_left(void **state)
{
    u_char  text[NGX_RL_PK_TEXT];

    assert_left(12, 30 * S, ";r=12;t=30");
    assert_left(0, 30 * S + 1, ";r=0;t=31");
    assert_left(5, 0, ";r=5;t=0");
    assert_left(3, NGX_RL_NEVER, ";r=3");
    assert_left(1 << 30, NGX_RL_NEVER - 1, ";r=1073741824;t=18446744073710");

    ngx_rl_quota_pk(text, id);
    assert_memory_equal(text, ";pk=:mHxHJ9AQNq8O:", sizeof(text));
}


static void
test_more(void **state)
{
    ngx_rl_limit_t   part;
    ngx_rl_answer_t  answer;

    ngx_rl_limit_t bucket = limit_of(NGX_RL_TOKEN_BUCKET, 100, 60, 0);
    ngx_rl_limit_t leaky = limit_of(NGX_RL_LEAKY_BUCKET, 1, 2, 9);
    ngx_rl_limit_t window = limit_of(NGX_RL_FIXED_WINDOW, 100, 60, 0);
    ngx_rl_limit_t slots = limit_of(NGX_RL_CONCURRENCY, 5, 0, 0);

    answer.granted = 1;
    answer.remaining = 1;
    answer.reset_us = 59 * S;
    answer.retry_us = 0;

    assert_int_equal(ngx_rl_quota_more_us(&bucket, &answer), 59 * S);
    assert_int_equal(ngx_rl_quota_more_us(&window, &answer), 59 * S);
    assert_true(ngx_rl_quota_more_us(&slots, &answer) == NGX_RL_NEVER);

    /* empty: the next token of a bucket, the end of a window */

    answer.remaining = 0;

    assert_int_equal(ngx_rl_quota_more_us(&window, &answer), 59 * S);

    answer.reset_us = 60 * S;
    assert_int_equal(ngx_rl_quota_more_us(&bucket, &answer), 600000);

    answer.reset_us = 19 * S;
    assert_int_equal(ngx_rl_quota_more_us(&leaky, &answer), 1 * S);

    /* a location's part of it */

    ngx_rl_spec_t own = { 0 };
    own.burst = 4;
    assert_null(ngx_rl_limit_narrow(&leaky, &own, &part));
    answer.reset_us = 9 * S;
    assert_int_equal(ngx_rl_quota_more_us(&part, &answer), 1 * S);

    /* an answer that cannot be */

    answer.reset_us = 1 * S;
    assert_int_equal(ngx_rl_quota_more_us(&bucket, &answer), 1 * S);

    /* denied: the wait; where no wait helps, as if not */

    answer.reset_us = 60 * S;
    answer.retry_us = 7 * S;
    assert_int_equal(ngx_rl_quota_more_us(&bucket, &answer), 7 * S);
    assert_int_equal(ngx_rl_quota_more_us(&window, &answer), 7 * S);

    answer.retry_us = NGX_RL_NEVER;
    answer.remaining = 3;
    assert_int_equal(ngx_rl_quota_more_us(&bucket, &answer), 60 * S);
}


/* What an empty bucket says is what it then tells a client that comes. */
static void
test_more_is_retry(void **state)
{
    ngx_rl_answer_t  answer;

    static const uint64_t  limits[][3] = {
        { 100, 60, 100 }, { 7, 3, 5 }, { 3, 1, 1 }, { 1000003, 86400, 999 },
            { 1 << 30, 1, 1000 }, { 1, 31622400, 30 }
    };

    for (unsigned i = 0; i < COUNT(limits); i++) {
        ngx_rl_limit_t limit = limit_of(NGX_RL_TOKEN_BUCKET, limits[i][0],
                                        limits[i][1], limits[i][2]);

        ngx_rl_token_bucket_t tb = { 0 };
        uint64_t now = 1700000000 * S;

        ngx_rl_token_bucket_take(&tb, &limit.rate, now, limit.capacity,
                                 0, &answer);

        for (unsigned n = 0; n < 100; n++) {
            assert_int_equal(answer.remaining, 0);

            uint64_t more = ngx_rl_quota_more_us(&limit, &answer);
            assert_true(more > 0);

            ngx_rl_token_bucket_take(&tb, &limit.rate, now, 1, 0, &answer);
            assert_int_equal(answer.granted, 0);

            /* both are rounded, by less than a microsecond each */

            assert_in_range(answer.retry_us + 2, more, more + 4);

            now += more + 2;
            ngx_rl_token_bucket_take(&tb, &limit.rate, now, 0,
                                     NGX_RL_MAX_TOKENS, &answer);
            assert_true(answer.granted >= 1);
        }
    }
}
