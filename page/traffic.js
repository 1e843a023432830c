/*
 * Requests and rejections: of the zone, the last five minutes that the gateway
 * keeps; by rule, as they come: differences between two readings of the
 * gateway's counters, which are kept while the page is open.
 */

const STEPS = 150;            /* readings kept: five minutes */
const RULES = 10;             /* plots on a page */

/* outcomes for which the client got 429, 503 or 403 */
const REFUSALS = ["rejected", "unavailable", "denied", "penalized"];

/* of each rule; degraded: of all, those that pass now without a limit */
const readings = { there: false, at: 0, before: null,
                   rules: new Map(), degraded: 0 };

/* Takes a reading: {rules: [{rule, <outcome>: number}]}, or null: none. */
function takeReading(reading) {
    readings.there = reading !== null;

    if (reading === null) {
        return;
    }

    const now = performance.now();
    const seconds = (now - readings.at) / 1000;
    const before = readings.before;
    const totals = new Map();

    readings.degraded = 0;

    for (const row of reading.rules) {
        totals.set(row.rule, sums(row));
    }

    for (const [rule, total] of totals) {
        const was = before && before.get(rule);
        const kept = readings.rules.get(rule)
                     || { requests: [], rejected: [], degraded: [],
                          unavailable: [] };

        /* a rule that is new has counted from 0; a restart begins anew */
        const from = was || { requests: 0, rejected: 0, degraded: 0,
                              unavailable: 0 };
        const known = before && total.requests >= from.requests
                      && total.rejected >= from.rejected;

        for (const name of Object.keys(total)) {
            push(kept[name], known ? (total[name] - from[name]) / seconds
                                   : null);
        }

        kept.since = newest(kept.degraded) || newest(kept.unavailable)
                     ? kept.since || new Date() : null;

        readings.rules.set(rule, kept);
        readings.degraded += newest(kept.degraded) || 0;
    }

    for (const rule of readings.rules.keys()) {
        if (!totals.has(rule)) {
            readings.rules.delete(rule);
        }
    }

    readings.before = totals;
    readings.at = now;
}

/* After a time without an answer nobody knows the rates in between. */
function forgetReading() {
    readings.before = null;
    callsBefore.clear();
}

function push(list, value) {
    list.push(value);

    if (list.length > STEPS) {
        list.shift();
    }
}

function sums(row) {
    let requests = 0, rejected = 0;

    for (const [name, value] of Object.entries(row)) {
        if (typeof value === "number") {
            requests += value;
            rejected += REFUSALS.includes(name) ? value : 0;
        }
    }

    return { requests: requests, rejected: rejected,
             degraded: row.degraded || 0, unavailable: row.unavailable || 0 };
}

function total(list) {
    return list.reduce((sum, value) => sum + (value || 0), 0);
}

function newest(list) {
    return list.length ? list[list.length - 1] : null;
}

function shownRate(value) {
    return value === null ? "\u2013" : rate(value);
}

/* The newest rate of a list, in red if there is any. */
function alarm(list) {
    return el("span", { class: newest(list) ? "bad" : null },
              shownRate(newest(list)));
}

const ORDERS = {
    rejected: (one, other) => other.rejectedSum - one.rejectedSum
                              || other.requestsSum - one.requestsSum,
    requests: (one, other) => other.requestsSum - one.requestsSum,
    name: () => 0
};

/* of the zone: member of the answer, its name, class of its line */
const COURSES = [["decisions", "Decisions", "requests"],
                 ["refusals", "Rejected", "rejected"],
                 ["degraded", "Not limited", "degraded"]];

/* One course of the last five minutes, with its axes. */
function course(title, name, values) {
    const top = Math.max(0, ...values);

    return el("div", null,
        el("p", null, title + ": ", el("b", null, shownRate(newest(values))),
           " a second"),
        top === 0 ? el("p", { class: "faint" }, "None in the last 5 minutes.")
        : [el("div", { class: "axis" }, el("span", null, rate(top))),
           plot([{ class: name, values: values, area: name !== "requests" }],
                values.length, title + " a second, at most " + rate(top),
                "large"),
           el("div", { class: "axis" }, el("span", null, "5 minutes ago"),
              el("span", null, "now"))]);
}

function traffic() {
    const all = el("div", { class: "columns" });
    const order = select({ "aria-label": "Order of the rules",
                           "data-at": "order", onchange: draw },
                         [["rejected", "most rejections first"],
                          ["requests", "most requests first"],
                          ["name", "by name"]]);
    const filter = filterInput("Filter rules", "filter plots", draw);
    const rules = table("Requests by rule", (row) => row.rule, [
        { name: "Rule", cell: (row) => row.rule === ""
              ? el("span", { class: "faint" }, "(deny list, penalties)")
              : data(row.rule) },
        { name: "Requests/s", class: "number",
          cell: (row) => shownRate(newest(row.requests)) },
        { name: "Rejected/s", class: "number",
          cell: (row) => alarm(row.rejected) },
        { name: "Not limited/s", class: "number",
          cell: (row) => alarm(row.degraded) },
        { name: "Rejected (5 min)", class: "number",
          cell: (row) => row.requestsSum === 0 ? "\u2013"
              : number(100 * row.rejectedSum / row.requestsSum, 1) + " %" },
        { name: "Last 5 minutes", class: "plotted", cell: (row) => plot(
              [{ class: "requests", values: row.requests },
               { class: "rejected", values: row.rejected, area: true }],
              STEPS, row.rule + ": " + shownRate(newest(row.requests))
              + " requests and " + shownRate(newest(row.rejected))
              + " rejections a second") }
    ], "No rule has counted a request yet.", RULES);

    function draw() {
        node.hidden = !readings.there;

        const rows = Array.from(readings.rules).map(([rule, kept]) => ({
            rule: rule, requests: kept.requests, rejected: kept.rejected,
            degraded: kept.degraded,
            requestsSum: total(kept.requests),
            rejectedSum: total(kept.rejected) }));

        rows.sort((one, other) => ORDERS[order.value](one, other)
                                  || (one.rule < other.rule ? -1 : 1));
        rules.show(rows.filter((row) => row.rule.toLowerCase().includes(
            filter.value.trim().toLowerCase())));
    }

    async function tick() {
        const history = await offered("history");

        if (history !== null) {
            replace(all, COURSES.map(([member, title, name]) => course(
                title, name, history[member])));
        }
    }

    const node = part("Traffic", [filter, order],
        all,
        el("p", null, el("span", { class: "legend" }, "requests "),
           el("span", { class: "legend rejected" }, "rejections")),
        rules.node);

    return { node: node, draw: draw, tick: tick };
}
