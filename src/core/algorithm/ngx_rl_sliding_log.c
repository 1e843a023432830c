/*
 * The sliding log. lua/sliding_log.lua decides the same, on a sorted set.
 *
 * The places stand in the order of their instants, oldest first, and their
 * windows never grow from one to the next. Lost places may be among them,
 * but the newest is always there: lost ones at that end are dropped.
 */

#include "ngx_rl_sliding_log.h"

/* as of token buckets: up to here another worker's clock is ahead */
#define NGX_RL_LOG_SLACK_US  1000000

#define NGX_RL_LOG_MAX_LATER  64   /* places that a give may move */

/* A log with all that belongs to it, as it is at now_us. */
typedef struct {
    ngx_rl_log_t               *log;
    const ngx_rl_log_places_t  *places;
    uint64_t                    window_us;
    uint64_t                    now_us;
    uint64_t                    at_us;       /* where a request stands */
    uint64_t                    oldest_us;   /* instants; 0 where */
    uint64_t                    newest_us;   /* there is none */
} ngx_rl_log_view_t;


/* The number of the place that is age places before the next one. */
static inline uint32_t
ngx_rl_log_place(const ngx_rl_log_t *log, uint32_t age)
{
    return (log->head - age) & (NGX_RL_LOG_PLACES - 1);
}


/* Its instant in *at_us. Returns 0, or -1 (and 0 there) where it is lost. */
static inline int
ngx_rl_log_get(const ngx_rl_log_view_t *view, uint32_t age,
    ngx_rl_log_place_t *place, uint64_t *at_us)
{
    view->places->get(view->places->data,
                      ngx_rl_log_place(view->log, age), place);

    if (place->fresh_us == 0) {
        *at_us = 0;
        return -1;
    }

    *at_us = place->fresh_us - place->window_us;

    return 0;
}


/*
 * The window has grown, or the clock was set back. The later places, down to
 * the first that is as it should be, get the window now, since the caller may
 * drop them when they expire by their own. None stays in the future.
 */
static void
ngx_rl_log_rewrite(ngx_rl_log_view_t *view)
{
    uint32_t                  age;
    uint64_t                  at_us, latest_us;
    ngx_rl_log_place_t        place;
    const ngx_rl_log_places_t *places;

    places = view->places;
    latest_us = view->newest_us;

    if (latest_us > view->now_us + NGX_RL_LOG_SLACK_US) {
        latest_us = view->now_us;
        view->newest_us = latest_us;
    }

    for (age = 1; age <= view->log->count; age++) {

        if (ngx_rl_log_get(view, age, &place, &at_us) != 0) {
            continue;
        }

        if (at_us <= latest_us && place.window_us >= view->window_us) {
            return;
        }

        place.fresh_us = ngx_rl_min(at_us, latest_us) + view->window_us;
        place.window_us = view->window_us;

        places->set(places->data, ngx_rl_log_place(view->log, age), &place);
    }
}


static void
ngx_rl_log_newest(ngx_rl_log_view_t *view)
{
    ngx_rl_log_t        *log;
    ngx_rl_log_place_t   place;

    log = view->log;
    view->newest_us = 0;
    place.window_us = 0;

    while (log->count) {

        if (ngx_rl_log_get(view, 1, &place, &view->newest_us) == 0) {
            break;
        }

        log->head = ngx_rl_log_place(log, 1);
        log->count--;
    }

    if (log->count == 0) {
        return;
    }

    if (place.window_us < view->window_us
        || view->newest_us > view->now_us + NGX_RL_LOG_SLACK_US)
    {
        ngx_rl_log_rewrite(view);
    }
}


static void
ngx_rl_log_expire(ngx_rl_log_view_t *view)
{
    uint64_t             at_us;
    ngx_rl_log_t        *log;
    ngx_rl_log_place_t   place;

    log = view->log;
    view->oldest_us = 0;

    if (view->newest_us + view->window_us <= view->at_us) {
        log->count = 0;
    }

    for ( /* void */ ; log->count; log->count--) {

        if (ngx_rl_log_get(view, log->count, &place, &at_us) == 0
            && at_us + view->window_us > view->at_us)
        {
            view->oldest_us = at_us;
            return;
        }
    }
}


/* Brings the log to now: its windows, its instants, its length. */
static void
ngx_rl_log_settle(ngx_rl_log_view_t *view)
{
    ngx_rl_log_newest(view);

    view->at_us = (view->newest_us > view->now_us) ? view->newest_us
                                                   : view->now_us;
    ngx_rl_log_expire(view);

    view->log->fresh_us = view->log->count
                          ? view->newest_us + view->window_us : 0;
}


/* The time until so many of the oldest places have expired. */
static uint64_t
ngx_rl_log_retry(const ngx_rl_log_view_t *view, uint32_t need)
{
    uint32_t            age;
    uint64_t            at_us;
    ngx_rl_log_place_t  place;

    at_us = view->oldest_us;

    /* a lost place goes with the next that expires; the newest is there */

    if (need > 1) {
        for (age = view->log->count + 1 - need; age > 1; age--) {
            if (ngx_rl_log_get(view, age, &place, &at_us) == 0) {
                break;
            }
        }

        if (age == 1) {
            at_us = view->newest_us;
        }
    }

    return at_us + view->window_us - view->now_us;
}


static void
ngx_rl_log_add(ngx_rl_log_view_t *view, uint32_t tokens)
{
    ngx_rl_log_t        *log;
    ngx_rl_log_place_t   place;

    log = view->log;

    place.window_us = view->window_us;
    place.fresh_us = view->at_us + view->window_us;
    log->fresh_us = place.fresh_us;

    for ( /* void */ ; tokens; tokens--) {
        view->places->set(view->places->data, log->head, &place);
        log->head = (log->head + 1) & (NGX_RL_LOG_PLACES - 1);
        log->count++;
    }
}


void
ngx_rl_sliding_log_take(ngx_rl_log_t *log, const ngx_rl_log_places_t *places,
    const ngx_rl_limit_t *limit, uint64_t now_us, uint32_t cost, uint32_t want,
    ngx_rl_answer_t *answer)
{
    uint32_t           left, most;
    ngx_rl_log_view_t  view;

    view.log = log;
    view.places = places;
    view.window_us = limit->window_us;
    view.now_us = now_us;

    ngx_rl_log_settle(&view);

    left = (log->count < limit->capacity) ? limit->capacity - log->count : 0;

    answer->granted = 0;
    answer->retry_us = 0;

    if (want == NGX_RL_CHARGE) {
        most = limit->capacity * 2;
        most = (most < NGX_RL_LOG_PLACES) ? most : NGX_RL_LOG_PLACES - 1;
        most = (log->count < most) ? most - log->count : 0;

        answer->granted = (cost < most) ? cost : most;

    } else if (cost > limit->capacity) {
        answer->retry_us = NGX_RL_NEVER;

    } else if (cost > left) {
        answer->retry_us = ngx_rl_log_retry(&view,
                                        log->count - (limit->capacity - cost));

    } else if (want != NGX_RL_LOOK) {
        answer->granted = (want <= cost) ? cost : (want < left) ? want : left;
    }

    if (answer->granted) {
        ngx_rl_log_add(&view, answer->granted);
    }

    answer->remaining = (answer->granted < left) ? left - answer->granted : 0;
    answer->reset_us = log->count ? log->fresh_us - now_us : 0;
}


/*
 * How many places are not before since_us, but no more than what a give can
 * use; none where the oldest of them is not of that time, but later. The search
 * begins where so many are expected.
 */
static uint32_t
ngx_rl_log_since(const ngx_rl_log_view_t *view, uint64_t since_us,
    uint32_t expected)
{
    uint32_t            age, most;
    uint64_t            at_us;
    ngx_rl_log_place_t  place;

    most = ngx_rl_min(expected + NGX_RL_LOG_MAX_LATER + 1, view->log->count);

    for (age = expected; age < most; age++) {
        if (ngx_rl_log_get(view, age + 1, &place, &at_us) == 0
            && at_us < since_us)
        {
            break;
        }
    }

    for ( /* void */ ; age; age--) {
        if (ngx_rl_log_get(view, age, &place, &at_us) == 0 && at_us >= since_us)
        {
            return (at_us <= since_us + NGX_RL_LOG_SLACK_US) ? age : 0;
        }
    }

    return 0;
}


/* Removes the oldest of the last places: those behind them move down. */
static void
ngx_rl_log_remove(ngx_rl_log_view_t *view, uint32_t since, uint32_t tokens)
{
    uint32_t                    age;
    ngx_rl_log_t               *log;
    ngx_rl_log_place_t          place;
    const ngx_rl_log_places_t  *places;

    log = view->log;
    places = view->places;
    tokens = ngx_rl_min(tokens, since);

    for (age = since; age > tokens; age--) {
        places->get(places->data, ngx_rl_log_place(log, age - tokens), &place);
        places->set(places->data, ngx_rl_log_place(log, age), &place);
    }

    log->head = ngx_rl_log_place(log, tokens);
    log->count -= tokens;
}


void
ngx_rl_sliding_log_give(ngx_rl_log_t *log, const ngx_rl_log_places_t *places,
    const ngx_rl_limit_t *limit, uint64_t now_us, uint64_t taken_us,
    uint32_t tokens)
{
    uint32_t           since;
    unsigned           newest;
    ngx_rl_log_view_t  view;

    view.log = log;
    view.places = places;
    view.window_us = limit->window_us;
    view.now_us = now_us;

    ngx_rl_log_settle(&view);

    newest = (taken_us == NGX_RL_WHENEVER);

    /* the clock was set back, and later places stand at now */

    if (taken_us > now_us + NGX_RL_LOG_SLACK_US) {
        taken_us = now_us;
    }

    if (log->count == 0 || taken_us + limit->window_us <= view.at_us) {
        return;
    }

    tokens = ngx_rl_min(tokens, log->count);
    since = newest ? tokens : ngx_rl_log_since(&view, taken_us, tokens);

    if (since > tokens + NGX_RL_LOG_MAX_LATER) {

        /* the log then rejects no less than if they were known */
        log->count -= tokens;

    } else {
        ngx_rl_log_remove(&view, since, tokens);
    }

    ngx_rl_log_settle(&view);
}
