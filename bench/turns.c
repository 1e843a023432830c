/*
 * How long the turns of an event loop are, in time of the processor, so that a
 * busy machine does not matter: preloaded into nginx, writes those above 1 ms
 * to the file that TURNS names. rules-swap.pl reads it.
 */

#define _GNU_SOURCE

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

static int (*next)(int epfd, struct epoll_event *events, int n, int timeout);
static int file = -1;
static double begin;

static double
used_ms(void)
{
    struct timespec  now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);

    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

int
epoll_wait(int epfd, struct epoll_event *events, int n, int timeout)
{
    int          rc;
    double       ms;
    const char  *name;

    if (next == NULL) {
        next = (int (*)(int, struct epoll_event *, int, int))
                   dlsym(RTLD_NEXT, "epoll_wait");
        name = getenv("TURNS");
        file = name ? open(name, O_WRONLY|O_APPEND|O_CREAT, 0666) : -1;
        begin = used_ms();
    }

    ms = used_ms() - begin;

    if (file != -1 && ms > 1) {
        dprintf(file, "%.1f\n", ms);
    }

    rc = next(epfd, events, n, timeout);
    begin = used_ms();

    return rc;
}
