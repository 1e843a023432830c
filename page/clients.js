/* The view "Clients": who is limited, and what a key has left. */

const HASHED = /^sha256:[0-9a-f]{64}$/;
const LATEST = 1000;          /* rejections kept, as the gateway does */

/*
 * A key that a client has sent, for a list: no "*" of it stands for other keys,
 * and none is taken for an address.
 */
function literal(key) {
    const text = key.replace(/[\\*?]/g, "\\$&");

    return isAddress(text) ? "\\" + text : text;
}

function clients() {
    const top = topKeys();
    const penalties = penaltyList();
    const last = lastRejections();
    const one = lookup();

    return {
        name: "clients", title: "Clients",
        node: el("div", null, top.node, penalties.node, last.node, one.node),
        async tick() {
            await top.tick();
            await penalties.tick();
            await last.tick();
        },
        lookUp: one.fill
    };
}

function isCut(row, what) {
    return row.cut !== undefined && row.cut.includes(what);
}

/*
 * What can be done about a key: {key, counted_by, rule}. One that is cut is
 * another key, and one of several parts is no text.
 */
function keyButtons(row) {
    if (isCut(row, "key")) {
        return el("span", { class: "faint" }, "too long to be named");
    }
    if (!/^\$\w+$/.test(row.counted_by)) {
        return null;
    }

    const at = " " + row.key + " " + (row.number || "");
    const isApiKey = row.counted_by === "$ratelimit_api_key";

    return buttons(
        HASHED.test(row.key) ? null
            : button("Look up", "look up" + at, () => views.clients.lookUp(
                  row.key, row.counted_by)),
        isApiKey && mayChange()
            ? [button("Override", "override" + at,
                      () => addOverride(row.key, row.rule)),
               button("Deny", "deny" + at,
                      () => addToList(DENY, literal(row.key)),
                      { class: "bad" })]
            : null);
}

function topKeys() {
    const by = select({ "aria-label": "Order of the keys", "data-at": "by",
                        onchange: () => { keys.turnBack(); tick(); } },
                      [["requests", "by requests"],
                       ["rejected", "by rejections"]]);
    const note = el("p", { class: "faint" });
    const keys = table("Top keys", (row) => row.counted_by + " " + row.key, [
        { name: "Key", cell: (row) => [keyText(row.key),
              isCut(row, "key") ? "\u2026" : null, row.penalized
              ? el("span", { class: "bad" }, " (penalized)") : null] },
        { name: "Counted by", cell: (row) => data(row.counted_by || "") },
        { name: "About", class: "number", cell: (row) => number(row.count) },
        { name: "Between", class: "number", cell: (row) =>
              row.at_least === row.at_most ? "exactly"
              : number(row.at_least) + " and " + number(row.at_most) },
        { name: "Per second", class: "number",
          cell: (row) => rate(row.per_second) },
        { name: "", cell: keyButtons }
    ], "No key has been counted in the last minutes.", 10);

    async function tick() {
        const answer = await offered("top", query(["by", by.value],
                                                  ["n", 100]));

        node.hidden = answer === null;

        if (answer === null) {
            return;
        }

        keys.show(answer.keys);
        replace(note, "Counted since ", time(answer.since), " ("
                + duration(answer.seconds) + "), about " + number(answer.total)
                + " in all." + (answer.others_at_most
                ? " No other key has more than "
                  + number(answer.others_at_most) + "." : ""));
    }

    const node = part("Top keys", by, note, keys.node);

    return { node: node, tick: tick };
}

/* Those of one rule, key and route as one row: the newest, and how many. */
function grouped(rows) {
    const groups = new Map();

    for (const row of rows) {
        const id = JSON.stringify([row.rule, row.penalty, row.key, row.route,
                                   row.dry_run, row.cut]);
        const group = groups.get(id);

        /* named by the oldest one: the name stays when others come */
        if (group) {
            Object.assign(group, { times: group.times + 1, first: row.time,
                                   number: row.number });
        } else {
            groups.set(id, Object.assign({ id: id, times: 1, first: row.time },
                                         row));
        }
    }

    return Array.from(groups.values());
}

function lastRejections() {
    const rule = el("input", { "data-at": "of rule", autocomplete: "off" });
    const key = el("input", { "data-at": "of key", autocomplete: "off" });
    const live = el("input", { type: "checkbox", "data-at": "live",
                               checked: true });
    const equal = el("input", { type: "checkbox", "data-at": "grouped",
                                checked: true, onchange: draw });
    const note = el("p", { class: "faint" });
    let seen = [], asked = "";

    const list = table("Last rejections", (row) => row.id || row.number, [
        { name: "Time", cell: (row) => time(row.time) },
        { name: "Times", class: "number", cell: (row) => row.times > 1
              ? [number(row.times), " since ", time(row.first)] : "1" },
        { name: "Rule", cell: (row) => row.penalty
              ? [el("span", { class: "faint" }, "penalty "), data(row.penalty)]
              : [data(row.rule), row.dry_run
                 ? el("span", { class: "faint" }, " (dry run: it passed)")
                 : null] },
        { name: "Key", cell: (row) => [keyText(row.key),
              isCut(row, "key") ? "\u2026" : null] },
        { name: "Route", cell: (row) => [data(row.route),
              isCut(row, "route") ? "\u2026" : null] },
        { name: "Limit", class: "number", cell: (row) => row.penalty
              ? "\u2013" : number(row.limit)
              + (row.window_seconds === undefined ? " at once"
                 : " in " + duration(row.window_seconds)) },
        { name: "Retry after", class: "number", cell: (row) =>
              row.retry_after_seconds === null ? "no retry helps"
                  : duration(row.retry_after_seconds) },
        { name: "", cell: keyButtons }
    ], "No request was rejected.", 20);

    function draw() {
        list.show(equal.checked ? grouped(seen) : seen);
    }

    /* asks only for what is new */
    async function tick() {
        const wanted = query(["rule", rule.value], ["key", key.value]);

        if (!live.checked && wanted === asked) {
            return;
        }

        if (wanted !== asked) {
            seen = [];
            list.turnBack();
        }

        const answer = await offered("rejections", query(
            ["rule", rule.value], ["key", key.value],
            ["since", seen.length ? seen[0].time : ""]));

        node.hidden = answer === null;

        if (answer === null) {
            return;
        }

        const newest = seen.length ? seen[0].number : -1;

        /* a gateway that started anew counts from the beginning */
        if (answer.total < newest) {
            seen = [];
            asked = "";
            return;
        }

        asked = wanted;
        seen = answer.rejections.filter((row) => row.number > newest)
                                .concat(seen).slice(0, LATEST);
        draw();
        replace(note, number(answer.total) + " since nginx started; the last "
                + number(LATEST) + " are kept. Of requests under a penalty "
                + "each worker keeps one a second.");
    }

    const node = part("Last rejections", [
        el("label", { class: "once" }, equal, " equal ones together"),
        el("label", { class: "once" }, live, " live")],
        el("form", { class: "row", onsubmit: (event) => {
            event.preventDefault();
            refresh();
        } }, field("Rule", rule), field("Key", key),
           el("button", { type: "submit", "data-at": "filter" }, "Filter")),
        note, list.node);

    return { node: node, tick: tick };
}

/* The counters of one key, and what may be done with them. */
function lookup() {
    const inputs = el("div");
    const result = el("div", { "aria-live": "polite" });
    let keys = [], addable = null;

    const counters = table("Counters", (row) => row.rule, [
        { name: "Rule", cell: (row) => [data(row.rule), row.penalty
              ? el("span", { class: "bad" }, " under the penalty ",
                   data(row.penalty)) : null] },
        { name: "Algorithm", cell: (row) => data(row.algorithm || "") },
        { name: "Limit", class: "number", cell: (row) => row.unknown
              ? el("span", { class: "faint" }, "unknown: ",
                   data(row.unknown))
              : row.unlimited ? "unlimited"
              : number(row.limit) + (row.window_seconds
                  ? " in " + duration(row.window_seconds) : "") },
        { name: "Used", class: "number", cell: (row) =>
              row.used === undefined || row.used === null ? "\u2013"
                                                          : number(row.used) },
        { name: "Remaining", class: "number", cell: (row) =>
              row.remaining === undefined || row.remaining === null
              ? "\u2013" : number(row.remaining) },
        { name: "Full again", cell: (row) => row.reset_at
              ? time(row.reset_at) : "\u2013" },
        { name: "Tier", cell: (row) => data(row.tier || "") },
        { name: "Override", cell: (row) => data(row.override || "") },
        { name: "", cell: (row) => mayWrite() ? counterButtons(row) : null }
    ], "No rule counts by such a key.", 20);

    function setParts(values) {
        replace(inputs, values.map((value, i) => field(
            values.length === 1 ? "Key, as the client sends it"
                                : "Part " + (i + 1) + " of the key",
            el("input", { value: value, autocomplete: "off",
                          "data-at": "part " + i }))));
    }

    function values() {
        return Array.from(inputs.querySelectorAll("input"))
                    .map((input) => input.value);
    }

    async function show() {
        keys = values();

        try {
            const answer = (await ask("GET", "counters" + query(
                ...keys.map((key) => ["key", key])))).json;

            if (addable === null) {
                addable = (await ask("OPTIONS", "counters")).allow
                          .includes("PATCH");
            }

            counters.show(answer.counters);
            replace(result, counters.node, answer.more
                ? el("p", { class: "faint" }, "And "
                     + count(answer.more, "counter", "counters") + " more.")
                : null);
        } catch (e) {
            replace(result, failure(e));
        }
    }

    function counter(row) {
        return "counters" + query(["rule", row.rule],
                                  ...keys.map((key) => ["key", key]));
    }

    function named(row) {
        return [data(row.rule), ", key ", data(keys.join(", "))];
    }

    function counterButtons(row) {
        return buttons(
            button("Reset", "reset " + row.rule, () => confirmed({
                title: "Reset a counter", verb: "Reset",
                text: el("p", null, "The counter becomes fresh on all "
                                    + "gateways: ", named(row), "."),
                async send() {
                    const now = (await ask("DELETE", counter(row))).json;

                    show();
                    return now.penalty
                        ? ["The counter is reset. Its key is still under the "
                           + "penalty ", data(now.penalty), "."]
                        : "The counter is reset.";
                } })),
            !addable || row.algorithm === "concurrency" || !row.limit ? null
                : button("Top up", "top up " + row.rule, () => topUp(row)));
    }

    function topUp(row) {
        const amount = el("input", { type: "number", min: 1, max: row.limit,
                                     value: row.used || 1, step: 1,
                                     required: true, "data-at": "to add" });

        confirmed({
            title: "Top up a counter", verb: "Give",
            text: el("p", null, "The client may use more now, on all gateways, "
                     + "up to its limit of " + number(row.limit) + ": ",
                     named(row), "."),
            inputs: field("To add", amount),
            async send() {
                const now = (await ask("PATCH", counter(row), {
                    body: { add: Number(amount.value) } })).json;

                show();
                return "Now " + number(now.remaining) + " of "
                       + number(now.limit) + " remain.";
            } });
    }

    setParts([""]);

    return {
        node: part("Counters of a key", null,
            el("form", { onsubmit: (event) => {
                event.preventDefault();
                show();
            } }, inputs, buttons(
                button("Add a part", "add a part",
                       () => setParts(values().concat(""))),
                button("Remove a part", "remove a part",
                       () => setParts(values().slice(0, -1).concat(
                           values().length > 1 ? [] : [""]))),
                el("button", { type: "submit", class: "main",
                               "data-at": "look up" }, "Look up"))),
            result),
        fill(key) {
            setParts([key]);
            inputs.closest("details").open = true;
            focusAt(inputs, "part 0");
            show();
        }
    };
}
