/*
 * The scripts of lua/, embedded by tools/embed-lua.sh when the module is built:
 * that of checks, all parts as one string, that of penalties, and that of
 * documents.
 */

#ifndef NGX_RL_LUA_H_INCLUDED
#define NGX_RL_LUA_H_INCLUDED

#include <stddef.h>

extern const char    ngx_rl_lua_check[];
extern const size_t  ngx_rl_lua_check_len;   /* without the final 0 */

extern const char    ngx_rl_lua_penalties[];
extern const size_t  ngx_rl_lua_penalties_len;

extern const char    ngx_rl_lua_rules[];
extern const size_t  ngx_rl_lua_rules_len;

#endif /* NGX_RL_LUA_H_INCLUDED */
