/*
 * "ratelimit_api": the endpoint that reads and changes a zone's document. Its
 * files and the entry point of the module share this header.
 *
 * The calls run one way: route (paths, the handler), operations (counters,
 * watch, status, page), edit and guard, api (the steps of a request), answer. A
 * step is a function that answers, or that waits for a job or a call and names
 * the next step. A function that returns JSON returns NULL if memory is out.
 */

#ifndef NGX_RL_API_H_INCLUDED
#define NGX_RL_API_H_INCLUDED

#include "ngx_rl_key.h"
#include "ngx_rl_request.h"
#include "ngx_rl_json.h"

#include "ngx_rl_edit.h"
#include "ngx_rl_job.h"
#include "ngx_rl_follow.h"

#define NGX_RL_API_REASON  256   /* bytes; also of the author */

typedef struct ngx_rl_api_s        ngx_rl_api_t;
typedef struct ngx_rl_api_route_s  ngx_rl_api_route_t;

/* One "ratelimit_api". */
typedef struct {
    ngx_str_t            zone;
    ngx_rl_conf_place_t  place;
    ngx_rl_limiter_t    *limiter;  /* when all is read */
    ngx_str_t            path;     /* of the location */
    void               **server;   /* its configuration */
    ngx_rl_loc_conf_t   *location;
    ngx_rl_guard_t       guard;
    ngx_rl_value_t      *author;   /* of a change; NULL: see api_edit.c */
    ngx_rl_loc_conf_t   *checks;   /* the location, with the zone's limits: of
                                      a request, of several rules */
    unsigned             write:1;
} ngx_rl_api_conf_t;

/*
 * A step. NGX_BUSY: it waits for ngx_rl_api_wake(), and api->next
 * is the next step. Any other result ends the request. The functions that
 * answer return neither NGX_BUSY nor NGX_DECLINED. NGX_DECLINED says, before
 * the first step, that the request goes on.
 */
typedef ngx_int_t (*ngx_rl_api_pt)(ngx_rl_api_t *api);

/* of the path's parts "{}" stands for any name, the last one, "{*}", for the
   rest */
struct ngx_rl_api_route_s {
    ngx_str_t               path;
    ngx_uint_t              methods;   /* bits; GET is HEAD, too */
    ngx_uint_t              flags;
    ngx_rl_api_pt           handler;
    ngx_rl_edit_resource_e  resource;  /* of api_edit() */
    ngx_uint_t              reads;     /* query arguments of GET; of */
    ngx_uint_t              writes;    /* the other methods */
};

#define NGX_RL_API_READS    0x01   /* its POST changes nothing */
#define NGX_RL_API_NO_BODY  0x02   /* its POST takes none */
#define NGX_RL_API_PAGE     0x04   /* of "ratelimit_status_page" */
#define NGX_RL_API_CHECKS   0x08   /* for a token that may only check, too */

/* The arguments of the query, decoded. No data: it is not there. */
typedef struct {
    ngx_str_t   rule;
    ngx_str_t   penalty;
    ngx_str_t   tier;
    ngx_str_t   force;
    ngx_str_t   reason;
    ngx_str_t   since;
    ngx_str_t   by;
    ngx_str_t   n;
    ngx_str_t   status;
    ngx_str_t   owner;
    ngx_str_t   dry_run;
    ngx_uint_t  nkeys;
    ngx_str_t   keys[NGX_RL_MAX_PARTS];
} ngx_rl_api_args_t;

/*
 * A job of ngx_rl_edit(). It lives in edit.pool, which outlives a
 * request that ends while the job runs: then the job's end frees it.
 */
typedef struct {
    ngx_rl_edit_t  edit;
    ngx_rl_api_t  *api;
    ngx_rl_job_t  *job;            /* while it runs */
    uint64_t       id;             /* of base; 0: none */
    uint64_t       lineage;        /* the same */
    ngx_str_t      tags;           /* of the client's condition */
    uint64_t       most;           /* the largest version of them */
    unsigned       writes:1;
    unsigned       conditional:1;  /* to change a base with one of the tags, or
                                      to read one with none of them */
    unsigned       turn:1;         /* it is its turn */
    unsigned       stopped:1;      /* by the tags */
    unsigned       based:1;        /* edit.base is set */
} ngx_rl_api_work_t;

/* A request, in its pool. The pool's cleanup forgets what is under way. */
struct ngx_rl_api_s {
    ngx_http_request_t        *request;
    ngx_rl_api_conf_t         *conf;
    const ngx_rl_api_route_t  *route;
    ngx_rl_api_pt              next;
    ngx_str_t                  path;     /* below the location */
    ngx_str_t                  name;     /* that "{}" stands for */
    ngx_rl_api_args_t          args;
    ngx_str_t                  token;    /* the name of the token */
    const char                *refused;  /* why it has no access; NULL: it
                                            has */
    ngx_rl_growing_t           body;
    ngx_str_t                  reason;

    ngx_rl_api_work_t          *work;               /* or NULL; its own */
    ngx_rl_follow_call_t       *call;               /* while it is due */
    void                                 (*forget)(void *data);
    void                                  *data;    /* what else is under way */

    ngx_rl_follow_status_e    status;    /* of the last call */
    ngx_str_t                 said;      /* its reason */
    uint64_t                  version;   /* that it has named */
    uint64_t                  id;        /* of that a put has made */
    ngx_str_t                 text;      /* "/versions": of it */
    ngx_rl_record_t           record;    /* that it has read: the document, its
                                            numbers */
    const ngx_rl_problems_t  *problems;  /* of the answer; NULL */
    ngx_uint_t                tries;

    ngx_event_t  deadline;
    ngx_event_t  pause;      /* between two slices */
    ngx_queue_t  queue;      /* of those that wait for their turn, if queued */
    unsigned     trusted:1;  /* it may change */
    unsigned     forbidden:1;  /* it is refused, and no token helps */
    unsigned     reading:1;  /* the body comes */
    unsigned     queued:1;
    unsigned     turn:1;     /* it is its turn */
    unsigned     based:1;    /* the next edit is of record */
    unsigned     any:1;      /* If-Match: "*" */
    unsigned     create:1;   /* If-None-Match: "*" */
    unsigned     saved:1;
    unsigned     waiting:1;
    unsigned     writing:1;  /* a put is under way */
    unsigned     failed:1;   /* a header: memory */
};


/* api_conf.c: the directives, and what only the whole configuration tells */
char *ngx_rl_api(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_rl_status_page(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_rl_api_merge(ngx_conf_t *cf, ngx_rl_loc_conf_t *prev,
    ngx_rl_loc_conf_t *conf);
ngx_int_t ngx_rl_api_resolve(ngx_conf_t *cf, ngx_rl_main_conf_t *conf,
    void *entry);

/* api_route.c: the content handler */
ngx_int_t ngx_rl_api_handler(ngx_http_request_t *r);

/* api.c: what a request is here, in its pool. NULL: memory is out; none. */
ngx_rl_api_t *ngx_rl_api_create(ngx_http_request_t *r, ngx_rl_api_conf_t *conf);

/* NGX_DECLINED: the next step; else rc is what the request ends with. */
void ngx_rl_api_run(ngx_rl_api_t *api, ngx_int_t rc);

/*
 * Runs the next step from an event of the request: of these events, posted ones
 * or those of the next turn.
 */
void ngx_rl_api_wake(ngx_rl_api_t *api, ngx_queue_t *events);

/*
 * Makes a call of ngx_rl_follow_call(), and goes on with next. called is a
 * handler that only takes the result.
 */
ngx_int_t ngx_rl_api_call(ngx_rl_api_t *api, ngx_rl_follow_op_e op,
    uint64_t version, uint64_t id, const ngx_rl_record_t *record,
    ngx_rl_follow_handler_pt handler, ngx_rl_api_pt next);
void ngx_rl_api_called(void *data, const ngx_rl_follow_result_t *result);

/* A call's result, for failed(): its status, version and reason. */
void ngx_rl_api_result(ngx_rl_api_t *api, const ngx_rl_follow_result_t *result);

/* Runs the next step a millisecond later: others come first. */
void ngx_rl_api_wait(ngx_rl_api_t *api);

/*
 * Whose turn it is to edit. take() returns NGX_OK: it is, as
 * api->turn says; NGX_BUSY: the request is woken when it is; NGX_DECLINED: too
 * many wait. The owner of the turn ends it. forget() is for a request that does
 * not edit any more.
 */
ngx_int_t ngx_rl_api_turn_take(ngx_rl_api_t *api);
void ngx_rl_api_turn_end(void);
void ngx_rl_api_turn_forget(ngx_rl_api_t *api);

/* Frees a job's memory; if the job runs, its end does. May be NULL. */
void ngx_rl_api_work_free(ngx_rl_api_work_t *work);

/*
 * Joins the query's keys, one at least, as in a request's key. NGX_ERROR:
 * memory is out.
 */
ngx_int_t ngx_rl_api_query_key(ngx_rl_api_t *api, ngx_str_t *key);

/*
 * The bytes of an address, as $binary_remote_addr has them. NGX_DECLINED: the
 * text is none, and address is empty; NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_api_query_address(ngx_rl_api_t *api, const ngx_str_t *text,
    ngx_str_t *address);

/*
 * Reads the body to api->body; ngx_rl_api_run() follows. Returns
 * what a content handler returns.
 */
ngx_int_t ngx_rl_api_read_body(ngx_rl_api_t *api);

/*
 * api_guard.c: guard() sets whether the request may be here. The others return
 * NGX_DECLINED: it goes on, or what the request ends with. authorized() is for
 * all but the page, which asks for the token, or says who may be here;
 * guard_write() says whether it may do this.
 */
void ngx_rl_api_guard(ngx_rl_api_t *api);
ngx_int_t ngx_rl_api_authorized(ngx_rl_api_t *api);
ngx_int_t ngx_rl_api_guard_write(ngx_rl_api_t *api);

/* The status of an answer to a refused request, whose headers it sets. */
ngx_uint_t ngx_rl_api_challenge(ngx_rl_api_t *api);

/*
 * api_page.c: whether the location has a page, and the client wants it or one
 * of its files.
 */
ngx_uint_t ngx_rl_api_page_wanted(ngx_rl_api_t *api);

/*
 * api_answer.c: all of these answer, and return what the request ends with.
 * body may be NULL: there is none. detail is a format of ngx_sprintf().
 */
ngx_int_t ngx_rl_api_answer(ngx_rl_api_t *api, ngx_uint_t status,
    const ngx_str_t *body);
ngx_int_t ngx_rl_api_problem(ngx_rl_api_t *api, ngx_uint_t status,
    const char *type, const char *detail, ...);

/* A JSON value, which is freed; NULL: memory was out. */
ngx_int_t ngx_rl_api_json(ngx_rl_api_t *api, ngx_uint_t status,
    struct json_t *json);

/* An array of {id, pointer, detail}; NULL: memory is out. */
struct json_t *ngx_rl_api_problem_list(const ngx_rl_problems_t *problems);

/*
 * Before the answer, which fails if memory is out. The tag is version and id of
 * the record: after a failover one number may have two.
 */
void ngx_rl_api_header(ngx_rl_api_t *api, const char *name, const char *value);
void ngx_rl_api_etag(ngx_rl_api_t *api, uint64_t version, uint64_t id);

/* Writes a tag without quotes, 38 bytes at most; returns the end. */
u_char *ngx_rl_api_tag(u_char *p, uint64_t version, uint64_t id);

/* Answers for a call that has failed, by its status. */
ngx_int_t ngx_rl_api_failed(ngx_rl_api_t *api);

/*
 * client.c: a client by a rule and its key. The caller zeroes it, and fills the
 * first part.
 */
typedef struct {
    ngx_rl_api_t              *api;
    ngx_rl_rule_t             *rule;
    ngx_uint_t                 nkeys;
    ngx_str_t                 *keys;   /* the parts of the key */
    ngx_str_t                  key;    /* all of it, as a request has it */
    ngx_str_t                  tier;   /* no data: that of a location */
    const ngx_rl_allowance_t  *own;    /* in place of a variable's; or NULL */

    ngx_rl_subject_t           subject;
    ngx_rl_listed_e            listed;
    ngx_rl_allowed_t           allowed;  /* limit: NULL, it is unknown */
    const char                *unknown;  /* what says its limit, one of those
                                            below; NULL: it is known */
} ngx_rl_api_client_t;

extern const char  ngx_rl_api_by_variable[];
extern const char  ngx_rl_api_by_location[];

/* Sets the second part, as for a request. NGX_ERROR: memory is out. */
ngx_int_t ngx_rl_api_client(ngx_rl_api_client_t *client);

/*
 * request.c: a request that nobody has sent: GET of "/", without a client.
 * NULL: memory is out.
 */
ngx_http_request_t *ngx_rl_api_request(ngx_rl_api_t *api);

/*
 * Sets a header of it, or its method, path, host or address. The text ends with
 * a zero byte, and stays. NGX_DECLINED: it is wrong; NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_api_request_set(ngx_rl_api_t *api, ngx_http_request_t *r,
    ngx_uint_t header, const ngx_str_t *name, ngx_str_t *text,
    const char **wrong);

/* The first steps of the routes. version also begins a restore. */
ngx_int_t ngx_rl_api_edit(ngx_rl_api_t *api);
ngx_int_t ngx_rl_api_versions(ngx_rl_api_t *api);
ngx_int_t ngx_rl_api_version(ngx_rl_api_t *api);
ngx_int_t ngx_rl_api_counters(ngx_rl_api_t *api);
ngx_int_t ngx_rl_api_check(ngx_rl_api_t *api);
ngx_int_t ngx_rl_api_rejections(ngx_rl_api_t *api);
ngx_int_t ngx_rl_api_top(ngx_rl_api_t *api);
ngx_int_t ngx_rl_api_penalties(ngx_rl_api_t *api);
ngx_int_t ngx_rl_api_status(ngx_rl_api_t *api);
ngx_int_t ngx_rl_api_in_use(ngx_rl_api_t *api);
ngx_int_t ngx_rl_api_decisions(ngx_rl_api_t *api);
ngx_int_t ngx_rl_api_history(ngx_rl_api_t *api);
ngx_int_t ngx_rl_api_page(ngx_rl_api_t *api);

/* A worker begins to serve: it samples the counts of a zone with a watch. */
void ngx_rl_api_history_begin(ngx_rl_limiter_t *limiter, ngx_log_t *log);

/* "a, b" of a key whose parts are "a" and "b"; null: there is no text. */
struct json_t *ngx_rl_api_parts_json(const ngx_str_t *text);

/*
 * api_edit.c: whether the request changes something. reason(): its reason, if
 * there is one, must be a text. NGX_DECLINED, or it is answered.
 */
ngx_uint_t ngx_rl_api_writes(ngx_rl_api_t *api);
ngx_int_t ngx_rl_api_reason(ngx_rl_api_t *api);

/*
 * Fills the texts of a change's record: its author, the address, and what is
 * changed. They live in the request's pool. Returns NGX_OK, or NGX_ERROR:
 * memory is out.
 */
ngx_int_t ngx_rl_api_record(ngx_rl_api_t *api, ngx_rl_record_t *record);

#endif /* NGX_RL_API_H_INCLUDED */
