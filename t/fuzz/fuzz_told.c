/*
 * Any bytes as a message of a peer: what is read is within its bounds, and a
 * limit of it can be counted by. The first byte chooses: as it is, or with a
 * good seal, so that records are reached.
 */

#include <stdlib.h>

#include "ngx_rl_told.h"
#include "ngx_rl_window.h"

#define must(condition)  do { if (!(condition)) abort(); } while (0)


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


static void
fuzz_charge(const ngx_rl_told_t *told)
{
    uint32_t                tokens;
    ngx_rl_answer_t         answer;
    ngx_rl_window_t         w;
    const ngx_rl_limit_t   *limit;
    ngx_rl_token_bucket_t   tb;

    limit = told->limit;
    tokens = told->tokens > 0 ? (uint32_t) told->tokens : 0;
    tokens = ngx_rl_min(tokens, NGX_RL_MAX_TOKENS);

    memset(&tb, 0, sizeof(tb));
    memset(&w, 0, sizeof(w));
    memset(&answer, 0, sizeof(answer));

    switch (limit->algorithm) {

    case NGX_RL_TOKEN_BUCKET:
    case NGX_RL_LEAKY_BUCKET:
        ngx_rl_token_bucket_take(&tb, &limit->rate, 1000000, tokens,
                                 NGX_RL_CHARGE, &answer);
        break;

    case NGX_RL_FIXED_WINDOW:
        ngx_rl_fixed_window_take(&w, limit, 1000000, 1 + told->left_ms,
                                 limit->window_us, tokens, NGX_RL_CHARGE,
                                 &answer);
        break;

    case NGX_RL_SLIDING_WINDOW:
        ngx_rl_sliding_window_take(&w, limit, 1000000, tokens, NGX_RL_CHARGE,
                                   &answer);
        break;

    default:
        return;
    }

    (void) ngx_rl_told_used(limit, &answer, 1);
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int                    rc;
    size_t                 n;
    u_char                *message;
    ssize_t                len;
    ngx_rl_told_t          told;
    ngx_rl_told_record_t   record;
    ngx_rl_told_reader_t   reader;

    static const u_char  key[NGX_RL_TOLD_SECRET];

    if (size < 1 + NGX_RL_TOLD_LEAST) {
        must(ngx_rl_told_length(data, size) <= (ssize_t) NGX_RL_TOLD_MOST);
        return 0;
    }

    message = malloc(size - 1);
    must(message != NULL);
    memcpy(message, data + 1, size - 1);

    if (data[0] & 1) {
        message[0] = (u_char) (size - 1);
        message[1] = (u_char) ((size - 1) >> 8);
        message[2] = 0;
        message[3] = 0;
        ngx_rl_told_seal(message, size - 1, key, 0);
    }

    len = ngx_rl_told_length(message, size - 1);

    if (len > 0 && (size_t) len <= size - 1
        && ngx_rl_told_open(&reader, message, (size_t) len, key, 0) == 0)
    {
        if (reader.kind > NGX_RL_TOLD_STATE) {
            if (ngx_rl_told_record_read(&reader, &record) == 0) {
                must(record.data + record.len
                     == message + len - NGX_RL_TOLD_SEAL);
            }

            free(message);
            return 0;
        }

        for (n = 0; (rc = ngx_rl_told_next(&reader, &told)) == 1; n++) {
            must(told.limit->capacity > 0);
            must(reader.p <= message + len - NGX_RL_TOLD_SEAL);
            fuzz_charge(&told);
        }

        must(n <= size / 25);
        must(rc == -1 || reader.p == message + len - NGX_RL_TOLD_SEAL);
    }

    free(message);

    return 0;
}
