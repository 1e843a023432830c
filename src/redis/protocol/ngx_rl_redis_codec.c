/*
 * Redis' protocol. Commands are written here: a check is a handful of copies,
 * where redisFormatCommandArgv allocates and formats each length. A check's
 * integers are read where they were received, if they are all there; that is
 * most of what comes, and takes a third of hiredis' instructions. Any other
 * reply is parsed by hiredis' reader, which hands each element to the functions
 * below. They build no tree: of CLUSTER SLOTS only ranges and primaries are
 * kept.
 */

#include "ngx_rl_redis_codec.h"

/* after nginx's headers, which say what libc offers */
#include <hiredis/hiredis.h>

#include "ngx_rl_text.h"


/* of a number that is read here: a longer one could overflow */
#define NGX_RL_REDIS_DIGITS  18


#if (HIREDIS_MAJOR >= 1)
typedef size_t  ngx_rl_redis_elements_t;
#else
typedef int     ngx_rl_redis_elements_t;
#endif


/* of an array, and of a whole reply, at most */
static const struct {
    ngx_uint_t  elements;
    size_t      bytes;
} ngx_rl_redis_forms[] = {
    { NGX_RL_REDIS_MAX_VALUES, NGX_RL_REDIS_MAX_REPLY },
    { NGX_RL_CLUSTER_SLOTS, NGX_RL_REDIS_MAX_SLOTS },
    { NGX_RL_REDIS_CONTROL_TEXTS, NGX_RL_REDIS_CONTROL_BYTES }
};

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


void
ngx_rl_redis_texts_free(ngx_rl_redis_reply_t *reply)
{
    while (reply->ntexts) {
        ngx_free(reply->texts[--reply->ntexts].data);
    }

    if (reply->texts) {
        ngx_free(reply->texts);
    }

    reply->texts = NULL;
}


static void
ngx_rl_redis_reply_start(ngx_rl_redis_reply_t *reply, int type)
{
    reply->type = type;
    reply->flat = 0;
    reply->n = 0;
    reply->text_len = 0;
    reply->nranges = 0;

    if (reply->ntexts) {
        ngx_rl_redis_texts_free(reply);
    }
}


/* How many arrays stand around an element. */
static ngx_uint_t
ngx_rl_redis_depth(const redisReadTask *task)
{
    ngx_uint_t  depth;

    for (depth = 0; task->parent; task = task->parent) {
        depth++;
    }

    return depth;
}


/*
 * One more text, in memory of its own. Elements of an array in an array are
 * left out: the reply is not flat.
 */
static void *
ngx_rl_redis_text_add(ngx_rl_redis_reply_t *reply, ngx_uint_t depth,
    const char *data, size_t len)
{
    u_char     *copy;
    ngx_str_t  *text;

    if (depth > 1) {
        return reply;
    }

    if (reply->texts == NULL) {
        reply->texts = ngx_alloc(NGX_RL_REDIS_CONTROL_TEXTS
                                 * sizeof(ngx_str_t), reply->log);
        if (reply->texts == NULL) {
            return NULL;
        }
    }

    copy = ngx_alloc(len + 1, reply->log);
    if (copy == NULL) {
        return NULL;
    }

    ngx_memcpy(copy, data, len);

    text = &reply->texts[reply->ntexts++];
    text->data = copy;
    text->len = len;

    return reply;
}


/* Sets the host of a range. A host that is too long becomes "?". */
static void
ngx_rl_redis_range_host(ngx_rl_redis_range_t *range, const char *data,
    size_t len)
{
    if (len > sizeof(range->host)) {
        data = "?";
        len = 1;
    }

    range->host_len = len;
    ngx_memcpy(range->host, data, len);
}


/*
 * An element of the last range:
 * [first, last, [host, port, id, [name, value, ...]], replicas ...]
 */
static void
ngx_rl_redis_range_set(const redisReadTask *task, ngx_uint_t depth,
    const char *data, size_t len, int64_t value)
{
    ngx_int_t              idx;
    ngx_rl_redis_reply_t  *reply;
    ngx_rl_redis_range_t  *range;

    reply = task->privdata;
    range = &reply->ranges[reply->nranges - 1];
    idx = task->idx;

    if (depth == 2 && task->type == REDIS_REPLY_INTEGER) {

        if (idx == 0) {
            range->first = value;

        } else if (idx == 1) {
            range->last = value;
        }

    } else if (depth == 3 && task->parent->idx == 2) {

        if (idx == 1 && task->type == REDIS_REPLY_INTEGER) {
            range->port = value;

        } else if (idx == 0 && task->type != REDIS_REPLY_INTEGER) {
            ngx_rl_redis_range_host(range, data, len);

        } else if (idx == 2 && len == NGX_RL_SLOT_MAP_ID) {
            ngx_memcpy(range->id, data, len);
        }

    } else if (depth == 4 && task->parent->idx == 3
               && task->parent->parent->idx == 2)
    {
        /* a host that is not known, "?", is where its "ip" is */

        if (idx % 2 == 0) {
            range->ip = (len == 2 && ngx_memcmp(data, "ip", 2) == 0);

        } else if (range->ip && range->host_len == 1 && range->host[0] == '?') {
            ngx_rl_redis_range_host(range, data, len);
        }
    }
}


/* Any element that is no array. An integer has its decimal text, too. */
static void *
ngx_rl_redis_read_element(const redisReadTask *task, const char *data,
    size_t len, int64_t value)
{
    ngx_uint_t             depth;
    ngx_rl_redis_reply_t  *reply;

    reply = task->privdata;
    depth = ngx_rl_redis_depth(task);

    if (depth == 0) {
        ngx_rl_redis_reply_start(reply, task->type);
    }

    switch (reply->form) {

    case NGX_RL_REDIS_FORM_TEXTS:
        reply->n += (task->type == REDIS_REPLY_INTEGER);
        return ngx_rl_redis_text_add(reply, depth, data, len);

    case NGX_RL_REDIS_FORM_SLOTS:

        if (depth >= 2) {
            ngx_rl_redis_range_set(task, depth, data, len, value);
        }

        return reply;

    default: /* NGX_RL_REDIS_FORM_VALUES */

        if (task->type != REDIS_REPLY_INTEGER) {
            reply->flat = 0;

        } else if (reply->flat) {
            reply->values[reply->n++] = value;
        }

        return reply;
    }
}


static void *
ngx_rl_redis_read_string(const redisReadTask *task, char *data, size_t len)
{
    void                  *object;
    ngx_rl_redis_reply_t  *reply;

    reply = task->privdata;
    object = ngx_rl_redis_read_element(task, data, len, 0);

    if (task->parent == NULL) {
        reply->text_len = ngx_min(len, sizeof(reply->text));
        ngx_memcpy(reply->text, data, reply->text_len);
    }

    return object;
}


static void *
ngx_rl_redis_read_integer(const redisReadTask *task, long long value)
{
    u_char  *p, text[NGX_INT64_LEN];

    p = text;

    if (value < 0) {
        *p++ = '-';
    }

    p = ngx_rl_number_write(p, value < 0 ? 0 - (uint64_t) value
                                         : (uint64_t) value);

    return ngx_rl_redis_read_element(task, (char *) text, p - text, value);
}


static void *
ngx_rl_redis_read_nil(const redisReadTask *task)
{
    void                  *object;
    ngx_rl_redis_reply_t  *reply;

    reply = task->privdata;
    object = ngx_rl_redis_read_element(task, "", 0, 0);

    /* of TEXTS its type may be that of an array without elements, too */

    if (task->parent == NULL && reply->form == NGX_RL_REDIS_FORM_TEXTS) {
        reply->flat = 1;
    }

    return object;
}


static void *
ngx_rl_redis_read_array(const redisReadTask *task, ngx_rl_redis_elements_t n)
{
    ngx_uint_t             max;
    ngx_rl_redis_reply_t  *reply;
    ngx_rl_redis_range_t  *ranges;

    reply = task->privdata;

    /* hiredis has a limit of its own up to 0.14, and none since 1.0 */

    if ((ngx_uint_t) n > ngx_rl_redis_forms[reply->form].elements
        || ngx_rl_redis_depth(task) > NGX_RL_REDIS_MAX_DEPTH)
    {
        return NULL;
    }

    if (task->parent == NULL) {
        ngx_rl_redis_reply_start(reply, task->type);
        reply->flat = 1;

        return reply;
    }

    reply->flat = 0;

    if (reply->form != NGX_RL_REDIS_FORM_SLOTS
        || ngx_rl_redis_depth(task) != 1)
    {
        return reply;
    }

    if (reply->nranges == reply->max_ranges) {
        max = reply->max_ranges ? reply->max_ranges * 2 : 64;

        ranges = ngx_alloc(max * sizeof(ngx_rl_redis_range_t), reply->log);
        if (ranges == NULL) {
            return NULL;
        }

        if (reply->ranges) {
            ngx_memcpy(ranges, reply->ranges,
                       reply->nranges * sizeof(ngx_rl_redis_range_t));
            ngx_free(reply->ranges);
        }

        reply->ranges = ranges;
        reply->max_ranges = max;
    }

    /* what the reply leaves out makes a range that is refused */

    ranges = &reply->ranges[reply->nranges++];
    ngx_memzero(ranges, sizeof(ngx_rl_redis_range_t));
    ranges->first = -1;

    return reply;
}


/* An element has no memory of its own. */
static void
ngx_rl_redis_read_free(void *object)
{
    (void) object;
}


static redisReplyObjectFunctions  ngx_rl_redis_read_functions = {
    .createString = ngx_rl_redis_read_string,
    .createArray = ngx_rl_redis_read_array,
    .createInteger = ngx_rl_redis_read_integer,
    .createNil = ngx_rl_redis_read_nil,
    .freeObject = ngx_rl_redis_read_free
};


u_char *
ngx_rl_redis_write_array(u_char *p, ngx_uint_t n)
{
    *p++ = '*';
    p = ngx_rl_number_write(p, n);
    *p++ = CR;
    *p++ = LF;

    return p;
}


u_char *
ngx_rl_redis_write_bulk(u_char *p, const u_char *data, size_t len)
{
    *p++ = '$';
    p = ngx_rl_number_write(p, len);
    *p++ = CR;
    *p++ = LF;
    p = ngx_cpymem(p, data, len);
    *p++ = CR;
    *p++ = LF;

    return p;
}


u_char *
ngx_rl_redis_write_command(u_char *p, const ngx_str_t *args, ngx_uint_t nargs)
{
    ngx_uint_t  i;

    p = ngx_rl_redis_write_array(p, nargs);

    for (i = 0; i < nargs; i++) {
        p = ngx_rl_redis_write_bulk(p, args[i].data, args[i].len);
    }

    return p;
}


void *
ngx_rl_redis_reader_new(ngx_rl_redis_reply_t *reply)
{
    redisReader  *reader;

    reader = redisReaderCreateWithFunctions(&ngx_rl_redis_read_functions);
    if (reader == NULL) {
        return NULL;
    }

    /* redisReaderSetPrivdata() casts the pointer to int */
    reader->privdata = reply;

    reply->len = 0;
    reply->bytes = 0;

    return reader;
}


void
ngx_rl_redis_ranges_free(ngx_rl_redis_reply_t *reply)
{
    if (reply->ranges) {
        ngx_free(reply->ranges);
    }

    reply->ranges = NULL;
    reply->nranges = 0;
    reply->max_ranges = 0;
}


void
ngx_rl_redis_reader_free(void *reader, ngx_rl_redis_reply_t *reply)
{
    redisReaderFree(reader);
    ngx_rl_redis_ranges_free(reply);
    ngx_rl_redis_texts_free(reply);
}


void
ngx_rl_redis_reader_feed(void *reader, const u_char *data, size_t len)
{
    redisReader           *rd;
    ngx_rl_redis_reply_t  *reply;

    rd = reader;
    reply = rd->privdata;
    reply->data = data;
    reply->len = len;
}


size_t
ngx_rl_redis_reader_left(void *reader)
{
    redisReader           *rd;
    ngx_rl_redis_reply_t  *reply;

    rd = reader;
    reply = rd->privdata;

    return reply->len + rd->len - rd->pos;
}


/* Returns the end of a line that is a number as Redis writes it, or NULL. */
static inline const u_char *
ngx_rl_redis_read_number(const u_char *p, const u_char *last, u_char type,
    int64_t *value)
{
    int64_t        number;
    ngx_uint_t     negative, digit;
    const u_char  *digits, *end;

    /* of one digit, at least */

    if (last - p < 4 || *p++ != type) {
        return NULL;
    }

    negative = (*p == '-');
    p += negative;
    digits = p;
    end = p + ngx_min(last - p, NGX_RL_REDIS_DIGITS);

    for (number = 0; p != end; p++) {
        digit = (ngx_uint_t) *p - '0';

        if (digit > 9) {
            break;
        }

        number = number * 10 + (int64_t) digit;
    }

    /* no zero before the others, and "-0" is none */

    if (p == digits
        || (*digits == '0' && (negative || p - digits > 1))
        || last - p < 2 || p[0] != CR || p[1] != LF)
    {
        return NULL;
    }

    *value = negative ? -number : number;

    return p + 2;
}


/*
 * A check's answer: "*<n>\r\n", then n times ":<value>\r\n". Returns its
 * length; 0: what was fed begins with anything else, or ends before it.
 */
static size_t
ngx_rl_redis_read_values(ngx_rl_redis_reply_t *reply)
{
    int64_t        n;
    ngx_int_t      i;
    const u_char  *p, *last;

    last = reply->data + reply->len;

    p = ngx_rl_redis_read_number(reply->data, last, '*', &n);

    if (p == NULL || n < 1 || n > NGX_RL_REDIS_MAX_VALUES) {
        return 0;
    }

    for (i = 0; i < n; i++) {
        p = ngx_rl_redis_read_number(p, last, ':', &reply->values[i]);

        if (p == NULL) {
            return 0;
        }
    }

    ngx_rl_redis_reply_start(reply, REDIS_REPLY_ARRAY);
    reply->flat = 1;
    reply->n = n;

    return p - reply->data;
}


ngx_int_t
ngx_rl_redis_reader_next(void *reader, ngx_rl_redis_reply_t *reply,
    ngx_rl_redis_form_e form)
{
    void         *object;
    size_t        len;
    redisReader  *rd;

    rd = reader;
    reply->form = form;

    /* only if hiredis has neither begun a reply nor holds bytes of one */

    if (form == NGX_RL_REDIS_FORM_VALUES
        && rd->ridx == -1 && rd->pos == rd->len)
    {
        len = ngx_rl_redis_read_values(reply);

        if (len) {
            reply->data += len;
            reply->len -= len;
            return NGX_OK;
        }
    }

    len = reply->len;

    if (len) {
        reply->bytes += len;
        reply->len = 0;

        if (redisReaderFeed(rd, (const char *) reply->data, len) != REDIS_OK) {
            return NGX_ERROR;
        }
    }

    if (redisReaderGetReply(rd, &object) != REDIS_OK) {
        return NGX_ERROR;
    }

    if (object == NULL) {
        /* no element of CLUSTER SLOTS is as long as a whole reply of others */

        if (form == NGX_RL_REDIS_FORM_SLOTS
            && ngx_rl_redis_reader_left(reader)
               > NGX_RL_REDIS_MAX_REPLY)
        {
            return NGX_ERROR;
        }

        return reply->bytes > ngx_rl_redis_forms[form].bytes
               ? NGX_ERROR : NGX_AGAIN;
    }

    reply->bytes = 0;

    /* types of RESP3, which nobody asked for, do not pass by the functions */

    return object == reply ? NGX_OK : NGX_ERROR;
}


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
            && ngx_rl_caseless(name->data, word->data, word->len))
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
