/*
 * Messages between gateways. Numbers are little-endian. A record begins with
 * the number of its limit in the message; TOLD_LIMIT is the record of the next
 * limit itself. TOLD_RESET beside the number: the record ends with a reset.
 */

#include "ngx_rl_told.h"

#define NGX_RL_TOLD_MAGIC   "rlpeer\0\5"   /* the version at its end */

#define NGX_RL_TOLD_LIMIT          0xff
#define NGX_RL_TOLD_RESET          0x80
#define NGX_RL_TOLD_LIMIT_BYTES    (1 + 8 + 4 + 4 + 4 + 2 + 1)
#define NGX_RL_TOLD_COUNTER_BYTES  (1 + 16 + 4 + 4)
#define NGX_RL_TOLD_RESET_BYTES    4


static u_char *
ngx_rl_told_put(u_char *p, uint64_t n, unsigned bytes)
{
    for ( /* void */ ; bytes; bytes--, n >>= 8) {
        *p++ = (u_char) n;
    }

    return p;
}


static uint64_t
ngx_rl_told_get(const u_char **p, unsigned bytes)
{
    unsigned  i;
    uint64_t  n;

    for (i = 0, n = 0; i < bytes; i++) {
        n |= (uint64_t) *(*p)++ << 8 * i;
    }

    return n;
}


void
ngx_rl_told_limit(ngx_rl_told_limit_t *told, const ngx_rl_limit_t *limit,
    uint32_t zone)
{
    told->zone = zone;
    told->algorithm = (uint8_t) limit->algorithm;
    told->capacity = limit->capacity;
    told->period_us = limit->window_us;
    told->tokens = 0;
    told->code = (uint16_t) limit->code;
    told->unused = 0;

    if (ngx_rl_limit_is_bucket(limit)) {
        told->capacity = limit->rate.capacity;
        told->period_us = limit->rate.period_us;
        told->tokens = limit->rate.scale;
        told->code = 0;
    }
}


int
ngx_rl_told_limit_read(ngx_rl_limit_t *limit, const ngx_rl_told_limit_t *told)
{
    memset(limit, 0, sizeof(ngx_rl_limit_t));

    limit->algorithm = (ngx_rl_algorithm_e) told->algorithm;
    limit->capacity = told->capacity;
    limit->window_us = told->period_us;
    limit->code = told->code;

    if (told->algorithm > NGX_RL_CONCURRENCY || told->capacity == 0
        || told->capacity > NGX_RL_MAX_TOKENS)
    {
        return -1;
    }

    if (ngx_rl_limit_is_bucket(limit)) {
        limit->window_us = 0;
        return ngx_rl_rate_init(&limit->rate, told->tokens, told->period_us,
                                told->capacity);
    }

    if (limit->algorithm == NGX_RL_CONCURRENCY) {
        return 0;
    }

    return (told->code != 0
            && told->code < (1u << 12)
            && told->period_us >= 1000
            && told->period_us <= NGX_RL_MAX_SPAN_US
            && (limit->algorithm != NGX_RL_SLIDING_LOG
                || told->capacity <= NGX_RL_MAX_LOG)
            && (limit->algorithm != NGX_RL_SLIDING_WINDOW
                || told->period_us / 1000
                   <= NGX_RL_MAX_WEIGHT / told->capacity))
           ? 0 : -1;
}


uint32_t
ngx_rl_told_used(const ngx_rl_limit_t *limit, const ngx_rl_answer_t *answer,
    unsigned up)
{
    unsigned __int128  used;

    if (!ngx_rl_limit_is_bucket(limit)) {
        return limit->capacity - ngx_rl_min(answer->remaining, limit->capacity);
    }

    /* at most two spans, so at most twice the capacity */

    used = answer->reset_us;
    used = (used * limit->rate.scale + (up ? limit->rate.period_us - 1 : 0))
           / limit->rate.period_us;

    return (uint32_t) ngx_rl_min(used, (unsigned __int128) INT32_MAX);
}


int
ngx_rl_told_window(uint64_t window_us, uint64_t told_us, uint64_t own_us)
{
    uint64_t  apart;

    apart = (told_us > own_us) ? told_us - own_us : own_us - told_us;

    return apart < window_us / 2;
}


void
ngx_rl_told_hello(u_char hello[NGX_RL_TOLD_HELLO], uint64_t name,
    const u_char nonce[NGX_RL_TOLD_NONCE])
{
    memcpy(hello, NGX_RL_TOLD_MAGIC, 8);
    memcpy(ngx_rl_told_put(hello + 8, name, 8), nonce, NGX_RL_TOLD_NONCE);
}


uint64_t
ngx_rl_told_hello_name(const u_char hello[NGX_RL_TOLD_HELLO])
{
    const u_char  *p;

    if (memcmp(hello, NGX_RL_TOLD_MAGIC, 8) != 0) {
        return 0;
    }

    p = hello + 8;

    return ngx_rl_told_get(&p, 8);
}


static void
ngx_rl_told_hash(u_char hash[NGX_RL_TOLD_PROOF],
    const u_char key[NGX_RL_TOLD_SECRET], const u_char *data, size_t len)
{
    ngx_rl_id_t  id;

    id = ngx_rl_siphash(key, data, len, 2, 4);

    (void) ngx_rl_told_put(ngx_rl_told_put(hash, id.hi, 8), id.lo, 8);
}


void
ngx_rl_told_prove(u_char proof[NGX_RL_TOLD_PROOF],
    const u_char secret[NGX_RL_TOLD_SECRET], unsigned purpose,
    const u_char first[NGX_RL_TOLD_HELLO],
    const u_char second[NGX_RL_TOLD_HELLO])
{
    u_char  text[1 + 2 * NGX_RL_TOLD_HELLO];

    text[0] = (u_char) purpose;
    memcpy(text + 1, first, NGX_RL_TOLD_HELLO);
    memcpy(text + 1 + NGX_RL_TOLD_HELLO, second, NGX_RL_TOLD_HELLO);

    ngx_rl_told_hash(proof, secret, text, sizeof(text));
}


int
ngx_rl_told_equal(const u_char one[NGX_RL_TOLD_PROOF],
    const u_char two[NGX_RL_TOLD_PROOF])
{
    unsigned  i, different;

    for (i = 0, different = 0; i < NGX_RL_TOLD_PROOF; i++) {
        different |= (unsigned) (one[i] ^ two[i]);
    }

    return different == 0;
}


void
ngx_rl_told_begin(ngx_rl_told_writer_t *writer, u_char *buf, size_t size,
    ngx_rl_told_e kind)
{
    writer->start = buf;
    writer->last = ngx_rl_told_put(buf + 12, kind, 4);
    writer->end = buf + ngx_rl_min(size, (size_t) NGX_RL_TOLD_MOST)
                  - NGX_RL_TOLD_SEAL;
    writer->n = 0;
}


/* The number of a limit in the message: most often, of the last one. */
static unsigned
ngx_rl_told_find(const ngx_rl_told_writer_t *writer,
    const ngx_rl_told_limit_t *limit)
{
    unsigned  i;

    for (i = writer->n; i; i--) {
        if (memcmp(&writer->limits[i - 1], limit, sizeof(*limit)) == 0) {
            return i - 1;
        }
    }

    return writer->n;
}


/* 32 bits of milliseconds are 49 days: longer windows are told in seconds. */
static uint64_t
ngx_rl_told_unit_ms(uint64_t window_us)
{
    return (window_us / 1000 > UINT32_MAX) ? 1000 : 1;
}


int
ngx_rl_told_add(ngx_rl_told_writer_t *writer, const ngx_rl_told_limit_t *limit,
    const ngx_rl_id_t *id, int32_t tokens, uint64_t left_ms, uint32_t reset)
{
    u_char    *p;
    unsigned   i;

    i = ngx_rl_told_find(writer, limit);
    p = writer->last;

    if (i == NGX_RL_TOLD_LIMITS
        || writer->end - p < NGX_RL_TOLD_LIMIT_BYTES
                             + NGX_RL_TOLD_COUNTER_BYTES
                             + NGX_RL_TOLD_RESET_BYTES)
    {
        return -1;
    }

    if (i == writer->n) {
        writer->limits[writer->n++] = *limit;

        *p++ = NGX_RL_TOLD_LIMIT;
        p = ngx_rl_told_put(p, limit->period_us, 8);
        p = ngx_rl_told_put(p, limit->zone, 4);
        p = ngx_rl_told_put(p, limit->tokens, 4);
        p = ngx_rl_told_put(p, limit->capacity, 4);
        p = ngx_rl_told_put(p, limit->code, 2);
        *p++ = limit->algorithm;
    }

    *p++ = (u_char) (i | (reset ? NGX_RL_TOLD_RESET : 0));
    p = ngx_rl_told_put(p, id->hi, 8);
    p = ngx_rl_told_put(p, id->lo, 8);
    p = ngx_rl_told_put(p, (uint32_t) tokens, 4);
    left_ms /= ngx_rl_told_unit_ms(limit->period_us);
    p = ngx_rl_told_put(p, left_ms, 4);
    writer->last = ngx_rl_told_put(p, reset,
                                   reset ? NGX_RL_TOLD_RESET_BYTES : 0);

    return 0;
}


size_t
ngx_rl_told_end(ngx_rl_told_writer_t *writer)
{
    size_t  len;

    len = (size_t) (writer->last - writer->start) + NGX_RL_TOLD_SEAL;
    (void) ngx_rl_told_put(writer->start, len, 4);

    return len;
}


void
ngx_rl_told_age(u_char *message, uint64_t age_ms)
{
    (void) ngx_rl_told_put(message + 13, ngx_rl_min(age_ms, NGX_RL_TOLD_AGE),
                           3);
}


void
ngx_rl_told_seal(u_char *message, size_t len,
    const u_char key[NGX_RL_TOLD_SECRET], uint64_t number)
{
    (void) ngx_rl_told_put(message + 4, number, 8);

    len -= NGX_RL_TOLD_SEAL;
    ngx_rl_told_hash(message + len, key, message, len);
}


ssize_t
ngx_rl_told_length(const u_char *data, size_t n)
{
    uint64_t  len;

    if (n < 4) {
        return 0;
    }

    len = ngx_rl_told_get(&data, 4);

    return (len < NGX_RL_TOLD_LEAST || len > NGX_RL_TOLD_MOST)
           ? -1 : (ssize_t) len;
}


int
ngx_rl_told_open(ngx_rl_told_reader_t *reader, const u_char *message,
    size_t len, const u_char key[NGX_RL_TOLD_SECRET], uint64_t number)
{
    u_char  seal[NGX_RL_TOLD_SEAL];

    len -= NGX_RL_TOLD_SEAL;
    ngx_rl_told_hash(seal, key, message, len);

    reader->p = message + 4;
    reader->end = message + len;
    reader->n = 0;

    if (!ngx_rl_told_equal(seal, message + len)
        || ngx_rl_told_get(&reader->p, 8) != number)
    {
        return -1;
    }

    reader->kind = (unsigned) ngx_rl_told_get(&reader->p, 1);
    reader->age_ms = (uint32_t) ngx_rl_told_get(&reader->p, 3);

    return (reader->kind < NGX_RL_TOLD_KINDS) ? 0 : -1;
}


/* Returns 0, or -1: there are too many, or there is no such limit. */
static int
ngx_rl_told_next_limit(ngx_rl_told_reader_t *reader)
{
    ngx_rl_told_limit_t  told;

    if (reader->n == NGX_RL_TOLD_LIMITS
        || reader->end - reader->p < NGX_RL_TOLD_LIMIT_BYTES - 1)
    {
        return -1;
    }

    told.period_us = ngx_rl_told_get(&reader->p, 8);
    told.zone = (uint32_t) ngx_rl_told_get(&reader->p, 4);
    told.tokens = (uint32_t) ngx_rl_told_get(&reader->p, 4);
    told.capacity = (uint32_t) ngx_rl_told_get(&reader->p, 4);
    told.code = (uint16_t) ngx_rl_told_get(&reader->p, 2);
    told.algorithm = *reader->p++;
    told.unused = 0;

    reader->zones[reader->n] = told.zone;

    return ngx_rl_told_limit_read(&reader->limits[reader->n++], &told);
}


int
ngx_rl_told_next(ngx_rl_told_reader_t *reader, ngx_rl_told_t *told)
{
    unsigned  i, bytes;

    while (reader->p < reader->end && *reader->p == NGX_RL_TOLD_LIMIT) {
        reader->p++;

        if (ngx_rl_told_next_limit(reader) != 0) {
            return -1;
        }
    }

    if (reader->p == reader->end) {
        return 0;
    }

    i = *reader->p++;
    bytes = (i & NGX_RL_TOLD_RESET) ? NGX_RL_TOLD_RESET_BYTES : 0;
    i &= ~(unsigned) NGX_RL_TOLD_RESET;

    if (i >= reader->n
        || reader->end - reader->p
           < NGX_RL_TOLD_COUNTER_BYTES - 1 + (ptrdiff_t) bytes)
    {
        return -1;
    }

    told->limit = &reader->limits[i];
    told->zone = reader->zones[i];
    told->id.hi = ngx_rl_told_get(&reader->p, 8);
    told->id.lo = ngx_rl_told_get(&reader->p, 8);
    told->tokens = (int32_t) (uint32_t) ngx_rl_told_get(&reader->p, 4);
    told->left_ms = ngx_rl_told_get(&reader->p, 4)
                    * ngx_rl_told_unit_ms(told->limit->window_us);
    told->reset = (uint32_t) ngx_rl_told_get(&reader->p, bytes);

    return 1;
}


size_t
ngx_rl_told_record(u_char *buf, ngx_rl_told_e kind,
    const ngx_rl_told_record_t *record)
{
    u_char                *p;
    ngx_rl_told_writer_t   writer;

    ngx_rl_told_begin(&writer, buf, NGX_RL_TOLD_MOST, kind);

    p = ngx_rl_told_put(writer.last, record->zone, 4);
    p = ngx_rl_told_put(p, record->version, 8);
    p = ngx_rl_told_put(p, record->id, 8);
    p = ngx_rl_told_put(p, record->offset, 8);
    p = ngx_rl_told_put(p, record->size, 8);
    p = ngx_rl_told_put(p, record->base, 8);
    p = ngx_rl_told_put(p, record->base_id, 8);

    if (record->len) {
        memcpy(p, record->data, record->len);
    }

    writer.last = p + record->len;

    return ngx_rl_told_end(&writer);
}


int
ngx_rl_told_record_read(ngx_rl_told_reader_t *reader,
    ngx_rl_told_record_t *record)
{
    if (reader->kind <= NGX_RL_TOLD_STATE
        || reader->end - reader->p < NGX_RL_TOLD_RECORD)
    {
        return -1;
    }

    record->zone = (uint32_t) ngx_rl_told_get(&reader->p, 4);
    record->version = ngx_rl_told_get(&reader->p, 8);
    record->id = ngx_rl_told_get(&reader->p, 8);
    record->offset = ngx_rl_told_get(&reader->p, 8);
    record->size = ngx_rl_told_get(&reader->p, 8);
    record->base = ngx_rl_told_get(&reader->p, 8);
    record->base_id = ngx_rl_told_get(&reader->p, 8);
    record->data = reader->p;
    record->len = (size_t) (reader->end - reader->p);

    return 0;
}
