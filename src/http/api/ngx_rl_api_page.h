/*
 * The files of the folder page/, which the build makes C of:
 * tools/embed-page.sh.
 */

#ifndef NGX_RL_API_PAGE_H_INCLUDED
#define NGX_RL_API_PAGE_H_INCLUDED

#include <stddef.h>

extern const char    ngx_rl_api_page_html[];
extern const size_t  ngx_rl_api_page_html_len;
extern const char    ngx_rl_api_page_css[];
extern const size_t  ngx_rl_api_page_css_len;
extern const char    ngx_rl_api_page_js[];
extern const size_t  ngx_rl_api_page_js_len;

#endif /* NGX_RL_API_PAGE_H_INCLUDED */
