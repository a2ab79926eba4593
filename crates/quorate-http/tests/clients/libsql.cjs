// @libsql/client over HTTP or WebSocket: node libsql.cjs URL [TOKEN]
const assert = require("node:assert/strict");
const { createClient } = require("@libsql/client");
const { again, fails } = require("./common.cjs");

const [url, authToken] = process.argv.slice(2);

// Runs a transaction, and closes it.
function transact(client, mode, run) {
    return again(async () => {
        const transaction = await client.transaction(mode);
        try {
            await run(transaction);
        } finally {
            transaction.close();
        }
    });
}

async function main() {
    if (authToken !== undefined) {
        const stranger = createClient({ url, authToken: "quorate_0" });
        await assert.rejects(() => stranger.execute("SELECT 1"));
        stranger.close();
    }
    const client = createClient({ url, authToken, intMode: "bigint" });
    assert.equal(client.protocol, url.startsWith("ws") ? "ws" : "http");
    await client.executeMultiple("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT UNIQUE); CREATE TABLE blobs (b);");

    const ann = await client.execute({ sql: "INSERT INTO users (name) VALUES (?)", args: ["ann"] });
    assert.deepEqual([ann.rowsAffected, ann.lastInsertRowid], [1, 1n]);
    const named = await client.execute({ sql: "SELECT id, name FROM users WHERE name = :name", args: { name: "ann" } });
    assert.deepEqual([named.columns, named.columnTypes], [["id", "name"], ["INTEGER", "TEXT"]]);
    assert.equal(named.rows[0].id, 1n);

    const values = [9223372036854775807n, -1.5, "\u{1F600}", null, new Uint8Array([0, 255])];
    const echoed = await client.execute({ sql: "SELECT ?, ?, ?, ?, ?", args: values });
    assert.equal(echoed.rows[0][0], values[0]);
    assert.deepEqual([echoed.rows[0][1], echoed.rows[0][2], echoed.rows[0][3]], [-1.5, "\u{1F600}", null]);
    assert.deepEqual(new Uint8Array(echoed.rows[0][4]), values[4]);

    await fails("SQLITE_CONSTRAINT_UNIQUE", () => client.execute("INSERT INTO users (name) VALUES ('ann')"));
    await fails("SQLITE_ERROR", () => client.execute("SELECT * FROM missing"));

    const batch = await client.batch(
        ["INSERT INTO users (name) VALUES ('bob')", { sql: "UPDATE users SET name = ? WHERE id = ?", args: ["cid", 1] }],
        "write",
    );
    assert.deepEqual(batch.map((result) => result.rowsAffected), [1, 1]);
    const reads = await client.batch(["SELECT count(*) FROM users", "SELECT name FROM users ORDER BY id"], "read");
    assert.equal(reads[0].rows[0][0], 2n);
    assert.equal(reads[1].rows[0].name, "cid");
    await assert.rejects(
        () => client.batch(["INSERT INTO users (name) VALUES ('dan')", "INSERT INTO users (name) VALUES ('cid')"]),
        (error) => error.code === "SQLITE_CONSTRAINT_UNIQUE" && error.statementIndex === 1,
    );
    assert.equal((await client.execute("SELECT count(*) FROM users")).rows[0][0], 2n);

    await transact(client, "write", async (kept) => {
        const inserted = await kept.execute("INSERT INTO users (name) VALUES ('eve') RETURNING id");
        assert.equal(inserted.rows[0].id, 3n);
        await fails("SQLITE_CONSTRAINT_UNIQUE", () => kept.execute("INSERT INTO users (name) VALUES ('eve')"));
        assert.equal((await kept.execute("SELECT count(*) FROM users")).rows[0][0], 3n);
        await kept.commit();
    });
    await transact(client, "write", async (dropped) => {
        await dropped.execute("DELETE FROM users");
        await dropped.rollback();
    });
    await transact(client, "deferred", (closed) => closed.batch(["DELETE FROM users", "DELETE FROM blobs"]));
    assert.equal((await client.execute("SELECT count(*) FROM users")).rows[0][0], 3n);

    await client.migrate(["CREATE TABLE migrated (a)", "INSERT INTO migrated VALUES (1)"]);
    assert.equal((await client.execute("SELECT count(*) FROM migrated")).rows[0][0], 1n);

    const many = Array.from({ length: 40 }, (_, n) => client.execute({ sql: "INSERT INTO blobs VALUES (?)", args: [n] }));
    await Promise.all(many);
    // The client sends numbers as floats.
    assert.equal((await client.execute("SELECT sum(b) FROM blobs")).rows[0][0], 780);
    client.close();
    console.log("passed");
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
