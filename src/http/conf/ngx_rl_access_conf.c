/*
 * "ratelimit_deny" and "ratelimit_allow": the lists of clients of nginx.conf.
 */

#include "ngx_rl_conf.h"

#define NGX_RL_ACCESS_FILE  (64 * 1024 * 1024)   /* bytes */

#define NGX_RL_ACCESS_EXPECTED                                                \
    "expected an address, a network like \"192.0.2.0/24\", or \"key:\" and "  \
    "an API key, its \"sha256:...\" or a glob"


static ngx_uint_t
ngx_rl_access_entry(ngx_str_t *text, ngx_rl_access_t *entry)
{
    ngx_str_t  *key;

    entry->ends = NGX_RL_ACCESS_NEVER;
    entry->kind = NGX_RL_ACCESS_NETWORK;

    if (ngx_rl_network_parse(text->data, text->len, &entry->network) == 0) {
        return 1;
    }

    key = &entry->glob;

    if (ngx_rl_parameter(text, "key:", key) == NULL
        || ngx_rl_glob_check(key->data, key->len) != NULL)
    {
        return 0;
    }

    entry->kind = NGX_RL_ACCESS_GLOB;

    if (ngx_rl_policy_hashed(key)) {
        entry->kind = NGX_RL_ACCESS_KEY;
        ngx_rl_policy_digest(key, entry->digest);
    }

    return 1;
}


/* NGX_DECLINED: the text is no entry. NGX_ERROR: memory is out. */
static ngx_int_t
ngx_rl_access_add(ngx_conf_t *cf, ngx_rl_access_conf_t *access, ngx_str_t *text)
{
    ngx_rl_access_t  *entry;

    entry = ngx_array_push(&access->entries);
    if (entry == NULL) {
        return NGX_ERROR;
    }

    if (!ngx_rl_access_entry(text, entry)) {
        return NGX_DECLINED;
    }

    if (!access->deny && entry->kind == NGX_RL_ACCESS_GLOB
        && ngx_rl_glob_wild(entry->glob.data, entry->glob.len)
        && !ngx_rl_key_begins(&entry->glob,
                              NGX_RL_MARK_JWT))
    {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"ratelimit_allow\" has the pattern \"%V\", so "
                           "that any client can send such a key and is not "
                           "limited, expected a whole key, a network, or "
                           "\"key:jwt:...\"", text);
    }

    if (entry->kind == NGX_RL_ACCESS_GLOB) {
        entry->glob.data = ngx_pstrdup(cf->pool, &entry->glob);
    }

    return (entry->kind == NGX_RL_ACCESS_GLOB
            && entry->glob.data == NULL) ? NGX_ERROR : NGX_OK;
}


/* One entry a line; "#" begins a comment. */
static ngx_int_t
ngx_rl_access_file(ngx_conf_t *cf, ngx_rl_access_conf_t *access,
    ngx_str_t *file)
{
    u_char      *p, *end, *last;
    ngx_int_t    rc;
    ngx_str_t   *directive, content, text;
    ngx_uint_t   line;

    directive = cf->args->elts;

    if (ngx_rl_file_read(cf, file, NGX_RL_ACCESS_FILE, &content) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = NGX_OK;
    last = content.data + content.len;

    if (content.len > NGX_RL_ACCESS_FILE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" has an invalid \"file=%V\", expected at "
                           "most 64 MiB", directive, file);
        rc = NGX_ERROR;
        last = content.data;
    }

    for (p = content.data, line = 1;
         p < last && rc == NGX_OK;
         p = end + 1, line++)
    {
        end = ngx_strlchr(p, last, LF);
        end = end ? end : last;

        text.data = p;
        text.len = 0;

        while (p + text.len < end && p[text.len] != '#') {
            text.len++;
        }

        while (text.len && text.data[text.len - 1] <= ' ') {
            text.len--;
        }

        while (text.len && text.data[0] <= ' ') {
            text.data++;
            text.len--;
        }

        rc = text.len ? ngx_rl_access_add(cf, access, &text) : NGX_OK;

        if (rc == NGX_DECLINED) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%V\" has an invalid \"%V\" in %V:%ui, "
                               NGX_RL_ACCESS_EXPECTED,
                               directive, &text, file, line);
            rc = NGX_ERROR;
        }
    }

    ngx_free(content.data);

    return rc;
}


/* ratelimit_deny zone=<zone> <address | network | key:<glob>> ... | file=... */
char *
ngx_rl_access(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_main_conf_t *rmcf = conf;

    ngx_int_t                     rc;
    ngx_str_t                    *value, file;
    ngx_uint_t                    i;
    ngx_rl_access_conf_t  *access;

    value = cf->args->elts;

    access = ngx_pcalloc(cf->pool, sizeof(ngx_rl_access_conf_t));

    if (access == NULL
        || ngx_array_init(&access->entries, cf->pool, 8,
                          sizeof(ngx_rl_access_t))
           != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    access->deny = (cmd->offset != 0);
    ngx_rl_place(cf, &access->place);

    if (ngx_rl_parameter(&value[1], "zone=", &access->zone) == NULL
        || access->zone.len == 0)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" has no \"zone=<name>\" before \"%V\"",
                           &value[0], &value[1]);
        return NGX_CONF_ERROR;
    }

    for (i = 2; i < cf->args->nelts; i++) {

        rc = ngx_rl_parameter(&value[i], "file=", &file)
             ? ngx_rl_access_file(cf, access, &file)
             : ngx_rl_access_add(cf, access, &value[i]);

        if (rc == NGX_DECLINED) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%V\" has an invalid \"%V\", "
                               NGX_RL_ACCESS_EXPECTED,
                               &value[0], &value[i]);
        }

        if (rc != NGX_OK) {
            return NGX_CONF_ERROR;
        }
    }

    return (ngx_rl_push(&rmcf->lists, access) == NGX_OK)
           ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static ngx_int_t
ngx_rl_access_append(ngx_array_t *all, const ngx_array_t *entries)
{
    void  *p;

    if (entries->nelts == 0) {
        return NGX_OK;
    }

    p = ngx_array_push_n(all, entries->nelts);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(p, entries->elts, entries->nelts * entries->size);

    return NGX_OK;
}


ngx_int_t
ngx_rl_access_resolve(ngx_conf_t *cf, ngx_rl_main_conf_t *conf)
{
    ngx_uint_t              i, j, n;
    ngx_array_t             all;
    ngx_rl_hint_t           hint;
    ngx_rl_zone_conf_t     *zone;
    ngx_rl_access_conf_t  **access;

    access = conf->lists.elts;
    n = conf->lists.nelts;

    for (i = 0; i < n; i++) {
        zone = ngx_rl_zone_by_name(conf, &access[i]->zone);

        if (zone == NULL) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "\"%s\" has an unknown \"zone=%V\", %V in %V:%ui",
                          access[i]->deny ? "ratelimit_deny"
                                          : "ratelimit_allow",
                          &access[i]->zone,
                          ngx_rl_hint_zones(&hint, conf,
                                            &access[i]->zone),
                          &access[i]->place.file, access[i]->place.line);
            return NGX_ERROR;
        }

        /* the first directive of a list takes those of the others, too */

        if (access[i]->done) {
            continue;
        }

        if (ngx_array_init(&all, cf->pool, access[i]->entries.nelts + 1,
                           sizeof(ngx_rl_access_t))
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        for (j = i; j < n; j++) {
            if (access[j]->deny == access[i]->deny
                && ngx_rl_equal(&access[j]->zone, &access[i]->zone))
            {
                if (ngx_rl_access_append(&all, &access[j]->entries) != NGX_OK) {
                    return NGX_ERROR;
                }

                access[j]->done = 1;
            }
        }

        if (ngx_rl_access_list_make(access[i]->deny
                                    ? &zone->limiter.base->deny
                                    : &zone->limiter.base->allow,
                                    all.elts, all.nelts, cf->pool)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}
