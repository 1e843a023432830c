/*
 * Any text as a JWK Set, or as a key in PEM. Each key of it can verify, and has
 * one algorithm.
 */

#include "../../src/http/key/ngx_rl_jwks_json.c"

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
    const char        *expected, *alg;
    ngx_rl_jwk_t      *key;
    ngx_rl_jwks_t     *keys;
    static ngx_str_t   content = ngx_string("content");
    static ngx_str_t   signature = ngx_string("signature");

    /* exact, so that overruns are seen */
    copy = malloc(size + 1);
    assert_non_null(copy);
    memcpy(copy, data, size);

    text.data = copy;
    text.len = size;
    keys = NULL;

    expected = ngx_rl_jwks_read(&text, &keys);

    assert_true((keys == NULL) == (expected != NULL));

    for (i = 0; keys && i < keys->nkeys; i++) {
        key = &keys->keys[i];

        assert_non_null(key->alg);

        alg = key->alg->name;
        assert_true((key->pkey == NULL) == (alg[0] == 'H'));
        assert_true((key->secret.len >= 32) == (alg[0] == 'H'));
        assert_string_not_equal(alg, "none");
        assert_false(ngx_rl_jwk_verify(key, &content, &signature));
    }

    if (keys) {
        assert_in_range(keys->nkeys, 1, NGX_RL_JWT_KEYS);
        ngx_rl_jwks_free(keys);
    }

    free(copy);

    return 0;
}
