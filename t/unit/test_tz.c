/* Time zones, against the C library's clock. */

#include "zone.h"

#define NOW    1792800000   /* 2026-10-24 */
#define YEAR   31556952

typedef struct {
    const char  *name;
    int64_t      when;
    int32_t      offset;
    int64_t      next;      /* 0: forever */
} clock_at_t;

static const clock_at_t  clocks[] = {
    { "Europe/Berlin", 1774745999, 3600, 1774746000 },
    { "Europe/Berlin", 1774746000, 7200, 1792890000 },
    { "Europe/Berlin", 1792890000, 3600, 1806195600 },
    { "America/New_York", 1773039600, -14400, 1793512800 },
    { "America/New_York", 1793512800, -18000, 1805007600 },
    { "Asia/Kolkata", 1792800000, 19800, 0 },
    { "Australia/Lord_Howe", 1790000000, 37800, 1791041400 },
    { "Australia/Lord_Howe", 1791041400, 39600, 1806764400 },
    { "Pacific/Apia", 1792800000, 46800, 0 },
    { "UTC", 1792800000, 0, 0 },

    /* by the rule: the summers of 2050 and 2100 */
    { "Europe/Berlin", 2540000000, 7200, 2550704400 },
    { "America/New_York", 4118000000, -14400, 4129250400 },
    { "Australia/Lord_Howe", 4118000000, 37800, 4126174200 }
};

/* the footers of files, and what is none */
static const char *const  rules[] = {
    "CET-1CEST,M3.5.0,M10.5.0/3",
    "EST5EDT,M3.2.0,M11.1.0",
    "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0",
    "<-02>2<-01>,M3.5.0/-1,M10.5.0/0",
    "IST-2IDT,M3.4.4/26,M10.5.0",
    "EET-2EEST,M4.5.5/0,M10.5.4/24",
    "AAA3BBB,J60/0,J300/5:30:15",
    "AAA-3BBB-5,59,300/1",
    "UTC0",
    "<+0545>-5:45"
};

static const char *const  not_rules[] = {
    "CET", "CE-1", "CET-25", "CET-1CEST", "CET-1CEST,M3.5.0",
    "CET-1CEST,M13.5.0,M10.5.0", "CET-1CEST,M3.6.0,M10.5.0",
    "CET-1CEST,M3.5.7,M10.5.0", "CET-1CEST,J0,J1", "CET-1CEST,366,1",
    "CET-1CEST,M3.5.0,M10.5.0/168", "CET-1CEST,M3.5.0,M10.5.0/3x", "<CET-1",
    "CET-1:60", "CET-1:"
};


/* In memory of exactly that length, for the sanitizers. */
static const char *
copy_read(ngx_rl_tz_t *tz, const u_char *data, size_t len)
{
    u_char *copy = malloc(len + 1);
    assert_non_null(copy);
    memcpy(copy + 1, data, len);
    const char *error = ngx_rl_tz_read(tz, copy + 1, len, NOW);
    free(copy);

    return error;
}


/* A file without changes, with a rule. */
static size_t
rule_write(u_char *buf, const char *rule)
{
    int     i;
    u_char  *p;

    memset(buf, 0, 256);

    for (p = buf, i = 0; i < 2; i++) {
        memcpy(p, "TZif2", 5);
        p[39] = 1;            /* one type */
        p[43] = 1;            /* of one character */
        p += 44 + 7;
    }

    return (size_t) (p + sprintf((char *) p, "\n%s\n", rule) - buf);
}


static void
clock_set(const char *tz)
{
    assert_int_equal(setenv("TZ", tz, 1), 0);
    tzset();
}


/* The C library's clock, and this one, at some instant. */
static void
clock_check(const ngx_rl_tz_t *tz, const char *name, int64_t when)
{
    time_t     t = (time_t) when, before;
    int64_t    next;
    struct tm  tm;

    assert_non_null(localtime_r(&t, &tm));
    int32_t offset = ngx_rl_tz_offset(tz, when, &next);

    if (offset != tm.tm_gmtoff) {
        fail_msg("%s: %lld: %d, not %ld", name, (long long) when, offset,
                 tm.tm_gmtoff);
    }

    assert_true(next > when);
    assert_true(ngx_rl_tz_instant(tz, when + offset) <= when);

    if (next == NGX_RL_TZ_FOREVER) {
        return;
    }

    before = (time_t) next - 1;
    assert_non_null(localtime_r(&before, &tm));

    if (offset != tm.tm_gmtoff) {
        fail_msg("%s: %lld: changes before %lld", name, (long long) when,
                 (long long) next);
    }
}


static void
test_clocks(void **state)
{
    int64_t      next;
    ngx_rl_tz_t  tz;

    for (size_t i = 0; i < COUNT(clocks); i++) {
        zone_read(&tz, clocks[i].name, NOW, 1);
        assert_int_equal(ngx_rl_tz_offset(&tz, clocks[i].when, &next),
                         clocks[i].offset);
        assert_int_equal(next, clocks[i].next ? clocks[i].next
                                              : NGX_RL_TZ_FOREVER);
    }
}


/* From a year before until beyond what a file tells itself. */
static void
test_zones_random(void **state)
{
    ngx_rl_tz_t  tz;

    static const char *const  names[] = {
        "Europe/Berlin", "America/New_York", "Asia/Kolkata",
        "Australia/Lord_Howe", "Pacific/Apia", "UTC", "Antarctica/Troll",
        "Africa/Casablanca", "Africa/Cairo", "America/Nuuk", "Asia/Jerusalem",
        "Pacific/Chatham", "America/Havana", "Asia/Gaza", "Europe/Dublin"
    };

    seed_set(1);

    for (size_t n = 0; n < COUNT(names); n++) {
        zone_read(&tz, names[n], NOW, 1);
        clock_set(names[n]);

        /* a month without summer time, Ramadan, is in no rule */

        int64_t years = (n == 7 || n == 13) ? 14 : 60;

        for (int i = 0; i < full_or(20000, 2000); i++) {
            clock_check(&tz, names[n],
                        NOW - YEAR + (int64_t) rnd((uint64_t)
                                                            years * YEAR));
        }
    }
}


static void
test_rules(void **state)
{
    u_char       buf[256];
    ngx_rl_tz_t  tz;

    for (size_t i = 0; i < COUNT(rules); i++) {
        assert_null(copy_read(&tz, buf, rule_write(buf, rules[i])));
        clock_set(rules[i]);

        for (int k = 0; k < 2000; k++) {
            clock_check(&tz, rules[i],
                        NOW - YEAR + (int64_t) rnd((uint64_t) 100
                                                            * YEAR));
        }
    }

    for (size_t i = 0; i < COUNT(not_rules); i++) {
        assert_string_equal(copy_read(&tz, buf,
                                      rule_write(buf, not_rules[i])),
                            "its rule for later years is none");
    }

    assert_null(copy_read(&tz, buf, rule_write(buf, "")));
}


/* Summer that never ends. */
static void
test_always(void **state)
{
    u_char       buf[256];
    int64_t      next;
    ngx_rl_tz_t  tz;

    assert_null(copy_read(&tz, buf, rule_write(buf, "EST5EDT,0/0,J365/25")));
    assert_int_equal(ngx_rl_tz_offset(&tz, 1798761600, &next), -14400);
    assert_int_equal(next, NGX_RL_TZ_FOREVER);
}


/* A file of each length, and with each byte another one. */
static void
test_damaged(void **state)
{
    int64_t       next;
    u_char        buf[NGX_RL_TZ_FILE];
    ngx_rl_tz_t   tz;

    size_t len = zone_file("Europe/Berlin", buf);

    for (size_t i = 0; i < len; i++) {
        assert_non_null(copy_read(&tz, buf, i));
    }

    for (size_t i = 0; i < len; i++) {
        buf[i] ^= 0xff;

        if (copy_read(&tz, buf, len) == NULL) {
            (void) ngx_rl_tz_offset(&tz, NOW, &next);
            assert_true(next > NOW);
        }

        buf[i] ^= 0xff;
    }
}


/* The first instant of a day: where there is no midnight, and where two are. */
static void
test_instants(void **state)
{
    ngx_rl_tz_t  tz;

    zone_read(&tz, "Europe/Berlin", NOW, 1);
    assert_int_equal(ngx_rl_tz_instant(&tz, 1774742400), 1774738800);

    /* 2:30 of 29 March 2026 is leapt over, that of 25 October is there twice */

    assert_int_equal(ngx_rl_tz_instant(&tz, 1774751400), 1774746000);
    assert_int_equal(ngx_rl_tz_instant(&tz, 1792895400), 1792888200);

    /* 24 April 2026 begins at 1:00, 30 October on the second try */

    zone_read(&tz, "Africa/Cairo", NOW, 1);
    assert_int_equal(ngx_rl_tz_instant(&tz, 1776988800), 1776981600);
    assert_int_equal(ngx_rl_tz_instant(&tz, 1793318400), 1793311200);
}


static void
test_names(void **state)
{
    static const char *const  good[] = {
        "UTC", "Europe/Berlin", "Etc/GMT+5", "America/Argentina/Ushuaia" };

    static const char *const  bad[] = {
        "", "/etc/passwd", "../passwd", "Europe/../UTC", "Europe//Berlin",
        "Europe/", "zone.tab", "Europe Berlin",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    };

    for (size_t i = 0; i < COUNT(good); i++) {
        assert_true(ngx_rl_tz_name_valid((u_char *) good[i], strlen(good[i])));
    }

    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_false(ngx_rl_tz_name_valid((u_char *) bad[i], strlen(bad[i])));
    }
}
