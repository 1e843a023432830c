/* A rule in a dialog: a form of its common members, above all of it as JSON. */

const ALGORITHMS = ["leaky_bucket", "fixed_window", "sliding_window",
                    "sliding_log", "concurrency"];

/* "1h" and "$arg_a" are texts. */
function numeral(text) {
    return /^[0-9]+$/.test(text) ? Number(text) : text;
}

/* An amount is a limit in a window, or a rate. */
function setLimit(rule, text) {
    const isRate = /r\//.test(text);

    put(rule, ["params", "refill_rate"], undefined);
    put(rule, ["params", "rate"], isRate ? text : undefined);
    put(rule, ["params", "limit"], isRate ? undefined : numeral(text));

    if (isRate) {
        put(rule, ["params", "window"], undefined);
    }
}

/*
 * The members: a label; get(rule), a text; set(rule, text). options of a
 * select; check: a checkbox.
 */
const MEMBERS = [
    { at: "id", label: "Id", get: (rule) => rule.id,
      set: (rule, text) => { rule.id = text; } },
    { at: "route", label: "Path (empty: all)",
      get: (rule) => (rule.match || {}).route,
      set: (rule, text) => put(rule, ["match", "route"], text) },
    { at: "counted by", label: "Key (empty: the zone's)",
      get: (rule) => [].concat(rule.key || []).join(", "),
      set: (rule, text) => put(rule, ["key"], text.includes(",")
          ? text.split(",").map((part) => part.trim()) : text) },
    { at: "algorithm", label: "Algorithm",
      options: [["", "token_bucket"]].concat(ALGORITHMS),
      get: (rule) => rule.algorithm === "token_bucket" ? "" : rule.algorithm,
      set: (rule, text) => put(rule, ["algorithm"], text) },
    { at: "limit", label: "Limit, or 100r/m",
      get: (rule) => amount(rule).limit === undefined ? amount(rule).rate
                                                      : amount(rule).limit,
      set: setLimit },
    { at: "window", label: "Window: 60, or 1h",
      get: (rule) => amount(rule).window,
      set: (rule, text) => put(rule, ["params", "window"], numeral(text)) },
    { at: "fail mode", label: "Without Redis", redis: true,
      options: [["", "as its location says"], ["open", "open: passes"],
                ["local", "local: this gateway's share"],
                ["closed", "closed: 503"]],
      get: (rule) => rule.fail_mode,
      set: (rule, text) => put(rule, ["fail_mode"], text) },
    { at: "dry run", label: "Dry run: rejects nobody", check: true,
      get: (rule) => rule.dry_run,
      set: (rule, on) => put(rule, ["dry_run"], on || undefined) }
];

function amount(rule) {
    return isObject(rule.params) ? rule.params : {};
}

function isObject(value) {
    return value !== null && typeof value === "object" && !Array.isArray(value);
}

/* Sets a member of a member; one without a value leaves, and so does an empty
   "match". */
function put(rule, at, value) {
    const [name, inner] = at;

    if (inner === undefined) {
        if (value === undefined || value === "") {
            delete rule[name];
        } else {
            rule[name] = value;
        }
        return;
    }

    const object = isObject(rule[name]) ? rule[name] : {};

    put(object, [inner], value);
    put(rule, [name], Object.keys(object).length || name === "params"
                      ? object : undefined);
}

/*
 * The form and the text are in step: what is typed in one is in the other. A
 * text that is no rule yet switches the form off. known: the rule is there, and
 * keeps its id. Has node, and read(), which throws a Mistake.
 */
function ruleInput(rule, known) {
    const area = el("textarea", { spellcheck: "false", "data-at": "rule",
                                  autocomplete: "off", oninput: fill });
    const shown = MEMBERS.filter((member) => !member.redis
                                 || (gateway.status && gateway.status.redis));
    const inputs = shown.map((member) => {
        const more = { "data-at": member.at, oninput: write,
                       autocomplete: "off",
                       disabled: known && member.at === "id" };

        return member.options ? select(more, member.options)
               : el("input", Object.assign(more, member.check
                    ? { type: "checkbox" } : {}));
    });
    const form = el("fieldset", null, shown.map(
        (member, i) => field(member.label, inputs[i])));

    function read() {
        let value;

        try {
            value = JSON.parse(area.value);
        } catch (e) {
            throw new Mistake("This is no JSON: " + e.message);
        }

        if (!isObject(value) || typeof value.id !== "string") {
            throw new Mistake("Expected an object with an \"id\".");
        }

        return value;
    }

    function fill() {
        let value;

        try {
            value = read();
        } catch (e) {
            form.disabled = true;
            return;
        }

        form.disabled = false;
        shown.forEach((member, i) => {
            const got = member.get(value);

            inputs[i].checked = got === true;
            inputs[i].value = got === undefined || got === null ? ""
                                                                : String(got);
        });
    }

    function write(event) {
        const member = shown[inputs.indexOf(event.target)];
        const value = read();

        member.set(value, member.check ? event.target.checked
                                       : event.target.value.trim());
        area.value = JSON.stringify(value, null, 2);
    }

    area.value = JSON.stringify(rule, null, 2);
    area.setSelectionRange(0, 0);
    fill();

    return { node: [form, field("The rule, as JSON", area)], read: read };
}
