/*
 * The clock of a test: preloaded into its nginx and Redis, it adds to their
 * time what the test has advanced, or stands still until the test advances it.
 *
 * RATELIMIT_CLOCK names a file of three numbers (t/Clock.pm writes them). This
 * allocates nothing: Redis' allocator asks for the time while it starts.
 *
 * While the file that RATELIMIT_NO_THREADS names exists, no thread can be made.
 * While that of RATELIMIT_THREADS_WAIT exists, new threads wait.
 */

#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000

/* a wait sees an advance after so many milliseconds */
#define SLICE_MS 10

/* nanoseconds; the clock stands still where real is not 0 */
typedef struct {
    volatile int64_t  offset;
    volatile int64_t  real;
    volatile int64_t  monotonic;
} clock_file_t;

static clock_file_t        none;
static const clock_file_t *file = &none;

static char                no_threads[4096], threads_wait[4096];

/* the monotonic time that this thread asked for last */
static _Thread_local int64_t seen;


__attribute__((constructor)) static void clock_open(void)
{
    const char *name = getenv("RATELIMIT_CLOCK");
    const char *none = getenv("RATELIMIT_NO_THREADS");
    const char *wait = getenv("RATELIMIT_THREADS_WAIT");
    void       *p;
    int         fd;

    /* nginx writes over its environment */
    if (none && strlen(none) < sizeof(no_threads)) {
        strcpy(no_threads, none);
    }

    if (wait && strlen(wait) < sizeof(threads_wait)) {
        strcpy(threads_wait, wait);
    }

    fd = name == NULL ? -1 : open(name, O_RDONLY | O_CLOEXEC);
    if (fd == -1) {
        return;
    }

    p = mmap(NULL, sizeof(clock_file_t), PROT_READ, MAP_SHARED, fd, 0);
    if (p != MAP_FAILED) {
        file = p;
    }

    close(fd);
}


static int64_t
clock_ns(clockid_t id)
{
    int64_t         real;
    struct timespec ts;

    real = file->real;

    if (real != 0) {
        return id == CLOCK_REALTIME ? real : file->monotonic;
    }

    syscall(SYS_clock_gettime, id, &ts);

    return (int64_t) ts.tv_sec * SECOND + ts.tv_nsec + file->offset;
}


int
clock_gettime(clockid_t id, struct timespec *ts)
{
    int64_t ns;

    switch (id) {

    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        ns = clock_ns(CLOCK_REALTIME);
        break;

    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME:
        ns = clock_ns(CLOCK_MONOTONIC);
        seen = ns;
        break;

    default:
        return (int) syscall(SYS_clock_gettime, id, ts);
    }

    ts->tv_sec = ns / SECOND;
    ts->tv_nsec = ns % SECOND;

    return 0;
}


int
gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
    int64_t ns = clock_ns(CLOCK_REALTIME);

    (void) zone;

    tv->tv_sec = ns / SECOND;
    tv->tv_usec = ns % SECOND / 1000;

    return 0;
}


time_t
time(time_t *t)
{
    time_t now = (time_t) (clock_ns(CLOCK_REALTIME) / SECOND);

    if (t != NULL) {
        *t = now;
    }

    return now;
}


/*
 * Waits in slices, so that a timer fires as soon as the test has advanced.
 * The process worked the timeout out from the time that it saw: the test may
 * have advanced since.
 */

int
epoll_wait(int fd, struct epoll_event *events, int n, int timeout)
{
    int     got, slice;
    int64_t end, left;

    end = seen + (int64_t) timeout * 1000000;

    for (;; ) {
        slice = timeout;

        if (timeout > 0) {
            left = (end - clock_ns(CLOCK_MONOTONIC) + 999999) / 1000000;
            slice = left < 0 ? 0 : left < SLICE_MS ? (int) left : SLICE_MS;
        }

        got = (int) syscall(SYS_epoll_wait, fd, events, n, slice);

        /* the last look comes when the time is up: the process may have been
         * stopped before that, and events have come meanwhile */

        if (got != 0 || slice <= 0) {
            return got;
        }
    }
}


/* What a thread is to run, once no file holds it. */
typedef struct {
    void *(*run)(void *);
    void   *data;
} clock_thread_t;


static void *
clock_thread(void *data)
{
    clock_thread_t thread = *(clock_thread_t *) data;

    free(data);

    while (access(threads_wait, F_OK) == 0) {
        usleep(1000);
    }

    return thread.run(thread.data);
}


int
pthread_create(pthread_t *thread, const pthread_attr_t *attr,
    void *(*run)(void *), void *data)
{
    int             (*real)(pthread_t *, const pthread_attr_t *,
                            void *(*)(void *), void *);
    clock_thread_t *held;

    if (no_threads[0] && access(no_threads, F_OK) == 0) {
        return EAGAIN;
    }

    *(void **) &real = dlsym(RTLD_NEXT, "pthread_create");

    if (threads_wait[0] && (held = malloc(sizeof(*held))) != NULL) {
        held->run = run;
        held->data = data;
        run = clock_thread;
        data = held;
    }

    return real(thread, attr, run, data);
}
