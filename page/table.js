/* Long lists, a page at a time. */

const FEW = 5;                /* rows of a page on a narrow screen */
const narrow = window.matchMedia("(max-width: 44rem)");

/* The buttons below a list. turn(first) shows another page. */
function pager(at, first, size, total, turn) {
    if (total <= size) {
        return null;
    }

    const last = Math.min(first + size, total);

    return el("div", { class: "pages" },
        el("span", null, number(first + 1) + " to " + number(last) + " of "
                         + number(total)),
        button("Previous", at + " previous", () => turn(first - size),
               { disabled: first === 0 }),
        button("Next", at + " next", () => turn(first + size),
               { disabled: last === total }));
}

/* A list that does not change: show(item) makes the node of an item. */
function pages(items, size, show) {
    const node = el("div");
    const turn = (first) => {
        replace(node, items.slice(first, first + size).map(show),
                pager("page", first, size, items.length, turn));
    };

    turn(0);

    return node;
}

/*
 * A table whose rows may change at any time. name: what it holds. key(row):
 * what the row is, also when its values change. columns: {name, class,
 * cell(row)}; what a button of a cell does depends on the key alone. empty:
 * what is said without rows. Has node, show(rows, all), and turnBack() to the
 * first page; all: those before a filter.
 *
 * An element that has not changed stays where it is: a click, the focus or a
 * selection in it is not lost.
 */
function table(name, key, columns, empty, most) {
    const body = el("tbody");
    const whole = el("table", { "aria-label": name },
        el("thead", null, el("tr", null, columns.map((column) => el(
            "th", { class: column.class, scope: "col" }, column.name)))),
        body);
    const none = el("p", { class: "faint" }, empty);
    const below = el("div");
    const node = el("div", null, none, whole, below);
    let rows = [], first = 0;

    function line(row) {
        return el("tr", { "data-key": key(row) }, columns.map((column) => el(
            "td", { class: column.class, "data-name": column.name },
            column.cell(row))));
    }

    function draw() {
        const active = document.activeElement;
        const at = body.contains(active) && active.dataset.at;
        const old = new Map(Array.from(body.children).map(
            (tr) => [tr.dataset.key, tr]));
        const size = narrow.matches ? Math.min(most, FEW) : most;

        first = Math.max(0, Math.min(first, Math.floor((rows.length - 1) / size)
                                            * size));
        none.hidden = rows.length > 0;
        whole.hidden = !none.hidden;

        rows.slice(first, first + size).forEach((row, i) => {
            const fresh = line(row);
            const there = old.get(fresh.dataset.key);
            const tr = there ? renew(there, fresh) : fresh;

            old.delete(fresh.dataset.key);

            if (body.children[i] !== tr) {
                body.insertBefore(tr, body.children[i] || null);
            }
        });

        old.forEach((tr) => tr.remove());

        if (at && !body.contains(document.activeElement)) {
            focusAt(body, at);
        }

        replace(below, pager(name, first, size, rows.length, (to) => {
            first = to;
            draw();
        }));
    }

    draw();

    return {
        node: node,
        show(list, all) {
            rows = list;
            none.textContent = all && all.length
                               ? "Nothing matches the filter." : empty;
            draw();
        },
        turnBack() { first = 0; }
    };
}

/* Gives a row the cells of a fresh one that are different. */
function renew(tr, fresh) {
    const cells = Array.from(fresh.children);

    Array.from(tr.children).forEach((cell, i) => {
        if (!cell.isEqualNode(cells[i])) {
            tr.replaceChild(cells[i], cell);
        }
    });

    return tr;
}

/* Rows that have the text of an input somewhere in them. */
function filtered(rows, wanted) {
    const text = wanted.trim().toLowerCase();

    return text ? rows.filter((row) => JSON.stringify(row).toLowerCase()
                                       .includes(text))
                : rows;
}

/* An input above a table. */
function filterInput(label, at, changed) {
    return el("input", { type: "search", placeholder: label,
                         "aria-label": label, "data-at": at,
                         oninput: changed });
}
