-- Tables of rules for ratelimit-feed: see docs/postgres.md.
--
--   psql -v ON_ERROR_STOP=1 -1 -f schema.sql
--
-- A constraint refuses most of what a gateway would refuse. What a gateway
-- refuses all the same stands in rate_limit_refused.

CREATE DOMAIN rate_limit_id AS text CHECK (VALUE ~ '^[A-Za-z0-9_.-]{1,64}$');
CREATE DOMAIN rate_limit_tier AS text
    CHECK (octet_length(VALUE) BETWEEN 1 AND 64 AND VALUE !~ '[\x01-\x1f$/~]');
CREATE DOMAIN rate_limit_amount AS bigint CHECK (VALUE BETWEEN 0 AND 1 << 30);
CREATE DOMAIN rate_limit_window AS bigint
    CHECK (VALUE BETWEEN 1000 AND 31622400000 AND VALUE % 1000 = 0);
CREATE DOMAIN rate_limit_time AS timestamptz CHECK (VALUE < '9999-12-31');

-- an API key or another value in clear, or its digest
CREATE DOMAIN rate_limit_key AS text CHECK (VALUE <> ''
    AND (VALUE !~ '^sha256:' OR VALUE ~ '^sha256:[0-9A-Fa-f]{64}$'));

CREATE FUNCTION rate_limit_digest(key text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN key ~ '^sha256:' THEN lower(key) ELSE
           'sha256:' || encode(sha256(convert_to(key, 'UTF8')), 'hex') END $$;

CREATE FUNCTION rate_limit_is_address(key text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT key ~ '^([0-9]+\.){3}[0-9]+(/[0-9]+)?$'
           OR key ~ '^[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(/[0-9]+)?$' $$;

CREATE TABLE rate_limit_rules (
    id           rate_limit_id PRIMARY KEY,
    scope        text NOT NULL DEFAULT 'zone'
                 CHECK (scope IN ('zone', 'global', 'api_key', 'ip', 'user')),
    route        text CHECK (route ~ '^~.' OR route ~ '^/' AND route !~ '//|;'),
    method       text CHECK (method ~ '^[A-Z]+(,[A-Z]+)*$'),
    limit_count  rate_limit_amount,
    window_ms    rate_limit_window,
    weight_field text CHECK (weight_field <> ''),
    is_active    boolean NOT NULL DEFAULT true,
    algorithm    text NOT NULL DEFAULT 'token_bucket'
                 CHECK (algorithm IN ('token_bucket', 'leaky_bucket',
                                      'fixed_window', 'sliding_window',
                                      'sliding_log', 'concurrency')),
    burst        rate_limit_amount,
    key          text CHECK (key <> ''),
    tier         rate_limit_tier,
    rule_group   rate_limit_id,
    priority     integer CHECK (priority BETWEEN -1000000 AND 1000000),
    percent      integer CHECK (percent BETWEEN 1 AND 100),
    fail_mode    text CHECK (fail_mode IN ('open', 'local', 'closed')),
    sync         text CHECK (sync IN ('lease', 'strict', 'async')),
    dry_run      boolean,
    description  text CHECK (octet_length(description) BETWEEN 1 AND 1024),
    extra        jsonb NOT NULL DEFAULT '{}'
                 CHECK (jsonb_typeof(extra) = 'object'
                        AND NOT extra ?| '{id,owner,tiers}'),
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),

    CHECK (extra ? 'params' OR (limit_count IS NOT NULL
           AND (window_ms IS NOT NULL OR algorithm = 'concurrency'))),
    CHECK (algorithm <> 'concurrency'
           OR num_nonnulls(window_ms, weight_field) = 0),
    CHECK (algorithm <> 'sliding_log' OR limit_count <= 10000),
    CHECK (burst IS NULL OR algorithm = 'leaky_bucket'
           OR (algorithm = 'token_bucket' AND least(burst, limit_count) > 0))
);

-- limit_count NULL: unlimited
CREATE TABLE rate_limit_tiers (
    rule         rate_limit_id NOT NULL REFERENCES rate_limit_rules
                 ON UPDATE CASCADE ON DELETE CASCADE,
    tier         rate_limit_tier NOT NULL,
    limit_count  rate_limit_amount,
    window_ms    rate_limit_window,
    burst        rate_limit_amount CHECK (burst > 0),
    PRIMARY KEY (rule, tier),
    CHECK (limit_count IS NOT NULL OR num_nonnulls(window_ms, burst) = 0)
);

-- rule NULL: key is an API key; else a value of that rule's key
CREATE TABLE rate_limit_tier_of (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key          rate_limit_key NOT NULL,
    rule         rate_limit_id,
    tier         rate_limit_tier NOT NULL,
    CHECK (rule IS NOT NULL OR NOT rate_limit_is_address(key))
);

CREATE UNIQUE INDEX ON rate_limit_tier_of
    (coalesce(rule, ''), rate_limit_digest(key));

CREATE TABLE rate_limit_lists (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    list         text NOT NULL CHECK (list IN ('allow', 'deny')),
    address      cidr CHECK (masklen(address) > 0),
    key          rate_limit_key,
    pattern      text CHECK (octet_length(pattern) <= 256
                             AND pattern ~ '[*?]' AND pattern ~ '[^*?]'),
    rule         rate_limit_id,
    expires_at   rate_limit_time,
    reason       text,
    CHECK (num_nonnulls(address, key, pattern) = 1),
    CHECK (rule IS NULL OR key IS NOT NULL),
    CHECK (rule IS NOT NULL OR NOT rate_limit_is_address(key))
);

-- type 'absolute' with value NULL: unlimited. part: the key is a value of this
-- part of a rule's key, not an API key
CREATE TABLE rate_limit_overrides (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key          rate_limit_key NOT NULL,
    part         text CHECK (part <> ''),
    rule         rate_limit_id,
    type         text NOT NULL CHECK (type IN ('absolute', 'multiplicative')),
    value        numeric,
    burst        rate_limit_amount CHECK (burst > 0),
    expires_at   rate_limit_time,
    reason       text,
    CHECK (CASE WHEN part IS NULL THEN NOT rate_limit_is_address(key)
                ELSE key !~ '^sha256:' END),
    CHECK (CASE WHEN type = 'absolute'
                THEN (value IS NULL AND burst IS NULL)
                     OR (value BETWEEN 0 AND 1 << 30 AND trunc(value) = value)
                ELSE value > 0 AND value <= 1000000 AND value IS NOT NULL
                     AND round(value, 6) = value AND burst IS NULL END)
);

-- What gateways refused, by row; the feeder writes it.
CREATE TABLE rate_limit_refused (
    gateway      text NOT NULL,
    relation     text NOT NULL,
    row_id       text NOT NULL,
    detail       text NOT NULL,
    since        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (gateway, relation, row_id)
);

-- The tiers of keys that the feeder has set: they have no place for its mark.
CREATE TABLE rate_limit_given (
    gateway      text NOT NULL,
    place        text NOT NULL,
    PRIMARY KEY (gateway, place)
);

CREATE FUNCTION rate_limit_utc(at timestamptz) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') $$;

-- The rows, but for those refused (an array as of rate_limit_refuse()): where
-- they stand in a document, and as what. A name is that of a key in an object.
CREATE FUNCTION rate_limit_rows(owner text, refused jsonb)
RETURNS TABLE (n bigint, relation text, row_id text, place text, name text,
               entry jsonb)
LANGUAGE sql STABLE AS $$
    WITH refused AS (
        SELECT * FROM jsonb_to_recordset(refused) r (relation text, row_id text)
    ), tiers AS (
        SELECT rule, jsonb_object_agg(tier, CASE WHEN limit_count IS NULL
            THEN '"unlimited"' ELSE jsonb_build_object('limit', limit_count,
                'window', window_ms / 1000, 'capacity', burst) END) AS tiers
        FROM rate_limit_tiers
        WHERE ('rate_limit_tiers', rule || '/' || tier) NOT IN (TABLE refused)
        GROUP BY rule
    ), rules AS (
        SELECT r.id, extra, jsonb_build_object(
            'id', r.id, 'owner', owner, 'algorithm', algorithm,
            'key', coalesce(key, CASE scope
                WHEN 'global' THEN 'all' WHEN 'ip' THEN '$ratelimit_client'
                WHEN 'api_key' THEN '$ratelimit_api_key'
                WHEN 'user' THEN '$ratelimit_jwt_sub' END),
            'match', jsonb_build_object(
                'route', CASE WHEN route ~ '^/' THEN route END,
                'endpoint_regex', CASE WHEN route ~ '^~[*]' THEN route
                                       WHEN route ~ '^~' THEN substr(route, 2)
                                  END,
                'methods', string_to_array(method, ',')),
            'params', CASE WHEN algorithm = 'token_bucket' AND burst > 0
                THEN jsonb_build_object('capacity', burst,
                    'window', window_ms / 1000, 'refill_rate',
                    (limit_count * 1000.0 / window_ms)::float8::numeric)
                ELSE jsonb_build_object('limit', limit_count,
                    'window', window_ms / 1000, 'burst', burst) END,
            'cost', CASE WHEN weight_field ~ '^[0-9]{1,9}$'
                         THEN to_jsonb(weight_field::bigint)
                         ELSE to_jsonb(weight_field) END,
            'tiers', tiers, 'tier', tier, 'group', rule_group,
            'priority', priority, 'percent', percent, 'fail_mode', fail_mode,
            'sync', sync, 'dry_run', dry_run, 'description', description,
            'enabled', nullif(is_active, true)) AS entry
        FROM rate_limit_rules r LEFT JOIN tiers ON rule = r.id
    ), found AS (
        SELECT 1 AS kind, 0::bigint AS at, 'rate_limit_rules' AS relation,
            id::text AS row_id, 'rules' AS place, NULL AS name,
            entry || extra || jsonb_build_object(
                'match', entry -> 'match' || coalesce(extra -> 'match', '{}'),
                'params', entry -> 'params'
                          || coalesce(extra -> 'params', '{}')) AS entry
        FROM rules
        UNION ALL
        SELECT 2, id, 'rate_limit_tier_of', id::text,
            coalesce('tier_of/rules/' || rule, 'tier_of/keys'),
            rate_limit_digest(key), to_jsonb(tier::text)
        FROM rate_limit_tier_of
        UNION ALL
        SELECT 3, id, 'rate_limit_lists', id::text, list, NULL,
            jsonb_build_object('address', address, 'rule', rule,
                'key', coalesce(pattern, rate_limit_digest(key)),
                'expires_at', rate_limit_utc(expires_at),
                'reason', owner || '.' || id || coalesce(' ' || reason, ''))
        FROM rate_limit_lists WHERE coalesce(expires_at > now(), true)
        UNION ALL
        SELECT 4, id, 'rate_limit_overrides', id::text, 'overrides', NULL,
            jsonb_build_object('id', owner || '.' || id, 'rule', rule,
                'key', CASE WHEN part IS NULL THEN rate_limit_digest(key) END,
                'tenant', CASE WHEN part IS NOT NULL THEN
                          jsonb_build_object('part', part, 'value', key) END,
                'type', type,
                'value', CASE WHEN value IS NULL THEN '"unlimited"'
                              WHEN burst IS NULL THEN to_jsonb(trim_scale(value))
                              ELSE jsonb_build_object('limit', value::bigint,
                                                      'capacity', burst) END,
                'expires_at', rate_limit_utc(expires_at), 'reason', reason)
        FROM rate_limit_overrides WHERE coalesce(expires_at > now(), true)
    )
    SELECT row_number() OVER (ORDER BY kind, at, row_id), relation, row_id,
           place, name, jsonb_strip_nulls(entry)
    FROM found WHERE (relation, row_id) NOT IN (TABLE refused) $$;

CREATE FUNCTION rate_limit_part(document json, path text[], type text)
RETURNS json LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE json_typeof(document #> path) WHEN type
           THEN document #> path END $$;

-- Whether an element of a document's array was made of a row.
CREATE FUNCTION rate_limit_mine(owner text, place text, element json)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(CASE WHEN place = 'rules' THEN element ->> 'owner' = owner
        ELSE starts_with(element ->> CASE place WHEN 'overrides' THEN 'id'
                                     ELSE 'reason' END, owner || '.') END,
        false) $$;

-- The next document: what the document has of others, and the rows. body is
-- NULL if it has them already. unfit: the rows that found no place. An element
-- that has ended makes no change: it leaves the document with the next one.
CREATE FUNCTION rate_limit_next(owner text, at text, document json,
                                refused jsonb, OUT body text, OUT unfit jsonb)
LANGUAGE sql AS $$
    WITH elements AS (
        SELECT place, i, element, rate_limit_mine(owner, place, element) AS mine
        FROM unnest('{rules,allow,deny,overrides}'::text[]) place,
             json_array_elements(rate_limit_part(document, ARRAY[place],
                                                 'array'))
             WITH ORDINALITY e (element, i)
    ), tiers AS (
        SELECT t.*, g.place IS NOT NULL AS mine
        FROM (SELECT 'tier_of/keys' AS place, key AS name, value::text
              FROM json_each(rate_limit_part(document, '{tier_of,keys}',
                                             'object'))
              UNION ALL
              SELECT 'tier_of/rules/' || r.key, t.key, t.value::text
              FROM json_each(rate_limit_part(document, '{tier_of,rules}',
                                             'object')) r,
                   json_each(rate_limit_part(r.value, '{}', 'object')) t) t
        LEFT JOIN rate_limit_given g ON g.gateway = at
                                        AND g.place = t.place || '/' || name
    ), others AS (
        SELECT false AS inner_one, to_json(key)::text || ':' || value::text AS text
        FROM json_each(document)
        WHERE key NOT IN ('rules', 'allow', 'deny', 'overrides', 'tier_of')
        UNION ALL
        SELECT true, to_json(key)::text || ':' || value::text
        FROM json_each(rate_limit_part(document, '{tier_of}', 'object'))
        WHERE key NOT IN ('keys', 'rules')
    ), counts AS (
        SELECT place, count(*) AS n FROM elements WHERE NOT mine GROUP BY place
        UNION ALL
        SELECT place, count(*) FROM tiers WHERE NOT mine GROUP BY place
    ), rows AS (
        SELECT r.*, json_strip_nulls(r.entry::json)::text AS text,
            coalesce(t.value <> r.entry::text, false) AS taken,
            row_number() OVER (PARTITION BY r.place ORDER BY r.n)
            + coalesce(c.n, 0)
            > CASE r.place WHEN 'rules' THEN 1000 ELSE 10000 END AS many
        FROM rate_limit_rows(owner, refused) r
        LEFT JOIN tiers t ON t.place = r.place AND t.name = r.name
                             AND NOT t.mine
        LEFT JOIN counts c ON c.place = r.place
    ), judged AS (
        SELECT *, CASE WHEN taken THEN 'has a tier that others have set'
            WHEN many THEN 'is one too many: the document is full'
            WHEN sum(octet_length(text) + coalesce(length(name) + 4, 1))
                 FILTER (WHERE NOT taken AND NOT many) OVER (ORDER BY n)
                 + (SELECT coalesce(sum(octet_length(element::text) + 1), 0)
                    FROM elements WHERE NOT mine)
                 + (SELECT coalesce(sum(octet_length(name || value) + 4), 0)
                    FROM tiers WHERE NOT mine)
                 + (SELECT coalesce(sum(octet_length(text) + 1), 0) + 512
                    FROM others) > 1 << 20
            THEN 'does not fit: a document has at most 1 MiB' END AS unfit
        FROM rows
    ), fit AS (
        SELECT * FROM judged WHERE unfit IS NULL
    ), given AS (
        INSERT INTO rate_limit_given
        SELECT at, place || '/' || name FROM fit WHERE name IS NOT NULL
        ON CONFLICT DO NOTHING
    ), arrays AS (
        -- of overrides the last one counts, which is that of others
        SELECT place, '[' || string_agg(text, ',' ORDER BY
               mine = (place <> 'overrides'), i) || ']' AS text
        FROM (SELECT place, i, element::text AS text, mine FROM elements
              WHERE NOT mine
              UNION ALL SELECT place, n, text, true FROM fit
              WHERE name IS NULL) e
        GROUP BY place
    ), objects AS (
        SELECT place, '{' || string_agg(to_json(name)::text || ':' || text, ',')
               || '}' AS text
        FROM (SELECT place, name, value AS text FROM tiers t WHERE NOT mine
              AND NOT EXISTS (SELECT FROM fit f WHERE
                              (f.place, f.name) = (t.place, t.name))
              UNION ALL SELECT place, name, text FROM fit
              WHERE name IS NOT NULL) o
        GROUP BY place
    ), tier_of AS (
        SELECT '"keys":' || text AS text FROM objects
        WHERE place = 'tier_of/keys'
        UNION ALL
        SELECT '"rules":{' || string_agg(to_json(substr(place, 15))::text || ':'
                                         || text, ',') || '}'
        FROM objects WHERE place <> 'tier_of/keys' HAVING count(*) > 0
        UNION ALL
        SELECT text FROM others WHERE inner_one
    ), members AS (
        SELECT to_json(place)::text || ':' || text AS text FROM arrays
        UNION ALL
        SELECT '"tier_of":{' || string_agg(text, ',') || '}' FROM tier_of
        HAVING count(*) > 0
        UNION ALL
        SELECT text FROM others WHERE NOT inner_one
    ), before AS (
        SELECT place, i, '' AS name, element::jsonb AS entry FROM elements
        WHERE mine AND coalesce(element ->> 'expires_at'
                                > rate_limit_utc(now()), true)
        UNION ALL
        SELECT place, 0, name, value::jsonb FROM tiers WHERE mine
    ), after AS (
        SELECT place, CASE WHEN name IS NULL THEN n ELSE 0 END AS i,
               coalesce(name, '') AS name, entry
        FROM fit f WHERE NOT EXISTS (SELECT FROM tiers t WHERE NOT t.mine
                                     AND (t.place, t.name) = (f.place, f.name))
    )
    SELECT CASE WHEN (SELECT jsonb_agg(jsonb_build_array(place, name, entry)
                                       ORDER BY place, i, name) FROM before)
                     IS DISTINCT FROM
                     (SELECT jsonb_agg(jsonb_build_array(place, name, entry)
                                       ORDER BY place, i, name) FROM after)
           THEN (SELECT '{' || string_agg(text, ',') || '}' FROM members) END,
           (SELECT coalesce(jsonb_agg(jsonb_build_object('relation', relation,
                                          'row_id', row_id, 'detail', unfit)),
                            '[]') FROM judged WHERE unfit IS NOT NULL) $$;

-- The rows that made a gateway refuse the body, by its answer.
CREATE FUNCTION rate_limit_blame(owner text, at text, body json, answer json)
RETURNS jsonb LANGUAGE sql STABLE AS $$
    WITH errors AS (
        SELECT string_to_array(substr(e ->> 'pointer', 2), '/') AS path,
               e ->> 'detail' AS detail
        FROM json_array_elements(rate_limit_part(answer, '{errors}', 'array')) e
    ), places AS (
        SELECT path, detail, element,
            substring(substr(coalesce(element ->> 'id', element ->> 'reason'),
                             length(owner) + 2) FROM '^[0-9]+') AS id
        FROM errors, LATERAL (SELECT body #> path[1:2] AS element) e
        WHERE path[1] <> 'tier_of' AND rate_limit_mine(owner, path[1], element)
    ), found AS (
        SELECT 'rate_limit_tier_of' AS relation, t.id::text AS row_id, detail
        FROM errors, rate_limit_tier_of t JOIN rate_limit_given g ON g.place =
             coalesce('tier_of/rules/' || rule, 'tier_of/keys') || '/'
             || rate_limit_digest(key)
        WHERE path[1] = 'tier_of' AND gateway = at AND starts_with(g.place || '/',
                                          array_to_string(path, '/') || '/')
        UNION ALL
        SELECT 'rate_limit_tiers', (element ->> 'id') || '/' || path[4],
               ltrim(array_to_string(path[5:], '/') || ' ') || detail
        FROM places
        WHERE path[1] = 'rules' AND path[3] = 'tiers' AND path[4] IS NOT NULL
        UNION ALL
        SELECT CASE path[1] WHEN 'rules' THEN 'rate_limit_rules'
                            WHEN 'overrides' THEN 'rate_limit_overrides'
                            ELSE 'rate_limit_lists' END,
               CASE path[1] WHEN 'rules' THEN element ->> 'id' ELSE id END,
               ltrim(array_to_string(path[3:], '/') || ' ') || detail
        FROM places WHERE path[1] <> 'rules' OR path[3] IS DISTINCT FROM 'tiers'
                          OR path[4] IS NULL
    )
    SELECT coalesce(jsonb_agg(f), '[]') FROM (
        SELECT DISTINCT ON (relation, row_id) * FROM found
        WHERE row_id IS NOT NULL) f $$;

-- One step for a gateway. body and answer: what it has refused, or NULL before
-- the first step; refused: what the step before returned, or '[]'. next: what to
-- send, or NULL if it has all rows but those in rate_limit_refused.
CREATE FUNCTION rate_limit_step(owner text, at text, document json,
                                INOUT refused jsonb, body json, answer json,
                                OUT next text, OUT n bigint)
LANGUAGE plpgsql AS $$
DECLARE
    unfit jsonb;
BEGIN
    refused := refused
               || coalesce(rate_limit_blame(owner, at, body, answer), '[]');
    SELECT d.body, d.unfit FROM rate_limit_next(owner, at, document, refused) d
    INTO next, unfit;

    DELETE FROM rate_limit_refused WHERE gateway = at
        AND (relation, row_id) NOT IN (
            SELECT relation, row_id FROM jsonb_to_recordset(refused || unfit)
                                         r (relation text, row_id text));
    INSERT INTO rate_limit_refused AS r (gateway, relation, row_id, detail)
    SELECT at, f.* FROM jsonb_to_recordset(refused || unfit)
                        f (relation text, row_id text, detail text)
    ON CONFLICT (gateway, relation, row_id) DO UPDATE
        SET detail = excluded.detail, since = now()
        WHERE r.detail <> excluded.detail;
    n := jsonb_array_length(refused || unfit);

    IF next IS NULL THEN    -- the tiers of removed rows are gone
        DELETE FROM rate_limit_given WHERE gateway = at AND place NOT IN (
            SELECT r.place || '/' || name
            FROM rate_limit_rows(owner, refused) r WHERE name IS NOT NULL);
    END IF;
END $$;

-- Whether this session is the one that works now. Each of its transactions sees
-- one snapshot.
CREATE FUNCTION rate_limit_lead() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_try_advisory_lock(hashtextextended(
               'ratelimit-feed ' || current_schema(), 0)) THEN
        RETURN false;
    END IF;

    LISTEN rate_limit_feed;
    SET default_transaction_isolation = 'repeatable read';
    DELETE FROM rate_limit_refused;     -- also of gateways of another feeder
    RETURN true;
END $$;

CREATE FUNCTION rate_limit_touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at = now();
    RETURN NEW;
END $$;

CREATE FUNCTION rate_limit_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NOTIFY rate_limit_feed;
    RETURN NULL;
END $$;

CREATE TRIGGER touch BEFORE UPDATE ON rate_limit_rules
    FOR EACH ROW EXECUTE FUNCTION rate_limit_touch();

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY '{rules,tiers,tier_of,lists,overrides}'::text[] LOOP
        EXECUTE 'CREATE TRIGGER notify AFTER INSERT OR UPDATE OR DELETE '
                'OR TRUNCATE ON rate_limit_' || name
                || ' EXECUTE FUNCTION rate_limit_notify()';
    END LOOP;
END $$;
