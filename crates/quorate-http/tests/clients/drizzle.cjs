// Drizzle ORM on @libsql/client, over HTTP or WebSocket: node drizzle.cjs URL [TOKEN]
const assert = require("node:assert/strict");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { createClient } = require("@libsql/client");
const { and, asc, count, eq, gt, relations, sql } = require("drizzle-orm");
const { drizzle } = require("drizzle-orm/libsql");
const { migrate } = require("drizzle-orm/libsql/migrator");
const { blob, integer, real, sqliteTable, text } = require("drizzle-orm/sqlite-core");
const { again, fails, isAborted } = require("./common.cjs");

const [url, authToken] = process.argv.slice(2);

const users = sqliteTable("users", {
    id: integer().primaryKey(),
    name: text().notNull().unique(),
    score: real(),
    data: blob({ mode: "buffer" }),
    big: blob({ mode: "bigint" }),
    born: integer({ mode: "timestamp" }),
    isActive: integer("is_active", { mode: "boolean" }).default(true),
});
const orders = sqliteTable("orders", {
    id: integer().primaryKey({ autoIncrement: true }),
    userId: integer("user_id").notNull().references(() => users.id),
    item: text({ mode: "json" }),
});
const usersRelations = relations(users, ({ many }) => ({ orders: many(orders) }));
const ordersRelations = relations(orders, ({ one }) => ({
    user: one(users, { fields: [orders.userId], references: [users.id] }),
}));

// What `drizzle-kit generate` would write.
const STEPS = [
    ["0000_users", "CREATE TABLE `users` (`id` integer PRIMARY KEY, `name` text NOT NULL, `score` real, `data` blob,"
        + " `big` blob, `born` integer, `is_active` integer DEFAULT true);\n"
        + "--> statement-breakpoint\nCREATE UNIQUE INDEX `users_name_unique` ON `users` (`name`);"],
    ["0001_orders", "CREATE TABLE `orders` (`id` integer PRIMARY KEY AUTOINCREMENT NOT NULL, `user_id` integer NOT NULL,"
        + " `item` text, FOREIGN KEY (`user_id`) REFERENCES `users`(`id`));"],
];

async function migrateAll(db) {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "drizzle-"));
    try {
        fs.mkdirSync(path.join(folder, "meta"));
        for (const length of [1, 2, 2]) {
            const entries = STEPS.slice(0, length).map(([tag, text], idx) => {
                fs.writeFileSync(path.join(folder, `${tag}.sql`), text);
                return { idx, version: "6", when: 1700000000000 + idx, tag, breakpoints: true };
            });
            const journal = { version: "7", dialect: "sqlite", entries };
            fs.writeFileSync(path.join(folder, "meta/_journal.json"), JSON.stringify(journal));
            await migrate(db, { migrationsFolder: folder });
        }
    } finally {
        fs.rmSync(folder, { recursive: true });
    }
    assert.equal((await db.get(sql`SELECT count(*) AS n FROM __drizzle_migrations`)).n, 2);
}

async function main() {
    const client = createClient({ url, authToken });
    const db = drizzle(client, { schema: { users, orders, usersRelations, ordersRelations } });
    await migrateAll(db);

    const born = new Date("2001-02-03T04:05:06Z");
    const ann = { id: 1, name: "ann", score: -1.5, data: Buffer.from([0, 255]), big: 2n ** 70n, born, isActive: false };
    const done = await db.insert(users).values(ann);
    assert.deepEqual([done.rowsAffected, done.lastInsertRowid], [1, 1n]);
    assert.deepEqual(await db.select().from(users), [ann]);
    const [bob, cid] = await db.insert(users).values([{ name: "bob" }, { name: "cid", score: 3 }]).returning();
    assert.deepEqual([bob.id, bob.data, bob.isActive, cid.id], [2, null, true, 3]);
    await db.insert(users).values({ id: 3, name: "cid", score: 1 })
        .onConflictDoUpdate({ target: users.name, set: { score: sql`${users.score} + 1` } });
    const [updated] = await db.update(users).set({ born }).where(eq(users.name, "cid")).returning();
    assert.deepEqual([updated.score, updated.born], [4, born]);

    await db.insert(orders).values([{ userId: 1, item: { of: "tea" } }, { userId: 3, item: [1] }, { userId: 3, item: null }]);
    const joined = await db.select({ name: users.name, n: count(orders.id) }).from(users)
        .leftJoin(orders, eq(orders.userId, users.id)).where(and(gt(users.id, 1), eq(users.isActive, true)))
        .groupBy(users.id).orderBy(asc(users.name));
    assert.deepEqual(joined, [{ name: "bob", n: 0 }, { name: "cid", n: 2 }]);
    const related = await db.query.users.findMany({ columns: { name: true }, with: { orders: true }, limit: 1 });
    assert.deepEqual(related, [{ name: "ann", orders: [{ id: 1, userId: 1, item: { of: "tea" } }] }]);
    const named = db.select().from(users).where(eq(users.name, sql.placeholder("name"))).prepare();
    assert.equal((await named.get({ name: "bob" })).id, 2);

    await fails("SQLITE_CONSTRAINT_UNIQUE", () => db.insert(users).values({ name: "ann" }));
    await fails("SQLITE_CONSTRAINT_FOREIGNKEY", () => db.insert(orders).values({ userId: 99 }));
    await fails("SQLITE_ERROR", () => db.run(sql`SELECT * FROM missing`));

    const [, found] = await db.batch([db.delete(orders).where(eq(orders.id, 1)), db.select().from(orders)]);
    assert.equal(found.length, 2);
    await fails("SQLITE_CONSTRAINT_UNIQUE", () => db.batch([db.delete(orders), db.insert(users).values({ name: "bob" })]));
    assert.equal(await db.$count(orders), 2);

    const undone = new Error("undone");
    const isUndone = (error) => {
        if (isAborted(error)) throw error;
        return error === undone;
    };
    const dan = await again(() => db.transaction(async (tx) => {
        const [{ id }] = await tx.insert(users).values({ name: "dan" }).returning({ id: users.id });
        await tx.insert(orders).values({ userId: id });
        // A transaction in a transaction is a savepoint.
        await assert.rejects(tx.transaction(async (inner) => {
            await inner.delete(orders);
            throw undone;
        }), isUndone);
        await tx.transaction((inner) => inner.insert(orders).values({ userId: id }));
        assert.equal(await tx.$count(orders), 4);
        return id;
    }));
    assert.deepEqual([dan, await db.$count(orders)], [4, 4]);
    await assert.rejects(again(() => db.transaction(async (tx) => {
        await tx.delete(orders);
        throw undone;
    })), isUndone);
    assert.equal(await db.$count(orders), 4);
    client.close();
    console.log("passed");
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
