/*
 * Values with variables. The common ones are a single variable, which is read
 * by its index without running a script or copying a byte; a header is found
 * here, as nginx compares all names byte by byte.
 *
 * A document brings values while nginx serves: there is no ngx_conf_t then, and
 * no variable gets an index any more. They are pieces: a variable that has an
 * index is read by it, another one by its name. They are made in a thread:
 * nothing that this reads changes while workers serve.
 */

#include "ngx_http_ratelimit.h"

#define NGX_HTTP_RATELIMIT_MAX_PIECES  16   /* of one value */

static ngx_uint_t ngx_http_ratelimit_value_lone(ngx_str_t *text,
    ngx_str_t *name);
static ngx_uint_t ngx_http_ratelimit_value_api_key(const ngx_str_t *name);
static ngx_int_t ngx_http_ratelimit_value_variable(
    ngx_http_core_main_conf_t *core, ngx_http_ratelimit_value_t *value,
    ngx_int_t index, ngx_pool_t *pool);
static ngx_int_t ngx_http_ratelimit_value_made(ngx_http_request_t *r,
    ngx_http_ratelimit_value_t *value, ngx_str_t *text)
    __attribute__((noinline));
static ngx_inline ngx_uint_t ngx_http_ratelimit_value_same(const u_char *one,
    const u_char *two, size_t len);
static ngx_int_t ngx_http_ratelimit_value_join(ngx_http_request_t *r,
    ngx_http_ratelimit_value_t *value, ngx_str_t *text);
static ngx_inline ngx_int_t ngx_http_ratelimit_variable_text(
    const ngx_http_variable_value_t *vv, ngx_str_t *text);
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
static const char *ngx_http_ratelimit_values_conditions(
    ngx_http_core_main_conf_t *core, const ngx_ratelimit_rule_t *rule,
    ngx_pool_t *pool);
static ngx_int_t ngx_http_ratelimit_condition_value(ngx_http_request_t *r,
    const ngx_ratelimit_condition_t *condition,
    ngx_http_ratelimit_value_t *value, ngx_str_t *text);
static ngx_uint_t ngx_http_ratelimit_condition_holds(
    const ngx_ratelimit_condition_t *condition, const ngx_str_t *text);


ngx_int_t
ngx_http_ratelimit_value_compile(ngx_conf_t *cf, ngx_str_t *text,
    ngx_http_ratelimit_value_t *value)
{
    ngx_int_t                         index;
    ngx_str_t                         name;
    ngx_http_core_main_conf_t        *core;
    ngx_http_compile_complex_value_t  ccv;

    ngx_memzero(value, sizeof(ngx_http_ratelimit_value_t));
    value->index = -1;

    if (ngx_http_ratelimit_value_lone(text, &name)) {
        index = ngx_http_get_variable_index(cf, &name);
        core = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

        return (index == NGX_ERROR)
               ? NGX_ERROR
               : ngx_http_ratelimit_value_variable(core, value, index,
                                                   cf->pool);
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = text;
    ccv.complex_value = &value->complex;

    return ngx_http_compile_complex_value(&ccv);
}


/* "$name": captures ("$1") and "${name}" go the general way. */
static ngx_uint_t
ngx_http_ratelimit_value_lone(ngx_str_t *text, ngx_str_t *name)
{
    ngx_uint_t  i;

    if (text->len < 2 || text->data[0] != '$'
        || (text->data[1] >= '0' && text->data[1] <= '9'))
    {
        return 0;
    }

    for (i = 1; i < text->len; i++) {
        if (!ngx_http_ratelimit_name_byte(text->data[i])) {
            return 0;
        }
    }

    name->len = text->len - 1;
    name->data = text->data + 1;

    return 1;
}


static ngx_uint_t
ngx_http_ratelimit_value_api_key(const ngx_str_t *name)
{
    static const ngx_str_t  api_key = ngx_string("ratelimit_api_key");

    return ngx_ratelimit_equal(name, &api_key);
}


/*
 * A lone variable. "set", "map" or another module may make one with the name of
 * a header, so its handler is known when all is configured.
 */
static ngx_int_t
ngx_http_ratelimit_value_variable(ngx_http_core_main_conf_t *core,
    ngx_http_ratelimit_value_t *value, ngx_int_t index, ngx_pool_t *pool)
{
    ngx_str_t             name;
    ngx_uint_t            i;
    ngx_http_variable_t  *v;

    static const ngx_str_t  prefix = ngx_string("http_");

    value->index = index;
    value->variables = &core->variables;

    v = core->variables.elts;
    name = v[index].name;
    value->api_key = ngx_http_ratelimit_value_api_key(&name);

    if (name.len <= prefix.len
        || ngx_strncmp(name.data, prefix.data, prefix.len) != 0)
    {
        return NGX_OK;
    }

    value->header.len = name.len - prefix.len;
    value->header.data = ngx_pstrdup(pool, &name);
    if (value->header.data == NULL) {
        return NGX_ERROR;
    }

    value->header.data += prefix.len;

    if (value->header.data[value->header.len - 1] == '_') {
        ngx_str_null(&value->header);
    }

    for (i = 0; i < value->header.len; i++) {
        if (value->header.data[i] == '_') {
            value->header.data[i] = '-';
        }
    }

    v = core->prefix_variables.elts;

    for (i = 0; i < core->prefix_variables.nelts; i++) {
        if (ngx_ratelimit_equal(&v[i].name, &prefix)) {
            value->handler = v[i].get_handler;
        }
    }

    return NGX_OK;
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

    rule->data = values;

    for (i = 0; i < rule->nparts; i++) {

        /* the zone's key is there, and may be more than is made here */

        if (ngx_ratelimit_equal(&rule->parts[i], &zone->limiter.zone.key)) {
            parts[i] = zone->key;
            continue;
        }

        *which = i;
        expected = ngx_http_ratelimit_value_make(zone->core, &rule->parts[i],
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

    *which = NGX_RATELIMIT_VALUES_END;
    expected = ngx_http_ratelimit_values_make(zone->core, &rule->cost_end,
                                              &values->end, pool);
    if (expected || rule->nconditions == 0) {
        return expected;
    }

    *which = NGX_RATELIMIT_VALUES_IF;

    return ngx_http_ratelimit_values_conditions(zone->core, rule, pool);
}


static const char *
ngx_http_ratelimit_values_conditions(ngx_http_core_main_conf_t *core,
    const ngx_ratelimit_rule_t *rule, ngx_pool_t *pool)
{
    ngx_str_t                     text;
    ngx_uint_t                    i;
    const char                   *expected;
    ngx_http_ratelimit_values_t  *values;

    values = rule->data;
    values->conditions = ngx_palloc(pool, rule->nconditions
                                        * sizeof(ngx_http_ratelimit_value_t));

    for (i = 0; values->conditions && i < rule->nconditions; i++) {

        if (ngx_http_ratelimit_condition_text(&rule->conditions[i], pool,
                                              &text)
            != NGX_OK)
        {
            return "";
        }

        expected = text.len
                   ? ngx_http_ratelimit_value_make(core, &text,
                                                   &values->conditions[i],
                                                   pool)
                   : NULL;
        if (expected) {
            return expected;
        }
    }

    return values->conditions ? NULL : "";
}


ngx_int_t
ngx_http_ratelimit_condition_text(const ngx_ratelimit_condition_t *condition,
    ngx_pool_t *pool, ngx_str_t *text)
{
    u_char      *p;
    ngx_uint_t   i;

    ngx_str_null(text);

    if (condition->kind == NGX_RATELIMIT_IF_VALUE) {
        *text = condition->name;
    }

    if (condition->kind != NGX_RATELIMIT_IF_HEADER) {
        return NGX_OK;
    }

    p = ngx_pnalloc(pool, sizeof("$http_") - 1 + condition->name.len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    text->data = p;
    p = ngx_cpymem(p, "$http_", sizeof("$http_") - 1);

    for (i = 0; i < condition->name.len; i++) {
        *p++ = (condition->name.data[i] == '-')
               ? '_' : ngx_tolower(condition->name.data[i]);
    }

    text->len = p - text->data;

    return NGX_OK;
}


/* An empty text makes nothing. */
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
        return ngx_http_ratelimit_value_variable(core, value, pieces[0].index,
                                                 pool)
               == NGX_OK ? NULL : "";
    }

    value->pieces = ngx_palloc(pool, n * sizeof(ngx_http_ratelimit_piece_t));
    if (value->pieces == NULL) {
        return "";
    }

    ngx_memcpy(value->pieces, pieces, n * sizeof(ngx_http_ratelimit_piece_t));
    value->npieces = n;
    value->api_key = (n == 1 && pieces[0].variable
                      && ngx_http_ratelimit_value_api_key(&pieces[0].text));

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
        if (ngx_ratelimit_equal(&v[i].name, name)) {
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


/*
 * Reads a header, and sets its variable as nginx would. A variable that has a
 * value keeps it. nginx itself makes the value if the variable is not that of
 * the header, if several headers have the name, which 1.23 and later join, or
 * if another header has the same length and last byte: its name may be the same
 * with a "_" for a "-".
 */
ngx_int_t
ngx_http_ratelimit_value_get(ngx_http_request_t *r,
    ngx_http_ratelimit_value_t *value, ngx_str_t *text)
{
    size_t                      last;
    const u_char               *name;
    ngx_table_elt_t            *h, *found;
    ngx_http_variable_t        *v;
    ngx_http_ratelimit_walk_t   walk;
    ngx_http_variable_value_t  *vv;

    if (value->header.len == 0) {
        return ngx_http_ratelimit_value_made(r, value, text);
    }

    v = value->variables->elts;
    vv = &r->variables[value->index];

    if (vv->valid || vv->not_found
        || v[value->index].get_handler != value->handler)
    {
        return ngx_http_ratelimit_value_made(r, value, text);
    }

    name = value->header.data;
    last = value->header.len - 1;
    found = NULL;
    ngx_http_ratelimit_walk_part(&walk, &r->headers_in.headers.part);

    while ((h = ngx_http_ratelimit_walk_next(&walk, last + 1)) != NULL) {

        if (h->lowcase_key[last] != name[last]) {
            continue;
        }

        if (found || !ngx_http_ratelimit_value_same(h->lowcase_key, name, last))
        {
            return ngx_http_ratelimit_value_made(r, value, text);
        }

        found = h;
    }

    if (found == NULL) {
        vv->not_found = 1;
        ngx_str_null(text);
        return NGX_OK;
    }

    *text = found->value;

    *vv = (ngx_http_variable_value_t) {
        .len = found->value.len,
        .valid = 1,
        .data = found->value.data
    };

    return NGX_OK;
}


/* As nginx makes it. Not inlined, as reading a header needs few registers. */
static ngx_int_t
ngx_http_ratelimit_value_made(ngx_http_request_t *r,
    ngx_http_ratelimit_value_t *value, ngx_str_t *text)
{
    if (value->index == -1) {
        return value->npieces
               ? ngx_http_ratelimit_value_join(r, value, text)
               : ngx_http_complex_value(r, &value->complex, text);
    }

    /* not what a rewrite has read before it changed the request */

    return ngx_http_ratelimit_variable_text(
                            ngx_http_get_flushed_variable(r, value->index),
                            text);
}


/* A call of memcmp() costs more: names are short. */
static ngx_inline ngx_uint_t
ngx_http_ratelimit_value_same(const u_char *one, const u_char *two, size_t len)
{
    uint64_t  a, b;

    for ( /* void */ ; len >= sizeof(uint64_t); len -= sizeof(uint64_t)) {
        ngx_memcpy(&a, one + len - sizeof(uint64_t), sizeof(uint64_t));
        ngx_memcpy(&b, two + len - sizeof(uint64_t), sizeof(uint64_t));

        if (a != b) {
            return 0;
        }
    }

    while (len--) {
        if (one[len] != two[len]) {
            return 0;
        }
    }

    return 1;
}


/*
 * A variable without a value is an empty text. One that could not be made, as
 * memory was out, is an error: without its key a request had no limit.
 */
static ngx_inline ngx_int_t
ngx_http_ratelimit_variable_text(const ngx_http_variable_value_t *vv,
    ngx_str_t *text)
{
    if (vv == NULL) {
        return NGX_ERROR;
    }

    if (vv->not_found) {
        ngx_str_set(text, "");
        return NGX_OK;
    }

    text->len = vv->len;
    text->data = vv->data;

    return NGX_OK;
}


/* Joins the pieces in two passes. The first evaluates them. */
static ngx_int_t
ngx_http_ratelimit_value_join(ngx_http_request_t *r,
    ngx_http_ratelimit_value_t *value, ngx_str_t *text)
{
    u_char                      *p;
    ngx_str_t                   *texts;
    ngx_uint_t                   i;
    ngx_http_ratelimit_piece_t  *piece;

    texts = ngx_palloc(r->pool, value->npieces * sizeof(ngx_str_t));
    if (texts == NULL) {
        return NGX_ERROR;
    }

    text->len = 0;

    for (i = 0; i < value->npieces; i++) {
        piece = &value->pieces[i];

        if (!piece->variable) {
            texts[i] = piece->text;

        } else if (ngx_http_ratelimit_variable_text(
                       (piece->index == -1)
                       ? ngx_http_get_variable(r, &piece->text, piece->hash)
                       : ngx_http_get_flushed_variable(r, piece->index),
                       &texts[i])
                   != NGX_OK)
        {
            return NGX_ERROR;
        }

        text->len += texts[i].len;
    }

    if (value->npieces == 1) {
        *text = texts[0];
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, text->len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    text->data = p;

    for (i = 0; i < value->npieces; i++) {
        p = ngx_cpymem(p, texts[i].data, texts[i].len);
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_ratelimit_key_mark(ngx_http_request_t *r, const char *mark,
    ngx_str_t *key)
{
    u_char  *p;
    size_t   len;

    len = ngx_strlen(mark);

    p = ngx_pnalloc(r->pool, len + key->len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(p, mark, len);
    ngx_memcpy(p + len, key->data, key->len);

    key->data = p;
    key->len += len;

    return NGX_OK;
}


ngx_int_t
ngx_http_ratelimit_values_key(ngx_http_request_t *r,
    ngx_http_ratelimit_values_t *values, ngx_str_t *key)
{
    ngx_str_t   texts[NGX_RATELIMIT_MAX_PARTS];
    ngx_uint_t  i;

    if (values->nparts == 0) {
        return ngx_http_ratelimit_value_key(r, &values->key, key);
    }

    for (i = 0; i < values->nparts; i++) {
        if (ngx_http_ratelimit_value_key(r, &values->parts[i], &texts[i])
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return ngx_ratelimit_policy_join(texts, values->nparts, r->pool, key);
}


/* Conditions with one name follow each other, and one of them must hold. */
ngx_int_t
ngx_http_ratelimit_conditions(ngx_http_request_t *r,
    const ngx_ratelimit_rule_t *rule, const ngx_ratelimit_condition_t **failed)
{
    ngx_str_t                         text;
    ngx_uint_t                        i, holds;
    const ngx_ratelimit_condition_t  *c;
    ngx_http_ratelimit_values_t      *values;

    values = rule->data;
    c = rule->conditions;
    i = 0;

    do {
        *failed = &c[i];

        if (ngx_http_ratelimit_condition_value(r, &c[i],
                                               &values->conditions[i], &text)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        holds = 0;

        do {
            holds |= ngx_http_ratelimit_condition_holds(&c[i++], &text);
        } while (i < rule->nconditions && c[i].other);

    } while (holds && i < rule->nconditions);

    return holds ? NGX_OK : NGX_DECLINED;
}


/* The argument as "$arg_name" has it, decoded. */
static ngx_int_t
ngx_http_ratelimit_condition_value(ngx_http_request_t *r,
    const ngx_ratelimit_condition_t *condition,
    ngx_http_ratelimit_value_t *value, ngx_str_t *text)
{
    u_char     *src, *dst;
    ngx_str_t   arg;

    if (condition->kind != NGX_RATELIMIT_IF_ARG) {
        return ngx_http_ratelimit_value_get(r, value, text);
    }

    ngx_str_null(text);

    if (ngx_http_arg(r, condition->name.data, condition->name.len, &arg)
        != NGX_OK)
    {
        return NGX_OK;
    }

    dst = ngx_pnalloc(r->pool, arg.len + 1);
    if (dst == NULL) {
        return NGX_ERROR;
    }

    text->data = dst;
    src = arg.data;

    ngx_unescape_uri(&dst, &src, arg.len, 0);

    text->len = dst - text->data;

    return NGX_OK;
}


static ngx_uint_t
ngx_http_ratelimit_condition_holds(const ngx_ratelimit_condition_t *condition,
    const ngx_str_t *text)
{
    if (condition->kind == NGX_RATELIMIT_IF_VALUE) {
        return text->len > 1 || (text->len == 1 && text->data[0] != '0');
    }

    return text->len
           && ngx_ratelimit_glob_match(condition->glob.data,
                                       condition->glob.len, text->data,
                                       text->len);
}


ngx_str_t
ngx_http_ratelimit_value_quote(const ngx_str_t *text, u_char *out)
{
    size_t     len;
    u_char    *last;
    ngx_str_t  quoted;

    len = ngx_min(text->len, NGX_HTTP_RATELIMIT_QUOTE);

    last = (u_char *) ngx_escape_json(out, text->data, len);

    if (len < text->len) {
        last = ngx_cpymem(last, "...", sizeof("...") - 1);
    }

    quoted.data = out;
    quoted.len = last - out;

    return quoted;
}
