/*
 * "ratelimit_route", and $ratelimit_route: the template of a location that
 * matches the path, or the path folded.
 */

#include "ngx_rl_conf.h"
#include "ngx_rl_key.h"
#include "ngx_rl_request.h"

#include "ngx_rl_route.h"

#define NGX_RL_ROUTES_ROOM  64   /* segments, at first */

/* The templates of one level. */
struct ngx_rl_routes_s {
    ngx_array_t          templates;   /* ngx_str_t, by number */
    ngx_rl_route_set_t   set;
    void                *memory;      /* the set's, for room segments */
    size_t               segments;
    size_t               room;
};


/*
 * The set again, with the same numbers, in more memory: twice as much each
 * time, so that reading n templates, in a directive each, takes n steps.
 */
static char *
ngx_rl_route_room(ngx_conf_t *cf, ngx_rl_routes_t *routes, size_t room)
{
    size_t       bytes;
    ngx_str_t   *templates;
    ngx_uint_t   i;

    room = ngx_max(room, NGX_RL_ROUTES_ROOM);

    bytes = ngx_rl_route_set_bytes(room);

    if (bytes == 0) {
        return ngx_rl_wrong(cf, "has too many templates, expected at most %d "
                            "segments in all", NGX_RL_ROUTE_SEGMENTS / 2);
    }

    if (routes->memory) {
        (void) ngx_pfree(cf->pool, routes->memory);
    }

    routes->memory = ngx_palloc(cf->pool, bytes);
    if (routes->memory == NULL) {
        return NGX_CONF_ERROR;
    }

    routes->room = room;
    ngx_rl_route_set_init(&routes->set, routes->memory, room);

    templates = routes->templates.elts;

    for (i = 0; i < routes->templates.nelts; i++) {
        (void) ngx_rl_route_set_add(&routes->set, templates[i].data,
                                    templates[i].len);
    }

    return NGX_CONF_OK;
}


/* ratelimit_route <template> ...; several on one level add up */
char *
ngx_rl_route_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_loc_conf_t *rlcf = conf;

    uint32_t          number;
    ngx_str_t        *text, *last, *tmpl;
    const char       *wrong;
    ngx_rl_routes_t  *routes;

    if (rlcf->routes == NULL) {
        routes = ngx_pcalloc(cf->pool, sizeof(ngx_rl_routes_t));

        if (routes == NULL
            || ngx_array_init(&routes->templates, cf->pool, cf->args->nelts - 1,
                              sizeof(ngx_str_t))
               != NGX_OK)
        {
            return NGX_CONF_ERROR;
        }

        rlcf->routes = routes;
    }

    routes = rlcf->routes;
    text = cf->args->elts;
    last = text + cf->args->nelts;

    for (text++; text < last; text++) {
        wrong = ngx_rl_route_check(text->data, text->len);

        if (wrong) {
            return ngx_rl_wrong(cf, "has an invalid \"%V\", expected a path "
                                "template: %s", text, wrong);
        }

        routes->segments += ngx_rl_route_segments(text->data, text->len);

        if ((routes->memory == NULL || routes->segments > routes->room)
            && ngx_rl_route_room(cf, routes, routes->segments * 2)
               != NGX_CONF_OK)
        {
            return NGX_CONF_ERROR;
        }

        number = ngx_rl_route_set_add(&routes->set, text->data, text->len);

        if (number < routes->templates.nelts) {
            tmpl = (ngx_str_t *) routes->templates.elts + number;

            return ngx_rl_wrong(cf, "has \"%V\" and \"%V\", expected templates "
                                "that differ in more than names", tmpl, text);
        }

        tmpl = ngx_array_push(&routes->templates);
        if (tmpl == NULL) {
            return NGX_CONF_ERROR;
        }

        *tmpl = *text;
    }

    return NGX_CONF_OK;
}


ngx_uint_t
ngx_rl_route_folds(const ngx_rl_routes_t *routes)
{
    ngx_str_t   *templates;
    ngx_uint_t   i;

    static const ngx_str_t  all = ngx_string("/**");

    templates = routes ? routes->templates.elts : NULL;

    for (i = 0; templates && i < routes->templates.nelts; i++) {
        if (ngx_rl_equal(&templates[i], &all)) {
            return 0;
        }
    }

    return 1;
}


ngx_int_t
ngx_rl_route_readings(ngx_http_request_t *r, ngx_rl_readings_t *readings)
{
    void       *memory;
    size_t      bytes;
    ngx_str_t   sent;

    ngx_str_null(&sent);

    /* nginx has decoded or resolved it, and nobody has changed it since */

    if (r->valid_unparsed_uri && (r->complex_uri || r->quoted_uri)) {
        sent.data = r->unparsed_uri.data;

        while (sent.len < r->unparsed_uri.len
               && sent.data[sent.len] != '?' && sent.data[sent.len] != '#')
        {
            sent.len++;
        }
    }

    bytes = ngx_rl_readings_init(readings, r->uri.data, r->uri.len, sent.data,
                                 sent.len);

    if (bytes == 0) {
        return NGX_OK;
    }

    memory = ngx_palloc(r->pool, bytes);
    if (memory == NULL) {
        return NGX_ERROR;
    }

    ngx_rl_readings_split(readings, memory);

    return NGX_OK;
}


/*
 * The most specific template. Where readings of the path have different ones,
 * it is the one that does not match in all of them; if there are several, the
 * path is "/": a client cannot choose under which of them it is counted.
 */
static const ngx_str_t *
ngx_rl_route_find(const ngx_rl_routes_t *routes, const ngx_rl_readings_t *path)
{
    size_t            i;
    uint32_t          number;
    const ngx_str_t  *found, *one;

    static const ngx_str_t  root = ngx_string("/");

    found = NULL;

    for (i = 0; i < ngx_max(path->n, 1); i++) {
        number = ngx_rl_route_set_find(&routes->set, path, i);

        if (number == NGX_RL_ROUTE_NONE) {
            continue;
        }

        one = (ngx_str_t *) routes->templates.elts + number;

        if (found == NULL
            || ngx_rl_route_match(found->data, found->len, path, 1))
        {
            found = one;

        } else if (one != found
                   && !ngx_rl_route_match(one->data, one->len, path, 1))
        {
            return &root;
        }
    }

    return found;
}


ngx_int_t
ngx_rl_route_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v,
    uintptr_t data)
{
    u_char                   *p;
    ngx_str_t                *path;
    const ngx_str_t          *tmpl;
    ngx_rl_ctx_t             *ctx;
    ngx_rl_loc_conf_t        *conf;
    ngx_rl_readings_t         own;
    const ngx_rl_readings_t  *readings;

    /*
     * after an internal redirect it is still the route that was checked, by
     * the templates of the location that decided
     */

    ctx = ngx_rl_ctx(r->main);

    if (ctx && ctx->conf) {
        conf = ctx->conf;
        path = &ctx->path;
        readings = &ctx->readings;

    } else {
        conf = ngx_http_get_module_loc_conf(r, ngx_http_ratelimit_module);
        path = &r->uri;
        readings = &own;

        if (conf->routes && ngx_rl_route_readings(r, &own) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    tmpl = conf->routes ? ngx_rl_route_find(conf->routes, readings) : NULL;
    if (tmpl) {
        return ngx_rl_variable_set(v, tmpl->data, tmpl->len);
    }

    p = ngx_pnalloc(r->pool, NGX_RL_ROUTE_BYTES(path->len));
    if (p == NULL) {
        return NGX_ERROR;
    }

    return ngx_rl_variable_set(v, p, ngx_rl_route_fold(path->data, path->len,
                                                       p));
}
