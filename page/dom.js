/*
 * Elements and texts. Text that comes from the gateway becomes a text node,
 * never markup.
 */

const SVG = "http://www.w3.org/2000/svg";

/*
 * An element. An attribute "on..." is a function; null and false leave it out.
 * Children are nodes, texts and lists of them.
 */
function el(name, attributes, ...children) {
    return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes, ...children) {
    return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
        if (name.startsWith("on")) {
            node.addEventListener(name.slice(2), value);
        } else if (value !== null && value !== undefined && value !== false) {
            node.setAttribute(name, value === true ? "" : value);
        }
    }

    add(node, children);

    return node;
}

function add(node, child) {
    if (Array.isArray(child)) {
        child.forEach((one) => add(node, one));
    } else if (child !== null && child !== undefined && child !== false) {
        node.append(child);
    }
}

/*
 * Puts children in the place of those that node has. What has the focus and a
 * data-at keeps it: the new element with that data-at gets it.
 */
function replace(node, ...children) {
    const active = document.activeElement;
    const at = active && node.contains(active) && active.dataset.at;

    node.textContent = "";
    add(node, children);

    if (at) {
        focusAt(node, at);
    }
}

function focusAt(node, at) {
    for (const one of node.querySelectorAll("[data-at]")) {
        if (one.dataset.at === at) {
            one.focus({ preventScroll: true });
            return true;
        }
    }

    return false;
}

/* What others have written: a rule's id, a route, a key. */
function data(text) {
    return el("span", { class: "data" }, text);
}

/* An entry of a list, in words: a key, an address, a value of a rule's key. */
function entryText(entry) {
    return typeof entry === "string" ? entry
           : (entry.rule ? entry.rule + ": " : "")
             + [].concat(entry.address || entry.key).join(", ");
}

/* Keys are long: the middle of a hash is left out, and is in the title. */
function keyText(key) {
    if (/^sha256:[0-9a-f]{64}$/.test(key)) {
        return el("span", { class: "data", title: key },
                  key.slice(0, 15) + "\u2026" + key.slice(-4));
    }

    return data(key);
}

function button(text, at, onclick, more) {
    return el("button", Object.assign({ type: "button", "data-at": at,
                                        onclick: onclick }, more), text);
}

function buttons(...children) {
    return el("span", { class: "buttons" }, children);
}

/* A part of a view, which its title folds. tools: null, or beside the title. */
function part(title, tools, ...children) {
    return el("section", null, el("details", { open: true },
        el("summary", null, el("h2", null, title)),
        tools ? el("div", { class: "head" }, tools) : null, children));
}

/* A list of names and values: [name, value]; a null leaves its row out. */
function facts(...rows) {
    return el("dl", null, rows.filter((row) => row && row[1] !== null)
                              .map(([name, value]) => [el("dt", null, name),
                                                       el("dd", null, value)]));
}

/* A label around an input. */
function field(text, input) {
    return el("label", null, el("span", null, text), input);
}

/* Options are texts, or [value, text]. */
function select(attributes, options) {
    return el("select", attributes, options.map((option) => {
        const [value, text] = Array.isArray(option) ? option
                                                    : [option, option];
        return el("option", { value: value }, text);
    }));
}

function number(value, digits) {
    return Number(value).toLocaleString("en", {
        maximumFractionDigits: digits === undefined ? 0 : digits });
}

/* A rate in a second, with digits where they say something. */
function rate(value) {
    return number(value, value < 10 ? 2 : value < 100 ? 1 : 0);
}

function count(n, one, many) {
    return number(n) + " " + (n === 1 ? one : many);
}

/* Seconds as "2 h 5 min". */
function duration(seconds) {
    const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
    let rest = Math.max(0, Math.round(seconds));
    const parts = [];

    for (const [size, name] of units) {
        const n = Math.floor(rest / size);

        if (n && parts.length < 2) {
            parts.push(n + " " + name);
        }

        rest -= n * size;
    }

    return parts.join(" ") || "0 s";
}

/* The time of an RFC 3339 text here; the day, too, if it is another one. */
function time(text) {
    const date = new Date(text);

    if (!text || isNaN(date)) {
        return el("span", { class: "faint" }, "never");
    }

    const two = (n) => String(n).padStart(2, "0");
    const clock = [date.getHours(), date.getMinutes(), date.getSeconds()]
                  .map(two).join(":");
    const day = [date.getFullYear(), two(date.getMonth() + 1),
                 two(date.getDate())].join("-");
    const today = new Date().toDateString() === date.toDateString();

    return el("time", { datetime: text, title: text, class: "once" },
              today ? clock : day + " " + clock);
}
