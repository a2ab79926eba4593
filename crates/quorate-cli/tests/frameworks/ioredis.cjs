// ioredis, unmodified, at a node that is killed and started again: node ioredis.cjs URL. It sends again what broke; what
// must not be done twice has a name, or is not sent again.

const assert = require("node:assert/strict");
const Redis = require("ioredis");

const { steps } = require("./common.cjs");

const url = process.argv[2];

function connect(options) {
    return new Redis(url, options).on("error", (error) => console.error(error.message));
}

async function main() {
    const again = connect({ maxRetriesPerRequest: null });
    const once = connect({ maxRetriesPerRequest: 0, autoResendUnfulfilledCommands: false });
    let [done, counted, unknown] = [0, 0, 0];
    for (const step of steps()) {
        assert.equal(await again.set(`step:${step}`, step), "OK");
        assert.equal(await again.call("Q.ID", `step-${step}`, "INCR", "steps"), step + 1);
        await once.incr("once").then(() => counted++, () => unknown++);
        done++;
    }
    const numbers = [...Array(done).keys()];
    assert.deepEqual(await again.mget(numbers.map((step) => `step:${step}`)), numbers.map(String));
    assert.equal(await again.get("steps"), `${done}`);
    const count = Number(await again.get("once"));
    assert.ok(counted <= count && count <= counted + unknown, `${counted} counted, ${unknown} unknown: ${count}`);
    console.log("passed");
    process.exit(0);
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
