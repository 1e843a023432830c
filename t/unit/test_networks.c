/* Texts of networks; sets of them against one after the other. */

#include "unit.h"

#include "ngx_rl_match.h"

#include <arpa/inet.h>

#define N  2000


static int
parse(const char *text, ngx_rl_network_t *network)
{
    network->value = 0;

    return ngx_rl_network_parse((const u_char *) text, strlen(text), network);
}


static void
address(const char *text, u_char *bytes)
{
    ngx_rl_network_t  network;

    assert_int_equal(parse(text, &network), 0);
    assert_int_equal(network.bits, 128);
    memcpy(bytes, network.address, NGX_RL_ADDRESS);
}


static void
test_parse(void **state)
{
    char              text[INET6_ADDRSTRLEN];
    ngx_rl_network_t  network;

    static const struct {
        const char  *text;
        const char  *address;    /* NULL: it is none */
        uint32_t     bits;
    } sets[] = {
        { "192.0.2.1", "::ffff:192.0.2.1", 128 }, { "10.1.2.3/8",
            "::ffff:10.0.0.0", 104 }, { "10.1.2.3/32", "::ffff:10.1.2.3", 128 },
            { "10.1.2.3/0", "::ffff:0.0.0.0", 96 }, { "::ffff:10.1.2.3/104",
            "::ffff:10.0.0.0", 104 }, { "::ffff:a01:203", "::ffff:10.1.2.3",
            128 }, { "2001:DB8:0:1::/32", "2001:db8::", 32 },
            { "2001:db8:0:1:ffff::1/65", "2001:db8:0:1:8000::", 65 }, { "::1/0",
            "::", 0 }, { "::1", "::1", 128 }, { "10.0.0.0/33", NULL, 0 },
            { "::/129", NULL, 0 }, { "10.0.0.0/", NULL, 0 }, { "10.0.0.0/+8",
            NULL, 0 }, { "10.0.0.0/8/8", NULL, 0 }, { "10.0.0", NULL, 0 },
            { "256.0.0.1", NULL, 0 }, { "", NULL, 0 }, { "/8", NULL, 0 },
            { "sk_1", NULL, 0 }, { "::1%lo", NULL, 0 },
            { "2001:db8:1:2:3:4:5:6:7", NULL, 0 },
            { "0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000", NULL,
            0 }
    };

    for (size_t i = 0; i < COUNT(sets); i++) {
        assert_int_equal(parse(sets[i].text, &network),
                         sets[i].address ? 0 : -1);

        if (sets[i].address) {
            inet_ntop(AF_INET6, network.address, text, sizeof(text));
            assert_string_equal(text, sets[i].address);
            assert_int_equal(network.bits, sets[i].bits);
        }
    }

    assert_int_equal(ngx_rl_network_parse((u_char *) "::1\0a", 5,
                                          &network), -1);
}


static ngx_rl_networks_t *
make(const ngx_rl_network_t *networks, size_t n)
{
    void *memory = calloc(1, ngx_rl_networks_bytes(networks, n));
    assert_non_null(memory);

    return ngx_rl_networks_init(memory, networks, n);
}


static void
test_have(void **state)
{
    u_char              bytes[NGX_RL_ADDRESS];
    ngx_rl_network_t    networks[6];

    static const struct {
        const char  *text;
        uint32_t     value;
    } in[] = {
        { "10.0.0.0/8", 5 }, { "10.1.0.0/16", 3 }, { "10.1.0.0/16", 2 },
            { "::ffff:192.0.2.7", 9 }, { "::/0", 4 }, { "2001:db8::/32", 1 }
    };

    static const struct {
        const char  *address;
        uint32_t     most;       /* 0: in none */
    } sets[] = {
        { "10.200.0.1", 5 }, { "10.1.2.3", 5 }, { "::ffff:10.1.2.3", 5 },
            { "192.0.2.7", 9 }, { "192.0.2.8", 0 }, { "2001:db8::1", 4 },
            { "::1", 4 }, { "::fffe:10.1.2.3", 4 }
    };

    for (size_t i = 0; i < COUNT(in); i++) {
        assert_int_equal(parse(in[i].text, &networks[i]), 0);
        networks[i].value = in[i].value;
    }

    ngx_rl_networks_t *list = make(networks, COUNT(in));

    for (size_t i = 0; i < COUNT(sets); i++) {
        address(sets[i].address, bytes);

        assert_int_equal(ngx_rl_networks_have(list, bytes, 0),
                         sets[i].most > 0);
        assert_int_equal(ngx_rl_networks_have(list, bytes, sets[i].most),
                         sets[i].most > 0);
        assert_false(ngx_rl_networks_have(list, bytes, sets[i].most + 1));
    }

    assert_false(ngx_rl_networks_have(NULL, bytes, 0));
    free(list);

    list = make(&networks[2], 1);
    address("10.1.0.0", bytes);
    assert_true(ngx_rl_networks_have(list, bytes, 2));
    address("10.2.0.0", bytes);
    assert_false(ngx_rl_networks_have(list, bytes, 0));
    free(list);
}


static int
naive(const ngx_rl_network_t *networks, const u_char *bytes, uint32_t least)
{
    uint32_t  bit;

    for (size_t i = 0; i < N; i++) {

        for (bit = 0; bit < networks[i].bits; bit++) {
            if ((bytes[bit / 8] ^ networks[i].address[bit / 8]) >> (7 - bit % 8)
                & 1)
            {
                break;
            }
        }

        if (bit == networks[i].bits && networks[i].value >= least) {
            return 1;
        }
    }

    return 0;
}


/* Addresses of few different bits: about half of them are in a network. */
static void
test_random(void **state)
{
    int                 found;
    char                text[INET6_ADDRSTRLEN + 4];
    size_t              i;
    u_char              bytes[NGX_RL_ADDRESS];

    static ngx_rl_network_t  networks[N];

    seed_set(1);

    for (i = 0; i < N; i++) {
        if (i % 2) {
            sprintf(text, "10.%d.%d.%d/%d", (int) rnd(16), (int) rnd(16),
                    (int) rnd(256), 15 + (int) rnd(18));
        } else {
            sprintf(text, "2001:db8:%x:%x::%x/%d", (int) rnd(32), (int) rnd(4),
                    (int) rnd(3), 40 + (int) rnd(89));
        }

        assert_int_equal(parse(text, &networks[i]), 0);
        networks[i].value = (uint32_t) rnd(100);
    }

    ngx_rl_networks_t *list = make(networks, N);

    for (i = 0, found = 0; i < 20000; i++) {

        size_t j = rnd(N);
        memcpy(bytes, networks[j].address, sizeof(bytes));
        bytes[15] = (u_char) rnd(256);
        bytes[14] ^= (u_char) rnd(16);
        uint32_t least = (uint32_t) rnd(120);

        int have = ngx_rl_networks_have(list, bytes, least);
        found += have;

        assert_int_equal(have, naive(networks, bytes, least));
    }

    assert_in_range(found, 2000, 18000);
    free(list);
}
