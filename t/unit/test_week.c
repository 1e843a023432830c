/* Times of the week: how they are written, and which minutes they have. */

#include "unit.h"

#include "ngx_rl_date.h"

/* Monday, 5 January 1970, 00:00 of a local clock */
#define MONDAY  (4 * 86400)

#define AT(day, hour, minute)                                                 \
    (MONDAY + (day) * 86400 + (hour) * 3600 + (minute) * 60)

enum { MON, TUE, WED, THU, FRI, SAT, SUN };


static int
days(const char *text, uint32_t *bits)
{
    *bits = 0;

    return ngx_rl_week_days((const u_char *) text, strlen(text), bits);
}


static void
test_days(void **state)
{
    uint32_t  bits;

    static const struct {
        const char  *text;
        uint32_t     bits;    /* 0: it is wrong */
    } sets[] = {
        { "mon", 0x01 }, { "sun", 0x40 }, { "mon-fri", 0x1f }, { "mon-sun",
            0x7f }, { "wed-wed", 0x04 }, { "fri-mon", 0x71 }, { "sun-sat",
            0x7f }, { "sat,sun", 0x60 }, { "mon,wed-thu,mon", 0x0d }, { "", 0 },
            { "mon,", 0 }, { ",mon", 0 }, { "mon,,tue", 0 }, { "Mon", 0 },
            { "mon-", 0 }, { "-mon", 0 }, { "mon_fri", 0 }, { "mon-fr", 0 },
            { "mon-fry", 0 }, { "mo-friday", 0 }, { "mon-tue-wed", 0 },
            { "mon, tue", 0 }, { "monday", 0 }, { "weekday", 0 }, };

    for (size_t i = 0; i < COUNT(sets); i++) {
        assert_int_equal(days(sets[i].text, &bits), sets[i].bits ? 0 : -1);

        if (sets[i].bits) {
            assert_int_equal(bits, sets[i].bits);
        }
    }
}


static void
test_minute(void **state)
{
    uint32_t  minute;

    static const struct {
        const char  *text;
        int          minute;    /* -1: it is wrong */
    } sets[] = {
        { "00:00", 0 }, { "09:30", 570 }, { "23:59", 1439 }, { "24:00", 1440 },
            { "24:01", -1 }, { "25:00", -1 }, { "12:60", -1 }, { "9:30", -1 },
            { "09:3", -1 }, { "09:300", -1 }, { "09.30", -1 }, { "+9:30", -1 },
            { "09:-1", -1 }, { "", -1 }, };

    for (size_t i = 0; i < COUNT(sets); i++) {
        minute = 7777;

        assert_int_equal(
            ngx_rl_week_minute((const u_char *) sets[i].text,
                               strlen(sets[i].text), &minute),
            sets[i].minute < 0 ? -1 : 0);

        assert_int_equal(minute, sets[i].minute < 0 ? 7777 : sets[i].minute);
    }
}


static int
has(const char *text, uint32_t from, uint32_t to, uint64_t local)
{
    ngx_rl_week_t  week;

    assert_int_equal(days(text, &week.days), 0);
    week.from = from;
    week.to = to;

    return ngx_rl_week_has(&week, local);
}


static void
test_has(void **state)
{
    static const struct {
        const char  *days;
        uint32_t     from;
        uint32_t     to;
        uint64_t     local;
        int          has;
    } sets[] = {

        /* its first second, and the first one behind it */
        { "mon-fri", 540, 1020, AT(MON, 9, 0) - 1, 0 }, { "mon-fri", 540, 1020,
            AT(MON, 9, 0), 1 }, { "mon-fri", 540, 1020, AT(FRI, 17, 0) - 1, 1 },
            { "mon-fri", 540, 1020, AT(FRI, 17, 0), 0 }, { "mon-fri", 540, 1020,
            AT(SAT, 12, 0), 0 },

        /* whole days */
        { "sat,sun", 0, 1440, AT(SAT, 0, 0) - 1, 0 },
        { "sat,sun", 0, 1440, AT(SAT, 0, 0), 1 },
        { "sat,sun", 0, 1440, AT(MON + 7, 0, 0) - 1, 1 },
        { "sat,sun", 0, 1440, AT(MON + 7, 0, 0), 0 },

        /* over midnight: of the day on which it began */
        { "fri", 1320, 360, AT(FRI, 5, 0), 0 },
        { "fri", 1320, 360, AT(FRI, 22, 0), 1 },
        { "fri", 1320, 360, AT(SAT, 5, 59), 1 },
        { "fri", 1320, 360, AT(SAT, 6, 0), 0 },
        { "fri", 1320, 360, AT(SAT, 22, 0), 0 },
        { "fri,sat", 1320, 360, AT(SAT, 12, 0), 0 },

        /* over the end of the week */
        { "sun", 1320, 360, AT(MON, 5, 0), 1 },
        { "sun", 1320, 360, AT(SUN, 5, 0), 0 },
        { "sat", 1320, 0, AT(SAT, 23, 59), 1 },
        { "sat", 1320, 0, AT(SUN, 0, 0), 0 },

        /* the first days there are: a Thursday */
        { "thu", 0, 1440, 0, 1 },
        { "wed", 1320, 360, 0, 1 },
        { "wed", 1320, 360, 6 * 3600, 0 },
    };

    for (size_t i = 0; i < COUNT(sets); i++) {
        assert_int_equal(has(sets[i].days, sets[i].from, sets[i].to,
                             sets[i].local), sets[i].has);
    }
}


/* Against a table of the minutes of a week. */
static void
test_table(void **state)
{
    u_char          table[7 * 1440];
    ngx_rl_week_t   week;

    seed_new();

    for (int n = 0; n < full_or(2000, 50); n++) {
        memset(table, 0, sizeof(table));

        week.days = 1 + (uint32_t) rnd(NGX_RL_WEEK_ALL);
        week.from = (uint32_t) rnd(NGX_RL_DAY_MINUTES);

        do {
            week.to = (uint32_t) rnd(NGX_RL_DAY_MINUTES + 1);
        } while (week.to == week.from);

        uint32_t length = (week.to + NGX_RL_DAY_MINUTES - week.from)
                          % NGX_RL_DAY_MINUTES;
        length = length ? length : NGX_RL_DAY_MINUTES;

        for (uint32_t day = 0; day < 7; day++) {
            for (uint32_t m = 0; (week.days >> day & 1) && m < length; m++) {
                table[(day * NGX_RL_DAY_MINUTES + week.from + m)
                      % sizeof(table)] = 1;
            }
        }

        uint64_t local = MONDAY + rnd(3000) * 7 * 86400 + rnd(60);

        for (uint32_t m = 0; m < sizeof(table); m++) {
            assert_int_equal(ngx_rl_week_has(&week, local + m * 60), table[m]);
        }
    }
}
