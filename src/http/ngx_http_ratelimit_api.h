/*
 * "ratelimit_api": the endpoint that reads and changes a zone's document. What
 * its files share; nothing else includes it but the front door.
 *
 * A request's way: guard, route, body, and then the steps of its route, each a
 * function that answers, or waits for a job or a call and names the next step.
 */

#ifndef NGX_HTTP_RATELIMIT_API_H_INCLUDED
#define NGX_HTTP_RATELIMIT_API_H_INCLUDED

#include "ngx_http_ratelimit.h"

#include "ngx_ratelimit_edit.h"
#include "ngx_ratelimit_job.h"
#include "ngx_ratelimit_sync.h"

#define NGX_HTTP_RATELIMIT_API_BODY    (1024 * 1024)  /* bytes at most */
#define NGX_HTTP_RATELIMIT_API_REASON  256            /* also of the author */
#define NGX_HTTP_RATELIMIT_API_DIGEST  32             /* of a token */
#define NGX_HTTP_RATELIMIT_API_RETRY   "1"   /* seconds, after a failure */

typedef struct ngx_http_ratelimit_api_s        ngx_http_ratelimit_api_t;
typedef struct ngx_http_ratelimit_api_route_s  ngx_http_ratelimit_api_route_t;

/*
 * What documents take of a worker's memory, for all its endpoints: requests
 * that would take more are refused.
 */
typedef struct {
    size_t                       bytes;
} ngx_http_ratelimit_api_load_t;

/* One "ratelimit_api". */
typedef struct {
    ngx_str_t                       zone;
    ngx_http_ratelimit_place_t      place;
    ngx_ratelimit_limiter_t        *limiter;  /* when all is read */
    ngx_array_t                    *tokens;   /* digests; NULL: none needed */
    ngx_http_ratelimit_api_load_t  *load;     /* of the worker */
    unsigned                        write:1;
} ngx_http_ratelimit_api_conf_t;

/*
 * A step. Returns NGX_BUSY: it waits, for ngx_http_ratelimit_api_wake(), and
 * api->next is the step behind it; or what the request ends with, which is what
 * the functions that answer return: never NGX_BUSY nor NGX_DECLINED, by which
 * what comes before the steps says that the request goes on.
 */
typedef ngx_int_t (*ngx_http_ratelimit_api_pt)(ngx_http_ratelimit_api_t *api);

/* of the path's parts "{}" stands for any name, the last one, "{*}", for the
   rest */
struct ngx_http_ratelimit_api_route_s {
    ngx_str_t                      path;
    ngx_uint_t                     methods;   /* bits; GET is HEAD, too */
    ngx_http_ratelimit_api_pt      handler;
    ngx_ratelimit_edit_resource_e  resource;  /* of api_edit() */
    ngx_uint_t                     flags;
};

#define NGX_HTTP_RATELIMIT_API_READS    0x01   /* its POST changes nothing */
#define NGX_HTTP_RATELIMIT_API_NO_BODY  0x02   /* its POST takes none */

/*
 * A job of ngx_ratelimit_edit(). It lives in edit.pool, which outlives a
 * request that ends before the job, or the put of its document, does: who is
 * the last to release it frees it.
 */
typedef struct {
    ngx_ratelimit_edit_t           edit;
    ngx_http_ratelimit_api_t      *api;       /* NULL: the request is gone */
    ngx_ratelimit_job_t           *job;       /* while it runs */
    ngx_uint_t                     refs;      /* of its request or job; a put */
    u_char                        *base;      /* edit.base is part of it, and */
    u_char                        *body;      /* edit.body; on the heap */
    ngx_http_ratelimit_api_load_t *load;
    size_t                         bytes;     /* its part of the load */
    unsigned                       based:1;   /* base is what there is */
    unsigned                       moved:1;   /* it was another version */
} ngx_http_ratelimit_api_work_t;

/* Of one request, in its pool, whose cleanup ends what is under way. */
struct ngx_http_ratelimit_api_s {
    ngx_http_request_t                    *request;
    ngx_http_ratelimit_api_conf_t         *conf;
    const ngx_http_ratelimit_api_route_t  *route;
    ngx_http_ratelimit_api_pt              next;
    ngx_str_t                              name;    /* that "{}" stands for */
    ngx_str_t                              body;
    size_t                                 room;    /* bytes that it has */
    ngx_str_t                              reason;

    ngx_http_ratelimit_api_work_t         *work;    /* or NULL; its own */
    ngx_ratelimit_sync_call_t             *call;    /* while it is due */
    void                                 (*forget)(void *data);
    void                                  *data;    /* what else is under way */

    ngx_ratelimit_sync_status_e            status;  /* of the last call */
    ngx_str_t                              said;    /* its reason */
    uint64_t                               version; /* that it has named */
    ngx_str_t                              text;    /* what it has read */
    ngx_uint_t                             tries;

    ngx_event_t                            deadline;
    unsigned                               any:1;      /* If-Match: "*" */
    unsigned                               saved:1;
    unsigned                               waiting:1;
    unsigned                               writing:1;  /* a put is under way */
    unsigned                               created:1;
};


/* api_conf.c: the directive, and what only the whole configuration tells */
char *ngx_http_ratelimit_api(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_ratelimit_api_merge(ngx_conf_t *cf,
    ngx_http_ratelimit_loc_conf_t *prev, ngx_http_ratelimit_loc_conf_t *conf);
ngx_int_t ngx_http_ratelimit_api_resolve(ngx_conf_t *cf,
    ngx_http_ratelimit_main_conf_t *conf);

/* api.c */
ngx_int_t ngx_http_ratelimit_api_handler(ngx_http_request_t *r);
ngx_http_ratelimit_api_t *ngx_http_ratelimit_api_find(ngx_http_request_t *r);

/* NGX_DECLINED: the next step; else rc is what the request ends with. */
void ngx_http_ratelimit_api_run(ngx_http_ratelimit_api_t *api, ngx_int_t rc);

/*
 * What was waited for is there: the next step runs, soon, from an event of the
 * request's own. later: other events of the worker come first.
 */
void ngx_http_ratelimit_api_wake(ngx_http_ratelimit_api_t *api);
void ngx_http_ratelimit_api_later(ngx_http_ratelimit_api_t *api);

/* An argument of the query, decoded, in the request's pool; or NULL. */
ngx_str_t *ngx_http_ratelimit_api_argument(ngx_http_ratelimit_api_t *api,
    const char *name, ngx_str_t *value);

ngx_uint_t ngx_http_ratelimit_api_utf8(const ngx_str_t *text);

/*
 * api_guard.c: whether the request may be here; and whether it may do this.
 * Return NGX_DECLINED: it goes on, or what the request ends with.
 */
ngx_int_t ngx_http_ratelimit_api_guard(ngx_http_ratelimit_api_t *api);
ngx_int_t ngx_http_ratelimit_api_guard_write(ngx_http_ratelimit_api_t *api);

/*
 * api_body.c: reads the body to api->body; ngx_http_ratelimit_api_run()
 * follows. Returns what a content handler returns.
 */
ngx_int_t ngx_http_ratelimit_api_read_body(ngx_http_ratelimit_api_t *api);

/*
 * api_answer.c: all of these answer, and return what the request ends with.
 * body may be NULL: there is none. detail is a format of ngx_sprintf().
 */
ngx_int_t ngx_http_ratelimit_api_answer(ngx_http_ratelimit_api_t *api,
    ngx_uint_t status, const ngx_str_t *body);
ngx_int_t ngx_http_ratelimit_api_problem(ngx_http_ratelimit_api_t *api,
    ngx_uint_t status, const char *type, const char *detail, ...);
ngx_int_t ngx_http_ratelimit_api_problems(ngx_http_ratelimit_api_t *api,
    ngx_uint_t status, const char *type,
    const ngx_ratelimit_problems_t *problems, const char *detail);

/* A JSON value, which is freed; NULL: memory was out. */
struct json_t;
ngx_int_t ngx_http_ratelimit_api_json(ngx_http_ratelimit_api_t *api,
    ngx_uint_t status, struct json_t *json);

/* The text as a JSON string, what is no UTF-8 as "?"; NULL: memory is out. */
struct json_t *ngx_http_ratelimit_api_text(const ngx_str_t *text);

#define NGX_HTTP_RATELIMIT_API_TIME  (sizeof("2026-11-20T22:22:04.000Z") + 8)

/* RFC 3339 in UTC, with milliseconds; returns the end. */
u_char *ngx_http_ratelimit_api_time(u_char *p, uint64_t time_ms);

/* Before the answer. Return NGX_OK, or NGX_ERROR: memory is out. */
ngx_int_t ngx_http_ratelimit_api_header(ngx_http_ratelimit_api_t *api,
    const char *name, const char *value);
ngx_int_t ngx_http_ratelimit_api_etag(ngx_http_ratelimit_api_t *api,
    uint64_t version);

/* A call's result, for failed(): its status, version and reason. */
void ngx_http_ratelimit_api_result(ngx_http_ratelimit_api_t *api,
    const ngx_ratelimit_sync_result_t *result);

/* What became of a call to Redis that was no success; no put. */
ngx_int_t ngx_http_ratelimit_api_failed(ngx_http_ratelimit_api_t *api);

/* The steps of the routes. */
ngx_int_t ngx_http_ratelimit_api_edit(ngx_http_ratelimit_api_t *api);
ngx_int_t ngx_http_ratelimit_api_versions(ngx_http_ratelimit_api_t *api);
ngx_int_t ngx_http_ratelimit_api_version(ngx_http_ratelimit_api_t *api);
ngx_int_t ngx_http_ratelimit_api_restore(ngx_http_ratelimit_api_t *api);
ngx_int_t ngx_http_ratelimit_api_counters(ngx_http_ratelimit_api_t *api);
ngx_int_t ngx_http_ratelimit_api_explain(ngx_http_ratelimit_api_t *api);
ngx_int_t ngx_http_ratelimit_api_status(ngx_http_ratelimit_api_t *api);

/*
 * api_edit.c: begins the edit of api->work, and does what follows, also the
 * put: of the base that it has; current: of what this node has.
 */
ngx_int_t ngx_http_ratelimit_api_edit_begin(ngx_http_ratelimit_api_t *api);
ngx_int_t ngx_http_ratelimit_api_edit_current(ngx_http_ratelimit_api_t *api);

/*
 * api_work.c: a job's memory, which is api->work from then on; NULL: memory is
 * out. It takes the body over from the one before.
 */
ngx_http_ratelimit_api_work_t *ngx_http_ratelimit_api_work(
    ngx_http_ratelimit_api_t *api);

/*
 * Of api->work: its request has no use for it any more; its job, where it runs,
 * goes on with nobody that waits for it.
 */
void ngx_http_ratelimit_api_work_free(ngx_http_ratelimit_api_t *api);

/* One use less; the last one frees it. A ngx_ratelimit_sync_release_pt. */
void ngx_http_ratelimit_api_work_release(void *work);

/* The document of a record is what is edited, whose text it takes over. */
void ngx_http_ratelimit_api_work_base(ngx_http_ratelimit_api_work_t *work,
    ngx_ratelimit_record_t *record);

/*
 * Of its memory: what it is going to take, before it does. NGX_DECLINED, or it
 * is answered: others of this worker have it all. Then what it has; 0: nothing.
 */
ngx_int_t ngx_http_ratelimit_api_work_admit(ngx_http_ratelimit_api_t *api,
    size_t bytes);
void ngx_http_ratelimit_api_work_weigh(ngx_http_ratelimit_api_work_t *work,
    size_t bytes);

/*
 * NGX_DECLINED, or it is answered: a change has If-Match, and its reason, where
 * it has one, is a text.
 */
ngx_int_t ngx_http_ratelimit_api_conditions(ngx_http_ratelimit_api_t *api);

#endif /* NGX_HTTP_RATELIMIT_API_H_INCLUDED */
