/*
 * The ring of records: what is read is whole and has its number, whatever
 * instruction a writer dies at, and beside writers that are killed at random.
 */

#include "unit.h"

#include <ngx_config.h>
#include <ngx_core.h>

#include <sys/mman.h>

#include "ngx_rl_watch.h"
#include "nginx.h"
#include "process.h"

#define SLOTS      8
#define WORDS      40
#define MAX_STEPS  20000

typedef struct {
    uint64_t  words[WORDS];    /* all the same */
} record_t;


static ngx_rl_ring_t *
ring_make(void)
{
    ngx_rl_ring_t  *ring;

    ring = mmap(NULL, ngx_rl_ring_size(SLOTS, sizeof(record_t)),
                PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(ring, MAP_FAILED);
    ngx_rl_ring_init(ring, SLOTS, sizeof(record_t));

    return ring;
}


static void
ring_free(ngx_rl_ring_t *ring)
{
    assert_int_equal(munmap(ring, ngx_rl_ring_size(SLOTS, sizeof(record_t))),
                     0);
}


static void
put(ngx_rl_ring_t *ring, uint64_t value)
{
    record_t  record;

    for (size_t i = 0; i < WORDS; i++) {
        record.words[i] = value;
    }

    ngx_rl_ring_write(ring, &record);
}


/* The value of that record, which is whole; 0: there is none. */
static uint64_t
get(ngx_rl_ring_t *ring, uint64_t number)
{
    record_t  record;

    if (!ngx_rl_ring_read(ring, number, &record)) {
        return 0;
    }

    for (size_t i = 1; i < WORDS; i++) {
        assert_int_equal(record.words[i], record.words[0]);
    }

    return record.words[0];
}


static void
test_last(void **state)
{
    ngx_rl_ring_t *ring = ring_make();

    assert_int_equal(ngx_rl_ring_newest(ring), 0);
    assert_int_equal(get(ring, 1), 0);

    for (uint64_t i = 1; i <= 3 * SLOTS; i++) {
        put(ring, 100 + i);
        assert_int_equal(ngx_rl_ring_newest(ring), i);
        assert_int_equal(get(ring, i), 100 + i);
        assert_int_equal(get(ring, i + 1), 0);
    }

    for (uint64_t i = 1; i <= 3 * SLOTS; i++) {
        assert_int_equal(get(ring, i), i > 2 * SLOTS ? 100 + i : 0);
    }

    ring_free(ring);
}


static int
step(ngx_rl_ring_t *ring, int kill_at)
{
    pid_t pid = spawn();

    if (pid == 0) {
        step_begin();
        put(ring, 7);
        step_end();
    }

    return step_kill(pid, kill_at, NULL, NULL);
}


/* The record is missing or whole, and its slot is written a round later. */
static void
test_every_instruction(void **state)
{
    int  i, missing, whole;

    ngx_rl_ring_t *ring = ring_make();
    int steps = step(ring, MAX_STEPS);
    assert_in_range(steps, 20, MAX_STEPS - 1);
    missing = whole = 0;

    int stride = step_choose(steps, &i);

    for ( /* void */ ; i < steps; i += stride) {
        uint64_t newest = ngx_rl_ring_newest(ring);
        step(ring, i);

        uint64_t n = ngx_rl_ring_newest(ring);
        assert_in_range(n, newest, newest + 1);

        if (n > newest && get(ring, n) == 7) {
            whole++;

        } else {
            missing++;
        }

        for (n = 1; n <= SLOTS; n++) {
            put(ring, i + 1000);
        }

        newest = ngx_rl_ring_newest(ring);

        for (n = 0; n < SLOTS; n++) {
            assert_int_equal(get(ring, newest - n), i + 1000);
        }
    }

    print_message("%d deaths: %d missing, %d whole\n", missing + whole,
                  missing, whole);
    assert_true(missing > full_or(20, 5));
    ring_free(ring);
}


typedef struct {
    ngx_rl_ring_t  *ring;
    uint64_t        old;     /* record that the child overwrites */
    int             wait;    /* so many instructions of that */
} overtaken_t;


static void
overtake(void *data)
{
    overtaken_t *child = data;

    if (get(child->ring, child->old) == 0 && child->wait-- == 0) {
        for (int i = 0; i < SLOTS; i++) {
            put(child->ring, 8);
        }
    }
}


/* How many of these instructions are left when the child is through. */
static int
overtaken(overtaken_t *child, int wait)
{
    for (int i = 0; i < SLOTS; i++) {
        put(child->ring, 9);
    }

    child->old = ngx_rl_ring_newest(child->ring) + 1 - SLOTS;
    child->wait = wait;
    pid_t pid = spawn();

    if (pid == 0) {
        step_begin();
        put(child->ring, 7);
        step_end();
    }

    step_kill(pid, MAX_STEPS, overtake, child);

    return child->wait;
}


/*
 * A writer stands still amid its record while another goes round, at ten of its
 * instructions: what is in the slot then is of one of them.
 */
static void
test_overtaken(void **state)
{
    overtaken_t  child;

    child.ring = ring_make();
    int amid = MAX_STEPS - overtaken(&child, MAX_STEPS);
    assert_in_range(amid, 5, MAX_STEPS - 1);

    for (int at = 0; at < amid; at += 1 + amid / 10) {
        uint64_t newest = ngx_rl_ring_newest(child.ring) + SLOTS;
        assert_true(overtaken(&child, at) < 0);

        uint64_t value = get(child.ring, newest + 1);
        assert_true(value == 0 || value == 7);
        value = get(child.ring, newest + 1 + SLOTS);
        assert_true(value == 0 || value == 8);

        for (int i = 2; i <= SLOTS; i++) {
            assert_int_equal(get(child.ring, newest + i), 8);
        }
    }

    print_message("overtaken amid %d instructions\n", amid);
    ring_free(child.ring);
}


static void
test_crashes(void **state)
{
    enum { WRITERS = 3 };

    int                    i, kills;
    pid_t                  pid[WRITERS];
    uint64_t               newest, value, n, read;
    ngx_rl_ring_t  *ring;

    ring = ring_make();
    memset(pid, 0, sizeof(pid));
    kills = full_or(400, 60);
    read = 0;

    for (i = 0; i < kills; i++) {
        if (pid[i % WRITERS]) {
            kill(pid[i % WRITERS], SIGKILL);
            reap(pid[i % WRITERS], SIGKILL);
        }

        pid[i % WRITERS] = spawn();

        if (pid[i % WRITERS] == 0) {
            for (value = 1; /* until killed */ ; value++) {
                put(ring, value);
            }
        }

        for (n = 0; n < 2000; n++) {
            newest = ngx_rl_ring_newest(ring);
            read += newest && get(ring, newest - n % ngx_min(newest, SLOTS));
        }
    }

    for (i = 0; i < WRITERS; i++) {
        kill(pid[i], SIGKILL);
        reap(pid[i], SIGKILL);
    }

    for (i = 0; i < 2 * SLOTS; i++) {
        put(ring, 5);
    }

    newest = ngx_rl_ring_newest(ring);

    for (n = 0; n < SLOTS; n++) {
        assert_int_equal(get(ring, newest - n), 5);
    }

    print_message("%u records read beside %d deaths\n", (unsigned) read, kills);
    assert_true(read > 0);
    ring_free(ring);
}


/* Numbers of the caller: one has its first writer, and others are left out. */
static void
test_numbered(void **state)
{
    record_t  record;

    ngx_rl_ring_t *ring = ring_make();
    assert_int_equal(get(ring, 0), 0);
    assert_int_equal(ngx_rl_ring_read(ring, 0, &record), 0);

    for (uint64_t value = 70; value < 72; value++) {
        memset(&record, 0, sizeof(record_t));
        memset(record.words, (int) value, sizeof(record.words));
        ngx_rl_ring_put(ring, 100, &record);
    }

    memset(record.words, 9, sizeof(record.words));
    ngx_rl_ring_put(ring, 103, &record);

    assert_int_equal(get(ring, 100), 0x4646464646464646);
    assert_int_equal(get(ring, 101), 0);
    assert_int_equal(get(ring, 103), 0x0909090909090909);
    ngx_rl_ring_put(ring, 100 + SLOTS, &record);
    assert_int_equal(get(ring, 100), 0);
    ngx_rl_ring_put(ring, 100, &record);
    assert_int_equal(get(ring, 100), 0);
    assert_int_equal(get(ring, 100 + SLOTS), 0x0909090909090909);

    ring_free(ring);
}
