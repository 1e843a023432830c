/*
 * The active times of a rule: how they are written in nginx.conf, and in a
 * document.
 */

#include "ngx_rl_param.h"

#include "ngx_rl_tz_file.h"


/* As a member of a document; days may come one after the other. */
static const char *
ngx_rl_active_member(ngx_rl_draft_t *draft, ngx_rl_param_e id, u_char *text,
    size_t len)
{
    ngx_str_t              value;
    const ngx_rl_param_t  *param;

    if (id != NGX_RL_PARAM_ACTIVE_DAYS && (draft->says >> id & 1)) {
        return "one time and one time zone";
    }

    draft->says |= (uint64_t) 1 << id;

    value.data = text;
    value.len = len;
    param = ngx_rl_param(id, NGX_RL_OF_ACTIVE);

    return param->set(draft, param, &value);
}


/* "sat,sun,09:00-17:00,Europe/Berlin", each part of which may be missing */
const char *
ngx_rl_set_active(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    u_char          *item, *comma, *last;
    size_t           len;
    const char      *expected;
    ngx_rl_param_e   id;

    item = text->data;
    last = item + text->len;

    do {
        comma = text->len ? ngx_strlchr(item, last, ',') : NULL;
        len = (comma ? comma : last) - item;
        id = (len && *item >= 'a' && *item <= 'z') ? NGX_RL_PARAM_ACTIVE_DAYS
                                                   : NGX_RL_PARAM_ACTIVE_TZ;

        if (len && (*item < '0' || *item > '9')) {
            expected = ngx_rl_active_member(draft, id, item, len);

        } else if (len != 11 || item[5] != '-') {
            return param->expected;

        } else {
            expected = ngx_rl_active_member(draft, NGX_RL_PARAM_ACTIVE_FROM,
                                            item, 5);

            if (expected == NULL) {
                expected = ngx_rl_active_member(draft, NGX_RL_PARAM_ACTIVE_TO,
                                                item + 6, 5);
            }
        }

        item = comma ? comma + 1 : NULL;

    } while (comma && expected == NULL);

    return expected;
}


const char *
ngx_rl_set_active_days(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    return ngx_rl_week_days(text->data, text->len,
                            &draft->rule.active.days)
           ? param->expected : NULL;
}


const char *
ngx_rl_set_active_minute(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    uint32_t  minute;

    if (ngx_rl_week_minute(text->data, text->len, &minute) != 0
        || minute > param->max)
    {
        return param->expected;
    }

    return ngx_rl_param_number(draft, param, minute);
}


const char *
ngx_rl_set_active_tz(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    (void) param;

    return ngx_rl_tz_load(draft->pool, text, &draft->rule.active_tz);
}


/* A rule whose times have every minute of the week is not timed. */
void
ngx_rl_draft_active(ngx_rl_draft_t *draft)
{
    ngx_rl_rule_t         *rule;
    ngx_rl_week_t         *week;
    const ngx_rl_param_t  *param;

    rule = &draft->rule;
    week = &rule->active;

    if (week->days == 0) {
        week->days = NGX_RL_WEEK_ALL;
    }

    rule->timed = (week->days != NGX_RL_WEEK_ALL || week->from != 0
                   || week->to != NGX_RL_DAY_MINUTES);

    if (week->from != week->to) {
        return;
    }

    param = ngx_rl_param(NGX_RL_PARAM_ACTIVE_TO, draft->in);

    draft->wrong(draft,
                 param ? param : ngx_rl_param(NGX_RL_PARAM_ACTIVE, draft->in),
                 "", "two different times");
}
