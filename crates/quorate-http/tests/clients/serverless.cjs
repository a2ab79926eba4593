// @tursodatabase/serverless: node serverless.cjs URL [TOKEN]
const assert = require("node:assert/strict");
const { connect } = require("@tursodatabase/serverless");
const { again, fails } = require("./common.cjs");

const [url, authToken] = process.argv.slice(2);

async function main() {
    const db = connect({ url, authToken });
    await db.exec("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT UNIQUE); CREATE TABLE log (x)");

    const insert = await db.prepare("INSERT INTO users (name) VALUES (?)");
    const ann = await insert.run(["ann"]);
    assert.deepEqual([ann.changes, Number(ann.lastInsertRowid)], [1, 1]);
    await fails("SQLITE_CONSTRAINT_UNIQUE", () => insert.run(["ann"]));

    const select = await db.prepare("SELECT id, name FROM users WHERE name = :name");
    const row = await select.get({ name: "ann" });
    assert.deepEqual([row.id, row.name], [1, "ann"]);
    assert.deepEqual(select.columns().map((column) => column.name), ["id", "name"]);
    const returning = await db.prepare("INSERT INTO users (name) VALUES (?) RETURNING id, name AS n");
    assert.deepEqual(returning.columns().map((column) => column.name), ["id", "n"]);
    assert.equal((await (await db.prepare("SELECT 1 UNION SELECT 2")).all()).length, 2);

    await db.batch(["INSERT INTO log VALUES (1)", "INSERT INTO log VALUES (2)"], "immediate");
    const both = ["INSERT INTO log VALUES (3)", "INSERT INTO users (name) VALUES ('ann')"];
    await fails("SQLITE_CONSTRAINT_UNIQUE", () => db.batch(both, "immediate"));
    const count = async (table) => Object.values(await (await db.prepare(`SELECT count(*) AS n FROM ${table}`)).get())[0];
    assert.equal(await count("log"), 2);

    const twice = db.transaction(async (name) => {
        await (await db.prepare("INSERT INTO users (name) VALUES (?)")).run([name]);
        await (await db.prepare("INSERT INTO log VALUES (?)")).run([9]);
        assert.equal(await count("log"), 3);
    });
    await again(() => twice("bob"));
    await again(() => fails("SQLITE_CONSTRAINT_UNIQUE", () => twice("ann")));
    assert.deepEqual([await count("users"), await count("log")], [2, 3]);

    const blob = await (await db.prepare("SELECT ? AS b, ? AS big, ? AS none")).get([Buffer.from([0, 255]), 2n ** 40n, null]);
    assert.deepEqual([[...blob.b], blob.big, blob.none], [[0, 255], 2 ** 40, null]);
    await db.close();
    console.log("passed");
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
