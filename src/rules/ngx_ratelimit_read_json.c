/*
 * Reading a document's tree: members with their types and ranges, problems with
 * their places. Trees of jansson's own reader have no null bytes and
 * are valid UTF-8.
 */

#include "ngx_ratelimit_read_json.h"

#include "ngx_ratelimit_param.h"
#include "ngx_ratelimit_text.h"

#define NGX_RATELIMIT_READ_DETAIL  1024   /* bytes */

static void ngx_ratelimit_read_add(ngx_ratelimit_reader_t *reader,
    ngx_ratelimit_problems_t *problems, const ngx_ratelimit_place_t *at,
    const char *detail, va_list args);
static size_t ngx_ratelimit_read_pointer(const ngx_ratelimit_place_t *at,
    u_char *out);
static void ngx_ratelimit_read_unknown(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const char *name,
    const ngx_ratelimit_member_t *table);

static ngx_uint_t ngx_ratelimit_read_known(
    const ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_problem_t *problem, const ngx_str_t *id);
static ngx_uint_t ngx_ratelimit_read_same_place(const ngx_str_t *one,
    const ngx_str_t *two);

static const struct {
    ngx_uint_t   types;
    const char  *name;
} ngx_ratelimit_types[] = {
    { NGX_RATELIMIT_IS_NUMBER, "a number" },
    { NGX_RATELIMIT_IS_TEXT, "a string" },
    { NGX_RATELIMIT_IS_BOOLEAN, "true or false" },
    { NGX_RATELIMIT_IS_ARRAY, "an array" },
    { NGX_RATELIMIT_IS_OBJECT, "an object" }
};

#define NGX_RATELIMIT_TYPES                                                   \
    (sizeof(ngx_ratelimit_types) / sizeof(ngx_ratelimit_types[0]))


void
ngx_ratelimit_read_problem(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const char *detail, ...)
{
    va_list  args;

    va_start(args, detail);
    ngx_ratelimit_read_add(reader, reader->problems, at, detail, args);
    va_end(args);
}


void
ngx_ratelimit_read_warning(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const char *detail, ...)
{
    va_list  args;

    if (reader->warnings) {
        va_start(args, detail);
        ngx_ratelimit_read_add(reader, reader->warnings, at, detail, args);
        va_end(args);
    }
}


void
ngx_ratelimit_read_wrong(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const char *in, const char *name,
    const char *detail, ...)
{
    va_list                args;
    ngx_ratelimit_place_t  object, member;

    object.up = at;
    object.name = in;
    member.up = in ? &object : at;
    member.name = name;

    va_start(args, detail);
    ngx_ratelimit_read_add(reader, reader->problems, name ? &member : at,
                           detail, args);
    va_end(args);
}


void
ngx_ratelimit_read_expected(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const char *in, const char *name,
    const char *expected)
{
    ngx_str_t  words;
    u_char     buf[NGX_RATELIMIT_READ_WORDS];

    words = ngx_ratelimit_read_words(expected, buf);

    ngx_ratelimit_read_wrong(reader, at, in, name, "expected %V", &words);
}


/* "delay=" is "delay" here, and "sync=strict" is "sync": "strict" */
ngx_str_t
ngx_ratelimit_read_words(const char *expected,
    u_char buf[NGX_RATELIMIT_READ_WORDS])
{
    u_char     *p, *last;
    ngx_str_t   words;

    p = buf;
    last = buf + NGX_RATELIMIT_READ_WORDS;

    for ( /* void */ ; *expected && p < last; expected++) {

        if (*expected != '=') {
            *p++ = (u_char) *expected;

        } else if (expected[1] != '"') {
            p = ngx_slprintf(p, last, "\": \"");
        }
    }

    words.data = buf;
    words.len = p - buf;

    return words;
}


/* Only those that are kept are written out: there may be 10,000. */
static void
ngx_ratelimit_read_add(ngx_ratelimit_reader_t *reader,
    ngx_ratelimit_problems_t *problems, const ngx_ratelimit_place_t *at,
    const char *detail, va_list args)
{
    u_char     *last, text[NGX_RATELIMIT_READ_DETAIL];
    ngx_str_t   pointer;

    if (problems->list.nelts >= NGX_RATELIMIT_MAX_PROBLEMS) {
        problems->n++;
        return;
    }

    pointer.len = ngx_ratelimit_read_pointer(at, NULL);
    pointer.data = ngx_pnalloc(problems->pool, pointer.len + 1);

    if (pointer.data == NULL) {
        reader->failed = 1;
        return;
    }

    (void) ngx_ratelimit_read_pointer(at, pointer.data);

    last = ngx_vslprintf(text, text + sizeof(text), detail, args);

    ngx_ratelimit_problem(problems, &pointer, "%*s", (size_t) (last - text),
                          text);
}


/* Writes a place as RFC 6901 has it, unless out is NULL; returns its length. */
static size_t
ngx_ratelimit_read_pointer(const ngx_ratelimit_place_t *at, u_char *out)
{
    u_char       digits[NGX_INT64_LEN + 1], ch;
    size_t       len;
    const char  *p;

    if (at->up == NULL) {
        return 0;
    }

    len = ngx_ratelimit_read_pointer(at->up, out);
    p = at->name;

    if (p == NULL) {
        *ngx_ratelimit_number_write(digits, at->number) = '\0';
        p = (const char *) digits;
    }

    if (out) {
        out[len] = '/';
    }

    for (len++; *p; p++) {
        ch = (u_char) *p;

        if (ch == '~' || ch == '/') {

            if (out) {
                out[len] = '~';
            }

            len++;
            ch = (ch == '~') ? '0' : '1';
        }

        if (out) {
            out[len] = ch;
        }

        len++;
    }

    return len;
}


void *
ngx_ratelimit_read_alloc(ngx_ratelimit_reader_t *reader, size_t size)
{
    void  *p;

    p = ngx_pcalloc(reader->pool, size);

    if (p == NULL) {
        reader->failed = 1;
    }

    return p;
}


ngx_uint_t
ngx_ratelimit_read_is(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const json_t *value, ngx_uint_t types)
{
    u_char      *p, text[NGX_RATELIMIT_READ_DETAIL];
    ngx_uint_t   i;

    if (types & (1u << json_typeof(value))) {
        return 1;
    }

    p = text;

    for (i = 0; i < NGX_RATELIMIT_TYPES; i++) {
        if (types & ngx_ratelimit_types[i].types) {
            p = ngx_slprintf(p, text + sizeof(text), "%s%s",
                             (p == text) ? "" : " or ",
                             ngx_ratelimit_types[i].name);
        }
    }

    ngx_ratelimit_read_problem(reader, at, "expected %*s",
                               (size_t) (p - text), text);

    return 0;
}


uint64_t
ngx_ratelimit_read_members(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *object,
    const ngx_ratelimit_member_t *table, void *data)
{
    void                          *iter;
    size_t                         known;
    json_t                        *value;
    uint64_t                       has;
    ngx_ratelimit_place_t          place;
    const ngx_ratelimit_member_t  *m;

    has = 0;
    known = 0;
    place.up = at;

    for (m = table; m->name && !reader->failed; m++) {

        value = json_object_get(object, m->name);
        if (value == NULL) {
            continue;
        }

        known++;

        if (json_is_null(value)) {
            continue;
        }

        has |= (uint64_t) 1 << (m - table);
        place.name = m->name;

        if (ngx_ratelimit_read_is(reader, &place, value, m->types) && m->read) {
            m->read(reader, &place, value, data);
        }
    }

    if (known == json_object_size(object)) {
        return has;
    }

    for (iter = json_object_iter(object);
         iter;
         iter = json_object_iter_next(object, iter))
    {
        ngx_ratelimit_read_unknown(reader, at, json_object_iter_key(iter),
                                   table);
    }

    return has;
}


void
ngx_ratelimit_read_missing(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const ngx_ratelimit_member_t *table,
    uint64_t has, uint64_t needed)
{
    ngx_uint_t  i;

    needed &= ~has;

    for (i = 0; needed >> i; i++) {
        if ((needed >> i) & 1) {
            ngx_ratelimit_read_wrong(reader, at, NULL, table[i].name,
                                     "is missing");
        }
    }
}


ngx_uint_t
ngx_ratelimit_read_skip(ngx_ratelimit_reader_t *reader, ngx_uint_t n,
    const ngx_str_t *id)
{
    ngx_ratelimit_problem_t   *problem;
    ngx_ratelimit_problems_t  *problems;

    problems = reader->problems;

    if (problems->n == n || reader->inside
        || (reader->written && reader->known == NULL))
    {
        return 0;
    }

    if (problems->list.nelts <= n) {
        reader->failed = 1;     /* no memory for what is to be said */
        return 1;
    }

    problem = problems->list.elts;
    problem += n;

    if (reader->written && !ngx_ratelimit_read_known(reader, problem, id)) {
        return 0;
    }

    ngx_ratelimit_policy_skip(reader->policy, id, &problem->pointer,
                              &problem->detail);
    problems->n = n;
    problems->list.nelts = n;

    return 1;
}


/* Lists and assignments do not depend on nginx.conf: theirs never are. */
static ngx_uint_t
ngx_ratelimit_read_known(const ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_problem_t *problem, const ngx_str_t *id)
{
    ngx_uint_t                      i;
    const ngx_ratelimit_problem_t  *known;

    static const ngx_str_t          none = ngx_null_string;

    id = id ? id : &none;
    known = reader->known->list.elts;

    for (i = 0; i < reader->known->list.nelts; i++) {

        if ((ngx_strncmp(problem->pointer.data, "/rules/", 7) == 0
             || ngx_strncmp(problem->pointer.data, "/overrides/", 11) == 0)
            && ngx_ratelimit_read_same_place(&known[i].pointer,
                                             &problem->pointer)
            && ngx_ratelimit_equal(&known[i].detail, &problem->detail)
            && ngx_ratelimit_equal(&known[i].id, id))
        {
            return 1;
        }
    }

    return 0;
}


/* "/rules/1/key" and "/rules/2/key": rules before it may come and go. */
static ngx_uint_t
ngx_ratelimit_read_same_place(const ngx_str_t *one, const ngx_str_t *two)
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


ngx_uint_t
ngx_ratelimit_read_few(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const char *name, const json_t *value,
    size_t max)
{
    size_t  n;

    n = json_array_size(value) + json_object_size(value);

    if (n <= max) {
        return 1;
    }

    ngx_ratelimit_read_wrong(reader, at, NULL, name, "has %uz entries, "
                             "expected at most %uz", n, max);
    return 0;
}


/* Unless the table has it. */
static void
ngx_ratelimit_read_unknown(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const char *name,
    const ngx_ratelimit_member_t *table)
{
    u_char                        *p, text[NGX_RATELIMIT_READ_DETAIL];
    ngx_ratelimit_place_t          place;
    const ngx_ratelimit_member_t  *m;

    p = text;

    for (m = table; m->name; m++) {

        if (ngx_strcmp(m->name, name) == 0) {
            return;
        }

        p = ngx_slprintf(p, text + sizeof(text), "%s\"%s\"",
                         (m == table) ? "" : ", ", m->name);
    }

    place.up = at;
    place.name = name;

    if (reader->newer) {
        ngx_ratelimit_read_warning(reader, &place, "is not known to this "
                                   "version: it is kept, and has no effect");
        return;
    }

    ngx_ratelimit_read_problem(reader, &place,
                               "is not known, expected one of %*s",
                               (size_t) (p - text), text);
}


ngx_int_t
ngx_ratelimit_read_number(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const json_t *value, int64_t min,
    int64_t max, int64_t *number)
{
    double  real;

    if (!ngx_ratelimit_read_is(reader, at, value, NGX_RATELIMIT_IS_NUMBER)) {
        return NGX_DECLINED;
    }

    /* every range is within 2^53, where a double has all whole numbers */

    real = json_number_value(value);

    if (real < (double) min) {

        if (min == 1) {
            ngx_ratelimit_read_problem(reader, at, "must be > 0");

        } else {
            ngx_ratelimit_read_problem(reader, at, "must be at least %L", min);
        }

        return NGX_DECLINED;
    }

    if (real > (double) max) {
        ngx_ratelimit_read_problem(reader, at, "must be at most %L", max);
        return NGX_DECLINED;
    }

    *number = (int64_t) real;

    if ((double) *number < real || (double) *number > real) {
        ngx_ratelimit_read_problem(reader, at, "must be a whole number");
        return NGX_DECLINED;
    }

    return NGX_OK;
}


ngx_str_t
ngx_ratelimit_read_text(const json_t *value)
{
    ngx_str_t  text;

    text.data = (u_char *) json_string_value(value);
    text.len = json_string_length(value);

    return text;
}


ngx_str_t
ngx_ratelimit_read_copy(ngx_ratelimit_reader_t *reader, const json_t *value)
{
    ngx_str_t  text;

    text.len = json_string_length(value);
    text.data = ngx_pnalloc(reader->pool, text.len + 1);

    if (text.data == NULL) {
        reader->failed = 1;
        text.len = 0;
        return text;
    }

    ngx_memcpy(text.data, json_string_value(value), text.len + 1);

    return text;
}


ngx_uint_t
ngx_ratelimit_read_name(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const json_t *value)
{
    ngx_str_t  name;

    name = ngx_ratelimit_read_text(value);

    if (ngx_ratelimit_name_valid(name.data, name.len)) {
        return 1;
    }

    ngx_ratelimit_read_problem(reader, at, "expected 1 to 64 of A-Z, a-z, 0-9, "
                               "\"_\", \".\", \"-\"");

    return 0;
}


ngx_uint_t
ngx_ratelimit_read_tier(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const ngx_str_t *tier)
{
    if (ngx_ratelimit_tier_valid(tier)) {
        return 1;
    }

    ngx_ratelimit_read_problem(reader, at, "expected %s",
                               ngx_ratelimit_param(NGX_RATELIMIT_PARAM_TIER,
                                            NGX_RATELIMIT_OF_MATCH)->expected);

    return 0;
}


ngx_int_t
ngx_ratelimit_read_one_of(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const json_t *value,
    const char *const *names)
{
    u_char     *last, expected[NGX_RATELIMIT_READ_DETAIL];
    ngx_int_t   place;
    ngx_str_t   text;

    text = ngx_ratelimit_read_text(value);
    place = ngx_ratelimit_names_find(names, text.data, text.len);

    if (place < 0) {
        last = ngx_ratelimit_names_write(expected, expected + sizeof(expected),
                                         names);
        ngx_ratelimit_read_problem(reader, at, "expected %*s",
                                   (size_t) (last - expected), expected);
    }

    return place;
}


size_t
ngx_ratelimit_read_count(const json_t *list)
{
    return json_is_array(list) ? json_array_size(list) : 1;
}


json_t *
ngx_ratelimit_read_item(json_t *list, size_t i,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_place_t *item)
{
    if (!json_is_array(list)) {
        *item = *at;
        return list;
    }

    item->up = at;
    item->name = NULL;
    item->number = i;

    return json_array_get(list, i);
}


ngx_int_t
ngx_ratelimit_read_map(ngx_ratelimit_reader_t *reader,
    ngx_ratelimit_map_t *map, size_t n)
{
    void    *memory;
    size_t   bytes;

    bytes = ngx_ratelimit_map_bytes(n);

    memory = bytes ? ngx_palloc(reader->pool, bytes) : NULL;

    if (memory == NULL) {
        reader->failed = 1;
        return NGX_ERROR;
    }

    ngx_ratelimit_map_init(map, memory, n);

    return NGX_OK;
}
