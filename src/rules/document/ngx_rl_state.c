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

#include <grp.h>
#include <libgen.h>
#include <sys/file.h>

#include "ngx_rl_state.h"

#define NGX_RL_STATE_MAX                                                      \
    ((size_t) NGX_RL_RECORD_MAX + NGX_RL_RECORD_RING)
#define NGX_RL_STATE_LINKS  8     /* one behind the other */
#define NGX_RL_STATE_GROUPS 256   /* of the master */

/* Files; all but the first two belong to what a link leads to. */
typedef struct {
    char  file[NGX_MAX_PATH];      /* as it is configured */
    char  corrupt[NGX_MAX_PATH];
    char  path[NGX_MAX_PATH];
    char  tmp[NGX_MAX_PATH];
    char  old[NGX_MAX_PATH];
} ngx_rl_state_names_t;


/* If the path is no link, or cannot be read as one, open() says more. */
static ngx_int_t
ngx_rl_state_follow(char path[NGX_MAX_PATH])
{
    char        *end, link[NGX_MAX_PATH];
    ssize_t      n;
    ngx_uint_t   i;

    for (i = 0; i < NGX_RL_STATE_LINKS; i++) {
        n = readlink(path, link, sizeof(link));

        if (n <= 0) {
            return NGX_OK;
        }

        /* one that is not absolute begins where it stands */

        end = (link[0] == '/') ? NULL : strrchr(path, '/');
        end = end ? end + 1 : path;

        if (n >= path + NGX_MAX_PATH - end) {
            ngx_set_errno(ENAMETOOLONG);
            return NGX_ERROR;
        }

        ngx_memcpy(end, link, n);
        end[n] = '\0';
    }

    ngx_set_errno(ELOOP);

    return NGX_ERROR;
}


static ngx_int_t
ngx_rl_state_names(ngx_rl_state_names_t *names, const ngx_str_t *file)
{
    size_t  max;

    max = NGX_MAX_PATH - sizeof(".corrupt");

    if (file->len > max) {
        ngx_set_errno(ENAMETOOLONG);
        return NGX_ERROR;
    }

    ngx_memcpy(names->path, file->data, file->len);
    names->path[file->len] = '\0';

    (void) strcpy(names->file, names->path);
    (void) strcpy(stpcpy(names->corrupt, names->path), ".corrupt");

    if (ngx_rl_state_follow(names->path) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_strlen(names->path) > max) {
        ngx_set_errno(ENAMETOOLONG);
        return NGX_ERROR;
    }

    (void) strcpy(stpcpy(names->tmp, names->path), ".tmp");
    (void) strcpy(stpcpy(names->old, names->path), ".old");

    return NGX_OK;
}


/*
 * All that is in a file, of what is too long the beginning. Returns NULL, or
 * which step failed.
 */
static const char *
ngx_rl_state_bytes(ngx_fd_t fd, ngx_pool_t *pool, ngx_str_t *text)
{
    size_t           size;
    ssize_t          n;
    ngx_file_info_t  info;

    if (fstat(fd, &info) == -1) {
        return "fstat()";
    }

    if (!S_ISREG(info.st_mode)) {
        ngx_set_errno(S_ISDIR(info.st_mode) ? NGX_EISDIR : NGX_EINVAL);
        return "fstat()";
    }

    size = ngx_min((uint64_t) info.st_size, NGX_RL_STATE_MAX);
    text->data = ngx_pnalloc(pool, size ? size : 1);

    if (text->data == NULL) {
        return "malloc()";
    }

    while (text->len < size) {
        n = read(fd, text->data + text->len, size - text->len);

        if (n == 0) {
            break;
        }

        if (n > 0) {
            text->len += n;

        } else if (ngx_errno != NGX_EINTR) {
            return "read()";
        }
    }

    return NULL;
}


/* Cuts text behind the last good record. */
static ngx_int_t
ngx_rl_state_records(const char *path, ngx_pool_t *pool, ngx_str_t *text,
    ngx_log_t *log)
{
    ngx_str_t         rest;
    const char       *wrong;
    ngx_rl_record_t   record;

    rest = *text;

    do {
        wrong = ngx_rl_record_read(&rest, pool, &record);

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

    if (wrong == ngx_rl_record_no_memory) {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "ratelimit state \"%s\" is not read: %s", path, wrong);
        return NGX_ERROR;
    }

    ngx_log_error(NGX_LOG_ERR, log, 0,
                  "ratelimit state \"%s\" is not whole, from byte %uz on: %s",
                  path, text->len, wrong);

    return text->len ? NGX_OK : NGX_ABORT;
}


/*
 * The good records of a file. Returns NGX_OK, NGX_DECLINED: there is no file,
 * NGX_ABORT: it is not whole; text is empty then; or NGX_ERROR.
 */
static ngx_int_t
ngx_rl_state_load(const char *path, ngx_pool_t *pool, ngx_str_t *text,
    ngx_log_t *log)
{
    ngx_fd_t     fd;
    ngx_err_t    err;
    const char  *step;

    ngx_str_null(text);

    fd = open(path, O_RDONLY|O_NONBLOCK|O_CLOEXEC);

    if (fd != NGX_INVALID_FILE) {
        step = ngx_rl_state_bytes(fd, pool, text);
        err = ngx_errno;
        (void) close(fd);

    } else if (ngx_errno == NGX_ENOENT) {
        return NGX_DECLINED;

    } else {
        step = "open()";
        err = ngx_errno;
    }

    if (step) {
        ngx_log_error(NGX_LOG_EMERG, log, err,
                      "%s of ratelimit state \"%s\" failed", step, path);
        return NGX_ERROR;
    }

    return ngx_rl_state_records(path, pool, text, log);
}


/* Renames a link itself: the file that it leads to may be anybody's. */
static void
ngx_rl_state_aside(const ngx_rl_state_names_t *names, ngx_log_t *log)
{
    if (rename(names->file, names->corrupt) == -1) {
        ngx_log_error(NGX_LOG_ERR, log, ngx_errno,
                      "rename() of ratelimit state \"%s\" to \"%s\" failed",
                      names->file, names->corrupt);
        return;
    }

    ngx_log_error(NGX_LOG_WARN, log, 0,
                  "ratelimit state \"%s\" is set aside as \"%s\"",
                  names->file, names->corrupt);
}


ngx_int_t
ngx_rl_state_read(const ngx_str_t *file, ngx_pool_t *pool, ngx_uint_t test,
    ngx_str_t *text, ngx_log_t *log)
{
    ngx_int_t             rc;
    ngx_rl_state_names_t  names;

    if (ngx_rl_state_names(&names, file) != NGX_OK) {
        ngx_log_error(NGX_LOG_EMERG, log, ngx_errno,
                      "open() of ratelimit state \"%V\" failed", file);
        return NGX_ERROR;
    }

    rc = ngx_rl_state_load(names.file, pool, text, log);

    if (rc == NGX_OK || rc == NGX_ERROR) {
        return rc;
    }

    if (rc == NGX_ABORT && !test) {
        ngx_rl_state_aside(&names, log);
    }

    rc = ngx_rl_state_load(names.old, pool, text, log);

    if (rc == NGX_OK) {
        ngx_log_error(NGX_LOG_WARN, log, 0,
                      "ratelimit state \"%s\" is read instead of \"%s\"",
                      names.old, names.file);
    }

    return (rc == NGX_ERROR) ? NGX_ERROR : NGX_DECLINED;
}


/* Only the owner of the lock writes the temporary file, and renames it. */
static const char *
ngx_rl_state_fill(ngx_fd_t fd, const char *path, const ngx_str_t *text)
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

    /* its owner, or others who may write to it, could change it later */

    if (own.st_uid != geteuid() || (own.st_mode & 077)) {

        if (unlink(path) == 0) {
            ngx_set_errno(NGX_EAGAIN);
        }

        return "unlink()";
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
ngx_rl_state_keep(const char *path, const char *old)
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


/*
 * Syncs the folder of path, which is changed here. Some file systems have
 * nothing to sync in a folder.
 */
static const char *
ngx_rl_state_sync(char *path)
{
    ngx_fd_t   fd;
    ngx_err_t  err;

    fd = open(dirname(path), O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (fd == NGX_INVALID_FILE) {
        return "open() of the folder";
    }

    err = (fsync(fd) == -1 && ngx_errno != NGX_EINVAL) ? ngx_errno : 0;
    (void) close(fd);
    ngx_set_errno(err);

    return err ? "fsync() of the folder" : NULL;
}


const char *
ngx_rl_state_write(const ngx_str_t *file, const ngx_str_t *text, ngx_err_t *err)
{
    ngx_fd_t               fd;
    const char            *step;
    ngx_rl_state_names_t   names;

    fd = NGX_INVALID_FILE;

    if (ngx_rl_state_names(&names, file) == NGX_OK) {
        fd = open(names.tmp, O_WRONLY|O_CREAT|O_NOFOLLOW|O_CLOEXEC, 0600);
    }

    if (fd == NGX_INVALID_FILE) {
        *err = ngx_errno;
        return "open()";
    }

    step = ngx_rl_state_fill(fd, names.tmp, text);

    if (step == NULL
        && (ngx_rl_state_keep(names.path, names.old) != NGX_OK
            || rename(names.tmp, names.path) == -1))
    {
        step = "rename()";
    }

    if (step) {
        *err = ngx_errno;

        if (*err != NGX_EAGAIN) {
            (void) unlink(names.tmp);
        }

    } else {
        step = ngx_rl_state_sync(names.path);
        *err = step ? ngx_errno : 0;
    }

    (void) close(fd);

    return step;
}


/* Supplementary groups are those of the user, as in a worker. */
ngx_int_t
ngx_rl_state_check(const ngx_str_t *file, ngx_uid_t user, ngx_gid_t group,
    const char *username)
{
    int                   n;
    gid_t                 groups[NGX_RL_STATE_GROUPS];
    ngx_err_t             err;
    ngx_rl_state_names_t  names;

    if (ngx_rl_state_names(&names, file) != NGX_OK) {
        return NGX_DECLINED;
    }

    if (geteuid() != 0) {
        return access(dirname(names.path), W_OK|X_OK) == 0 ? NGX_OK
                                                           : NGX_DECLINED;
    }

    n = getgroups(NGX_RL_STATE_GROUPS, groups);

    if (n == -1 || initgroups(username, group) == -1) {
        return NGX_OK;    /* a check is not worth a start that fails */
    }

    err = 0;

    if (setegid(group) == 0 && seteuid(user) == 0
        && faccessat(AT_FDCWD, dirname(names.path), W_OK|X_OK, AT_EACCESS)
           == -1)
    {
        err = ngx_errno;
    }

    if (seteuid(0) == -1 || setegid(0) == -1 || setgroups(n, groups) == -1) {
        return NGX_ERROR;
    }

    ngx_set_errno(err);

    return err ? NGX_DECLINED : NGX_OK;
}
