/*
 * Access to the endpoint and the metrics, and the files of tokens. A browser
 * sends no token by itself. Without tokens and certificates, a location answers
 * its own machine alone, and no proxy there: it would speak for clients of
 * other machines.
 */

#include "ngx_rl_conf.h"
#include "ngx_rl_request.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#define NGX_RL_TOKEN_FILE   65536   /* bytes of the file */
#define NGX_RL_TOKEN_BYTES  16      /* of a token at least */
#define NGX_RL_TOKEN_NAME   64      /* bytes of a name at most */

const char  ngx_rl_guard_checks[] = "this token may only \"POST /check\"";


/* "<name>:<token> [check]"; a token without a colon has no name. */
static ngx_int_t
ngx_rl_token_parse(ngx_conf_t *cf, ngx_array_t *tokens, const u_char *text,
    size_t len)
{
    size_t           i, n;
    ngx_str_t        name;
    ngx_uint_t       checks;
    const u_char    *token;
    ngx_rl_token_t  *one;

    n = len - ngx_min(len, sizeof("check") - 1);
    checks = (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t')
              && ngx_memcmp(text + n, "check", sizeof("check") - 1) == 0);

    while (checks && (text[n - 1] == ' ' || text[n - 1] == '\t')) {
        len = --n;
    }

    token = memchr(text, ':', len);
    n = token ? (size_t) (token - text) : 0;

    if (token && (n == 0 || n > NGX_RL_TOKEN_NAME)) {
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {
        if ((text[i] < '0' || text[i] > '9')
            && ((text[i] | 0x20) < 'a' || (text[i] | 0x20) > 'z')
            && memchr("._@+-", text[i], sizeof("._@+-") - 1) == NULL)
        {
            return NGX_ERROR;
        }
    }

    token = token ? token + 1 : text;
    len -= token - text;

    if (len < NGX_RL_TOKEN_BYTES) {
        return NGX_ERROR;
    }

    for (i = 0; i < len; i++) {
        if (token[i] <= 0x20 || token[i] >= 0x7f) {
            return NGX_ERROR;
        }
    }

    one = ngx_array_push(tokens);
    name = ngx_rl_str((u_char *) text, n);

    if (one == NULL) {
        return NGX_ERROR;
    }

    (void) SHA256(token, len, one->digest);

    one->checks = checks;
    one->name = ngx_rl_str(ngx_pstrdup(cf->pool, &name), n);

    return (one->name.data || n == 0) ? NGX_OK : NGX_ERROR;
}


const char *
ngx_rl_row_tokens(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
    ngx_str_t *file)
{
    u_char       *p, *end, *last, *next;
    ngx_str_t     content;
    ngx_uint_t    line;
    const char   *made;
    ngx_array_t  *tokens;

    if (file->len == 0) {
        return row->expected;
    }

    tokens = ngx_array_create(cf->pool, 2, sizeof(ngx_rl_token_t));

    if (tokens == NULL
        || ngx_rl_file_read(cf, file, NGX_RL_TOKEN_FILE, &content) != NGX_OK)
    {
        return "";
    }

    made = "";

    if (content.len > NGX_RL_TOKEN_FILE) {
        ngx_rl_wrong(cf, "has an invalid file \"%V\", expected at most %d "
                     "bytes", file, NGX_RL_TOKEN_FILE);
        goto done;
    }

    end = content.data + content.len;

    for (p = content.data, line = 1; p < end; p = next, line++) {

        last = ngx_strlchr(p, end, '\n');
        last = last ? last : end;
        next = last + 1;

        while (last > p && (last[-1] == ' ' || last[-1] == '\t'
                            || last[-1] == '\r'))
        {
            last--;
        }

        while (p < last && (*p == ' ' || *p == '\t')) {
            p++;
        }

        if (p == last || *p == '#') {
            continue;
        }

        /* the message does not show the line: it holds a secret */

        if (ngx_rl_token_parse(cf, tokens, p, last - p) != NGX_OK) {
            ngx_rl_wrong(cf, "has an invalid token in %V:%ui, expected "
                         "\"<name>:<token>\": a name of letters, digits and "
                         "\"._@+-\", a token of %d bytes or more without "
                         "spaces, and maybe \" check\"", file, line,
                         NGX_RL_TOKEN_BYTES);
            goto done;
        }
    }

    if (tokens->nelts == 0) {
        ngx_rl_wrong(cf, "has an invalid file \"%V\", expected a token", file);
        goto done;
    }

    *(ngx_array_t **) ngx_rl_row_at(target, row) = tokens;
    made = NULL;

done:

    ngx_rl_file_free(&content);

    return made;
}


const ngx_rl_token_t *
ngx_rl_token_find(const ngx_array_t *tokens, const u_char *text, size_t len)
{
    u_char                 digest[NGX_RL_TOKEN_DIGEST];
    ngx_uint_t             i;
    const ngx_rl_token_t  *token, *found;

    (void) SHA256(text, len, digest);

    token = tokens->elts;
    found = NULL;

    for (i = 0; i < tokens->nelts; i++) {
        if (CRYPTO_memcmp(token[i].digest, digest, NGX_RL_TOKEN_DIGEST) == 0) {
            found = &token[i];
        }
    }

    return found;
}


/* nginx's own list of names ends with the reading of the configuration. */
ngx_int_t
ngx_rl_guard_merge(ngx_conf_t *cf, ngx_rl_guard_t *guard)
{
    ngx_str_t                 *name;
    ngx_uint_t                 i;
#if (NGX_HTTP_SSL)
    ngx_http_ssl_srv_conf_t   *sscf;
#endif
    ngx_http_server_name_t    *names;
    ngx_http_core_srv_conf_t  *cscf;

#if (NGX_HTTP_SSL)
    sscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_ssl_module);
    guard->verifies = (sscf->verify != 0);
#endif

    cscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);
    names = cscf->server_names.elts;

    guard->names = ngx_array_create(cf->pool, cscf->server_names.nelts + 1,
                                    sizeof(ngx_str_t));
    if (guard->names == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < cscf->server_names.nelts; i++) {

        if (names[i].name.len == 0) {
            continue;
        }

#if (NGX_PCRE)
        if (names[i].regex) {
            continue;
        }
#endif

        name = ngx_array_push(guard->names);
        if (name == NULL) {
            return NGX_ERROR;
        }

        *name = names[i].name;
    }

    return NGX_OK;
}


/* The request's token, or NULL. */
static const ngx_rl_token_t *
ngx_rl_guard_token(ngx_http_request_t *r, const ngx_array_t *tokens)
{
    u_char           *p, *last;
    ngx_table_elt_t  *h;

    h = r->headers_in.authorization;

    if (h == NULL || h->value.len < sizeof("Bearer ") - 1
        || ngx_strncasecmp(h->value.data, (u_char *) "Bearer ",
                           sizeof("Bearer ") - 1)
           != 0)
    {
        return NULL;
    }

    p = h->value.data + sizeof("Bearer ") - 1;
    last = h->value.data + h->value.len;

    while (p < last && *p == ' ') {
        p++;
    }

    return ngx_rl_token_find(tokens, p, last - p);
}


/*
 * Whether this server has verified the client's certificate. A connection that
 * names no server in TLS has been verified by the default server of the port,
 * whatever host its requests name: by that server's CA.
 */
static ngx_uint_t
ngx_rl_guard_verified(ngx_http_request_t *r)
{
#if (NGX_HTTP_SSL)
    ngx_http_ssl_srv_conf_t    *sscf;
    ngx_http_variable_value_t  *value;

    static ngx_str_t  name = ngx_string("ssl_client_verify");

    sscf = ngx_http_get_module_srv_conf(r, ngx_http_ssl_module);

    if (r->connection->ssl == NULL
        || SSL_get_SSL_CTX(r->connection->ssl->connection) != sscf->ssl.ctx)
    {
        return 0;
    }

    value = ngx_http_get_variable(r, &name, ngx_hash_key(name.data, name.len));

    return value && !value->not_found && value->len == sizeof("SUCCESS") - 1
           && ngx_memcmp(value->data, "SUCCESS", value->len) == 0;
#else
    return 0;
#endif
}


ngx_uint_t
ngx_rl_guard_loopback(struct sockaddr *sa)
{
    in_addr_t             addr;
#if (NGX_HAVE_INET6)
    u_char               *p;
    struct sockaddr_in6  *sin6;
#endif

    switch (sa->sa_family) {

#if (NGX_HAVE_UNIX_DOMAIN)
    case AF_UNIX:
        return 1;
#endif

    case AF_INET:
        addr = ((struct sockaddr_in *) sa)->sin_addr.s_addr;
        return (ntohl(addr) >> 24) == 127;

#if (NGX_HAVE_INET6)
    case AF_INET6:
        sin6 = (struct sockaddr_in6 *) sa;
        p = sin6->sin6_addr.s6_addr;

        return IN6_IS_ADDR_LOOPBACK(&sin6->sin6_addr)
               || (IN6_IS_ADDR_V4MAPPED(&sin6->sin6_addr) && p[12] == 127);
#endif

    default:
        return 0;
    }
}


/*
 * Whether the peer itself is on this machine, and speaks for nobody else, as a
 * header of those that proxies add would say. The kernel knows the peer,
 * whatever realip has made of the connection's address; but not over QUIC: then
 * it is not local.
 */
static ngx_uint_t
ngx_rl_guard_local(ngx_http_request_t *r)
{
    size_t            len;
    socklen_t         socklen;
    ngx_uint_t        i, n;
    ngx_sockaddr_t    peer;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *header;

    static const char *const  names[] = {
        "Forwarded", "Via", "X-Forwarded", "X-Forwarded-", "X-Real-IP" };

    socklen = sizeof(ngx_sockaddr_t);

    if (r->http_connection->addr_conf->proxy_protocol
        || getpeername(r->connection->fd, &peer.sockaddr, &socklen) == -1
        || !ngx_rl_guard_loopback(&peer.sockaddr)
        || !ngx_rl_guard_loopback(r->connection->sockaddr))
    {
        return 0;
    }

    for (part = &r->headers_in.headers.part; part; part = part->next) {
        header = part->elts;

        for (i = 0; i < part->nelts; i++) {
            for (n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
                len = ngx_strlen(names[n]);

                /* one that ends with "-" is the beginning of others */

                if (header[i].key.len >= len
                    && (header[i].key.len == len || names[n][len - 1] == '-')
                    && ngx_strncasecmp(header[i].key.data,
                                       (u_char *) names[n], len)
                       == 0)
                {
                    return 0;
                }
            }
        }
    }

    return 1;
}


ngx_uint_t
ngx_rl_guard_localhost(const ngx_str_t *host)
{
    return host->len == sizeof("localhost") - 1
           && ngx_strncasecmp(host->data, (u_char *) "localhost", host->len)
              == 0;
}


/*
 * "localhost", an address, or a server_name: no name that somebody else may
 * define. So no regular expression and no "name.*". "*.example.com" is the
 * names below it, ".example.com" these and itself.
 */
static ngx_uint_t
ngx_rl_guard_name_known(const ngx_array_t *names, const ngx_str_t *host)
{
    ngx_str_t         name, tail;
    ngx_uint_t        i, wild, dot;
    const ngx_str_t  *known;

    name = *host;

    for (i = name.len; i > 0 && name.data[i - 1] >= '0'
                       && name.data[i - 1] <= '9'; i--)
    {
        /* the port */
    }

    if (i > 0 && name.data[i - 1] == ':') {
        name.len = i - 1;
    }

    if ((name.len && name.data[0] == '[')
        || ngx_inet_addr(name.data, name.len) != INADDR_NONE
        || ngx_rl_guard_localhost(&name))
    {
        return 1;
    }

    known = names->elts;

    for (i = 0; i < names->nelts; i++) {
        tail = known[i];
        wild = (tail.data[0] == '*');

        tail.data += wild;
        tail.len -= wild;

        dot = (tail.data[0] == '.');

        if (dot && name.len > tail.len
            && ngx_strncasecmp(name.data + name.len - tail.len, tail.data,
                               tail.len)
               == 0)
        {
            return 1;
        }

        if (!wild && name.len == tail.len - dot
            && ngx_strncasecmp(name.data, tail.data + dot, name.len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


ngx_int_t
ngx_rl_guard(ngx_http_request_t *r, const ngx_rl_guard_t *guard,
    ngx_str_t *name, const char **why)
{
    const ngx_rl_token_t  *token;

    ngx_str_null(name);

    if (guard->tokens) {
        token = ngx_rl_guard_token(r, guard->tokens);

        if (token) {
            *name = token->name;
            *why = token->checks ? ngx_rl_guard_checks : NULL;

            return token->checks ? NGX_HTTP_FORBIDDEN : NGX_OK;
        }

        *why = "expected \"Authorization: Bearer\" with a token of this "
               "location";
        return NGX_HTTP_UNAUTHORIZED;
    }

    if (guard->verifies && ngx_rl_guard_verified(r)) {
        return NGX_OK;
    }

    if (!ngx_rl_guard_local(r)) {
        *why = "without a token this location is for clients on its own "
               "machine, and for no proxy there";
        return NGX_HTTP_FORBIDDEN;
    }

    /*
     * A page whose name was made to resolve to this machine is, for the
     * browser, of the same site as the location, and comes from here. Its name
     * gives it away: by every name that the request has for its server.
     */

    if ((r->headers_in.host
         && !ngx_rl_guard_name_known(guard->names, &r->headers_in.host->value))
        || (r->headers_in.server.len
            && !ngx_rl_guard_name_known(guard->names, &r->headers_in.server)))
    {
        *why = "expected \"localhost\", an address or a \"server_name\" of "
               "this server as the host";
        return NGX_HTTP_FORBIDDEN;
    }

    return NGX_DECLINED;
}


void
ngx_rl_guard_log(ngx_http_request_t *r, const char *why)
{
    ngx_http_core_loc_conf_t  *clcf;

    char  note[NGX_RL_LOG_NOTE];

    if (!ngx_rl_request_log_due(r, NGX_RL_LOG_REFUSED, note)) {
        return;
    }

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    /* the log of the connection would add the line of the request */

    ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                  "ratelimit location \"%V\": a request from %V was refused: "
                  "%s%s", &clcf->name, &r->connection->addr_text, why, note);
}
