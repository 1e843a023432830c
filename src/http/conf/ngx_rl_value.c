/*
 * Values with variables: pieces of them, whoever has written them. The common
 * ones are a single variable, which is read by its index without copying a
 * byte. A key that is one header, argument or cookie is read here.
 *
 * A document brings values while nginx serves: there is no ngx_conf_t then, and
 * no variable gets an index any more. A variable that has an index is read by
 * it, another one by its name. They are made in a thread: nothing that this
 * reads changes while workers serve.
 */

#include "ngx_rl_conf.h"
#include "ngx_rl_key.h"

#define NGX_RL_MAX_PIECES  16   /* of a document's value */


static ngx_uint_t
ngx_rl_name_byte(u_char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z')
           || (ch >= '0' && ch <= '9') || ch == '_';
}


/* Whether it has a name, and not only the beginning of one. */
static ngx_uint_t
ngx_rl_variable_named(const ngx_http_core_main_conf_t *core,
    const ngx_rl_piece_t *piece)
{
    return core->variables_hash.buckets
           && ngx_hash_find((ngx_hash_t *) &core->variables_hash, piece->hash,
                            piece->text.data, piece->text.len)
              != NULL;
}


/* By its index, where it has one; by its name; by the beginning of its name. */
static ngx_uint_t
ngx_rl_variable_known(ngx_http_core_main_conf_t *core, ngx_rl_piece_t *piece)
{
    ngx_str_t            *name;
    ngx_uint_t            i;
    ngx_http_variable_t  *v;

    name = &piece->text;
    v = core->variables.elts;

    for (i = 0; i < core->variables.nelts; i++) {
        if (ngx_rl_equal(&v[i].name, name)) {
            piece->index = i;
            return 1;
        }
    }

    if (ngx_rl_variable_named(core, piece)) {
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


/*
 * "$name", "${name}", a capture, or what stands before the next of them; with
 * the name in lower case. cf: of nginx.conf, or NULL.
 */
static const char *
ngx_rl_piece_make(ngx_conf_t *cf, ngx_http_core_main_conf_t *core, u_char **pos,
    u_char *last, ngx_rl_piece_t *piece)
{
    u_char      *p;
    ngx_uint_t   braces;

    ngx_memzero(piece, sizeof(ngx_rl_piece_t));
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
    piece->variable = 1;

#if (NGX_PCRE)
    if (cf && p < last && *p >= '1' && *p <= '9') {
        piece->capture = 2 * (*p - '0');
        *pos = p + 1;

        return NULL;
    }
#endif

    braces = (p < last && *p == '{');
    p += braces;

    piece->text.data = p;

    while (p < last && ngx_rl_name_byte(*p)) {
        p++;
    }

    piece->text.len = p - piece->text.data;

    if (piece->text.len == 0 || (braces && (p == last || *p != '}'))) {
        return "the name of a variable after \"$\"";
    }

    *pos = p + braces;

    ngx_strlow(piece->text.data, piece->text.data, piece->text.len);
    piece->hash = ngx_hash_key(piece->text.data, piece->text.len);

    if (cf) {
        piece->index = ngx_http_get_variable_index(cf, &piece->text);
        return (piece->index == NGX_ERROR) ? "" : NULL;
    }

    return ngx_rl_variable_known(core, piece) ? NULL : "a known variable";
}


/* A lone "$http_name", "$arg_name" or "$cookie_name" has a source. */
static ngx_int_t
ngx_rl_value_source(ngx_rl_value_t *value, const ngx_str_t *name,
    ngx_pool_t *pool)
{
    ngx_str_t   rest;
    ngx_uint_t  kind;

    /* in the order of ngx_rl_key_source_e */
    static const ngx_str_t  prefixes[] = {
        ngx_string("http_"), ngx_string("arg_"), ngx_string("cookie_") };

    for (kind = 0; kind < 3; kind++) {
        rest.len = name->len - prefixes[kind].len;
        rest.data = name->data + prefixes[kind].len;

        if (name->len <= prefixes[kind].len
            || ngx_strncasecmp(name->data, prefixes[kind].data,
                               prefixes[kind].len)
               != 0)
        {
            continue;
        }

        value->source = ngx_rl_source_make(pool, kind, &rest);

        if (value->source == NULL) {
            return NGX_ERROR;
        }

        value->source->variable = *name;
        break;
    }

    return NGX_OK;
}


/* The same of cf. Returns NULL, or the expected value; "": memory is out. */
static const char *
ngx_rl_value_make(ngx_conf_t *cf, ngx_http_core_main_conf_t *core,
    const ngx_str_t *text, ngx_rl_value_t *value, ngx_pool_t *pool)
{
    u_char          *p, *last, *copy;
    ngx_str_t        name;
    ngx_uint_t       n;
    const char      *expected;
    ngx_rl_piece_t  *piece;

    static const ngx_str_t  api_key = ngx_string("ratelimit_api_key");

    ngx_memzero(value, sizeof(ngx_rl_value_t));
    value->index = -1;

    if (cf) {
        value->text = *text;

    } else if (text->len == 0) {
        return "a value that is not empty";
    }

    /* of its own: names are put in lower case */

    copy = ngx_pstrdup(pool, (ngx_str_t *) text);
    last = copy + text->len;

    for (n = 1, p = copy; copy && p < last; p++) {
        n += 2 * (*p == '$');
    }

    n = cf ? n : ngx_min(n, NGX_RL_MAX_PIECES);

    value->pieces = ngx_palloc(pool, n * sizeof(ngx_rl_piece_t));

    if (copy == NULL || value->pieces == NULL) {
        return "";
    }

    for (p = copy; p < last; value->npieces++) {

        if (value->npieces == NGX_RL_MAX_PIECES && cf == NULL) {
            return "at most 16 variables and texts between them";
        }

        expected = ngx_rl_piece_make(cf, core, &p, last,
                                     &value->pieces[value->npieces]);
        if (expected) {
            return expected;
        }
    }

    piece = value->pieces;

    if (value->npieces != 1 || !piece->variable || piece->capture) {
        return NULL;
    }

    /* its name as it is written */

    name = ngx_rl_str(text->data + (piece->text.data - copy), piece->text.len);

    value->index = piece->index;
    value->api_key = ngx_rl_equal(&piece->text, &api_key);

    if (ngx_rl_value_source(value, &name, pool) != NGX_OK) {
        return "";
    }

    if (value->source && cf == NULL) {
        value->source->made = ngx_rl_variable_named(core, piece);
    }

    return NULL;
}


/* Compiles a text of nginx.conf. NGX_ERROR: it is logged. */
static ngx_int_t
ngx_rl_value_compile(ngx_conf_t *cf, const ngx_str_t *text,
    ngx_rl_value_t *value)
{
    const char          *expected;
    ngx_rl_main_conf_t  *rmcf;

    expected = ngx_rl_value_make(cf, NULL, text, value, cf->pool);

    if (expected && expected[0]) {
        ngx_rl_wrong(cf, "has an invalid value \"%V\", expected %s", text,
                     expected);
    }

    if (expected) {
        return NGX_ERROR;
    }

    rmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_ratelimit_module);

    return value->source ? ngx_rl_push(&rmcf->sources, value->source) : NGX_OK;
}


ngx_int_t
ngx_rl_value_key_compile(ngx_conf_t *cf, const ngx_str_t *text,
    ngx_rl_value_t *value)
{
    if (ngx_rl_key_constant(text)) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"%V\" has the key \"%V\" without a variable, "
                           "which limits all clients together, expected one as "
                           "in \"$remote_addr\", or \"key=all\" if that is "
                           "meant",
                           cf->args->elts, text);
    }

    return ngx_rl_value_compile(cf, text, value);
}


ngx_rl_value_t *
ngx_rl_value_new(ngx_conf_t *cf, const ngx_str_t *text)
{
    ngx_rl_value_t  *value;

    value = ngx_palloc(cf->pool, sizeof(ngx_rl_value_t));

    return (value && ngx_rl_value_compile(cf, text, value) == NGX_OK) ? value
                                                                      : NULL;
}


void
ngx_rl_value_resolve(ngx_conf_t *cf, ngx_array_t *sources)
{
    ngx_uint_t                  i, j;
    ngx_hash_key_t             *key;
    ngx_http_core_main_conf_t  *core;
    ngx_rl_source_t           **source;

    core = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    source = sources->elts;
    key = core->variables_keys->keys.elts;

    for (i = 0; i < sources->nelts; i++) {
        for (j = 0; j < core->variables_keys->keys.nelts; j++) {
            if (key[j].key.len == source[i]->variable.len
                && ngx_strncasecmp(key[j].key.data, source[i]->variable.data,
                                   key[j].key.len)
                   == 0)
            {
                source[i]->made = 1;
            }
        }
    }
}


/*
 * The same of a document. Values of a document's rule are shown and logged:
 * they hold none of these, where clients send what they log in with.
 */
static const char *
ngx_rl_value_shown_make(ngx_http_core_main_conf_t *core, const ngx_str_t *text,
    ngx_rl_value_t *value, ngx_pool_t *pool)
{
    ngx_uint_t        i, n;
    const char       *expected;
    const ngx_str_t  *name;

    static const ngx_str_t  secrets[] = {
        ngx_string("http_authorization"),
        ngx_string("http_proxy_authorization"),
        ngx_string("http_cookie")
    };

    expected = ngx_rl_value_make(NULL, core, text, value, pool);

    for (i = 0; i < value->npieces; i++) {
        name = &value->pieces[i].text;

        for (n = 0; n < sizeof(secrets) / sizeof(secrets[0]); n++) {
            if (value->pieces[i].variable && ngx_rl_equal(name, &secrets[n])) {
                expected = "a variable without what clients log in with: "
                           "\"$ratelimit_api_key\" or a claim";
            }
        }
    }

    return expected;
}


const char *
ngx_rl_values_beside(ngx_conf_t *cf, ngx_http_core_main_conf_t *core,
    const ngx_rl_rule_t *rule, const ngx_str_t *limit, const ngx_str_t *cost,
    ngx_pool_t *pool, ngx_uint_t *which)
{
    ngx_uint_t                 i;
    const char                *expected;
    const ngx_str_t           *text;
    ngx_rl_value_t            *value, **made;
    ngx_rl_values_t           *values;
    ngx_rl_key_source_e        kind;
    const ngx_rl_condition_t  *c;

    static const ngx_uint_t  kinds[] = {
        NGX_RL_PARAM_LIMIT, NGX_RL_PARAM_COST, NGX_RL_PARAM_COST_END };

    values = rule->data;
    expected = NULL;

    for (i = 0; i < 3 && expected == NULL; i++) {
        text = (i == 0) ? limit : (i == 1) ? cost : &rule->cost_end;
        made = (i == 0) ? &values->limit : (i == 1) ? &values->cost
                                                    : &values->end;
        *which = kinds[i];

        if (text->len) {
            *made = cf ? ngx_rl_value_new(cf, text)
                       : ngx_palloc(pool, sizeof(ngx_rl_value_t));
            expected = (*made == NULL) ? ""
                       : cf ? NULL
                       : ngx_rl_value_shown_make(core, text, *made, pool);
        }
    }

    if (expected || rule->nconditions == 0) {
        return expected;
    }

    *which = NGX_RL_PARAM_IF;

    values->conditions = ngx_pcalloc(pool, rule->nconditions
                                           * sizeof(ngx_rl_value_t));
    if (values->conditions == NULL) {
        return "";
    }

    for (i = 0; i < rule->nconditions; i++) {
        c = &rule->conditions[i];
        value = &values->conditions[i];

        if (c->kind != NGX_RL_IF_VALUE) {
            kind = (c->kind == NGX_RL_IF_HEADER) ? NGX_RL_SOURCE_HEADER
                                                 : NGX_RL_SOURCE_ARG;
            value->index = -1;
            value->source = ngx_rl_source_make(pool, kind, &c->name);
            expected = value->source ? NULL : "";

        } else if (cf) {
            expected = (ngx_rl_value_compile(cf, &c->name, value) == NGX_OK)
                       ? NULL : "";

        } else {
            expected = ngx_rl_value_make(NULL, core, &c->name, value, pool);
        }

        if (expected) {
            return expected;
        }
    }

    return NULL;
}


const char *
ngx_rl_values(void *data, ngx_rl_rule_t *rule, const ngx_str_t *limit,
    const ngx_str_t *cost, ngx_pool_t *pool, ngx_uint_t *which)
{
    ngx_rl_zone_conf_t *zone = data;

    ngx_uint_t        i;
    const char       *expected;
    ngx_rl_value_t   *value;
    ngx_rl_values_t  *values;

    values = ngx_pcalloc(pool, sizeof(ngx_rl_values_t));
    if (values == NULL) {
        return "";
    }

    rule->data = values;
    value = &values->key;

    if (rule->nparts > 1) {
        value = ngx_palloc(pool, rule->nparts * sizeof(ngx_rl_value_t));
        if (value == NULL) {
            return "";
        }

        values->nparts = rule->nparts;
        values->parts = value;
    }

    for (i = 0; i < rule->nparts; i++, value++) {

        /* the zone's key is there, and may be more than is made here */

        if (ngx_rl_equal(&rule->parts[i], &zone->limiter.zone.key)) {
            *value = zone->key;
            continue;
        }

        *which = NGX_RL_PARAM_ALL + i;

        expected = ngx_rl_value_shown_make(zone->core, &rule->parts[i], value,
                                           pool);
        if (expected) {
            return expected;
        }
    }

    return ngx_rl_values_beside(NULL, zone->core, rule, limit, cost, pool,
                                which);
}


/*
 * A piece that is a variable. Without a value it is an empty text. One that
 * could not be made, as memory was out, is an error: without its key a request
 * had no limit.
 */
static ngx_inline ngx_int_t
ngx_rl_piece_get(ngx_http_request_t *r, ngx_rl_piece_t *piece, ngx_str_t *text)
{
    ngx_http_variable_value_t  *vv;

    ngx_str_set(text, "");

    if (piece->index != -1) {
        /* not what a rewrite has read before it changed the request */
        vv = ngx_http_get_flushed_variable(r, piece->index);

    } else if (piece->capture == 0) {
        vv = ngx_http_get_variable(r, &piece->text, piece->hash);

    } else {
#if (NGX_PCRE)
        if (piece->capture < r->ncaptures) {
            text->data = r->captures_data + r->captures[piece->capture];
            text->len = r->captures[piece->capture + 1]
                        - r->captures[piece->capture];
        }
#endif
        return NGX_OK;
    }

    if (vv == NULL) {
        return NGX_ERROR;
    }

    if (!vv->not_found) {
        *text = ngx_rl_str(vv->data, vv->len);
    }

    return NGX_OK;
}


ngx_int_t
ngx_rl_value_get(ngx_http_request_t *r, ngx_rl_value_t *value, ngx_str_t *text)
{
    u_char      *p;
    ngx_str_t   *texts, some[NGX_RL_MAX_PIECES];
    ngx_uint_t   i;

    /* a lone variable */

    if (value->npieces == 1 && value->pieces->variable) {
        return ngx_rl_piece_get(r, value->pieces, text);
    }

    /* the first pass evaluates the pieces, the second joins them */

    texts = some;

    if (value->npieces > NGX_RL_MAX_PIECES) {
        texts = ngx_palloc(r->pool, value->npieces * sizeof(ngx_str_t));
        if (texts == NULL) {
            return NGX_ERROR;
        }
    }

    text->len = 0;

    for (i = 0; i < value->npieces; i++) {
        texts[i] = value->pieces[i].text;

        if (value->pieces[i].variable
            && ngx_rl_piece_get(r, &value->pieces[i], &texts[i]) != NGX_OK)
        {
            return NGX_ERROR;
        }

        text->len += texts[i].len;
    }

    text->data = (value->npieces == 1) ? texts[0].data
                                       : ngx_pnalloc(r->pool, text->len);
    if (text->data == NULL) {
        return NGX_ERROR;
    }

    for (i = 0, p = text->data; i < value->npieces && value->npieces > 1; i++) {
        p = ngx_cpymem(p, texts[i].data, texts[i].len);
    }

    return NGX_OK;
}


/*
 * nginx has variables of its own for some headers, and other modules may have
 * made one: of these the blanks around go.
 */
ngx_int_t
ngx_rl_value_sourced(ngx_http_request_t *r, ngx_rl_value_t *value,
    ngx_str_t *text)
{
    ngx_int_t  rc;

    if (value->source->made) {
        rc = ngx_rl_value_get(r, value, text);
        (void) ngx_rl_source_trim(text);
        return rc;
    }

    rc = value->source->get(r, value->source, text);

    if (rc == NGX_DECLINED) {
        ngx_str_null(text);
        return NGX_OK;
    }

    return rc;
}


ngx_int_t
ngx_rl_key_marked(ngx_http_request_t *r, const char *mark, ngx_str_t *key)
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
ngx_rl_values_key(ngx_http_request_t *r, ngx_rl_values_t *values,
    ngx_str_t *key)
{
    ngx_str_t   texts[NGX_RL_MAX_PARTS];
    ngx_uint_t  i;

    if (values->nparts == 0) {
        return ngx_rl_value_key(r, &values->key, key);
    }

    for (i = 0; i < values->nparts; i++) {
        if (ngx_rl_value_key(r, &values->parts[i], &texts[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return ngx_rl_policy_join(texts, values->nparts, r->pool, key);
}


/* Conditions with one name follow each other, and one of them must hold. */
ngx_int_t
ngx_rl_conditions(ngx_http_request_t *r, const ngx_rl_rule_t *rule,
    const ngx_rl_condition_t **failed)
{
    ngx_str_t                  text;
    ngx_uint_t                 i, holds;
    ngx_rl_value_t            *value;
    ngx_rl_values_t           *values;
    const ngx_rl_condition_t  *c;

    values = rule->data;
    c = rule->conditions;
    i = 0;

    do {
        *failed = &c[i];

        value = &values->conditions[i];

        if ((value->source ? ngx_rl_value_sourced(r, value, &text)
                           : ngx_rl_value_get(r, value, &text))
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        holds = 0;

        do {
            if (c[i].kind == NGX_RL_IF_VALUE) {
                holds |= text.len > 1 || (text.len == 1 && text.data[0] != '0');

            } else {
                holds |= text.len
                         && ngx_rl_glob_match(c[i].glob.data, c[i].glob.len,
                                              text.data, text.len);
            }

            i++;

        } while (i < rule->nconditions && c[i].other);

    } while (holds && i < rule->nconditions);

    return holds ? NGX_OK : NGX_DECLINED;
}


ngx_str_t
ngx_rl_value_quote(const ngx_str_t *text, u_char *out)
{
    size_t     len;
    u_char    *last;
    ngx_str_t  quoted;

    len = ngx_min(text->len, NGX_RL_QUOTE);

    last = (u_char *) ngx_escape_json(out, text->data, len);

    if (len < text->len) {
        last = ngx_cpymem(last, "...", sizeof("...") - 1);
    }

    quoted = ngx_rl_str(out, last - out);

    return quoted;
}


ngx_str_t
ngx_rl_value_shown(const ngx_rl_rule_t *rule, const ngx_str_t *text,
    u_char *out)
{
    ngx_str_t  shown;

    if (rule->nparts == 0) {
        return ngx_rl_value_quote(text, out);
    }

    shown = ngx_rl_str(out, ngx_sprintf(out, "(%uz bytes)", text->len) - out);

    return shown;
}
