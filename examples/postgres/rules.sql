-- What `make run FEED=postgres` begins with.

INSERT INTO rate_limit_rules (id, scope, route, limit_count, window_ms)
VALUES ('reports', 'api_key', '/v1/reports/**', 5, 60000),
       ('exports', 'api_key', '/v1/exports/**', 3, 60000);

INSERT INTO rate_limit_tiers (rule, tier, limit_count)
VALUES ('reports', 'pro', 8);

INSERT INTO rate_limit_tier_of (key, tier) VALUES ('alice', 'pro');

INSERT INTO rate_limit_lists (list, address, reason)
VALUES ('deny', '192.0.2.0/24', 'scans');

INSERT INTO rate_limit_overrides (key, rule, type, value, expires_at, reason)
VALUES ('bob', 'reports', 'multiplicative', 1.2, now() + interval '1 day',
        'launch');
