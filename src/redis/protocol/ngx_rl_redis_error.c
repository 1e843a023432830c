/*
 * Which error a reply of Redis is: by its first word.
 */

#include "ngx_rl_redis_codec.h"

/* after nginx's headers, which say what libc offers */
#include <hiredis/hiredis.h>


/*
 * In the order of ngx_rl_redis_status_e. From MOVED on, a name is an
 * error's word in small letters. A command that Redis refuses before it begins
 * has not run.
 */
static const struct {
    ngx_str_t  name;
    unsigned   ran:1;     /* maybe, in part */
} ngx_rl_redis_statuses[] = {
    { ngx_string("ok"), 1 },
    { ngx_string("breaker_open"), 0 },
    { ngx_string("unreachable"), 0 },
    { ngx_string("timeout"), 1 },
    { ngx_string("lost"), 1 },
    { ngx_string("protocol"), 1 },
    { ngx_string("moved"), 0 },
    { ngx_string("ask"), 0 },
    { ngx_string("tryagain"), 0 },
    { ngx_string("clusterdown"), 0 },
    { ngx_string("masterdown"), 0 },
    { ngx_string("loading"), 0 },
    { ngx_string("readonly"), 1 },
    { ngx_string("noscript"), 0 },
    { ngx_string("busy"), 0 },
    { ngx_string("oom"), 1 },
    { ngx_string("misconf"), 1 },
    { ngx_string("noreplicas"), 1 },
    { ngx_string("noauth"), 0 },
    { ngx_string("noperm"), 1 },
    { ngx_string("wrongtype"), 1 },
    { ngx_string("error"), 1 }
};


const ngx_str_t *
ngx_rl_redis_status_name(ngx_rl_redis_status_e status)
{
    return &ngx_rl_redis_statuses[status].name;
}


static ngx_str_t
ngx_rl_redis_word_at(u_char *p, u_char *last)
{
    ngx_str_t  word;

    word.data = p;

    if (last - p > NGX_RL_REDIS_MAX_WORD) {
        last = p + NGX_RL_REDIS_MAX_WORD;
    }

    while (p < last && ((*p >= 'A' && *p <= 'Z') || *p == '_' || *p == '-')) {
        p++;
    }

    word.len = p - word.data;

    return word;
}


static ngx_uint_t
ngx_rl_redis_starts(const u_char *p, const u_char *last, const char *text)
{
    size_t  len;

    len = ngx_strlen(text);

    return (size_t) (last - p) >= len && ngx_memcmp(p, text, len) == 0;
}


/*
 * Finds the error of a command inside the script. From Redis 7 on the reply is
 * that error, maybe behind "ERR ". Up to 6.2 "ERR Error running script (call to
 * f_<sha1>): @user_script:<line>: " stands before it, maybe the place twice,
 * maybe a "-". Returns NULL for any other reply.
 */
static u_char *
ngx_rl_redis_unwrap(u_char *p, u_char *last)
{
    if (!ngx_rl_redis_starts(p, last, "ERR ")) {
        return NULL;
    }

    p += sizeof("ERR ") - 1;

    if (!ngx_rl_redis_starts(p, last, "Error running script (call ")) {
        return p;
    }

    p = ngx_strlchr(p, last, ')');

    if (p == NULL || !ngx_rl_redis_starts(p, last, "): ")) {
        return NULL;
    }

    p += sizeof("): ") - 1;

    while (ngx_rl_redis_starts(p, last, "@user_script:")) {
        p += sizeof("@user_script:") - 1;

        while (p < last && (*p == ' ' || *p == ':' || (*p >= '0' && *p <= '9')))
        {
            p++;
        }
    }

    return (p < last && *p == '-') ? p + 1 : p;
}


static ngx_rl_redis_status_e
ngx_rl_redis_error_find(const ngx_str_t *word)
{
    ngx_uint_t        i;
    const ngx_str_t  *name;

    for (i = NGX_RL_REDIS_MOVED; i < NGX_RL_REDIS_ERROR; i++) {
        name = &ngx_rl_redis_statuses[i].name;

        if (name->len == word->len
            && ngx_strncasecmp(name->data, word->data, word->len) == 0)
        {
            break;
        }
    }

    return i;
}


/*
 * An error's first word, which never holds a key or a secret. Empty for any
 * other reply. Two errors come without a word of their own. Before a client has
 * logged in, Redis takes no argument above 16 KB, as the script is. The error
 * of a command inside the script may stand behind ERR.
 */
ngx_str_t
ngx_rl_redis_error_word(const ngx_rl_redis_reply_t *reply)
{
    u_char     *p, *last;
    ngx_str_t   word, inner;

    word.data = (u_char *) reply->text;
    word.len = 0;

    if (reply->type != REDIS_REPLY_ERROR) {
        return word;
    }

    p = (u_char *) reply->text;
    last = p + reply->text_len;

    word = ngx_rl_redis_word_at(p, last);

    if (ngx_rl_redis_starts(p, last, "ERR Protocol error: unauthenticated")) {
        ngx_str_set(&word, "NOAUTH");
        return word;
    }

    p = ngx_rl_redis_unwrap(p, last);

    if (p == NULL) {
        return word;
    }

    if (ngx_rl_redis_starts(p, last, "The user executing the script")
        || ngx_rl_redis_starts(p, last, "ACL failure in script"))
    {
        ngx_str_set(&word, "NOPERM");
        return word;
    }

    /* any other may be of the script's own */

    inner = ngx_rl_redis_word_at(p, last);

    return ngx_rl_redis_error_find(&inner) == NGX_RL_REDIS_ERROR ? word : inner;
}


ngx_rl_redis_status_e
ngx_rl_redis_error_status(const ngx_rl_redis_reply_t *reply, ngx_uint_t *ran)
{
    u_char                 *p, *last;
    ngx_str_t               word;
    ngx_rl_redis_status_e   status;

    word = ngx_rl_redis_error_word(reply);
    status = ngx_rl_redis_error_find(&word);
    *ran = ngx_rl_redis_statuses[status].ran;

    /* the command itself was refused; a script may have done a part before */

    p = (u_char *) reply->text;
    last = p + reply->text_len;

    if (ngx_rl_redis_starts(p, last, "ERR unknown command")
        || (ngx_rl_redis_starts(p, last, "NOPERM ")
            && memmem(p, reply->text_len, "script", 6) == NULL))
    {
        *ran = 0;
    }

    return status;
}


ngx_str_t
ngx_rl_redis_error_text(const ngx_rl_redis_reply_t *reply,
    u_char buf[NGX_RL_REDIS_ERROR_TEXT])
{
    u_char     *p, *last, *to;
    ngx_str_t   word;

    word = ngx_rl_redis_error_word(reply);

    p = (u_char *) reply->text;
    last = p + reply->text_len;

    /* the word may be that of a command inside the script */

    if (word.len == 0 || (size_t) (last - p) < word.len
        || ngx_memcmp(p, word.data, word.len) != 0)
    {
        return word;
    }

    to = buf;

    /* no argument of a command that Redis does not know, and no key */

    for ( /* void */ ;
         p < last && to < buf + NGX_RL_REDIS_ERROR_TEXT;
         p++)
    {
        if (ngx_rl_redis_starts(p, last, ", with args beginning with")) {
            break;
        }

        if (ngx_rl_redis_starts(p, last, ":{")) {
            while (to > buf && to[-1] != ' ') {
                to--;
            }

            break;
        }

        *to++ = (*p < ' ' || *p > '~') ? '?' : *p;
    }

    word.data = buf;
    word.len = to - buf;

    return word;
}
