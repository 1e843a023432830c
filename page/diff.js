/* What is different between two documents, by their parts. */

const CELLS = 4000000;       /* of a comparison's table at most */

/* JSON with members in order, so that equal values are equal texts. */
function canonical(value) {
    return JSON.stringify(sorted(value), null, 2);
}

function sorted(value) {
    if (Array.isArray(value)) {
        return value.map(sorted);
    }

    if (value === null || typeof value !== "object") {
        return value;
    }

    const result = Object.create(null);

    for (const name of Object.keys(value).sort()) {
        result[name] = sorted(value[name]);
    }

    return result;
}

/* A document's parts: places, and the text of each. */
function parts(document) {
    const all = new Map();
    const put = (place, value) => all.set(place, canonical(value));
    const list = (name) => document[name] || [];
    const tiers = document.tier_of || {};

    list("rules").forEach((rule) => put("rule " + rule.id, rule));
    list("overrides").forEach((one, i) => put("override " + (one.id || "new"),
                                              one));
    list("deny").forEach((key) => put("deny list: " + entryText(key),
                                               key));
    list("allow").forEach((key) => put("allow list: " + entryText(key),
                                               key));
    Object.keys(tiers.keys || {}).forEach(
        (key) => put("tier of " + key, tiers.keys[key]));
    Object.keys(tiers.rules || {}).forEach((rule) =>
        Object.keys(tiers.rules[rule]).forEach(
            (key) => put("tier of " + key + " by rule " + rule,
                         tiers.rules[rule][key])));
    (tiers.patterns || []).forEach(
        (one) => put("tier of pattern " + one.pattern
                     + (one.rule ? " by rule " + one.rule : ""), one.tier));

    for (const name of Object.keys(document)) {
        if (!["rules", "overrides", "deny", "allow", "tier_of",
              "version"].includes(name))
        {
            put(name, document[name]);
        }
    }

    /* of rules with one priority the first that matches counts */
    put("the order of the rules", list("rules").map((rule) => rule.id));
    put("the order of the overrides", list("overrides").map((one) => one.id));

    return all;
}

/* [{place, before, after}], texts; "" where there is none. */
function differences(before, after) {
    const was = parts(before);
    const is = parts(after);
    const found = [];

    for (const place of new Set([...was.keys(), ...is.keys()])) {
        const one = was.get(place) || "";
        const other = is.get(place) || "";

        if (one !== other
            && !(/^the order/.test(place) && !reordered(one, other)))
        {
            found.push({ place: place, before: one, after: other });
        }
    }

    return found;
}

/* Whether those that both have stand in another order. */
function reordered(one, other) {
    const was = JSON.parse(one);
    const is = JSON.parse(other);
    const there = new Set(is);
    const before = new Set(was);

    return was.filter((id) => there.has(id)).join("\n")
           !== is.filter((id) => before.has(id)).join("\n");
}

/* [[sign, line]]: " " in both, "-" before, "+" after. */
function lines(before, after) {
    const a = before === "" ? [] : before.split("\n");
    const b = after === "" ? [] : after.split("\n");
    const head = [], tail = [];

    while (a.length && b.length && a[0] === b[0]) {
        head.push([" ", a.shift()]);
        b.shift();
    }
    while (a.length && b.length && a[a.length - 1] === b[b.length - 1]) {
        tail.unshift([" ", a.pop()]);
        b.pop();
    }

    return head.concat(a.length * b.length > CELLS
                       ? a.map((line) => ["-", line])
                         .concat(b.map((line) => ["+", line]))
                       : walk(a, b), tail);
}

/* By the longest common subsequence. */
function walk(a, b) {
    const width = b.length + 1;
    const common = new Uint32Array((a.length + 1) * width);
    const result = [];
    let i, j;

    for (i = a.length - 1; i >= 0; i--) {
        for (j = b.length - 1; j >= 0; j--) {
            common[i * width + j] = a[i] === b[j]
                ? common[(i + 1) * width + j + 1] + 1
                : Math.max(common[(i + 1) * width + j],
                           common[i * width + j + 1]);
        }
    }

    for (i = 0, j = 0; i < a.length || j < b.length; ) {
        if (i < a.length && j < b.length && a[i] === b[j]) {
            result.push([" ", a[i++]]);
            j++;
        } else if (j === b.length
                   || (i < a.length && common[(i + 1) * width + j]
                                       >= common[i * width + j + 1]))
        {
            result.push(["-", a[i++]]);
        } else {
            result.push(["+", b[j++]]);
        }
    }

    return result;
}

const SIGNS = { "+": "plus", "-": "minus" };

/* A page of differences is shown at once. */
function showDifferences(found, none) {
    if (!found.length) {
        return el("p", { class: "faint" }, none);
    }

    return pages(found, 10, (one) => el("div", null,
        el("h3", null, data(one.place)),
        el("div", { class: "diff", tabindex: 0, role: "group",
                    "aria-label": "difference" },
           lines(one.before, one.after).map(([sign, line]) => el(
               "div", { class: SIGNS[sign] }, sign + " " + line)))));
}
