/*
 * A zone is read once for each rule that names it. Bytes that the core's reader
 * refuses are an unknown zone, too.
 */

#include "ngx_rl_tz_file.h"

#include "ngx_rl_hash.h"

#define NGX_RL_TZ_FOLDER  "/usr/share/zoneinfo"


/* Returns the length, or -1. */
static ssize_t
ngx_rl_tz_file(const char *path, u_char *buf, size_t size)
{
    size_t     len;
    ssize_t    n;
    ngx_fd_t   fd;

    fd = open(path, O_RDONLY|O_NONBLOCK|O_CLOEXEC);
    if (fd == -1) {
        return -1;
    }

    n = 0;

    for (len = 0; len < size; len += (size_t) n) {
        n = read(fd, buf + len, size - len);

        if (n <= 0) {
            break;
        }
    }

    (void) close(fd);

    return (len && n == 0) ? (ssize_t) len : -1;
}


const char *
ngx_rl_tz_load(ngx_pool_t *pool, const ngx_str_t *name, const ngx_rl_tz_t **tz)
{
    u_char               path[sizeof(NGX_RL_TZ_FOLDER "/") + NGX_RL_TZ_NAME];
    u_char               buf[NGX_RL_TZ_FILE], *p;
    ssize_t              n;
    ngx_rl_tz_t  *read;

    static const u_char  zero[16];

    if (!ngx_rl_tz_name_valid(name->data, name->len)) {
        return "the name of a time zone, as in \"Europe/Berlin\"";
    }

    p = ngx_cpymem(path, NGX_RL_TZ_FOLDER "/",
                   sizeof(NGX_RL_TZ_FOLDER "/") - 1);
    *ngx_cpymem(p, name->data, name->len) = '\0';

    n = ngx_rl_tz_file((char *) path, buf, sizeof(buf));

    if (n < 0) {
        return "a time zone that is known here, in " NGX_RL_TZ_FOLDER
               " (package tzdata)";
    }

    read = ngx_palloc(pool, sizeof(ngx_rl_tz_t));
    if (read == NULL) {
        return "";
    }

    if (ngx_rl_tz_read(read, buf, (size_t) n, time(NULL)) != NULL) {
        return "a time zone whose file in " NGX_RL_TZ_FOLDER " can be read";
    }

    read->name = (uint32_t) ngx_rl_siphash(zero, name->data, name->len,
                                           1, 3).lo;
    *tz = read;

    return NULL;
}
