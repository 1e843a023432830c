/*
 * Reading a document's tree: members with their types and ranges, problems with
 * their places. Trees of jansson's own reader have no null bytes and
 * are valid UTF-8.
 */

#include "ngx_rl_read_json.h"

#include "ngx_rl_date.h"
#include "ngx_rl_param.h"
#include "ngx_rl_text.h"

#include <openssl/sha.h>

#define NGX_RL_READ_DETAIL  1024   /* bytes */

#define NGX_RL_TYPES                                                          \
    (sizeof(ngx_rl_types) / sizeof(ngx_rl_types[0]))

static const ngx_str_t  ngx_rl_read_no_rule =
    ngx_string("is no rule of this document or of nginx.conf");


static const struct {
    ngx_uint_t   types;
    const char  *name;
} ngx_rl_types[] = {
    { NGX_RL_IS_NUMBER, "a number" },
    { NGX_RL_IS_TEXT, "a string" },
    { NGX_RL_IS_BOOLEAN, "true or false" },
    { NGX_RL_IS_ARRAY, "an array" },
    { NGX_RL_IS_OBJECT, "an object" }
};


/* Writes a place as RFC 6901 has it, unless out is NULL; returns its length. */
static size_t
ngx_rl_read_pointer(const ngx_rl_place_t *at, u_char *out)
{
    u_char       digits[NGX_INT64_LEN + 1], quoted;
    size_t       len;
    const char  *p;

    if (at->up == NULL) {
        return 0;
    }

    len = ngx_rl_read_pointer(at->up, out);
    p = at->name;

    if (p == NULL) {
        *ngx_rl_number_write(digits, at->number) = '\0';
        p = (const char *) digits;
    }

    if (out) {
        out[len] = '/';
    }

    for (len++; *p; p++, len++) {
        quoted = (*p == '~') ? '0' : (*p == '/') ? '1' : '\0';

        if (out) {
            out[len] = quoted ? '~' : (u_char) *p;
            out[len + (quoted != 0)] = quoted ? quoted : (u_char) *p;
        }

        len += (quoted != 0);
    }

    return len;
}


/* Only those that are kept are written out: there may be 10,000. */
void
ngx_rl_read_add(ngx_rl_reader_t *reader, ngx_rl_problems_t *problems,
    const char *in, const char *name, const char *detail, ...)
{
    u_char                *last, text[NGX_RL_READ_DETAIL];
    va_list                args;
    ngx_str_t              pointer;
    ngx_rl_place_t         object, member;
    const ngx_rl_place_t  *at;

    if (problems == NULL) {
        return;
    }

    if (problems->list.nelts >= NGX_RL_MAX_PROBLEMS) {
        problems->n++;
        return;
    }

    object.up = reader->at;
    object.name = in;
    member.up = in ? &object : reader->at;
    member.name = name;
    at = name ? &member : reader->at;

    pointer.len = ngx_rl_read_pointer(at, NULL);
    pointer.data = ngx_pnalloc(problems->pool, pointer.len + 1);

    if (pointer.data == NULL) {
        reader->failed = 1;
        return;
    }

    (void) ngx_rl_read_pointer(at, pointer.data);

    va_start(args, detail);
    last = ngx_vslprintf(text, text + sizeof(text), detail, args);
    va_end(args);

    ngx_rl_problem(problems, NULL, &pointer, "%*s", (size_t) (last - text),
                   text);
}


/* "delay=" is "delay" here, and "sync=strict" is "sync": "strict" */
const char *
ngx_rl_read_words(const char *expected, char buf[NGX_RL_READ_WORDS])
{
    u_char  *p, *last;

    p = (u_char *) buf;
    last = p + NGX_RL_READ_WORDS - 1;

    for ( /* void */ ; *expected && p < last; expected++) {

        if (*expected != '=') {
            *p++ = (u_char) *expected;

        } else if (expected[1] != '"') {
            p = ngx_slprintf(p, last, "\": \"");
        }
    }

    *p = '\0';

    return buf;
}


void *
ngx_rl_read_alloc(ngx_rl_reader_t *reader, ngx_pool_t *pool, size_t size)
{
    void  *p;

    p = ngx_pcalloc(pool, size);

    if (p == NULL) {
        reader->failed = 1;
    }

    return p;
}


ngx_uint_t
ngx_rl_read_is(ngx_rl_reader_t *reader, const json_t *value, ngx_uint_t types)
{
    u_char      *p, text[NGX_RL_READ_DETAIL];
    ngx_uint_t   i;

    if (types & (1u << json_typeof(value))) {
        return 1;
    }

    p = text;

    for (i = 0; i < NGX_RL_TYPES; i++) {
        if (types & ngx_rl_types[i].types) {
            p = ngx_slprintf(p, text + sizeof(text), "%s%s",
                             (p == text) ? "" : " or ", ngx_rl_types[i].name);
        }
    }

    ngx_rl_read_problem(reader, "expected %*s", (size_t) (p - text), text);

    return 0;
}


/* "/rules/1/key" and "/rules/2/key": rules before it may come and go. */
static ngx_uint_t
ngx_rl_read_same_place(const ngx_str_t *one, const ngx_str_t *two)
{
    u_char  *p, *q, *p_last, *q_last;

    p = one->data;
    q = two->data;
    p_last = p + one->len;
    q_last = q + two->len;

    for ( ;; ) {

        while (p < p_last && *p >= '0' && *p <= '9') {
            p++;
        }

        while (q < q_last && *q >= '0' && *q <= '9') {
            q++;
        }

        if (p == p_last || q == q_last) {
            return p == p_last && q == q_last;
        }

        if (*p++ != *q++) {
            return 0;
        }
    }
}


/* Assignments depend on nginx.conf by the rules that they name alone. */
static ngx_uint_t
ngx_rl_read_known(const ngx_rl_reader_t *reader,
    const ngx_rl_problem_t *problem, const ngx_str_t *id)
{
    ngx_uint_t               i;
    const ngx_rl_problem_t  *known;

    static const ngx_str_t          none = ngx_null_string;

    if (ngx_strncmp(problem->pointer.data, "/tier_of/", 9) == 0
        && !ngx_rl_equal(&problem->detail, &ngx_rl_read_no_rule))
    {
        return 0;
    }

    id = id ? id : &none;
    known = reader->known->list.elts;

    for (i = 0; i < reader->known->list.nelts; i++) {

        if (ngx_rl_read_same_place(&known[i].pointer, &problem->pointer)
            && ngx_rl_equal(&known[i].detail, &problem->detail)
            && ngx_rl_equal(&known[i].id, id))
        {
            return 1;
        }
    }

    return 0;
}


ngx_uint_t
ngx_rl_read_skip(ngx_rl_reader_t *reader, ngx_uint_t n, const ngx_str_t *id)
{
    ngx_rl_problem_t   *problem;
    ngx_rl_problems_t  *problems;

    problems = reader->problems;

    if (problems->n == n || reader->inside
        || (reader->written && reader->known == NULL))
    {
        return 0;
    }

    if (problems->list.nelts <= n) {
        reader->failed = 1;     /* no memory for the problem */
        return 1;
    }

    problem = problems->list.elts;
    problem += n;

    if (reader->written && !ngx_rl_read_known(reader, problem, id)) {
        return 0;
    }

    ngx_rl_problem(&reader->policy->skipped, id, &problem->pointer, "%V",
                   &problem->detail);
    problems->n = n;
    problems->list.nelts = n;

    return 1;
}


void
ngx_rl_read_each(ngx_rl_reader_t *reader, json_t *list, ngx_uint_t types,
    ngx_rl_read_pt read, void *data)
{
    void                  *iter;
    size_t                 n;
    json_t                *value;
    ngx_uint_t             is, problems;
    ngx_rl_place_t         place;
    const ngx_rl_place_t  *at;

    at = reader->at;
    place.up = at;
    place.name = NULL;

    iter = json_object_iter(list);
    n = json_is_array(list) ? json_array_size(list)
        : json_is_object(list) ? json_object_size(list) : 1;

    for (place.number = 0;
         place.number < n && !reader->failed;
         place.number++)
    {
        value = list;

        if (json_is_array(list)) {
            value = json_array_get(list, place.number);

        } else if (iter) {
            place.name = json_object_iter_key(iter);
            value = json_object_iter_value(iter);
            iter = json_object_iter_next(list, iter);
        }

        reader->at = (value == list) ? at : &place;
        problems = reader->problems->n;

        is = ngx_rl_read_is(reader, value, types);

        if (is) {
            read(reader, value, data);
        }

        /* where problems are known, an item that may be skipped has done it */

        if (!is || reader->known == NULL) {
            (void) ngx_rl_read_skip(reader, problems, NULL);
        }
    }

    reader->at = at;
}


void
ngx_rl_read_members(ngx_rl_reader_t *reader, json_t *object,
    const ngx_rl_member_t *table, void *data)
{
    void                   *iter;
    u_char                 *at, *p, text[NGX_RL_READ_DETAIL];
    size_t                  known;
    json_t                 *value;
    const char             *name;
    ngx_rl_place_t          place;
    const ngx_rl_member_t  *m;

    known = 0;
    place.up = reader->at;
    reader->at = &place;

    for (m = table; m->name && !reader->failed; m++) {
        place.name = m->name;
        value = json_object_get(object, m->name);
        known += (value != NULL);

        if (value == NULL || json_is_null(value)
            || !ngx_rl_read_is(reader, value, m->types))
        {
            continue;
        }

        at = data ? (u_char *) data + m->offset : NULL;

        if (m->expected && json_string_length(value) == 0) {
            ngx_rl_read_problem(reader, "expected %s", m->expected);
            continue;
        }

        if (at && (m->types & NGX_RL_IS_KEPT)) {
            ngx_memcpy(at, &value, sizeof(json_t *));
        }

        if (m->most && !ngx_rl_read_few(reader, NULL, value, m->most)) {
            continue;
        }

        if (m->members) {
            ngx_rl_read_members(reader, value, m->members, data);

        } else if (m->each) {
            ngx_rl_read_each(reader, value, m->each, m->read, at);

        } else if (m->read) {
            m->read(reader, value, at);
        }
    }

    reader->at = place.up;

    for (iter = (known < json_object_size(object)) ? json_object_iter(object)
                                                   : NULL;
         iter;
         iter = json_object_iter_next(object, iter))
    {
        name = json_object_iter_key(iter);
        p = text;

        for (m = table; m->name && ngx_strcmp(m->name, name) != 0; m++) {
            p = ngx_slprintf(p, text + sizeof(text), "%s\"%s\"",
                             (m == table) ? "" : ", ", m->name);
        }

        if (m->name == NULL && reader->newer) {
            ngx_rl_read_add(reader, reader->warnings, NULL, name, "is not "
                            "known to this version: it is kept, and has no "
                            "effect");

        } else if (m->name == NULL) {
            ngx_rl_read_wrong(reader, NULL, name, "is not known, expected one "
                              "of %*s", (size_t) (p - text), text);
        }
    }

    for (m = table; m->name; m++) {
        value = json_object_get(object, m->name);

        if ((m->types & NGX_RL_IS_NEEDED)
            && (value == NULL || json_is_null(value)))
        {
            ngx_rl_read_wrong(reader, NULL, m->name, "is missing");
        }
    }
}


ngx_uint_t
ngx_rl_read_few(ngx_rl_reader_t *reader, const char *name, const json_t *value,
    size_t max)
{
    size_t  n;

    n = json_array_size(value) + json_object_size(value);

    if (n > max) {
        ngx_rl_read_wrong(reader, NULL, name, "has %uz entries, "
                          "expected at most %uz", n, max);
    }

    return n <= max;
}


ngx_int_t
ngx_rl_read_number(ngx_rl_reader_t *reader, const json_t *value, int64_t min,
    int64_t max, int64_t *number)
{
    double  real;

    if (!ngx_rl_read_is(reader, value, NGX_RL_IS_NUMBER)) {
        return NGX_DECLINED;
    }

    /* every range is within 2^53, where a double has all whole numbers */

    real = json_number_value(value);

    if (real < (double) min) {

        if (min == 1) {
            ngx_rl_read_problem(reader, "must be > 0");

        } else {
            ngx_rl_read_problem(reader, "must be at least %L", min);
        }

        return NGX_DECLINED;
    }

    if (real > (double) max) {
        ngx_rl_read_problem(reader, "must be at most %L", max);
        return NGX_DECLINED;
    }

    *number = (int64_t) real;

    if ((double) *number < real || (double) *number > real) {
        ngx_rl_read_problem(reader, "must be a whole number");
        return NGX_DECLINED;
    }

    return NGX_OK;
}


ngx_str_t
ngx_rl_document_text(const json_t *value)
{
    ngx_str_t  text;

    text.data = (u_char *) (json_is_string(value) ? json_string_value(value)
                                                  : "");
    text.len = json_string_length(value);

    return text;
}


ngx_str_t
ngx_rl_read_name(const ngx_rl_reader_t *reader)
{
    ngx_str_t  name;

    name.data = (u_char *) reader->at->name;
    name.len = ngx_strlen(name.data);

    return name;
}


void
ngx_rl_read_time(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_str_t  text;

    text = ngx_rl_document_text(value);

    if (ngx_rl_date_parse(text.data, text.len, data) != 0) {
        ngx_rl_read_problem(reader, "expected a time like "
                            "\"2026-12-01T00:00:00Z\"");
    }
}


void
ngx_rl_read_duration(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_read_problem(reader, "expected a number of seconds or a time "
                        "like \"1h30m\", at most \"366d\", and no "
                        "\"expires_at\" beside it");
}


ngx_str_t
ngx_rl_read_copy(ngx_rl_reader_t *reader, const ngx_str_t *text)
{
    ngx_str_t  copy;

    copy = ngx_rl_str(ngx_pnalloc(reader->pool, text->len + 1), text->len);

    if (copy.data == NULL) {
        reader->failed = 1;
        copy.len = 0;
        return copy;
    }

    ngx_memcpy(copy.data, text->data, text->len);
    copy.data[text->len] = '\0';

    return copy;
}


uint32_t
ngx_rl_read_find(const ngx_rl_map_t *map, const ngx_str_t *text)
{
    u_char  sha256[SHA256_DIGEST_LENGTH];

    (void) SHA256(text->data, text->len, sha256);

    return ngx_rl_map_get(map, sha256);
}


ngx_rl_rule_t *
ngx_rl_read_rule_of(ngx_rl_reader_t *reader, const ngx_str_t *id)
{
    uint32_t  number;

    number = ngx_rl_read_find(&reader->ids, id);

    if (number == NGX_RL_MAP_NONE) {
        ngx_rl_read_problem(reader, "%V", &ngx_rl_read_no_rule);
        return NULL;
    }

    return reader->rules[number];
}


ngx_uint_t
ngx_rl_read_tier(ngx_rl_reader_t *reader, const ngx_str_t *tier)
{
    if (ngx_rl_tier_valid(tier)) {
        return 1;
    }

    ngx_rl_read_problem(reader, "expected %s",
                        ngx_rl_param(NGX_RL_PARAM_TIER,
                                            NGX_RL_OF_MATCH)->expected);

    return 0;
}


ngx_int_t
ngx_rl_read_map(ngx_rl_reader_t *reader, ngx_pool_t *pool, ngx_rl_map_t *map,
    size_t n)
{
    if (ngx_rl_clients_map(map, pool, n) != NGX_OK) {
        reader->failed = 1;
        return NGX_ERROR;
    }

    return NGX_OK;
}


uint32_t
ngx_rl_read_enter(ngx_rl_map_t *map, const ngx_str_t *text, uint32_t number)
{
    u_char  sha256[SHA256_DIGEST_LENGTH];

    (void) SHA256(text->data, text->len, sha256);

    return ngx_rl_map_put(map, sha256, number);
}
