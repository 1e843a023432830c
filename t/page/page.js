/*
 * The tests of the status page that t/page/page.t runs: in Chromium, against
 * its gateways. Each of ACTIONS is done by mouse at the first gateway and by
 * keyboard at the second one; what it has done is read from the other gateway.
 */

"use strict";

const { chromium } = require("playwright-core");
const http = require("http");
const path = require("path");
const readline = require("readline");

const { Mouse, Keyboard } = require("./hands.js");

const GIVEN = JSON.parse(process.argv[2]);
const [ONE, TWO] = GIVEN.bases;
const TOKEN = { Authorization: "Bearer " + GIVEN.token };

/* what must never become markup */
const EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;";
const EVIL_KEY = "k\"'<script>alert(3)</script>";
const EVIL_ROUTE = "/v1/\"'<script>alert(4)</script>/**";

/* a refusal of the endpoint is a line of the console as well */
const NETWORK = /^Failed to load resource/;

const answers = readline.createInterface({ input: process.stdin });
const pending = [];

answers.on("line", (line) => pending.shift()(line));

function ok(passed, name) {
    console.log((passed ? "ok " : "not ok ") + name);
}

function is(got, expected, name) {
    const same = JSON.stringify(got) === JSON.stringify(expected);

    ok(same, name);

    if (!same) {
        console.log("    got      " + JSON.stringify(got));
        console.log("    expected " + JSON.stringify(expected));
    }
}

/* page.t does it */
function ask(what) {
    return new Promise((resolve) => {
        pending.push(resolve);
        console.log("do " + what);
    });
}

/* {status, json, tag} */
function send(method, url, body, headers) {
    const text = body === undefined ? "" : JSON.stringify(body);

    return new Promise((resolve, reject) => {
        const request = http.request(url, {
            method: method, agent: false,
            headers: Object.assign({}, TOKEN,
                method === "GET" ? {} : { "If-Match": "*",
                                          "Content-Length": text.length,
                                          "Content-Type": "application/json" },
                headers)
        }, (answer) => {
            let got = "";

            answer.on("data", (part) => { got += part; });
            answer.on("end", () => {
                let json = null;

                try { json = JSON.parse(got); } catch (e) { /* no JSON */ }

                resolve({ status: answer.statusCode, json: json, text: got,
                          tag: answer.headers.etag });
            });
        });

        request.on("error", reject);
        request.end(text);
    });
}

async function until(what, condition) {
    for (let i = 0; i < 200; i++) {
        const got = await condition();

        if (got) {
            return got;
        }

        await new Promise((resolve) => setTimeout(resolve, 100));
    }

    throw new Error("waited in vain: " + what);
}

function rule(id, more) {
    return Object.assign({ id: id, match: { route: EVIL_ROUTE },
                           algorithm: "fixed_window",
                           params: { limit: 10, window: 86400 } }, more);
}

/* A document that has more of everything than one page of a list. */
function manyThings() {
    const rules = [rule("orders", { match: { route: "/v1/orders" },
                                    description: EVIL, owner: "team-orders",
                                    active: { days: "mon-sun", to: "24:00",
                                              tz: "Europe/Berlin" },
                                    labels: { env: EVIL }, version: 3 }),
                   rule("off", { enabled: false, tier: "gold" })];

    for (let i = 0; i < 44; i++) {
        rules.push(rule("rule-" + String(i).padStart(2, "0"),
                        { tiers: { [EVIL]: { limit: 20 } } }));
    }

    return {
        rules: rules,
        deny: Array.from({ length: 25 }, (_, i) => "bad" + i + EVIL_KEY),
        allow: ["sk_internal_*", EVIL],
        overrides: [{ id: "launch", key: EVIL_KEY, type: "multiplicative",
                      value: 2, expires_at: "2099-12-31T00:00:00Z",
                      reason: EVIL }],
        tier_of: { keys: { [EVIL_KEY]: "pro" } }
    };
}

/* A page of the browser, and what went wrong in it. */
class Tab {
    constructor(page, base, hand) {
        this.page = page;
        this.base = base;
        this.hand = hand;
        this.other = base.replace(ONE, "*").replace(TWO, ONE).replace("*", TWO);
        this.bad = [];
        this.refused = [];
        this.foreign = [];

        page.on("pageerror", (e) => this.bad.push(String(e.stack)));
        page.on("dialog", (dialog) => {
            this.bad.push("a dialog: " + dialog.message());
            dialog.dismiss();
        });
        page.on("console", (message) => {
            const list = NETWORK.test(message.text()) ? this.refused : this.bad;

            list.push(message.type() + ": " + message.text());
        });
        page.on("request", (request) => {
            if (!request.url().startsWith(base) && !/^data:/.test(request.url()))
            {
                this.foreign.push(request.url());
            }
        });
    }

    at(name) {
        return this.page.locator("[data-at=" + JSON.stringify(name) + "]");
    }

    input(name) {
        return this.page.getByLabel(name);
    }

    async sees(text, where) {
        await this.page.locator(where || "body").getByText(text)
                       .first().waitFor();
    }

    async view(name) {
        if (name === "rules" && await this.at("filter rules").count()) {
            await this.hand.type(this.at("filter rules"), "");
        }

        await this.hand.press(this.at(name));
        await this.page.locator("nav a[aria-current][data-at=" + name + "]")
                       .waitFor();
    }

    /* what is behind a dialog cannot be pressed */
    async press(name) {
        const dialog = this.page.locator("dialog");

        await this.hand.press((await dialog.count() ? dialog : this.page)
                              .getByRole("button", { name: name, exact: true }));
    }

    /* the two steps of each change, with a reason */
    async save(verb, difference, compare) {
        if (compare !== false) {
            await this.press("Compare");
        }

        await this.sees(difference, "dialog .diff");
        await this.hand.type(this.input(/^Reason/), "why " + EVIL.slice(0, 40));
        await this.press(verb);
        await this.page.locator("dialog").waitFor({ state: "detached" });
        await this.sees(/^Version \d.* is saved\.$/, "#said");
    }

    /* logins that fail; the last answer */
    async guess(key, times) {
        let answer = null;

        for (let i = 0; i < times; i++) {
            answer = await send("GET", this.base + "/login/", undefined,
                                { "X-API-Key": key });
        }

        return answer;
    }

    /* waits until a gateway has so many penalties of a key */
    penalties(base, key, n) {
        return until("penalties: " + n, async () => (await send(
            "GET", base + "/rl/penalties?key=" + encodeURIComponent(key)))
            .json.total === n);
    }

    /* the document at the other gateway, once this is so */
    document(what, condition) {
        return until(what, async () => {
            const answer = await send("GET", this.other + "/rl/document");

            return condition(answer.json) && answer.json;
        });
    }
}

const find = (list, id) => (list || []).find((one) => one.id === id);

const ACTIONS = {

    async "edit a rule"(tab) {
        await tab.view("rules");
        await tab.hand.type(tab.at("filter rules"), "orders");
        await tab.hand.press(tab.at("edit orders"));

        const shown = JSON.parse(await tab.at("rule").inputValue());

        await tab.hand.type(tab.at("rule"), "{ no JSON");
        await tab.press("Compare");
        await tab.sees(/^This is no JSON/, "dialog [role=alert]");
        await tab.hand.type(tab.at("rule"), JSON.stringify(
            rule("orders", { params: { limit: -1, windw: 1 } })));
        await tab.press("Compare");
        await tab.sees("/params/limit must be at least 0", "dialog");
        await tab.sees("/params/windw is not known", "dialog");
        ok(await tab.page.getByRole("button", { name: "Save the rule" })
                         .isDisabled(),
           "a wrong rule cannot be saved");
        await tab.hand.type(tab.at("rule"), JSON.stringify(Object.assign(
            shown, { params: { limit: 77, window: 86400 } })));
        await tab.press("Compare");
        await tab.sees("- \"limit\": 10,", "dialog .diff");
        await tab.save("Save the rule", "+ \"limit\": 77,", false);

        const now = await tab.document("77", (it) => find(it.rules, "orders")
                                                     .params.limit === 77);
        const rest = find(manyThings().rules, "orders");

        is(find(now.rules, "orders").labels, rest.labels,
           "the labels are kept");
        is(find(now.rules, "orders").description, rest.description,
           "and the description");
        is(find(now.rules, "orders").active, rest.active,
           "and the active times");
        await tab.sees("active mon-sun 00:00-24:00 Europe/Berlin", "main");
        await tab.sees("limit 77", "main");
        await tab.hand.type(tab.at("filter rules"), "off");
        await tab.sees("disabled", "main");
        await tab.sees("tier gold", "main");
    },

    async "edit a rule that somebody else has changed"(tab) {
        await tab.view("rules");
        await tab.hand.type(tab.at("filter rules"), "orders");
        await tab.hand.press(tab.at("edit orders"));
        await tab.hand.type(tab.at("rule"), JSON.stringify(
            rule("orders", { params: { limit: 5, window: 86400 } })));
        await tab.press("Compare");
        await tab.sees("+ \"limit\": 5,", "dialog .diff");
        await send("POST", tab.other + "/rl/deny", ["meanwhile"]);
        await tab.press("Save the rule");
        await tab.sees(/^Somebody else has changed the document/, "dialog");
        await tab.save("Save the rule", "+ \"limit\": 5,");

        const now = await tab.document("5", (it) => find(it.rules, "orders")
                                                    .params.limit === 5);

        ok(now.deny.includes("meanwhile"), "the other change is kept");
    },

    async "add and remove a rule"(tab) {
        await tab.view("rules");
        await tab.press("Add a rule");
        await tab.hand.type(tab.at("rule"), JSON.stringify(
            rule("validate", { tiers: { [EVIL]: { limit: 20 } } })));
        await tab.save("Add the rule", "+ \"id\": \"validate\",");
        await tab.document("added", (it) => find(it.rules, "validate"));

        await tab.hand.type(tab.at("filter rules"), "validate");
        await tab.hand.press(tab.at("remove validate"));
        await tab.sees("- \"id\": \"validate\",", "dialog .diff");
        await tab.hand.close();
        await tab.page.locator("dialog").waitFor({ state: "detached" });

        await tab.press("Add a rule");
        await tab.hand.type(tab.at("rule"), JSON.stringify(rule("new-rule")));
        await tab.save("Add the rule", "+ \"id\": \"new-rule\",");
        await tab.hand.type(tab.at("filter rules"), "new-rule");
        await tab.hand.press(tab.at("remove new-rule"));
        await tab.save("Remove the rule", "- \"id\": \"new-rule\",", false);
        await tab.document("removed", (it) => !find(it.rules, "new-rule"));
    },

    async "write a rule in the form"(tab) {
        const id = "formed-" + tab.hand.name;
        const json = async () => JSON.parse(await tab.at("rule").inputValue());
        const main = () => tab.page.locator("dialog button.main")
                              .allTextContents();

        await tab.view("rules");
        await tab.press("Add a rule");
        is(await tab.page.evaluate(() => [document.activeElement.dataset.at,
               document.querySelector("dialog").scrollTop,
               document.querySelector("textarea").scrollTop]), ["id", 0, 0],
           "the dialog begins at its first field");
        is(await main(), ["Compare"], "the next step is the main button");

        for (const [at, text] of [["id", id], ["route", "/v1/formed/**"],
                                  ["counted by", "$arg_a, $arg_b"],
                                  ["limit", "30"], ["window", "1h"]])
        {
            await tab.hand.type(tab.at(at), text);
        }

        await tab.hand.choose(tab.at("algorithm"), "fixed_window");
        await tab.hand.choose(tab.at("fail mode"), "closed");
        await tab.hand.check(tab.at("dry run"));

        const formed = { id: id, match: { route: "/v1/formed/**" },
                         params: { limit: 30, window: "1h" },
                         key: ["$arg_a", "$arg_b"], algorithm: "fixed_window",
                         fail_mode: "closed", dry_run: true };

        is(await json(), formed, "the form writes the JSON");

        await tab.hand.type(tab.at("rule"), "{ \"id\": ");
        ok(await tab.at("limit").isDisabled(), "half a rule has no form");
        await tab.hand.type(tab.at("rule"), JSON.stringify({
            id: id, owner: "ann", algorithm: "token_bucket", key: "$arg_a",
            params: { limit: 0 } }));
        is(await tab.at("limit").inputValue(), "0", "0 is a limit");
        await tab.hand.type(tab.at("rule"), JSON.stringify({
            id: id, owner: "ann", algorithm: "token_bucket", key: "$arg_a",
            params: { rate: "5r/s" } }));
        is(await Promise.all(["id", "route", "counted by", "algorithm", "limit",
                              "window", "fail mode"]
                             .map((at) => tab.at(at).inputValue())),
           [id, "", "$arg_a", "", "5r/s", "", ""], "the JSON fills the form");
        ok(!await tab.at("dry run").isChecked(), "no dry run");

        await tab.hand.type(tab.at("limit"), "40");
        await tab.hand.type(tab.at("window"), "60");
        await tab.hand.type(tab.at("counted by"), "");
        is(await json(), { id: id, owner: "ann", algorithm: "token_bucket",
                           params: { limit: 40, window: 60 } },
           "what the form has not is kept, what is empty leaves");
        await tab.press("Compare");
        await tab.sees("+ \"owner\": \"ann\",", "dialog .diff");
        is(await main(), ["Add the rule"], "then the main button saves");
        await tab.save("Add the rule", "+ \"limit\": 40,", false);
        await tab.document("formed", (it) => find(it.rules, id));
        await tab.hand.type(tab.at("filter rules"), id);
        await tab.hand.press(tab.at("edit " + id));
        ok(await tab.at("id").isDisabled(), "a rule keeps its id");
        await tab.hand.close();
        await tab.page.locator("dialog").waitFor({ state: "detached" });
    },

    async "add and end an override"(tab) {
        await tab.view("rules");
        await tab.press("Add an override");
        await tab.hand.type(tab.at("key"), EVIL_KEY);
        await tab.hand.type(tab.at("of"), "orders");
        await tab.hand.choose(tab.at("type"), "absolute");
        await tab.hand.type(tab.at("value"), "500");
        await tab.hand.choose(tab.at("ends"), "86400");
        await tab.save("Add the override", "+ \"value\": 500");

        const made = (it) => (it.overrides || []).find(
            (one) => one.value === 500);
        const one = made(await tab.document("an override", made));

        is([one.key, one.rule, one.type, one.reason],
           [EVIL_KEY, "orders", "absolute", "why " + EVIL.slice(0, 40)],
           "the override");
        ok(Math.abs(new Date(one.expires_at) - Date.now() - 86400e3) < 600e3,
           "it ends in a day");

        await tab.hand.press(tab.at("end " + one.id));
        await tab.save("End the override", "- \"value\": 500", false);
        await tab.document("no override", (it) => !made(it));
    },

    async "deny and allow a key"(tab) {
        for (const [list, add, verb] of [["deny", "Deny a key", "Deny"],
                                         ["allow", "Allow a key", "Allow"]])
        {
            const key = list + EVIL_KEY + tab.hand.name;

            await tab.view("rules");
            await tab.press(add);
            await tab.hand.type(tab.at("key"), key);
            await tab.hand.choose(tab.at("ends"), "14400");
            await tab.save(verb, "+ \"key\": " + JSON.stringify(key));
            await tab.document(add, (it) => it[list].some((one) =>
                one.key === key && one.expires_at
                && one.reason.startsWith("why ")));

            await tab.hand.type(tab.at("filter " + list), tab.hand.name);
            await tab.hand.press(tab.at("remove " + list + " " + key));
            await tab.save("Remove the key",
                           "- \"key\": " + JSON.stringify(key) + ",", false);
            await tab.document(add, (it) => !it[list].some((one) =>
                one.key === key));
            await tab.hand.type(tab.at("filter " + list), "");
        }
    },

    async "compare versions and restore one"(tab) {
        const before = (await send("GET", tab.base + "/rl/document")).json;
        const first = before.version;

        await send("PATCH", tab.base + "/rl/rules/orders",
                   { params: { limit: 123 } });
        await tab.view("versions");
        await tab.hand.press(tab.at("changes " + (first + 1)));
        await tab.sees("+ \"limit\": 123,", "main .diff");
        await tab.hand.choose(tab.at("from"), String(first + 1));
        await tab.hand.choose(tab.at("to"), String(first));
        await tab.hand.press(tab.at("compare"));
        await tab.sees("- \"limit\": 123,", "main .diff");
        await tab.hand.press(tab.at("restore " + first));
        await tab.save("Restore", "- \"limit\": 123,", false);

        const now = await tab.document("restored", (it) => it.version
                                                          === first + 2);

        is(now.rules, before.rules, "the rules are those of before");
        await tab.sees("why " + EVIL.slice(0, 40), "main");
    },

    async "look at the document"(tab) {
        await tab.view("versions");
        await tab.press("Show the document");
        await tab.sees("\"rules\": [", "dialog");
        await tab.hand.press(tab.at("page next"));
        await tab.sees(/^201 to 400 of /, "dialog");
        await tab.press("Close");
        await tab.page.locator("dialog").waitFor({ state: "detached" });
    },

    async "turn the pages of lists"(tab) {
        await tab.view("rules");
        await tab.sees("1 to 20 of 46", "main");
        await tab.hand.press(tab.at("Rules next"));
        await tab.sees("21 to 40 of 46", "main");
        await tab.hand.press(tab.at("Rules next"));
        await tab.sees("41 to 46 of 46", "main");
        await tab.hand.press(tab.at("Rules previous"));
        await tab.sees("21 to 40 of 46", "main");
        await tab.hand.press(tab.at("Deny list next"));
        await tab.sees(/^11 to 20 of 2\d$/, "main");
    },

    async "see who is limited, and deny that key"(tab) {
        const key = "limited*?\\ " + EVIL_KEY + tab.hand.name;
        const literal = key.replace(/[\\*?]/g, "\\$&");
        const row = tab.page.getByRole("table", { name: "Last rejections" })
                            .locator("tbody tr");

        for (let i = 0; i < 35; i++) {
            await send("GET", tab.base + "/v1/orders", undefined,
                       { "X-API-Key": key });
        }

        await tab.view("clients");
        await tab.sees(key, "table[aria-label=\"Top keys\"]");
        await tab.hand.type(tab.at("of rule"), "orders");
        await tab.hand.type(tab.at("of key"), key);
        await tab.hand.press(tab.at("filter"));
        await until("equal ones are one row", async () => /^25 since /.test(
            (await row.first().locator("td").allTextContents())[1]));
        is(await row.count(), 1, "all of them");
        is((await row.first().locator("td").allTextContents()).slice(2, 6),
           ["orders", key, "/v1/orders", "10 in 1 d"], "the last rejection");
        await tab.hand.check(tab.at("grouped"));
        await tab.sees("1 to 20 of 25", "main");
        await tab.hand.press(tab.at("Last rejections next"));
        await tab.sees("21 to 25 of 25", "main");
        await tab.hand.check(tab.at("grouped"));
        await tab.hand.press(row.first().getByRole("button", { name: "Deny" }));
        await tab.save("Deny", JSON.stringify(literal));
        await tab.document("denied", (it) => it.deny.some((one) =>
            one.key === literal));
        await until("the key is denied", async () => (await send("GET",
            tab.base + "/v1/", undefined, { "X-API-Key": key })).status === 403);
        ok((await send("GET", tab.base + "/v1/", undefined, { "X-API-Key":
               key.replace("*", "any") })).status !== 403,
           "and no key that it would stand for");
        await tab.hand.press(row.first().getByRole("button",
                                                   { name: "Look up" }));
        await tab.sees("fixed_window", "table[aria-label=Counters]");
        await tab.hand.type(tab.at("of rule"), "");
        await tab.hand.type(tab.at("of key"), "");
        await tab.hand.press(tab.at("filter"));
    },

    async "see a penalty, and end it"(tab) {
        const key = "guesser " + EVIL_KEY + tab.hand.name;
        const list = "table[aria-label=Penalties]";
        const row = tab.page.locator(list + " tbody tr");
        const known = (base, n) => tab.penalties(base, key, n);

        await tab.guess(key, 2);
        await known(tab.other, 1);
        await tab.guess(key, 1);
        await tab.view("clients");
        await tab.hand.type(tab.at("of penalty"), "guesses");
        await tab.hand.type(tab.at("of penalized key"), key);
        await tab.hand.press(tab.at("filter penalties"));
        await tab.sees(key, list);
        await until("one penalty", async () => await row.count() === 1);

        const cells = await row.first().locator("td").allTextContents();

        is(cells.slice(0, 4).concat(cells[6]),
           [key, "$ratelimit_api_key", "guesses", "ban", "1"], "what it is");
        ok(/^(1 h|59 min)/.test(cells[5]), "how much is left: " + cells[5]);
        await tab.sees("(penalized)", "table[aria-label=\"Top keys\"]");
        await tab.sees("penalty guesses",
                       "table[aria-label=\"Last rejections\"]");

        await tab.hand.press(row.getByRole("button", { name: "End" }));
        await tab.sees(key, "dialog");
        await tab.hand.close();
        await tab.page.locator("dialog").waitFor({ state: "detached" });
        await known(tab.other, 1);
        await tab.hand.press(row.getByRole("button", { name: "End" }));
        await tab.press("End it");
        await tab.sees("The penalty has ended.", "#said");
        await known(tab.other, 0);
        is((await tab.guess(key, 1)).status, 404, "the key is served again");
        await tab.sees("No key is penalized.", "main");

        await tab.guess(key, 1);
        await tab.sees(key, list);
        await known(tab.other, 1);
        await tab.hand.press(row.getByRole("button", { name: "End" }));
        await send("DELETE", tab.other + "/rl/penalties?key="
                             + encodeURIComponent(key));
        await known(tab.base, 0);
        await tab.press("End it");
        await tab.sees("there is no such penalty", "dialog [role=alert]");
        await tab.hand.close();
        await tab.page.locator("dialog").waitFor({ state: "detached" });
        await tab.hand.type(tab.at("of penalty"), "");
        await tab.hand.type(tab.at("of penalized key"), "");
        await tab.hand.press(tab.at("filter penalties"));
    },

    async "look up a counter, reset it, top it up"(tab) {
        const key = EVIL_KEY + tab.hand.name;
        const counter = "/rl/counters?rule=orders&key="
                        + encodeURIComponent(key);
        const remaining = (n) => until("remaining " + n, async () =>
            (await send("GET", tab.other + counter)).json.remaining === n);

        for (let i = 0; i < 10; i++) {
            await send("GET", tab.base + "/v1/orders", undefined,
                       { "X-API-Key": key });
        }

        await tab.view("clients");
        await tab.hand.type(tab.at("part 0"), key);
        await tab.hand.press(tab.at("look up"));
        await tab.sees("fixed_window", "main");
        await tab.hand.press(tab.at("reset orders"));
        await tab.press("Reset");
        await tab.sees("The counter is reset.", "#said");
        await remaining(10);

        for (let i = 0; i < 12; i++) {
            await send("GET", tab.base + "/v1/orders", undefined,
                       { "X-API-Key": key });
        }

        await remaining(0);
        await tab.hand.press(tab.at("top up orders"));
        await tab.hand.type(tab.at("to add"), "4");
        await tab.press("Give");
        await tab.sees("Now 4 of 10 remain.", "#said");
        await remaining(4);
    }
};

/* What is tested once. */
const TESTS = {

    async "what the overview shows"(tab) {
        const { hand } = tab;

        await tab.view("overview");
        await tab.sees("Gateways that share the limits", "main");
        await until("two gateways", async () => (await tab.page.locator(
            "dl").first().textContent()).includes("share the limits2"));
        is(await tab.page.getByRole("table", { name: "Redis nodes" })
                     .locator("tbody tr").count(), 3, "three Redis nodes");
        await tab.sees("No problems.", "main");
        await until("calls of Redis, and their time", async () => {
            await send("GET", tab.base + "/v1/", undefined,
                       { "X-API-Key": "calls" });

            return /yes[\d.,]+[\d.]+ ms/.test(await tab.page.getByRole(
                "table", { name: "Redis nodes" }).textContent());
        });
        is(await tab.page.locator("#others").textContent(),
           "Other zones: hashed alone ", "the other zones");
        is(hand.name, "mouse", "by mouse");
        await hand.press(tab.page.locator("#others a").first());
        await tab.page.waitForURL("**/see/");
        await until("the page of that zone", async () =>
            await tab.page.locator("#zone").textContent() === "hashed");
        await tab.page.goto(tab.base + "/rl/");
    },

    async "the plots"(tab) {
        const row = tab.page.getByRole("table", { name: "Requests by rule" })
                            .locator("tr[data-key=orders]");

        await tab.view("overview");
        await tab.hand.type(tab.at("filter plots"), "ORD");
        await until("a rejection in the plot of its rule", async () => {
            await send("GET", tab.base + "/v1/orders", undefined,
                       { "X-API-Key": "plotted" });

            return /^[1-9]/.test(await row.locator("td").nth(2).textContent());
        });
        ok(/L/.test(await row.locator("path.rejected").getAttribute("d")),
           "a line of rejections");
        ok(/ requests and .* rejections a second$/.test(
            await row.locator("svg").getAttribute("aria-label")),
           "the plot in words");

        /* the gateway keeps the last minutes, also while no page is open */
        const seen = async (name) => {
            const courses = tab.page.locator("main .columns > div",
                                             { hasText: name }).first();

            return [await courses.locator("path").count(),
                    await courses.textContent()];
        };

        await tab.page.goto("about:blank");
        await until("a rejection in the history", async () => (await send(
            "GET", tab.base + "/rl/history")).json.refusals.some((n) => n > 0));
        await tab.page.goto(tab.base + "/rl/");
        await until("it is there at once", async () =>
            /^Rejected: [\d.,]+ a second[\d.,]+5 minutes agonow$/.test(
                (await seen("Rejected: "))[1]));
        is((await seen("Rejected: "))[0], 1, "with its line");
        is((await seen("Not limited: "))[0], 0, "what has not been has none");
        await tab.sees(/^None in the last 5 minutes\.$/, "main .columns");

        await tab.hand.type(tab.at("filter plots"), "");
        await tab.sees(/^1 to 10 of \d\d$/, "main");
        await tab.hand.choose(tab.at("order"), "name");
        await tab.sees("rule-00", "main table");
    },

    async "keys that are not shown in clear"(tab) {
        for (let i = 0; i < 5; i++) {
            await send("GET", tab.base + "/hashed/x", undefined,
                       { "X-API-Key": "secret" });
        }

        await tab.page.goto(tab.base + "/see/#clients");
        await tab.sees(/^sha256:/, "table[aria-label=\"Last rejections\"]");
        is(await tab.page.getByRole("table", { name: "Last rejections" })
                     .locator("tbody tr").first().getByRole("button")
                     .allTextContents(), ["Override", "Deny"],
           "they can be denied, and not be looked up");

        const row = tab.page.locator("table[aria-label=Penalties] tbody tr");

        await tab.sees(/^sha256:/, "table[aria-label=Penalties]");
        is(await row.getByRole("button").allTextContents(),
           ["Override", "Deny", "End"], "their penalties can be ended");
        await tab.hand.press(row.getByRole("button", { name: "End" }));
        await tab.press("End it");
        await tab.sees("The penalty has ended.", "#said");
        is((await tab.page.content()).includes("secret"), false, "no secret");
        await tab.page.goto(tab.base + "/rl/");
    },

    async "a narrow screen"(tab) {
        await tab.page.setViewportSize({ width: 360, height: 700 });

        for (const view of ["overview", "clients", "rules", "versions"]) {
            await tab.view(view);
            is(await tab.page.evaluate(() =>
                   document.documentElement.scrollWidth), 360,
               view + " fits a narrow screen");
        }

        const parts = () => tab.page.locator("main section > details")
            .evaluateAll((list) => list.map((one) => one.open ? 1 : 0).join(""));

        await tab.view("clients");
        await until("the first part of a view is open there",
                    async () => await parts() === "1000");
        await tab.hand.press(tab.page.locator("summary").filter({
            hasText: "Last rejections" }));
        await until("a title opens its part",
                    async () => await parts() === "1010");
        await tab.page.setViewportSize({ width: 1280, height: 900 });
        await until("a wide screen has all parts open",
                    async () => await parts() === "1111");
        await tab.page.setViewportSize({ width: 360, height: 700 });

        await tab.view("rules");
        await tab.sees("1 to 5 of 46", "main");
        await tab.press("Add a rule");
        is(await tab.page.locator("dialog").evaluate((dialog) =>
               dialog.scrollWidth - dialog.clientWidth), 0,
           "a dialog fits it, too");
        await tab.hand.close();

        await tab.page.setViewportSize({ width: 1280, height: 900 });
    },

    async "light and dark"(tab) {
        const back = () => tab.page.evaluate(() =>
            getComputedStyle(document.body).backgroundColor);

        await tab.page.emulateMedia({ colorScheme: "light" });
        const light = await back();
        await tab.page.emulateMedia({ colorScheme: "dark" });
        ok(light !== await back(), "dark is another colour");
        await tab.page.emulateMedia({ colorScheme: "light" });
    },

    async "who may only read sees no button that writes"(tab) {
        await tab.page.goto(tab.base + "/read/#rules");
        await tab.sees("1 to 20 of 46", "main");
        is(await tab.page.getByRole("button").allTextContents(),
           ["Previous", "Next", "Previous", "Next"], "only to turn pages");

        await tab.guess("reader", 2);
        await tab.view("clients");
        await tab.sees("reader", "table[aria-label=Penalties]");
        is(await tab.page.locator("table[aria-label=Penalties]")
                     .getByRole("button").allTextContents(), ["Look up"],
           "nor can a penalty be ended");
        await send("DELETE", tab.base + "/rl/penalties?key=reader");
    },

    async "a token"(tab) {
        const before = tab.refused.length;

        await tab.page.setExtraHTTPHeaders({});
        await tab.page.goto(tab.base + "/token/#rules");
        await tab.hand.type(tab.at("token"), "a-wrong-token-0123456789");
        await tab.press("Use it");
        await tab.sees("The token was not accepted.", "main");
        await tab.hand.type(tab.at("token"), GIVEN.token);
        await tab.press("Use it");
        await tab.sees("1 to 20 of 46", "main");
        await tab.hand.press(tab.at("remove rule-00"));
        await tab.save("Remove the rule", "- \"id\": \"rule-00\",", false);
        is((await send("GET", tab.base + "/rl/versions")).json.versions[0]
           .author, "ann", "the token's name is the author");
        is(await tab.page.evaluate(() => JSON.stringify(sessionStorage)
                                         + JSON.stringify(localStorage)),
           "{}{}", "the browser stores no token");
        await tab.page.reload();
        await tab.sees("wants a token", "main");
        await tab.page.setExtraHTTPHeaders(TOKEN);
        ok(tab.refused.length > before, "the console names the 401s");
    },

    async "a browser that may not see the page"(tab) {
        await tab.page.setExtraHTTPHeaders({ "X-Forwarded-For": "192.0.2.1" });

        const answer = await tab.page.goto(tab.base + "/read/");

        is(answer.status(), 403, "the status is that of the refusal");
        await tab.sees("This page cannot be opened from here", "main");
        await tab.sees(/^without a token this location is for clients on/,
                       "main [role=alert]");
        await tab.sees(tab.base + "/read/", "main");
        await tab.press("Try again");
        await tab.sees("This page cannot be opened from here", "main");
        await tab.page.setExtraHTTPHeaders(TOKEN);
        await tab.press("Try again");
        await tab.sees("No problems.", "main");
        await tab.page.goto(tab.base + "/rl/");
    },

    async "ids, routes and reasons that are markup stay text"(tab) {
        const evil = Object.assign(manyThings(), { version: 9 });

        await tab.page.goto("about:blank");
        evil.rules[0].id = EVIL;
        await tab.page.route("**/rl/document", (route) => route.fulfill({
            json: evil, headers: { ETag: "\"9-0000000000000001\"" } }));
        await tab.page.route("**/rl/status", async (route) => {
            const answer = await route.fetch();
            const json = await answer.json();

            json.zone = json.gateway.hostname = EVIL;
            json.skipped = [{ id: EVIL, pointer: EVIL, detail: EVIL }];
            json.redis.nodes[0].name = EVIL;
            await route.fulfill({ response: answer, json: json });
        });
        await tab.page.goto(tab.base + "/rl/");

        for (const view of ["overview", "clients", "rules", "versions"]) {
            await tab.view(view);
            await tab.sees(EVIL, view === "clients" || view === "versions"
                                 ? "header" : "main");
        }

        is(await tab.page.locator("script, img").count(), 1,
           "one script, no image");
        await tab.page.unrouteAll({ behavior: "wait" });
        await tab.page.reload();
    },

    async "a gateway that goes away and comes back"(tab) {
        await tab.view("overview");
        await ask("stop 0");
        await tab.sees(/^The gateway does not answer/, "#away");
        is(await tab.page.locator(".good:visible").count(), 0,
           "nothing is called good");
        await ask("start 0");
        await tab.sees("The gateway answers again.", "#said");
        is(await tab.page.locator("#away").textContent(), "",
           "nothing is said of it any more");
    },

    async "Redis that the gateway cannot ask"(tab) {
        let n = 0;

        await tab.page.route("**/rl/status", async (route) => {
            const answer = await route.fetch();
            const json = await answer.json();

            json.redis.reachable = false;
            json.redis.nodes[1].breaker = "open";
            await route.fulfill({ response: answer, json: json });
        });
        await tab.page.route("**/rl/decisions", async (route) => {
            const answer = await route.fetch();
            const json = await answer.json();

            n += 100;
            json.rules.find((row) => row.rule === "z").degraded = n;
            await route.fulfill({ response: answer, json: json });
        });
        await tab.view("rules");
        await tab.sees(/^Redis does not answer, since /, "#away");
        is(await tab.page.locator("main").getByRole("button", {
               name: /Edit|Remove|Add|Deny/ }).count(), 0,
           "no button that needs it");
        is(await tab.page.getByRole("table", { name: "Rules of nginx.conf" })
                     .locator("tbody tr").allTextContents(),
           ["z$ratelimit_api_keytoken_bucket: limit 1,000 in 1 s"],
           "the rules of nginx.conf");
        await tab.view("overview");
        await tab.sees(/^The breaker of Redis node .*: open: no calls\.$/, "main");
        await tab.sees(/requests a second are not limited/, "main");

        const affected = tab.page.getByRole("table", {
            name: "Rules without Redis" }).locator("tbody tr").first();
        const cells = await until("the rule that lets pass", async () => {
            const texts = await affected.locator("td").allTextContents();

            return /^[1-9]/.test(texts[2]) && texts;
        });

        is([cells[0], cells[1], cells[3]],
           ["z", "open: passes, not limited", "0"], "its fail_mode");
        ok(/^\d\d:\d\d:\d\d$/.test(cells[4]), "and since when: " + cells[4]);
        is(await tab.page.getByText("No problems.").count(), 0,
           "there are problems");
        await tab.page.unrouteAll({ behavior: "wait" });
        await tab.sees("No problems.", "main");
        is(await tab.page.locator("#away").textContent(), "",
           "nothing is said of it any more");
        await until("no rule is without Redis", async () =>
            !await affected.isVisible());
    }
};

/* Those of docs/status-page.md: a minute of traffic, and a change of a rule. */
async function pictures(tab) {
    const limit = (id, route, n, more) => Object.assign({
        id: id, match: { route: route }, algorithm: "sliding_window",
        params: { limit: n, window: 60 } }, more);
    const picture = (name, height) => tab.page.screenshot({
        path: path.join(GIVEN.pictures, name + ".png"),
        clip: { x: 0, y: 0, width: 1000, height: height } });

    /* names of a gateway in place of those of the test */
    await tab.page.route("**/rl/status", async (route) => {
        const answer = await route.fetch();
        const json = await answer.json();

        json.zone = "api";
        json.gateway.hostname = "gw1.example.com";
        json.redis.name = "fleet";
        json.endpoints = [];
        json.state.file = "/var/lib/nginx/api.rules";
        await route.fulfill({ response: answer, json: json });
    });
    await tab.page.route("**/rl/decisions", async (route) => {
        const answer = await route.fetch();
        const json = await answer.json();

        json.rules.find((row) => row.rule === "z").rule = "api";
        await route.fulfill({ response: answer, json: json });
    });
    await send("PUT", tab.base + "/rl/document", { rules: [
        limit("orders", "/v1/orders/**", 600),
        limit("search", "/v1/search", 120, { tiers: { pro: { limit: 1200 } } }),
        limit("reports", "/v1/reports/*", 30)] });
    await tab.page.setViewportSize({ width: 1000, height: 860 });
    await tab.view("overview");

    for (let i = 0; i < 600; i++) {
        const paths = ["orders/7", "search", "orders/9", "orders/7"]
                      .concat(i % 7 ? [] : ["reports/3"])
                      .concat(i % 200 > 120 ? ["search", "search"] : []);

        await Promise.all(paths.map((name) => send(
            "GET", tab.base + "/v1/" + name, undefined,
            { "X-API-Key": "sk_live_" + i % 3 })));
        await tab.page.waitForTimeout(100);
    }

    await picture("overview", 660);

    for (const key of ["sk_live_4", "sk_live_5"]) {
        await tab.guess(key, 3);
    }

    await tab.view("clients");
    await tab.sees("sk_live_5", "table[aria-label=Penalties]");
    await tab.page.locator("section").filter({ hasText: "Counted byPenalty" })
             .screenshot({ path: path.join(GIVEN.pictures, "penalties.png") });
    await tab.page.emulateMedia({ colorScheme: "dark" });
    await tab.view("rules");
    await tab.hand.press(tab.at("edit search"));
    await tab.hand.type(tab.at("rule"), JSON.stringify(
        limit("search", "/v1/search", 180, { tiers: { pro: { limit: 1200 } } }),
        null, 2));
    await tab.press("Compare");
    await tab.sees("+ \"limit\": 180,", "dialog .diff");
    await picture("difference", 860);
    await tab.page.unrouteAll({ behavior: "wait" });
}

async function open(browser, base, Hand) {
    const context = await browser.newContext({
        viewport: { width: 1280, height: 900 } });
    const page = await context.newPage();
    const tab = new Tab(page, base, new Hand(page));

    page.setDefaultTimeout(15000);
    await page.setExtraHTTPHeaders(TOKEN);
    await page.goto(base + "/rl/");

    return tab;
}

async function run(tab, tests) {
    for (const [name, test] of Object.entries(tests)) {
        try {
            await send("PUT", ONE + "/rl/document", manyThings());
            await test(tab);
            ok(true, tab.hand.name + ": " + name);
        } catch (e) {
            ok(false, tab.hand.name + ": " + name);
            console.log(String(e.stack).replace(/^/gm, "    "));
            await tab.page.unrouteAll({ behavior: "ignoreErrors" });
            await tab.page.setExtraHTTPHeaders(TOKEN);
            await tab.page.screenshot({ path: path.join(
                GIVEN.shots, name.replace(/\W+/g, "-") + ".png") });
            await tab.page.goto("about:blank");
            await tab.page.goto(tab.base + "/rl/");
        }

        is(tab.bad, [], tab.hand.name + ": " + name + ": a clean console");
        is(tab.foreign, [], tab.hand.name + ": " + name
                            + ": no request to another origin");
        tab.bad = [];
        tab.foreign = [];
    }
}

(async () => {
    const browser = await chromium.launch({
        executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
        args: process.getuid() === 0 ? ["--no-sandbox"] : [] });

    try {
        if (GIVEN.pictures) {
            await pictures(await open(browser, ONE, Mouse));
            console.log("end");
            return;
        }

        const put = await send("PUT", ONE + "/rl/document", manyThings());

        ok(put.status < 300, "a document: " + put.status);

        if (put.status >= 300) {
            console.log(put.text);
        }

        for (const [base, Hand] of [[ONE, Mouse], [TWO, Keyboard]]) {
            const tab = await open(browser, base, Hand);

            await run(tab, ACTIONS);

            if (Hand === Mouse) {
                await run(tab, TESTS);
            }

            await tab.page.context().close();
        }

        console.log("end");
    } finally {
        await browser.close();
        answers.close();
    }
})();
