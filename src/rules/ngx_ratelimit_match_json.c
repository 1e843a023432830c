/*
 * Which requests a rule of a document is for, and what it counts them by.
 */

#include "ngx_ratelimit_rule_json.h"

#include "ngx_ratelimit_route.h"

#define member(name)                                                          \
    static void ngx_ratelimit_read_##name(ngx_ratelimit_reader_t *reader,     \
        const ngx_ratelimit_place_t *at, json_t *value, void *data)

member(api_key_pattern);
member(route);
member(endpoint_regex);
member(methods);
member(host);
member(match_tier);

#undef member

static const ngx_ratelimit_member_t  ngx_ratelimit_match_members[] = {
    { "api_key_pattern", NGX_RATELIMIT_IS_TEXT|NGX_RATELIMIT_IS_ARRAY,
      ngx_ratelimit_read_api_key_pattern },
    { "route", NGX_RATELIMIT_IS_TEXT, ngx_ratelimit_read_route },
    { "endpoint_regex", NGX_RATELIMIT_IS_TEXT,
      ngx_ratelimit_read_endpoint_regex },
    { "methods", NGX_RATELIMIT_IS_TEXT|NGX_RATELIMIT_IS_ARRAY,
      ngx_ratelimit_read_methods },
    { "host", NGX_RATELIMIT_IS_TEXT|NGX_RATELIMIT_IS_ARRAY,
      ngx_ratelimit_read_host },
    { "tier", NGX_RATELIMIT_IS_TEXT, ngx_ratelimit_read_match_tier },
    { NULL, 0, NULL }
};


void
ngx_ratelimit_read_match(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    ngx_ratelimit_read_members(reader, at, value, ngx_ratelimit_match_members,
                               draft);

    if (draft->rule->route.len && draft->rule->regex_text.len) {
        ngx_ratelimit_read_wrong(reader, at, NULL, "endpoint_regex",
                                 "stands beside \"route\", expected one of "
                                 "them");
    }
}


/* No patterns are any key, and none. */
static void
ngx_ratelimit_read_api_key_pattern(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    if (ngx_ratelimit_read_count(value) == 0) {
        return;
    }

    draft->rule->api_keys = ngx_ratelimit_read_alloc(reader,
                                                 sizeof(ngx_ratelimit_keys_t));

    if (draft->rule->api_keys) {
        ngx_ratelimit_read_keys(reader, at, value, draft->rule->api_keys);
    }
}


static void
ngx_ratelimit_read_route(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    ngx_str_t    route;
    const char  *wrong;

    route = ngx_ratelimit_read_text(value);
    wrong = ngx_ratelimit_route_check(route.data, route.len);

    if (wrong) {
        ngx_ratelimit_read_problem(reader, at, "expected a path template: %s",
                                   wrong);
        return;
    }

    draft->rule->route = ngx_ratelimit_read_copy(reader, value);
}


/* Whether it compiles is found when the policy is finished. */
static void
ngx_ratelimit_read_endpoint_regex(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

#if (NGX_PCRE)

    if (json_string_length(value) == 0) {
        ngx_ratelimit_read_problem(reader, at, "expected a regular expression");
        return;
    }

    draft->rule->regex_text = ngx_ratelimit_read_copy(reader, value);

#else

    (void) draft;

    ngx_ratelimit_read_problem(reader, at, "expected \"route\": this nginx is "
                               "built without PCRE");

#endif
}


static void
ngx_ratelimit_read_methods(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    size_t                  i;
    json_t                 *method;
    ngx_str_t               name;
    ngx_uint_t              bit;
    ngx_ratelimit_place_t   item;

    for (i = 0; i < ngx_ratelimit_read_count(value); i++) {
        method = ngx_ratelimit_read_item(value, i, at, &item);

        if (!ngx_ratelimit_read_is(reader, &item, method,
                                   NGX_RATELIMIT_IS_TEXT))
        {
            continue;
        }

        name = ngx_ratelimit_read_text(method);
        bit = reader->limiter->above.method(name.data, name.len);

        if (bit == 0) {
            ngx_ratelimit_read_problem(reader, &item, "expected an HTTP method "
                                       "like \"GET\"");
            continue;
        }

        draft->rule->methods |= bit;
    }
}


static void
ngx_ratelimit_read_host(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    size_t                      i, n;
    json_t                     *host;
    ngx_str_t                   text;
    const char                 *expected;
    ngx_ratelimit_place_t       item;
    ngx_ratelimit_glob_text_t  *hosts;

    n = ngx_ratelimit_read_count(value);

    if (n == 0) {
        return;
    }

    hosts = ngx_ratelimit_read_alloc(reader,
                                     n * sizeof(ngx_ratelimit_glob_text_t));
    if (hosts == NULL) {
        return;
    }

    draft->rule->hosts = hosts;
    draft->rule->nhosts = n;

    for (i = 0; i < n; i++) {
        host = ngx_ratelimit_read_item(value, i, at, &item);

        if (!ngx_ratelimit_read_is(reader, &item, host, NGX_RATELIMIT_IS_TEXT))
        {
            continue;
        }

        text = ngx_ratelimit_read_copy(reader, host);
        expected = text.len ? ngx_ratelimit_glob_check(text.data, text.len)
                            : "a host name";

        if (expected) {
            ngx_ratelimit_read_problem(reader, &item, "expected %s", expected);
            continue;
        }

        ngx_strlow(text.data, text.data, text.len);

        hosts[i].data = text.data;
        hosts[i].len = text.len;
    }
}


static void
ngx_ratelimit_read_match_tier(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    ngx_str_t  tier;

    tier = ngx_ratelimit_read_text(value);

    if (ngx_ratelimit_read_tier(reader, at, &tier)) {
        draft->rule->tier = ngx_ratelimit_read_copy(reader, value);
    }
}


void
ngx_ratelimit_read_key(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data)
{
    ngx_ratelimit_draft_t *draft = data;

    size_t                  i, n;
    json_t                 *part;
    ngx_str_t               text;
    ngx_ratelimit_rule_t   *rule;
    ngx_ratelimit_place_t   item;

    rule = draft->rule;
    n = ngx_ratelimit_read_count(value);

    if (n == 0 || n > NGX_RATELIMIT_MAX_PARTS) {
        ngx_ratelimit_read_problem(reader, at, "expected 1 to %d parts",
                                   NGX_RATELIMIT_MAX_PARTS);
        return;
    }

    rule->parts = ngx_ratelimit_read_alloc(reader, n * sizeof(ngx_str_t));
    if (rule->parts == NULL) {
        return;
    }

    rule->nparts = n;

    for (i = 0; i < n; i++) {
        part = ngx_ratelimit_read_item(value, i, at, &item);

        if (!ngx_ratelimit_read_is(reader, &item, part, NGX_RATELIMIT_IS_TEXT))
        {
            continue;
        }

        text = ngx_ratelimit_read_text(part);

        if (text.len == 0
            || ngx_strlchr(text.data, text.data + text.len, 0x1f))
        {
            ngx_ratelimit_read_problem(reader, &item,
                                       "expected a value with variables");
            continue;
        }

        rule->parts[i] = ngx_ratelimit_read_copy(reader, part);
    }
}


void
ngx_ratelimit_read_default_key(ngx_ratelimit_reader_t *reader,
    ngx_ratelimit_rule_t *rule)
{
    rule->parts = ngx_ratelimit_read_alloc(reader, sizeof(ngx_str_t));

    if (rule->parts) {
        rule->nparts = 1;
        rule->parts[0] = reader->limiter->zone.key;
    }
}


void
ngx_ratelimit_read_join_key(ngx_ratelimit_reader_t *reader,
    ngx_ratelimit_rule_t *rule)
{
    u_char      *p;
    size_t       len;
    ngx_uint_t   i;

    if (rule->nparts == 1) {
        rule->key = rule->parts[0];
        return;
    }

    len = rule->nparts - 1;

    for (i = 0; i < rule->nparts; i++) {
        len += rule->parts[i].len;
    }

    p = ngx_pnalloc(reader->pool, len);
    if (p == NULL) {
        reader->failed = 1;
        return;
    }

    rule->key.data = p;
    rule->key.len = len;

    for (i = 0; i < rule->nparts; i++) {

        if (i) {
            *p++ = 0x1f;
        }

        p = ngx_cpymem(p, rule->parts[i].data, rule->parts[i].len);
    }
}
