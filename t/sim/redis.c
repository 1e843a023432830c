/*
 * The one Redis of the simulated fleet: the script as it is embedded into the
 * module, in Lua 5.1 as in Redis, on a store with one hash for each key. A
 * journal of the last writes makes it possible to lose them.
 */

#include "sim.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "ngx_rl_lua.h"

#define SIM_STATE   24           /* bytes of the longest state, and more */
#define SIM_FIELD   "01234567"

/* The hash of a key: one counter. */
typedef struct {
    u_char    state[SIM_STATE];
    uint32_t  len;               /* 0: there is none */
    uint64_t  expires_ms;
} sim_hash_t;

typedef struct {
    uint64_t    at_ns;
    uint64_t    key;
    sim_hash_t  was;
} sim_write_t;

typedef struct {
    const char     *name;
    lua_CFunction   call;
} sim_command_t;


static int sim_redis_call(lua_State *lua);
static int sim_redis_error(lua_State *lua);
static int sim_redis_hget(lua_State *lua);
static int sim_redis_hset(lua_State *lua);
static int sim_redis_hlen(lua_State *lua);
static int sim_redis_pttl(lua_State *lua);
static int sim_redis_pexpire(lua_State *lua);
static int sim_redis_time(lua_State *lua);
static sim_hash_t *sim_redis_hash(lua_State *lua);
static void sim_redis_note(const sim_hash_t *hash);
static void sim_redis_forget(void);
static int sim_struct_pack(lua_State *lua);
static int sim_struct_unpack(lua_State *lua);
static void sim_redis_args(const ngx_rl_limit_t *limit, int64_t cost,
    const char *want);
static void sim_redis_arg(int at, uint64_t value);


static const sim_command_t  sim_commands[] = {
    { "HGET", sim_redis_hget },
    { "HSET", sim_redis_hset },
    { "HLEN", sim_redis_hlen },
    { "PTTL", sim_redis_pttl },
    { "PEXPIRE", sim_redis_pexpire },
    { "TIME", sim_redis_time },
    { NULL, NULL }
};

static lua_State    *sim_lua;
static int           sim_script;
static sim_hash_t   *sim_hashes;

static sim_write_t  *sim_journal;
static size_t        sim_journal_used;
static size_t        sim_journal_size;


void
sim_redis_start(void)
{
    sim_hashes = sim_alloc(sim.cell.keys * sizeof(sim_hash_t));
    sim_journal_used = 0;

    if (sim_lua) {
        return;
    }

    sim_lua = luaL_newstate();
    luaL_openlibs(sim_lua);

    lua_newtable(sim_lua);
    lua_pushcfunction(sim_lua, sim_redis_call);
    lua_setfield(sim_lua, -2, "call");
    lua_pushcfunction(sim_lua, sim_redis_error);
    lua_setfield(sim_lua, -2, "error_reply");
    lua_setglobal(sim_lua, "redis");

    lua_newtable(sim_lua);
    lua_pushcfunction(sim_lua, sim_struct_pack);
    lua_setfield(sim_lua, -2, "pack");
    lua_pushcfunction(sim_lua, sim_struct_unpack);
    lua_setfield(sim_lua, -2, "unpack");
    lua_setglobal(sim_lua, "struct");

    lua_newtable(sim_lua);
    lua_setglobal(sim_lua, "KEYS");
    lua_newtable(sim_lua);
    lua_setglobal(sim_lua, "ARGV");

    if (luaL_loadbuffer(sim_lua, ngx_rl_lua_check,
                        ngx_rl_lua_check_len, "@script")
        != 0)
    {
        sim_die("the script", lua_tostring(sim_lua, -1));
    }

    sim_script = luaL_ref(sim_lua, LUA_REGISTRYINDEX);
}


void
sim_redis_stop(void)
{
    free(sim_hashes);
    sim_hashes = NULL;
}


void
sim_redis_run(uint64_t key, const ngx_rl_limit_t *limit, int64_t cost,
    const char *want, int64_t *values)
{
    int  i;

    lua_getglobal(sim_lua, "KEYS");
    lua_pushnumber(sim_lua, (lua_Number) key);
    lua_rawseti(sim_lua, -2, 1);
    lua_pop(sim_lua, 1);

    sim_redis_args(limit, cost, want);

    lua_rawgeti(sim_lua, LUA_REGISTRYINDEX, sim_script);

    if (lua_pcall(sim_lua, 0, 1, 0) != 0) {
        sim_die("the script", lua_tostring(sim_lua, -1));
    }

    if (lua_objlen(sim_lua, -1) != 4) {
        lua_getfield(sim_lua, -1, "err");
        sim_die("the script", lua_tostring(sim_lua, -1));
    }

    for (i = 0; i < 4; i++) {
        lua_rawgeti(sim_lua, -1, i + 1);
        values[i] = (int64_t) lua_tonumber(sim_lua, -1);
        lua_pop(sim_lua, 1);
    }

    lua_pop(sim_lua, 1);
}


static void
sim_redis_args(const ngx_rl_limit_t *limit, int64_t cost, const char *want)
{
    const char  *kind;

    switch (limit->algorithm) {
    case NGX_RL_FIXED_WINDOW:
        kind = "f";
        break;
    case NGX_RL_SLIDING_WINDOW:
        kind = "s";
        break;
    default:
        kind = "t";
    }

    lua_getglobal(sim_lua, "ARGV");

    lua_pushstring(sim_lua, kind);
    lua_rawseti(sim_lua, -2, 1);
    lua_pushstring(sim_lua, SIM_FIELD);
    lua_rawseti(sim_lua, -2, 2);

    lua_pushfstring(sim_lua, "%d", (int) cost);
    lua_rawseti(sim_lua, -2, 3);
    lua_pushstring(sim_lua, want);
    lua_rawseti(sim_lua, -2, 4);

    sim_redis_arg(5, limit->capacity);

    if (*kind == 't') {
        sim_redis_arg(6, limit->rate.period_us);
        sim_redis_arg(7, limit->rate.scale);

    } else {
        sim_redis_arg(6, limit->window_us);
        sim_redis_arg(7, 0);
    }

    lua_pop(sim_lua, 1);
}


static void
sim_redis_arg(int at, uint64_t value)
{
    char  text[24];

    snprintf(text, sizeof(text), "%llu", (unsigned long long) value);
    lua_pushstring(sim_lua, text);
    lua_rawseti(sim_lua, -2, at);
}


void
sim_redis_lose(uint64_t since_ns)
{
    sim_write_t  *write;

    if (since_ns == 0) {
        memset(sim_hashes, 0, sim.cell.keys * sizeof(sim_hash_t));
        return;
    }

    while (sim_journal_used > 0) {
        write = &sim_journal[sim_journal_used - 1];

        if (write->at_ns < since_ns) {
            return;
        }

        sim_hashes[write->key] = write->was;
        sim_journal_used--;
    }
}


static int
sim_redis_call(lua_State *lua)
{
    const char           *name;
    const sim_command_t  *command;

    name = lua_tostring(lua, 1);

    for (command = sim_commands; command->name; command++) {
        if (strcmp(command->name, name) == 0) {
            return command->call(lua);
        }
    }

    return luaL_error(lua, "a command that is not simulated: %s", name);
}


static int
sim_redis_error(lua_State *lua)
{
    lua_newtable(lua);
    lua_pushvalue(lua, 1);
    lua_setfield(lua, -2, "err");

    return 1;
}


/* The hash of a command's first argument; what has expired is gone. */
static sim_hash_t *
sim_redis_hash(lua_State *lua)
{
    sim_hash_t  *hash;

    hash = &sim_hashes[(uint64_t) lua_tonumber(lua, 2)];

    if (hash->expires_ms
        && hash->expires_ms <= (SIM_START_US + sim.now_ns / SIM_US) / 1000)
    {
        memset(hash, 0, sizeof(*hash));
    }

    return hash;
}


static int
sim_redis_hget(lua_State *lua)
{
    sim_hash_t  *hash;

    hash = sim_redis_hash(lua);

    if (hash->len) {
        lua_pushlstring(lua, (char *) hash->state, hash->len);
    } else {
        lua_pushboolean(lua, 0);
    }

    return 1;
}


static int
sim_redis_hset(lua_State *lua)
{
    size_t       len;
    unsigned     added;
    sim_hash_t  *hash;
    const char  *state;

    hash = sim_redis_hash(lua);
    sim_redis_note(hash);

    state = lua_tolstring(lua, 4, &len);

    if (len > SIM_STATE || lua_gettop(lua) != 4) {
        return luaL_error(lua, "one short field");
    }

    added = hash->len == 0;
    memcpy(hash->state, state, len);
    hash->len = (uint32_t) len;
    lua_pushnumber(lua, added);

    return 1;
}


/* Only a failover asks for what was. */
static void
sim_redis_note(const sim_hash_t *hash)
{
    if (sim.cell.fault != SIM_FAILOVER || sim.now_ns > sim.fault_ns) {
        return;
    }

    if (sim_journal_used == sim_journal_size) {
        sim_redis_forget();
    }

    sim_journal[sim_journal_used].at_ns = sim.now_ns;
    sim_journal[sim_journal_used].key = (uint64_t) (hash - sim_hashes);
    sim_journal[sim_journal_used].was = *hash;
    sim_journal_used++;
}


/* Makes room: of what a failover does not lose, or more of it. */
static void
sim_redis_forget(void)
{
    size_t  old;

    for (old = 0; old < sim_journal_used; old++) {
        if (sim_journal[old].at_ns + sim.cell.lost_ms * SIM_MS >= sim.now_ns) {
            break;
        }
    }

    sim_journal_used -= old;

    if (old) {
        memmove(sim_journal, sim_journal + old,
                sim_journal_used * sizeof(sim_write_t));
    }

    if (sim_journal_used * 2 < sim_journal_size) {
        return;
    }

    sim_journal_size = sim_journal_size ? 2 * sim_journal_size : 1024;
    sim_journal = realloc(sim_journal, sim_journal_size * sizeof(sim_write_t));

    if (sim_journal == NULL) {
        sim_die("memory", "");
    }
}


static int
sim_redis_hlen(lua_State *lua)
{
    lua_pushnumber(lua, sim_redis_hash(lua)->len != 0);

    return 1;
}


static int
sim_redis_pttl(lua_State *lua)
{
    uint64_t     now_ms;
    sim_hash_t  *hash;

    hash = sim_redis_hash(lua);
    now_ms = (SIM_START_US + sim.now_ns / SIM_US) / 1000;

    lua_pushnumber(lua, hash->expires_ms == 0
                        ? -1 : (lua_Number) (hash->expires_ms - now_ms));

    return 1;
}


static int
sim_redis_pexpire(lua_State *lua)
{
    sim_hash_t  *hash;

    hash = sim_redis_hash(lua);
    hash->expires_ms = (SIM_START_US + sim.now_ns / SIM_US) / 1000
                       + (uint64_t) lua_tonumber(lua, 3);
    lua_pushnumber(lua, 1);

    return 1;
}


static int
sim_redis_time(lua_State *lua)
{
    uint64_t  now_us;

    now_us = SIM_START_US + sim.now_ns / SIM_US;

    lua_createtable(lua, 2, 0);
    lua_pushfstring(lua, "%d", (int) (now_us / 1000000));
    lua_rawseti(lua, -2, 1);
    lua_pushfstring(lua, "%d", (int) (now_us % 1000000));
    lua_rawseti(lua, -2, 2);

    return 1;
}


/* Redis' struct library, for ">In" items. */
static int
sim_struct_pack(lua_State *lua)
{
    int          at, size;
    u_char       out[64], *p;
    uint64_t     value;
    const char  *format;

    p = out;
    at = 2;

    for (format = lua_tostring(lua, 1) + 1; *format == 'I'; format += 2) {
        size = format[1] - '0';
        value = (uint64_t) lua_tonumber(lua, at++);

        while (size-- > 0) {
            *p++ = (u_char) (value >> 8 * size);
        }
    }

    lua_pushlstring(lua, (char *) out, (size_t) (p - out));

    return 1;
}


static int
sim_struct_unpack(lua_State *lua)
{
    int            n, size;
    uint64_t       value;
    const char    *format;
    const u_char  *p;

    p = (const u_char *) lua_tostring(lua, 2);
    n = 0;

    for (format = lua_tostring(lua, 1) + 1; *format == 'I'; format += 2) {
        value = 0;

        for (size = format[1] - '0'; size > 0; size--) {
            value = value << 8 | *p++;
        }

        lua_pushnumber(lua, (lua_Number) value);
        n++;
    }

    return n;
}
