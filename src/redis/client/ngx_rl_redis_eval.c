/*
 * A check as a command: the script's keys and arguments.
 */

#include "ngx_rl_redis_client.h"
#include "ngx_rl_text.h"

/* a key without its prefix: ":{", the bucket, "}:", a set's name */
#define NGX_RL_REDIS_KEY_BYTES                                                \
    (sizeof(":{}:") - 1 + NGX_INT32_LEN + 2 * NGX_RL_REDIS_SET_NAME)


static u_char *
ngx_rl_redis_key_text(u_char *p, const ngx_rl_redis_t *redis,
    const ngx_str_t *bucket, const u_char *set)
{
    p = ngx_cpymem(p, redis->prefix.data, redis->prefix.len);
    *p++ = ':';
    *p++ = '{';
    p = ngx_cpymem(p, bucket->data, bucket->len);
    *p++ = '}';

    if (set) {
        *p++ = ':';
        p = ngx_hex_dump(p, (u_char *) set, NGX_RL_REDIS_SET_NAME);
    }

    return p;
}


/* "<prefix>:{<bucket>}", and where a set is named ":<its name in hex>". */
static u_char *
ngx_rl_redis_key_write(u_char *p, const ngx_rl_redis_t *redis,
    const ngx_str_t *bucket, const u_char *set)
{
    size_t  len;

    len = redis->prefix.len + bucket->len + sizeof(":{}") - 1;

    if (set) {
        len += 1 + 2 * NGX_RL_REDIS_SET_NAME;
    }

    *p++ = '$';
    p = ngx_rl_number_write(p, len);
    *p++ = CR;
    *p++ = LF;

    p = ngx_rl_redis_key_text(p, redis, bucket, set);
    *p++ = CR;
    *p++ = LF;

    return p;
}


ngx_rl_redis_call_t *
ngx_rl_redis_eval_new(ngx_rl_redis_client_t *client, ngx_rl_redis_kind_e kind,
    const ngx_rl_redis_eval_t *eval)
{
    size_t                len;
    u_char               *p, *key, digits[NGX_INT64_LEN];
    ngx_str_t             bucket;
    ngx_uint_t            i;
    ngx_rl_redis_t       *redis;
    ngx_rl_redis_call_t  *call;

    redis = client->redis;

    len = NGX_RL_REDIS_ARRAY + client->evalsha_len
          + NGX_RL_REDIS_BULK(NGX_INT32_LEN) + (1 + eval->nsets)
            * NGX_RL_REDIS_BULK(redis->prefix.len + NGX_RL_REDIS_KEY_BYTES)
          + eval->args.len;

    call = ngx_rl_redis_call_new(client, kind, len);
    if (call == NULL) {
        return NULL;
    }

    call->late = eval->late;

    p = ngx_rl_redis_write_array(call->request.text,
                                 3 + 1 + eval->nsets + eval->nargs);
    p = ngx_cpymem(p, client->evalsha, client->evalsha_len);

    len = ngx_rl_number_write(digits, 1 + eval->nsets) - digits;
    p = ngx_rl_redis_write_bulk(p, digits, len);

    bucket.data = digits;
    bucket.len = ngx_rl_number_write(digits, eval->bucket % redis->buckets)
                 - digits;

    key = p;
    p = ngx_rl_redis_key_write(p, redis, &bucket, NULL);

    if (redis->mode == NGX_RL_REDIS_CLUSTER) {

        /* the text between the length's line and the line's end */

        key = (u_char *) ngx_strchr(key, LF) + 1;
        call->slot = ngx_rl_cluster_slot(key, p - 2 - key);
    }

    for (i = 0; i < eval->nsets; i++) {
        p = ngx_rl_redis_key_write(p, redis, &bucket,
                                   eval->sets + i * NGX_RL_REDIS_SET_NAME);
    }

    p = ngx_cpymem(p, eval->args.data, eval->args.len);

    call->request.len = p - call->request.text;

    return call;
}


ngx_rl_redis_call_t *
ngx_rl_redis_eval(ngx_rl_redis_t *redis, const ngx_rl_redis_eval_t *eval,
    ngx_rl_redis_handler_pt handler, void *data)
{
    ngx_rl_redis_call_t  *call;

    call = ngx_rl_redis_eval_new(redis->client,
                                 eval->undo ? NGX_RL_REDIS_UNDO
                                 : handler ? NGX_RL_REDIS_CHECK
                                 : NGX_RL_REDIS_UNASKED,
                                 eval);

    if (call) {
        ngx_rl_redis_call_start(call, handler, data);
    }

    return call;
}


ngx_int_t
ngx_rl_redis_key(const ngx_rl_redis_t *redis, uint32_t bucket,
    const u_char *set, ngx_pool_t *pool, ngx_str_t *key)
{
    ngx_str_t  text;

    u_char  digits[NGX_INT32_LEN];

    text.data = digits;
    text.len = ngx_rl_number_write(digits, bucket % redis->buckets) - digits;

    key->data = ngx_pnalloc(pool, redis->prefix.len + text.len
                                  + sizeof(":{}:")
                                  + 2 * NGX_RL_REDIS_SET_NAME);
    if (key->data == NULL) {
        return NGX_ERROR;
    }

    key->len = ngx_rl_redis_key_text(key->data, redis, &text, set) - key->data;

    return NGX_OK;
}


/* Each worker starts anywhere, and repeats none before it has had them all. */
uint64_t
ngx_rl_redis_name(ngx_rl_redis_t *redis)
{
    do {
        redis->client->name += 0x9e3779b97f4a7c15;

    } while (redis->client->name == 0);

    return redis->client->name;
}
