/*
 * A draft takes the value of a parameter, as its row says: a text or a number.
 */

#include "ngx_rl_param.h"

#include "ngx_rl_text.h"

#define NGX_RL_NAME  "1 to 64 of A-Z, a-z, 0-9, \"_\", \".\", \"-\""


void
ngx_rl_draft_init(ngx_rl_draft_t *draft, ngx_uint_t in,
    const ngx_rl_rule_t *rule, ngx_pool_t *pool)
{
    ngx_memzero(draft, sizeof(ngx_rl_draft_t));

    if (rule) {
        draft->rule = *rule;
    }

    draft->rule.cost = 1;
    draft->rule.percent = 100;
    draft->rule.active.to = NGX_RL_DAY_MINUTES;
    draft->pool = pool;
    draft->temp = pool;
    draft->in = in;
}


const ngx_rl_param_t *
ngx_rl_param(ngx_rl_param_e id, ngx_uint_t in)
{
    const ngx_rl_param_t  *p;

    for (p = ngx_rl_params; p->id; p++) {
        if (p->id == id && (p->in & in)) {
            return p;
        }
    }

    return NULL;
}


ngx_uint_t
ngx_rl_variables_in(const ngx_str_t *text)
{
    return text->len
           && ngx_strlchr(text->data, text->data + text->len, '$') != NULL;
}


const char *
ngx_rl_param_number(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    int64_t number)
{
    u_char       *place;
    uint32_t      narrow;
    ngx_uint_t   *item;
    ngx_array_t  *list;

    if (param->flags & NGX_RL_NOTE) {
        return NULL;
    }

    place = (u_char *) draft + param->offset;

    if (param->flags & NGX_RL_LIST) {
        ngx_memcpy(&list, place, sizeof(ngx_array_t *));

        if (list == NULL) {
            list = ngx_array_create(draft->pool, 4, sizeof(ngx_uint_t));
            ngx_memcpy(place, &list, sizeof(ngx_array_t *));
        }

        item = list ? ngx_array_push(list) : NULL;
        if (item == NULL) {
            return "";
        }

        *item = (ngx_uint_t) number;
        return NULL;
    }

    if (param->kind == NGX_RL_A_TIME) {
        draft->window_us = (uint64_t) number * 1000000;
        return NULL;
    }

    if (param->size == sizeof(uint32_t)) {
        narrow = (uint32_t) number;
        ngx_memcpy(place, &narrow, sizeof(uint32_t));

    } else {
        ngx_memcpy(place, &number, sizeof(int64_t));
    }

    return NULL;
}


/* The values that a parameter has, as text in the draft or a constant one. */
static const char *
ngx_rl_param_expected(ngx_rl_draft_t *draft, const ngx_rl_param_t *param)
{
    u_char  *p, *last;

    p = draft->text;
    last = draft->text + sizeof(draft->text) - 1;

    if (param->expected) {
        return param->expected;
    }

    if (param->kind == NGX_RL_A_NAME) {
        return NGX_RL_NAME;
    }

    if (param->kind == NGX_RL_A_CHOICE) {
        p = ngx_rl_names_write(p, last, param->names);

    } else {
        p = ngx_slprintf(p, last, "a whole number from %L to %L%s%s",
                         param->min, param->max,
                         (param->flags & NGX_RL_WORD)
                         ? ", \"unlimited\"" : "",
                         (param->flags & NGX_RL_VARIABLES)
                         ? ", or a text with variables" : "");
    }

    *p = '\0';

    return (const char *) draft->text;
}


static const char *
ngx_rl_param_parse(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    const ngx_str_t *text)
{
    int64_t     number;
    uint64_t    n;
    ngx_uint_t  minus;

    /* another common name */

    static const ngx_str_t  counter = ngx_string("sliding_window_counter");

    if (param->kind == NGX_RL_A_CHOICE) {
        number = ngx_rl_names_find(param->names, text->data, text->len);

        if (param->id == NGX_RL_PARAM_ALGORITHM
            && ngx_rl_equal(&counter, text))
        {
            number = NGX_RL_SLIDING_WINDOW;
        }

        return (number < 0)
               ? ngx_rl_param_expected(draft, param)
               : ngx_rl_param_number(draft, param, param->min + number);
    }

    minus = (param->min < 0 && text->len && text->data[0] == '-');

    if (ngx_rl_number_parse(text->data + minus, text->len - minus, 0,
                            (uint64_t) param->max, &n)
        != 0)
    {
        return ngx_rl_param_expected(draft, param);
    }

    number = minus ? -(int64_t) n : (int64_t) n;

    return (number < param->min)
           ? ngx_rl_param_expected(draft, param)
           : ngx_rl_param_number(draft, param, number);
}


const char *
ngx_rl_param_text(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    if (ngx_rl_variables_in(text)) {

        /* they are compiled when all is known */

        if (param->id == NGX_RL_PARAM_COST) {
            draft->cost_text = *text;
            draft->rule.dynamic_cost = 1;
            return NULL;
        }

        if (param->flags & NGX_RL_VARIABLES) {
            draft->limit_text = *text;
            draft->rule.dynamic = 1;
            return NULL;
        }

        if ((param->flags & NGX_RL_CONSTANT) && (draft->in & NGX_RL_IN_CONF)) {
            return param->expected;
        }
    }

    if ((param->flags & NGX_RL_WORD)
        && ngx_rl_limit_word(text->data, text->len) == NGX_RL_TOKENS_ANY)
    {
        return ngx_rl_param_number(draft, param, (int64_t) NGX_RL_TOKENS_ANY);
    }

    if (param->flags & NGX_RL_NOTE) {
        return (text->len && text->len <= param->size) ? NULL : param->expected;
    }

    switch (param->kind) {

    case NGX_RL_A_NUMBER:
    case NGX_RL_A_CHOICE:
        return ngx_rl_param_parse(draft, param, text);

    case NGX_RL_A_NAME:
        if (!ngx_rl_name_valid(text->data, text->len)) {
            return NGX_RL_NAME;
        }

        break;

    default:
        if (param->set == NULL && text->len == 0) {
            return param->expected;
        }
    }

    if (param->set) {
        return param->set(draft, param, text);
    }

    ngx_memcpy((u_char *) draft + param->offset, text, sizeof(ngx_str_t));

    return NULL;
}


int64_t
ngx_rl_param_stored(const ngx_rl_draft_t *draft, const ngx_rl_param_t *param)
{
    int64_t        number;
    uint32_t       narrow;
    const u_char  *place;

    place = (const u_char *) draft + param->offset;

    if (param->size == sizeof(uint32_t)) {
        ngx_memcpy(&narrow, place, sizeof(uint32_t));
        return narrow;
    }

    ngx_memcpy(&number, place, sizeof(int64_t));

    return number;
}


ngx_uint_t
ngx_rl_key_constant(const ngx_str_t *key)
{
    return !ngx_rl_variables_in(key)
           && !(key->len == 3 && ngx_strncmp(key->data, "all", 3) == 0);
}


ngx_uint_t
ngx_rl_names(const ngx_str_t *text, const char *name)
{
    size_t  i, len;

    len = ngx_strlen(name);

    for (i = 0; i + len <= text->len; i++) {
        if (ngx_strncasecmp(text->data + i, (u_char *) name, len) == 0) {
            return 1;
        }
    }

    return 0;
}
