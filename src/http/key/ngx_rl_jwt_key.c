/*
 * "ratelimit_jwt_key": the file that verifies tokens. The master reads it with
 * the configuration, and each worker when it has changed. Its content says
 * which algorithms its keys have.
 */

#include "ngx_rl_jwt.h"

#include "ngx_rl_conf.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#define NGX_RL_JWT_FILE    65536   /* bytes */
#define NGX_RL_JWT_LEEWAY  300     /* seconds at most */
#define NGX_RL_JWT_TICK_MS 1000


static void
ngx_rl_jwks_free(ngx_rl_jwks_t *keys)
{
    ngx_uint_t  i;

    for (i = 0; i < keys->nkeys; i++) {
        ngx_rl_jwk_free(&keys->keys[i]);
    }

    ngx_free(keys);
}


static void
ngx_rl_jwt_key_cleanup(void *data)
{
    ngx_rl_jwt_key_t *key = data;

    if (key->keys) {
        ngx_rl_jwks_free(key->keys);
    }
}


/* Characters that JSON would escape are refused: no document needs them. */
static ngx_int_t
ngx_rl_jwt_key_parameter(ngx_str_t *text, ngx_rl_jwt_key_t *key)
{
    time_t      sec;
    ngx_str_t   value, *set;

    set = ngx_rl_parameter(text, "audience=", &value)
          ? &key->audience
          : ngx_rl_parameter(text, "issuer=", &value)
          ? &key->issuer : NULL;

    if (set) {
        if (set->len || value.len == 0
            || ngx_escape_json(NULL, value.data, value.len) != 0)
        {
            return NGX_ERROR;
        }

        *set = value;

        return NGX_OK;
    }

    if (!ngx_rl_parameter(text, "leeway=", &value)) {
        return NGX_ERROR;
    }

    sec = ngx_parse_time(&value, 1);

    if (key->leeway || sec < 0 || sec > NGX_RL_JWT_LEEWAY) {
        return NGX_ERROR;
    }

    key->leeway = sec;

    return NGX_OK;
}


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


static ngx_uint_t
ngx_rl_jwt_key_is_json(const ngx_str_t *content)
{
    u_char  *p, *last;

    last = content->data + content->len;

    for (p = content->data; p < last; p++) {
        if (*p != ' ' && *p != '\t' && *p != '\r' && *p != '\n') {
            return *p == '{';
        }
    }

    return 0;
}


/*
 * The first public key. No other text is a key: as a secret, any file that got
 * there by accident would verify tokens, with what everybody may know.
 */
static const char *
ngx_rl_jwt_key_pem(const ngx_str_t *content, ngx_rl_jwk_t *key)
{
    BIO  *bio;

    if (ngx_strnstr(content->data, "PRIVATE KEY-----", content->len)) {
        return "a public key, no private key";
    }

    bio = BIO_new_mem_buf(content->data, (int) content->len);
    if (bio == NULL) {
        return "memory";
    }

    /* a password, so that OpenSSL asks the terminal for none */

    key->pkey = PEM_read_bio_PUBKEY(bio, NULL, NULL, "");

    BIO_free(bio);

    return key->pkey ? ngx_rl_jwt_alg_bind(key, NULL)
                     : "a JWK Set, a JWK (of type \"oct\" for a secret) or "
                       "a public key in PEM";
}


/*
 * The keys of a file's content. Returns NULL, or the expected content as a
 * constant string.
 */
static const char *
ngx_rl_jwt_key_read(const ngx_str_t *content, ngx_rl_jwks_t **made)
{
    const char     *expected;
    ngx_rl_jwks_t  *keys;

    if (content->len > NGX_RL_JWT_FILE) {
        return "one of at most 65536 bytes";
    }

    keys = ngx_calloc(sizeof(ngx_rl_jwks_t), ngx_cycle->log);
    if (keys == NULL) {
        return "memory";
    }

    if (ngx_rl_jwt_key_is_json(content)) {
        expected = ngx_rl_jwks_json(content, keys);

    } else {
        keys->nkeys = 1;
        expected = ngx_rl_jwt_key_pem(content, keys->keys);
    }

    ERR_clear_error();

    if (expected) {
        ngx_rl_jwks_free(keys);
        return expected;
    }

    *made = keys;

    return NULL;
}


/* With "master_process off" the process outlives the configuration. */
static void
ngx_rl_jwt_key_unwatch(void *data)
{
    ngx_rl_jwt_files_t *files = data;

    if (files->tick.timer_set) {
        ngx_del_timer(&files->tick);
    }
}


static ngx_int_t
ngx_rl_jwt_key_watch(ngx_conf_t *cf, ngx_rl_jwt_key_t *key)
{
    ngx_pool_cleanup_t  *cln;
    ngx_rl_jwt_files_t  *files;
    ngx_rl_main_conf_t  *conf;

    conf = ngx_http_conf_get_module_main_conf(cf, ngx_http_ratelimit_module);

    if (conf->jwt_files == NULL) {
        cln = ngx_pool_cleanup_add(cf->pool, sizeof(ngx_rl_jwt_files_t));
        if (cln == NULL) {
            return NGX_ERROR;
        }

        files = cln->data;
        ngx_memzero(files, sizeof(ngx_rl_jwt_files_t));

        if (ngx_array_init(&files->keys, cf->pool, 2, sizeof(void *)) != NGX_OK)
        {
            return NGX_ERROR;
        }

        cln->handler = ngx_rl_jwt_key_unwatch;
        conf->jwt_files = files;
    }

    return ngx_rl_push(&conf->jwt_files->keys, key);
}


/* ratelimit_jwt_key <file> [<parameter> ...] | insecure */
char *
ngx_rl_jwt_key(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_loc_conf_t *rlcf = conf;

    ngx_str_t           *value, content;
    ngx_uint_t           i;
    const char          *expected;
    ngx_pool_cleanup_t  *cln;
    ngx_rl_jwt_key_t    *key;

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

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_jwt_key\" has an invalid parameter "
                           "\"%V\", expected \"insecure\" alone", &value[2]);
        return NGX_CONF_ERROR;
    }

    for (i = 2; i < cf->args->nelts; i++) {
        if (ngx_rl_jwt_key_parameter(&value[i], key) != NGX_OK) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"ratelimit_jwt_key\" has an invalid parameter "
                               "\"%V\", expected \"audience=<audience>\" or "
                               "\"issuer=<issuer>\" without quotes, "
                               "backslashes and control characters, or "
                               "\"leeway=<time>\" of at most 5m, each once",
                               &value[i]);
            return NGX_CONF_ERROR;
        }
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

    expected = ngx_rl_jwt_key_read(&content, &key->keys);

    ngx_rl_file_free(&content);

    if (expected) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_jwt_key\" has an invalid file "
                           "\"%V\", expected %s", &value[1], expected);
        return NGX_CONF_ERROR;
    }

    return (ngx_rl_jwt_key_watch(cf, key) == NGX_OK)
           ? NGX_CONF_OK : NGX_CONF_ERROR;
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
        expected = ngx_rl_jwt_key_read(&content, &keys);
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
    ngx_rl_jwt_key_t   **keys;
    ngx_rl_jwt_files_t  *files;

    files = ev->data;
    keys = files->keys.elts;

    for (i = 0; i < files->keys.nelts; i++) {
        ngx_rl_jwt_key_renew(keys[i], ev->log);
    }

    ngx_add_timer(ev, NGX_RL_JWT_TICK_MS);
}


void
ngx_rl_jwt_key_begin(ngx_rl_jwt_files_t *files, ngx_log_t *log)
{
    files->tick.data = files;
    files->tick.log = log;
    files->tick.handler = ngx_rl_jwt_key_tick_handler;
    files->tick.cancelable = 1;

    /* at once: the master may have read them long ago */

    ngx_rl_jwt_key_tick_handler(&files->tick);
}
