// ioredis, unmodified: node ioredis.cjs URL. Prints `counting` before its last step, and `passed` at the end.

const assert = require("node:assert/strict");
const Redis = require("ioredis");

const MILLISECONDS = 5000;
const url = process.argv[2];

async function allTypes(client) {
    await client.flushdb();
    assert.equal(await client.set("s", "v", "EX", 100), "OK");
    assert.equal(await client.get("s"), "v");
    assert.equal(await client.incrby("n", 5), 5);
    assert.equal(await client.hset("h", { a: "1", b: "2" }), 2);
    assert.deepEqual(await client.hgetall("h"), { a: "1", b: "2" });
    assert.equal(await client.rpush("l", "x", "y", "z"), 3);
    assert.deepEqual(await client.lrange("l", 0, -1), ["x", "y", "z"]);
    assert.equal(await client.sadd("set", "m", "n"), 2);
    assert.deepEqual((await client.smembers("set")).sort(), ["m", "n"]);
    assert.equal(await client.zadd("z", 1, "one", 2, "two"), 2);
    assert.deepEqual(await client.zrange("z", 0, -1, "WITHSCORES"), ["one", "1", "two", "2"]);
    const bytes = Buffer.from([0, 255, 13, 10]);
    await client.set(bytes, bytes);
    assert.deepEqual(await client.getBuffer(bytes), bytes);
    await assert.rejects(client.lpush("s", "x"), /WRONGTYPE/);
}

async function manyAtOnce(client) {
    const pipeline = client.pipeline();
    for (let number = 0; number < 100; number++) pipeline.set(`p${number}`, number).get(`p${number}`);
    const found = await pipeline.exec();
    assert.deepEqual(found[199], [null, "99"]);
    const transaction = await client.multi().incr("t").incr("t").lpush("n", "x").get("t").exec();
    assert.deepEqual([transaction[0], transaction[1], transaction[3]], [[null, 1], [null, 2], [null, "2"]]);
    assert.match(transaction[2][0].message, /WRONGTYPE/);
}

async function blocking(client, other) {
    await client.del("queue");
    assert.equal(await client.blpop("queue", 0.05), null);
    const waiting = other.blpop("none", "queue", 30);
    await client.rpush("queue", "item");
    assert.deepEqual(await waiting, ["queue", "item"]);
}

// Counts while the leader is killed. Nothing is sent twice, so nothing may count twice.
async function counting(client) {
    console.log("counting");
    let [done, unknown] = [0, 0];
    for (const end = Date.now() + MILLISECONDS; Date.now() < end; ) {
        await client.incr("count").then(() => done++, () => unknown++);
    }
    const count = Number(await client.get("count"));
    assert.ok(done <= count && count <= done + unknown, `${done} are done, ${unknown} unknown: ${count}`);
}

async function main() {
    const [client, other] = [new Redis(url), new Redis(url)];
    await allTypes(client);
    await manyAtOnce(client);
    await blocking(client, other);
    await client.del("count");
    await counting(new Redis(url, { maxRetriesPerRequest: 0, autoResendUnfulfilledCommands: false }));
    console.log("passed");
    process.exit(0);
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
