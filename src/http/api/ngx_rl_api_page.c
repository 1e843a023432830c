/*
 * "ratelimit_status_page": the page for a browser, and its script and style.
 * They are files of the folder page/, and the same for every gateway. The
 * page's script reads all that it shows from the endpoint, where all guards
 * apply.
 */

#include "ngx_rl_api.h"
#include "ngx_rl_api_page.h"

typedef struct {
    ngx_str_t      path;
    ngx_str_t      type;
    const char    *text;
    const size_t  *len;
} ngx_rl_api_file_t;

/* only the page's own files and the endpoint; no text becomes markup */
static const char  ngx_rl_api_policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors "
    "'none'; require-trusted-types-for 'script'; trusted-types 'none'";

static const ngx_rl_api_file_t  ngx_rl_api_files[] = {

    { ngx_string("page.css"), ngx_string("text/css; charset=utf-8"),
      ngx_rl_api_page_css, &ngx_rl_api_page_css_len },

    { ngx_string("page.js"), ngx_string("text/javascript; charset=utf-8"),
      ngx_rl_api_page_js, &ngx_rl_api_page_js_len },

    { ngx_string(""), ngx_string("text/html; charset=utf-8"),
      ngx_rl_api_page_html, &ngx_rl_api_page_html_len }
};


ngx_uint_t
ngx_rl_api_page_wanted(ngx_rl_api_t *api)
{
    ngx_table_elt_t    *h;
    ngx_rl_loc_conf_t  *conf;

    static const ngx_str_t  name = ngx_string("Accept");

    conf = ngx_http_get_module_loc_conf(api->request,
                                        ngx_http_ratelimit_module);

    if (conf->page == NULL || api->path.len) {
        return conf->page != NULL;
    }

    h = ngx_rl_find_header(&api->request->headers_in.headers, &name);

    return h && ngx_strlcasestrn(h->value.data, h->value.data + h->value.len,
                                 (u_char *) "text/html",
                                 sizeof("text/html") - 2);
}


/*
 * For a client that may not be here, the page is the body of a 401 or 403. Its
 * script then asks for the token, or says where the page may be opened.
 */
ngx_int_t
ngx_rl_api_page(ngx_rl_api_t *api)
{
    u_char                   *p;
    ngx_str_t                 body;
    ngx_uint_t                status;
    ngx_http_request_t       *r;
    const ngx_rl_api_file_t  *file;

    r = api->request;
    file = ngx_rl_api_files;
    status = NGX_HTTP_OK;

    while (!ngx_rl_equal(&file->path, &api->path)) {
        file++;
    }

    /* to the location's name with a "/", below which its paths are */

    if (file->path.len == 0 && r->uri.data[r->uri.len - 1] != '/') {

        p = ngx_pnalloc(r->pool, r->uri.len + sizeof("/"));
        if (p == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        (void) ngx_sprintf(p, "%V/%Z", &r->uri);

        return (ngx_rl_header(r, "Location", (char *) p) == NGX_OK)
               ? ngx_rl_send(r, NGX_HTTP_MOVED_PERMANENTLY, NULL, NULL)
               : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (file->path.len == 0) {
        ngx_rl_api_header(api, "Content-Security-Policy", ngx_rl_api_policy);
        ngx_rl_api_header(api, "Referrer-Policy", "no-referrer");

        if (api->refused) {
            status = ngx_rl_api_challenge(api);
        }
    }

    ngx_rl_api_header(api, "Cache-Control", "no-store");
    ngx_rl_api_header(api, "X-Content-Type-Options", "nosniff");

    if (api->failed) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    body = ngx_rl_str((u_char *) file->text, *file->len);

    return ngx_rl_send(r, status, &file->type, &body);
}
