/*
 * Hashes against what others publish and compute: SipHash against the
 * reference vectors and OpenSSL, slots against the Redis Cluster specification.
 */

#include "unit.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>

#include "ngx_ratelimit_hash.h"


static void
id_bytes(ngx_ratelimit_id_t id, u_char out[16])
{
    unsigned  i;

    for (i = 0; i < 8; i++) {
        out[i] = (u_char) (id.hi >> (8 * i));
        out[i + 8] = (u_char) (id.lo >> (8 * i));
    }
}


static void
test_siphash_vectors(void **state)
{
    u_char    key[16], data[64], out[16];
    unsigned  i;

    /* SipHash-2-4-128 of 00 01 02 .. under the key 00 01 .. 0f */

    static const struct {
        size_t  len;
        u_char  hash[16];
    } vectors[] = {
        { 0,  { 0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6,
                0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93 } },
        { 8,  { 0x3b, 0x62, 0xa9, 0xba, 0x62, 0x58, 0xf5, 0x61,
                0x0f, 0x83, 0xe2, 0x64, 0xf3, 0x14, 0x97, 0xb4 } },
        { 15, { 0x54, 0x93, 0xe9, 0x99, 0x33, 0xb0, 0xa8, 0x11,
                0x7e, 0x08, 0xec, 0x0f, 0x97, 0xcf, 0xc3, 0xd9 } },
        { 62, { 0x58, 0x53, 0x54, 0x23, 0x21, 0xf5, 0x67, 0xa0,
                0x05, 0xd5, 0x47, 0xa4, 0xf0, 0x47, 0x59, 0xbd } },
        { 63, { 0x51, 0x50, 0xd1, 0x77, 0x2f, 0x50, 0x83, 0x4a,
                0x50, 0x3e, 0x06, 0x9a, 0x97, 0x3f, 0xbd, 0x7c } }
    };

    for (i = 0; i < 64; i++) {
        data[i] = (u_char) i;
    }

    memcpy(key, data, 16);

    for (i = 0; i < COUNT(vectors); i++) {
        id_bytes(ngx_ratelimit_siphash(key, data, vectors[i].len, 2, 4), out);
        assert_memory_equal(out, vectors[i].hash, 16);
    }
}


static void
openssl_siphash(EVP_MAC *mac, const u_char *key, const u_char *data, size_t len,
    unsigned c, unsigned d, u_char out[16])
{
    size_t        size, n;
    OSSL_PARAM    params[4];
    EVP_MAC_CTX  *ctx;

    size = 16;
    params[0] = OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &size);
    params[1] = OSSL_PARAM_construct_uint(OSSL_MAC_PARAM_C_ROUNDS, &c);
    params[2] = OSSL_PARAM_construct_uint(OSSL_MAC_PARAM_D_ROUNDS, &d);
    params[3] = OSSL_PARAM_construct_end();

    ctx = EVP_MAC_CTX_new(mac);
    assert_non_null(ctx);
    assert_int_equal(EVP_MAC_init(ctx, key, 16, params), 1);
    assert_int_equal(EVP_MAC_update(ctx, data, len), 1);
    assert_int_equal(EVP_MAC_final(ctx, out, &n, 16), 1);
    assert_int_equal(n, 16);
    EVP_MAC_CTX_free(ctx);
}


static void
test_siphash_openssl(void **state)
{
    u_char     key[16], *data, ours[16], theirs[16];
    size_t     len, i, round;
    EVP_MAC   *mac;
    unsigned   c, d;

    mac = EVP_MAC_fetch(NULL, "SIPHASH", NULL);
    assert_non_null(mac);
    srandom(1);

    for (round = 0; round < 4000; round++) {
        len = round % 200;
        c = (round & 1) ? 1 : 2;
        d = (round & 1) ? 3 : 4;

        /* exactly as long as it says, for the sanitizers */

        data = malloc(len ? len : 1);
        assert_non_null(data);

        for (i = 0; i < len; i++) {
            data[i] = (u_char) random();
        }

        for (i = 0; i < 16; i++) {
            key[i] = (u_char) random();
        }

        id_bytes(ngx_ratelimit_siphash(key, data, len, c, d), ours);
        openssl_siphash(mac, key, data, len, c, d, theirs);
        assert_memory_equal(ours, theirs, 16);
        free(data);
    }

    EVP_MAC_free(mac);
}


static unsigned
slot(const char *key)
{
    return ngx_ratelimit_cluster_slot((const u_char *) key, strlen(key));
}


static void
test_slot_vectors(void **state)
{
    assert_int_equal(slot("123456789"), 0x31c3 & 16383);
    assert_int_equal(slot(""), 0);

    /* as CLUSTER KEYSLOT answers */

    assert_int_equal(slot("foo"), 12182);
    assert_int_equal(slot("bar"), 5061);
}


static void
test_slot_tags(void **state)
{
    assert_int_equal(slot("{user1000}.following"), slot("user1000"));
    assert_int_equal(slot("rl:{17}"), slot("17"));
    assert_int_equal(slot("foo{{bar}}zap"), slot("{bar"));
    assert_int_equal(slot("foo{bar}{zap}"), slot("bar"));
    assert_int_equal(slot("}{a}"), slot("a"));

    /* no tag: the whole key counts */

    assert_int_not_equal(slot("foo{}{bar}"), slot("bar"));
    assert_int_not_equal(slot("foo{}{bar}"), slot(""));
    assert_int_equal(slot("foo{}{bar}"), 8363);
    assert_int_not_equal(slot("{a"), slot("a"));
    assert_int_not_equal(slot("a}"), slot("a"));
    assert_int_not_equal(slot("{"), slot(""));
}


/* The table of half bytes against the polynomial, bit by bit. */

static void
test_slot_bitwise(void **state)
{
    u_char    key[40];
    size_t    len, i;
    unsigned  round, crc, bit;

    srandom(2);

    for (round = 0; round < 4000; round++) {
        len = round % sizeof(key);
        crc = 0;

        for (i = 0; i < len; i++) {
            do {
                key[i] = (u_char) random();
            } while (key[i] == '{');

            crc ^= (unsigned) key[i] << 8;

            for (bit = 0; bit < 8; bit++) {
                crc = (crc & 0x8000) ? (crc << 1 ^ 0x1021) & 0xffff : crc << 1;
            }
        }

        assert_int_equal(ngx_ratelimit_cluster_slot(key, len), crc & 16383);
    }
}


int
main(void)
{
    const struct CMUnitTest  tests[] = {
        cmocka_unit_test(test_siphash_vectors),
        cmocka_unit_test(test_siphash_openssl),
        cmocka_unit_test(test_slot_vectors),
        cmocka_unit_test(test_slot_tags),
        cmocka_unit_test(test_slot_bitwise),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
