/*
 * "ratelimit_jwt_key": the file that verifies tokens. The master reads it with
 * the configuration, and each worker when it has changed.
 */

#include "ngx_rl_jwt.h"

#include "ngx_rl_conf.h"

#define NGX_RL_JWT_LEEWAY  300     /* seconds at most */
#define NGX_RL_JWT_TICK_MS 1000


static void
ngx_rl_jwt_key_cleanup(void *data)
{
    ngx_rl_jwt_key_t *key = data;

    if (key->keys) {
        ngx_rl_jwks_free(key->keys);
    }
}


/* Characters that JSON would escape are refused: no document needs them. */
static const char *
ngx_rl_jwt_key_text(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
    ngx_str_t *value)
{
    return ngx_escape_json(NULL, value->data, value->len)
           ? row->expected : ngx_rl_row_text(cf, target, row, value);
}


static const char *
ngx_rl_jwt_key_leeway(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
    ngx_str_t *value)
{
    ngx_rl_jwt_key_t *key = target;

    key->leeway = ngx_parse_time(value, 1);

    return (key->leeway < 0 || key->leeway > NGX_RL_JWT_LEEWAY) ? row->expected
                                                                : NULL;
}


static const ngx_rl_row_t  ngx_rl_jwt_key_rows[] = {
    { ngx_string("audience="), ngx_rl_jwt_key_text,
      offsetof(ngx_rl_jwt_key_t, audience), .expected = "an audience" },
    { ngx_string("issuer="), ngx_rl_jwt_key_text,
      offsetof(ngx_rl_jwt_key_t, issuer), .expected = "an issuer" },
    { ngx_string("leeway="), ngx_rl_jwt_key_leeway, .expected = "a time" },
    { .name = ngx_null_string }
};


/* NGX_ERROR: it cannot be looked at; the stamp is then zero. */
static ngx_int_t
ngx_rl_jwt_key_stamp(const ngx_str_t *file, ngx_rl_jwt_stamp_t *stamp)
{
    ngx_file_info_t  fi;

    ngx_memzero(stamp, sizeof(ngx_rl_jwt_stamp_t));

    if (ngx_file_info(file->data, &fi) == NGX_FILE_ERROR) {
        return NGX_ERROR;
    }

    stamp->inode = (uint64_t) ngx_file_uniq(&fi);
    stamp->size = (uint64_t) ngx_file_size(&fi);
    stamp->sec = (uint64_t) fi.st_ctim.tv_sec;
    stamp->nsec = (uint64_t) fi.st_ctim.tv_nsec;

    return NGX_OK;
}


/* With "master_process off" the process outlives the configuration. */
static void
ngx_rl_jwt_key_unwatch(void *data)
{
    ngx_event_t *tick = data;

    if (tick->timer_set) {
        ngx_del_timer(tick);
    }
}


/* ratelimit_jwt_key <file> [<parameter> ...] | insecure */
char *
ngx_rl_jwt_key(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_loc_conf_t *rlcf = conf;

    ngx_str_t           *value, content;
    const char          *expected;
    ngx_rl_jwt_key_t    *key;
    ngx_pool_cleanup_t  *cln;
    ngx_rl_main_conf_t  *rmcf;

    if (rlcf->jwt_key != NULL) {
        return "is duplicate";
    }

    cln = ngx_pool_cleanup_add(cf->pool, sizeof(ngx_rl_jwt_key_t));
    if (cln == NULL) {
        return NGX_CONF_ERROR;
    }

    key = cln->data;
    ngx_memzero(key, sizeof(ngx_rl_jwt_key_t));
    cln->handler = ngx_rl_jwt_key_cleanup;

    rlcf->jwt_key = key;
    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "insecure") == 0) {
        if (cf->args->nelts == 2) {
            return NGX_CONF_OK;
        }

        return ngx_rl_wrong(cf, "has an invalid parameter \"%V\", expected "
                            "\"insecure\" alone", &value[2]);
    }

    if (ngx_rl_rows_read(cf, ngx_rl_jwt_key_rows, key, 2,
                         "\"audience=<audience>\" or \"issuer=<issuer>\" "
                         "without quotes, backslashes and control characters, "
                         "or \"leeway=<time>\" of at most 5m, each once")
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    key->file = value[1];

    if (ngx_conf_full_name(cf->cycle, &key->file, 1) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    /* before it is read: a change from now on is seen */

    (void) ngx_rl_jwt_key_stamp(&key->file, &key->stamp);
    key->failed = key->stamp;

    if (ngx_rl_file_read(cf, &key->file, NGX_RL_JWT_FILE, &content) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    expected = ngx_rl_jwks_read(&content, &key->keys);

    ngx_rl_file_free(&content);

    if (expected) {
        return ngx_rl_wrong(cf, "has an invalid file \"%V\", expected %s",
                            &value[1], expected);
    }

    rmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_ratelimit_module);

    if (rmcf->jwt_keys.nelts == 0) {
        cln = ngx_pool_cleanup_add(cf->pool, 0);
        if (cln == NULL) {
            return NGX_CONF_ERROR;
        }

        cln->handler = ngx_rl_jwt_key_unwatch;
        cln->data = &rmcf->jwt_tick;
    }

    return (ngx_rl_push(&rmcf->jwt_keys, key) == NGX_OK) ? NGX_CONF_OK
                                                         : NGX_CONF_ERROR;
}


/*
 * The content of a regular file, which the caller frees, with a byte more than
 * it may have. Returns NULL, or what is expected, with errno.
 */
static const char *
ngx_rl_jwt_key_content(const ngx_str_t *file, ngx_str_t *content)
{
    ssize_t           n;
    ngx_fd_t          fd;
    const char       *expected;
    ngx_file_info_t   fi;

    fd = ngx_open_file(file->data, NGX_FILE_RDONLY|NGX_FILE_NONBLOCK,
                       NGX_FILE_OPEN, 0);

    if (fd == NGX_INVALID_FILE) {
        return "a file that workers may read";
    }

    expected = "a file";

    if (ngx_fd_info(fd, &fi) == NGX_FILE_ERROR || !ngx_is_file(&fi)) {
        goto done;
    }

    content->data = ngx_alloc(NGX_RL_JWT_FILE + 1, ngx_cycle->log);
    if (content->data == NULL) {
        expected = "memory";
        goto done;
    }

    n = ngx_read_fd(fd, content->data, NGX_RL_JWT_FILE + 1);

    if (n == -1) {
        ngx_free(content->data);
        content->data = NULL;
        goto done;
    }

    content->len = n;
    expected = NULL;

done:

    (void) ngx_close_file(fd);

    return expected;
}


/*
 * Takes the keys of a file that has changed. No request holds any of the old
 * ones. If the file cannot be read, they stay, and the next tick tries again.
 */
static void
ngx_rl_jwt_key_renew(ngx_rl_jwt_key_t *key, ngx_log_t *log)
{
    ngx_err_t            err;
    ngx_str_t            content;
    const char          *expected;
    ngx_rl_jwks_t       *keys;
    ngx_rl_jwt_stamp_t   stamp;

    keys = NULL;
    content.data = NULL;
    expected = "a file";

    /* before it is read, as above */

    ngx_set_errno(0);

    if (ngx_rl_jwt_key_stamp(&key->file, &stamp) == NGX_OK) {

        if (ngx_memcmp(&stamp, &key->stamp, sizeof(stamp)) == 0) {
            return;
        }

        expected = ngx_rl_jwt_key_content(&key->file, &content);
    }

    err = expected ? ngx_errno : 0;

    if (content.data) {
        expected = ngx_rl_jwks_read(&content, &keys);
        ngx_rl_file_free(&content);
    }

    if (expected == NULL) {
        ngx_rl_jwks_free(key->keys);

        key->keys = keys;
        key->stamp = stamp;
        key->failed = stamp;

        ngx_log_error(NGX_LOG_NOTICE, log, 0,
                      "\"ratelimit_jwt_key\" has read \"%V\": %ui keys, "
                      "%ui ignored", &key->file, keys->nkeys, keys->ignored);
        return;
    }

    if (ngx_memcmp(&stamp, &key->failed, sizeof(stamp)) != 0) {
        key->failed = stamp;

        ngx_log_error(NGX_LOG_ERR, log, err,
                      "\"ratelimit_jwt_key\" keeps the old keys of \"%V\", "
                      "expected %s", &key->file, expected);
    }
}


static void
ngx_rl_jwt_key_tick_handler(ngx_event_t *ev)
{
    ngx_uint_t           i;
    ngx_rl_main_conf_t  *conf;

    conf = ev->data;

    for (i = 0; i < conf->jwt_keys.nelts; i++) {
        ngx_rl_jwt_key_renew(((ngx_rl_jwt_key_t **) conf->jwt_keys.elts)[i],
                             ev->log);
    }

    ngx_add_timer(ev, NGX_RL_JWT_TICK_MS);
}


void
ngx_rl_jwt_key_begin(ngx_rl_main_conf_t *conf, ngx_log_t *log)
{
    if (conf->jwt_keys.nelts == 0) {
        return;
    }

    conf->jwt_tick.data = conf;
    conf->jwt_tick.log = log;
    conf->jwt_tick.handler = ngx_rl_jwt_key_tick_handler;
    conf->jwt_tick.cancelable = 1;

    /* at once: the master may have read them long ago */

    ngx_rl_jwt_key_tick_handler(&conf->jwt_tick);
}
