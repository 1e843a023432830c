/* The view "Overview": this gateway, its fleet, and what is wrong. */

const BREAKERS = { closed: "closed: calls pass", open: "open: no calls",
                   readmits: "readmits some calls" };

function overview() {
    const wrong = el("div");
    const about = el("div", { class: "columns" });
    const nodes = table("Redis nodes", (node) => node.name, [
        { name: "Redis node", cell: (node) => data(node.name) },
        { name: "Breaker", cell: (node) => el("span", {
              class: node.breaker === "closed" ? "good" : "bad" },
              BREAKERS[node.breaker] || node.breaker) },
        { name: "Connected", cell: (node) => el("span", {
              class: node.connected ? "good" : "bad" },
              node.connected ? "yes" : "no") },
        { name: "Calls/s", class: "number", cell: (node) => shownRate(
              node.rate === undefined ? null : node.rate) },
        { name: "Time of a call", class: "number", cell: (node) => node.rate
              ? number(node.ms, 2) + " ms" : "\u2013" }
    ], "This zone has no Redis.", 12);
    const skipped = table("Skipped rules", (one) => one.pointer, [
        { name: "Rule", cell: (one) => data(one.id || "") },
        { name: "Place", cell: (one) => data(one.pointer) },
        { name: "Why", cell: (one) => data(one.detail) }
    ], "This gateway uses all of the document.", 10);
    const plots = traffic();
    const fallback = withoutRedis();

    return {
        name: "overview", title: "Overview",
        node: el("div", null, wrong, fallback.node, plots.node, about,
            part("Redis", null, nodes.node),
            part("Skipped rules and entries", null, skipped.node)),
        draw(status) {
            replace(wrong, el("section", null, wrongList(status)));
            replace(about, el("section", null, gatewayFacts(status)),
                    el("section", null, documentFacts(status)));
            nodes.show(status.redis ? status.redis.nodes : []);
            skipped.show(status.skipped);
            plots.draw();
        },
        async tick() {
            await plots.tick();
            await fallback.tick();
        }
    };
}

const FAIL_MODES = { open: "open: passes, not limited",
                     local: "local: this gateway enforces its share",
                     closed: "closed: 503" };

/* What the rules do while Redis does not answer, and since when. */
function withoutRedis() {
    const rules = table("Rules without Redis", (row) => row.rule, [
        { name: "Rule", cell: (row) => data(row.rule) },
        { name: "fail_mode", cell: (row) => row.fail_mode === null
              ? "as its location says"
              : FAIL_MODES[row.fail_mode]
                + (row.emergency ? " beyond its emergency rate" : "") },
        { name: "Not limited/s", class: "number",
          cell: (row) => alarm(row.degraded) },
        { name: "503/s", class: "number",
          cell: (row) => alarm(row.unavailable) },
        { name: "Since", cell: (row) => !row.since ? "\u2013"
              : time(redisAway() && gateway.status.redis.asked
                     || row.since.toISOString()) }
    ], "No rule of this zone needs Redis.", RULES);
    const node = el("section", null,
                    el("h2", { class: "bad" }, "Rules without Redis"),
                    rules.node);

    node.hidden = true;

    return {
        node: node,
        async tick() {
            const none = { degraded: [], unavailable: [] };

            node.hidden = !redisAway() && !Array.from(readings.rules.values())
                                           .some((kept) => kept.since);

            const policy = node.hidden ? null : await offered("policy");

            if (policy !== null) {
                const rows = policy.rules.filter((rule) => "fail_mode" in rule)
                             .map((rule) => Object.assign({}, none,
                                 readings.rules.get(rule.rule), rule));
                const sum = (row) => newest(row.degraded)
                                     + newest(row.unavailable);

                rules.show(rows.sort((one, other) => sum(other) - sum(one)));
            }
        }
    };
}

/* the calls of each Redis node, when they were read last */
const callsBefore = new Map();

/* What has come since then: rate, calls a second, and ms, of each of them. */
function takeCalls(redis) {
    const now = performance.now();

    for (const node of redis ? redis.nodes : []) {
        const was = callsBefore.get(node.name);
        const n = was ? node.calls - was.calls : -1;

        if (n >= 0) {
            node.rate = 1000 * n / (now - was.at);
            node.ms = 1000 * (node.call_seconds - was.call_seconds) / n;
        }

        callsBefore.set(node.name, { at: now, calls: node.calls,
                                     call_seconds: node.call_seconds });
    }
}

function gatewayFacts(status) {
    const redis = status.redis;

    return [el("h2", null, "Gateway and fleet"), facts(
        ["Gateway", data(status.gateway.hostname)],
        ["Zone", data(status.zone)],
        ["Worker that answered", String(status.gateway.worker)],
        ["Gateways that share the limits",
         redis ? number(redis.gateways) : "only this one"],
        redis ? ["Redis", [data(redis.name), redis.reachable
                           ? el("span", { class: "good" }, " answers")
                           : el("span", { class: "bad" }, " does not answer")]]
              : null,
        redis ? ["Asked last", time(redis.asked)] : null)];
}

function documentFacts(status) {
    const state = status.state;

    return [el("h2", null, "Document"), facts(
        ["Version in use here", number(status.in_use)],
        ["Newest known version", number(status.newest)],
        ["In use since", status.since
         ? [time(status.since), " (" + duration(status.age_seconds) + ")"]
         : "never"],
        ["State file", state === null ? "none"
         : [data(state.file), " ", state.saved
            ? el("span", { class: "good" }, "saved")
            : el("span", { class: "bad" }, "not saved ",
                 data(state.error || ""))]],
        ["You may change it", status.write ? "yes" : "no: this location has "
                                                     + "no \"write\""])];
}

/* What an engineer on call should know first. */
function wrongList(status) {
    const list = [];
    const redis = status.redis;

    if (readings.degraded) {
        list.push([el("b", null, rate(readings.degraded)),
                   " requests a second are not limited: see the rules below."]);
    }
    for (const node of redis ? redis.nodes : []) {
        if (node.breaker !== "closed") {
            list.push(["The breaker of Redis node ", data(node.name), ": ",
                       BREAKERS[node.breaker] || node.breaker, "."]);
        }
    }
    if (status.refused) {
        list.push("This gateway does not use version "
                  + number(status.refused) + ": the error log says why.");
    } else if (status.in_use !== status.newest) {
        list.push("Version " + number(status.newest) + " is not yet in use "
                  + "here: requests go by version "
                  + number(status.in_use) + ".");
    }
    if (status.skipped.length) {
        list.push(count(status.skipped.length, "entry", "entries")
                  + " of the document: skipped by this gateway.");
    }
    if (status.warnings) {
        list.push(count(status.warnings, "part", "parts") + " of the document "
                  + "without effect here.");
    }
    if (status.state && !status.state.saved) {
        list.push(["The state file ", data(status.state.file), " is not "
                   + "saved: ", data(status.state.error || "no reason"), "."]);
    }

    return list.length
        ? [el("h2", { class: "bad" }, "Problems"),
           el("ul", null, list.map((one) => el("li", null, one)))]
        : redisAway() ? null : el("p", { class: "good" }, "No problems.");
}
