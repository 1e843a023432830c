/*
 * Values with variables that a document brings while nginx serves: there is no
 * ngx_conf_t then, and no variable gets an index any more. What has one is read
 * by it, as in nginx.conf, other variables by their names.
 *
 * Runs in a thread: nothing that it reads changes while workers serve.
 */

#include "ngx_http_ratelimit.h"

#define NGX_HTTP_RATELIMIT_MAX_PIECES  16   /* of one value */

static const char *ngx_http_ratelimit_values_key_of(
    ngx_http_ratelimit_zone_t *zone, const ngx_str_t *text,
    ngx_http_ratelimit_value_t *value, ngx_pool_t *pool);
static const char *ngx_http_ratelimit_values_make(
    ngx_http_core_main_conf_t *core, const ngx_str_t *text,
    ngx_http_ratelimit_value_t **made, ngx_pool_t *pool);
static const char *ngx_http_ratelimit_value_make(
    ngx_http_core_main_conf_t *core, const ngx_str_t *text,
    ngx_http_ratelimit_value_t *value, ngx_pool_t *pool);
static const char *ngx_http_ratelimit_piece_make(
    ngx_http_core_main_conf_t *core, u_char **pos, u_char *last,
    ngx_http_ratelimit_piece_t *piece);
static ngx_uint_t ngx_http_ratelimit_variable_known(
    ngx_http_core_main_conf_t *core, ngx_http_ratelimit_piece_t *piece);
static ngx_uint_t ngx_http_ratelimit_name_byte(u_char ch);


void
ngx_http_ratelimit_above(ngx_conf_t *cf, ngx_http_ratelimit_zone_t *zone)
{
    ngx_ratelimit_above_t  *above;

    zone->core = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    above = &zone->limiter.above;

    above->values = ngx_http_ratelimit_values;
    above->data = zone;
    above->prepare = ngx_ratelimit_check_prepare;
    above->method = ngx_http_ratelimit_method;
}


const char *
ngx_http_ratelimit_values(void *data, ngx_ratelimit_rule_t *rule,
    const ngx_str_t *limit, const ngx_str_t *cost, ngx_pool_t *pool,
    ngx_uint_t *which)
{
    ngx_http_ratelimit_zone_t *zone = data;

    ngx_uint_t                    i;
    const char                   *expected;
    ngx_http_ratelimit_value_t   *parts;
    ngx_http_ratelimit_values_t  *values;

    values = ngx_pcalloc(pool, sizeof(ngx_http_ratelimit_values_t));
    if (values == NULL) {
        return "";
    }

    parts = &values->key;

    if (rule->nparts > 1) {
        parts = ngx_palloc(pool,
                           rule->nparts * sizeof(ngx_http_ratelimit_value_t));
        if (parts == NULL) {
            return "";
        }

        values->nparts = rule->nparts;
        values->parts = parts;
    }

    for (i = 0; i < rule->nparts; i++) {
        *which = i;
        expected = ngx_http_ratelimit_values_key_of(zone, &rule->parts[i],
                                                    &parts[i], pool);
        if (expected) {
            return expected;
        }
    }

    *which = NGX_RATELIMIT_VALUES_LIMIT;
    expected = ngx_http_ratelimit_values_make(zone->core, limit,
                                              &values->limit, pool);
    if (expected) {
        return expected;
    }

    *which = NGX_RATELIMIT_VALUES_COST;
    expected = ngx_http_ratelimit_values_make(zone->core, cost, &values->cost,
                                              pool);
    if (expected) {
        return expected;
    }

    rule->data = values;

    return NULL;
}


/* The zone's own key is there already, and may be more than is made here. */
static const char *
ngx_http_ratelimit_values_key_of(ngx_http_ratelimit_zone_t *zone,
    const ngx_str_t *text, ngx_http_ratelimit_value_t *value, ngx_pool_t *pool)
{
    if (ngx_http_ratelimit_equal(text, &zone->limiter.zone.key)) {
        *value = zone->key;
        return NULL;
    }

    return ngx_http_ratelimit_value_make(zone->core, text, value, pool);
}


/* Nothing, of a text that is empty. */
static const char *
ngx_http_ratelimit_values_make(ngx_http_core_main_conf_t *core,
    const ngx_str_t *text, ngx_http_ratelimit_value_t **made, ngx_pool_t *pool)
{
    if (text->len == 0) {
        return NULL;
    }

    *made = ngx_palloc(pool, sizeof(ngx_http_ratelimit_value_t));
    if (*made == NULL) {
        return "";
    }

    return ngx_http_ratelimit_value_make(core, text, *made, pool);
}


static const char *
ngx_http_ratelimit_value_make(ngx_http_core_main_conf_t *core,
    const ngx_str_t *text, ngx_http_ratelimit_value_t *value, ngx_pool_t *pool)
{
    u_char                      *p, *last, *copy;
    ngx_uint_t                   n;
    const char                  *expected;
    ngx_http_ratelimit_piece_t   pieces[NGX_HTTP_RATELIMIT_MAX_PIECES];

    ngx_memzero(value, sizeof(ngx_http_ratelimit_value_t));
    value->index = -1;

    if (text->len == 0) {
        return "a value that is not empty";
    }

    /* of its own: names are put in lower case */

    copy = ngx_pnalloc(pool, text->len);
    if (copy == NULL) {
        return "";
    }

    ngx_memcpy(copy, text->data, text->len);

    p = copy;
    last = copy + text->len;

    for (n = 0; p < last; n++) {

        if (n == NGX_HTTP_RATELIMIT_MAX_PIECES) {
            return "at most 16 variables and texts between them";
        }

        expected = ngx_http_ratelimit_piece_make(core, &p, last, &pieces[n]);
        if (expected) {
            return expected;
        }
    }

    if (n == 1 && pieces[0].variable && pieces[0].index != -1) {
        value->index = pieces[0].index;
        return NULL;
    }

    value->pieces = ngx_palloc(pool, n * sizeof(ngx_http_ratelimit_piece_t));
    if (value->pieces == NULL) {
        return "";
    }

    ngx_memcpy(value->pieces, pieces, n * sizeof(ngx_http_ratelimit_piece_t));
    value->npieces = n;

    return NULL;
}


/* "$name", "${name}", or what stands before the next of them. */
static const char *
ngx_http_ratelimit_piece_make(ngx_http_core_main_conf_t *core, u_char **pos,
    u_char *last, ngx_http_ratelimit_piece_t *piece)
{
    u_char      *p;
    ngx_uint_t   braces;

    ngx_memzero(piece, sizeof(ngx_http_ratelimit_piece_t));
    piece->index = -1;

    p = *pos;

    if (*p != '$') {
        piece->text.data = p;

        while (p < last && *p != '$') {
            p++;
        }

        piece->text.len = p - piece->text.data;
        *pos = p;

        return NULL;
    }

    p++;
    braces = (p < last && *p == '{');
    p += braces;

    piece->text.data = p;

    while (p < last && ngx_http_ratelimit_name_byte(*p)) {
        p++;
    }

    piece->text.len = p - piece->text.data;

    if (piece->text.len == 0 || (braces && (p == last || *p != '}'))) {
        return "the name of a variable after \"$\"";
    }

    *pos = p + braces;

    ngx_strlow(piece->text.data, piece->text.data, piece->text.len);
    piece->hash = ngx_hash_key(piece->text.data, piece->text.len);
    piece->variable = 1;

    return ngx_http_ratelimit_variable_known(core, piece)
           ? NULL : "a known variable";
}


/* By its index, where it has one; by its name; by the beginning of its name. */
static ngx_uint_t
ngx_http_ratelimit_variable_known(ngx_http_core_main_conf_t *core,
    ngx_http_ratelimit_piece_t *piece)
{
    ngx_str_t            *name;
    ngx_uint_t            i;
    ngx_http_variable_t  *v;

    name = &piece->text;
    v = core->variables.elts;

    for (i = 0; i < core->variables.nelts; i++) {
        if (ngx_http_ratelimit_equal(&v[i].name, name)) {
            piece->index = i;
            return 1;
        }
    }

    if (core->variables_hash.buckets
        && ngx_hash_find(&core->variables_hash, piece->hash, name->data,
                         name->len))
    {
        return 1;
    }

    v = core->prefix_variables.elts;

    for (i = 0; i < core->prefix_variables.nelts; i++) {
        if (name->len >= v[i].name.len
            && ngx_strncmp(name->data, v[i].name.data, v[i].name.len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


static ngx_uint_t
ngx_http_ratelimit_name_byte(u_char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z')
           || (ch >= '0' && ch <= '9') || ch == '_';
}
