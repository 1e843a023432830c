/*
 * A zone is read once for each rule that names it. Bytes that the core's reader
 * refuses are an unknown zone, too.
 */

#include "ngx_ratelimit_tz_file.h"

#define NGX_RATELIMIT_TZ_FOLDER  "/usr/share/zoneinfo"

static ssize_t ngx_ratelimit_tz_file(const char *path, u_char *buf,
    size_t size);


const char *
ngx_ratelimit_tz_load(ngx_pool_t *pool, const ngx_str_t *name,
    const ngx_ratelimit_tz_t **tz)
{
    u_char               path[128], buf[NGX_RATELIMIT_TZ_FILE];
    ssize_t              n;
    ngx_ratelimit_tz_t  *read;

    if (!ngx_ratelimit_tz_name_valid(name->data, name->len)) {
        return "the name of a time zone, as in \"Europe/Berlin\"";
    }

    *ngx_snprintf(path, sizeof(path) - 1, NGX_RATELIMIT_TZ_FOLDER "/%V", name)
        = '\0';

    n = ngx_ratelimit_tz_file((char *) path, buf, sizeof(buf));

    if (n < 0) {
        return "a time zone that is known here, in " NGX_RATELIMIT_TZ_FOLDER
               " (package tzdata)";
    }

    read = ngx_palloc(pool, sizeof(ngx_ratelimit_tz_t));
    if (read == NULL) {
        return "";
    }

    if (ngx_ratelimit_tz_read(read, buf, (size_t) n, ngx_time()) != NULL) {
        return "a time zone whose file in " NGX_RATELIMIT_TZ_FOLDER
               " can be read";
    }

    *tz = read;

    return NULL;
}


/* Returns the length, or -1. */
static ssize_t
ngx_ratelimit_tz_file(const char *path, u_char *buf, size_t size)
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
