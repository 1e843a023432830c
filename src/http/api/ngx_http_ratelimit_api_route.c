/*
 * The front of the endpoint: its paths, what each of them takes, and the way of
 * a request to the first step of its route.
 */

#include "ngx_http_ratelimit_api.h"

/* bytes of a name in a message */
#define NGX_HTTP_RATELIMIT_API_NAME  64

#define NGX_HTTP_RATELIMIT_API_SAFE                                           \
    (NGX_HTTP_GET|NGX_HTTP_HEAD|NGX_HTTP_OPTIONS)

static ngx_int_t ngx_http_ratelimit_api_route(ngx_http_ratelimit_api_t *api);
static ngx_int_t ngx_http_ratelimit_api_path(ngx_http_request_t *r,
    ngx_str_t *path);
static ngx_uint_t ngx_http_ratelimit_api_path_match(const ngx_str_t *pattern,
    const ngx_str_t *path, ngx_str_t *name);
static ngx_uint_t ngx_http_ratelimit_api_path_exact(ngx_http_request_t *r);
static ngx_int_t ngx_http_ratelimit_api_query(ngx_http_ratelimit_api_t *api);
static ngx_uint_t ngx_http_ratelimit_api_query_bit(const ngx_str_t *name,
    ngx_uint_t allowed, ngx_uint_t *seen);
static ngx_uint_t ngx_http_ratelimit_api_has_body(
    ngx_http_ratelimit_api_t *api);
static ngx_int_t ngx_http_ratelimit_api_media_type(
    ngx_http_ratelimit_api_t *api);
static ngx_uint_t ngx_http_ratelimit_api_is_type(const ngx_str_t *value,
    const char *type);
static void ngx_http_ratelimit_api_allow(ngx_http_ratelimit_api_t *api);

/* query arguments; the parts of a counter's key are several */
#define RULE    0x01
#define KEY     0x02
#define KEYS    0x04
#define FORCE   0x08
#define CHANGE  (FORCE|0x10)
#define OF_TIER 0x20

static const struct {
    ngx_str_t   name;
    ngx_uint_t  bit;
    ngx_uint_t  many;
} ngx_http_ratelimit_api_args[] = {
    { ngx_string("rule"), RULE, 0 },
    { ngx_string("key"), KEY, 0 },
    { ngx_string("key"), KEYS, 1 },
    { ngx_string("tier"), OF_TIER, 0 },
    { ngx_string("force"), FORCE, 0 },
    { ngx_string("reason"), CHANGE & ~FORCE, 0 },
    { ngx_null_string, 0, 0 }
};

static const ngx_http_ratelimit_api_route_t  ngx_http_ratelimit_api_routes[] =
{
    { ngx_string("rules"),
      NGX_HTTP_GET|NGX_HTTP_PUT,
      ngx_http_ratelimit_api_edit, NGX_RATELIMIT_EDIT_DOCUMENT, 0,
      0, CHANGE },

    { ngx_string("rules/validate"),
      NGX_HTTP_POST,
      ngx_http_ratelimit_api_edit, NGX_RATELIMIT_EDIT_VALIDATE,
      NGX_HTTP_RATELIMIT_API_READS,
      0, FORCE },

    { ngx_string("rules/{}"),
      NGX_HTTP_GET|NGX_HTTP_PUT|NGX_HTTP_PATCH|NGX_HTTP_DELETE,
      ngx_http_ratelimit_api_edit, NGX_RATELIMIT_EDIT_RULE, 0,
      0, CHANGE },

    { ngx_string("tiers/{}"),
      NGX_HTTP_GET|NGX_HTTP_PUT|NGX_HTTP_DELETE,
      ngx_http_ratelimit_api_edit, NGX_RATELIMIT_EDIT_TIER, 0,
      RULE, RULE|CHANGE },

    { ngx_string("tier-of"),
      NGX_HTTP_GET|NGX_HTTP_PATCH,
      ngx_http_ratelimit_api_edit, NGX_RATELIMIT_EDIT_TIERS_OF, 0,
      0, CHANGE },

    { ngx_string("tier-of/{*}"),
      NGX_HTTP_GET|NGX_HTTP_PUT|NGX_HTTP_DELETE,
      ngx_http_ratelimit_api_edit, NGX_RATELIMIT_EDIT_TIER_OF, 0,
      0, CHANGE },

    { ngx_string("overrides"),
      NGX_HTTP_GET|NGX_HTTP_POST,
      ngx_http_ratelimit_api_edit, NGX_RATELIMIT_EDIT_OVERRIDES, 0,
      RULE|KEY, CHANGE },

    { ngx_string("overrides/{}"),
      NGX_HTTP_GET|NGX_HTTP_PUT|NGX_HTTP_DELETE,
      ngx_http_ratelimit_api_edit, NGX_RATELIMIT_EDIT_OVERRIDE, 0,
      0, CHANGE },

    { ngx_string("whitelist"),
      NGX_HTTP_GET|NGX_HTTP_PUT|NGX_HTTP_POST|NGX_HTTP_DELETE,
      ngx_http_ratelimit_api_edit, NGX_RATELIMIT_EDIT_WHITELIST, 0,
      0, KEY|CHANGE },

    { ngx_string("blacklist"),
      NGX_HTTP_GET|NGX_HTTP_PUT|NGX_HTTP_POST|NGX_HTTP_DELETE,
      ngx_http_ratelimit_api_edit, NGX_RATELIMIT_EDIT_BLACKLIST, 0,
      0, KEY|CHANGE },

    { ngx_string("versions"),
      NGX_HTTP_GET,
      ngx_http_ratelimit_api_versions, 0, 0,
      0, 0 },

    { ngx_string("versions/{}"),
      NGX_HTTP_GET,
      ngx_http_ratelimit_api_version, 0, 0,
      0, 0 },

    { ngx_string("versions/{}/restore"),
      NGX_HTTP_POST,
      ngx_http_ratelimit_api_restore, NGX_RATELIMIT_EDIT_DOCUMENT,
      NGX_HTTP_RATELIMIT_API_NO_BODY,
      0, CHANGE },

    { ngx_string("counters"),
      NGX_HTTP_GET|NGX_HTTP_DELETE,
      ngx_http_ratelimit_api_counters, 0, 0,
      RULE|KEYS|OF_TIER, RULE|KEYS },

    { ngx_string("status"),
      NGX_HTTP_GET,
      ngx_http_ratelimit_api_status, 0, 0,
      0, 0 },

    { ngx_null_string, 0, NULL, 0, 0, 0, 0 }
};

#undef RULE
#undef KEY
#undef KEYS
#undef OF_TIER
#undef FORCE
#undef CHANGE

static const struct {
    ngx_uint_t   method;
    const char  *name;
} ngx_http_ratelimit_api_methods[] = {
    { NGX_HTTP_GET, "GET, HEAD" },
    { NGX_HTTP_PUT, "PUT" },
    { NGX_HTTP_PATCH, "PATCH" },
    { NGX_HTTP_POST, "POST" },
    { NGX_HTTP_DELETE, "DELETE" },
    { NGX_HTTP_OPTIONS, "OPTIONS" },
    { 0, NULL }
};


ngx_int_t
ngx_http_ratelimit_api_handler(ngx_http_request_t *r)
{
    ngx_int_t                       rc;
    ngx_http_ratelimit_api_t       *api;
    ngx_http_ratelimit_loc_conf_t  *conf;

    if (r != r->main) {
        return NGX_HTTP_FORBIDDEN;
    }

    conf = ngx_http_get_module_loc_conf(r, ngx_http_ratelimit_module);

    api = ngx_http_ratelimit_api_create(r, conf->api);
    if (api == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_ratelimit_api_guard(api);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    rc = ngx_http_ratelimit_api_route(api);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    api->next = api->route->handler;

    if (ngx_http_ratelimit_api_has_body(api)) {

        rc = ngx_http_ratelimit_api_media_type(api);
        if (rc != NGX_DECLINED) {
            return rc;
        }

        return ngx_http_ratelimit_api_read_body(api);
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    r->main->count++;
    ngx_http_ratelimit_api_run(api, NGX_DECLINED);

    return NGX_DONE;
}


/* NGX_DECLINED, with the route and its name, or it is answered. */
static ngx_int_t
ngx_http_ratelimit_api_route(ngx_http_ratelimit_api_t *api)
{
    ngx_int_t                              rc;
    ngx_str_t                              path;
    ngx_http_request_t                    *r;
    const ngx_http_ratelimit_api_route_t  *route;

    r = api->request;
    route = ngx_http_ratelimit_api_routes;

    if (ngx_http_ratelimit_api_path(r, &path) == NGX_OK) {

        while (route->path.len
               && !ngx_http_ratelimit_api_path_match(&route->path, &path,
                                                     &api->name))
        {
            route++;
        }

    } else {
        route = NULL;
    }

    if (route == NULL || route->path.len == 0) {
        return ngx_http_ratelimit_api_problem(api, NGX_HTTP_NOT_FOUND,
                                              "not-found",
                                              "the endpoint has no such path");
    }

    api->route = route;
    api->path = path;

    if (r->method == NGX_HTTP_OPTIONS) {
        ngx_http_ratelimit_api_allow(api);
        return ngx_http_ratelimit_api_answer(api, NGX_HTTP_NO_CONTENT, NULL);
    }

    if (!(r->method & route->methods)
        && !(r->method == NGX_HTTP_HEAD && route->methods & NGX_HTTP_GET))
    {
        ngx_http_ratelimit_api_allow(api);
        return ngx_http_ratelimit_api_problem(api, NGX_HTTP_NOT_ALLOWED,
                                              "method-not-allowed",
                                              "this path has other methods");
    }

    if (api->name.len && !ngx_http_ratelimit_api_path_exact(r)) {
        return ngx_http_ratelimit_api_problem(api, NGX_HTTP_BAD_REQUEST,
                                              "invalid",
                                              "nginx reads this path as "
                                              "another one: expected no "
                                              "\"//\", \"/./\" or \"/../\" in "
                                              "it; an API key has a name "
                                              "without them, \"sha256:...\"");
    }

    if (!(r->method & NGX_HTTP_RATELIMIT_API_SAFE)) {
        rc = ngx_http_ratelimit_api_guard_write(api);
        if (rc != NGX_DECLINED) {
            return rc;
        }
    }

    return ngx_http_ratelimit_api_query(api);
}


/* The path below the location's name, without the "/" between them. */
static ngx_int_t
ngx_http_ratelimit_api_path(ngx_http_request_t *r, ngx_str_t *path)
{
    ngx_str_t                 *name;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    name = &clcf->name;

    if (r->uri.len < name->len
        || ngx_memcmp(r->uri.data, name->data, name->len) != 0)
    {
        return NGX_DECLINED;
    }

    path->data = r->uri.data + name->len;
    path->len = r->uri.len - name->len;

    if (name->len && name->data[name->len - 1] == '/') {
        return NGX_OK;
    }

    if (path->len == 0 || path->data[0] != '/') {
        return NGX_DECLINED;
    }

    path->data++;
    path->len--;

    return NGX_OK;
}


static ngx_uint_t
ngx_http_ratelimit_api_path_match(const ngx_str_t *pattern,
    const ngx_str_t *path, ngx_str_t *name)
{
    u_char  *p, *end, *t, *last;

    p = pattern->data;
    end = p + pattern->len;
    t = path->data;
    last = t + path->len;

    ngx_str_null(name);

    while (p < end) {

        if (*p != '{') {

            if (t == last || *t != *p) {
                return 0;
            }

            t++;
            p++;
            continue;
        }

        name->data = t;

        if (p[1] == '*') {
            name->len = last - t;
            return name->len != 0;
        }

        while (t < last && *t != '/') {
            t++;
        }

        name->len = t - name->data;

        if (name->len == 0) {
            return 0;
        }

        p += 2;
    }

    return t == last;
}


/*
 * nginx decodes a path before it merges slashes and resolves dots: "a%2F%2Fb"
 * is "a/b" then, another name.
 */
static ngx_uint_t
ngx_http_ratelimit_api_path_exact(ngx_http_request_t *r)
{
    u_char  *p, *src, *dst;
    size_t   len;

    if (!r->valid_unparsed_uri) {
        return 1;     /* a rewrite has made it */
    }

    src = r->unparsed_uri.data;

    for (len = 0; len < r->unparsed_uri.len; len++) {
        if (src[len] == '?' || src[len] == '#') {
            break;
        }
    }

    p = ngx_pnalloc(r->pool, len + 1);
    if (p == NULL) {
        return 0;
    }

    dst = p;
    ngx_unescape_uri(&dst, &src, len, 0);

    return (size_t) (dst - p) == r->uri.len
           && ngx_memcmp(p, r->uri.data, r->uri.len) == 0;
}


/*
 * An argument that has no meaning here is one that was mistyped: without its
 * "?rule=" a DELETE of a tier takes it out of all rules. NGX_DECLINED, or it is
 * answered.
 */
static ngx_int_t
ngx_http_ratelimit_api_query(ngx_http_ratelimit_api_t *api)
{
    u_char      *p, *last, *next, *end;
    ngx_str_t    name;
    ngx_uint_t   allowed, seen;

    if (api->request->args.len == 0) {
        return NGX_DECLINED;
    }

    p = api->request->args.data;
    last = p + api->request->args.len;
    seen = 0;
    allowed = (api->request->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))
              ? api->route->reads : api->route->writes;

    for ( /* void */ ; p < last; p = next + 1) {

        next = ngx_strlchr(p, last, '&');
        next = next ? next : last;

        end = ngx_strlchr(p, next, '=');

        name.data = p;
        name.len = (end ? end : next) - p;

        if (p == next
            || ngx_http_ratelimit_api_query_bit(&name, allowed, &seen))
        {
            continue;
        }

        name.len = ngx_min(name.len, NGX_HTTP_RATELIMIT_API_NAME);

        return ngx_http_ratelimit_api_problem(api, NGX_HTTP_BAD_REQUEST,
                   "invalid", "\"%V\" is no query argument of this path and "
                   "method, or is given twice; nothing is changed", &name);
    }

    return NGX_DECLINED;
}


static ngx_uint_t
ngx_http_ratelimit_api_query_bit(const ngx_str_t *name, ngx_uint_t allowed,
    ngx_uint_t *seen)
{
    ngx_uint_t  i, bit;

    for (i = 0; ngx_http_ratelimit_api_args[i].bit; i++) {

        bit = ngx_http_ratelimit_api_args[i].bit;

        if (!(allowed & bit)
            || name->len != ngx_http_ratelimit_api_args[i].name.len
            || ngx_memcmp(name->data, ngx_http_ratelimit_api_args[i].name.data,
                          name->len)
               != 0
            || (*seen & bit && !ngx_http_ratelimit_api_args[i].many))
        {
            continue;
        }

        *seen |= bit;
        return 1;
    }

    return 0;
}


static ngx_uint_t
ngx_http_ratelimit_api_has_body(ngx_http_ratelimit_api_t *api)
{
    ngx_http_request_t  *r;

    r = api->request;

    if (api->route->flags & NGX_HTTP_RATELIMIT_API_NO_BODY) {
        return 0;
    }

    if (r->method & (NGX_HTTP_PUT|NGX_HTTP_POST|NGX_HTTP_PATCH)) {
        return 1;
    }

    /* a body may name the entries that leave a list */

    return r->method == NGX_HTTP_DELETE
           && (r->headers_in.content_length_n > 0 || r->headers_in.chunked);
}


/* NGX_DECLINED, or it is answered. */
static ngx_int_t
ngx_http_ratelimit_api_media_type(ngx_http_ratelimit_api_t *api)
{
    ngx_uint_t           patch;
    ngx_table_elt_t     *h;
    ngx_http_request_t  *r;

    r = api->request;
    h = r->headers_in.content_type;
    patch = (r->method == NGX_HTTP_PATCH);

    if (h && (ngx_http_ratelimit_api_is_type(&h->value, "application/json")
              || (patch
                  && ngx_http_ratelimit_api_is_type(&h->value,
                                          "application/merge-patch+json"))))
    {
        return NGX_DECLINED;
    }

    if (patch) {
        ngx_http_ratelimit_api_header(api, "Accept-Patch",
                                      "application/merge-patch+json, "
                                      "application/json");
    }

    return ngx_http_ratelimit_api_problem(api, NGX_HTTP_UNSUPPORTED_MEDIA_TYPE,
                                          "unsupported-media-type",
                                          "expected \"Content-Type: %s\"",
                                          patch
                                          ? "application/merge-patch+json"
                                          : "application/json");
}


/* With or without a parameter. */
static ngx_uint_t
ngx_http_ratelimit_api_is_type(const ngx_str_t *value, const char *type)
{
    size_t  len;

    len = ngx_strlen(type);

    if (value->len < len
        || ngx_strncasecmp(value->data, (u_char *) type, len) != 0)
    {
        return 0;
    }

    return value->len == len || value->data[len] == ';'
           || value->data[len] == ' ' || value->data[len] == '\t';
}


static void
ngx_http_ratelimit_api_allow(ngx_http_ratelimit_api_t *api)
{
    u_char      *p, *text;
    ngx_uint_t   i, methods;

    text = ngx_pnalloc(api->request->pool,
                       sizeof("GET, HEAD, PUT, PATCH, POST, DELETE, OPTIONS"));
    if (text == NULL) {
        api->failed = 1;
        return;
    }

    p = text;
    methods = api->route->methods | NGX_HTTP_OPTIONS;

    for (i = 0; ngx_http_ratelimit_api_methods[i].name; i++) {
        if (methods & ngx_http_ratelimit_api_methods[i].method) {
            p = ngx_sprintf(p, "%s%s", (p == text) ? "" : ", ",
                            ngx_http_ratelimit_api_methods[i].name);
        }
    }

    *p = '\0';

    if (api->route->methods & NGX_HTTP_PATCH) {
        ngx_http_ratelimit_api_header(api, "Accept-Patch",
                                      "application/merge-patch+json, "
                                      "application/json");
    }

    ngx_http_ratelimit_api_header(api, "Allow", (char *) text);
}
