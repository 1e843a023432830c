/*
 * Any bytes as replies of Redis, in pieces of any size: what is kept of them
 * is within its bounds, and is the same whatever the pieces are. In pieces of
 * one byte hiredis reads all of them, in one piece that is so of few.
 */

#include "ngx_rl_redis_codec.h"

#include <stdlib.h>

#include <hiredis/hiredis.h>

#define must(condition)  do { if (!(condition)) abort(); } while (0)


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


void *
ngx_alloc(size_t size, ngx_log_t *log)
{
    (void) log;

    return malloc(size);
}


static void
fuzz_reply_valid(const ngx_rl_redis_reply_t *reply)
{
    ngx_uint_t  i;

    /* integers that are kept as texts are only counted */

    must(reply->n <= NGX_RL_REDIS_MAX_VALUES
         || reply->form == NGX_RL_REDIS_FORM_TEXTS);

    must(reply->text_len <= NGX_RL_REDIS_MAX_TEXT);
    must(reply->nranges <= NGX_RL_CLUSTER_SLOTS);
    must(reply->ntexts <= NGX_RL_REDIS_CONTROL_TEXTS);

    for (i = 0; i < reply->nranges; i++) {
        must(reply->ranges[i].host_len <= NGX_RL_REDIS_MAX_HOST);
    }
}


/* A sum of what was read, and of how it ended. */
static uint64_t
fuzz_sum(uint64_t sum, const void *data, size_t len)
{
    size_t  i;

    for (i = 0; i < len; i++) {
        sum = (sum ^ ((const u_char *) data)[i]) * 1099511628211u;
    }

    return sum;
}


static uint64_t
fuzz_reply_sum(uint64_t sum, const ngx_rl_redis_reply_t *reply)
{
    ngx_uint_t                   i;
    const ngx_rl_redis_range_t  *range;

    sum = fuzz_sum(sum, &reply->type, sizeof(reply->type));
    sum = fuzz_sum(sum, reply->text, reply->text_len);

    if (reply->flat) {
        sum = fuzz_sum(sum, reply->values, reply->n * sizeof(int64_t));
    }

    for (i = 0; i < reply->nranges; i++) {
        range = &reply->ranges[i];
        sum = fuzz_sum(sum, &range->first, sizeof(range->first));
        sum = fuzz_sum(sum, &range->last, sizeof(range->last));
        sum = fuzz_sum(sum, &range->port, sizeof(range->port));
        sum = fuzz_sum(sum, range->host, range->host_len);
    }

    for (i = 0; i < reply->ntexts; i++) {
        sum = fuzz_sum(sum, reply->texts[i].data, reply->texts[i].len);
    }

    return sum;
}


/* Reads all replies; each piece is memory of its own. */
static uint64_t
fuzz_read(const uint8_t *data, size_t size, size_t step,
    ngx_rl_redis_form_e form)
{
    void                         *reader;
    u_char                       *piece;
    size_t                        n;
    uint64_t                      sum;
    ngx_int_t                     rc;
    static ngx_rl_redis_reply_t   reply;

    reader = ngx_rl_redis_reader_new(&reply);
    must(reader);

    sum = 14695981039346656037u;
    rc = NGX_AGAIN;

    for ( /* void */ ; size && rc != NGX_ERROR; data += n, size -= n) {

        n = size < step ? size : step;
        piece = malloc(n);
        must(piece);
        memcpy(piece, data, n);
        ngx_rl_redis_reader_feed(reader, piece, n);

        do {
            rc = ngx_rl_redis_reader_next(reader, &reply, form);

            if (rc == NGX_OK) {
                fuzz_reply_valid(&reply);
                sum = fuzz_reply_sum(sum, &reply);
            }

        } while (rc == NGX_OK);

        free(piece);
    }

    ngx_rl_redis_reader_free(reader, &reply);

    return fuzz_sum(sum, &rc, sizeof(rc));
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t               step;
    uint64_t             sum;
    ngx_rl_redis_form_e  form;

    if (size < 2) {
        return 0;
    }

    form = data[0] % (NGX_RL_REDIS_FORM_TEXTS + 1);
    step = 1 + data[1] % 16;

    sum = fuzz_read(data + 2, size - 2, size, form);
    must(sum == fuzz_read(data + 2, size - 2, step, form));
    must(sum == fuzz_read(data + 2, size - 2, 1, form));

    return 0;
}
