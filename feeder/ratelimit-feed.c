/*
 * Copies rules, tiers, lists and overrides from tables of PostgreSQL to the
 * documents of gateways, through their endpoint. The functions of schema.sql
 * make the next document; this program carries texts between both, and waits.
 */

#include <curl/curl.h>
#include <errno.h>
#include <getopt.h>
#include <libpq-fe.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#define FEED_GATEWAYS    64
#define FEED_LINE        1024
#define FEED_POLL_MS     30000
#define FEED_PAUSE_MS    500       /* between two turns of a gateway */
#define FEED_LEAD_MS     1000      /* between two tries to lead */
#define FEED_SAY_MS      60000     /* between two lines of one trouble */
#define FEED_QUERY_MS    30000
#define FEED_CONNECT_MS  2000
#define FEED_REQUEST_MS  15000
#define FEED_SILENT_S    3L        /* without a byte of the answer to a GET */

typedef enum {
    FEED_TOKEN = 0,
    FEED_DATABASE,
    FEED_CA,
    FEED_CERT,
    FEED_KEY,
    FEED_OWNER,
    FEED_GATEWAY
} feed_option_e;

/* One trouble: it is said at once, and then once a minute. */
typedef struct {
    int64_t         said_ms;       /* 0: never */
    int             bad;
} feed_note_t;

typedef struct {
    const char     *url;
    int64_t         next_ms;       /* when its next turn begins */
    int64_t         last_ms;       /* when the last one began */
    unsigned        away;          /* turns that failed, one after the other */
    feed_note_t     note;
    feed_note_t     rows;          /* that it refuses */
} feed_gateway_t;

typedef struct {
    const char     *options[FEED_GATEWAY];
    unsigned        ngateways;
    feed_gateway_t  gateways[FEED_GATEWAYS];

    int             signals;       /* readable: the program is to end */
    CURL           *curl;
    char            error[256];

    PGconn         *conn;          /* NULL: there is none */
    int             leads;
    unsigned        tries;         /* to connect */
    int64_t         next_ms;       /* to connect, or to try to lead */
    feed_note_t     note;          /* of the database */
} feed_t;

static const struct option  feed_options[] = {
    { "token-file", required_argument, NULL, FEED_TOKEN },
    { "database-file", required_argument, NULL, FEED_DATABASE },
    { "ca-file", required_argument, NULL, FEED_CA },
    { "cert-file", required_argument, NULL, FEED_CERT },
    { "key-file", required_argument, NULL, FEED_KEY },
    { "owner", required_argument, NULL, FEED_OWNER },
    { "gateway", required_argument, NULL, FEED_GATEWAY },
    { NULL, 0, NULL, 0 }
};


static int64_t
feed_now(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}


/* When to try again: within 30 seconds, and two feeders not at once. */
static int64_t
feed_backoff(unsigned tries)
{
    int  most;

    most = (tries < 5) ? 1000 << tries : FEED_POLL_MS;

    return feed_now() + most / 2 + rand() % (most / 2);
}


/* bad is 0: the trouble is over, if there was one. */
__attribute__((format(printf, 4, 5)))
static void
feed_say(feed_note_t *note, int bad, const char *what, const char *format, ...)
{
    char     text[FEED_LINE];
    va_list  args;

    if (bad ? note->said_ms && feed_now() - note->said_ms < FEED_SAY_MS
            : !note->bad)
    {
        return;
    }

    note->bad = bad;
    note->said_ms = bad ? feed_now() : note->said_ms;

    va_start(args, format);
    (void) vsnprintf(text, sizeof(text), format, args);
    va_end(args);

    text[strcspn(text, "\n")] = '\0';
    (void) fprintf(stderr, "ratelimit-feed: %s: %s\n", what, text);
}


/* The first line of a file. -1: feed->error says why there is none. */
static int
feed_file(feed_t *feed, const char *name, char line[FEED_LINE])
{
    FILE  *file;

    errno = ENODATA;
    file = fopen(name, "re");

    if (file == NULL || fgets(line, FEED_LINE, file) == NULL) {
        line[0] = '\0';
    }

    (void) snprintf(feed->error, sizeof(feed->error), "%.150s: %s", name,
                    strerror(errno));
    line[strcspn(line, "\r\n")] = '\0';

    if (file) {
        (void) fclose(file);
    }

    return line[0] ? 0 : -1;
}


/* Waits for events of fd. 1: there are some. 0: it is time. -1: to end. */
static int
feed_wait(feed_t *feed, int fd, int64_t until_ms)
{
    int64_t        ms;
    struct pollfd  fds[2] = { { feed->signals, POLLIN, 0 }, { fd, POLLIN, 0 } };

    ms = until_ms - feed_now();

    if (poll(fds, 2, (ms <= 0) ? 0 : (ms < FEED_POLL_MS) ? (int) ms
                                                         : FEED_POLL_MS) < 0)
    {
        return 0;
    }

    return fds[0].revents ? -1 : (fds[1].revents != 0);
}


static int
feed_progress(void *data, curl_off_t total, curl_off_t now, curl_off_t to_send,
    curl_off_t sent)
{
    return feed_wait(data, -1, 0) < 0;
}


/* The lock goes with the connection: another feeder may lead now. */
static void
feed_disconnect(feed_t *feed, const char *why)
{
    if (why) {
        feed_say(&feed->note, 1, "database", "%s", why);
    }

    PQfinish(feed->conn);

    feed->conn = NULL;
    feed->leads = 0;
    feed->next_ms = feed_backoff(feed->tries++);
}


/*
 * Runs a statement, which takes n texts. The result is to be cleared. NULL: the
 * connection is closed.
 */
static PGresult *
feed_query(feed_t *feed, const char *sql, int n, const char *const *texts)
{
    int        rc;
    int64_t    until_ms;
    PGresult  *result, *more;

    until_ms = feed_now() + FEED_QUERY_MS;
    rc = PQsendQueryParams(feed->conn, sql, n, NULL, texts, NULL, NULL, 0);

    while (rc == 1 && PQisBusy(feed->conn)) {
        rc = feed_wait(feed, PQsocket(feed->conn), until_ms);

        if (rc < 0 || feed_now() >= until_ms) {
            feed_disconnect(feed, (rc < 0) ? NULL : "no answer within 30 s");
            return NULL;
        }

        rc = PQconsumeInput(feed->conn);
    }

    result = (rc == 1) ? PQgetResult(feed->conn) : NULL;

    if (PQresultStatus(result) != PGRES_TUPLES_OK) {
        feed_disconnect(feed, PQerrorMessage(feed->conn));
        PQclear(result);
        return NULL;
    }

    while ((more = PQgetResult(feed->conn))) {
        PQclear(more);
    }

    return result;
}


/* Connects, if need be, and asks whether this feeder is the one that works. */
static void
feed_lead(feed_t *feed)
{
    char       conninfo[FEED_LINE];
    unsigned   i;
    PGresult  *result;

    static const char *const  names[] = { "connect_timeout", "keepalives_idle",
        "keepalives_interval", "keepalives_count", "tcp_user_timeout",
        "fallback_application_name", "dbname", "client_encoding", NULL };

    const char  *values[] = { "5", "10", "5", "3", "15000", "ratelimit-feed",
        conninfo, "UTF8", NULL };

    conninfo[0] = '\0';

    if (feed->conn == NULL && feed->options[FEED_DATABASE]
        && feed_file(feed, feed->options[FEED_DATABASE], conninfo) != 0)
    {
        feed_disconnect(feed, feed->error);
        return;
    }

    feed->conn = feed->conn ? feed->conn : PQconnectdbParams(names, values, 1);
    feed->next_ms = feed_now() + FEED_LEAD_MS;
    result = feed_query(feed, "SELECT rate_limit_lead()", 0, NULL);

    if (result) {
        feed->tries = 0;
        feed->leads = (PQgetvalue(result, 0, 0)[0] == 't');
        feed_say(&feed->note, 0, "database", "is there again");
        PQclear(result);
    }

    for (i = 0; i < feed->ngateways; i++) {
        feed->gateways[i].next_ms = 0;
    }
}


/*
 * GETs the document, or PUTs a body. Returns the status, or 0. feed->error says
 * what came. The answer is to be freed; NULL: there is none.
 */
static long
feed_request(feed_t *feed, const feed_gateway_t *gateway, const char *body,
    char etag[FEED_LINE], char **answer)
{
    char                 token[FEED_LINE], line[2 * FEED_LINE];
    long                 status;
    CURL                *curl;
    FILE                *file;
    size_t               len;
    CURLcode             rc;
    struct curl_slist   *headers;
    struct curl_header  *header;

    status = 0;
    *answer = NULL;
    token[0] = '\0';
    curl = feed->curl;

    if (feed->options[FEED_TOKEN]
        && feed_file(feed, feed->options[FEED_TOKEN], token) != 0)
    {
        return 0;
    }

    file = open_memstream(answer, &len);
    if (file == NULL) {
        return 0;
    }

    curl_easy_reset(curl);
    (void) snprintf(line, sizeof(line), "Authorization: Bearer %s", token);
    headers = curl_slist_append(NULL, line);

    if (body) {
        (void) snprintf(line, sizeof(line), "If-Match: %s", etag);
        headers = curl_slist_append(headers, line);
        (void) snprintf(line, sizeof(line), "X-RateLimit-Reason: %s",
                        feed->options[FEED_OWNER]);
        headers = curl_slist_append(headers, line);
        headers = curl_slist_append(headers, "Content-Type: application/json");
        headers = curl_slist_append(headers, "Expect:");

        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, "PUT");
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);

    } else {
        curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, FEED_SILENT_S);
    }

    (void) snprintf(line, sizeof(line), "%s/document", gateway->url);
    curl_easy_setopt(curl, CURLOPT_URL, line);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, file);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, feed_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, feed);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long) FEED_CONNECT_MS);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long) FEED_REQUEST_MS);
    curl_easy_setopt(curl, CURLOPT_SSLCERT, feed->options[FEED_CERT]);
    curl_easy_setopt(curl, CURLOPT_SSLKEY, feed->options[FEED_KEY]);

    if (feed->options[FEED_CA]) {
        curl_easy_setopt(curl, CURLOPT_CAINFO, feed->options[FEED_CA]);
    }

    rc = curl_easy_perform(curl);
    (void) snprintf(feed->error, sizeof(feed->error), "%s",
                    curl_easy_strerror(rc));

    if (fclose(file) == 0 && rc == CURLE_OK) {
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
        (void) snprintf(feed->error, sizeof(feed->error), "%ld %.200s", status,
                        *answer);

        /* 201 is a first version; a page of something else is no JSON */

        status = (**answer != '{') ? 0 : (status == 201) ? 200 : status;

        if (curl_easy_header(curl, "ETag", 0, CURLH_HEADER, -1, &header)
            == CURLHE_OK)
        {
            (void) snprintf(etag, FEED_LINE, "%s", header->value);
        }
    }

    curl_slist_free_all(headers);

    return status;
}


/*
 * Sends the rows to a gateway, without those that it refuses. Returns 200 if it
 * has the others, another status of it, or 0.
 */
static long
feed_send(feed_t *feed, feed_gateway_t *gateway, const char *document,
    char etag[FEED_LINE])
{
    char        *answer;
    long         status;
    PGresult    *step, *next;

    enum { REFUSED = 0, NEXT, NROWS };

    step = NULL;
    answer = NULL;

    do {
        const char  *texts[] = { feed->options[FEED_OWNER], gateway->url,
            document, step ? PQgetvalue(step, 0, REFUSED) : "[]",
            step ? PQgetvalue(step, 0, NEXT) : NULL, answer };

        status = 0;
        next = feed_query(feed, "SELECT * FROM rate_limit_step($1, $2, $3, $4, "
                          "$5, $6)", 6, texts);
        free(answer);
        answer = NULL;

        /* if no other row is to blame, it refuses all again */

        if (next == NULL
            || (step && strcmp(PQgetvalue(next, 0, REFUSED), texts[3]) == 0))
        {
            PQclear(next);
            break;
        }

        PQclear(step);
        step = next;

        if (PQgetisnull(step, 0, NEXT)) {
            status = 200;
            break;
        }

        status = feed_request(feed, gateway, PQgetvalue(step, 0, NEXT), etag,
                              &answer);

    } while (status == 422);

    if (status == 200) {
        feed_say(&gateway->rows, strcmp(PQgetvalue(step, 0, NROWS), "0") != 0,
                 gateway->url, "rows that it refuses: %s, see "
                 "rate_limit_refused", PQgetvalue(step, 0, NROWS));
    }

    PQclear(step);
    free(answer);

    return status;
}


/*
 * A gateway's turn. The tables are read after the document: what the feeder
 * before this one still sends is older, or its If-Match fails.
 */
static void
feed_turn(feed_t *feed, feed_gateway_t *gateway)
{
    char  *document, etag[FEED_LINE];
    long   status;

    etag[0] = '\0';
    gateway->last_ms = feed_now();
    status = feed_request(feed, gateway, NULL, etag, &document);
    status = (status == 200) ? feed_send(feed, gateway, document, etag) : 0;
    free(document);

    if (status == 200) {
        gateway->away = 0;
        gateway->next_ms = feed_now() + FEED_POLL_MS;
        feed_say(&gateway->note, 0, gateway->url, "takes the rows again");

    } else if (status == 412) {
        gateway->next_ms = gateway->last_ms + FEED_PAUSE_MS;

    } else if (feed_wait(feed, -1, 0) == 0) {
        gateway->next_ms = feed_backoff(gateway->away++);
        feed_say(&gateway->note, 1, gateway->url, "%s", feed->conn
                 ? feed->error : "the database went away");
    }
}


/* Until it is to end. Gateways that did not answer have their turn last. */
static void
feed_run(feed_t *feed)
{
    int              told, rc, away;
    int64_t          until_ms;
    unsigned         i;
    PGnotify        *notify;
    feed_gateway_t  *gateway;

    do {
        if (!feed->leads && feed->next_ms <= feed_now()) {
            feed_lead(feed);
        }

        for (told = 0; (notify = PQnotifies(feed->conn)); told = 1) {
            PQfreemem(notify);
        }

        until_ms = feed->leads ? INT64_MAX : feed->next_ms;

        for (i = 0; i < feed->ngateways && feed->leads; i++) {
            gateway = &feed->gateways[i];

            if (told && gateway->away == 0) {
                gateway->next_ms = gateway->last_ms + FEED_PAUSE_MS;
            }

            until_ms = (gateway->next_ms < until_ms) ? gateway->next_ms
                                                     : until_ms;
        }

        rc = feed_wait(feed, PQsocket(feed->conn), until_ms);

        if (rc == 1 && PQconsumeInput(feed->conn) == 0) {
            feed_disconnect(feed, PQerrorMessage(feed->conn));
        }

        for (i = 0; i < 2 * feed->ngateways && rc == 0 && feed->leads; i++) {
            away = (i >= feed->ngateways);
            gateway = &feed->gateways[i - (away ? feed->ngateways : 0)];

            if (gateway->next_ms <= feed_now() && (gateway->away > 0) == away) {
                feed_turn(feed, gateway);
                rc = feed_wait(feed, -1, 0);
            }
        }

    } while (rc >= 0);
}


/* An owner is the beginning of ids. */
static int
feed_read_options(feed_t *feed, int argc, char **argv)
{
    int          option;
    size_t       len;
    const char  *owner;

    while ((option = getopt_long(argc, argv, "", feed_options, NULL)) != -1) {

        if (option == '?' || feed->ngateways == FEED_GATEWAYS) {
            return -1;
        }

        if (option == FEED_GATEWAY) {
            feed->gateways[feed->ngateways++].url = optarg;

        } else {
            feed->options[option] = optarg;
        }
    }

    owner = feed->options[FEED_OWNER];
    len = strspn(owner, "abcdefghijklmnopqrstuvwxyz0123456789_-");

    return (optind == argc && feed->ngateways
            && (feed->options[FEED_TOKEN] || feed->options[FEED_CERT])
            && len && len <= 32 && owner[len] == '\0') ? 0 : -1;
}


int
main(int argc, char **argv)
{
    sigset_t       set;
    static feed_t  feed;

    feed.options[FEED_OWNER] = "postgres";

    if (feed_read_options(&feed, argc, argv) != 0) {
        (void) fprintf(stderr, "usage: ratelimit-feed --gateway=<its endpoint>"
            "... --token-file=<file>\n    [--database-file=<file>] "
            "[--owner=<of a-z, 0-9, _ and ->]\n    [--ca-file=<file>] "
            "[--cert-file=<file> --key-file=<file>]\n");
        return 2;
    }

    (void) sigemptyset(&set);
    (void) sigaddset(&set, SIGTERM);
    (void) sigaddset(&set, SIGINT);
    (void) sigprocmask(SIG_BLOCK, &set, NULL);
    srand((unsigned) (time(NULL) ^ getpid()));

    feed.signals = signalfd(-1, &set, SFD_CLOEXEC);
    feed.curl = (feed.signals < 0) ? NULL : curl_easy_init();

    if (feed.curl == NULL) {
        perror("ratelimit-feed");
        return 1;
    }

    feed_run(&feed);

    PQfinish(feed.conn);
    curl_easy_cleanup(feed.curl);
    curl_global_cleanup();
    (void) close(feed.signals);

    return 0;
}
