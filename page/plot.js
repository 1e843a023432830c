/* Plots of the last minutes. */

const WIDTH = 300;
const HEIGHT = 60;

/*
 * An SVG of lists of numbers, oldest first; null is a gap. series: {class,
 * values, area}. A list shorter than steps begins at the right.
 */
function plot(series, steps, label, className) {
    const top = Math.max(...series.map((one) => Math.max(0, ...one.values)));

    return svg("svg", { class: "plot " + (className || ""), role: "img",
                        viewBox: "0 0 " + WIDTH + " " + HEIGHT,
                        preserveAspectRatio: "none", "aria-label": label },
               series.filter((one) => one.values.some((value) => value)
                                      || !one.area)
                     .map((one) => svg("path", {
                   class: one.class,
                   d: line(one.values, steps, top || 1, one.area) })));
}

function line(values, steps, top, area) {
    const x = (i) => (WIDTH * (steps - values.length + i) / (steps - 1))
                     .toFixed(1);
    const y = (value) => ((HEIGHT - 2) * (1 - value / top) + 1).toFixed(1);
    let d = "", from = -1;

    values.forEach((value, i) => {
        if (value === null) {
            from = -1;
            return;
        }

        d += (from < 0 ? "M" : "L") + x(i) + " " + y(value);
        from = from < 0 ? i : from;

        if (area && (i + 1 === values.length || values[i + 1] === null)) {
            d += "L" + x(i) + " " + HEIGHT + "L" + x(from) + " " + HEIGHT + "Z";
        }
    });

    return d;
}
