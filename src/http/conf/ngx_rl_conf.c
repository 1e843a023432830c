/*
 * The readers of directives share this: hints (the end of a message about a
 * wrong name), zones by their name, parameters, the place of a directive, small
 * files, and directives that are a number or a choice.
 */

#include "ngx_rl_conf.h"

#include "ngx_rl_text.h"

/* names longer than this are not compared */
#define NGX_RL_HINT_MAX  32

static ngx_conf_bitmask_t  ngx_rl_header_sets[] = {
    { ngx_string("x"), NGX_RL_HEADERS_X },
    { ngx_string("draft3"), NGX_RL_HEADERS_DRAFT3 },
    { ngx_string("ietf"), NGX_RL_HEADERS_IETF },
    { ngx_string("keep"), NGX_RL_HEADERS_KEEP },
    { ngx_string("off"), NGX_RL_HEADERS_OFF },
    { ngx_null_string, 0 }
};


static void
ngx_rl_hint_init(ngx_rl_hint_t *hint, const ngx_str_t *text)
{
    hint->wrong = *text;
    hint->near.len = 0;
    hint->p = hint->list;
}


/* A parameter's name without "=" and its value. */
static ngx_str_t
ngx_rl_hint_bare(const ngx_str_t *text)
{
    ngx_str_t  bare;

    bare.data = text->data;

    for (bare.len = 0; bare.len < text->len; bare.len++) {
        if (text->data[bare.len] == '=') {
            break;
        }
    }

    return bare;
}


/*
 * How many letters must be inserted, removed or replaced, or swapped with the
 * next one, to make one text of the other (optimal string alignment).
 */
static ngx_uint_t
ngx_rl_distance(const ngx_str_t *one, const ngx_str_t *two)
{
    ngx_uint_t  i, j, n, *row;
    ngx_uint_t  d[NGX_RL_HINT_MAX + 1] [NGX_RL_HINT_MAX + 1];

#define ngx_rl_same(i, j)                                                     \
    (ngx_tolower(one->data[(i) - 1]) == ngx_tolower(two->data[(j) - 1]))

    for (j = 0; j <= two->len; j++) {
        d[0][j] = j;
    }

    for (i = 1; i <= one->len; i++) {
        row = d[i];
        row[0] = i;

        for (j = 1; j <= two->len; j++) {
            n = d[i - 1][j - 1] + !ngx_rl_same(i, j);
            n = ngx_min(n, d[i - 1][j] + 1);
            n = ngx_min(n, row[j - 1] + 1);

            if (i > 1 && j > 1 && ngx_rl_same(i, j - 1)
                && ngx_rl_same(i - 1, j))
            {
                n = ngx_min(n, d[i - 2][j - 2] + 1);
            }

            row[j] = n;
        }
    }

    return d[one->len][two->len];
}


/* One letter in three may be wrong, or one text be how the other begins. */
static ngx_uint_t
ngx_rl_hint_like(const ngx_str_t *one, const ngx_str_t *two)
{
    size_t     len;
    ngx_str_t  a, b;

    a = ngx_rl_hint_bare(one);
    b = ngx_rl_hint_bare(two);

    if (a.len == 0 || a.len > NGX_RL_HINT_MAX || b.len > NGX_RL_HINT_MAX) {
        return 0;
    }

    len = ngx_min(a.len, b.len);

    if (len > 2 && ngx_strncasecmp(a.data, b.data, len) == 0) {
        return 1;
    }

    return ngx_rl_distance(&a, &b) * 3 <= b.len;
}


static void
ngx_rl_hint_add(ngx_rl_hint_t *hint, const ngx_str_t *name)
{
    u_char  *last;

    last = hint->list + sizeof(hint->list);

    hint->p = ngx_slprintf(hint->p, last, "%s\"%V\"",
                           (hint->p == hint->list) ? "" : ", ", name);

    if (hint->wrong.len && hint->near.len == 0
        && ngx_rl_hint_like(&hint->wrong, name))
    {
        hint->near = *name;
    }
}


ngx_str_t *
ngx_rl_hint_text(ngx_rl_hint_t *hint, const char *expected)
{
    u_char  *last;

    last = hint->buf + sizeof(hint->buf);
    hint->text.data = hint->buf;

    if (hint->near.len) {
        last = ngx_slprintf(hint->buf, last, "did you mean \"%V\"?",
                            &hint->near);

    } else if (hint->p == hint->list) {
        last = ngx_slprintf(hint->buf, last, "there is none");

    } else {
        last = ngx_slprintf(hint->buf, last, "expected %s%*s", expected,
                            (size_t) (hint->p - hint->list), hint->list);
    }

    hint->text.len = last - hint->buf;

    return &hint->text;
}


void *
ngx_rl_named(const ngx_array_t *array, size_t offset, const ngx_str_t *name,
    ngx_rl_hint_t *hint)
{
    ngx_str_t   *known;
    ngx_uint_t   i;

    if (hint) {
        ngx_rl_hint_init(hint, name);
    }

    for (i = 0; i < array->nelts; i++) {
        known = (ngx_str_t *) (((u_char **) array->elts)[i] + offset);

        if (ngx_rl_equal(known, name)) {
            return ((void **) array->elts)[i];
        }

        if (hint) {
            ngx_rl_hint_add(hint, known);
        }
    }

    return NULL;
}


char *
ngx_rl_wrong(ngx_conf_t *cf, const char *fmt, ...)
{
    u_char   *last, buf[NGX_MAX_CONF_ERRSTR];
    va_list   args;

    va_start(args, fmt);
    last = ngx_vslprintf(buf, buf + sizeof(buf), fmt, args);
    va_end(args);

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"%V\" %*s", cf->args->elts,
                       (size_t) (last - buf), buf);

    return NGX_CONF_ERROR;
}


ngx_int_t
ngx_rl_wrong_at(ngx_conf_t *cf, ngx_uint_t level,
    const ngx_rl_conf_place_t *place, const char *fmt, ...)
{
    u_char   *last, buf[NGX_MAX_ERROR_STR];
    va_list   args;

    va_start(args, fmt);
    last = ngx_vslprintf(buf, buf + sizeof(buf), fmt, args);
    va_end(args);

    ngx_log_error(level, cf->log, 0, "%*s in %V:%ui", (size_t) (last - buf),
                  buf, &place->file, place->line);

    return NGX_ERROR;
}


ngx_rl_zone_conf_t *
ngx_rl_zone_find(ngx_conf_t *cf, ngx_rl_main_conf_t *conf, ngx_str_t *name,
    const char *directive, const ngx_str_t *id,
    const ngx_rl_conf_place_t *place)
{
    ngx_rl_hint_t        hint;
    ngx_rl_zone_conf_t  *zone;

    zone = ngx_rl_named(&conf->zones,
                        offsetof(ngx_rl_zone_conf_t, limiter.zone.name), name,
                        &hint);

    if (zone == NULL && id) {
        ngx_rl_wrong_at(cf, NGX_LOG_EMERG, place, "\"%s\" \"%V\" has an "
                        "unknown \"zone=%V\", %V", directive, id, name,
                        ngx_rl_hint_text(&hint, ""));

    } else if (zone == NULL) {
        ngx_rl_wrong_at(cf, NGX_LOG_EMERG, place, "\"%s\" has an unknown "
                        "\"zone=%V\", %V", directive, name,
                        ngx_rl_hint_text(&hint, ""));
    }

    return zone;
}


ngx_str_t *
ngx_rl_parameter(ngx_str_t *text, const char *name, ngx_str_t *value)
{
    size_t  len;

    len = ngx_strlen(name);

    if (text->len < len || ngx_strncmp(text->data, name, len) != 0) {
        return NULL;
    }

    *value = ngx_rl_str(text->data + len, text->len - len);

    return value;
}


const char *
ngx_rl_row_text(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
    ngx_str_t *value)
{
    ngx_str_t  *text;

    if (value->len == 0 || (row->max && value->len > row->max)) {
        return row->expected;
    }

    text = ngx_rl_row_at(target, row);
    *text = *value;

    return NULL;
}


const char *
ngx_rl_row_flag(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
    ngx_str_t *value)
{
    ngx_flag_t  *flag;

    flag = ngx_rl_row_at(target, row);
    *flag = (ngx_strcmp(value->data, "on") == 0);

    return (*flag || ngx_strcmp(value->data, "off") == 0)
           ? NULL : row->expected;
}


const ngx_rl_row_t *
ngx_rl_row_find(const ngx_rl_row_t *rows, ngx_str_t *text, ngx_str_t *value,
    ngx_rl_hint_t *hint)
{
    const ngx_rl_row_t  *row;

    ngx_rl_hint_init(hint, text);

    for (row = rows; row->name.len; row++) {

        if (ngx_rl_parameter(text, (char *) row->name.data, value)
            && (value->len == 0 || row->name.data[row->name.len - 1] == '='))
        {
            return row;
        }

        ngx_rl_hint_add(hint, &row->name);
    }

    return NULL;
}


char *
ngx_rl_rows_read(ngx_conf_t *cf, const ngx_rl_row_t *rows, void *target,
    ngx_uint_t from, const char *usage)
{
    uint64_t             seen, bit;
    ngx_str_t           *arg, value;
    ngx_uint_t           i;
    const char          *expected;
    ngx_rl_hint_t        hint;
    const ngx_rl_row_t  *row, *end;

    arg = cf->args->elts;
    seen = 0;

    for (end = rows; end->name.len; end++) { /* void */ }

    for (i = from; i < cf->args->nelts; i++) {

        row = ngx_rl_row_find(rows, &arg[i], &value, &hint);
        bit = row ? (uint64_t) 1 << (row - rows) : 0;

        if (row && !(seen & bit)) {
            expected = row->set(cf, target, row, &value);

            if (expected == NULL) {
                seen |= bit;
                continue;
            }

            if (expected[0] == '\0') {
                return NGX_CONF_ERROR;
            }

            if (usage == NULL) {
                return ngx_rl_wrong(cf, "has an invalid \"%V\", expected %s",
                                    &arg[i], expected);
            }
        }

        if (usage) {
            return ngx_rl_wrong(cf, "has an invalid parameter \"%V\", "
                                "expected %s", &arg[i], usage);
        }

        return row ? ngx_rl_wrong(cf, "has \"%V\", expected one \"%V\"",
                                  &arg[i], &row->name)
                   : ngx_rl_wrong(cf, "has an unknown parameter \"%V\", %V",
                                  &arg[i], ngx_rl_hint_text(&hint,
                                      end->expected ? end->expected : ""));
    }

    for (row = rows; row < end; row++) {
        if (row->needed && !(seen >> (row - rows) & 1)) {
            return ngx_rl_wrong(cf, "\"%V\" has no \"%V\"", &arg[1],
                                &row->name);
        }
    }

    return NGX_CONF_OK;
}


ngx_int_t
ngx_rl_push(ngx_array_t *array, void *pointer)
{
    void  **entry;

    entry = ngx_array_push(array);
    if (entry == NULL) {
        return NGX_ERROR;
    }

    *entry = pointer;

    return NGX_OK;
}


void
ngx_rl_place(ngx_conf_t *cf, ngx_rl_conf_place_t *place)
{
    ngx_str_set(&place->file, "command line");
    place->line = 0;

    if (cf->conf_file->file.fd != NGX_INVALID_FILE) {
        place->file = cf->conf_file->file.name;
        place->line = cf->conf_file->line;
    }
}


ngx_int_t
ngx_rl_file_read(ngx_conf_t *cf, ngx_str_t *name, size_t max,
    ngx_str_t *content)
{
    ssize_t     n;
    ngx_fd_t    fd;
    ngx_str_t  *value;

    value = cf->args->elts;

    if (ngx_conf_full_name(cf->cycle, name, 1) != NGX_OK) {
        return NGX_ERROR;
    }

    fd = ngx_open_file(name->data, NGX_FILE_RDONLY, NGX_FILE_OPEN, 0);

    if (fd == NGX_INVALID_FILE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_open_file_n " \"%V\" failed in \"%V\"", name,
                           &value[0]);
        return NGX_ERROR;
    }

    content->data = ngx_alloc(max + 1, cf->log);
    n = -1;

    if (content->data) {
        n = ngx_read_fd(fd, content->data, max + 1);

        if (n == -1) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                               ngx_read_fd_n " \"%V\" failed in \"%V\"", name,
                               &value[0]);
            ngx_free(content->data);
        }
    }

    if (ngx_close_file(fd) == NGX_FILE_ERROR) {
        ngx_conf_log_error(NGX_LOG_ALERT, cf, ngx_errno,
                           ngx_close_file_n " \"%V\" failed", name);
    }

    content->len = n;

    return (n == -1) ? NGX_ERROR : NGX_OK;
}


void
ngx_rl_file_free(ngx_str_t *content)
{
    ngx_explicit_memzero(content->data, content->len);
    ngx_free(content->data);
}


/* ratelimit_headers x | draft3 | ietf ... [keep] | off */
char *
ngx_rl_set_headers(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_loc_conf_t *rlcf = conf;

    ngx_str_t           *value;
    ngx_uint_t           i, sets;
    ngx_conf_bitmask_t  *set;

    if (rlcf->headers != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;
    sets = 0;

    for (i = 1; i < cf->args->nelts; i++) {

        for (set = ngx_rl_header_sets; set->name.len; set++) {
            if (ngx_rl_equal(&value[i], &set->name)) {
                break;
            }
        }

        if (set->name.len == 0) {
            return ngx_rl_wrong(cf, "has an invalid \"%V\", expected \"x\", "
                "\"draft3\", \"ietf\", \"keep\" or \"off\"", &value[i]);
        }

        if (set->mask == NGX_RL_HEADERS_OFF && cf->args->nelts != 2) {
            return ngx_rl_wrong(cf, "has \"off\" and other values, expected "
                                "\"off\" alone");
        }

        if (sets & set->mask) {
            return ngx_rl_wrong(cf, "has \"%V\", expected one \"%V\"",
                                &value[i], &value[i]);
        }

        sets |= set->mask;
    }

    if (sets == NGX_RL_HEADERS_KEEP) {
        return ngx_rl_wrong(cf, "has \"keep\" alone, expected \"x\", "
                            "\"draft3\" or \"ietf\" beside it");
    }

    rlcf->headers = sets;

    return NGX_CONF_OK;
}


/* One of the values of cmd->post, as ngx_conf_set_enum_slot() has it. */
char *
ngx_rl_set_enum(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t        *value;
    ngx_uint_t       *field;
    ngx_conf_enum_t  *e;
    ngx_rl_hint_t     hint;

    field = (ngx_uint_t *) ((char *) conf + cmd->offset);

    if (*field != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;
    ngx_rl_hint_init(&hint, &value[1]);

    for (e = cmd->post; e->name.len; e++) {
        if (ngx_rl_equal(&value[1], &e->name)) {
            *field = e->value;
            return NGX_CONF_OK;
        }

        ngx_rl_hint_add(&hint, &e->name);
    }

    return ngx_rl_wrong(cf, "has an invalid \"%V\", %V", &value[1],
                        ngx_rl_hint_text(&hint, "one of "));
}


/* A number, as cmd->post describes it. */
char *
ngx_rl_set_number(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    size_t                  suffix;
    uint64_t                number;
    ngx_str_t              *value;
    ngx_uint_t             *field;
    const ngx_rl_number_t  *kind;

    kind = cmd->post;
    field = (ngx_uint_t *) ((char *) conf + cmd->offset);

    if (*field != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;
    suffix = ngx_strlen(kind->suffix);

    if (value[1].len < suffix
        || ngx_memcmp(value[1].data + value[1].len - suffix, kind->suffix,
                      suffix)
           != 0
        || ngx_rl_number_parse(value[1].data, value[1].len - suffix,
                               kind->min, kind->max, &number)
           != 0)
    {
        return ngx_rl_wrong(cf, "has an invalid \"%V\", expected %s", &value[1],
                            kind->expected);
    }

    *field = (ngx_uint_t) number;

    return NGX_CONF_OK;
}
