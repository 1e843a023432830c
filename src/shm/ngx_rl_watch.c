/* The memory of what an operator sees, and the hashes of keys in it. */

#include <openssl/evp.h>

#include "ngx_rl_watch.h"

#include "ngx_rl_zone.h"

_Static_assert(sizeof(ngx_rl_watch_key_t) == NGX_RL_TOP_NAME,
               "the names of a top are keys");

#define NGX_RL_WATCH_TICK_MS  1000

#define ngx_rl_watch_tops_bytes()                                             \
    (NGX_RL_WATCH_TOPS * sizeof(ngx_rl_watch_top_t))

#define ngx_rl_watch_bytes()                                                  \
    (ngx_rl_watch_tops_bytes()                                                \
     + ngx_rl_ring_size(NGX_RL_WATCH_REJECTIONS,                              \
                        sizeof(ngx_rl_rejection_t))                         \
     + ngx_rl_ring_size(NGX_RL_WATCH_SAMPLES,                                 \
                        sizeof(ngx_rl_sample_t)))


static void
ngx_rl_watch_cleanup(void *data)
{
    EVP_MD_CTX_free(data);
}


static ngx_int_t
ngx_rl_watch_init(ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_rl_watch_t  *watch, *old;

    watch = shm_zone->data;
    old = data;

    if (old) {
        watch->tops = old->tops;
        watch->rejections = old->rejections;
        watch->samples = old->samples;
        return NGX_OK;
    }

    watch->tops = ngx_rl_shm_make(shm_zone, ngx_rl_watch_bytes());
    if (watch->tops == NULL) {
        return NGX_ERROR;
    }

    watch->rejections = (ngx_rl_ring_t *) &watch->tops[NGX_RL_WATCH_TOPS];

    ngx_rl_ring_init(watch->rejections, NGX_RL_WATCH_REJECTIONS,
                     sizeof(ngx_rl_rejection_t));

    watch->samples = (ngx_rl_ring_t *)
                     ((u_char *) watch->rejections
                      + ngx_rl_ring_size(NGX_RL_WATCH_REJECTIONS,
                                         sizeof(ngx_rl_rejection_t)));

    ngx_rl_ring_init(watch->samples, NGX_RL_WATCH_SAMPLES,
                     sizeof(ngx_rl_sample_t));

    return NGX_OK;
}


ngx_rl_watch_t *
ngx_rl_watch_add(ngx_conf_t *cf, const ngx_str_t *zone, ngx_uint_t clear,
    void *tag)
{
    ngx_uint_t           i;
    EVP_MD_CTX          *digest;
    ngx_pool_cleanup_t  *cln;
    ngx_rl_watch_t      *watch;

    watch = ngx_pcalloc(cf->pool, sizeof(ngx_rl_watch_t));
    cln = ngx_pool_cleanup_add(cf->pool, 0);

    if (watch == NULL || cln == NULL) {
        return NULL;
    }

    digest = EVP_MD_CTX_new();
    if (digest == NULL) {
        return NULL;
    }

    cln->handler = ngx_rl_watch_cleanup;
    cln->data = digest;

    if (EVP_DigestInit_ex(digest, EVP_sha256(), NULL) != 1) {
        return NULL;
    }

    if (ngx_rl_shm_add(cf, clear ? "ratelimit_watch_clear" : "ratelimit_watch",
                       NGX_RL_WATCH_LAYOUT, zone, ngx_rl_watch_bytes(),
                       ngx_rl_watch_init, watch, tag)
        == NULL)
    {
        return NULL;
    }

    for (i = 0; i < NGX_RL_WATCH_TOPS; i++) {
        ngx_rl_sampler_init(&watch->samplers[i]);
    }

    watch->zone = *zone;
    watch->clear = (clear != 0);
    watch->digest = digest;

    return watch;
}


static void
ngx_rl_watch_tick_handler(ngx_event_t *ev)
{
    ngx_uint_t       i;
    ngx_rl_watch_t  *watch;

    watch = ev->data;

    for (i = 0; i < NGX_RL_WATCH_TOPS; i++) {
        ngx_rl_sampler_tick(&watch->samplers[i], (uint64_t) ngx_random());
    }

    ngx_add_timer(ev, NGX_RL_WATCH_TICK_MS);
}


void
ngx_rl_watch_begin(ngx_rl_watch_t *watch, ngx_log_t *log)
{
    watch->tick.data = watch;
    watch->tick.log = log;
    watch->tick.handler = ngx_rl_watch_tick_handler;
    watch->tick.cancelable = 1;

    ngx_add_timer(&watch->tick, NGX_RL_WATCH_TICK_MS);
}


void
ngx_rl_watch_read(ngx_rl_watch_t *watch, ngx_rl_watch_top_e which,
    ngx_rl_watch_list_t *out)
{
    ngx_rl_watch_top_t  *shared;

    shared = &watch->tops[which];

    ngx_rl_lock(&shared->lock);

    ngx_rl_top_turn(&shared->top, ngx_current_msec);
    out->top = shared->top;

    ngx_rl_unlock(&shared->lock);

    ngx_rl_top_list(&out->top, &out->list);

    /* the time of the worker that began it may be ahead */

    out->ms = (ngx_current_msec > out->list.began_ms)
              ? ngx_current_msec - out->list.began_ms : 0;
}


ngx_int_t
ngx_rl_watch_digest(const ngx_rl_watch_t *watch, const ngx_str_t *text,
    u_char *digest)
{
    /* once more, with the same algorithm */

    return (EVP_DigestInit_ex(watch->digest, NULL, NULL) == 1
            && EVP_DigestUpdate(watch->digest, text->data, text->len) == 1
            && EVP_DigestFinal_ex(watch->digest, digest, NULL) == 1)
           ? NGX_OK : NGX_ERROR;
}
