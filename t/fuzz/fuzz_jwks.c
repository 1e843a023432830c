/*
 * Any text as a JWK Set. Each key of it can verify, and has one algorithm.
 */

#include "ngx_rl_jwt.h"

#include <setjmp.h>

#include <cmocka.h>

#include "../unit/nginx.h"
#include "jwt.h"


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    u_char            *copy;
    ngx_str_t          text;
    ngx_uint_t         i;
    const char        *expected;
    ngx_rl_jwk_t      *key;
    ngx_rl_jwks_t      keys;
    static ngx_str_t   content = ngx_string("content");
    static ngx_str_t   signature = ngx_string("signature");

    memset(&keys, 0, sizeof(keys));

    copy = malloc(size + 1);
    assert_non_null(copy);
    memcpy(copy, data, size);

    text.data = copy;
    text.len = size;

    expected = ngx_rl_jwks_json(&text, &keys);

    assert_true(keys.nkeys <= NGX_RL_JWT_KEYS);
    assert_true(expected || keys.nkeys);

    for (i = 0; i < keys.nkeys; i++) {
        key = &keys.keys[i];

        assert_non_null(key->alg);
        assert_true((key->pkey == NULL)
                    == (key->secret.len >= NGX_RL_JWT_SECRET));
        assert_false(ngx_rl_jwt_alg_is(key, "none"));
        assert_true(!ngx_rl_jwt_alg_is(key, "HS256") || key->pkey == NULL);
        assert_false(ngx_rl_jwt_alg_verify(key, &content, &signature));
        ngx_rl_jwk_free(key);
    }

    free(copy);

    return 0;
}
