// What the scripts for node share.
const assert = require("node:assert/strict");

// How often a transaction that the server has aborted is run.
const RUNS_MAX = 10;

// Drizzle keeps the error of the client as the cause of its own.
const codeOf = (error) => error.code ?? error.cause?.code;
const isAborted = (error) => codeOf(error) === "TRANSACTION_ABORTED";

// Runs a transaction, and runs it again while the server says that it was aborted, because its leader was lost.
async function again(run) {
    for (let left = RUNS_MAX; ; left--) {
        try {
            return await run();
        } catch (error) {
            if (left === 1 || !isAborted(error)) throw error;
        }
    }
}

// Checks that a call fails with this code. That its transaction was aborted is left to `again`.
async function fails(code, run) {
    await assert.rejects(run, (error) => {
        if (isAborted(error)) throw error;
        assert.equal(codeOf(error), code, error.message);
        return true;
    });
}

module.exports = { again, fails, isAborted };
