/* The view "Versions": who has changed what, and the way back. */

function versionsView() {
    const from = select({ "data-at": "from" }, []);
    const to = select({ "data-at": "to" }, []);
    const result = el("div", { class: "result", "aria-live": "polite" });
    const note = el("div");
    let drawn = null;

    const list = table("Versions", (one) => one.version, [
        { name: "Version", class: "number",
          cell: (one) => number(one.version) },
        { name: "Time", cell: (one) => time(one.time) },
        { name: "Author", cell: (one) => data(one.author) },
        { name: "From", cell: (one) => data(one.address) },
        { name: "Change", cell: (one) => data(one.method + " " + one.path) },
        { name: "Reason", cell: (one) => data(one.reason) },
        { name: "Bytes", class: "number", cell: (one) => number(one.bytes) },
        { name: "", cell: (one) => buttons(
            button("Changes", "changes " + one.version,
                   () => compare(one.version - 1, one.version)),
            mayChange() ? button("Restore", "restore " + one.version,
                                () => restore(one.version)) : null) }
    ], "There is no version yet.", 15);

    async function tick() {
        if (drawn === gateway.tag) {
            return;
        }

        let answer;

        try {
            answer = (await ask("GET", "versions")).json;
        } catch (e) {
            /* only Redis knows them, and it does not answer */
            replace(note, failure(e));
            list.node.hidden = (drawn === null);
            return;
        }

        drawn = gateway.tag;
        list.node.hidden = false;
        replace(note);
        list.show(answer.versions);
        options(from, answer.versions, 1);
        options(to, answer.versions, 0);
    }

    /* keeps what is chosen */
    function options(input, versions, standard) {
        const chosen = input.value;

        replace(input, versions.map((one) => el("option",
            { value: one.version }, number(one.version))));

        const kept = versions.some((one) => String(one.version) === chosen);

        if (versions.length) {
            input.value = kept && chosen
                || versions[Math.min(standard, versions.length - 1)].version;
        }
    }

    async function compare(older, newer) {
        replace(result, el("p", { class: "faint" }, "Comparing..."));

        try {
            const before = await versionOf(older);
            const after = await versionOf(newer);

            replace(result,
                el("h3", { tabindex: -1, "data-at": "compared" },
                   "From version " + number(older) + " to " + number(newer)),
                showDifferences(differences(before, after),
                                "They are the same."));
            focusAt(result, "compared");
        } catch (e) {
            replace(result, failure(e));
        }
    }

    return {
        name: "versions", title: "Versions",
        node: el("div", null,
            part("Versions",
                button("Show the document", "document", showDocument),
                note, list.node),
            part("Compare", null,
                el("form", { class: "row", onsubmit: (event) => {
                    event.preventDefault();
                    compare(Number(from.value), Number(to.value));
                } }, field("From version", from), field("To version", to),
                   el("button", { type: "submit", "data-at": "compare" },
                      "Compare")),
                result)),
        tick: tick
    };
}

/* Before the first version there was an empty document. */
async function versionOf(n) {
    return n < 1 ? {} : (await ask("GET", path("versions", String(n)))).json;
}

async function restore(n) {
    let old;

    try {
        old = await versionOf(n);
    } catch (e) {
        openDialog("Restore version " + n, () => undefined, failure(e));
        return;
    }

    propose({
        title: "Restore version " + number(n), verb: "Restore", inputs: null,
        change(document) {
            for (const name of Object.keys(document)) {
                delete document[name];
            }

            Object.assign(document, JSON.parse(JSON.stringify(old)));
        },
        send: (tag, reason) => ask("POST", path("versions", String(n),
                                                "restore") + because(reason),
                                   { tag: tag })
    });
}

function showDocument() {
    const lines = JSON.stringify(gateway.document, null, 2).split("\n");
    const dialog = openDialog("The document", () => dialog.close(),
        pages(lines, 200, (line) => el("div", { class: "data" }, line)),
        buttons(el("button", { type: "submit" }, "Close")));
}
