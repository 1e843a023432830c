/*
 * Two blobs, as the store and the slot map have them. A writer that is killed,
 * and readers beside writers, are in test_store_processes.c.
 */

#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "ngx_rl_blob.h"


static uint64_t
publish(ngx_rl_blob_t *blob, uint64_t version, size_t len)
{
    u_char               bytes[64];
    ngx_rl_blob_entry_t  entry = { .version = version, .len = len };

    memset(bytes, (int) version, sizeof(bytes));

    return ngx_rl_blob_publish(blob, &entry, bytes);
}


/* The length of the newest blob, which must be whole and of that version. */
static size_t
newest(ngx_rl_blob_t *blob, uint64_t version, ngx_rl_blob_entry_t *entry)
{
    u_char  bytes[64];

    assert_int_equal(ngx_rl_blob_find(blob, ngx_rl_blob_newest(blob), entry),
                     1);
    assert_int_equal(entry->version, version);
    assert_int_equal(ngx_rl_blob_copy(blob, entry, bytes), 1);

    for (size_t i = 0; i < entry->len; i++) {
        assert_int_equal(bytes[i], version & 0xff);
    }

    return entry->len;
}


static void
test_two(void **state)
{
    u_char                bytes[64];
    unsigned              n;
    ngx_rl_blob_entry_t   before, entry;

    ngx_rl_blob_t *blob = calloc(1, ngx_rl_blob_size(50));
    assert_non_null(blob);
    ngx_rl_blob_init(blob, 50);

    assert_int_equal(ngx_rl_blob_newest(blob), 0);
    assert_int_equal(ngx_rl_blob_find(blob, 0, &entry), 0);

    assert_int_equal(publish(blob, 1, 51), 0);
    assert_int_equal(ngx_rl_blob_newest(blob), 0);

    assert_int_equal(publish(blob, 1, 50), 1);
    assert_int_equal(newest(blob, 1, &before), 50);

    /* the one before is there until it is overwritten */

    for (n = 2; n < 500; n++) {
        assert_int_equal(publish(blob, n, n % 51), n);
        assert_int_equal(newest(blob, n, &entry), n % 51);
        assert_int_equal(ngx_rl_blob_copy(blob, &before, bytes), 1);
        assert_int_equal(ngx_rl_blob_find(blob, n - 2, &before), 0);
        before = entry;
    }

    /* too large: the newest stays */

    assert_int_equal(publish(blob, n, 51), 0);
    assert_int_equal(newest(blob, n - 1, &entry), (n - 1) % 51);
    free(blob);
}
