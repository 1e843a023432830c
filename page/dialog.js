/* Dialogs: those that change the document, and those that change a counter. */

/*
 * A dialog with a form. submit() is what its main button does. Closed, the
 * focus is where it was. Returns the dialog.
 */
function openDialog(title, submit, ...children) {
    const active = document.activeElement;
    const at = active && active.dataset.at;
    const dialog = el("dialog", { "aria-label": title },
        el("form", { onsubmit: (event) => {
            event.preventDefault();
            submit();
        } }, el("h2", null, title), children));

    dialog.addEventListener("close", () => {
        dialog.remove();

        if (!document.body.contains(active)
            && !(at && focusAt(document.body, at)))
        {
            document.getElementById("main").focus();
        }
    });

    document.body.append(dialog);
    dialog.showModal();

    return dialog;
}

/* What a failure is called, with each of its errors. */
function failure(error) {
    if (!(error instanceof Refused) && !(error instanceof Away)
        && !(error instanceof Mistake))
    {
        throw error;
    }

    return [el("p", { class: "bad", role: "alert" },
               error instanceof Away
               ? "The gateway does not answer: " + error.message + "."
               : data(error.message)),
            problemList(error.errors || []),
            error.more ? el("p", null, "And " + number(error.more) + " more.")
                       : null];
}

function problemList(errors) {
    return errors.length === 0 ? null
        : el("ul", null, errors.map((one) => el("li", null,
              one.id ? [data(one.id), ": "] : null,
              data((one.id ? one.pointer.replace(/^\/\w+\/\d+/, "")
                           : one.pointer) + " " + one.detail))));
}

/* What was typed is wrong: before the endpoint is asked. */
class Mistake extends Error {}

/*
 * A change of the document, in two steps. First the endpoint validates what the
 * document would be, and the difference is shown. Then it is saved, unless
 * somebody else has changed the document in between.
 *
 * what: title; verb of the button; inputs, a node, or null: there is nothing to
 * type; change(document) makes the change in a copy, or throws a Mistake;
 * send(tag, reason) asks the endpoint to make it.
 */
function propose(what) {
    const result = el("div", { class: "result", "aria-live": "polite" });
    const reason = el("input", { maxlength: 120, autocomplete: "off" });
    const reasonField = field("Reason, kept with the version (optional)",
                              reason);
    const compare = el("button", { type: "submit" },
                       what.inputs ? "Compare" : "Compare again");
    const save = el("button", { type: "button", onclick: run }, what.verb);
    let tag = null, busy = false;

    function enable(newTag) {
        tag = newTag;
        save.disabled = tag === null || busy;
        compare.disabled = busy;
        save.classList.toggle("main", tag !== null);
        compare.classList.toggle("main", tag === null);
        reasonField.hidden = tag === null;
    }

    async function during(task) {
        if (busy) {
            return;
        }

        busy = true;
        enable(tag);

        try {
            await task();
        } catch (e) {
            tag = null;
            replace(result, failure(e), e.status === 412
                ? el("p", null, "Somebody else has changed the document. "
                                + "Compare again.")
                : null);
        } finally {
            busy = false;
            enable(tag);
        }
    }

    function check() {
        return during(async () => {
            const now = await ask("GET", "document");
            const next = JSON.parse(JSON.stringify(now.json));

            tag = null;
            what.change(next);

            const verdict = await validate(next);
            const found = differences(now.json, next);

            replace(result,
                el("h3", null, "Difference to version "
                               + number(now.json.version || 0)),
                showDifferences(found, "Nothing would change."),
                verdict.length ? el("h3", null, "Warnings") : null,
                problemList(verdict));

            if (found.length) {
                tag = now.tag;
                reasonField.hidden = false;
                reason.focus();
            }
        });
    }

    function run() {
        return during(async () => {
            const answer = await what.send(tag, reason.value);

            dialog.close();
            say("Version " + number(parseInt(answer.tag.slice(1), 10))
                + " is saved."
                + (answer.saved === "false"
                   ? " It is not yet in the state file of this gateway."
                   : ""));
            refresh();
        });
    }

    const dialog = openDialog(what.title, check,
        what.inputs && el("div", { oninput: () => enable(null) }, what.inputs),
        result, reasonField,
        buttons(button("Cancel", "cancel", () => dialog.close()), compare,
                save));

    enable(null);

    if (!what.inputs) {
        check();
    }
}

/*
 * Asks what the endpoint would say of a document: its warnings. Mistakes that
 * are in the stored document already forbid no other change.
 */
async function validate(next) {
    const skipped = gateway.status ? gateway.status.skipped : [];
    const known = new Set(skipped.map((one) => one.id + " " + one.detail));

    try {
        return (await ask("POST", "document/validate", { body: next }))
               .json.warnings;
    } catch (e) {
        if (!(e instanceof Refused) || !e.errors.length || e.more
            || e.errors.some((one) => !known.has(one.id + " " + one.detail)))
        {
            throw e;
        }

        return e.errors;
    }
}

/* A change that makes no version. what: title, text, inputs, verb, send(). */
function confirmed(what) {
    const result = el("div", { class: "result" });
    const go = el("button", { type: "submit", class: "main" }, what.verb);
    const dialog = openDialog(what.title, async () => {
        go.disabled = true;

        try {
            say(await what.send());
            dialog.close();
            refresh();
        } catch (e) {
            go.disabled = false;
            replace(result, failure(e));
        }
    }, what.text, what.inputs, result,
       buttons(button("Cancel", "cancel", () => dialog.close()), go));
}
