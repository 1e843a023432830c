/*
 * The parameters of a rule that say which requests it is for, and what they
 * are counted by.
 */

#include "ngx_http_ratelimit_rule_conf.h"

#include "ngx_ratelimit_route.h"
#include "ngx_ratelimit_text.h"

#define NGX_HTTP_RATELIMIT_MAX_PRIORITY  1000000

static const char *ngx_http_ratelimit_set_regex(ngx_conf_t *cf,
    ngx_str_t *value, ngx_http_ratelimit_rule_t *rule);

static const char *ngx_http_ratelimit_set_hashes(ngx_conf_t *cf,
    ngx_str_t *value, ngx_ratelimit_keys_t *keys, ngx_uint_t n);
static ngx_uint_t ngx_http_ratelimit_variables_in(ngx_str_t *text);

static ngx_conf_bitmask_t  ngx_http_ratelimit_methods[] = {
    { ngx_string("GET"), NGX_HTTP_GET },
    { ngx_string("HEAD"), NGX_HTTP_HEAD },
    { ngx_string("POST"), NGX_HTTP_POST },
    { ngx_string("PUT"), NGX_HTTP_PUT },
    { ngx_string("DELETE"), NGX_HTTP_DELETE },
    { ngx_string("PATCH"), NGX_HTTP_PATCH },
    { ngx_string("OPTIONS"), NGX_HTTP_OPTIONS },
    { ngx_string("MKCOL"), NGX_HTTP_MKCOL },
    { ngx_string("COPY"), NGX_HTTP_COPY },
    { ngx_string("MOVE"), NGX_HTTP_MOVE },
    { ngx_string("PROPFIND"), NGX_HTTP_PROPFIND },
    { ngx_string("PROPPATCH"), NGX_HTTP_PROPPATCH },
    { ngx_string("LOCK"), NGX_HTTP_LOCK },
    { ngx_string("UNLOCK"), NGX_HTTP_UNLOCK },
    { ngx_string("TRACE"), NGX_HTTP_TRACE },
    { ngx_null_string, 0 }
};


const char *
ngx_http_ratelimit_set_key(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    if (value->len == 0) {
        return "a value with variables";
    }

    rule->rule.key = *value;
    ngx_http_ratelimit_key_warn(cf, "ratelimit_rule", value);

    if (ngx_http_ratelimit_value_compile(cf, value, &rule->values.key)
        != NGX_OK)
    {
        return "";
    }

    return NULL;
}


void
ngx_http_ratelimit_key_warn(ngx_conf_t *cf, const char *directive,
    const ngx_str_t *key)
{
    static const ngx_str_t  all = ngx_string("all");

    if (ngx_strlchr(key->data, key->data + key->len, '$')
        || ngx_http_ratelimit_equal(key, &all))
    {
        return;
    }

    ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                       "\"%s\" has the key \"%V\" without a variable, which "
                       "limits all clients together, expected one as in "
                       "\"$remote_addr\", or \"key=all\" if that is meant",
                       directive, key);
}


const char *
ngx_http_ratelimit_set_match(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    const char  *wrong;

    if (value->len && value->data[0] == '~') {
        return ngx_http_ratelimit_set_regex(cf, value, rule);
    }

    rule->rule.route = *value;

    wrong = ngx_ratelimit_route_check(value->data, value->len);

    if (wrong) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_rule\" has an invalid \"match=%V\", "
                           "expected a path template: %s", value, wrong);
        return "";
    }

    return NULL;
}


static const char *
ngx_http_ratelimit_set_regex(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
#if (NGX_PCRE)

    u_char                errstr[NGX_MAX_CONF_ERRSTR];
    ngx_regex_compile_t   rc;

    ngx_memzero(&rc, sizeof(ngx_regex_compile_t));

    rc.pattern.data = value->data + 1;
    rc.pattern.len = value->len - 1;
    rc.pool = cf->pool;
    rc.err.len = NGX_MAX_CONF_ERRSTR;
    rc.err.data = errstr;

    if (rc.pattern.len && rc.pattern.data[0] == '*') {
        rc.options = NGX_REGEX_CASELESS;
        rc.pattern.data++;
        rc.pattern.len--;
    }

    if (rc.pattern.len == 0) {
        return "a regular expression after \"~\" or \"~*\"";
    }

    if (ngx_regex_compile(&rc) != NGX_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_rule\" has an invalid "
                           "\"match=%V\": %V", value, &rc.err);
        return "";
    }

    rule->rule.regex = rc.regex;

    return NULL;

#else

    return "a path template: this nginx is built without PCRE";

#endif
}


const char *
ngx_http_ratelimit_set_methods(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    u_char      *p, *last, *comma;
    ngx_uint_t   bit;

    p = value->data;
    last = value->data + value->len;

    for ( ;; ) {
        comma = ngx_strlchr(p, last, ',');
        if (comma == NULL) {
            comma = last;
        }

        bit = ngx_http_ratelimit_method(p, comma - p);
        if (bit == 0) {
            return "HTTP methods like \"GET,POST\"";
        }

        rule->rule.methods |= bit;

        if (comma == last) {
            return NULL;
        }

        p = comma + 1;
    }
}


ngx_uint_t
ngx_http_ratelimit_methods_all(void)
{
    ngx_uint_t           bits;
    ngx_conf_bitmask_t  *m;

    bits = 0;

    for (m = ngx_http_ratelimit_methods; m->name.len; m++) {
        bits |= m->mask;
    }

    return bits;
}


ngx_uint_t
ngx_http_ratelimit_method(const u_char *name, size_t len)
{
    ngx_conf_bitmask_t  *m;

    for (m = ngx_http_ratelimit_methods; m->name.len; m++) {
        if (m->name.len == len && ngx_strncmp(m->name.data, name, len) == 0) {
            return m->mask;
        }
    }

    return 0;
}


const char *
ngx_http_ratelimit_set_rule_tier(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    if (value->len == 0
        || ngx_strlchr(value->data, value->data + value->len, '$'))
    {
        return "a text without variables, which \"ratelimit_tier\" takes";
    }

    rule->rule.tier = *value;

    return NULL;
}


/* In lower case, as nginx has the request's. */
const char *
ngx_http_ratelimit_set_host(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    u_char                     *p, *last;
    ngx_str_t                   text;
    ngx_array_t                 hosts;
    ngx_ratelimit_glob_text_t  *host;

    if (ngx_array_init(&hosts, cf->pool, 2, sizeof(ngx_ratelimit_glob_text_t))
        != NGX_OK)
    {
        return "";
    }

    p = value->data;
    last = value->data + value->len;

    do {
        text = ngx_http_ratelimit_next(&p, last);

        if (ngx_http_ratelimit_variables_in(&text)
            || ngx_ratelimit_glob_check(text.data, text.len))
        {
            return "host names like \"api.example.com,*.example.org\", "
                   "without variables";
        }

        host = ngx_array_push(&hosts);
        if (host == NULL) {
            return "";
        }

        ngx_strlow(text.data, text.data, text.len);
        host->data = text.data;
        host->len = text.len;

    } while (p);

    rule->rule.hosts = hosts.elts;
    rule->rule.nhosts = hosts.nelts;

    return NULL;
}


const char *
ngx_http_ratelimit_set_rule_api_key(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    void                       *memory;
    u_char                     *p, *last;
    ngx_str_t                   text;
    ngx_uint_t                  n, hashed;
    ngx_ratelimit_keys_t       *keys;
    ngx_ratelimit_glob_text_t  *globs;

    keys = ngx_pcalloc(cf->pool, sizeof(ngx_ratelimit_keys_t));
    globs = ngx_palloc(cf->pool, (value->len / 2 + 1)
                                 * sizeof(ngx_ratelimit_glob_text_t));

    if (keys == NULL || globs == NULL) {
        return "";
    }

    n = 0;
    hashed = 0;
    p = value->data;
    last = value->data + value->len;

    do {
        text = ngx_http_ratelimit_next(&p, last);

        if (ngx_http_ratelimit_variables_in(&text)
            || ngx_ratelimit_glob_check(text.data, text.len))
        {
            return "API keys like \"sk_live_*,sk_test_1\", with \"*\" and "
                   "\"?\" for any text and any character, without variables";
        }

        if (ngx_ratelimit_policy_hashed(&text)) {
            hashed++;

        } else {
            globs[n].data = text.data;
            globs[n++].len = text.len;
        }

    } while (p);

    if (n) {
        memory = ngx_palloc(cf->pool, ngx_ratelimit_globs_bytes(n));
        if (memory == NULL) {
            return "";
        }

        keys->globs = ngx_ratelimit_globs_init(memory, globs, n);
    }

    rule->rule.api_keys = keys;

    return hashed ? ngx_http_ratelimit_set_hashes(cf, value, keys, hashed)
                  : NULL;
}


/* The digests among them. */
static const char *
ngx_http_ratelimit_set_hashes(ngx_conf_t *cf, ngx_str_t *value,
    ngx_ratelimit_keys_t *keys, ngx_uint_t n)
{
    void       *memory;
    u_char     *p, *last, digest[NGX_RATELIMIT_MAP_KEY];
    ngx_str_t   text;

    memory = ngx_palloc(cf->pool, ngx_ratelimit_map_bytes(n));
    if (memory == NULL) {
        return "";
    }

    ngx_ratelimit_map_init(&keys->digests, memory, n);

    p = value->data;
    last = value->data + value->len;

    do {
        text = ngx_http_ratelimit_next(&p, last);

        if (ngx_ratelimit_policy_hashed(&text)) {
            ngx_ratelimit_policy_digest(&text, digest);
            (void) ngx_ratelimit_map_put(&keys->digests, digest, 0);
        }

    } while (p);

    return NULL;
}


static ngx_uint_t
ngx_http_ratelimit_variables_in(ngx_str_t *text)
{
    return ngx_strlchr(text->data, text->data + text->len, '$') != NULL;
}


ngx_str_t
ngx_http_ratelimit_next(u_char **p, u_char *last)
{
    u_char     *comma;
    ngx_str_t   text;

    comma = ngx_strlchr(*p, last, ',');

    text.data = *p;
    text.len = (comma ? comma : last) - *p;

    *p = comma ? comma + 1 : NULL;

    return text;
}


const char *
ngx_http_ratelimit_set_percent(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    uint64_t  percent;

    if (ngx_ratelimit_number_parse(value->data, value->len, 1, 100, &percent)
        != 0)
    {
        return "a number from 1 to 100";
    }

    rule->rule.percent = (ngx_uint_t) percent;

    return NULL;
}


const char *
ngx_http_ratelimit_set_group(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    if (!ngx_ratelimit_name_valid(value->data, value->len)) {
        return "1 to 64 of A-Z, a-z, 0-9, \"_\", \".\", \"-\"";
    }

    rule->rule.group = *value;

    return NULL;
}


const char *
ngx_http_ratelimit_set_priority(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_ratelimit_rule_t *rule)
{
    uint64_t    priority;
    ngx_uint_t  minus;

    minus = (value->len && value->data[0] == '-');

    if (ngx_ratelimit_number_parse(value->data + minus, value->len - minus, 0,
                                   NGX_HTTP_RATELIMIT_MAX_PRIORITY, &priority)
        != 0)
    {
        return "a whole number from -1000000 to 1000000";
    }

    rule->rule.priority = minus ? -(ngx_int_t) priority : (ngx_int_t) priority;

    return NULL;
}
