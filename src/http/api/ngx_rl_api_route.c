/*
 * The front of the endpoint: its paths, what each of them takes, and the way of
 * a request to the first step of its route.
 */

#include "ngx_rl_api.h"

#include <jansson.h>

#define NGX_RL_API_METHODS                                                    \
    sizeof("GET, HEAD, PUT, PATCH, POST, DELETE, OPTIONS")

/* bytes of a name in a message */
#define NGX_RL_API_NAME  64

typedef struct {
    ngx_str_t   name;
    ngx_uint_t  bits;
    size_t      offset;  /* of an ngx_str_t in args; of keys: the first */
} ngx_rl_api_arg_t;

static ngx_int_t ngx_rl_api_index(ngx_rl_api_t *api);

#define GET     NGX_HTTP_GET
#define PUT     NGX_HTTP_PUT
#define PATCH   NGX_HTTP_PATCH
#define POST    NGX_HTTP_POST
#define DELETE  NGX_HTTP_DELETE

/* query arguments; the parts of a counter's key are several */
#define RULE    0x01
#define KEY     0x02
#define KEYS    0x04
#define FORCE   0x08
#define REASON  0x10
#define DRY_RUN 0x4000
#define CHANGE  (FORCE|REASON|DRY_RUN)
#define OF_TIER 0x20
#define SINCE   0x40
#define BY      0x80
#define NUMBER  0x100
#define PENALTY 0x1000
#define STATUS  0x2000
#define OWNER   0x8000

static const ngx_rl_api_arg_t  ngx_rl_api_args[] = {
    { ngx_string("rule"), RULE, offsetof(ngx_rl_api_args_t, rule) },
    { ngx_string("penalty"), PENALTY, offsetof(ngx_rl_api_args_t, penalty) },
    { ngx_string("key"), KEY|KEYS, offsetof(ngx_rl_api_args_t, keys) },
    { ngx_string("tier"), OF_TIER, offsetof(ngx_rl_api_args_t, tier) },
    { ngx_string("force"), FORCE, offsetof(ngx_rl_api_args_t, force) },
    { ngx_string("reason"), REASON, offsetof(ngx_rl_api_args_t, reason) },
    { ngx_string("since"), SINCE, offsetof(ngx_rl_api_args_t, since) },
    { ngx_string("by"), BY, offsetof(ngx_rl_api_args_t, by) },
    { ngx_string("n"), NUMBER, offsetof(ngx_rl_api_args_t, n) },
    { ngx_string("status"), STATUS, offsetof(ngx_rl_api_args_t, status) },
    { ngx_string("owner"), OWNER, offsetof(ngx_rl_api_args_t, owner) },
    { ngx_string("dry_run"), DRY_RUN, offsetof(ngx_rl_api_args_t, dry_run) },
    { ngx_null_string, 0, 0 }
};

static const ngx_rl_api_route_t  ngx_rl_api_routes[] =
{
    { ngx_string("document"), GET|PUT, 0,
      ngx_rl_api_edit, NGX_RL_EDIT_DOCUMENT, 0, CHANGE },
    { ngx_string("document/validate"), POST, NGX_RL_API_READS,
      ngx_rl_api_edit, NGX_RL_EDIT_VALIDATE, 0, FORCE },
    { ngx_string("rules"), GET|PUT, 0,
      ngx_rl_api_edit, NGX_RL_EDIT_RULES, 0, OWNER|CHANGE },
    { ngx_string("rules/{}"), GET|PUT|PATCH|DELETE, 0,
      ngx_rl_api_edit, NGX_RL_EDIT_RULE, 0, CHANGE },
    { ngx_string("tiers/{}"), GET|PUT|DELETE, 0, ngx_rl_api_edit,
      NGX_RL_EDIT_TIER_LIMITS, RULE, RULE|CHANGE },
    { ngx_string("tier_of"), GET|PATCH, 0, ngx_rl_api_edit,
      NGX_RL_EDIT_TIER_ASSIGNMENTS, 0, CHANGE },
    { ngx_string("tier_of/{*}"), GET|PUT|DELETE, 0, ngx_rl_api_edit,
      NGX_RL_EDIT_TIER_ASSIGNMENT, RULE, RULE|CHANGE },
    { ngx_string("overrides"), GET|POST, 0, ngx_rl_api_edit,
      NGX_RL_EDIT_OVERRIDES, RULE|KEY, CHANGE },
    { ngx_string("overrides/{}"), GET|PUT|DELETE, 0, ngx_rl_api_edit,
      NGX_RL_EDIT_OVERRIDE, 0, CHANGE },
    { ngx_string("allow"), GET|PUT|POST|DELETE, 0, ngx_rl_api_edit,
      NGX_RL_EDIT_ALLOW, 0, RULE|KEY|CHANGE },
    { ngx_string("deny"), GET|PUT|POST|DELETE, 0, ngx_rl_api_edit,
      NGX_RL_EDIT_DENY, 0, RULE|KEY|CHANGE },
    { ngx_string("versions"), GET, 0,
      ngx_rl_api_versions, NGX_RL_EDIT_DOCUMENT, 0, 0 },
    { ngx_string("versions/{}"), GET, 0,
      ngx_rl_api_version, NGX_RL_EDIT_DOCUMENT, 0, 0 },
    { ngx_string("versions/{}/restore"), POST, NGX_RL_API_NO_BODY,
      ngx_rl_api_version, NGX_RL_EDIT_DOCUMENT, 0, CHANGE },
    { ngx_string("counters"), GET|PATCH|DELETE, 0, ngx_rl_api_counters,
      NGX_RL_EDIT_DOCUMENT, RULE|KEYS|OF_TIER, RULE|KEYS|OF_TIER|REASON },
    { ngx_string("check"), POST, NGX_RL_API_CHECKS, ngx_rl_api_check,
      NGX_RL_EDIT_DOCUMENT, 0, STATUS },
    { ngx_string("rejections"), GET, 0, ngx_rl_api_rejections,
      NGX_RL_EDIT_DOCUMENT, RULE|PENALTY|KEYS|SINCE|NUMBER, 0 },
    { ngx_string("top"), GET, 0,
      ngx_rl_api_top, NGX_RL_EDIT_DOCUMENT, BY|NUMBER, 0 },
    { ngx_string("penalties"), GET|DELETE, 0, ngx_rl_api_penalties,
      NGX_RL_EDIT_DOCUMENT, PENALTY|KEYS|NUMBER, PENALTY|KEYS },
    { ngx_string("status"), GET, 0,
      ngx_rl_api_status, NGX_RL_EDIT_DOCUMENT, 0, 0 },
    { ngx_string("policy"), GET, 0,
      ngx_rl_api_in_use, NGX_RL_EDIT_DOCUMENT, 0, 0 },
    { ngx_string("decisions"), GET, 0,
      ngx_rl_api_decisions, NGX_RL_EDIT_DOCUMENT, 0, 0 },
    { ngx_string("history"), GET, 0,
      ngx_rl_api_history, NGX_RL_EDIT_DOCUMENT, 0, 0 },
    { ngx_string(""), GET, NGX_RL_API_PAGE,
      ngx_rl_api_page, NGX_RL_EDIT_DOCUMENT, 0, 0 },
    { ngx_string(""), GET, 0, ngx_rl_api_index, NGX_RL_EDIT_DOCUMENT, 0, 0 },
    { ngx_string("page.css"), GET, NGX_RL_API_PAGE,
      ngx_rl_api_page, NGX_RL_EDIT_DOCUMENT, 0, 0 },
    { ngx_string("page.js"), GET, NGX_RL_API_PAGE,
      ngx_rl_api_page, NGX_RL_EDIT_DOCUMENT, 0, 0 },
    { ngx_null_string, 0, 0, NULL, 0, 0, 0 }
};

static const struct {
    ngx_uint_t   method;
    const char  *name;
} ngx_rl_api_methods[] = {
    { GET, "GET, HEAD" },
    { PUT, "PUT" },
    { PATCH, "PATCH" },
    { POST, "POST" },
    { DELETE, "DELETE" },
    { NGX_HTTP_OPTIONS, "OPTIONS" },
    { 0, NULL }
};

static const char  ngx_rl_api_patches[] =
    "application/merge-patch+json, application/json";


/* The path below the location's name, without the "/" between them. */
static ngx_int_t
ngx_rl_api_path(ngx_http_request_t *r, ngx_str_t *path)
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

    *path = ngx_rl_str(r->uri.data + name->len, r->uri.len - name->len);

    if (path->len == 0 || (name->len && name->data[name->len - 1] == '/')) {
        return NGX_OK;
    }

    if (path->data[0] != '/') {
        return NGX_DECLINED;
    }

    path->data++;
    path->len--;

    return NGX_OK;
}


static ngx_uint_t
ngx_rl_api_path_match(const ngx_str_t *pattern, const ngx_str_t *path,
    ngx_str_t *name)
{
    u_char  *p, *end, *t, *last;

    p = pattern->data;
    end = p + pattern->len;
    t = path->data;
    last = t + path->len;

    ngx_str_null(name);

    while (p < end && *p != '{') {
        if (t == last || *t++ != *p++) {
            return 0;
        }
    }

    if (p == end) {
        return t == last;
    }

    name->data = t;

    while (t < last && (*t != '/' || p[1] == '*')) {
        t++;
    }

    name->len = t - name->data;
    p = ngx_strlchr(p, end, '}') + 1;

    return name->len && last - t == end - p && ngx_memcmp(t, p, end - p) == 0;
}


/*
 * nginx decodes a path before it merges slashes and resolves dots: "a%2F%2Fb"
 * is "a/b" then, another name.
 */
static ngx_uint_t
ngx_rl_api_path_exact(ngx_http_request_t *r)
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
 * Reads an argument to its place. One that has no meaning here was mistyped:
 * without its "?rule=" a DELETE of a tier takes it out of all rules. The rule's
 * key has no parts beyond the last one. NGX_DECLINED: no argument of this name
 * is allowed, or no further one.
 */
static ngx_int_t
ngx_rl_api_query_arg(ngx_rl_api_t *api, const ngx_str_t *name, ngx_str_t *text,
    ngx_uint_t *allowed)
{
    u_char                  *src, *dst;
    ngx_str_t               *value;
    const ngx_rl_api_arg_t  *arg;

    arg = ngx_rl_api_args;

    while (arg->bits && !ngx_rl_equal(name, &arg->name)) {
        arg++;
    }

    if (!(arg->bits & *allowed)) {
        return NGX_DECLINED;
    }

    *allowed &= ~arg->bits | KEYS;

    if (text->data == NULL) {
        return NGX_OK;
    }

    value = (ngx_str_t *) ((u_char *) &api->args + arg->offset);

    if (value == api->args.keys) {

        if (api->args.nkeys == NGX_RL_MAX_PARTS) {
            return NGX_OK;
        }

        value += api->args.nkeys++;
    }

    dst = ngx_pnalloc(api->request->pool, text->len + 1);
    if (dst == NULL) {
        return NGX_ERROR;
    }

    src = text->data;
    value->data = dst;
    ngx_unescape_uri(&dst, &src, text->len, 0);
    value->len = dst - value->data;

    return NGX_OK;
}


/* Reads the arguments. NGX_DECLINED, or it is answered. */
static ngx_int_t
ngx_rl_api_query(ngx_rl_api_t *api)
{
    u_char     *p, *last, *next, *end;
    ngx_int_t   rc;
    ngx_str_t   name, text;
    ngx_uint_t  allowed;

    p = api->request->args.len ? api->request->args.data : (u_char *) "";
    last = p + api->request->args.len;
    allowed = (api->request->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))
              ? api->route->reads : api->route->writes;

    for ( /* void */ ; p < last; p = next + 1) {

        next = ngx_strlchr(p, last, '&');
        next = next ? next : last;

        if (p == next) {
            continue;
        }

        end = ngx_strlchr(p, next, '=');

        name = ngx_rl_str(p, (end ? end : next) - p);
        text = ngx_rl_str(end ? end + 1 : NULL, end ? next - end - 1 : 0);

        rc = ngx_rl_api_query_arg(api, &name, &text, &allowed);

        if (rc == NGX_DECLINED) {
            name.len = ngx_min(name.len, NGX_RL_API_NAME);

            return ngx_rl_api_problem(api, NGX_HTTP_BAD_REQUEST, "invalid",
                "\"%V\" is no query argument of this path and method, or is "
                "given twice; nothing is changed", &name);
        }

        if (rc == NGX_ERROR) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    return NGX_DECLINED;
}


/* With or without a parameter. */
static ngx_uint_t
ngx_rl_api_is_type(const ngx_str_t *value, const char *type)
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
ngx_rl_api_put_methods(u_char *p, ngx_uint_t methods)
{
    ngx_uint_t   i;
    const char  *comma;

    comma = "";

    for (i = 0; ngx_rl_api_methods[i].name; i++) {
        if (methods & ngx_rl_api_methods[i].method) {
            p = ngx_sprintf(p, "%s%s", comma, ngx_rl_api_methods[i].name);
            comma = ", ";
        }
    }

    *p = '\0';
}


/* The paths of the endpoint, with their methods. */
static ngx_int_t
ngx_rl_api_index(ngx_rl_api_t *api)
{
    u_char                     text[NGX_RL_API_METHODS];
    json_t                    *paths;
    const ngx_rl_api_route_t  *route;

    paths = json_object();

    for (route = ngx_rl_api_routes; route->handler; route++) {

        if (route->path.len && !(route->flags & NGX_RL_API_PAGE)) {
            ngx_rl_api_put_methods(text, route->methods);
            ngx_rl_json_set(&paths, (char *) route->path.data,
                            json_string((char *) text));
        }
    }

    return ngx_rl_api_json(api, NGX_HTTP_OK,
               json_pack("{s:o, s:o}",
                   "zone",
                   ngx_rl_json_text(&api->conf->limiter->zone.name),
                   "paths", paths));
}


static void
ngx_rl_api_allow(ngx_rl_api_t *api)
{
    u_char  *text;

    text = ngx_pnalloc(api->request->pool, NGX_RL_API_METHODS);
    if (text == NULL) {
        api->failed = 1;
        return;
    }

    ngx_rl_api_put_methods(text, api->route->methods | NGX_HTTP_OPTIONS);

    if (api->route->methods & NGX_HTTP_PATCH) {
        ngx_rl_api_header(api, "Accept-Patch", ngx_rl_api_patches);
    }

    ngx_rl_api_header(api, "Allow", (char *) text);
}


/* NGX_DECLINED, with the route and its name, or it is answered. */
static ngx_int_t
ngx_rl_api_route(ngx_rl_api_t *api)
{
    ngx_int_t                  rc;
    ngx_http_request_t        *r;
    const ngx_rl_api_route_t  *route;

    r = api->request;
    route = ngx_rl_api_routes;

    if (ngx_rl_api_path(r, &api->path) != NGX_OK) {
        ngx_str_set(&api->path, "/");
    }

    while (route->handler
           && (!ngx_rl_api_path_match(&route->path, &api->path, &api->name)
               || ((route->flags & NGX_RL_API_PAGE)
                   && !ngx_rl_api_page_wanted(api))))
    {
        route++;
    }

    api->route = route;

    /* the page says nothing of the gateway, and tells a person what to do */

    if (!(route->flags & NGX_RL_API_PAGE)) {
        rc = ngx_rl_api_authorized(api);
        if (rc != NGX_DECLINED) {
            return rc;
        }
    }

    if (route->handler == NULL) {
        return ngx_rl_api_problem(api, NGX_HTTP_NOT_FOUND, "not-found",
                                  "the endpoint has no such path");
    }

    if (r->method == NGX_HTTP_OPTIONS) {
        ngx_rl_api_allow(api);
        return ngx_rl_api_answer(api, NGX_HTTP_NO_CONTENT, NULL);
    }

    if (!(r->method & route->methods)
        && !(r->method == NGX_HTTP_HEAD && route->methods & NGX_HTTP_GET))
    {
        ngx_rl_api_allow(api);
        return ngx_rl_api_problem(api, NGX_HTTP_NOT_ALLOWED,
                                  "method-not-allowed",
                                  "this path has other methods");
    }

    if (api->name.len && !ngx_rl_api_path_exact(r)) {
        return ngx_rl_api_problem(api, NGX_HTTP_BAD_REQUEST, "invalid",
            "nginx reads this path as another one: expected no \"//\", \"/./\" "
            "or \"/../\" in it; an API key has a name without them, "
            "\"sha256:...\"");
    }

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        rc = ngx_rl_api_guard_write(api);
        if (rc != NGX_DECLINED) {
            return rc;
        }
    }

    return ngx_rl_api_query(api);
}


ngx_int_t
ngx_rl_api_handler(ngx_http_request_t *r)
{
    ngx_int_t           rc;
    ngx_uint_t          patch;
    ngx_rl_api_t       *api;
    ngx_table_elt_t    *h;
    ngx_rl_loc_conf_t  *conf;

    if (r != r->main) {
        return NGX_HTTP_FORBIDDEN;
    }

    conf = ngx_http_get_module_loc_conf(r, ngx_http_ratelimit_module);

    api = ngx_rl_api_create(r, conf->api);
    if (api == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_rl_api_guard(api);

    rc = ngx_rl_api_route(api);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    api->next = api->route->handler;

    /* the body of a DELETE may name the entries that leave a list */

    if ((api->route->flags & NGX_RL_API_NO_BODY)
        || !((r->method & (NGX_HTTP_PUT|NGX_HTTP_POST|NGX_HTTP_PATCH))
             || (r->method == NGX_HTTP_DELETE
                 && (r->headers_in.content_length_n > 0
                     || r->headers_in.chunked))))
    {
        rc = ngx_http_discard_request_body(r);
        if (rc != NGX_OK) {
            return rc;
        }

        r->main->count++;
        ngx_rl_api_run(api, NGX_DECLINED);

        return NGX_DONE;
    }

    h = r->headers_in.content_type;
    patch = (r->method == NGX_HTTP_PATCH);

    if (h && (ngx_rl_api_is_type(&h->value, "application/json")
              || (patch
                  && ngx_rl_api_is_type(&h->value,
                                        "application/merge-patch+json"))))
    {
        return ngx_rl_api_read_body(api);
    }

    if (patch) {
        ngx_rl_api_header(api, "Accept-Patch", ngx_rl_api_patches);
    }

    return ngx_rl_api_problem(api, NGX_HTTP_UNSUPPORTED_MEDIA_TYPE,
        "unsupported-media-type", "expected \"Content-Type: %s\"",
        patch ? "application/merge-patch+json" : "application/json");
}
