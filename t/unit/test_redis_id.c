/*
 * Names in Redis, which all gateways of a fleet must agree on. The numbers are
 * of openssl: the key is `openssl mac -digest SHA256 -macopt key:<secret> HMAC`
 * of "ratelimit id", cut off, and the id `openssl mac -macopt hexkey:<key>
 * -macopt size:16 SIPHASH`.
 */

#include "unit.h"

#include "ngx_rl_redis.h"


/* as nginx does */

void
ngx_explicit_memzero(void *buf, size_t n)
{
    memset(buf, 0, n);
}


static void
test_id(void **state)
{
    char            hex[2 * sizeof(ngx_rl_id_t) + 1];
    u_char          id[sizeof(ngx_rl_id_t)];

    /* a key of one block of SHA-256, and a longer one, which is hashed */

    static const struct {
        const char  *secret;
        const char  *key;
        const char  *id;
    } vectors[] = {
        { "secret", "", "c1068b21af80fde90eb884cef4889163" },
        { "secret", "alice", "975aa2432d5fc99c6c1c7e5c669aa5e5" },
        { "secret", "what do ya want for nothing?",
          "50f6b7706864469bc44300c7fe328131" },
        { "", "alice", "a5c7ae252289ebda16da35482a646d35" },
        { "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk",
          "alice", "84d62183213781311fc0c1336d1a5bb6" },
        { "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk",
          "alice", "eb9b6d2d7294565d3e072c88693252cb" }
    };

    for (size_t i = 0; i < COUNT(vectors); i++) {
        ngx_rl_redis_t redis = { 0 };

        /* "secret_file" that is not there leaves no text */

        redis.secret.len = strlen(vectors[i].secret);
        redis.secret.data = redis.secret.len ? (u_char *) vectors[i].secret
                                             : NULL;

        assert_int_equal(ngx_rl_redis_prepare(&redis), NGX_OK);

        ngx_rl_id_t hash = ngx_rl_redis_id(&redis, (u_char *) vectors[i].key,
                                           strlen(vectors[i].key));
        memcpy(id, &hash, sizeof(id));

        for (size_t n = 0; n < sizeof(id); n++) {
            sprintf(hex + 2 * n, "%02x", id[n]);
        }

        assert_string_equal(hex, vectors[i].id);
    }
}


static void
test_mask(void **state)
{
    u_char          data[100], other[100], plain[100];

    ngx_str_t name = (ngx_str_t) { 16, (u_char *) "0123456789abcdef" };
    ngx_str_t another = (ngx_str_t) { 16, (u_char *) "0123456789abcdeg" };

    ngx_rl_redis_t redis = { 0 };
    memset(plain, 'x', sizeof(plain));
    memcpy(data, plain, sizeof(data));
    memcpy(other, plain, sizeof(other));

    assert_int_equal(ngx_rl_redis_prepare(&redis), NGX_OK);
    ngx_rl_redis_mask(&redis, &name, data, sizeof(data));
    assert_memory_equal(data, plain, sizeof(data));

    redis.secret = (ngx_str_t) { 6, (u_char *) "secret" };
    assert_int_equal(ngx_rl_redis_prepare(&redis), NGX_OK);
    ngx_rl_redis_mask(&redis, &name, data, sizeof(data));
    ngx_rl_redis_mask(&redis, &another, other, sizeof(other));

    /* no two parts of it are alike */

    assert_memory_not_equal(data, plain, 16);
    assert_memory_not_equal(data, other, 16);
    assert_memory_not_equal(data, data + 16, 16);
    assert_memory_not_equal(data + 16, data + 32, 16);

    ngx_rl_redis_mask(&redis, &name, data, sizeof(data));
    assert_memory_equal(data, plain, sizeof(data));
}


/* openssl mac, three times: of "ratelimit seal", the zone, and the record */
static void
test_seal(void **state)
{
    char            hex[2 * NGX_RL_REDIS_SEAL + 1];
    u_char          seal[NGX_RL_REDIS_SEAL];

    ngx_rl_redis_t redis = { 0 };
    redis.secret = (ngx_str_t) { 6, (u_char *) "secret" };
    ngx_str_t zone = (ngx_str_t) { 3, (u_char *) "api" };
    ngx_str_t record = (ngx_str_t) { 6, (u_char *) "{}\n{}\n" };

    assert_int_equal(ngx_rl_redis_seal(&redis, &zone, &record, seal), NGX_OK);

    for (size_t i = 0; i < sizeof(seal); i++) {
        sprintf(hex + 2 * i, "%02x", seal[i]);
    }

    assert_string_equal(hex, "5cb9a2fc4c52be6c7b6b5ddcd8912f3f"
                        "ab71b98c0b4964bdee8724890606b5db");
}
