/*
 * Hashes against what others publish and compute: SipHash against the
 * reference vectors and OpenSSL, slots against the Redis Cluster specification.
 * The hash that names counters has the promises of its header: keys of any
 * structure get ids of their own, spread evenly over what the table uses.
 */

#include "unit.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>

#include "ngx_rl_hash.h"


static void
id_bytes(ngx_rl_id_t id, u_char out[16])
{
    for (unsigned i = 0; i < 8; i++) {
        out[i] = (u_char) (id.hi >> (8 * i));
        out[i + 8] = (u_char) (id.lo >> (8 * i));
    }
}


static void
test_siphash_vectors(void **state)
{
    u_char    key[16], data[64], out[16];

    /* SipHash-2-4-128 of 00 01 02 .. under the key 00 01 .. 0f */

    static const struct {
        size_t  len;
        u_char  hash[16];
    } vectors[] = {
        { 0,  { 0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6,
            0x72, 0x14, 0xc7, 0x55, 0x02, 0x93 } }, { 8,  { 0x3b, 0x62, 0xa9,
            0xba, 0x62, 0x58, 0xf5, 0x61, 0x0f, 0x83, 0xe2, 0x64, 0xf3, 0x14,
            0x97, 0xb4 } }, { 15, { 0x54, 0x93, 0xe9, 0x99, 0x33, 0xb0, 0xa8,
            0x11, 0x7e, 0x08, 0xec, 0x0f, 0x97, 0xcf, 0xc3, 0xd9 } }, { 62,
            { 0x58, 0x53, 0x54, 0x23, 0x21, 0xf5, 0x67, 0xa0, 0x05, 0xd5, 0x47,
            0xa4, 0xf0, 0x47, 0x59, 0xbd } }, { 63, { 0x51, 0x50, 0xd1, 0x77,
            0x2f, 0x50, 0x83, 0x4a, 0x50, 0x3e, 0x06, 0x9a, 0x97, 0x3f, 0xbd,
            0x7c } }
    };

    for (unsigned i = 0; i < 64; i++) {
        data[i] = (u_char) i;
    }

    memcpy(key, data, 16);

    for (unsigned i = 0; i < COUNT(vectors); i++) {
        id_bytes(ngx_rl_siphash(key, data, vectors[i].len, 2, 4), out);
        assert_memory_equal(out, vectors[i].hash, 16);
    }
}


static void
openssl_siphash(EVP_MAC *mac, const u_char *key, const u_char *data, size_t len,
    unsigned c, unsigned d, u_char out[16])
{
    size_t        n;
    OSSL_PARAM    params[4];

    size_t size = 16;
    params[0] = OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &size);
    params[1] = OSSL_PARAM_construct_uint(OSSL_MAC_PARAM_C_ROUNDS, &c);
    params[2] = OSSL_PARAM_construct_uint(OSSL_MAC_PARAM_D_ROUNDS, &d);
    params[3] = OSSL_PARAM_construct_end();

    EVP_MAC_CTX *ctx = EVP_MAC_CTX_new(mac);
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

    EVP_MAC *mac = EVP_MAC_fetch(NULL, "SIPHASH", NULL);
    assert_non_null(mac);
    srandom(1);

    for (size_t round = 0; round < 4000; round++) {
        size_t len = round % 200;
        unsigned c = (round & 1) ? 1 : 2;
        unsigned d = (round & 1) ? 3 : 4;

        /* exactly as long as it says, for the sanitizers */

        data = malloc(len ? len : 1);
        assert_non_null(data);

        for (size_t i = 0; i < len; i++) {
            data[i] = (u_char) random();
        }

        for (size_t i = 0; i < 16; i++) {
            key[i] = (u_char) random();
        }

        id_bytes(ngx_rl_siphash(key, data, len, c, d), ours);
        openssl_siphash(mac, key, data, len, c, d, theirs);
        assert_memory_equal(ours, theirs, 16);
        free(data);
    }

    EVP_MAC_free(mac);
}


#define IDS      65536
#define SECRETS  4

static ngx_rl_hash_key_t  secret;
static ngx_rl_id_t        ids[IDS];
static size_t                    nids;


static void
secret_draw(unsigned seed)
{
    srandom(seed);

    for (size_t i = 0; i < sizeof(secret); i++) {
        u_char byte = (u_char) (random() >> 7);
        memcpy((u_char *) &secret + i, &byte, 1);
    }
}


/* Copies the data to a block of its length, so that sanitizers see its end. */
static void
id_add(const void *data, size_t len)
{
    u_char *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, data, len);
    assert_true(nids < IDS);
    ids[nids++] = ngx_rl_hash(&secret, copy, len);
    free(copy);
}


static int
id_cmp(const void *one, const void *two)
{
    const ngx_rl_id_t  *a = one, *b = two;

    if (a->hi != b->hi) {
        return a->hi < b->hi ? -1 : 1;
    }

    return a->lo < b->lo ? -1 : a->lo > b->lo;
}


static void
ids_differ(void)
{
    qsort(ids, nids, sizeof(ids[0]), id_cmp);

    for (size_t i = 1; i < nids; i++) {
        assert_int_not_equal(id_cmp(&ids[i - 1], &ids[i]), 0);
    }

    nids = 0;
}


static void
test_hash_lengths(void **state)
{
    u_char    data[260], byte;

    static const u_char  bytes[] = { 0, 1, 'a', 0x80, 0xff };

    /* also a key and the same with a byte more: each is the start of all */

    for (unsigned n = 0; n < SECRETS * COUNT(bytes); n++) {
        secret_draw(n);
        byte = bytes[n % COUNT(bytes)];
        memset(data, byte, sizeof(data));

        for (size_t len = 0; len <= sizeof(data); len++) {
            id_add(data, len);
        }

        ids_differ();
    }
}


static void
test_hash_bits(void **state)
{
    u_char    data[260];

    static const size_t  lens[] = { 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24,
        31, 32, 33, 40, 64, 100, 255, 256, 257 };

    memset(data, '0', sizeof(data));

    for (unsigned n = 0; n < SECRETS; n++) {
        secret_draw(n);

        for (size_t len = 0; len < COUNT(lens); len++) {
            id_add(data, lens[len]);

            for (size_t bit = 0; bit < 8 * lens[len]; bit++) {
                data[bit / 8] ^= 1 << bit % 8;
                id_add(data, lens[len]);
                data[bit / 8] ^= 1 << bit % 8;
            }
        }

        ids_differ();
    }
}


/* Every word has a secret of its own. */
static void
test_hash_swapped(void **state)
{
    u_char    data[256], word[8];

    for (unsigned n = 0; n < SECRETS; n++) {
        secret_draw(n);

        for (size_t i = 0; i < sizeof(data); i++) {
            data[i] = (u_char) (i / 8);
        }

        id_add(data, sizeof(data));

        for (size_t i = 0; i < sizeof(data); i += 8) {
            for (size_t j = 0; j < i; j += 8) {
                memcpy(word, data + i, 8);
                memcpy(data + i, data + j, 8);
                memcpy(data + j, word, 8);
                id_add(data, sizeof(data));
                memcpy(data + j, data + i, 8);
                memcpy(data + i, word, 8);
            }
        }

        ids_differ();
    }
}


static void
test_hash_long(void **state)
{
    u_char       data[NGX_RL_HASH_BYTES + 1];

    secret_draw(1);
    memset(data, 'a', sizeof(data));

    ngx_rl_id_t id = ngx_rl_hash(&secret, data, sizeof(data));
    ngx_rl_id_t sip = ngx_rl_siphash(secret.sip, data, sizeof(data), 1, 3);
    assert_int_equal(id_cmp(&id, &sip), 0);

    id = ngx_rl_hash(&secret, data, sizeof(data) - 1);
    sip = ngx_rl_siphash(secret.sip, data, sizeof(data) - 1, 1, 3);
    assert_int_not_equal(id_cmp(&id, &sip), 0);
}


/* The n-th key of a family. */
static size_t
family_key(unsigned family, uint64_t n, u_char *key)
{
    switch (family) {

    case 0: /* what clients look like */
        return sprintf((char *) key, "sk_live_%024u", (unsigned) n);

    case 1: /* IPv4 addresses of a network */
        memcpy(key, "\x0a\x00", 2);
        key[2] = (u_char) (n >> 8);
        key[3] = (u_char) n;
        return 4;

    case 2: /* in the last bytes of an IPv6 address */
        memset(key, 0, 16);
        key[14] = (u_char) (n >> 8);
        key[15] = (u_char) n;
        return 16;

    case 3: /* in the highest bits of a word, in the second block */
        memset(key, 'x', 40);
        key[23] = (u_char) (n >> 8);
        key[22] = (u_char) n;
        return 40;

    case 4: /* in two words of one product */
        memset(key, 0, 16);
        key[0] = (u_char) n;
        key[8] = (u_char) (n >> 8);
        return 16;

    case 5: /* in the first and the last word of a long one */
        memset(key, '.', 256);
        key[0] = (u_char) n;
        key[255] = (u_char) (n >> 8);
        return 256;

    case 6: /* steps of a power of two */
        memset(key, 0, 24);
        n <<= 48;
        memcpy(key + 8, &n, 8);
        return 24;

    default: /* two short parts */
        return sprintf((char *) key, "%u/%u", (unsigned) n >> 8,
                       (unsigned) n & 255);
    }
}


/*
 * Chi-square of 256 cells: 255 on average with a standard deviation of 22.6.
 * About 14,000 are taken here, always the same.
 */
static void
assert_even(const unsigned cells[256])
{
    double sum = 0;
    double expected = IDS / 256;

    for (unsigned i = 0; i < 256; i++) {
        sum += (cells[i] - expected) * (cells[i] - expected) / expected;
    }

    assert_true(sum < 255 + 6 * 22.6);
    assert_true(sum > 255 - 6 * 22.6);
}


/* Any 8 bits of an id, also of two together: rules XOR their salts to it. */
static void
test_hash_even(void **state)
{
    u_char    key[260];
    unsigned  n, family, shift, apart, i, cells[4][256];

    static const unsigned  distances[] = { 0, 1, 2, 255, 256 };

    for (n = 0; n < SECRETS; n++) {
        secret_draw(n);

        for (family = 0; family < 8; family++) {
            for (nids = 0; nids < IDS; /* void */ ) {
                id_add(key, family_key(family, nids, key));
            }

            for (apart = 0; apart < COUNT(distances); apart++) {
                for (shift = 0; shift <= 56; shift += 4) {
                    memset(cells, 0, sizeof(cells));

                    for (i = 0; i < IDS; i++) {
                        uint64_t hi = ids[i].hi;
                        uint64_t lo = ids[i].lo;

                        if (apart) {
                            hi ^= ids[(i + distances[apart]) % IDS].hi;
                            lo ^= ids[(i + distances[apart]) % IDS].lo;
                        }

                        cells[0][hi >> shift & 255]++;
                        cells[1][lo >> shift & 255]++;
                        cells[2][(hi ^ lo) >> shift & 255]++;
                        cells[3][(hi + lo) >> shift & 255]++;
                    }

                    for (i = 0; i < 4; i++) {
                        assert_even(cells[i]);
                    }
                }
            }

            ids_differ();
        }
    }
}


static unsigned
slot(const char *key)
{
    return ngx_rl_cluster_slot((const u_char *) key, strlen(key));
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

    srandom(2);

    for (unsigned round = 0; round < 4000; round++) {
        size_t len = round % sizeof(key);
        unsigned crc = 0;

        for (size_t i = 0; i < len; i++) {
            do {
                key[i] = (u_char) random();
            } while (key[i] == '{');

            crc ^= (unsigned) key[i] << 8;

            for (unsigned bit = 0; bit < 8; bit++) {
                crc = (crc & 0x8000) ? (crc << 1 ^ 0x1021) & 0xffff : crc << 1;
            }
        }

        assert_int_equal(ngx_rl_cluster_slot(key, len), crc & 16383);
    }
}
