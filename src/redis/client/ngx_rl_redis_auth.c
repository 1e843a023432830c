/*
 * The passwords of a worker: for Redis, and for Sentinels. Each second their
 * files are looked at. A new password is for all connections that begin, and
 * for those that are open: they log in again and go on.
 *
 * Both belong to the client of checks; the control clients use them, too.
 */

#include "ngx_rl_redis_client.h"

#define NGX_RL_REDIS_AUTH_REMIND_MS  60000


static void
ngx_rl_redis_auth_free(ngx_str_t *password)
{
    if (password->data) {
        ngx_explicit_memzero(password->data, password->len);
        ngx_free(password->data);
        ngx_str_null(password);
    }
}


/* Takes a password over; NGX_ERROR when memory is out: the old one stays. */
static ngx_int_t
ngx_rl_redis_auth_set(ngx_rl_redis_client_t *client,
    ngx_rl_redis_login_t *login, const ngx_str_t *password)
{
    u_char  *copy;

    if (password->len == 0
        || (login->password.len == password->len
            && ngx_memcmp(login->password.data, password->data,
                          password->len)
               == 0))
    {
        return NGX_OK;
    }

    copy = ngx_alloc(password->len, client->log);
    if (copy == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(copy, password->data, password->len);
    ngx_rl_redis_auth_free(&login->password);

    login->password.data = copy;
    login->password.len = password->len;
    login->version++;

    return NGX_OK;
}


ngx_int_t
ngx_rl_redis_first_line(u_char *buf, size_t n, ngx_str_t *line)
{
    u_char  *last, *end;

    last = buf + n;

    /* an editor's byte order mark is no part of it */

    if (n >= 3 && ngx_memcmp(buf, "\xef\xbb\xbf", 3) == 0) {
        buf += 3;
    }

    end = ngx_strlchr(buf, last, '\n');

    if (end == NULL) {
        end = last;
    }

    if (end > buf && end[-1] == '\r') {
        end--;
    }

    line->data = buf;
    line->len = end - buf;

    return line->len && line->len < NGX_RL_REDIS_FILE_BYTES
           ? NGX_OK : NGX_DECLINED;
}


/* Writes one line for all workers. err: why the file cannot be read. */
static void
ngx_rl_redis_auth_notice(ngx_rl_redis_client_t *client,
    const ngx_rl_redis_login_t *login, ngx_err_t err)
{
    ngx_rl_redis_log(client, &client->redis->shared->auth_notices,
                     err ? NGX_RL_REDIS_AUTH_REMIND_MS : NGX_RL_LOG_MS,
                     NGX_LOG_NOTICE, err, "%s \"%V\"%s",
                     err ? "the workers cannot read" : "a new password in",
                     login->file, err ? ", a new password needs a reload" : "");
}


/*
 * Whether the file has another password, which is used from now on. A file that
 * cannot be read, or that is being written, leaves the old one.
 */
static ngx_uint_t
ngx_rl_redis_auth_changed(ngx_rl_redis_client_t *client,
    ngx_rl_redis_login_t *login, ngx_uint_t first)
{
    u_char      buf[NGX_RL_REDIS_FILE_BYTES];
    ssize_t     n;
    ngx_fd_t    fd;
    ngx_str_t   line;
    ngx_uint_t  version;

    n = -1;
    fd = ngx_open_file(login->file->data, NGX_FILE_RDONLY, NGX_FILE_OPEN, 0);

    if (fd != NGX_INVALID_FILE) {
        n = ngx_read_fd(fd, buf, sizeof(buf));
        (void) ngx_close_file(fd);
    }

    if (n == -1) {

        /*
         * A file that is missing may come back. Any other could be read once,
         * so the operator counts on it.
         */

        if (ngx_errno != NGX_ENOENT && (first || login->read)) {
            ngx_rl_redis_auth_notice(client, login, ngx_errno);
        }

        return 0;
    }

    if (ngx_rl_redis_first_line(buf, n, &line) != NGX_OK) {
        return 0;
    }

    version = login->version;

    login->read = 1;

    (void) ngx_rl_redis_auth_set(client, login, &line);

    ngx_explicit_memzero(buf, sizeof(buf));

    return login->version != version;
}


ngx_int_t
ngx_rl_redis_auth_start(ngx_rl_redis_client_t *client)
{
    ngx_uint_t             i;
    ngx_rl_redis_t        *redis;
    ngx_rl_redis_login_t  *login;

    redis = client->redis;

    client->logins[0].username = &redis->username;
    client->logins[0].file = &redis->password_file;
    client->logins[1].username = &redis->sentinel_username;
    client->logins[1].file = &redis->sentinel_password_file;

    if (ngx_rl_redis_auth_set(client, &client->logins[0],
                              &redis->password)
        != NGX_OK
        || ngx_rl_redis_auth_set(client, &client->logins[1],
                                 &redis->sentinel_password)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* the files may have changed since the configuration was read */

    for (i = 0; i < 2; i++) {
        login = &client->logins[i];

        if (login->password.len) {
            (void) ngx_rl_redis_auth_changed(client, login, 1);
        }
    }

    return NGX_OK;
}


void
ngx_rl_redis_auth_stop(ngx_rl_redis_client_t *client)
{
    ngx_rl_redis_auth_free(&client->logins[0].password);
    ngx_rl_redis_auth_free(&client->logins[1].password);
}


ngx_int_t
ngx_rl_redis_auth_send(ngx_rl_redis_node_t *node, ngx_rl_redis_kind_e kind)
{
    ngx_str_t              args[3];
    ngx_uint_t             n;
    ngx_rl_redis_login_t  *login;

    login = ngx_rl_redis_login(node);
    node->login = login->version;

    if (login->password.len == 0) {
        return NGX_OK;
    }

    n = 1;
    ngx_str_set(&args[0], "AUTH");

    if (login->username->len) {
        args[n++] = *login->username;
    }

    args[n++] = login->password;

    return ngx_rl_redis_command(node, kind, args, n) ? NGX_OK : NGX_ERROR;
}


void
ngx_rl_redis_auth_renew(ngx_rl_redis_node_t *node)
{
    /* a connection that listens takes no AUTH */

    if (node->conn.state <= NGX_RL_REDIS_BROKEN
        || node->login == ngx_rl_redis_login(node)->version
        || node->role == NGX_RL_REDIS_LISTENS)
    {
        return;
    }

    /* without memory the next connection has it */

    (void) ngx_rl_redis_auth_send(node, NGX_RL_REDIS_REAUTH);
}


void
ngx_rl_redis_auth_look(ngx_rl_redis_client_t *client)
{
    ngx_uint_t             i;
    ngx_rl_redis_node_t   *node;
    ngx_rl_redis_login_t  *login;

    for (i = 0; i < 2; i++) {
        login = &client->logins[i];

        if (login->password.len == 0
            || !ngx_rl_redis_auth_changed(client, login, 0))
        {
            continue;
        }

        ngx_rl_redis_auth_notice(client, login, 0);

        node = NULL;

        while (ngx_rl_redis_node_next(client, &node)) {
            ngx_rl_redis_auth_renew(node);
        }
    }
}
