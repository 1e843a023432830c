/*
 * The editor of documents. A resource is a row of a table, and a method is one
 * function for all rows. The editor only moves JSON. The reader of documents
 * then checks the whole result, so no edit makes a document that is not valid.
 */

#include "ngx_rl_edit_json.h"

#include "ngx_rl_record.h"

/* the document before the first version */
static const ngx_str_t  ngx_rl_edit_empty =
    ngx_string("{\"version\":0,\"rules\":[]}\n");


/*
 * The document with the number of its next version, which stands first. A
 * number in a body says nothing. Another type is left for the reader.
 */
static void
ngx_rl_edit_version(ngx_rl_edit_work_t *work, json_t *root)
{
    json_t      *given;
    json_int_t   next;

    given = json_object_get(root, "version");
    next = (json_int_t) work->edit->version + 1;

    if (!json_is_object(root) || (given && !json_is_number(given))) {
        work->root = json_incref(root);
        return;
    }

    work->root = json_pack("{s:I}", "version", next);
    work->failed |= json_object_update(work->root, root);
    work->failed |= json_object_set_new(work->root, "version",
                                        json_integer(next));
}


/* Reads the body and the base, and finds the slots. */
static ngx_rl_edit_status_e
ngx_rl_edit_open(ngx_rl_edit_work_t *work)
{
    size_t          i;
    json_t         *root, *rule;
    ngx_str_t       base;
    ngx_rl_edit_t  *edit;

    edit = work->edit;

    if (edit->method == NGX_RL_EDIT_DELETE
        ? edit->body.len && edit->name.len == 0
        : edit->method != NGX_RL_EDIT_GET)
    {
        work->body = ngx_rl_document_parse(&edit->body, &edit->problems);
        if (work->body == NULL) {
            work->failed = (edit->problems.n == 0);
            return NGX_RL_EDIT_INVALID;
        }

        if (edit->resource == NGX_RL_EDIT_RULE) {
            work->failed |= ngx_rl_document_rename(work->body, 1);
        }

        if (edit->resource == NGX_RL_EDIT_RULES) {
            json_array_foreach(work->body, i, rule) {
                work->failed |= ngx_rl_document_rename(rule, 1);
            }
        }
    }

    /* a document that cannot be read can be replaced */

    if (work->row->collection == NULL) {
        ngx_rl_edit_version(work, work->body);
        return work->body ? NGX_RL_EDIT_OK : NGX_RL_EDIT_NOT_FOUND;
    }

    base = edit->base.len ? edit->base : ngx_rl_edit_empty;
    root = ngx_rl_document_parse(&base, &edit->problems);

    if (root == NULL) {
        work->failed = (edit->problems.n == 0);
        return NGX_RL_EDIT_INVALID;
    }

    ngx_rl_edit_version(work, root);
    json_decref(root);

    ngx_rl_edit_expire(work);
    work->row->find(work);

    return NGX_RL_EDIT_OK;
}


/* Follows a problem's pointer through the document. */
static ngx_uint_t
ngx_rl_edit_place(ngx_rl_edit_work_t *work, ngx_rl_problem_t *problem)
{
    u_char              *p, *last, *name, *to;
    json_t              *node, *above;
    ngx_str_t            id;
    ngx_uint_t           i, touched;
    ngx_rl_edit_slot_t  *slot;

    slot = work->slots.elts;
    node = work->root;
    p = problem->pointer.data;
    last = p + problem->pointer.len;
    touched = 0;

    name = ngx_pnalloc(work->edit->pool, problem->pointer.len + 1);
    if (name == NULL) {
        work->failed = 1;
        return 1;
    }

    while (p < last && node) {

        /* "~1" is "/", "~0" is "~" */

        for (p++, to = name; p < last && *p != '/'; p++) {
            *to++ = (*p != '~') ? *p : (*++p == '1') ? '/' : '~';
        }

        above = node;
        node = json_is_array(above)
               ? json_array_get(above, ngx_atoi(name, to - name))
               : json_object_getn(above, (char *) name, to - name);

        for (i = 0; i < work->slots.nelts; i++) {
            touched |= (node && slot[i].value == node);
        }

        id = ngx_rl_edit_text(json_object_get(node, "id"));

        if (json_is_array(above) && problem->id.len == 0 && id.len) {
            problem->id.data = ngx_pstrdup(work->edit->pool, &id);
            problem->id.len = problem->id.data ? id.len : 0;
        }
    }

    return touched;
}


/*
 * Adds the ids of rules and overrides to problems. Returns whether one of the
 * problems is in what the edit has set.
 */
static ngx_uint_t
ngx_rl_edit_places(ngx_rl_edit_work_t *work, ngx_rl_problems_t *problems)
{
    ngx_uint_t         i, touched;
    ngx_rl_problem_t  *problem;

    problem = problems->list.elts;
    touched = (problems->n > problems->list.nelts);

    for (i = 0; i < problems->list.nelts; i++) {
        touched |= ngx_rl_edit_place(work, &problem[i]);
    }

    return touched;
}


/*
 * The problems may be older than the edit. A rule that does not go with this
 * gateway's nginx.conf must not keep anybody from changing another one, or the
 * lists.
 */
static void
ngx_rl_edit_compile_known(ngx_rl_edit_work_t *work, ngx_uint_t *deny_all)
{
    ngx_rl_edit_t      *edit;
    ngx_rl_policy_t    *before;
    ngx_rl_problems_t   problems, next;

    edit = work->edit;

    if (ngx_rl_problems_init(&problems, edit->pool) != NGX_OK
        || ngx_rl_problems_init(&next, edit->pool) != NGX_OK)
    {
        return;
    }

    before = ngx_rl_document_compile(edit->limiter, &edit->base,
                                     &problems, NULL, edit->pool->log);
    if (before == NULL) {
        return;
    }

    edit->warnings.n = 0;
    edit->warnings.list.nelts = 0;

    edit->policy = ngx_rl_document_read(edit->limiter, work->root, edit->clear,
                                        &next, &edit->warnings, deny_all,
                                        &before->skipped, edit->pool->log);
    if (edit->policy) {
        edit->problems = next;
    }

    ngx_rl_policy_release(before);
}


static ngx_rl_edit_status_e
ngx_rl_edit_compile(ngx_rl_edit_work_t *work)
{
    ngx_uint_t       deny_all;
    ngx_rl_edit_t   *edit;

    static const ngx_str_t  whole = ngx_string("");

    edit = work->edit;
    deny_all = 0;

    ngx_rl_edit_durations(work);

    edit->policy = ngx_rl_document_read(edit->limiter, work->root, edit->clear,
                                        &edit->problems, &edit->warnings,
                                        &deny_all, NULL, edit->pool->log);

    if (!ngx_rl_edit_places(work, &edit->problems)
        && edit->problems.n && work->row->collection)
    {
        ngx_rl_edit_compile_known(work, &deny_all);
    }

    (void) ngx_rl_edit_places(work, &edit->warnings);

    if (edit->problems.n) {
        return NGX_RL_EDIT_INVALID;
    }

    if (edit->policy == NULL) {
        return NGX_RL_EDIT_ERROR;
    }

    if (deny_all && !edit->force) {
        return NGX_RL_EDIT_DENY_ALL;
    }

    if (deny_all) {
        ngx_rl_problem(&edit->warnings, &whole, "would reject all requests");
    }

    return NGX_RL_EDIT_OK;
}


/*
 * Whether the version is all that is new. So a tool that sends the same rules
 * each minute does not push everything else out of the history. The first
 * version is always new.
 */
static ngx_uint_t
ngx_rl_edit_same(ngx_rl_edit_work_t *work)
{
    json_t             *base;
    ngx_uint_t          same;
    ngx_rl_problems_t   problems;

    if (work->edit->base.len == 0) {
        return 0;
    }

    work->failed |= ngx_rl_problems_init(&problems, work->edit->pool);

    if (work->failed) {
        return 0;
    }

    /* a base that cannot be read is replaced by any document */

    base = ngx_rl_document_parse(&work->edit->base, &problems);

    if (base == NULL) {
        work->failed = (problems.n == 0);
        return 0;
    }

    (void) json_object_set(base, "version",
                           json_object_get(work->root, "version"));

    same = json_equal(base, work->root);
    json_decref(base);

    return same;
}


/* Writes the next document, unless it would be the base again. */
static ngx_rl_edit_status_e
ngx_rl_edit_next(ngx_rl_edit_work_t *work)
{
    ngx_rl_edit_t  *edit;

    edit = work->edit;

    ngx_rl_edit_expire(work);

    if (ngx_rl_edit_same(work)) {
        return NGX_RL_EDIT_OK;
    }

    work->failed |= ngx_rl_document_write(work->root, edit->pool,
                                          &edit->document);

    if (edit->document.len > NGX_RL_DOCUMENT_MAX) {
        ngx_str_null(&edit->document);
        return NGX_RL_EDIT_TOO_LARGE;
    }

    if (edit->resource == NGX_RL_EDIT_VALIDATE) {
        ngx_str_null(&edit->document);
    }

    return NGX_RL_EDIT_OK;
}


/* Makes the next document, and sets edit->document unless it is the same. */
static ngx_rl_edit_status_e
ngx_rl_edit_change(ngx_rl_edit_work_t *work)
{
    ngx_rl_edit_t         *edit;
    ngx_rl_edit_status_e   status, rc;

    edit = work->edit;

    if (work->row->collection) {
        status = ngx_rl_edit_method(work);

    } else {
        status = edit->version ? NGX_RL_EDIT_OK : NGX_RL_EDIT_CREATED;
    }

    if (status > NGX_RL_EDIT_GONE || work->failed) {
        (void) ngx_rl_edit_places(work, &edit->problems);
        return status;
    }

    rc = ngx_rl_edit_compile(work);

    if (rc == NGX_RL_EDIT_OK) {
        rc = ngx_rl_edit_next(work);
    }

    return (rc == NGX_RL_EDIT_OK) ? status : rc;
}


static ngx_rl_edit_status_e
ngx_rl_edit_run(ngx_rl_edit_work_t *work)
{
    json_t                *shown;
    ngx_rl_edit_t         *edit;
    ngx_rl_edit_status_e   status;

    edit = work->edit;
    status = NGX_RL_EDIT_OK;

    /* a document that cannot be read can be shown */

    if (work->row->collection || edit->method != NGX_RL_EDIT_GET) {
        status = ngx_rl_edit_open(work);
    }

    if (status == NGX_RL_EDIT_OK && edit->method != NGX_RL_EDIT_GET) {
        status = ngx_rl_edit_change(work);
    }

    if (status >= NGX_RL_EDIT_GONE || work->failed) {
        return status;
    }

    if (edit->resource == NGX_RL_EDIT_DOCUMENT) {
        edit->reply = edit->document.len ? edit->document
                      : edit->base.len ? edit->base : ngx_rl_edit_empty;
    }

    if (work->row->collection == NULL) {
        return status;
    }

    shown = work->row->show(work);

    if (shown == NULL) {
        work->failed |= !work->missing;
        return NGX_RL_EDIT_NOT_FOUND;
    }

    work->failed |= ngx_rl_document_write(shown, edit->pool, &edit->reply);
    json_decref(shown);

    return status;
}


void
ngx_rl_edit(ngx_rl_edit_t *edit)
{
    ngx_rl_edit_work_t  work;

    ngx_memzero(&work, sizeof(ngx_rl_edit_work_t));

    work.edit = edit;
    work.row = &ngx_rl_edit_rows[edit->resource];

    edit->status = NGX_RL_EDIT_ERROR;
    ngx_str_null(&edit->reply);
    ngx_str_null(&edit->made);
    ngx_str_null(&edit->document);
    edit->policy = NULL;

    if (ngx_rl_problems_init(&edit->problems, edit->pool) != NGX_OK
        || ngx_rl_problems_init(&edit->warnings, edit->pool) != NGX_OK
        || ngx_array_init(&work.slots, edit->pool, 1,
                          sizeof(ngx_rl_edit_slot_t))
           != NGX_OK)
    {
        return;
    }

    edit->status = ngx_rl_edit_run(&work);

    if (work.failed) {
        edit->status = NGX_RL_EDIT_ERROR;
        ngx_str_null(&edit->document);
    }

    if (edit->policy && edit->status > NGX_RL_EDIT_GONE) {
        ngx_rl_policy_release(edit->policy);
        edit->policy = NULL;
    }

    json_decref(work.root);
    json_decref(work.body);
}


ngx_uint_t
ngx_rl_edit_invalid(const ngx_rl_edit_t *edit)
{
    ngx_uint_t               i;
    const ngx_rl_problem_t  *problem;

    if (edit->resource != NGX_RL_EDIT_RULE) {
        return edit->problems.n
               && (edit->resource == NGX_RL_EDIT_RULES
                   || ngx_rl_edit_rows[edit->resource].collection
                      == NULL);
    }

    problem = edit->problems.list.elts;

    for (i = 0; i < edit->problems.list.nelts; i++) {
        if (problem[i].id.len == edit->name.len
            && ngx_memcmp(problem[i].id.data, edit->name.data, edit->name.len)
               == 0)
        {
            return 1;
        }
    }

    return edit->problems.n > edit->problems.list.nelts;
}
