/*
 * The directives that shape an answer: its headers, its body, its status,
 * its wait, and whether its connection stays.
 */

#include "ngx_rl_conf.h"

#include "ngx_rl_text.h"

static ngx_conf_bitmask_t  ngx_rl_header_sets[] = {
    { ngx_string("x"), NGX_RL_HEADERS_X },
    { ngx_string("draft3"), NGX_RL_HEADERS_DRAFT3 },
    { ngx_string("ietf"), NGX_RL_HEADERS_IETF },
    { ngx_string("keep"), NGX_RL_HEADERS_KEEP },
    { ngx_string("off"), NGX_RL_HEADERS_OFF },
    { ngx_null_string, 0 }
};


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
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"ratelimit_headers\" has an invalid \"%V\", "
                               "expected \"x\", \"draft3\", \"ietf\", "
                               "\"keep\" or \"off\"", &value[i]);
            return NGX_CONF_ERROR;
        }

        if (set->mask == NGX_RL_HEADERS_OFF && cf->args->nelts != 2) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"ratelimit_headers\" has \"off\" and other "
                               "values, expected \"off\" alone");
            return NGX_CONF_ERROR;
        }

        if (sets & set->mask) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"ratelimit_headers\" has \"%V\", expected "
                               "one \"%V\"", &value[i], &value[i]);
            return NGX_CONF_ERROR;
        }

        sets |= set->mask;
    }

    if (sets == NGX_RL_HEADERS_KEEP) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_headers\" has \"keep\" alone, expected "
                           "\"x\", \"draft3\" or \"ietf\" beside it");
        return NGX_CONF_ERROR;
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

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"%V\" has an invalid \"%V\", %V",
                       &value[0], &value[1],
                       ngx_rl_hint_text(&hint, "one of "));

    return NGX_CONF_ERROR;
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
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" has an invalid \"%V\", expected %s",
                           &value[0], &value[1], kind->expected);
        return NGX_CONF_ERROR;
    }

    *field = (ngx_uint_t) number;

    return NGX_CONF_OK;
}
