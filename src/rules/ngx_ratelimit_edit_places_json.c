/*
 * Editing a document: what is wrong with it, at places of the body that the
 * client has sent.
 */

#include "ngx_ratelimit_edit_json.h"

#include <jansson.h>

#define NGX_RATELIMIT_EDIT_OUTSIDE   "in the document: "

static ngx_uint_t ngx_ratelimit_edit_place(ngx_ratelimit_edit_work_t *work,
    const ngx_str_t *pointer, ngx_str_t *place, size_t *len);
static ngx_uint_t ngx_ratelimit_edit_same(const ngx_str_t *one,
    const ngx_str_t *two);
static void ngx_ratelimit_edit_distinct(ngx_ratelimit_problems_t *problems);


ngx_uint_t
ngx_ratelimit_edit_places(ngx_ratelimit_edit_t *edit,
    ngx_ratelimit_problems_t *problems)
{
    ngx_ratelimit_edit_work_t   work;

    ngx_memzero(&work, sizeof(ngx_ratelimit_edit_work_t));
    work.edit = edit;

    /* a tier is of several rules, and has no expression */

    work.outside = (edit->resource == NGX_RATELIMIT_EDIT_TIER);

    ngx_ratelimit_edit_translate(&work, problems, 0);

    return !ngx_ratelimit_edit_all_outside(problems);
}


void
ngx_ratelimit_edit_translate(ngx_ratelimit_edit_work_t *work,
    ngx_ratelimit_problems_t *problems, ngx_uint_t first)
{
    size_t                    len;
    ngx_int_t                 rc;
    ngx_str_t                 place;
    ngx_uint_t                i;
    ngx_pool_t               *pool;
    ngx_ratelimit_problem_t  *problem;

    static const ngx_str_t    outside = ngx_string(NGX_RATELIMIT_EDIT_OUTSIDE);

    pool = problems->pool;
    problem = problems->list.elts;

    for (i = first; i < problems->list.nelts; i++) {

        rc = (work->place ? work->place : ngx_ratelimit_edit_place)
                 (work, &problem[i].pointer, &place, &len);

        rc = rc ? ngx_ratelimit_edit_join(pool, &problem[i].pointer, &place,
                                          problem[i].pointer.data + len,
                                          problem[i].pointer.len - len)
                : ngx_ratelimit_edit_join(pool, &problem[i].detail, &outside,
                                          problem[i].detail.data,
                                          problem[i].detail.len);
        if (rc != NGX_OK) {
            return;
        }
    }

    ngx_ratelimit_edit_distinct(problems);
}


ngx_uint_t
ngx_ratelimit_edit_all_outside(const ngx_ratelimit_problems_t *problems)
{
    ngx_uint_t                      i;
    const ngx_ratelimit_problem_t  *problem;

    problem = problems->list.elts;

    for (i = 0; i < problems->list.nelts; i++) {
        if (ngx_strncmp(problem[i].detail.data, NGX_RATELIMIT_EDIT_OUTSIDE,
                        sizeof(NGX_RATELIMIT_EDIT_OUTSIDE) - 1)
            != 0)
        {
            return 0;
        }
    }

    return problems->n == problems->list.nelts;
}


static ngx_uint_t
ngx_ratelimit_edit_place(ngx_ratelimit_edit_work_t *work,
    const ngx_str_t *pointer, ngx_str_t *place, size_t *len)
{
    json_t     *shown;
    ngx_str_t   part, member, below, name;

    part = work->edit->part;

    if (work->outside || work->edit->body.len == 0
        || pointer->len < part.len
        || (part.len && ngx_memcmp(pointer->data, part.data, part.len) != 0)
        || (pointer->len > part.len && pointer->data[part.len] != '/'))
    {
        return 0;
    }

    ngx_str_set(place, "");
    *len = part.len;

    if (work->names == NULL) {
        return 1;
    }

    /* "/override/sha256:...": a key that the body has in the clear */

    member = ngx_ratelimit_edit_segment(pointer, part.len);
    below = ngx_ratelimit_edit_segment(pointer, part.len + member.len);

    if (below.len == 0) {
        return 1;
    }

    if (ngx_ratelimit_edit_join(work->edit->pool, &name, &below, NULL, 0)
        != NGX_OK)
    {
        return 1;
    }

    shown = json_object_get(work->names, (char *) name.data + 1);

    if (shown
        && ngx_ratelimit_edit_join(work->edit->pool, place, &member,
                                   (u_char *) json_string_value(shown),
                                   json_string_length(shown))
           == NGX_OK)
    {
        *len += member.len + below.len;
    }

    return 1;
}


ngx_str_t
ngx_ratelimit_edit_segment(const ngx_str_t *pointer, size_t from)
{
    u_char     *next;
    ngx_str_t   segment;

    segment.data = pointer->data + from;
    segment.len = pointer->len - from;

    if (segment.len) {
        next = ngx_strlchr(segment.data + 1, segment.data + segment.len, '/');

        if (next) {
            segment.len = next - segment.data;
        }
    }

    return segment;
}


ngx_int_t
ngx_ratelimit_edit_join(ngx_pool_t *pool, ngx_str_t *text,
    const ngx_str_t *head, const u_char *tail, size_t len)
{
    u_char  *p;

    p = ngx_pnalloc(pool, head->len + len + 1);
    if (p == NULL) {
        return NGX_ERROR;
    }

    if (head->len) {
        ngx_memcpy(p, head->data, head->len);
    }

    if (len) {
        ngx_memcpy(p + head->len, tail, len);
    }

    p[head->len + len] = '\0';

    text->data = p;
    text->len = head->len + len;

    return NGX_OK;
}


static ngx_uint_t
ngx_ratelimit_edit_same(const ngx_str_t *one, const ngx_str_t *two)
{
    return one->len == two->len
           && (one->len == 0
               || ngx_memcmp(one->data, two->data, one->len) == 0);
}


/* One place of the body may be many of the document, wrong in the same way. */
static void
ngx_ratelimit_edit_distinct(ngx_ratelimit_problems_t *problems)
{
    ngx_uint_t                i, k, n;
    ngx_ratelimit_problem_t  *problem;

    problem = problems->list.elts;
    n = 0;

    for (i = 0; i < problems->list.nelts; i++) {

        for (k = 0; k < n; k++) {
            if (ngx_ratelimit_edit_same(&problem[k].pointer,
                                        &problem[i].pointer)
                && ngx_ratelimit_edit_same(&problem[k].detail,
                                           &problem[i].detail))
            {
                break;
            }
        }

        if (k == n) {
            problem[n++] = problem[i];
        }
    }

    if (n < problems->list.nelts) {
        problems->list.nelts = n;
        problems->n = n;
    }
}


ngx_ratelimit_edit_status_e
ngx_ratelimit_edit_problem(ngx_ratelimit_edit_work_t *work,
    const char *pointer, const char *detail)
{
    ngx_str_t  text;

    text.data = (u_char *) pointer;
    text.len = ngx_strlen(pointer);

    ngx_ratelimit_problem(&work->edit->problems, &text, "%s", detail);

    return NGX_RATELIMIT_EDIT_INVALID;
}


ngx_int_t
ngx_ratelimit_edit_escape(ngx_ratelimit_edit_work_t *work, const char *parent,
    const ngx_str_t *name, ngx_str_t *pointer)
{
    size_t   i;
    u_char  *p;

    p = ngx_pnalloc(work->edit->pool, ngx_strlen(parent) + 2 * name->len + 1);
    if (p == NULL) {
        return NGX_ERROR;
    }

    pointer->data = p;

    p = ngx_cpymem(p, parent, ngx_strlen(parent));
    *p++ = '/';

    for (i = 0; i < name->len; i++) {

        if (name->data[i] == '~' || name->data[i] == '/') {
            *p++ = '~';
            *p++ = (name->data[i] == '~') ? '0' : '1';
            continue;
        }

        *p++ = name->data[i];
    }

    pointer->len = p - pointer->data;

    return NGX_OK;
}
