/* HMAC-SHA256 against the vectors of RFC 4231. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "ngx_ratelimit_redis.h"


typedef struct {
    size_t       key_len;
    size_t       data_len;
    u_char       key[131];
    u_char       data[152];
    const char  *hmac;        /* in hexadecimal, maybe cut off */
} test_vector_t;


static u_char  memory[1024] __attribute__((aligned(16)));


/* nginx's allocator: one block is enough here */

void *
ngx_palloc(ngx_pool_t *pool, size_t size)
{
    (void) pool;

    return size <= sizeof(memory) ? memory : NULL;
}


void
ngx_explicit_memzero(void *buf, size_t n)
{
    memset(buf, 0, n);
}


static void
check(const test_vector_t *vector)
{
    char                   hex[2 * NGX_RATELIMIT_REDIS_DIGEST + 1];
    u_char                 digest[NGX_RATELIMIT_REDIS_DIGEST];
    size_t                 i, round;
    ngx_ratelimit_redis_t  redis;

    memset(&redis, 0, sizeof(redis));

    redis.secret.data = (u_char *) vector->key;
    redis.secret.len = vector->key_len;

    assert_int_equal(ngx_ratelimit_redis_prepare(&redis, NULL), NGX_OK);

    /* the second digest starts from the same prepared state */

    for (round = 0; round < 2; round++) {
        ngx_ratelimit_redis_digest(&redis, vector->data, vector->data_len,
                                   digest);

        for (i = 0; i < sizeof(digest); i++) {
            sprintf(hex + 2 * i, "%02x", digest[i]);
        }

        assert_memory_equal(hex, vector->hmac, strlen(vector->hmac));
    }
}


static void
test_rfc4231(void **state)
{
    size_t  i;

    static test_vector_t  vectors[] = {
        { 20, 8, "", "Hi There",
          "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7" },
        { 4, 28, "Jefe", "what do ya want for nothing?",
          "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843" },
        { 20, 50, "", "",
          "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe" },
        { 25, 50, "", "",
          "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b" },
        { 20, 20, "", "Test With Truncation",
          "a3b6167473100ee06e0c796c2955552b" },
        { 131, 54, "",
          "Test Using Larger Than Block-Size Key - Hash Key First",
          "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54" },
        { 131, 152, "",
          "This is a test using a larger than block-size key and a larger "
          "than block-size data. The key needs to be hashed before being "
          "used by the HMAC algorithm.",
          "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2" }
    };

    memset(vectors[0].key, 0x0b, 20);
    memset(vectors[2].key, 0xaa, 20);
    memset(vectors[2].data, 0xdd, 50);
    memset(vectors[3].data, 0xcd, 50);
    memset(vectors[4].key, 0x0c, 20);
    memset(vectors[5].key, 0xaa, 131);
    memset(vectors[6].key, 0xaa, 131);

    for (i = 0; i < 25; i++) {
        vectors[3].key[i] = (u_char) (i + 1);
    }

    for (i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        check(&vectors[i]);
    }
}


/* A key of exactly one block is used as it is, one byte more is hashed. */

static void
test_block(void **state)
{
    static test_vector_t  vectors[] = {
        { 64, 1, "", "x",
          "f91c4c403625fb06910ef93999265bbd2d62baeaec6ff36455498cc124fe3e66" },
        { 65, 1, "", "x",
          "75092ca3ee2b307470c227697b42b3e65376aa3bae98fb5a1f7b7536daa9588a" },
        { 0, 0, "", "",
          "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad" }
    };

    memset(vectors[0].key, 'k', 64);
    memset(vectors[1].key, 'k', 65);

    check(&vectors[0]);
    check(&vectors[1]);
    check(&vectors[2]);
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_rfc4231),
        cmocka_unit_test(test_block)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
