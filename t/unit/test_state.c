/*
 * State files, real ones: half, changed, without permission, on a full disk,
 * and of writers that are killed.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ngx_rl_state.h"

#include <dirent.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "nginx_text.h"
#include "process.h"

#define NOBODY  65534

static char         folder[64], path[128], other[128];
static ngx_str_t    file = { 0, (u_char *) path };
static ngx_log_t    log_nowhere = { .log_level = NGX_LOG_NOTICE };
static ngx_pool_t  *pool;


static const char *
name(const char *suffix)
{
    sprintf(other, "%.*s%s", (int) file.len, path, suffix);

    return other;
}


/* what link() fails with, and a rename() of the temporary file */
static int          link_errno, rename_errno;


int
link(const char *from, const char *to)
{
    if (link_errno) {
        errno = link_errno;
        return -1;
    }

    return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}


int
rename(const char *from, const char *to)
{
    if (rename_errno && strstr(from, ".tmp")) {
        errno = rename_errno;
        return -1;
    }

    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}


/* another process is faster: the lock is then on a file of another name */
static int          overtaken;


int
flock(int fd, int how)
{
    if (overtaken) {
        overtaken = 0;
        assert_int_equal(renameat(AT_FDCWD, name(".tmp"), AT_FDCWD, path), 0);
        close(open(name(".tmp"), O_CREAT|O_RDWR, 0600));
    }

    return syscall(SYS_flock, fd, how);
}


static void
use(const char *name)
{
    file.len = sprintf(path, "%s/%s", folder, name);

    /* what is behind a name is not read */
    path[file.len] = 'x';
}


static int
there(const char *suffix)
{
    return access(name(suffix), F_OK) == 0;
}


static void
empty_folder(void)
{
    char            entry[sizeof(folder) + 300];
    struct dirent  *e;

    DIR *dir = opendir(folder);
    assert_non_null(dir);

    while ((e = readdir(dir)) != NULL) {
        if (e->d_name[0] != '.') {
            sprintf(entry, "%s/%s", folder, e->d_name);
            assert_int_equal(remove(entry), 0);
        }
    }

    closedir(dir);
}


static int
setup(void **state)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%.40s/test_state.XXXXXX",
             tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(folder));
    use("state");
    pool = ngx_create_pool(4096, NULL);
    logged = 0;

    return 0;
}


static int
teardown(void **state)
{
    empty_folder();
    assert_int_equal(rmdir(folder), 0);
    ngx_destroy_pool(pool);

    return 0;
}

#define TEST_SETUP     setup
#define TEST_TEARDOWN  teardown


/* A record of a version, in pool, with about so many bytes. */
static ngx_str_t
record(uint64_t version, size_t len)
{
    ngx_rl_record_t r = { 0 };
    r.version = version;
    r.document.len = len + 3;
    r.document.data = ngx_pnalloc(pool, len + 4);
    sprintf((char *) r.document.data, "{%*c}\n", (int) len, 'x');

    assert_int_equal(ngx_rl_record_write(&r, pool), NGX_OK);

    return r.text;
}


/* Those from first down to last. */
static ngx_str_t
records(uint64_t first, uint64_t last, size_t len)
{
    ngx_str_t  text;

    text.len = 0;
    text.data = ngx_pnalloc(pool, (first - last + 1) * (len + 500));

    for (uint64_t v = first; v >= last; v--) {
        ngx_str_t one = record(v, len);
        memcpy(text.data + text.len, one.data, one.len);
        text.len += one.len;
    }

    return text;
}


static void
put(const char *suffix, const u_char *data, size_t len)
{
    FILE *f = fopen(name(suffix), "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}


static ngx_int_t  last_rc;


/* The version of the first record that is read, 0: none. */
static uint64_t
read_test(ngx_uint_t test, size_t *len)
{
    ngx_str_t         text;
    ngx_rl_record_t   r;

    last_rc = ngx_rl_state_read(&file, pool, test, &text, &log_nowhere);
    assert_int_not_equal(last_rc, NGX_ERROR);

    if (len) {
        *len = text.len;
    }

    if (text.len == 0) {
        return 0;
    }

    assert_null(ngx_rl_record_read(&text, pool, &r));

    return r.version;
}


static uint64_t
read_version(void)
{
    return read_test(0, NULL);
}


/* Writes a file; step: which one fails, with that errno. NULL: none. */
static void
write_text(ngx_str_t text, const char *step, ngx_err_t expected)
{
    ngx_err_t err = 77;
    const char *failed = ngx_rl_state_write(&file, &text, &err);
    assert_string_equal(failed ? failed : "", step ? step : "");
    assert_int_equal(err, expected);
}


static void
write_version(uint64_t version)
{
    write_text(record(version, 100), NULL, 0);
}


static void
assert_unreadable(void)
{
    ngx_str_t  text;

    assert_int_equal(ngx_rl_state_read(&file, pool, 0, &text, &log_nowhere),
                     NGX_ERROR);
    assert_int_equal(log_level, NGX_LOG_EMERG);
}


static void
test_write(void **state)
{
    size_t           len;
    ngx_str_t        got;
    ngx_file_info_t  info;

    assert_int_equal(read_version(), 0);
    assert_int_equal(logged, 0);

    ngx_str_t text = records(7, 3, 1000);
    write_text(text, NULL, 0);
    assert_int_equal(ngx_rl_state_read(&file, pool, 0, &got, &log_nowhere),
                     NGX_OK);
    assert_int_equal(got.len, text.len);
    assert_memory_equal(got.data, text.data, text.len);

    assert_int_equal(stat(name(""), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_false(there(".tmp") || there(".old") || there(".corrupt"));

    /* shorter, over what a killed one has left */
    put(".tmp", text.data, text.len);
    assert_int_equal(chmod(name(".tmp"), 0600), 0);
    write_version(8);
    assert_int_equal(read_test(0, &len), 8);
    assert_int_equal(len, record(8, 100).len);
    assert_true(there(".old"));
    assert_false(there(".tmp"));
    write_version(9);
    assert_int_equal(read_version(), 9);

    /* the file before is the old one */
    assert_int_equal(unlink(name("")), 0);
    assert_int_equal(logged, 0);
    assert_int_equal(last_rc, NGX_OK);
    assert_int_equal(read_version(), 8);
    assert_int_equal(last_rc, NGX_DECLINED);
    assert_int_equal(logged, 1);
    assert_int_equal(log_level, NGX_LOG_WARN);
    assert_true(there(".old"));
}


/* A name without a folder, and one in the root. */
static void
test_names(void **state)
{
    char         cwd[NGX_MAX_PATH];
    u_char       long_name[NGX_MAX_PATH];
    ngx_err_t    err;

    assert_non_null(getcwd(cwd, sizeof(cwd)));
    assert_int_equal(chdir(folder), 0);
    file.len = sprintf(path, "s");
    path[1] = 'x';
    write_version(1);
    assert_int_equal(read_version(), 1);
    assert_int_equal(chdir(cwd), 0);

    use("none/state");
    ngx_str_t text = record(1, 1);
    write_text(text, "open()", ENOENT);
    assert_int_equal(read_version(), 0);

    memset(long_name, 'a', sizeof(long_name));
    file.data = long_name;
    file.len = sizeof(long_name) - 4;
    const char *step = ngx_rl_state_write(&file, &text, &err);
    file.data = (u_char *) path;
    assert_string_equal(step, "open()");
    assert_int_equal(err, ENAMETOOLONG);
}


/* A temporary file that others may write to is taken away, not used. */
static void
test_foreign(void **state)
{
    struct stat  st;

    (void) state;

    int fd = open(name(".tmp"), O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC, 0600);
    assert_true(fd != -1);
    assert_int_equal(fchmod(fd, 0666), 0);
    close(fd);

    write_text(record(1, 100), "unlink()", EAGAIN);
    assert_false(there(".tmp"));
    write_version(1);
    assert_int_equal(read_version(), 1);
    assert_int_equal(stat(name(""), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}


/* Cut at each length, and with each byte another one. */
static void
test_damaged(void **state)
{
    size_t  used;

    ngx_str_t text = records(5, 3, 20);
    ngx_str_t first = record(5, 20);
    ngx_str_t old = record(4, 20);
    put(".old", old.data, old.len);

    for (size_t i = 0; i < 2 * text.len; i++) {
        size_t len = text.len;

        if (i < text.len) {
            len = i;

        } else {
            text.data[i - len] ^= 1 << (i % 8);
        }

        put("", text.data, len);
        logged = 0;

        /* a test changes nothing */
        if (i % text.len < first.len) {
            assert_int_equal(read_test(1, &used), 4);
            assert_int_equal(used, old.len);
            assert_true(there(""));
            assert_false(there(".corrupt"));

            assert_int_equal(read_version(), 4);
            assert_false(there(""));
            assert_int_equal(unlink(name(".corrupt")), 0);
            assert_int_equal(logged, 5);

        } else {
            assert_int_equal(read_test(0, &used), 5);
            assert_true(used < text.len && used >= first.len);
            assert_true(there(""));
            assert_int_equal(logged, i != first.len && i != 2 * (first.len));
        }

        if (i >= text.len) {
            text.data[i - len] ^= 1 << (i % 8);
        }
    }

    /* both */
    put("", text.data, first.len - 1);
    put(".old", old.data, old.len - 1);
    assert_int_equal(read_test(0, &used), 0);
    assert_int_equal(used, 0);
    assert_true(there(".corrupt") && there(".old"));

    /* from now on there is a good one again */
    write_version(6);
    assert_int_equal(read_version(), 6);
}


static void
test_unreadable(void **state)
{
    assert_int_equal(mkdir(name(""), 0700), 0);
    assert_unreadable();
    assert_true(there(""));

    assert_int_equal(rmdir(name("")), 0);

    assert_int_equal(mkfifo(name(""), 0700), 0);
    assert_unreadable();
    assert_int_equal(unlink(name("")), 0);

    write_version(1);
    logged = 0;

    for (int i = 0; i < 2; i++) {
        allocations = i;
        assert_unreadable();
    }

    allocations = -1;
    assert_true(there(""));
    assert_int_equal(read_version(), 1);
}


/* As somebody else where the test is root's. */
static void
test_permission(void **state)
{
    ngx_err_t  err;

    write_version(1);
    ngx_str_t text = record(2, 10);
    assert_int_equal(chmod(folder, 0555), 0);

    pid_t pid = spawn();

    if (pid == 0) {
        int root = (getuid() == 0);

        if (root && setresuid(NOBODY, NOBODY, NOBODY) == -1) {
            _exit(1);
        }

        if (ngx_rl_state_write(&file, &text, &err) == NULL || err != EACCES) {
            _exit(2);
        }

        if (root
            && ngx_rl_state_read(&file, pool, 0, &text, &log_nowhere)
               != NGX_ERROR)
        {
            _exit(3);
        }

        _exit(0);
    }

    reap(pid, 0);
    assert_int_equal(chmod(folder, 0700), 0);
    assert_int_equal(read_version(), 1);
}


/* No more than some bytes go into a file: on each byte of them. */
static void
test_full(void **state)
{
    struct rlimit  limit;

    write_version(1);
    write_version(2);
    ngx_str_t text = record(3, 100);

    pid_t pid = spawn();

    if (pid == 0) {
        signal(SIGXFSZ, SIG_IGN);

        for (size_t i = 0; i <= text.len; i++) {
            limit.rlim_cur = i;
            limit.rlim_max = RLIM_INFINITY;

            if (setrlimit(RLIMIT_FSIZE, &limit) == -1) {
                _exit(1);
            }

            ngx_err_t err = 0;
            const char *step = ngx_rl_state_write(&file, &text, &err);

            if (i == text.len) {
                _exit(step == NULL ? 0 : 2);
            }

            if (step == NULL || strcmp(step, "write()") != 0 || err != EFBIG
                || there(".tmp") || read_version() != 2)
            {
                _exit(3);
            }
        }
    }

    reap(pid, 0);
    assert_int_equal(read_version(), 3);
    assert_int_equal(unlink(name("")), 0);
    assert_int_equal(read_version(), 2);
}


/* Where the last rename fails, the file is where it was. */
static void
test_rename(void **state)
{
    write_version(1);
    ngx_str_t text = record(2, 10);
    assert_int_equal(mkdir(name(".old"), 0700), 0);
    write_text(text, "rename()", EISDIR);
    assert_false(there(".tmp"));
    assert_int_equal(read_version(), 1);
    assert_int_equal(rmdir(name(".old")), 0);

    /* where a second name is not allowed, it is the only one for a moment */
    link_errno = EPERM;
    write_text(text, NULL, 0);
    assert_int_equal(read_version(), 2);
    assert_int_equal(unlink(name("")), 0);
    assert_int_equal(read_version(), 1);

    /* there is no file, only the old one */
    for (rename_errno = EIO; link_errno >= 0; link_errno -= EPERM) {
        write_text(text, "rename()", EIO);
        assert_int_equal(read_version(), 1);
    }

    rename_errno = 0;
    link_errno = EPERM;
    write_version(1);

    /* then the old one is all there is, until the next one is written */
    rename_errno = EIO;
    write_text(text, "rename()", EIO);
    assert_false(there(""));
    assert_int_equal(read_version(), 1);
    link_errno = 0;
    rename_errno = 0;
    write_version(1);
    logged = 0;

    rename_errno = EIO;
    write_text(text, "rename()", EIO);
    assert_int_equal(read_version(), 1);
    assert_int_equal(logged, 0);
    rename_errno = 0;

    /* not even a link is followed to somewhere else */
    assert_int_equal(symlink("elsewhere", name(".tmp")), 0);
    write_text(text, "open()", ELOOP);
    assert_int_equal(unlink(name(".tmp")), 0);
    assert_int_equal(read_version(), 1);
}


/* Another one is writing, and does not end. */
static void
test_locked(void **state)
{
    write_version(1);
    ngx_str_t text = record(2, 10);

    int fd = open(name(".tmp"), O_CREAT|O_RDWR, 0600);
    assert_int_not_equal(fd, -1);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(write(fd, "abc", 3), 3);

    write_text(text, "flock()", EAGAIN);
    assert_int_equal(lseek(fd, 0, SEEK_END), 3);
    assert_true(there(".tmp"));
    assert_int_equal(read_version(), 1);

    close(fd);
    write_version(3);
    assert_int_equal(read_version(), 3);

    /* what has become the file is not written to any more */
    fd = open(name(".tmp"), O_CREAT|O_RDWR, 0600);
    text = record(4, 10);
    assert_int_equal(write(fd, text.data, text.len), (ssize_t) text.len);
    assert_int_equal(ftruncate(fd, text.len), 0);
    close(fd);

    path[file.len] = '\0';
    overtaken = 1;
    text = record(5, 500);
    write_text(text, "flock()", EAGAIN);
    assert_false(overtaken);
    assert_true(there(".tmp"));
    assert_int_equal(read_version(), 4);
    write_version(5);
    assert_int_equal(read_version(), 5);
    assert_int_equal(unlink(name("")), 0);
    assert_int_equal(read_version(), 4);
}


/* A writer that writes one version after the other, and is killed. */
static void
writers_killed(int no_links)
{
    enum { KILLS = 300 };

    int        i, olds, written[2];
    char       c;
    pid_t      pid;
    uint64_t   v, last;
    ngx_err_t  err;
    ngx_str_t  text;

    last = 0;
    olds = 0;
    link_errno = no_links ? EPERM : 0;

    for (i = 0; i < KILLS; i++) {
        assert_int_equal(pipe(written), 0);
        pid = spawn();

        if (pid == 0) {
            for (v = last + 1; /* until killed */ ; v++) {
                text = record(v, 20000 + v % 7);

                if (ngx_rl_state_write(&file, &text, &err) != NULL
                    || write(written[1], "x", 1) != 1)
                {
                    _exit(1);
                }
            }
        }

        /* some come to their second one, on any disk */
        if (i % 4 == 0) {
            assert_int_equal(read(written[0], &c, 1), 1);
        }

        usleep((unsigned) (i * 7919) % 9000);
        kill(pid, SIGKILL);
        reap(pid, SIGKILL);
        close(written[0]);
        close(written[1]);

        olds += last && !there("");
        v = read_version();
        assert_true(v >= last);
        assert_false(there(".corrupt"));
        last = v;
    }

    print_message("%d kills at version %d, %d between two renames\n", KILLS,
                  (int) last, olds);
    assert_true(last >= KILLS / 4);
    assert_true(link_errno || olds == 0);
    link_errno = 0;
}


static void
test_killed(void **state)
{
    writers_killed(0);
}


static void
test_killed_renames(void **state)
{
    writers_killed(1);
}


/* Two nginx while one is replaced: never is one's file what the other wrote. */
static void
test_two_writers(void **state)
{
    enum { ROUNDS = 150 };

    int        i;
    pid_t      pid[2];
    uint64_t   v;
    ngx_err_t  err;
    ngx_str_t  text[2];

    text[0] = record(1, 50000);
    text[1] = record(2, 90000);
    write_version(1);

    for (i = 0; i < ROUNDS; i++) {
        if (i > 1) {
            kill(pid[i % 2], SIGKILL);
            reap(pid[i % 2], SIGKILL);
        }

        pid[i % 2] = spawn();

        if (pid[i % 2] == 0) {
            for ( ;; ) {
                if (ngx_rl_state_write(&file, &text[i % 2], &err)
                    && err != EAGAIN)
                {
                    _exit(1);
                }
            }
        }

        usleep((unsigned) (i * 7919) % 20000);

        v = read_version();
        assert_true(v == 1 || v == 2);
        assert_false(there(".corrupt"));
    }

    kill(pid[0], SIGKILL);
    reap(pid[0], SIGKILL);
    kill(pid[1], SIGKILL);
    reap(pid[1], SIGKILL);
    v = read_version();
    assert_true(v == 1 || v == 2);
    assert_false(there(".corrupt"));
}
