// The steps that each program goes on with while the test kills a node.

// So many before the node is killed, and so many after it is there again.
const STEPS = 10;

// Numbers steps. Prints `working` after the first ones, and ends some steps after the end of standard input.
function* steps() {
    let ended = false;
    process.stdin.on("end", () => (ended = true)).resume();
    for (let number = 0, after = 0; after < STEPS; number++) {
        if (ended) after++;
        yield number;
        if (number + 1 === STEPS) console.log("working");
    }
}

module.exports = { steps };
