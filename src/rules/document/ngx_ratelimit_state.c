/*
 * The state file. At any moment there is a whole one: the file, or where it
 * could only be renamed, for a moment the one before as "<file>.old". Where the
 * name is a link, the file is what it leads to.
 *
 * Two gateways may write at once, while nginx is upgraded: a lock on the
 * temporary file keeps one out.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include <sys/file.h>

#include "ngx_ratelimit_state.h"

#define NGX_RATELIMIT_STATE_MAX                                               \
    ((size_t) NGX_RATELIMIT_RECORD_MAX + NGX_RATELIMIT_RECORD_RING)
#define NGX_RATELIMIT_STATE_LINKS  8     /* one behind the other */

typedef char  ngx_ratelimit_state_path_t[NGX_MAX_PATH];

static ngx_int_t ngx_ratelimit_state_path(ngx_ratelimit_state_path_t path,
    const ngx_str_t *file, const char *suffix);
static ngx_int_t ngx_ratelimit_state_target(ngx_ratelimit_state_path_t path,
    const ngx_str_t *file, const char *suffix);
static ngx_int_t ngx_ratelimit_state_follow(ngx_ratelimit_state_path_t path);
static ngx_int_t ngx_ratelimit_state_load(const char *path, ngx_pool_t *pool,
    ngx_str_t *text, ngx_log_t *log);
static ngx_int_t ngx_ratelimit_state_bytes(ngx_fd_t fd, ngx_pool_t *pool,
    ngx_str_t *text, const char **step);
static ngx_int_t ngx_ratelimit_state_records(const char *path,
    ngx_pool_t *pool, ngx_str_t *text, ngx_log_t *log);
static void ngx_ratelimit_state_aside(const char *path,
    const ngx_str_t *file, ngx_log_t *log);
static const char *ngx_ratelimit_state_fill(ngx_fd_t fd, const char *path,
    const ngx_str_t *text);
static ngx_int_t ngx_ratelimit_state_keep(const char *path, const char *old);
static const char *ngx_ratelimit_state_sync(const char *path);


ngx_int_t
ngx_ratelimit_state_read(const ngx_str_t *file, ngx_pool_t *pool,
    ngx_uint_t test, ngx_str_t *text, ngx_log_t *log)
{
    ngx_int_t                   rc;
    ngx_ratelimit_state_path_t  path, old;

    if (ngx_ratelimit_state_path(path, file, "") != NGX_OK
        || ngx_ratelimit_state_target(old, file, ".old") != NGX_OK)
    {
        ngx_log_error(NGX_LOG_EMERG, log, ngx_errno,
                      "open() of ratelimit state \"%V\" failed", file);
        return NGX_ERROR;
    }

    rc = ngx_ratelimit_state_load(path, pool, text, log);

    if (rc == NGX_OK || rc == NGX_ERROR) {
        return rc;
    }

    if (rc == NGX_ABORT && !test) {
        ngx_ratelimit_state_aside(path, file, log);
    }

    rc = ngx_ratelimit_state_load(old, pool, text, log);

    if (rc == NGX_OK) {
        ngx_log_error(NGX_LOG_WARN, log, 0,
                      "ratelimit state \"%s\" is read instead of \"%s\"",
                      old, path);
    }

    return (rc == NGX_ERROR) ? NGX_ERROR : NGX_OK;
}


static ngx_int_t
ngx_ratelimit_state_path(ngx_ratelimit_state_path_t path,
    const ngx_str_t *file, const char *suffix)
{
    size_t  len;

    len = ngx_strlen(suffix) + 1;

    if (file->len > sizeof(ngx_ratelimit_state_path_t) - len) {
        ngx_set_errno(ENAMETOOLONG);
        return NGX_ERROR;
    }

    ngx_memcpy(ngx_cpymem(path, file->data, file->len), suffix, len);

    return NGX_OK;
}


/* The same of the file that a link leads to. */
static ngx_int_t
ngx_ratelimit_state_target(ngx_ratelimit_state_path_t path,
    const ngx_str_t *file, const char *suffix)
{
    ngx_str_t                   target;
    ngx_ratelimit_state_path_t  name;

    if (ngx_ratelimit_state_path(name, file, "") != NGX_OK
        || ngx_ratelimit_state_follow(name) != NGX_OK)
    {
        return NGX_ERROR;
    }

    target.data = (u_char *) name;
    target.len = ngx_strlen(name);

    return ngx_ratelimit_state_path(path, &target, suffix);
}


/* If the path is no link, or cannot be read as one, open() says more. */
static ngx_int_t
ngx_ratelimit_state_follow(ngx_ratelimit_state_path_t path)
{
    char                       *end;
    ssize_t                     n;
    ngx_uint_t                  i;
    ngx_ratelimit_state_path_t  link;

    for (i = 0; i < NGX_RATELIMIT_STATE_LINKS; i++) {
        n = readlink(path, link, sizeof(link));

        if (n <= 0) {
            return NGX_OK;
        }

        /* one that is not absolute begins where it stands */

        end = (link[0] == '/') ? NULL : strrchr(path, '/');
        end = end ? end + 1 : path;

        if (n >= path + sizeof(ngx_ratelimit_state_path_t) - end) {
            ngx_set_errno(ENAMETOOLONG);
            return NGX_ERROR;
        }

        ngx_memcpy(end, link, n);
        end[n] = '\0';
    }

    ngx_set_errno(ELOOP);

    return NGX_ERROR;
}


/*
 * The good records of a file. Returns NGX_OK, NGX_DECLINED: there is no file,
 * NGX_ABORT: it is not whole; text is empty then; or NGX_ERROR.
 */
static ngx_int_t
ngx_ratelimit_state_load(const char *path, ngx_pool_t *pool, ngx_str_t *text,
    ngx_log_t *log)
{
    ngx_fd_t     fd;
    ngx_int_t    rc;
    ngx_err_t    err;
    const char  *step;

    ngx_str_null(text);

    step = "open()";
    fd = open(path, O_RDONLY|O_NONBLOCK|O_CLOEXEC);

    if (fd == NGX_INVALID_FILE) {

        if (ngx_errno == NGX_ENOENT) {
            return NGX_DECLINED;
        }

        rc = NGX_ERROR;
        err = ngx_errno;

    } else {
        rc = ngx_ratelimit_state_bytes(fd, pool, text, &step);
        err = ngx_errno;
        (void) close(fd);
    }

    if (rc == NGX_ERROR) {
        ngx_log_error(NGX_LOG_EMERG, log, err,
                      "%s of ratelimit state \"%s\" failed", step, path);
        return NGX_ERROR;
    }

    return ngx_ratelimit_state_records(path, pool, text, log);
}


/* All that is in a file, of what is too long the beginning. */
static ngx_int_t
ngx_ratelimit_state_bytes(ngx_fd_t fd, ngx_pool_t *pool, ngx_str_t *text,
    const char **step)
{
    size_t           size;
    ssize_t          n;
    ngx_file_info_t  info;

    *step = "fstat()";

    if (fstat(fd, &info) == -1) {
        return NGX_ERROR;
    }

    if (!S_ISREG(info.st_mode)) {
        ngx_set_errno(S_ISDIR(info.st_mode) ? NGX_EISDIR : NGX_EINVAL);
        return NGX_ERROR;
    }

    *step = "malloc()";

    size = ngx_min((uint64_t) info.st_size, NGX_RATELIMIT_STATE_MAX);
    text->data = ngx_pnalloc(pool, size ? size : 1);

    if (text->data == NULL) {
        return NGX_ERROR;
    }

    *step = "read()";

    while (text->len < size) {
        n = read(fd, text->data + text->len, size - text->len);

        if (n == 0) {
            break;
        }

        if (n > 0) {
            text->len += n;

        } else if (ngx_errno != NGX_EINTR) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* Cuts text behind the last good record. */
static ngx_int_t
ngx_ratelimit_state_records(const char *path, ngx_pool_t *pool,
    ngx_str_t *text, ngx_log_t *log)
{
    ngx_str_t                rest;
    const char              *wrong;
    ngx_ratelimit_record_t   record;

    rest = *text;

    do {
        wrong = ngx_ratelimit_record_read(&rest, pool, &record);

        if (wrong) {
            break;
        }

        rest.data += record.text.len;
        rest.len -= record.text.len;

    } while (rest.len);

    text->len -= rest.len;

    if (wrong == NULL) {
        return NGX_OK;
    }

    if (wrong == ngx_ratelimit_record_no_memory) {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "ratelimit state \"%s\" is not read: %s", path, wrong);
        return NGX_ERROR;
    }

    ngx_log_error(NGX_LOG_ERR, log, 0,
                  "ratelimit state \"%s\" is not whole, from byte %uz on: %s",
                  path, text->len, wrong);

    return text->len ? NGX_OK : NGX_ABORT;
}


/* Renames a link itself: the file that it leads to may be anybody's. */
static void
ngx_ratelimit_state_aside(const char *path, const ngx_str_t *file,
    ngx_log_t *log)
{
    ngx_ratelimit_state_path_t  corrupt;

    if (ngx_ratelimit_state_path(corrupt, file, ".corrupt") != NGX_OK) {
        return;
    }

    if (rename(path, corrupt) == -1) {
        ngx_log_error(NGX_LOG_ERR, log, ngx_errno,
                      "rename() of ratelimit state \"%s\" to \"%s\" failed",
                      path, corrupt);
        return;
    }

    ngx_log_error(NGX_LOG_WARN, log, 0,
                  "ratelimit state \"%s\" is set aside as \"%s\"",
                  path, corrupt);
}


const char *
ngx_ratelimit_state_write(const ngx_str_t *file, const ngx_str_t *text,
    ngx_err_t *err)
{
    ngx_fd_t                    fd;
    const char                 *step;
    ngx_ratelimit_state_path_t  path, tmp, old;

    *err = 0;
    fd = NGX_INVALID_FILE;
    step = "open()";

    if (ngx_ratelimit_state_target(path, file, "") == NGX_OK
        && ngx_ratelimit_state_target(tmp, file, ".tmp") == NGX_OK
        && ngx_ratelimit_state_target(old, file, ".old") == NGX_OK)
    {
        fd = open(tmp, O_WRONLY|O_CREAT|O_NOFOLLOW|O_CLOEXEC, 0600);
    }

    if (fd == NGX_INVALID_FILE) {
        *err = ngx_errno;
        return step;
    }

    step = ngx_ratelimit_state_fill(fd, tmp, text);

    if (step == NULL
        && (ngx_ratelimit_state_keep(path, old) != NGX_OK
            || rename(tmp, path) == -1))
    {
        step = "rename()";
    }

    if (step) {
        *err = ngx_errno;

        if (*err != NGX_EAGAIN) {
            (void) unlink(tmp);
        }

    } else {
        step = ngx_ratelimit_state_sync(path);
        *err = step ? ngx_errno : 0;
    }

    (void) close(fd);

    return step;
}


/* Only the owner of the lock writes the temporary file, and renames it. */
static const char *
ngx_ratelimit_state_fill(ngx_fd_t fd, const char *path, const ngx_str_t *text)
{
    size_t           written;
    ssize_t          n;
    ngx_file_info_t  own, named;

    if (flock(fd, LOCK_EX|LOCK_NB) == -1) {
        return "flock()";
    }

    /* its last owner may have renamed it, or taken it away */

    if (fstat(fd, &own) == -1 || lstat(path, &named) == -1
        || own.st_ino != named.st_ino || own.st_dev != named.st_dev)
    {
        ngx_set_errno(NGX_EAGAIN);
        return "flock()";
    }

    /* a writer that was killed has left some of it */

    if (ftruncate(fd, 0) == -1) {
        return "ftruncate()";
    }

    for (written = 0; written < text->len; /* void */ ) {
        n = write(fd, text->data + written, text->len - written);

        if (n >= 0) {
            written += n;

        } else if (ngx_errno != NGX_EINTR) {
            return "write()";
        }
    }

    return (fsync(fd) == -1) ? "fsync()" : NULL;
}


/*
 * The file becomes the old one. A second name leaves it where it is until the
 * new file replaces it. Not every file system has that, and not everybody may:
 * a file that root has put there can only be renamed. Where there is no file,
 * the old one is all there is, and stays.
 */
static ngx_int_t
ngx_ratelimit_state_keep(const char *path, const char *old)
{
    if (link(path, old) == 0) {
        return NGX_OK;
    }

    if (ngx_errno == NGX_EEXIST) {
        (void) unlink(old);

        if (link(path, old) == 0) {
            return NGX_OK;
        }
    }

    return (rename(path, old) == 0 || ngx_errno == NGX_ENOENT) ? NGX_OK
                                                               : NGX_ERROR;
}


/* Some file systems have nothing to sync in a folder. */
static const char *
ngx_ratelimit_state_sync(const char *path)
{
    char                        *slash;
    ngx_fd_t                     fd;
    ngx_err_t                    err;
    ngx_ratelimit_state_path_t   folder;

    ngx_memcpy(folder, path, ngx_strlen(path) + 1);
    slash = strrchr(folder, '/');

    if (slash == NULL) {
        ngx_memcpy(folder, ".", sizeof("."));

    } else if (slash == folder) {
        slash[1] = '\0';

    } else {
        *slash = '\0';
    }

    fd = open(folder, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (fd == NGX_INVALID_FILE) {
        return "open() of the folder";
    }

    err = (fsync(fd) == -1 && ngx_errno != NGX_EINVAL) ? ngx_errno : 0;
    (void) close(fd);
    ngx_set_errno(err);

    return err ? "fsync() of the folder" : NULL;
}
