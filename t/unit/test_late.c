/*
 * Calls whose reply comes behind their deadline: what their handlers are told,
 * how often, and what keeps a worker from exiting. The connection swallows what
 * is written to it; its replies are fed here.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ngx_rl_redis_client.h"

#define TIMEOUT_MS  100
#define GOOD        "*4\r\n:1\r\n:9\r\n:36\r\n:0\r\n"
#define LOADED      "$4\r\nabcd\r\n"

volatile ngx_msec_t    ngx_current_msec;
volatile ngx_time_t   *ngx_cached_time;
ngx_rbtree_t           ngx_event_timer_rbtree;
ngx_queue_t            ngx_posted_events, ngx_posted_next_events;
ngx_uint_t             ngx_exiting;

/* with more workers than blocks, some share one */
ngx_uint_t             ngx_worker = NGX_RL_REDIS_WORKERS + 3;

static ngx_time_t                     wall;
static u_char                         io[NGX_RL_REDIS_IO_BYTES];
static ngx_rl_redis_shared_t   shared;
static ngx_rl_redis_t          redis;
static ngx_rl_redis_client_t   client;
static ngx_rl_redis_node_t     node;
static ngx_connection_t               connection;
static ngx_event_t                    wev;
static ngx_log_t                      log_nowhere;
static size_t                         room;    /* in the socket */

/* what the handler was told, and what it does then */
static ngx_uint_t                     told;
static ngx_rl_redis_result_t   last;
static int64_t                        value;
static ngx_rl_redis_call_t    *forgotten;


/* nginx */

void *
ngx_alloc(size_t size, ngx_log_t *log)
{
    return malloc(size);
}


static ssize_t
swallow(ngx_connection_t *c, u_char *buf, size_t size)
{
    c->write->ready = (size <= room);

    return (ssize_t) ngx_min(size, room);
}


/* the files beside those under test */

#define STUB(name, ...)  void name(__VA_ARGS__) { }
#define STUB_OF(type, value, name, ...)                                       \
    type name(__VA_ARGS__) { return value; }

STUB(ngx_rbtree_insert, ngx_rbtree_t *tree, ngx_rbtree_node_t *node)
STUB(ngx_rbtree_delete, ngx_rbtree_t *tree, ngx_rbtree_node_t *node)
STUB(ngx_log_error_core, ngx_uint_t level, ngx_log_t *log, ngx_err_t err,
     const char *text, ...)
STUB(ngx_rl_redis_log, ngx_rl_redis_client_t *c, ngx_rl_log_limit_t *limit,
     ngx_msec_t interval_ms, ngx_uint_t level, ngx_err_t err, const char *fmt,
     ...)
STUB(ngx_rl_redis_node_log_reply, ngx_rl_redis_node_t *n,
     const char *command)
STUB(ngx_rl_redis_node_known, ngx_rl_redis_node_t *n)
STUB(ngx_explicit_memzero, void *buf, size_t n)
STUB(ngx_rl_redis_auth_renew, ngx_rl_redis_node_t *n)
STUB(ngx_rl_redis_conn_begin, ngx_rl_redis_conn_t *c)
STUB(ngx_rl_redis_conn_recovered, ngx_rl_redis_conn_t *c)
STUB(ngx_rl_redis_conn_retry, ngx_rl_redis_conn_t *c)
STUB(ngx_rl_redis_slot_set, ngx_rl_redis_client_t *c,
     ngx_uint_t slot, ngx_rl_redis_node_t *to)
STUB(ngx_rl_redis_refresh, ngx_rl_redis_client_t *c)
STUB(ngx_rl_redis_topology_look, ngx_rl_redis_client_t *c)
STUB(ngx_rl_redis_topology_tick, ngx_rl_redis_client_t *c)
STUB(ngx_rl_redis_topology_wait, ngx_rl_redis_client_t *c)
STUB(ngx_rl_redis_topology_reply, ngx_rl_redis_node_t *n,
     ngx_uint_t current)
STUB(ngx_rl_redis_control_heard, ngx_rl_redis_node_t *n,
     ngx_rl_redis_call_t *call)
STUB_OF(u_char *, buf, ngx_snprintf, u_char *buf, size_t max, const char *text,
        ...)
STUB_OF(ngx_int_t, strncasecmp((char *) a, (char *) b, n), ngx_strncasecmp,
        u_char *a, u_char *b, size_t n)
STUB_OF(ngx_int_t, NGX_OK, ngx_handle_read_event, ngx_event_t *rev,
        ngx_uint_t flags)
STUB_OF(ngx_int_t, NGX_OK, ngx_handle_write_event, ngx_event_t *ev,
        size_t lowat)
STUB_OF(ngx_int_t, NGX_OK, ngx_rl_redis_conn_connected,
        ngx_rl_redis_conn_t *c)
STUB_OF(ngx_str_t, ngx_rl_redis_error_word(&n->reply),
        ngx_rl_redis_node_error, ngx_rl_redis_node_t *n,
        u_char buf[NGX_RL_REDIS_ERROR_TEXT])
STUB_OF(const char *, otherwise, ngx_rl_redis_tls_reason,
        ngx_rl_redis_conn_t *c, const char *otherwise)


void
ngx_rl_redis_session_load(ngx_rl_redis_node_t *n)
{
    static const ngx_str_t  load = ngx_string("LOAD");

    n->loading = (ngx_rl_redis_command(n, NGX_RL_REDIS_LOAD, &load, 1) != NULL);
}


/* What breaking a connection means for its calls. */
void
ngx_rl_redis_conn_break(ngx_rl_redis_conn_t *c, ngx_err_t err,
    const char *reason)
{
    ngx_rl_redis_call_t  *call;

    while (!ngx_queue_empty(&c->requests)) {
        call = ngx_rl_redis_call_of(ngx_queue_head(&c->requests));
        ngx_uint_t written = call->request.written;

        ngx_rl_redis_call_remove(call);
        ngx_rl_redis_call_fail(call,
                               written
                                          ? NGX_RL_REDIS_LOST
                                          : NGX_RL_REDIS_UNREACHABLE);
    }
}


ngx_rl_redis_request_t *
ngx_rl_redis_conn_head(ngx_rl_redis_conn_t *c)
{
    if (ngx_queue_empty(&c->requests)) {
        return NULL;
    }

    return ngx_queue_data(ngx_queue_head(&c->requests),
                          ngx_rl_redis_request_t, queue);
}


/* Redirections lead back to where they come from. */
ngx_rl_redis_node_t *
ngx_rl_redis_redirect(ngx_rl_redis_node_t *n, ngx_uint_t *slot)
{
    *slot = 0;

    return n;
}


/* helpers */

static int
setup(void **state)
{
    ngx_cached_time = &wall;
    ngx_current_msec = 1000;
    ngx_queue_init(&ngx_posted_events);
    ngx_queue_init(&ngx_posted_next_events);

    memset(&shared, 0, sizeof(shared));
    memset(&redis, 0, sizeof(redis));
    memset(&client, 0, sizeof(client));
    memset(&node, 0, sizeof(node));
    memset(&last, 0, sizeof(last));
    told = 0;
    room = SIZE_MAX;
    forgotten = NULL;

    redis.mode = NGX_RL_REDIS_CLUSTER;
    redis.shared = &shared;
    redis.client = &client;

    client.redis = &redis;
    client.net.io = io;
    ngx_queue_init(&client.nodes);
    ngx_queue_init(&client.deadlines);
    ngx_queue_init(&client.done);
    ngx_queue_init(&client.again);
    ngx_queue_init(&client.unmapped);
    ngx_queue_init(&client.free);
    client.log = &log_nowhere;
    client.timeout = TIMEOUT_MS;
    client.deadline.log = &log_nowhere;
    client.done_event.log = &log_nowhere;
    node.conn.timer.log = &log_nowhere;
    node.conn.flush.log = &log_nowhere;
    client.again_timer.log = &log_nowhere;

    client.deadline.data = &client;
    client.deadline.cancelable = 1;
    client.again_timer.data = &client;
    client.done_event.data = &client;
    client.expire_event.data = &client;
    client.expire_event.log = &log_nowhere;

    wev.ready = 1;
    connection.write = &wev;
    connection.send = swallow;

    node.client = &client;
    node.conn.data = &node;
    node.conn.net = &client.net;
    node.conn.state = NGX_RL_REDIS_UP;
    node.conn.connection = &connection;
    ngx_queue_init(&node.conn.requests);
    node.conn.next = &node.conn.requests;
    ngx_queue_insert_tail(&client.nodes, &node.queue);
    node.reader = ngx_rl_redis_reader_new(&node.reply);

    return node.reader == NULL;
}


static int
teardown(void **state)
{
    assert_true(ngx_queue_empty(&client.deadlines));
    assert_true(ngx_queue_empty(&client.done));
    assert_int_equal(client.waiting, 0);

    while (!ngx_queue_empty(&client.free)) {
        ngx_queue_t *q = ngx_queue_head(&client.free);
        ngx_queue_remove(q);
        free(ngx_rl_redis_call_of(q));
    }

    ngx_rl_redis_reader_free(node.reader, &node.reply);

    return 0;
}

#define TEST_SETUP     setup
#define TEST_TEARDOWN  teardown


static void
handler(void *data, const ngx_rl_redis_result_t *result)
{
    assert_ptr_equal(data, &told);

    told++;
    last = *result;
    value = result->n ? result->values[1] : -1;

    if (forgotten) {
        ngx_rl_redis_forget(forgotten);
    }
}


static ngx_rl_redis_call_t *
call_make(ngx_uint_t late)
{
    ngx_rl_redis_call_t  *call;

    call = ngx_rl_redis_call_new(&client, NGX_RL_REDIS_CHECK, 4);
    assert_non_null(call);

    memcpy(call->request.text, "CALL", 4);
    call->request.len = 4;
    call->late = late;

    ngx_rl_redis_call_start(call, handler, &told);

    assert_int_equal(told, 0);

    return call;
}


static void
flush(void)
{
    ngx_event_t  ev;

    ev.data = &node.conn;
    ngx_rl_redis_conn_flush_handler(&ev);
}


/* The sockets are looked at once more before a call ends. */
static void
deadline(void)
{
    ngx_current_msec += TIMEOUT_MS;
    ngx_rl_redis_deadline_handler(&client.deadline);
    assert_false(client.expire_event.posted);

    ngx_rl_redis_deadline_handler(&client.deadline);
    assert_true(client.expire_event.posted);

    ngx_delete_posted_event(&client.expire_event);
    ngx_rl_redis_expire_handler(&client.expire_event);
}


static void
feed(const char *text)
{
    assert_null(ngx_rl_redis_reply_feed(&node.conn, (u_char *) text,
                                        strlen(text)));
}


static void
lose(void)
{
    ngx_rl_redis_conn_break(&node.conn, 0, "gone");
}


static void
done(void)
{
    ngx_rl_redis_done_handler(&client.done_event);
}


/* A call with the flag that was sent, and whose deadline passed. */
static ngx_rl_redis_call_t *
call_late(void)
{
    ngx_rl_redis_call_t *call = call_make(1);
    flush();

    assert_int_equal(client.waiting, 1);
    assert_false(client.deadline.cancelable);

    deadline();

    assert_int_equal(told, 1);
    assert_int_equal(last.status, NGX_RL_REDIS_TIMEOUT);
    assert_true(last.ran);
    assert_true(last.again);

    assert_int_equal(client.waiting, 0);
    assert_true(client.deadline.cancelable);

    return call;
}


static void
ended(ngx_uint_t n, ngx_rl_redis_status_e status, ngx_uint_t ran)
{
    assert_int_equal(told, n);
    assert_int_equal(last.status, status);
    assert_int_equal(last.ran, ran);
    assert_false(last.again);
}


/* tests */

static void
test_in_time(void **state)
{
    call_make(1);
    flush();
    feed(GOOD);

    ended(1, NGX_RL_REDIS_OK, 1);
    assert_int_equal(value, 9);
    assert_int_equal(shared.workers[3].calls[NGX_RL_REDIS_OK], 1);
}


/* Which queue the calls' write is posted to; then they are answered. */
static ngx_queue_t *
turn(ngx_uint_t calls)
{
    ngx_queue_t  *posted;

    for (ngx_uint_t i = 0; i < calls; i++) {
        (void) call_make(0);
    }

    assert_true(node.conn.flush.posted);

    posted = ngx_queue_empty(&ngx_posted_events) ? &ngx_posted_next_events
                                                 : &ngx_posted_events;
    ngx_delete_posted_event(&node.conn.flush);
    assert_true(ngx_queue_empty(&ngx_posted_next_events));
    flush();

    /* with a reply comes an event to write, too: there is nothing */

    flush();

    for (ngx_uint_t i = 0; i < calls; i++) {
        feed(GOOD);
    }

    told = 0;

    return posted;
}


/*
 * A lone call does not wait for others, but one behind a batch does, and one
 * behind a call that has no answer.
 */
static void
test_turns(void **state)
{
    assert_ptr_equal(turn(1), &ngx_posted_events);
    assert_ptr_equal(turn(1), &ngx_posted_events);
    assert_ptr_equal(turn(3), &ngx_posted_events);
    assert_ptr_equal(turn(1), &ngx_posted_next_events);
    assert_ptr_equal(turn(1), &ngx_posted_events);

    (void) call_make(0);
    ngx_delete_posted_event(&node.conn.flush);
    flush();
    assert_ptr_equal(turn(1), &ngx_posted_next_events);
    feed(GOOD);
}


static void
test_without_the_flag(void **state)
{
    call_make(0);
    flush();
    deadline();
    ended(1, NGX_RL_REDIS_TIMEOUT, 1);

    feed(GOOD);
    assert_int_equal(told, 1);
}


static void
test_late_reply(void **state)
{
    call_late();
    feed(GOOD);

    ended(2, NGX_RL_REDIS_OK, 1);
    assert_int_equal(value, 9);

    /* what became of it is counted once */

    assert_int_equal(shared.workers[3].calls[NGX_RL_REDIS_TIMEOUT], 1);
    assert_int_equal(shared.workers[3].calls[NGX_RL_REDIS_OK], 0);
}


static void
test_not_written(void **state)
{
    node.conn.state = NGX_RL_REDIS_CONNECTING;

    call_make(1);
    deadline();
    ended(1, NGX_RL_REDIS_UNREACHABLE, 0);
    assert_true(ngx_queue_empty(&node.conn.requests));
}


static void
test_lost(void **state)
{
    call_late();
    lose();
    assert_int_equal(told, 1);

    done();
    ended(2, NGX_RL_REDIS_LOST, 1);
}


static void
test_no_reply_of_the_script(void **state)
{
    call_late();
    feed("+OK\r\n");
    done();

    ended(2, NGX_RL_REDIS_PROTOCOL, 1);
}


/* What would be sent again within the deadline is not, behind it. */
static void
test_late_errors(void **state)
{
    static const struct {
        const char                    *text;
        ngx_rl_redis_status_e   status;
        ngx_uint_t                     ran;
    } errors[] = {
        { "-MOVED 5 h:1\r\n", NGX_RL_REDIS_MOVED, 0 }, { "-ASK 5 h:1\r\n",
            NGX_RL_REDIS_ASK, 0 }, { "-TRYAGAIN x\r\n", NGX_RL_REDIS_TRYAGAIN,
            0 }, { "-OOM x\r\n", NGX_RL_REDIS_OOM, 1 }, { "-LOADING x\r\n",
            NGX_RL_REDIS_LOADING, 0 }, { "-NOSCRIPT x\r\n",
            NGX_RL_REDIS_NOSCRIPT, 0 }
    };

    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        told = 0;
        call_late();
        assert_true(ngx_queue_empty(&client.again));

        feed(errors[i].text);
        ended(2, errors[i].status, errors[i].ran);
        assert_true(ngx_queue_empty(&client.again));
        assert_int_equal(node.conn.pending,
                         errors[i].status == NGX_RL_REDIS_NOSCRIPT);
    }

    /* the script is loaded, for the next call */

    assert_true(node.loading);
    flush();
    feed(LOADED);
    assert_int_equal(told, 2);
}


/* TRYAGAIN in time: the call waits in no connection, and has not run. */
static void
test_tryagain(void **state)
{
    call_make(1);
    flush();
    feed("-TRYAGAIN x\r\n");
    assert_int_equal(told, 0);
    assert_false(ngx_queue_empty(&client.again));

    deadline();
    ended(1, NGX_RL_REDIS_UNREACHABLE, 0);
}


static void
test_forgotten(void **state)
{
    /* between */

    ngx_rl_redis_forget(call_late());
    feed(GOOD);
    assert_int_equal(told, 1);

    /* by the handler itself, when it is told TIMEOUT */

    told = 0;
    forgotten = call_make(1);
    flush();
    deadline();
    assert_int_equal(told, 1);
    assert_true(last.again);
    forgotten = NULL;
    feed(GOOD);
    assert_int_equal(told, 1);

    /* when it is lost already */

    told = 0;
    {
        ngx_rl_redis_call_t  *call;

        call = call_late();
        lose();
        ngx_rl_redis_forget(call);
        done();
        assert_int_equal(told, 1);
    }

    /* before */

    told = 0;
    ngx_rl_redis_forget(call_make(1));
    assert_int_equal(client.waiting, 1);
    flush();
    deadline();
    feed(GOOD);
    assert_int_equal(told, 0);
}


/* Let go as the breaker opens: as at the deadline. */
static void
test_let_go(void **state)
{
    ngx_rl_redis_call_t *call = call_make(1);
    flush();
    ngx_rl_redis_call_leave(call, NGX_RL_REDIS_OPEN);

    assert_int_equal(told, 1);
    assert_int_equal(last.status, NGX_RL_REDIS_TIMEOUT);
    assert_true(last.again);

    feed(GOOD);
    ended(2, NGX_RL_REDIS_OK, 1);
}


/*
 * Sent between the two looks at the sockets: a call that another node is asked
 * for gets its time from there. One that had TRYAGAIN is sent again so often
 * that it always has just left.
 */
static void
test_sent_at_the_deadline(void **state)
{
    static const char *const  errors[] = { "-MOVED 5 h:1\r\n",
                                           "-TRYAGAIN x\r\n" };

    for (size_t i = 0; i < 2; i++) {
        told = 0;
        call_make(0);
        flush();
        ngx_current_msec += TIMEOUT_MS;
        ngx_rl_redis_deadline_handler(&client.deadline);

        feed(errors[i]);
        ngx_current_msec += 5;
        ngx_rl_redis_again_handler(&client.again_timer);
        flush();
        assert_int_equal(node.conn.pending, 1);

        ngx_rl_redis_deadline_handler(&client.deadline);
        ngx_delete_posted_event(&client.expire_event);
        ngx_rl_redis_expire_handler(&client.expire_event);
        assert_int_equal(told, i);

        feed(GOOD);
        assert_int_equal(told, 1);
    }
}


/* A late call behind an ordinary one: the order of replies stays theirs. */
static void
test_order(void **state)
{
    call_make(0);
    call_make(1);
    flush();
    assert_int_equal(client.waiting, 2);

    deadline();
    assert_int_equal(told, 2);
    assert_int_equal(client.waiting, 0);

    feed("*4\r\n:1\r\n:8\r\n:36\r\n:0\r\n");
    assert_int_equal(told, 2);

    feed(GOOD);
    ended(3, NGX_RL_REDIS_OK, 1);
    assert_int_equal(value, 9);
}


/* No ASKING is left for the next call by one whose deadline passes first. */
static void
test_asking_not_written(void **state)
{
    call_make(0);
    flush();
    feed("-ASK 5 127.0.0.1:1\r\n");
    assert_int_equal(node.conn.pending, 2);

    deadline();
    ended(1, NGX_RL_REDIS_UNREACHABLE, 0);
    assert_int_equal(node.conn.pending, 0);
}


/* Where it was written its call follows, though nobody waits for that. */
static void
test_asking_written(void **state)
{
    call_make(0);
    flush();
    feed("-ASK 5 127.0.0.1:1\r\n");

    room = sizeof("*1\r\n$6\r\nASKING\r\n") - 1;
    flush();
    feed("+OK\r\n");
    assert_int_equal(node.conn.pending, 1);

    deadline();
    ended(1, NGX_RL_REDIS_TIMEOUT, 1);
    assert_int_equal(node.conn.pending, 1);

    room = SIZE_MAX;
    connection.write->ready = 1;
    flush();
    feed(GOOD);
    assert_int_equal(told, 1);
    assert_int_equal(node.conn.pending, 0);
}
