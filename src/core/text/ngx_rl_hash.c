/*
 * A universal hash, SipHash with 128 bits out, and the CRC16 of Redis Cluster.
 */

#include "ngx_rl_hash.h"


typedef unsigned __int128  ngx_rl_hash_wide_t;

typedef struct {
    uint64_t  v0;
    uint64_t  v1;
    uint64_t  v2;
    uint64_t  v3;
} ngx_rl_sip_t;


#define ngx_rl_rotl(x, n)  ((x) << (n) | (x) >> (64 - (n)))

/* CRC16 of each half byte: polynomial 0x1021, initial value 0 (XMODEM) */
static const uint16_t  ngx_rl_crc16_table[16] = {
    0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
    0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef
};


/* SipHash reads little-endian words */

static inline uint64_t
ngx_rl_word(const u_char *p)
{
    uint64_t  word;

    memcpy(&word, p, sizeof(word));

#if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)
    word = __builtin_bswap64(word);
#endif

    return word;
}


static inline void
ngx_rl_sip_round(ngx_rl_sip_t *s)
{
    s->v0 += s->v1;
    s->v2 += s->v3;
    s->v1 = ngx_rl_rotl(s->v1, 13) ^ s->v0;
    s->v3 = ngx_rl_rotl(s->v3, 16) ^ s->v2;
    s->v0 = ngx_rl_rotl(s->v0, 32);

    s->v2 += s->v1;
    s->v0 += s->v3;
    s->v1 = ngx_rl_rotl(s->v1, 17) ^ s->v2;
    s->v3 = ngx_rl_rotl(s->v3, 21) ^ s->v0;
    s->v2 = ngx_rl_rotl(s->v2, 32);
}


/* n from 1 to 4; where that is a constant, without a loop */
static inline void
ngx_rl_sip_rounds(ngx_rl_sip_t *s, unsigned n)
{
    if (n > 3) {
        ngx_rl_sip_round(s);
    }

    if (n > 2) {
        ngx_rl_sip_round(s);
    }

    if (n > 1) {
        ngx_rl_sip_round(s);
    }

    ngx_rl_sip_round(s);
}


static inline void
ngx_rl_sip_absorb(ngx_rl_sip_t *s, uint64_t m, unsigned c)
{
    s->v3 ^= m;
    ngx_rl_sip_rounds(s, c);
    s->v0 ^= m;
}


static inline ngx_rl_id_t
ngx_rl_sip(const u_char *key, const u_char *data, size_t len, unsigned c,
    unsigned d)
{
    size_t         i;
    uint64_t       k0, k1, tail;
    const u_char  *p, *last;
    ngx_rl_id_t    id;
    ngx_rl_sip_t   s;

    k0 = ngx_rl_word(key);
    k1 = ngx_rl_word(key + 8);

    /* the paper's constants, "somepseudorandomlygeneratedbytes" */

    s.v0 = k0 ^ 0x736f6d6570736575;
    s.v1 = k1 ^ 0x646f72616e646f6d ^ 0xee;
    s.v2 = k0 ^ 0x6c7967656e657261;
    s.v3 = k1 ^ 0x7465646279746573;

    last = data + (len & ~(size_t) 7);

    for (p = data; p != last; p += 8) {
        ngx_rl_sip_absorb(&s, ngx_rl_word(p), c);
    }

    tail = (uint64_t) len << 56;

    if (len > 8 && (len & 7)) {
        tail |= ngx_rl_word(data + len - 8) >> (64 - 8 * (len & 7));

    } else {
        for (i = 0; i < (len & 7); i++) {
            tail |= (uint64_t) p[i] << (8 * i);
        }
    }

    ngx_rl_sip_absorb(&s, tail, c);

    s.v2 ^= 0xee;
    ngx_rl_sip_rounds(&s, d);
    id.hi = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;

    s.v1 ^= 0xdd;
    ngx_rl_sip_rounds(&s, d);
    id.lo = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;

    return id;
}


ngx_rl_id_t
ngx_rl_siphash(const u_char *key, const u_char *data, size_t len, unsigned c,
    unsigned d)
{
    /* constants, so that the compiler unrolls the rounds that are served */

    if (c == 1 && d == 3) {
        return ngx_rl_sip(key, data, len, 1, 3);
    }

    if (c == 2 && d == 4) {
        return ngx_rl_sip(key, data, len, 2, 4);
    }

    return ngx_rl_sip(key, data, len, c, d);
}


/* A term of NH. */
static inline ngx_rl_hash_wide_t
ngx_rl_hash_product(uint64_t one, uint64_t two, const uint64_t *words)
{
    return (ngx_rl_hash_wide_t) (one + words[0]) * (two + words[1]);
}


static inline uint64_t
ngx_rl_hash_half(const u_char *p)
{
    uint32_t  half;

    memcpy(&half, p, sizeof(half));

    return half;
}


/* The function of a Feistel round. */
static inline uint64_t
ngx_rl_hash_fold(uint64_t word, uint64_t mix)
{
    ngx_rl_hash_wide_t  product;

    product = (ngx_rl_hash_wide_t) word * mix;

    return (uint64_t) (product >> 64) ^ (uint64_t) product;
}


ngx_rl_id_t
ngx_rl_hash(const ngx_rl_hash_key_t *key, const u_char *data, size_t len)
{
    uint64_t             one, two;
    const u_char        *last;
    const uint64_t      *words;
    ngx_rl_id_t          id;
    ngx_rl_hash_wide_t   sum;

    if (len > NGX_RL_HASH_BYTES) {
        return ngx_rl_siphash(key->sip, data, len, 1, 3);
    }

    /* inputs of several lengths may be the same words: "a" and "aa" */

    sum = ((ngx_rl_hash_wide_t) key->start[0] << 64 | key->start[1]) + len;

    if (len > 16) {
        words = key->words;
        last = data + len - 16;

        do {
            words += 2;
            sum += ngx_rl_hash_product(ngx_rl_word(data), ngx_rl_word(data + 8),
                                       words);
            data += 16;
        } while (data < last);

        /* the last words may begin in those before them */

        one = ngx_rl_word(last);
        two = ngx_rl_word(last + 8);

    } else if (len >= 8) {
        one = ngx_rl_word(data);
        two = ngx_rl_word(data + len - 8);

    } else if (len >= 4) {
        one = ngx_rl_hash_half(data);
        two = ngx_rl_hash_half(data + len - 4);

    } else if (len) {
        one = (uint64_t) data[0] << 16 | data[len / 2] << 8 | data[len - 1];
        two = 0;

    } else {
        one = 0;
        two = 0;
    }

    sum += ngx_rl_hash_product(one, two, key->words);

    id.hi = (uint64_t) (sum >> 64);
    id.lo = (uint64_t) sum;

    id.hi ^= ngx_rl_hash_fold(id.lo, key->mix[0]);
    id.lo ^= ngx_rl_hash_fold(id.hi, key->mix[1]);
    id.hi ^= ngx_rl_hash_fold(id.lo, key->mix[2]);

    return id;
}


unsigned
ngx_rl_cluster_slot(const u_char *key, size_t len)
{
    unsigned       crc;
    const u_char  *open, *close, *p, *last;

    p = key;
    last = key + len;

    /* the first "{" with a "}" behind it, unless nothing is between them */

    open = len ? memchr(key, '{', len) : NULL;

    if (open != NULL) {
        open++;
        close = memchr(open, '}', last - open);

        if (close != NULL && close != open) {
            p = open;
            last = close;
        }
    }

    for (crc = 0; p != last; p++) {
        crc = (crc << 4 & 0xffff) ^ ngx_rl_crc16_table[crc >> 12 ^ *p >> 4];
        crc = (crc << 4 & 0xffff) ^ ngx_rl_crc16_table[crc >> 12 ^ (*p & 15)];
    }

    return crc & (NGX_RL_CLUSTER_SLOTS - 1);
}
