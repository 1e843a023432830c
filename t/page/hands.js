/*
 * What a person does with a page: by mouse, or by keyboard alone. A keyboard
 * reaches an element by Tab, or the test fails.
 */

"use strict";

const TABS = 400;

class Mouse {
    constructor(page) {
        this.page = page;
        this.name = "mouse";
    }

    async press(locator) {
        await locator.click();
    }

    async type(locator, text) {
        await locator.click();
        await this.page.keyboard.press("Control+A");
        await this.page.keyboard.insertText(text);
    }

    async choose(locator, value) {
        await locator.selectOption(value);
    }

    async check(locator) {
        await locator.click();
    }

    async close() {
        await this.page.getByRole("button", { name: "Cancel" }).click();
    }
}

class Keyboard {
    constructor(page) {
        this.page = page;
        this.name = "keyboard";
    }

    async reach(locator) {
        await locator.waitFor();

        for (let i = 0; i < TABS; i++) {
            if (await locator.evaluate((node) => node
                                                 === document.activeElement))
            {
                return;
            }

            await this.page.keyboard.press("Tab");
        }

        throw new Error("not reached by Tab: " + locator);
    }

    /* a button that is disabled is not reached */
    async press(locator) {
        await this.reach(locator);
        await this.page.keyboard.press("Enter");
    }

    async type(locator, text) {
        await this.reach(locator);
        await this.page.keyboard.press("Control+A");
        await this.page.keyboard.insertText(text);
    }

    async choose(locator, value) {
        await this.reach(locator);
        await this.page.keyboard.press("Home");

        while (await locator.inputValue() !== value) {
            const before = await locator.inputValue();

            await this.page.keyboard.press("ArrowDown");

            if (await locator.inputValue() === before) {
                throw new Error("no such choice: " + value);
            }
        }
    }

    async check(locator) {
        await this.reach(locator);
        await this.page.keyboard.press("Space");
    }

    async close() {
        await this.page.keyboard.press("Escape");
    }
}

module.exports = { Mouse, Keyboard };
