/* The penalties in force, in the view "Clients". */

const ASKED = 100;            /* of the penalties that the gateway has */

function penaltyList() {
    const id = el("input", { "data-at": "of penalty", autocomplete: "off" });
    const key = el("input", { "data-at": "of penalized key",
                              autocomplete: "off" });
    const note = el("p", { class: "faint" });
    let asked = "";

    const list = table("Penalties", (row) => row.penalty + " " + row.key, [
        { name: "Key", cell: (row) => keyText(row.key) },
        { name: "Counted by", cell: (row) => data(row.counted_by) },
        { name: "Penalty", cell: (row) => data(row.penalty) },
        { name: "Action", cell: (row) => row.action },
        { name: "Ends", cell: (row) => time(row.ends_at) },
        { name: "Left", class: "number",
          cell: (row) => duration(row.retry_after_seconds) },
        { name: "Number", class: "number", cell: (row) => number(row.times) },
        { name: "", cell: (row) => buttons(
              keyButtons(Object.assign({}, row, { number: row.penalty })),
              mayWrite() ? button("End", "end penalty " + row.penalty + " "
                                         + row.key, () => endPenalty(row))
                         : null) }
    ], "No key is penalized.", 10);

    async function tick() {
        const wanted = query(["penalty", id.value], ["key", key.value],
                             ["n", ASKED]);
        const answer = await offered("penalties", wanted);

        node.hidden = answer === null;

        if (answer === null) {
            return;
        }

        if (wanted !== asked) {
            asked = wanted;
            list.turnBack();
        }

        list.show(answer.penalties);
        replace(note, answer.total > answer.penalties.length
            ? "These are " + number(answer.penalties.length) + " of "
              + number(answer.total) + ". Filter them to find others."
            : null);
    }

    const node = part("Penalties", null,
        el("form", { class: "row", onsubmit: (event) => {
            event.preventDefault();
            refresh();
        } }, field("Penalty", id), field("Key", key),
           el("button", { type: "submit", "data-at": "filter penalties" },
              "Filter")),
        note, list.node);

    return { node: node, tick: tick };
}

function endPenalty(row) {
    confirmed({
        title: "End a penalty", verb: "End it",
        text: [el("p", null, "The key is no longer penalized: ",
                  data(row.key), ", penalty ", data(row.penalty), "."),
               el("p", null, "The penalty is forgotten: the next one of this "
                             + "key is as short as the first. The key's "
                             + "counters stay as they are.")],
        async send() {
            await ask("DELETE", "penalties" + query(["penalty", row.penalty],
                                                    ["key", row.key]));
            return "The penalty has ended.";
        } });
}
