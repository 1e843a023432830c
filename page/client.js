/* Requests to the endpoint that this page belongs to. */

const READ_MS = 10000;
const CHANGE_MS = 40000;     /* above the endpoint's own deadline */

/* The gateway did not answer, or something else answered in its place. */
class Away extends Error {}

/* It answered with a problem (RFC 9457). */
class Refused extends Error {
    constructor(problem) {
        super(problem.detail || problem.title);
        this.status = problem.status;
        this.type = String(problem.type).replace("urn:ratelimit:problem:", "");
        this.errors = problem.errors || [];
        this.more = problem.more || 0;
    }
}

/*
 * The token of this page, or null. It is stored nowhere: the storage of a
 * browser is open to all pages of this host and port.
 */
let token = null;

/*
 * Asks the endpoint. options: body (data), tag (If-Match), known
 * (If-None-Match). Returns {status, tag, saved, json}; throws Away or Refused.
 */
async function ask(method, path, options) {
    const given = options || {};
    const headers = { Accept: "application/json" };
    const abort = new AbortController();
    const timer = setTimeout(() => abort.abort(),
                             method === "GET" ? READ_MS : CHANGE_MS);
    let answer, text;

    if (token) {
        headers.Authorization = "Bearer " + token;
    }
    if (given.body !== undefined) {
        headers["Content-Type"] = "application/json";
    }
    if (given.tag) {
        headers["If-Match"] = given.tag;
    }
    if (given.known) {
        headers["If-None-Match"] = given.known;
    }

    try {
        answer = await fetch(path, {
            method: method, headers: headers, cache: "no-store",
            credentials: "same-origin", redirect: "error",
            referrerPolicy: "no-referrer", signal: abort.signal,
            body: given.body === undefined ? undefined
                                           : JSON.stringify(given.body) });
        text = await answer.text();
    } catch (e) {
        throw new Away(e.name === "AbortError" ? "it took too long"
                                               : "no connection");
    } finally {
        clearTimeout(timer);
    }

    return read(answer, text);
}

function read(answer, text) {
    const type = answer.headers.get("Content-Type") || "";
    const result = { status: answer.status, tag: answer.headers.get("ETag"),
                     allow: answer.headers.get("Allow") || "",
                     saved: answer.headers.get("X-RateLimit-Saved"),
                     json: null };

    if (answer.status === 304 || answer.status === 204) {
        return result;
    }

    if (!/^application\/(problem\+)?json/.test(type)) {
        throw new Away("status " + answer.status + " and no JSON");
    }

    try {
        result.json = JSON.parse(text);
    } catch (e) {
        throw new Away("its answer is no JSON");
    }

    if (answer.status >= 400) {
        throw new Refused(result.json);
    }

    return result;
}

const absent = new Set();

/*
 * The data of a resource that not every endpoint has; null: this one has it
 * not, which is asked once.
 */
async function offered(name, more) {
    if (absent.has(name)) {
        return null;
    }

    try {
        return (await ask("GET", name + (more || ""))).json;
    } catch (e) {
        if (!(e instanceof Refused) || e.status !== 404) {
            throw e;
        }

        absent.add(name);
        return null;
    }
}

function path(...parts) {
    return parts.map(encodeURIComponent).join("/");
}

/* "?rule=a&key=b&key=c" of [name, value] pairs; empty values are left out. */
function query(...pairs) {
    const kept = pairs.filter(([name, value]) => value !== ""
                                                 && value !== undefined);

    return kept.length ? "?" + kept.map((pair) => pair.map(encodeURIComponent)
                                                      .join("=")).join("&")
                       : "";
}
