/*
 * What the tests of C against Lua share: the scripts as Redis runs them, on a
 * model of Redis (redis_model.lua), random numbers, and the comparison.
 *
 * STEPS and SEED in the environment choose another sequence; a failure prints
 * the seed and the step.
 */

#ifndef PARITY_H_INCLUDED
#define PARITY_H_INCLUDED

#include "unit.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "ngx_rl_lua.h"
#include "ngx_rl_window.h"

#define PARITY_COUNTERS  16
#define PARITY_ARGS      7    /* of the script, a counter */
#define PARITY_VALUES    4    /* in its answer, a counter */
#define PARITY_FIELD     8    /* bytes of a field, and of a request's name */

/* the clock, in microseconds; the states hold instants below 2^52 */
#define START   ((uint64_t) 1700000000 * 1000000)
#define LATEST  ((uint64_t) 2100000000 * 1000000)

/* One counter of a call, as lua/check.lua reads it. */
typedef struct {
    char      kind;
    unsigned  field;
    int64_t   cost;
    int64_t   want;
    uint64_t  capacity;
    uint64_t  a;
    uint64_t  b;
    uint32_t  ahead;    /* with a share: "want+ahead/share" */
    uint32_t  share;
    uint32_t  keep;     /* "want-keep" */
    uint64_t  from;     /* of a calendar, in seconds: the window of now, */
    uint64_t  len;      /* its length, that of the next one */
    uint64_t  next;
} parity_arg_t;

/* One call: n counters of one client. */
typedef struct {
    uint64_t      now_us;
    unsigned      key;
    const char   *name;    /* the request's in sorted sets, or NULL: none */
    unsigned      n;
    parity_arg_t  args[PARITY_COUNTERS];
} parity_call_t;

/* granted, remaining, reset_ms, retry_ms */
typedef int64_t  parity_answer_t[PARITY_VALUES];

static struct {
    lua_State      *lua;
    int             model;
    int             script;
    uint64_t        first_seed;
    unsigned long   step;
    unsigned long   steps;
} parity;


/* The functions of the model, see redis_model.lua. */
static inline void
model_function(const char *name)
{
    lua_rawgeti(parity.lua, LUA_REGISTRYINDEX, parity.model);
    lua_getfield(parity.lua, -1, name);
    lua_remove(parity.lua, -2);
}


static inline void
model_call(int args, int results)
{
    if (lua_pcall(parity.lua, args, results, 0) != 0) {
        fail_msg("SEED=%llu step %lu: %s",
                 (unsigned long long) parity.first_seed, parity.step,
                 lua_tostring(parity.lua, -1));
    }
}


/* How often the scripts have called a command. */
static inline double
model_total(const char *command)
{
    model_function("total");
    lua_pushstring(parity.lua, command);
    model_call(1, 1);
    double total = lua_tonumber(parity.lua, -1);
    lua_pop(parity.lua, 1);

    return total;
}


static inline void
model_flush(void)
{
    model_function("flush");
    model_call(0, 0);
}


static inline void
push_key(unsigned key)
{
    lua_pushfstring(parity.lua, "rl:{%d}", (int) key);
}


/* The name of a field: raw bytes, zeros and all. */
static inline void
push_field(unsigned field)
{
    char  name[PARITY_FIELD] = "\0\r\n\xff" "abc";

    name[6] = (char) (field >> 8);
    name[7] = (char) field;
    lua_pushlstring(parity.lua, name, PARITY_FIELD);
}


/* Starts a random sequence on an empty Redis, at START. */
static inline void
parity_start(void)
{
    parity.first_seed = seed_new();
    parity.steps = env_or("STEPS", full_or(300000, 10000));
    parity.step = 0;

    model_flush();

    model_function("exists");
    lua_pushnumber(parity.lua, (double) START);
    push_key(0);
    push_field(0);
    model_call(3, 0);
}


/* A window's numbers, as of a gateway whose wall clock this is. */
static inline void
parity_window(parity_arg_t *arg, const ngx_rl_limit_t *limit, uint64_t wall_us)
{
    arg->a = limit->window_us;
    arg->b = 0;

    if (limit->calendar) {
        ngx_rl_bounds_t now = ngx_rl_calendar_bounds(limit, wall_us);
        ngx_rl_bounds_t next = ngx_rl_calendar_bounds(limit, now.end_us);

        arg->b = limit->code - NGX_RL_CODE_CALENDAR;
        arg->from = now.start_us / 1000000;
        arg->len = (now.end_us - now.start_us) / 1000000;
        arg->next = (next.end_us - next.start_us) / 1000000;
    }
}


/* The key of a field's sorted set. */
static inline void
push_set(unsigned key, unsigned field)
{
    lua_pushfstring(parity.lua, "rl:{%d}:%d", (int) key, (int) field);
}


static inline void
push_number(int at, double value)
{
    char  text[32];

    snprintf(text, sizeof(text), "%.0f", value);
    lua_pushstring(parity.lua, text);
    lua_rawseti(parity.lua, -2, at);
}


static inline void
push_lease(int at, const parity_arg_t *arg)
{
    lua_pushfstring(parity.lua, "%d+%d/%d", (int) arg->want, (int) arg->ahead,
                    (int) arg->share);
    lua_rawseti(parity.lua, -2, at);
}


static inline int
parity_in_set(char kind)
{
    return strchr("lLcC", kind) != NULL;
}


static inline void
parity_push_keys(const parity_call_t *call)
{
    lua_newtable(parity.lua);
    push_key(call->key);
    lua_rawseti(parity.lua, -2, 1);

    int sets = 0;

    for (unsigned i = 0; i < call->n; i++) {
        if (parity_in_set(call->args[i].kind)) {
            push_set(call->key, call->args[i].field);
            lua_rawseti(parity.lua, -2, 2 + sets++);
        }
    }
}


static inline void
parity_push_args(const parity_call_t *call)
{
    char                 kind[80];

    lua_newtable(parity.lua);

    for (unsigned i = 0; i < call->n; i++) {
        const parity_arg_t *arg = &call->args[i];
        int at = PARITY_ARGS * i;

        if (arg->len) {
            snprintf(kind, sizeof(kind), "%c%llu+%llu+%llu", arg->kind,
                     (unsigned long long) arg->from,
                     (unsigned long long) arg->len,
                     (unsigned long long) arg->next);
        } else {
            snprintf(kind, sizeof(kind), "%c", arg->kind);
        }

        lua_pushstring(parity.lua, kind);
        lua_rawseti(parity.lua, -2, at + 1);
        push_field(arg->field);
        lua_rawseti(parity.lua, -2, at + 2);

        push_number(at + 3, (double) arg->cost);
        push_number(at + 5, (double) arg->capacity);
        push_number(at + 6, (double) arg->a);
        push_number(at + 7, (double) arg->b);

        if (arg->share) {
            push_lease(at + 4, arg);
        } else if (arg->keep) {
            lua_pushfstring(parity.lua, "%d-%d", (int) arg->want,
                            (int) arg->keep);
            lua_rawseti(parity.lua, -2, at + 4);
        } else {
            push_number(at + 4, (double) arg->want);
        }
    }

    if (call->name) {
        lua_pushlstring(parity.lua, call->name, PARITY_FIELD);
        lua_rawseti(parity.lua, -2, PARITY_ARGS * call->n + 1);
    }
}


/* A call for one new counter after the other, of 10 tokens a second each. */
static inline void
parity_call_init(parity_call_t *call, unsigned first, unsigned n)
{
    static const parity_arg_t  arg = { 't', 0, 1, 0, 10, 100000, 1, 0, 0 };

    call->now_us = START;
    call->key = 0;
    call->name = NULL;
    call->n = n;

    for (unsigned i = 0; i < n; i++) {
        call->args[i] = arg;
        call->args[i].field = first + i;
    }
}


/* Puts a value into key 0 as it is. */
static inline void
model_put(unsigned field, const char *value, size_t len)
{
    model_function("put");
    push_key(0);
    push_field(field);
    lua_pushlstring(parity.lua, value, len);
    model_call(3, 0);
}


/* Makes a call; fails the test where it is answered with an error. */
static inline void
parity_run(const parity_call_t *call, parity_answer_t *answers)
{
    model_function("run");
    lua_rawgeti(parity.lua, LUA_REGISTRYINDEX, parity.script);
    lua_pushnumber(parity.lua, (double) call->now_us);
    parity_push_keys(call);
    parity_push_args(call);
    model_call(4, 1);

    if (!lua_istable(parity.lua, -1)
        || lua_objlen(parity.lua, -1) != PARITY_VALUES * call->n)
    {
        lua_getfield(parity.lua, -1, "err");
        fail_msg("SEED=%llu step %lu: no answer: %s",
                 (unsigned long long) parity.first_seed, parity.step,
                 lua_tostring(parity.lua, -1));
    }

    for (unsigned i = 0; i < PARITY_VALUES * call->n; i++) {
        lua_rawgeti(parity.lua, -1, i + 1);
        answers[i / PARITY_VALUES][i % PARITY_VALUES] =
            (int64_t) lua_tonumber(parity.lua, -1);
        lua_pop(parity.lua, 1);
    }

    lua_pop(parity.lua, 1);
}


/* Makes a call, and compares its answers with those of C. */
static inline void
parity_compare(const parity_call_t *call, parity_answer_t *wanted)
{
    parity_answer_t      got[PARITY_COUNTERS];

    static const char  *names[] = { "granted", "remaining", "reset", "retry" };

    parity_run(call, got);

    for (unsigned i = 0; i < call->n; i++) {
        for (unsigned k = 0; k < PARITY_VALUES; k++) {

            if (got[i][k] == wanted[i][k]) {
                continue;
            }

            const parity_arg_t *arg = &call->args[i];

            fail_msg("SEED=%llu step %lu counter %u of %u: %s is %lld in C, "
                     "%lld in Lua (%c cost %lld want %lld+%u/%u-%u capacity "
                     "%llu a %llu b %llu)",
                     (unsigned long long) parity.first_seed, parity.step, i,
                     call->n, names[k], (long long) wanted[i][k],
                     (long long) got[i][k], arg->kind, (long long) arg->cost,
                     (long long) arg->want, arg->ahead, arg->share, arg->keep,
                     (unsigned long long) arg->capacity,
                     (unsigned long long) arg->a, (unsigned long long) arg->b);
        }
    }
}


/*
 * Makes a call with these texts as they are, at START. Returns the error's
 * text, which stays on Lua's stack as one value, or NULL with a nil there.
 */
static inline const char *
parity_run_raw(unsigned nkeys, const char *const *args, unsigned nargs)
{
    model_function("run");
    lua_rawgeti(parity.lua, LUA_REGISTRYINDEX, parity.script);
    lua_pushnumber(parity.lua, (double) START);

    lua_newtable(parity.lua);

    for (unsigned i = 0; i < nkeys; i++) {
        if (i == 0) {
            push_key(0);
        } else {
            push_set(0, i);
        }

        lua_rawseti(parity.lua, -2, i + 1);
    }

    lua_newtable(parity.lua);

    for (unsigned i = 0; i < nargs; i++) {
        lua_pushstring(parity.lua, args[i]);
        lua_rawseti(parity.lua, -2, i + 1);
    }

    model_call(4, 1);
    lua_getfield(parity.lua, -1, "err");
    lua_remove(parity.lua, -2);

    return lua_tostring(parity.lua, -1);
}


/* Loads the script as Redis gets it; a group's setup. */
static inline int
parity_setup(void **state)
{
    parity.lua = luaL_newstate();
    assert_non_null(parity.lua);
    luaL_openlibs(parity.lua);

    if (luaL_dofile(parity.lua, "redis_model.lua") != 0) {
        fail_msg("%s", lua_tostring(parity.lua, -1));
    }

    parity.model = luaL_ref(parity.lua, LUA_REGISTRYINDEX);

    if (luaL_loadbuffer(parity.lua, ngx_rl_lua_check,
                        ngx_rl_lua_check_len, "@script")
        != 0)
    {
        fail_msg("%s", lua_tostring(parity.lua, -1));
    }

    parity.script = luaL_ref(parity.lua, LUA_REGISTRYINDEX);

    return 0;
}


static inline int
parity_teardown(void **state)
{
    lua_close(parity.lua);

    return 0;
}

#define GROUP_SETUP     parity_setup
#define GROUP_TEARDOWN  parity_teardown

#endif /* PARITY_H_INCLUDED */
