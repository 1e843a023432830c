/* Time zones for tests, of this machine. */

#ifndef ZONE_H_INCLUDED
#define ZONE_H_INCLUDED

#include "unit.h"

#include "ngx_rl_date.h"

#define ZONES  "/usr/share/zoneinfo/"


static inline size_t
zone_file(const char *name, u_char *buf)
{
    char     path[256];

    snprintf(path, sizeof(path), ZONES "%s", name);
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        fail_msg("no %s: package tzdata", path);
    }

    size_t n = fread(buf, 1, NGX_RL_TZ_FILE, f);
    fclose(f);

    return n;
}


/* As it is read at that time; a name for the codes of windows is n. */
static inline void
zone_read(ngx_rl_tz_t *tz, const char *name, int64_t now, uint32_t n)
{
    u_char  buf[NGX_RL_TZ_FILE];

    assert_null(ngx_rl_tz_read(tz, buf, zone_file(name, buf), now));
    tz->name = n;
}


/* One of some zones, as they were read at the end of 2023; or NULL: UTC. */
static inline const ngx_rl_tz_t *
zone_random(void)
{
    static ngx_rl_tz_t  zones[8];
    static const char *const   names[COUNT(zones)] = {
        "Europe/Berlin", "America/New_York", "Asia/Kolkata",
        "Australia/Lord_Howe", "Antarctica/Troll", "Africa/Cairo",
        "America/Havana", "Pacific/Apia"
    };

    size_t i = rnd(COUNT(zones) + 2);

    if (i >= COUNT(zones)) {
        return NULL;
    }

    if (zones[i].name == 0) {
        zone_read(&zones[i], names[i], 1700000000, 1 + i);
    }

    return &zones[i];
}

#endif /* ZONE_H_INCLUDED */
