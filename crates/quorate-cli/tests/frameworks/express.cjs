// Express with sessions and limits of requests, all unmodified: node express.cjs URL URL. An application at each node.

const assert = require("node:assert/strict");
const { RedisStore } = require("connect-redis");
const express = require("express");
const session = require("express-session");
const Redis = require("ioredis");
const Limiter = require("ratelimiter");
const { RateLimiterRedisNonAtomic } = require("rate-limiter-flexible");
const { createClient } = require("redis");

const { steps } = require("./common.cjs");

const LIMIT = 3;
const HOUR = 3600;

// Rejects what exceeds a limit by the name in the request's query: of the last hour, and of an hour since the first one.
function limits(redis) {
    const points = new RateLimiterRedisNonAtomic({ storeClient: redis, points: LIMIT, duration: HOUR });
    const limited = (name) =>
        new Promise((done, failed) => {
            const limiter = new Limiter({ id: name, db: redis, max: LIMIT, duration: HOUR * 1000 });
            limiter.get((error, found) => (error ? failed(error) : done(found.remaining > 0)));
        });
    const hasPoint = (name) => points.consume(name).then(() => true, (refusal) => {
        if (refusal instanceof Error) throw refusal;
        return false;
    });
    return async (request, response, next) => {
        const found = [await limited(request.query.name), await hasPoint(request.query.name)];
        assert.equal(found[0], found[1]);
        if (found[0]) next();
        else response.sendStatus(429);
    };
}

async function serve(url) {
    const client = await createClient({ url }).on("error", console.error).connect();
    const app = express();
    app.use(session({ store: new RedisStore({ client }), secret: "s", resave: false, saveUninitialized: false }));
    app.get("/views", (request, response) => {
        request.session.views = (request.session.views ?? 0) + 1;
        response.send(`${request.session.views}`);
    });
    app.get("/limited", limits(new Redis(url)), (_, response) => response.sendStatus(200));
    const server = app.listen(0, "127.0.0.1");
    await new Promise((listens) => server.once("listening", listens));
    return `http://127.0.0.1:${server.address().port}`;
}

async function main() {
    const [first, second] = await Promise.all(process.argv.slice(2).map(serve));
    let done = 0;
    let headers = {};
    for (const step of steps()) {
        const viewed = await fetch(`${first}/views`, { headers });
        assert.equal(await viewed.text(), `${step + 1}`);
        headers = { cookie: viewed.headers.getSetCookie()[0]?.split(";")[0] ?? headers.cookie };
        for (let request = 0; request <= LIMIT; request++) {
            const answer = await fetch(`${first}/limited?name=${step}`);
            assert.equal(answer.status, request < LIMIT ? 200 : 429);
        }
        done++;
    }
    // After a write at its node, a read there sees all that was acknowledged before it at any node.
    assert.equal((await fetch(`${second}/limited?name=other`)).status, 200);
    assert.equal(await (await fetch(`${second}/views`, { headers })).text(), `${done + 1}`);
    for (let step = 0; step < done; step++) assert.equal((await fetch(`${second}/limited?name=${step}`)).status, 429);
    console.log("passed");
    process.exit(0);
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
