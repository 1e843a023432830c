/*
 * Editing a document: what the endpoint's resources and methods are functions
 * of, the whole document, and one rule of it. Whatever is changed, the whole is
 * read and compiled then, so that no edit makes a document that is not valid.
 */

#include "ngx_ratelimit_edit_json.h"

#include "ngx_ratelimit_record.h"

#include <jansson.h>

/* what a row takes */
#define NGX_RATELIMIT_EDIT_BASE      0x01   /* the document that there is */
#define NGX_RATELIMIT_EDIT_BODY      0x02
#define NGX_RATELIMIT_EDIT_MAYBE     0x04   /* a body, or none */

typedef enum {
    NGX_RATELIMIT_EDIT_ALL = 0,
    NGX_RATELIMIT_EDIT_NAMED
} ngx_ratelimit_edit_named_e;

typedef struct {
    ngx_ratelimit_edit_resource_e   resource;
    ngx_ratelimit_edit_named_e      named;
    ngx_ratelimit_edit_method_e     method;
    ngx_uint_t                      takes;
    ngx_ratelimit_edit_change_pt    change;   /* NULL: it reads */
    ngx_ratelimit_edit_show_pt      show;     /* NULL: the whole document, or,
                                                 where it is GONE, nothing */
} ngx_ratelimit_edit_row_t;

static const ngx_ratelimit_edit_row_t *ngx_ratelimit_edit_row(
    const ngx_ratelimit_edit_t *edit);
static ngx_ratelimit_edit_status_e ngx_ratelimit_edit_run(
    ngx_ratelimit_edit_work_t *work, const ngx_ratelimit_edit_row_t *row);
static ngx_ratelimit_edit_status_e ngx_ratelimit_edit_open(
    ngx_ratelimit_edit_work_t *work, ngx_uint_t takes);
static ngx_int_t ngx_ratelimit_edit_query(ngx_ratelimit_edit_work_t *work);
static ngx_int_t ngx_ratelimit_edit_decode(ngx_pool_t *pool, const u_char *p,
    const u_char *last, ngx_str_t *text);
static ngx_ratelimit_edit_status_e ngx_ratelimit_edit_compile(
    ngx_ratelimit_edit_work_t *work, const ngx_ratelimit_edit_row_t *row);
static void ngx_ratelimit_edit_compile_known(ngx_ratelimit_edit_work_t *work,
    ngx_uint_t *deny_all);
static ngx_int_t ngx_ratelimit_edit_version(
    ngx_ratelimit_edit_work_t *work);
static ngx_int_t ngx_ratelimit_edit_compare(
    ngx_ratelimit_edit_work_t *work);
static ngx_ratelimit_edit_status_e ngx_ratelimit_edit_answer(
    ngx_ratelimit_edit_work_t *work, const ngx_ratelimit_edit_row_t *row);

static ngx_ratelimit_edit_status_e ngx_ratelimit_edit_document_put(
    ngx_ratelimit_edit_work_t *work);
static json_t *ngx_ratelimit_edit_valid_show(ngx_ratelimit_edit_work_t *work);
static json_t *ngx_ratelimit_edit_warnings(
    const ngx_ratelimit_problems_t *warnings);
static ngx_int_t ngx_ratelimit_edit_warning(json_t *list, const char *pointer,
    const char *detail);


#define row(resource, named, method, takes, change, show)                     \
    { NGX_RATELIMIT_EDIT_##resource, NGX_RATELIMIT_EDIT_##named,              \
      NGX_RATELIMIT_EDIT_##method, takes, change, show }

#define BASE   NGX_RATELIMIT_EDIT_BASE
#define BODY   (NGX_RATELIMIT_EDIT_BASE|NGX_RATELIMIT_EDIT_BODY)
#define MAYBE  (NGX_RATELIMIT_EDIT_BASE|NGX_RATELIMIT_EDIT_MAYBE)

static const ngx_ratelimit_edit_row_t  ngx_ratelimit_edit_rows[] = {

    /* these take no base, so that one that cannot be read can be replaced */
    row(DOCUMENT, ALL, GET, 0, NULL, NULL),
    row(DOCUMENT, ALL, PUT, NGX_RATELIMIT_EDIT_BODY,
        ngx_ratelimit_edit_document_put, NULL),
    row(VALIDATE, ALL, POST, NGX_RATELIMIT_EDIT_BODY,
        ngx_ratelimit_edit_document_put, ngx_ratelimit_edit_valid_show),

    row(RULE, NAMED, GET, BASE, NULL, ngx_ratelimit_edit_rule_show),
    row(RULE, NAMED, PUT, BODY, ngx_ratelimit_edit_rule_put,
        ngx_ratelimit_edit_rule_show),
    row(RULE, NAMED, PATCH, BODY, ngx_ratelimit_edit_rule_patch,
        ngx_ratelimit_edit_rule_show),
    row(RULE, NAMED, DELETE, BASE, ngx_ratelimit_edit_rule_delete, NULL),

    row(TIER, NAMED, GET, BASE, NULL, ngx_ratelimit_edit_tier_show),
    row(TIER, NAMED, PUT, BODY, ngx_ratelimit_edit_tier_put,
        ngx_ratelimit_edit_tier_show),
    row(TIER, NAMED, DELETE, BASE, ngx_ratelimit_edit_tier_delete, NULL),

    row(TIER_OF, ALL, GET, BASE, NULL, ngx_ratelimit_edit_tiers_of_show),
    row(TIER_OF, ALL, PATCH, BODY, ngx_ratelimit_edit_tiers_of_patch,
        ngx_ratelimit_edit_tiers_of_show),
    row(TIER_OF, NAMED, GET, BASE, NULL, ngx_ratelimit_edit_tier_of_show),
    row(TIER_OF, NAMED, PUT, BODY, ngx_ratelimit_edit_tier_of_put,
        ngx_ratelimit_edit_tier_of_show),
    row(TIER_OF, NAMED, DELETE, BASE, ngx_ratelimit_edit_tier_of_delete, NULL),

    row(OVERRIDES, ALL, GET, BASE, NULL, ngx_ratelimit_edit_overrides_show),
    row(OVERRIDES, ALL, POST, BODY, ngx_ratelimit_edit_override_post,
        ngx_ratelimit_edit_override_posted),
    row(OVERRIDES, NAMED, GET, BASE, NULL, ngx_ratelimit_edit_override_show),
    row(OVERRIDES, NAMED, PUT, BODY, ngx_ratelimit_edit_override_put,
        ngx_ratelimit_edit_override_show),
    row(OVERRIDES, NAMED, DELETE, BASE, ngx_ratelimit_edit_override_delete,
        NULL),

    row(WHITELIST, ALL, GET, BASE, NULL, ngx_ratelimit_edit_list_show),
    row(WHITELIST, ALL, PUT, BODY, ngx_ratelimit_edit_list_put,
        ngx_ratelimit_edit_list_show),
    row(WHITELIST, ALL, POST, BODY, ngx_ratelimit_edit_list_post,
        ngx_ratelimit_edit_list_show),
    row(WHITELIST, ALL, DELETE, MAYBE, ngx_ratelimit_edit_list_delete, NULL),

    row(BLACKLIST, ALL, GET, BASE, NULL, ngx_ratelimit_edit_list_show),
    row(BLACKLIST, ALL, PUT, BODY, ngx_ratelimit_edit_list_put,
        ngx_ratelimit_edit_list_show),
    row(BLACKLIST, ALL, POST, BODY, ngx_ratelimit_edit_list_post,
        ngx_ratelimit_edit_list_show),
    row(BLACKLIST, ALL, DELETE, MAYBE, ngx_ratelimit_edit_list_delete, NULL)
};

#undef row
#undef BASE
#undef BODY
#undef MAYBE

/* what there is before anybody has written */
static const ngx_str_t  ngx_ratelimit_edit_empty =
    ngx_string("{\"version\":0,\"rules\":[]}\n");


void
ngx_ratelimit_edit(ngx_ratelimit_edit_t *edit)
{
    ngx_ratelimit_edit_work_t        work;
    const ngx_ratelimit_edit_row_t  *row;

    edit->status = NGX_RATELIMIT_EDIT_ERROR;
    ngx_str_null(&edit->reply);
    ngx_str_null(&edit->document);
    edit->policy = NULL;

    if (ngx_ratelimit_problems_init(&edit->problems, edit->pool) != NGX_OK
        || ngx_ratelimit_problems_init(&edit->warnings, edit->pool) != NGX_OK)
    {
        return;
    }

    row = ngx_ratelimit_edit_row(edit);

    if (row == NULL) {
        edit->status = NGX_RATELIMIT_EDIT_NOT_FOUND;
        return;
    }

    ngx_memzero(&work, sizeof(ngx_ratelimit_edit_work_t));
    work.edit = edit;

    edit->status = ngx_ratelimit_edit_run(&work, row);

    if (edit->policy && edit->status > NGX_RATELIMIT_EDIT_GONE) {
        ngx_ratelimit_policy_release(edit->policy);
        edit->policy = NULL;
    }

    json_decref(work.root);
    json_decref(work.body);
    json_decref(work.names);
}


static const ngx_ratelimit_edit_row_t *
ngx_ratelimit_edit_row(const ngx_ratelimit_edit_t *edit)
{
    ngx_uint_t                       i, n;
    const ngx_ratelimit_edit_row_t  *row;

    n = sizeof(ngx_ratelimit_edit_rows) / sizeof(ngx_ratelimit_edit_rows[0]);

    for (i = 0; i < n; i++) {
        row = &ngx_ratelimit_edit_rows[i];

        if (row->resource == edit->resource && row->method == edit->method
            && row->named == (edit->name.len ? NGX_RATELIMIT_EDIT_NAMED
                                             : NGX_RATELIMIT_EDIT_ALL))
        {
            return row;
        }
    }

    return NULL;
}


static ngx_ratelimit_edit_status_e
ngx_ratelimit_edit_run(ngx_ratelimit_edit_work_t *work,
    const ngx_ratelimit_edit_row_t *row)
{
    ngx_ratelimit_edit_status_e   status, rc;

    status = ngx_ratelimit_edit_open(work, row->takes);

    if (status != NGX_RATELIMIT_EDIT_OK) {
        return status;
    }

    if (row->change) {
        status = row->change(work);

        if (status > NGX_RATELIMIT_EDIT_GONE) {
            return status;
        }

        rc = work->same ? NGX_RATELIMIT_EDIT_OK
                        : ngx_ratelimit_edit_compile(work, row);

        if (rc != NGX_RATELIMIT_EDIT_OK) {
            return rc;
        }
    }

    rc = ngx_ratelimit_edit_answer(work, row);

    if (work->same && status == NGX_RATELIMIT_EDIT_CREATED) {
        status = NGX_RATELIMIT_EDIT_OK;
    }

    return (rc == NGX_RATELIMIT_EDIT_OK) ? status : rc;
}


/* Reads what the edit is made of. */
static ngx_ratelimit_edit_status_e
ngx_ratelimit_edit_open(ngx_ratelimit_edit_work_t *work, ngx_uint_t takes)
{
    ngx_ratelimit_edit_t  *edit;

    edit = work->edit;

    /* with a zero byte behind it, as jansson has names */

    if (ngx_ratelimit_edit_join(edit->pool, &edit->name, &edit->name, NULL, 0)
        != NGX_OK
        || ngx_ratelimit_edit_query(work) != NGX_OK)
    {
        return NGX_RATELIMIT_EDIT_ERROR;
    }

    if ((takes & NGX_RATELIMIT_EDIT_BODY)
        || ((takes & NGX_RATELIMIT_EDIT_MAYBE) && edit->body.len))
    {
        work->body = ngx_ratelimit_document_parse(&edit->body,
                                                  &edit->problems);
        if (work->body == NULL) {
            return edit->problems.n ? NGX_RATELIMIT_EDIT_INVALID
                                    : NGX_RATELIMIT_EDIT_ERROR;
        }
    }

    if (!(takes & NGX_RATELIMIT_EDIT_BASE)) {
        return NGX_RATELIMIT_EDIT_OK;
    }

    work->root = ngx_ratelimit_document_parse(
                     edit->base.len ? &edit->base : &ngx_ratelimit_edit_empty,
                     &edit->problems);

    if (work->root == NULL) {
        work->outside = 1;
        ngx_ratelimit_edit_translate(work, &edit->problems, 0);

        return edit->problems.n ? NGX_RATELIMIT_EDIT_INVALID
                                : NGX_RATELIMIT_EDIT_ERROR;
    }

    return (ngx_ratelimit_edit_expire(work) == NGX_OK)
           ? NGX_RATELIMIT_EDIT_OK : NGX_RATELIMIT_EDIT_ERROR;
}


/* "?rule=orders&key=sk_1": of each the first. */
static ngx_int_t
ngx_ratelimit_edit_query(ngx_ratelimit_edit_work_t *work)
{
    u_char     *p, *next, *last;
    ngx_str_t  *text;

    if (work->edit->query.len == 0) {
        return NGX_OK;
    }

    p = work->edit->query.data;
    last = p + work->edit->query.len;

    for ( /* void */ ; p < last; p = next + 1) {

        next = ngx_strlchr(p, last, '&');
        if (next == NULL) {
            next = last;
        }

        if (next - p > 5 && ngx_strncmp(p, "rule=", 5) == 0) {
            text = &work->rule;
            p += 5;

        } else if (next - p > 4 && ngx_strncmp(p, "key=", 4) == 0) {
            text = &work->key;
            p += 4;

        } else {
            continue;
        }

        if (text->len == 0
            && ngx_ratelimit_edit_decode(work->edit->pool, p, next, text)
               != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* A "%" without two digits behind it stands for itself. */
static ngx_int_t
ngx_ratelimit_edit_decode(ngx_pool_t *pool, const u_char *p,
    const u_char *last, ngx_str_t *text)
{
    u_char     *out;
    ngx_int_t   ch;

    out = ngx_pnalloc(pool, last - p);
    if (out == NULL) {
        return NGX_ERROR;
    }

    text->data = out;

    while (p < last) {
        ch = NGX_ERROR;

        if (*p == '%' && last - p > 2) {
            ch = ngx_hextoi((u_char *) p + 1, 2);
        }

        *out++ = (ch == NGX_ERROR) ? *p : (u_char) ch;
        p += (ch == NGX_ERROR) ? 1 : 3;
    }

    text->len = out - text->data;

    return NGX_OK;
}


static ngx_ratelimit_edit_status_e
ngx_ratelimit_edit_compile(ngx_ratelimit_edit_work_t *work,
    const ngx_ratelimit_edit_row_t *row)
{
    ngx_uint_t             first, deny_all;
    ngx_ratelimit_edit_t  *edit;

    edit = work->edit;

    if (json_is_object(work->root)
        && ngx_ratelimit_edit_version(work) != NGX_OK)
    {
        return NGX_RATELIMIT_EDIT_ERROR;
    }

    /* those that there are already are at places of the body */

    first = edit->problems.list.nelts;
    deny_all = 0;

    edit->policy = ngx_ratelimit_document_read(edit->limiter, work->root,
                                               edit->clear, &edit->problems,
                                               &edit->warnings, &deny_all,
                                               edit->pool->log);

    ngx_ratelimit_edit_translate(work, &edit->problems, first);

    if (edit->problems.n && (row->takes & NGX_RATELIMIT_EDIT_BASE)
        && ngx_ratelimit_edit_all_outside(&edit->problems))
    {
        ngx_ratelimit_edit_compile_known(work, &deny_all);
    }

    ngx_ratelimit_edit_translate(work, &edit->warnings, 0);

    if (edit->problems.n) {
        return NGX_RATELIMIT_EDIT_INVALID;
    }

    if (edit->policy == NULL) {
        return NGX_RATELIMIT_EDIT_ERROR;
    }

    work->deny_all = deny_all;

    return (deny_all && !edit->force) ? NGX_RATELIMIT_EDIT_DENY_ALL
                                      : NGX_RATELIMIT_EDIT_OK;
}


/*
 * What is wrong was wrong before: a rule that does not go with this gateway's
 * nginx.conf must not keep anybody from changing another one, or the lists.
 */
static void
ngx_ratelimit_edit_compile_known(ngx_ratelimit_edit_work_t *work,
    ngx_uint_t *deny_all)
{
    ngx_ratelimit_edit_t      *edit;
    ngx_ratelimit_policy_t    *before;
    ngx_ratelimit_problems_t   problems, next;

    edit = work->edit;

    if (ngx_ratelimit_problems_init(&problems, edit->pool) != NGX_OK
        || ngx_ratelimit_problems_init(&next, edit->pool) != NGX_OK)
    {
        return;
    }

    before = ngx_ratelimit_document_compile(edit->limiter, &edit->base,
                                            &problems, NULL, edit->pool->log);
    if (before == NULL) {
        return;
    }

    edit->warnings.n = 0;
    edit->warnings.list.nelts = 0;

    edit->policy = ngx_ratelimit_document_read_next(edit->limiter, work->root,
                                                    edit->clear, &next,
                                                    &edit->warnings, deny_all,
                                                    &before->skipped,
                                                    edit->pool->log);
    if (edit->policy) {
        edit->problems = next;
    }

    ngx_ratelimit_policy_release(before);
}


/*
 * The version of what is made. One that the body gives is no more than a
 * number: what it must be, If-Match says. It stands first.
 */
static ngx_int_t
ngx_ratelimit_edit_version(ngx_ratelimit_edit_work_t *work)
{
    int      rc;
    json_t  *given, *root, *version;

    given = json_object_get(work->root, "version");

    if (given && !json_is_number(given)) {
        return NGX_OK;     /* a problem, for who reads it */
    }

    root = json_object();
    version = json_integer((json_int_t) work->edit->version + 1);

    rc = (root == NULL || version == NULL
          || json_object_set(root, "version", version) != 0
          || json_object_update(root, work->root) != 0
          || json_object_set(root, "version", version) != 0);

    json_decref(version);

    if (rc) {
        json_decref(root);
        return NGX_ERROR;
    }

    json_decref(work->root);
    work->root = root;

    return NGX_OK;
}


static ngx_ratelimit_edit_status_e
ngx_ratelimit_edit_answer(ngx_ratelimit_edit_work_t *work,
    const ngx_ratelimit_edit_row_t *row)
{
    json_t                *shown;
    ngx_int_t              rc;
    ngx_ratelimit_edit_t  *edit;

    edit = work->edit;

    if (row->show) {
        shown = row->show(work);
        if (shown == NULL) {
            return work->missing ? NGX_RATELIMIT_EDIT_NOT_FOUND
                                 : NGX_RATELIMIT_EDIT_ERROR;
        }

        rc = ngx_ratelimit_document_write(shown, edit->pool, &edit->reply);
        json_decref(shown);

        if (rc != NGX_OK) {
            return NGX_RATELIMIT_EDIT_ERROR;
        }
    }

    if (row->change && !work->same
        && ngx_ratelimit_edit_compare(work) != NGX_OK)
    {
        return NGX_RATELIMIT_EDIT_ERROR;
    }

    if (row->change && !work->same) {

        if (ngx_ratelimit_document_write(work->root, edit->pool,
                                         &edit->document)
            != NGX_OK)
        {
            ngx_str_null(&edit->document);
            return NGX_RATELIMIT_EDIT_ERROR;
        }

        if (edit->document.len > NGX_RATELIMIT_DOCUMENT_MAX) {
            ngx_str_null(&edit->document);
            return NGX_RATELIMIT_EDIT_TOO_LARGE;
        }

        if (row->resource == NGX_RATELIMIT_EDIT_VALIDATE) {
            ngx_str_null(&edit->document);
        }
    }

    if (row->resource == NGX_RATELIMIT_EDIT_DOCUMENT) {
        edit->reply = (row->change && !work->same) ? edit->document
                                                   : edit->base;

        if (edit->reply.len == 0) {
            edit->reply = ngx_ratelimit_edit_empty;
        }
    }

    return NGX_RATELIMIT_EDIT_OK;
}


/*
 * Sets same where the next document would be the base again, but for its
 * version: a tool that sends the same each minute does not push all else out of
 * the history. The first version is one whatever it has.
 */
static ngx_int_t
ngx_ratelimit_edit_compare(ngx_ratelimit_edit_work_t *work)
{
    json_t                    *base, *next;
    ngx_int_t                  rc;
    ngx_ratelimit_problems_t   problems;

    if (ngx_ratelimit_edit_expire(work) != NGX_OK) {
        return NGX_ERROR;
    }

    if (work->edit->base.len == 0) {
        return NGX_OK;
    }

    if (ngx_ratelimit_problems_init(&problems, work->edit->pool) != NGX_OK) {
        return NGX_ERROR;
    }

    /* one that cannot be read is replaced by any */

    base = ngx_ratelimit_document_parse(&work->edit->base, &problems);
    next = json_copy(work->root);
    rc = (next && (base || problems.n)) ? NGX_OK : NGX_ERROR;

    if (rc == NGX_OK && base) {
        (void) json_object_del(base, "version");
        (void) json_object_del(next, "version");
        work->same = json_equal(base, next);
    }

    json_decref(base);
    json_decref(next);

    return rc;
}


static ngx_ratelimit_edit_status_e
ngx_ratelimit_edit_document_put(ngx_ratelimit_edit_work_t *work)
{
    work->root = json_incref(work->body);

    return (work->edit->version == 0) ? NGX_RATELIMIT_EDIT_CREATED
                                      : NGX_RATELIMIT_EDIT_OK;
}


/* What would not be there, were it not valid. */
static json_t *
ngx_ratelimit_edit_valid_show(ngx_ratelimit_edit_work_t *work)
{
    json_t  *list;

    list = ngx_ratelimit_edit_warnings(&work->edit->warnings);

    if (work->deny_all
        && ngx_ratelimit_edit_warning(list, "", "would reject all requests")
           != NGX_OK)
    {
        json_decref(list);
        return NULL;
    }

    return json_pack("{s:b, s:o}", "valid", 1, "warnings", list);
}


static json_t *
ngx_ratelimit_edit_warnings(const ngx_ratelimit_problems_t *warnings)
{
    json_t                         *list;
    ngx_uint_t                      i;
    const ngx_ratelimit_problem_t  *warning;

    list = json_array();
    warning = warnings->list.elts;

    for (i = 0; i < warnings->list.nelts; i++) {
        if (ngx_ratelimit_edit_warning(list, (char *) warning[i].pointer.data,
                                       (char *) warning[i].detail.data)
            != NGX_OK)
        {
            json_decref(list);
            return NULL;
        }
    }

    return list;
}


static ngx_int_t
ngx_ratelimit_edit_warning(json_t *list, const char *pointer,
    const char *detail)
{
    return json_array_append_new(list, json_pack("{s:s, s:s}",
                                                 "pointer", pointer,
                                                 "detail", detail))
           == 0 ? NGX_OK : NGX_ERROR;
}
