/*
 * "ratelimit_deny" and "ratelimit_allow": the lists of clients of nginx.conf.
 */

#include "ngx_rl_conf.h"

#define NGX_RL_ACCESS_FILE  (64 * 1024 * 1024)   /* bytes */

#define NGX_RL_ACCESS_EXPECTED                                                \
    "expected an address, a network like \"192.0.2.0/24\", or \"key:\" and "  \
    "an API key, its \"sha256:...\" or a glob"


/* NGX_DECLINED: the text is no entry. NGX_ERROR: memory is out. */
static ngx_int_t
ngx_rl_access_add(ngx_conf_t *cf, ngx_rl_access_conf_t *access, ngx_str_t *text)
{
    ngx_str_t       *key;
    ngx_rl_known_t  *entry;

    entry = ngx_array_push(&access->entries);
    if (entry == NULL) {
        return NGX_ERROR;
    }

    entry->value = NGX_RL_CLIENT_ALWAYS;
    entry->kind = NGX_RL_CLIENT_NETWORK;

    if (ngx_rl_network_parse(text->data, text->len, &entry->network) == 0) {
        return NGX_OK;
    }

    key = &entry->glob;

    if (ngx_rl_parameter(text, "key:", key) == NULL
        || ngx_rl_glob_check(key->data, key->len) != NULL)
    {
        return NGX_DECLINED;
    }

    if (ngx_rl_policy_hashed(key)) {
        entry->kind = NGX_RL_CLIENT_KEY;
        ngx_rl_policy_digest(key, entry->digest);
        return NGX_OK;
    }

    entry->kind = NGX_RL_CLIENT_GLOB;

    if (!access->deny && ngx_rl_glob_wild(key->data, key->len)
        && !ngx_rl_key_begins(key, NGX_RL_MARK_JWT))
    {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"ratelimit_allow\" has the pattern \"%V\", so "
                           "that any client can send such a key and is not "
                           "limited, expected a whole key, a network, or "
                           "\"key:jwt:...\"", text);
    }

    key->data = ngx_pstrdup(cf->pool, key);

    return key->data ? NGX_OK : NGX_ERROR;
}


/* One entry a line; "#" begins a comment. */
static ngx_int_t
ngx_rl_access_file(ngx_conf_t *cf, ngx_rl_access_conf_t *access,
    ngx_str_t *file)
{
    u_char      *p, *end, *last;
    ngx_int_t    rc;
    ngx_str_t    content, text;
    ngx_uint_t   line;

    if (ngx_rl_file_read(cf, file, NGX_RL_ACCESS_FILE, &content) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = NGX_OK;
    last = content.data + content.len;

    if (content.len > NGX_RL_ACCESS_FILE) {
        ngx_rl_wrong(cf, "has an invalid \"file=%V\", expected at most 64 MiB",
                     file);
        rc = NGX_ERROR;
        last = content.data;
    }

    for (p = content.data, line = 1;
         p < last && rc == NGX_OK;
         p = end + 1, line++)
    {
        end = ngx_strlchr(p, last, LF);
        end = end ? end : last;

        text = ngx_rl_str(p, 0);

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
            ngx_rl_wrong(cf, "has an invalid \"%V\" in %V:%ui, "
                         NGX_RL_ACCESS_EXPECTED, &text, file, line);
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
    ngx_int_t              rc;
    ngx_str_t             *value, zone, file;
    ngx_uint_t             i;
    ngx_array_t           *lists;
    ngx_rl_access_conf_t  *access;

    value = cf->args->elts;

    if (ngx_rl_parameter(&value[1], "zone=", &zone) == NULL || zone.len == 0) {
        return ngx_rl_wrong(cf, "has no \"zone=<name>\" before \"%V\"",
                            &value[1]);
    }

    /* all directives of a zone fill one list */

    lists = &((ngx_rl_main_conf_t *) conf)->lists;
    access = NULL;

    for (i = 0; i < lists->nelts && access == NULL; i++) {
        access = ((ngx_rl_access_conf_t **) lists->elts)[i];

        if (access->deny != cmd->offset || !ngx_rl_equal(&access->zone, &zone))
        {
            access = NULL;
        }
    }

    if (access == NULL) {
        access = ngx_pcalloc(cf->pool, sizeof(ngx_rl_access_conf_t));

        if (access == NULL
            || ngx_array_init(&access->entries, cf->pool, 8,
                              sizeof(ngx_rl_known_t))
               != NGX_OK
            || ngx_rl_push(lists, access) != NGX_OK)
        {
            return NGX_CONF_ERROR;
        }

        access->zone = zone;
        access->deny = (cmd->offset != 0);
        ngx_rl_place(cf, &access->place);
    }

    for (i = 2; i < cf->args->nelts; i++) {
        rc = ngx_rl_parameter(&value[i], "file=", &file)
             ? ngx_rl_access_file(cf, access, &file)
             : ngx_rl_access_add(cf, access, &value[i]);

        if (rc == NGX_DECLINED) {
            ngx_rl_wrong(cf, "has an invalid \"%V\", " NGX_RL_ACCESS_EXPECTED,
                         &value[i]);
        }

        if (rc != NGX_OK) {
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


ngx_int_t
ngx_rl_access_resolve(ngx_conf_t *cf, ngx_rl_main_conf_t *conf, void *entry)
{
    ngx_rl_access_conf_t *access = entry;

    ngx_rl_policy_t     *base;
    ngx_rl_zone_conf_t  *zone;

    zone = ngx_rl_zone_find(cf, conf, &access->zone,
                            access->deny ? "ratelimit_deny" : "ratelimit_allow",
                            NULL, &access->place);
    if (zone == NULL) {
        return NGX_ERROR;
    }

    base = zone->limiter.base;

    return ngx_rl_clients_make(access->deny ? &base->deny : &base->allow,
                               access->entries.elts, access->entries.nelts,
                               cf->pool);
}
