/*
 * Counts of workers: the rows of rules, and what becomes of counts when workers
 * and rules come and go.
 */

#include "process.h"

#include <time.h>

#include "ngx_rl_counts.h"

#define HOUR  3600

static ngx_rl_counts_t  *counts;
static time_t                   clock_s = 100000;
static int                      clock_calls;


/* Their clock is the test's. */
int
clock_gettime(clockid_t id, struct timespec *ts)
{
    ts->tv_sec = clock_s;
    ts->tv_nsec = 0;
    clock_calls++;

    return 0;
}


static void
begin(void)
{
    counts = mmap(NULL, ngx_rl_counts_size(), PROT_READ|PROT_WRITE,
                  MAP_SHARED|MAP_ANONYMOUS|MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(counts, MAP_FAILED);

    if (ngx_rl_life == NGX_RL_LIFE_NONE) {
        live();
    }

    ngx_rl_counts_init(counts);
    ngx_rl_counts_begin(counts);
}


static void
end(void)
{
    ngx_rl_counts_end();
    assert_int_equal(munmap(counts, ngx_rl_counts_size()), 0);
}


static uint32_t
use(ngx_rl_counts_kind_e kind, const char *zone, const char *rule)
{
    ngx_str_t  of, name;

    of.data = (u_char *) zone;
    of.len = strlen(zone);
    name.data = (u_char *) rule;
    name.len = strlen(rule);

    return ngx_rl_counts_use(kind, &of, &name, 0);
}


/* The sum of a word of the row of that name; -1: it is not shown. */
static int64_t
sum(const char *zone, const char *rule, ngx_uint_t word)
{
    ngx_rl_counts_row_t  row;

    uint32_t at = 0;
    int64_t n = -1;

    while (ngx_rl_counts_next(&at, NULL, &row) == NGX_OK) {
        if (row.kind == NGX_RL_COUNTS_RULE
            && row.zone.len == strlen(zone) && row.rule.len == strlen(rule)
            && memcmp(row.zone.data, zone, row.zone.len) == 0
            && memcmp(row.rule.data, rule, row.rule.len) == 0)
        {
            assert_int_equal(n, -1);
            n = (int64_t) row.words[word];
        }
    }

    return n;
}


/* A worker that counts n in a rule of a zone, and ends or is killed. */
static void
worker(const char *rule, int n, int killed)
{
    pid_t pid = spawn();

    if (pid == 0) {
        ngx_rl_counts_begin(counts);
        uint32_t row = use(NGX_RL_COUNTS_RULE, "z", rule);

        while (n--) {
            ngx_rl_count(row, 1, 1);
        }

        if (!killed) {
            ngx_rl_counts_end();
        }

        _exit(0);
    }

    assert_int_equal(waitpid(pid, NULL, 0), pid);
}


static void
test_names(void **state)
{
    u_char      text[NGX_RL_COUNTS_NAME + 1];
    ngx_str_t   name, none = ngx_string("");

    assert_int_equal(use(NGX_RL_COUNTS_RULE, "early", "r"), 0);

    begin();

    uint32_t a = use(NGX_RL_COUNTS_RULE, "z", "a");
    uint32_t b = use(NGX_RL_COUNTS_RULE, "z", "b");

    assert_int_not_equal(a, b);
    assert_int_equal(use(NGX_RL_COUNTS_RULE, "z", "a"), a);
    assert_int_not_equal(use(NGX_RL_COUNTS_RULE, "za", ""), a);
    assert_int_not_equal(use(NGX_RL_COUNTS_WAIT, "z", "a"), a);

    ngx_rl_count(a, 3, 5);
    assert_int_equal(sum("z", "a", 3), 5);
    assert_int_equal(sum("z", "b", 3), 0);
    assert_int_equal(sum("z", "c", 3), -1);

    /* names that are too long count with all others of their kind */

    memset(text, 'x', sizeof(text));
    name.data = text;
    name.len = sizeof(text);

    for (ngx_uint_t kind = 0; kind < NGX_RL_COUNTS_KINDS; kind++) {
        assert_int_equal(ngx_rl_counts_use(kind, &name, &none, 0),
                         ngx_rl_counts_others(kind));
        assert_int_equal(ngx_rl_counts_use(kind, &none, &name, 0),
                         ngx_rl_counts_others(kind));
    }

    ngx_rl_count(0, 3, 7);
    ngx_rl_counts_release(0);
    assert_int_equal(sum("", "", 3), 7);

    end();
}


static void
test_workers(void **state)
{
    begin();

    for (int i = 0; i < 20; i++) {
        worker("r", 100, i % 2);
        assert_int_equal(sum("z", "r", 1), 100 * (i + 1));
    }

    /* more workers at once than blocks */

    pid_t  pid[NGX_RL_COUNTS_BLOCKS + 20];
    int    go[2];
    char   c;

    assert_int_equal(pipe(go), 0);

    for (int i = 0; i < NGX_RL_COUNTS_BLOCKS + 20; i++) {
        pid[i] = spawn();

        if (pid[i] == 0) {
            close(go[1]);
            ngx_rl_counts_begin(counts);
            uint32_t  row = use(NGX_RL_COUNTS_RULE, "z", "many");

            (void) read(go[0], &c, 1);

            for (i = 0; i < 10000; i++) {
                ngx_rl_count(row, 1, 1);
            }

            _exit(0);
        }
    }

    close(go[0]);
    close(go[1]);

    for (int i = 0; i < NGX_RL_COUNTS_BLOCKS + 20; i++) {
        assert_int_equal(waitpid(pid[i], NULL, 0), pid[i]);
    }

    assert_int_equal(sum("z", "many", 1), 10000 * (NGX_RL_COUNTS_BLOCKS + 20));
    end();
}


/* A row is shown while it is used, and an hour longer. */
static void
test_ended(void **state)
{
    begin();

    uint32_t row = use(NGX_RL_COUNTS_RULE, "z", "used");
    ngx_rl_count(row, 1, 1);
    (void) use(NGX_RL_COUNTS_RULE, "z", "used");
    worker("ended", 5, 0);
    worker("killed", 6, 1);

    clock_s += HOUR - 1;
    assert_int_equal(sum("z", "ended", 1), 5);
    ngx_rl_counts_release(row);

    clock_s += 1;
    assert_int_equal(sum("z", "used", 1), 1);
    assert_int_equal(sum("z", "ended", 1), -1);
    assert_int_equal(sum("z", "killed", 1), 6);

    /* the next worker in its place ends what it has used */

    worker("next", 1, 0);
    assert_int_equal(sum("z", "killed", 1), -1);

    /* it comes again, with its counts */

    worker("ended", 2, 0);
    assert_int_equal(sum("z", "ended", 1), 7);

    ngx_rl_counts_release(row);
    clock_s += HOUR;
    assert_int_equal(sum("z", "used", 1), -1);

    end();
}


static void
test_full(void **state)
{
    char      name[16];

    begin();

    worker("ended", 5, 0);
    uint32_t first = 0;

    for (uint32_t i = NGX_RL_COUNTS_KINDS + 1; i < NGX_RL_COUNTS_ROWS; i++) {
        sprintf(name, "%u", i);
        uint32_t row = use(NGX_RL_COUNTS_RULE, "z", name);
        assert_true(row >= NGX_RL_COUNTS_KINDS);
        first = (i == NGX_RL_COUNTS_KINDS + 1) ? row : first;
    }

    assert_int_equal(use(NGX_RL_COUNTS_RULE, "z", "more"), 0);

    /* the next ones are not searched for, which reads the clock for each row */

    clock_calls = 0;
    assert_int_equal(use(NGX_RL_COUNTS_WAIT, "z", "more"),
                     ngx_rl_counts_others(NGX_RL_COUNTS_WAIT));
    assert_in_range(clock_calls, 0, 10);
    assert_int_equal(use(NGX_RL_COUNTS_RULE, "z", "5"), first);

    /* an ended one's place, with none of its counts */

    clock_s += HOUR;
    uint32_t row = use(NGX_RL_COUNTS_RULE, "z", "more");
    assert_int_not_equal(row, 0);
    assert_int_equal(sum("z", "more", 1), 0);
    assert_int_equal(sum("z", "ended", 1), -1);
    assert_int_equal(use(NGX_RL_COUNTS_RULE, "z", "another"), 0);

    end();
}


static void
test_times(void **state)
{
    begin();

    uint32_t row = use(NGX_RL_COUNTS_RULE, "z", "times");

    ngx_rl_counts_time(row, 0);
    ngx_rl_counts_time(row, 100);
    ngx_rl_counts_time(row, 101);
    ngx_rl_counts_time(row, 10000000);
    ngx_rl_counts_time(row, 10000001);

    assert_int_equal(sum("z", "times", 0), 2);
    assert_int_equal(sum("z", "times", 1), 1);
    assert_int_equal(sum("z", "times", NGX_RL_HISTOGRAM_BOUNDS - 1), 1);
    assert_int_equal(sum("z", "times", NGX_RL_HISTOGRAM_BOUNDS), 1);
    assert_int_equal(sum("z", "times", NGX_RL_HISTOGRAM_SUM), 20000202);

    end();
}
