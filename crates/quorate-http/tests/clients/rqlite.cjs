// rqlite-js: node rqlite.cjs URL [TOKEN]
const assert = require("node:assert/strict");
const { DataApiClient, StatusApiClient } = require("rqlite-js");

const [url, token] = process.argv.slice(2);
// It sends a name and a password; the server takes a token as a password.
const options = token ? { authentication: { username: "anyone", password: token } } : {};

async function main() {
    const client = new DataApiClient(url, options);
    let results = await client.execute("CREATE TABLE foo (id INTEGER PRIMARY KEY, name TEXT UNIQUE)");
    assert.equal(results.hasError(), false);
    results = await client.execute([["INSERT INTO foo (name) VALUES (?)", "fiona"], ["INSERT INTO foo (name) VALUES (:n)", { n: "bob" }]]);
    assert.equal(results.get(1).getLastInsertId(), 2);
    assert.equal(results.get(0).getRowsAffected(), 1);

    // A node that does not lead may not have applied the write yet.
    const levels = token ? [] : ["none"];
    for (const level of [...levels, "weak", "linearizable", "strong"]) {
        results = await client.query("SELECT name FROM foo ORDER BY id", { level });
        assert.deepEqual(results.toArray(), [{ name: "fiona" }, { name: "bob" }], level);
    }
    results = await client.query([["SELECT id FROM foo WHERE name = ?", "bob"]]);
    assert.equal(results.get(0).get("id"), 2);

    results = await client.execute(["INSERT INTO foo (name) VALUES ('cid')", "INSERT INTO foo (name) VALUES ('bob')"], { transaction: true });
    assert.equal(results.hasError(), true);
    assert.match(results.getFirstError().message, /UNIQUE constraint failed/);
    results = await client.query("SELECT count(*) AS n FROM foo");
    assert.equal(results.get(0).get("n"), 2);

    // The port of a node shows its own page for operators there.
    if (!token) {
        const status = new StatusApiClient(url);
        assert.equal((await status.status()).body.store.raft.state, "Leader");
    }
    console.log("passed");
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
