/*
 * The scripts of lua/ as one string, embedded by tools/embed-lua.sh when the
 * module is built.
 */

#ifndef NGX_RATELIMIT_LUA_H_INCLUDED
#define NGX_RATELIMIT_LUA_H_INCLUDED

#include <stddef.h>

extern const char    ngx_ratelimit_lua_check[];
extern const size_t  ngx_ratelimit_lua_check_len;   /* without the final 0 */

#endif /* NGX_RATELIMIT_LUA_H_INCLUDED */
