/* What is shown, and when it is read again. */

const EVERY_MS = 2000;

/* what the gateway said last */
const gateway = { status: null, document: null, tag: null };

const views = {};
const ORDER = [overview(), clients(), rulesView(), versionsView()];

const page = {
    main: document.getElementById("main"),
    views: document.getElementById("views"),
    zone: document.getElementById("zone"),
    where: document.getElementById("where"),
    others: document.getElementById("others"),
    away: document.getElementById("away"),
    said: document.getElementById("said")
};

let view = null, timer = null, running = false, again = false, since = null;

function mayWrite() {
    return gateway.status !== null && gateway.status.write;
}

/* Redis has the document: without it, nobody changes it. */
function redisAway() {
    const redis = gateway.status && gateway.status.redis;

    return redis && !redis.reachable;
}

function mayChange() {
    return mayWrite() && !redisAway();
}

/* What is wrong, above every view. Told again only if it is another text. */
function warn(text) {
    if (page.away.textContent !== text) {
        page.away.textContent = text;
    }
}

/* The result of what somebody has done. */
function say(what) {
    replace(page.said, what);
}

/* Reads all that is shown; at once, or when the reading under way ends. */
function refresh() {
    again = running;

    if (!running) {
        clearTimeout(timer);
        tick();
    }
}

async function tick() {
    let wait = EVERY_MS;

    running = true;

    try {
        if (document.hidden) {
            forgetReading();
        } else {
            await readAll();
            answered();
        }
    } catch (e) {
        if (e instanceof Refused && e.status === 401) {
            askToken();
            wait = null;
        } else if (e instanceof Refused && e.status === 403
                   && gateway.status === null)
        {
            notFromHere(e);
            wait = null;
        } else {
            missing(e);
        }
    } finally {
        running = false;

        if (wait !== null) {
            timer = setTimeout(tick, again ? 0 : wait);
        }

        again = false;
    }
}

async function readAll() {
    const answer = await ask("GET", "status");

    gateway.status = answer.json;
    takeCalls(gateway.status.redis);
    takeReading(await offered("decisions"));

    if (gateway.tag === null || answer.tag !== gateway.tag) {
        const now = await ask("GET", "document", { known: gateway.tag });

        if (now.json) {
            gateway.document = now.json;
            gateway.tag = now.tag;
        }
    }

    draw();

    if (view.tick) {
        await view.tick();
    }
}

function draw() {
    page.zone.textContent = gateway.status.zone;
    page.where.textContent = gateway.status.gateway.hostname
                             + ", document version "
                             + number(gateway.status.in_use);
    document.title = "Rate limits: " + gateway.status.zone;
    drawOthers();

    const asked = redisAway() && gateway.status.redis.asked;

    warn(!redisAway() ? "" : "Redis does not answer"
         + (asked ? ", since " + clock(new Date(asked)) : "")
         + ". Requests go by the fail_mode of their rule, and the document "
         + "cannot be changed.");

    if (view.draw) {
        view.draw(gateway.status);
    }
}

/* The other zones with an endpoint in this server, once each. */
function drawOthers() {
    const zones = new Map();

    for (const one of gateway.status.endpoints) {
        if (one.zone !== gateway.status.zone
            && !(zones.has(one.zone) && zones.get(one.zone).page))
        {
            zones.set(one.zone, one);
        }
    }

    const names = Array.from(zones.keys()).join();

    if (page.others.dataset.zones !== names) {
        page.others.dataset.zones = names;
        replace(page.others, zones.size ? "Other zones: " : null,
                Array.from(zones.values()).map((one) => [one.page
                    ? el("a", { href: one.path.replace(/\/?$/, "/"),
                                class: "data" }, one.zone)
                    : el("span", { class: "data" },
                         one.zone + " (" + one.path + ", no page)"), " "]));
    }
}

function answered() {
    if (since !== null) {
        since = null;
        document.body.classList.remove("stale");
        say("The gateway answers again.");
    }
}

/* The gateway is asked again and again: what is shown is old until then. */
function missing(error) {
    if (!(error instanceof Away) && !(error instanceof Refused)) {
        throw error;
    }

    forgetReading();
    document.body.classList.add("stale");
    page.said.textContent = "";

    if (since === null) {
        since = new Date();
    }

    warn((error instanceof Away ? "The gateway does not answer"
                                : "The gateway refuses to answer")
         + " (" + error.message + "), since " + clock(since)
         + ". It is asked again every 2 seconds; all below is older.");
}

function clock(date) {
    return date.toLocaleTimeString("en-GB");
}

/* The location has token_file=. */
function askToken() {
    const input = el("input", { type: "password", autocomplete: "off",
                                required: true, "data-at": "token" });
    const wrong = token !== null;

    token = null;
    replace(page.main, el("section", null, el("h2", null, "Token"),
        el("p", null, "This location wants a token of its token_file. The "
                      + "page forgets it when you leave or reload it."),
        wrong ? el("p", { class: "bad", role: "alert" },
                   "The token was not accepted.") : null,
        el("form", { onsubmit: (event) => {
            event.preventDefault();
            token = input.value;
            show();
            refresh();
        } }, field("Token", input),
           el("button", { type: "submit", class: "main" }, "Use it"))));
    input.focus();
}

/* The location has no token_file=: it answers the gateway's machine alone. */
function notFromHere(error) {
    const port = location.port ? ":" + location.port : "";
    const there = location.protocol + "//127.0.0.1" + port + location.pathname;

    replace(page.main, el("section", null,
        el("h2", null, "This page cannot be opened from here"),
        el("p", { class: "bad", role: "alert" }, data(error.message), "."),
        el("p", null, "Open it on the gateway's machine, as ", data(there),
           ". To open it from elsewhere, give the location a token_file, or "
           + "forward a port: ", data("ssh -L " + (location.port || 80)
           + ":127.0.0.1:" + (location.port || 80) + " <gateway>"), "."),
        button("Try again", "again", () => {
            show();
            refresh();
        })));
}

/* The view that the address names. */
function show() {
    const name = location.hash.slice(1);

    view = views[name] || view || ORDER[0];
    replace(page.main, view.node);

    for (const link of page.views.children) {
        if (link.dataset.at === view.name) {
            link.setAttribute("aria-current", "page");
        } else {
            link.removeAttribute("aria-current");
        }
    }
}

/* A narrow screen has room for the first part of a view. */
function fold() {
    for (const one of ORDER) {
        one.node.querySelectorAll("section > details").forEach((details, i) => {
            details.open = i === 0 || !narrow.matches;
        });
    }
}

narrow.addEventListener("change", fold);
fold();

for (const one of ORDER) {
    views[one.name] = one;
    page.views.append(el("a", { href: "#" + one.name, "data-at": one.name },
                         one.title));
}

window.addEventListener("hashchange", () => {
    show();

    if (gateway.status) {
        draw();
    }

    refresh();
});

document.addEventListener("visibilitychange", () => {
    if (!document.hidden) {
        refresh();
    }
});

show();
tick();
