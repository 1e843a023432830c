/*
 * Questions to the script of documents (lua/rules.lua), and its answers.
 */

#include "ngx_rl_sync_int.h"

#include "ngx_rl_leases.h"
#include "ngx_rl_text.h"

#include <openssl/crypto.h>

#define NGX_RL_SYNC_ARGS  6

/*
 * In Redis a line stands behind a record, if the fleet has a secret: its seal.
 * No document begins like this.
 */
#define NGX_RL_SYNC_SEAL  "hmac-sha256 "

#define NGX_RL_SYNC_SEAL_LINE                                                 \
    (sizeof(NGX_RL_SYNC_SEAL) - 1 + 2 * NGX_RL_REDIS_SEAL + 1)

const char  ngx_rl_sync_unsealed[] =
    "it is not sealed by this \"secret_file\"; if a gateway goes by it, give "
    "that gateway the file and reload it, else delete it in Redis";


ngx_int_t
ngx_rl_sync_seal(ngx_rl_limiter_t *limiter, ngx_pool_t *pool, ngx_str_t *text)
{
    u_char  *p, *line, seal[NGX_RL_REDIS_SEAL];

    if (limiter->redis == NULL || limiter->redis->secret.len == 0) {
        return NGX_OK;
    }

    p = ngx_pnalloc(pool, text->len + NGX_RL_SYNC_SEAL_LINE);

    if (p == NULL
        || ngx_rl_redis_seal(limiter->redis, &limiter->zone.name, text, seal)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    line = ngx_cpymem(p, text->data, text->len);
    line = ngx_cpymem(line, NGX_RL_SYNC_SEAL, sizeof(NGX_RL_SYNC_SEAL) - 1);
    line = ngx_hex_dump(line, seal, sizeof(seal));
    *line++ = LF;

    text->data = p;
    text->len = line - p;

    return NGX_OK;
}


const char *
ngx_rl_sync_unseal(ngx_rl_limiter_t *limiter, ngx_pool_t *pool,
    ngx_str_t *text)
{
    u_char     *line;
    ngx_str_t   found, sealed;

    found = *text;

    if (text->len > NGX_RL_SYNC_SEAL_LINE) {
        line = text->data + text->len - NGX_RL_SYNC_SEAL_LINE;

        if (line[-1] == LF
            && ngx_memcmp(line, NGX_RL_SYNC_SEAL, sizeof(NGX_RL_SYNC_SEAL) - 1)
               == 0)
        {
            text->len -= NGX_RL_SYNC_SEAL_LINE;
        }
    }

    if (limiter->redis->secret.len == 0) {
        return NULL;
    }

    sealed = *text;

    if (ngx_rl_sync_seal(limiter, pool, &sealed) != NGX_OK) {
        return ngx_rl_record_no_memory;
    }

    return (found.len == sealed.len
            && CRYPTO_memcmp(found.data, sealed.data, found.len) == 0)
           ? NULL : ngx_rl_sync_unsealed;
}


ngx_rl_redis_call_t *
ngx_rl_sync_ask(ngx_rl_sync_t *sync, ngx_rl_redis_handler_pt handler,
    void *data, const char *operation, const char *format,
    const uint64_t *numbers, const ngx_str_t *text)
{
    u_char      buf[NGX_RL_SYNC_ARGS][NGX_INT64_LEN + 1];
    ngx_str_t   args[NGX_RL_SYNC_ARGS], *arg;

    args[0].data = (u_char *) operation;
    args[0].len = ngx_strlen(operation);

    for (arg = &args[1]; *format; arg++, format++) {

        if (*format == 's') {
            *arg = *text;
            continue;
        }

        arg->data = buf[arg - args];
        arg->len = ngx_sprintf(arg->data, (*format == 'i') ? "%016xL" : "%uL",
                               *numbers++)
                   - arg->data;
    }

    return ngx_rl_redis_control_rules(sync->limiter->redis,
                                      &sync->limiter->zone.name, args,
                                      arg - args, handler, data);
}


/* Where there is no record, the script calls its id "0". */
ngx_rl_redis_call_t *
ngx_rl_sync_ask_put(ngx_rl_sync_t *sync, ngx_rl_redis_handler_pt handler,
    void *data, uint64_t expected, uint64_t expected_id,
    const ngx_rl_store_entry_t *entry, const ngx_str_t *sealed)
{
    uint64_t  numbers[4];

    numbers[0] = expected;
    numbers[1] = expected ? expected_id : 0;
    numbers[2] = entry->version;
    numbers[3] = entry->id;

    return ngx_rl_sync_ask(sync, handler, data, "put",
                           expected ? "vivis" : "vvvis", numbers, sealed);
}


ngx_int_t
ngx_rl_sync_number(const ngx_rl_redis_result_t *result, ngx_uint_t i,
    uint64_t *number)
{
    return (i < result->n
            && ngx_rl_number_parse(result->texts[i].data,
                                   result->texts[i].len, 0,
                                   NGX_RL_SYNC_LATEST, number)
               == 0)
           ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_rl_sync_version(const ngx_rl_redis_result_t *result, ngx_uint_t i,
    uint64_t *version, uint64_t *id)
{
    size_t      n;
    ngx_int_t   high, low;
    ngx_str_t  *text;

    if (i + 1 >= result->n
        || ngx_rl_sync_number(result, i, version) != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* ngx_hextoi() reads no number of 64 bits */

    text = &result->texts[i + 1];
    n = (text->len == 16) ? 8 : 0;
    high = n ? ngx_hextoi(text->data, n) : 0;
    low = ngx_hextoi(text->data + n, text->len - n);

    if (high == NGX_ERROR || low == NGX_ERROR || text->len > 16) {
        return NGX_ERROR;
    }

    *id = (uint64_t) high << 32 | (uint64_t) low;

    return NGX_OK;
}


void
ngx_rl_sync_resets(ngx_rl_sync_t *sync, uint64_t resets)
{
    if (sync->limiter->store->resets == resets) {
        return;
    }

    sync->limiter->store->resets = resets;

    if (sync->limiter->zone.leases) {
        ngx_rl_leases_forget(sync->limiter->zone.leases,
                             (uint64_t) ngx_current_msec * 1000);
    }
}
