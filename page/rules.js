/* The view "Rules": the document's rules, overrides and lists. */

const DENY = { name: "deny", title: "Deny list",
               add: "Deny a key", verb: "Deny",
               says: "One of these clients gets 403." };
const ALLOW = { name: "allow", title: "Allow list",
                add: "Allow a key", verb: "Allow",
                says: "One of these clients is not counted." };

/* A query's end that says why. */
function because(reason) {
    return query(["reason", reason.trim()]);
}

function rulesView() {
    const filter = filterInput("Filter rules", "filter rules", draw);
    const add = el("span", { class: "buttons" });
    const rules = table("Rules", (rule) => rule.id, [
        { name: "Rule", cell: (rule) => [data(rule.id),
              el("div", { class: "faint" }, data(aboutText(rule)))] },
        { name: "Requests", cell: (rule) => data(matchText(rule)) },
        { name: "Counted by", cell: (rule) => data(
              rule.key === undefined ? "as the zone says"
                                     : [].concat(rule.key).join(", ")) },
        { name: "Limit", cell: (rule) => data(limitText(rule)) },
        { name: "", cell: (rule) => mayChange()
              ? buttons(button("Edit", "edit " + rule.id,
                               () => editRule(rule.id)),
                        button("Remove", "remove " + rule.id,
                               () => removeRule(rule.id)))
              : null }
    ], "The document has no rule.", 20);
    const fixed = table("Rules of nginx.conf", (rule) => rule.rule, [
        { name: "Rule", cell: (rule) => data(rule.rule) },
        { name: "Counted by", cell: (rule) => data(rule.counted_by) },
        { name: "Limit", cell: (rule) => data((rule.limit === null
              ? (rule.unlimited ? "unlimited" : "by a variable")
              : rule.algorithm + ": limit " + number(rule.limit)
                + (rule.window_seconds
                   ? " in " + duration(rule.window_seconds) : ""))
              + (rule.dry_run ? "\ndry_run" : "")) }
    ], "There is none.", 20);
    const overrides = table("Overrides", (one) => one.id, [
        { name: "Override", cell: (one) => data(one.id) },
        { name: "Of", cell: (one) => one.key !== undefined ? keyText(one.key)
              : data(one.tenant.part + " = " + one.tenant.value) },
        { name: "Rule", cell: (one) => one.rule ? data(one.rule)
              : el("span", { class: "faint" }, "all") },
        { name: "Limit", cell: (one) => data(one.type === "multiplicative"
              ? "\u00d7 " + one.value : limitOf(one.value)) },
        { name: "Ends", cell: (one) => one.expires_at ? time(one.expires_at)
                                                      : "never" },
        { name: "Reason", cell: (one) => data(one.reason || "") },
        { name: "", cell: (one) => mayChange()
              ? button("End", "end " + one.id, () => endOverride(one.id))
              : null }
    ], "There is no override.", 20);
    const override = el("span");
    const deny = keyList(DENY);
    const allow = keyList(ALLOW);

    function draw() {
        const document = gateway.document || {};

        rules.show(filtered(document.rules || [], filter.value),
                   document.rules);
        overrides.show(document.overrides || []);
        deny.draw(document.deny || []);
        allow.draw(document.allow || []);
        replace(add, mayChange() ? button("Add a rule", "add a rule", addRule)
                                : null);
        replace(override, mayChange()
                ? button("Add an override", "add an override",
                         () => addOverride("", ""))
                : null);
    }

    return {
        name: "rules", title: "Rules",
        node: el("div", null,
            part("Rules", [filter, add], rules.node),
            part("Rules of nginx.conf", null, fixed.node),
            part("Overrides for a time", override, overrides.node),
            el("div", { class: "columns" }, deny.node, allow.node)),
        draw: draw,
        async tick() {
            const policy = await offered("policy");

            fixed.show(policy ? policy.rules.filter((one) => one.fixed) : []);
        }
    };
}

function keyList(list) {
    const filter = filterInput("Filter keys", "filter " + list.name,
                               () => draw(keys));
    const add = el("span");
    let keys = [];
    const entries = table(list.title, entryText, [
        { name: "Key", cell: (key) => keyText(entryText(key)) },
        { name: "Ends", cell: (key) => key.expires_at ? time(key.expires_at)
                                                      : "never" },
        { name: "Reason", cell: (key) => data(key.reason || "") },
        { name: "", cell: (key) => mayChange()
              ? button("Remove", "remove " + list.name + " " + entryText(key),
                       () => removeFromList(list, key))
              : null }
    ], "The list is empty.", 10);

    function draw(all) {
        keys = all;
        entries.show(filtered(keys, filter.value), keys);
        replace(add, mayChange() ? button(list.add, list.add,
                                         () => addToList(list, ""))
                                : null);
    }

    return {
        node: part(list.title, [filter, add],
            el("p", { class: "faint" }, list.says), entries.node),
        draw: draw
    };
}

/* What a rule says to people. */
function aboutText(rule) {
    const labels = rule.labels || {};

    return [rule.description, rule.owner ? "owner " + rule.owner : "",
            rule.version === undefined ? "" : "version " + rule.version]
           .concat(Object.keys(labels).map((name) => name + " "
                                                     + labels[name]))
           .filter(Boolean).join("\n");
}

/* What a rule says of requests, in short; its tier may stand beside "match". */
function matchText(rule) {
    const match = Object.assign({}, rule.match,
                                rule.tier ? { tier: rule.tier } : {},
                                rule.active
                                ? { active: activeText(rule.active) } : {});
    const texts = Object.keys(match).map((name) => name + " "
        + [].concat(match[name]).join(", "));

    return (rule.enabled === false ? "disabled\n" : "")
           + (texts.join("\n") || "all");
}

function activeText(active) {
    return [active.days,
            active.from || active.to
            ? (active.from || "00:00") + "-" + (active.to || "24:00") : "",
            active.tz].filter(Boolean).join(" ");
}

function limitText(rule) {
    const more = ["dry_run", "group", "priority", "percent", "cost", "sync",
                  "fail_mode"].filter((name) => rule[name] !== undefined
                                                && rule[name] !== false)
                 .map((name) => rule[name] === true ? name
                                                    : name + " " + rule[name]);
    const tiers = Object.keys(rule.tiers || {}).length;
    const keys = Object.keys(rule.limits_by_api_key || {}).length
                 + Object.keys(rule.limits_by_key || {}).length;

    return [(rule.algorithm || "token_bucket") + ": "
            + limitOf(rule.params || {})]
           .concat(tiers ? count(tiers, "tier", "tiers") : [],
                   keys ? count(keys, "key of its own limit",
                                "keys of their own limits") : [],
                   more).join("\n");
}

/* {limit, window}, {rate}, {capacity, refill_rate}, or a number. */
function limitOf(amount) {
    return typeof amount === "object"
           ? Object.keys(amount).map((name) => name + " " + amount[name])
                   .join(", ")
           : "limit " + amount;
}

function ruleAt(document, id) {
    return (document.rules || []).findIndex((rule) => rule.id === id);
}

function sendRule(rule, tag, reason) {
    return ask("PUT", path("rules", rule.id) + because(reason),
               { body: rule, tag: tag });
}

function addRule() {
    const input = ruleInput({ id: "new", match: { route: "/v1/**" },
                              params: { limit: 100, window: 60 } }, false);

    propose({
        title: "Add a rule", verb: "Add the rule", inputs: input.node,
        change(document) {
            const rule = input.read();

            if (ruleAt(document, rule.id) >= 0) {
                throw new Mistake("There is a rule \"" + rule.id
                                  + "\" already.");
            }

            document.rules = (document.rules || []).concat(rule);
        },
        send: (tag, reason) => sendRule(input.read(), tag, reason)
    });
}

function editRule(id) {
    const there = gateway.document.rules[ruleAt(gateway.document, id)];

    /* its id first */
    const input = ruleInput(Object.assign({ id: id }, there), true);

    propose({
        title: "Edit the rule \"" + id + "\"", verb: "Save the rule",
        inputs: input.node,
        change(document) {
            const rule = input.read();
            const at = ruleAt(document, id);

            if (rule.id !== id) {
                throw new Mistake("A rule keeps its id: add another rule, "
                                  + "and remove this one.");
            }
            if (at < 0) {
                throw new Mistake("The rule is gone.");
            }

            document.rules[at] = rule;
        },
        send: (tag, reason) => sendRule(input.read(), tag, reason)
    });
}

function removeRule(id) {
    propose({
        title: "Remove the rule \"" + id + "\"", verb: "Remove the rule",
        inputs: null,
        change(document) {
            document.rules.splice(ruleAt(document, id), 1);
        },
        send: (tag, reason) => ask("DELETE", path("rules", id)
                                             + because(reason), { tag: tag })
    });
}

/* RFC 3339, so many seconds from now. */
function instant(seconds) {
    return new Date(Date.now() + 1000 * seconds).toISOString().slice(0, 19)
           + "Z";
}

function addOverride(forKey, forRule) {
    const key = el("input", { value: forKey, "data-at": "key", required: true,
                              autocomplete: "off" });
    const rule = el("input", { value: forRule || "", "data-at": "of",
                               autocomplete: "off" });
    const type = select({ "data-at": "type" },
                        [["multiplicative", "the limit times"],
                         ["absolute", "the limit becomes"]]);
    const value = el("input", { type: "number", min: 0, step: "any", value: 2,
                                required: true, "data-at": "value" });
    const ends = select({ "data-at": "ends" },
                        [[3600, "in an hour"], [14400, "in 4 hours"],
                         [86400, "in a day"], [604800, "in a week"]]);

    /* what was compared is what is sent */
    let one = null;

    propose({
        title: "Add an override", verb: "Add the override",
        inputs: [field("API key, or sha256:...", key),
                 field("Rule (empty: all rules)", rule),
                 el("div", { class: "row" }, field("What it does", type),
                    field("Value", value), field("Ends", ends))],
        change(document) {
            one = { id: "page-" + instant(0).replace(/\D/g, ""),
                    key: key.value, type: type.value,
                    value: Number(value.value),
                    expires_at: instant(Number(ends.value)) };

            if (rule.value.trim()) {
                one.rule = rule.value.trim();
            }

            document.overrides = (document.overrides || []).concat(one);
        },
        send: (tag, reason) => ask("POST", "overrides" + because(reason), {
            tag: tag, body: reason.trim() === "" ? one
                : Object.assign({ reason: reason.trim() }, one) })
    });
}

function endOverride(id) {
    propose({
        title: "End the override \"" + id + "\"", verb: "End the override",
        inputs: null,
        change(document) {
            document.overrides = (document.overrides || []).filter(
                (one) => one.id !== id);
        },
        send: (tag, reason) => ask("DELETE", path("overrides", id)
                                             + because(reason), { tag: tag })
    });
}

function addToList(list, forKey) {
    const key = el("input", { value: forKey, "data-at": "key", required: true,
                              autocomplete: "off" });
    const ends = select({ "data-at": "ends" },
                        [[0, "never"], [3600, "in an hour"],
                         [14400, "in 4 hours"], [86400, "in a day"],
                         [604800, "in a week"]]);
    let entry = null;

    propose({
        title: list.add, verb: list.verb,
        inputs: [field("Address, network, API key, sha256:... or a pattern "
                       + "with * and ?", key), field("Ends", ends)],
        change(document) {
            const keys = document[list.name] || [];

            entry = ends.value === "0" ? key.value
                    : withMore(key.value,
                               { expires_at: instant(Number(ends.value)) });
            document[list.name] = keys.filter(
                (one) => entryText(one) !== key.value).concat(entry);
        },
        send: (tag, reason) => ask("POST", list.name + because(reason), {
            tag: tag, body: [reason.trim() === "" ? entry
                             : withMore(entry, { reason: reason.trim() })] })
    });
}

/* Or a network. */
function isAddress(text) {
    return /^[0-9.]+(\/[0-9]+)?$/.test(text)
           || /^[0-9a-f]*:[0-9a-f:.]*(\/[0-9]+)?$/i.test(text);
}

/* An entry of a list, with more members. An address has its own name there. */
function withMore(entry, more) {
    const name = isAddress(entry) ? "address" : "key";

    return Object.assign({}, typeof entry === "string" ? { [name]: entry }
                                                       : entry, more);
}

function removeFromList(list, key) {
    propose({
        title: "Remove from the " + list.title.toLowerCase(),
        verb: "Remove the key", inputs: null,
        change(document) {
            document[list.name] = (document[list.name] || []).filter(
                (one) => canonical(one) !== canonical(key));
        },
        send: (tag, reason) => ask("DELETE", list.name + because(reason),
                                   { body: [key], tag: tag })
    });
}
