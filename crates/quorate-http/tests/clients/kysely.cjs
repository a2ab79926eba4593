// Kysely with @libsql/kysely-libsql, over HTTP or WebSocket: node kysely.cjs URL [TOKEN]
const assert = require("node:assert/strict");
const { LibsqlDialect } = require("@libsql/kysely-libsql");
const { Kysely, Migrator, sql } = require("kysely");
const { again, fails } = require("./common.cjs");

const [url, authToken] = process.argv.slice(2);

const MIGRATIONS = {
    "1_users": {
        up: (db) => db.schema.createTable("users").addColumn("id", "integer", (column) => column.primaryKey())
            .addColumn("name", "text", (column) => column.notNull().unique()).addColumn("score", "real")
            .addColumn("data", "blob").execute(),
        down: (db) => db.schema.dropTable("users").execute(),
    },
    "2_orders": {
        up: async (db) => {
            await db.schema.createTable("orders").addColumn("id", "integer", (column) => column.primaryKey())
                .addColumn("user_id", "integer", (column) => column.notNull().references("users.id")).execute();
            await db.schema.createIndex("orders_by_user").on("orders").column("user_id").execute();
        },
        down: (db) => db.schema.dropTable("orders").execute(),
    },
};

async function migrate(db) {
    const migrator = new Migrator({ db, provider: { getMigrations: async () => MIGRATIONS } });
    const count = async (run) => again(async () => {
        const { error, results } = await run();
        if (error !== undefined) throw error;
        return results.filter((result) => result.status === "Success").length;
    });
    assert.equal(await count(() => migrator.migrateToLatest()), 2);
    assert.equal(await count(() => migrator.migrateToLatest()), 0);
    assert.equal(await count(() => migrator.migrateDown()), 1);
    assert.equal(await count(() => migrator.migrateToLatest()), 1);
}

async function main() {
    const db = new Kysely({ dialect: new LibsqlDialect({ url, authToken }) });
    await migrate(db);
    const tables = await db.introspection.getTables();
    assert.deepEqual(tables.find(({ name }) => name === "orders").columns.map(({ name }) => name), ["id", "user_id"]);

    const ann = await db.insertInto("users").values({ name: "ann", score: -1.5, data: new Uint8Array([0, 255]) })
        .executeTakeFirstOrThrow();
    assert.deepEqual([ann.insertId, ann.numInsertedOrUpdatedRows], [1n, 1n]);
    const row = await db.selectFrom("users").selectAll().where("name", "=", "ann").executeTakeFirstOrThrow();
    assert.deepEqual([row.id, row.score, [...new Uint8Array(row.data)]], [1, -1.5, [0, 255]]);
    const added = await db.insertInto("users").values([{ name: "bob" }, { name: "cid", score: 3 }]).returning(["id", "score"])
        .execute();
    assert.deepEqual(added.map(({ id, score }) => [id, score]), [[2, null], [3, 3]]);
    const updated = await db.updateTable("users").set((eb) => ({ score: eb("score", "+", 1) })).where("id", "=", 3)
        .returning("score").executeTakeFirstOrThrow();
    assert.equal(updated.score, 4);

    await db.insertInto("orders").values([{ user_id: 1 }, { user_id: 3 }, { user_id: 3 }]).execute();
    const joined = await db.selectFrom("users").leftJoin("orders", "orders.user_id", "users.id")
        .select(["users.name", (eb) => eb.fn.count("orders.id").as("n")]).where("users.id", ">", 1).groupBy("users.id")
        .orderBy("users.name").execute();
    assert.deepEqual(joined.map(({ name, n }) => [name, n]), [["bob", 0], ["cid", 2]]);

    await fails("SQLITE_CONSTRAINT_UNIQUE", () => db.insertInto("users").values({ name: "ann" }).execute());
    await fails("SQLITE_CONSTRAINT_FOREIGNKEY", () => db.insertInto("orders").values({ user_id: 99 }).execute());
    await fails("SQLITE_ERROR", () => sql`SELECT * FROM missing`.execute(db));

    const count = async (on) => (await on.selectFrom("orders").select(sql`count(*)`.as("n")).executeTakeFirstOrThrow()).n;
    await again(() => db.transaction().execute(async (tx) => {
        const dan = await tx.insertInto("users").values({ name: "dan" }).returning("id").executeTakeFirstOrThrow();
        await tx.insertInto("orders").values({ user_id: dan.id }).execute();
        assert.equal(await count(tx), 4);
    }));
    assert.equal(await count(db), 4);
    const undone = new Error("undone");
    await assert.rejects(again(() => db.transaction().execute(async (tx) => {
        await tx.deleteFrom("orders").execute();
        throw undone;
    })), (error) => error === undone);
    assert.equal(await count(db), 4);
    const gone = await db.deleteFrom("orders").where("user_id", "=", 3).executeTakeFirstOrThrow();
    assert.equal(gone.numDeletedRows, 2n);
    await db.destroy();
    console.log("passed");
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
