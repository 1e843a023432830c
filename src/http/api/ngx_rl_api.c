/*
 * A request to the endpoint, from one event to the next: its body, its steps
 * and its deadline. It may end at any time. The cleanup of its pool then
 * forgets what is under way.
 *
 * A worker makes one edit at a time: each may take much memory, and time of the
 * event loop. The turn belongs to a request, from the moment that the request
 * is woken for it, and then to the request's work, which may outlive it. A
 * validation needs no right to write: validations wait apart, and a change goes
 * before them.
 */

#include "ngx_rl_api.h"

#define NGX_RL_API_BODY  (1024 * 1024)   /* bytes at most */

/*
 * A request is here no longer, its body included: a right that a reload takes
 * away ends with it. The timer is not cancelable: a worker that is to exit
 * waits for the request, as for any other.
 */
#define NGX_RL_API_MS  30000

/* which queue a request is in */
#define ngx_rl_api_turn_of(api)                                               \
    (((api)->route->flags & NGX_RL_API_READS) != 0)

/* changes, and validations, that wait at most */
static const ngx_uint_t  ngx_rl_api_turns[] = { 32, 8 };

/* A worker's; a process that forks has used none. */
static struct {
    ngx_queue_t  waiting[2];   /* of api->queue, if n is not 0 */
    ngx_uint_t   n[2];
    ngx_uint_t   taken;
} ngx_rl_api_turn;


void
ngx_rl_api_work_free(ngx_rl_api_work_t *work)
{
    if (work && work->job) {
        ngx_rl_job_cancel(work->job);

    } else if (work) {
        ngx_destroy_pool(work->edit.pool);
    }
}


void
ngx_rl_api_wake(ngx_rl_api_t *api, ngx_queue_t *events)
{
    ngx_event_t  *wev;

    api->waiting = 0;

    wev = api->request->connection->write;
    ngx_post_event(wev, events);
}


ngx_int_t
ngx_rl_api_turn_take(ngx_rl_api_t *api)
{
    ngx_uint_t  of;

    if (!ngx_rl_api_turn.taken) {
        ngx_rl_api_turn.taken = 1;
        api->turn = 1;
        return NGX_OK;
    }

    of = ngx_rl_api_turn_of(api);

    if (ngx_rl_api_turn.n[of] == ngx_rl_api_turns[of]) {
        return NGX_DECLINED;
    }

    if (ngx_rl_api_turn.n[of]++ == 0) {
        ngx_queue_init(&ngx_rl_api_turn.waiting[of]);
    }

    ngx_queue_insert_tail(&ngx_rl_api_turn.waiting[of], &api->queue);
    api->queued = 1;

    return NGX_BUSY;
}


void
ngx_rl_api_turn_end(void)
{
    ngx_uint_t     of;
    ngx_queue_t   *q;
    ngx_rl_api_t  *api;

    of = (ngx_rl_api_turn.n[0] == 0);

    if (ngx_rl_api_turn.n[of] == 0) {
        ngx_rl_api_turn.taken = 0;
        return;
    }

    q = ngx_queue_head(&ngx_rl_api_turn.waiting[of]);
    ngx_queue_remove(q);
    ngx_rl_api_turn.n[of]--;

    api = ngx_queue_data(q, ngx_rl_api_t, queue);
    api->queued = 0;
    api->turn = 1;

    ngx_rl_api_wake(api, &ngx_posted_events);
}


void
ngx_rl_api_turn_forget(ngx_rl_api_t *api)
{
    if (api->queued) {
        api->queued = 0;
        ngx_queue_remove(&api->queue);
        ngx_rl_api_turn.n[ngx_rl_api_turn_of(api)]--;
    }

    if (api->turn) {
        api->turn = 0;
        ngx_rl_api_turn_end();
    }
}


/* Forgets what is under way. The answer may be in the memory of a job. */
static void
ngx_rl_api_abandon(ngx_rl_api_t *api)
{
    if (api->deadline.timer_set) {
        ngx_del_timer(&api->deadline);
    }

    if (api->pause.timer_set) {
        ngx_del_timer(&api->pause);
    }

    ngx_rl_api_turn_forget(api);

    if (api->call) {
        ngx_rl_follow_forget(api->call);
        api->call = NULL;
    }

    if (api->work && api->work->job) {
        ngx_rl_api_work_free(api->work);
        api->work = NULL;

    } else if (api->work && api->work->turn) {

        /* the answer may be in its memory; the client may be slow */

        api->work->turn = 0;
        ngx_rl_api_turn_end();
    }

    if (api->forget) {
        api->forget(api->data);
        api->forget = NULL;
    }
}


static ngx_int_t
ngx_rl_api_late(ngx_rl_api_t *api)
{
    if (api->writing) {
        api->status = NGX_RL_FOLLOW_UNKNOWN;
        ngx_str_set(&api->said, "it took too long");

        return ngx_rl_api_failed(api);
    }

    return ngx_rl_api_problem(api, NGX_HTTP_SERVICE_UNAVAILABLE, "unavailable",
                              "it took too long, nothing is changed");
}


static void
ngx_rl_api_deadline(ngx_event_t *ev)
{
    ngx_connection_t  *c;
    ngx_rl_api_t      *api;

    api = ev->data;
    c = api->request->connection;

    ngx_rl_api_abandon(api);

    if (api->reading) {
        ngx_http_finalize_request(api->request, NGX_HTTP_REQUEST_TIME_OUT);
        ngx_http_run_posted_requests(c);
        return;
    }

    api->next = ngx_rl_api_late;
    ngx_rl_api_wake(api, &ngx_posted_events);
}


static void
ngx_rl_api_pause(ngx_event_t *ev)
{
    ngx_rl_api_wake(ev->data, &ngx_posted_events);
}


/* The request ends: no event finds it any more. */
static void
ngx_rl_api_cleanup(void *data)
{
    ngx_rl_api_t *api = data;

    ngx_rl_api_abandon(api);
    ngx_rl_api_work_free(api->work);
}


ngx_rl_api_t *
ngx_rl_api_create(ngx_http_request_t *r, ngx_rl_api_conf_t *conf)
{
    ngx_pool_cleanup_t  *cln;
    ngx_rl_api_t        *api;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_rl_api_t));
    if (cln == NULL) {
        return NULL;
    }

    api = cln->data;
    ngx_memzero(api, sizeof(ngx_rl_api_t));

    api->request = r;
    api->conf = conf;

    api->deadline.data = api;
    api->deadline.handler = ngx_rl_api_deadline;
    api->deadline.log = r->connection->log;

    api->pause.data = api;
    api->pause.handler = ngx_rl_api_pause;
    api->pause.log = r->connection->log;

    cln->handler = ngx_rl_api_cleanup;

    return api;
}


/* The module's context of a request is that of its check. */
static ngx_rl_api_t *
ngx_rl_api_find(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t  *cln;
    ngx_rl_api_t        *api;

    for (cln = r->pool->cleanup; cln; cln = cln->next) {
        if (cln->handler == ngx_rl_api_cleanup) {
            api = cln->data;

            if (api->request == r) {
                return api;
            }
        }
    }

    return NULL;
}


/* The write event's handler: also runs when the socket gets writable. */
static void
ngx_rl_api_resume(ngx_http_request_t *r)
{
    ngx_rl_api_t  *api;

    api = ngx_rl_api_find(r);

    if (api->waiting) {
        if (ngx_handle_write_event(r->connection->write, 0) != NGX_OK) {
            ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        }

        return;
    }

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    ngx_rl_api_run(api, NGX_DECLINED);
}


/* The request has a count of its own here. */
void
ngx_rl_api_run(ngx_rl_api_t *api, ngx_int_t rc)
{
    ngx_http_request_t  *r;

    r = api->request;

    if (rc == NGX_DECLINED) {
        api->waiting = 1;
        rc = api->next(api);
    }

    if (rc == NGX_DONE) {

        /* it goes on by itself, or has ended: with a count of its own */

        ngx_http_finalize_request(r, NGX_DONE);
        return;
    }

    if (rc != NGX_BUSY) {
        ngx_rl_api_abandon(api);
        ngx_http_finalize_request(r, rc);
        return;
    }

    if (!api->deadline.timer_set) {
        ngx_add_timer(&api->deadline, NGX_RL_API_MS);
    }

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_rl_api_resume;

    if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
    }
}


void
ngx_rl_api_wait(ngx_rl_api_t *api)
{
    ngx_add_timer(&api->pause, 1);
}


ngx_int_t
ngx_rl_api_call(ngx_rl_api_t *api, ngx_rl_follow_op_e op, uint64_t version,
    uint64_t id, const ngx_rl_record_t *record,
    ngx_rl_follow_handler_pt handler, ngx_rl_api_pt next)
{
    api->next = next;
    api->call = ngx_rl_follow_call(api->conf->limiter, op, version, id,
                                   record, handler, api);

    return api->call ? NGX_BUSY : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


void
ngx_rl_api_result(ngx_rl_api_t *api, const ngx_rl_follow_result_t *result)
{
    api->call = NULL;
    api->status = result->status;
    api->version = result->version;
    api->id = result->id;
    api->saved = result->saved;
    api->writing = 0;

    ngx_str_null(&api->said);

    if (result->reason.len) {
        api->said.data = ngx_pstrdup(api->request->pool,
                                     (ngx_str_t *) &result->reason);
        api->said.len = api->said.data ? result->reason.len : 0;
    }
}


void
ngx_rl_api_called(void *data, const ngx_rl_follow_result_t *result)
{
    ngx_rl_api_t *api = data;

    ngx_rl_api_result(api, result);
    ngx_rl_api_wake(api, &ngx_posted_events);
}


ngx_int_t
ngx_rl_api_query_key(ngx_rl_api_t *api, ngx_str_t *key)
{
    return ngx_rl_policy_join(api->args.keys, api->args.nkeys,
                              api->request->pool, key);
}


ngx_int_t
ngx_rl_api_query_address(ngx_rl_api_t *api, const ngx_str_t *text,
    ngx_str_t *address)
{
    ngx_int_t             rc;
    ngx_addr_t            addr;
    struct sockaddr_in   *sin;
#if (NGX_HAVE_INET6)
    struct sockaddr_in6  *sin6;
#endif

    ngx_str_null(address);

    rc = ngx_parse_addr(api->request->pool, &addr, text->data, text->len);
    if (rc != NGX_OK) {
        return rc;
    }

#if (NGX_HAVE_INET6)
    if (addr.sockaddr->sa_family == AF_INET6) {
        sin6 = (struct sockaddr_in6 *) addr.sockaddr;
        address->data = (u_char *) &sin6->sin6_addr;
        address->len = sizeof(struct in6_addr);
        return NGX_OK;
    }
#endif

    sin = (struct sockaddr_in *) addr.sockaddr;
    *address = ngx_rl_str((u_char *) &sin->sin_addr, sizeof(in_addr_t));

    return NGX_OK;
}


static ngx_int_t
ngx_rl_api_body_too_large(ngx_rl_api_t *api)
{
    return ngx_rl_api_problem(api, NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
        "too-large", "expected a body of at most %d bytes", NGX_RL_API_BODY);
}


/* Takes the bytes that are there. NGX_DECLINED, or the request ends. */
static ngx_int_t
ngx_rl_api_body_take(ngx_rl_api_t *api)
{
    off_t                size, room;
    u_char              *p;
    ngx_buf_t           *b;
    ngx_chain_t         *cl;
    ngx_http_request_t  *r;

    r = api->request;

    for (cl = r->request_body ? r->request_body->bufs : NULL; cl;
         cl = cl->next)
    {
        b = cl->buf;
        size = ngx_buf_size(b);
        room = size;

        if (size > NGX_RL_API_BODY - (off_t) api->body.text.len) {
            return ngx_rl_api_body_too_large(api);
        }

        if (size == 0) {
            continue;
        }

        if (api->body.room == 0) {
            room = ngx_max(size, r->headers_in.content_length_n);
        }

        p = ngx_rl_grow(r->pool, &api->body, (size_t) room);

        if (p == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        if (ngx_buf_in_memory(b)) {
            ngx_memcpy(p, b->pos, (size_t) size);

        } else if (ngx_read_file(b->file, p, (size_t) size, b->file_pos)
                   != (ssize_t) size)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        api->body.text.len += (size_t) size;

        b->pos = b->last;
        b->file_pos = b->file_last;
    }

    if (r->request_body) {
        r->request_body->bufs = NULL;
    }

    return NGX_DECLINED;
}


static void
ngx_rl_api_body_read(ngx_http_request_t *r)
{
    ngx_int_t      rc;
    ngx_rl_api_t  *api;

    api = ngx_rl_api_find(r);

    for ( ;; ) {

        rc = ngx_rl_api_body_take(api);

        if (rc != NGX_DECLINED || !r->reading_body) {
            break;
        }

        rc = ngx_http_read_unbuffered_request_body(r);

        if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
            break;
        }

        if (rc == NGX_AGAIN && r->request_body->bufs == NULL) {
            r->read_event_handler = ngx_rl_api_body_read;
            return;
        }
    }

    api->reading = 0;

    if (rc == NGX_DECLINED) {
        r->read_event_handler = ngx_http_block_reading;

        if (api->body.text.len == 0) {
            rc = ngx_rl_api_problem(api, NGX_HTTP_BAD_REQUEST, "empty-body",
                                    "expected a body with JSON");
        }
    }

    ngx_rl_api_run(api, rc);
}


/*
 * The body is read as it comes. So the endpoint rejects one that is too large,
 * instead of a page of nginx, and none goes to a file. If another module had
 * the body read before, it may be in a file.
 */
ngx_int_t
ngx_rl_api_read_body(ngx_rl_api_t *api)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = api->request;

    if (r->headers_in.content_length_n > NGX_RL_API_BODY) {
        return ngx_rl_api_body_too_large(api);
    }

    r->request_body_no_buffering = 1;
    api->reading = 1;
    ngx_add_timer(&api->deadline, NGX_RL_API_MS);

    rc = ngx_http_read_client_request_body(r, ngx_rl_api_body_read);

    return (rc >= NGX_HTTP_SPECIAL_RESPONSE) ? rc : NGX_DONE;
}
