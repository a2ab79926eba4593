//! The limits of a statement of `quorate sql`; and stalled readers do not block other readers.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::servers::Servers;
use support::{Dev, QUORATE, ended_with, failed, quorate, succeeded, wait_until};

/// Never ends by itself.
const ENDLESS: &str = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";

/// Returns rows for ever.
const ENDLESS_ROWS: &str =
    "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT i, printf('%.*c', 4000, 'x') FROM n";

/// The default number of snapshots that a node keeps.
const SNAPSHOTS: usize = 16;

#[test]
fn a_query_ends_at_the_limit_of_node_or_client() {
    let mut servers = Servers::init(1);
    servers.configure("a", "sql.query_timeout", "\"700 ms\"");
    servers.serve("a");
    servers.value("SELECT 1");
    let config = servers.config("a");
    let sql = |options: &[&str]| {
        let mut output = None;
        // The timeout is also that of the connection, which a busy machine may not make in time.
        wait_until("a connection", || {
            let begun = Instant::now();
            let ran = quorate(&[&["sql", "--config", config.to_str().unwrap()], options, &[ENDLESS]].concat());
            assert!(begun.elapsed() < Duration::from_secs(30), "{ran:?}");
            let is_connected = ran.status.code() != Some(3);
            output = Some(ran);
            is_connected
        });
        failed(&output.unwrap())
    };
    for options in [&[][..], &["--timeout", "50"]] {
        let error = sql(options);
        assert!(
            error.contains("did not end within 700ms") && error.contains("node's 'sql.query_timeout'\n"),
            "{error}"
        );
    }
    let error = sql(&["--timeout", "0.2"]);
    // Either the node, which gets the same deadline, or the client may end the query first.
    assert!(error.contains("--timeout") && !error.ends_with("node's 'sql.query_timeout'\n"), "{error}");
    for wrong in ["0", "-1", "soon", "1e9", "NaN"] {
        let output = quorate(&["sql", &format!("--timeout={wrong}"), "SELECT 1"]);
        assert!(ended_with(2, &output).contains("a number of seconds from 0.001 to 86400"), "{wrong}: {output:?}");
    }
}

#[test]
fn a_long_statement_fails_with_its_length_and_limit() {
    let dev = Dev::start(1);
    for statement in ["SELECT", "CREATE TABLE t AS SELECT"] {
        let error = failed(&dev.script(&[], &format!("{statement} '{}';", "x".repeat(1 << 20))));
        let length = statement.len() + (1 << 20) + 3;
        assert!(error.contains(&format!("{length} bytes of a statement: the limit is 1048576; ")), "{error}");
    }
    let error = failed(&dev.sql(&[], "SELECT zeroblob(17000000)"));
    assert!(error.contains("too big: the limit of a value and of a row is 16777216 bytes; "), "{error}");
}

#[test]
fn a_budget_bounds_the_steps_of_a_write() {
    let dev = Dev::start(1);
    let rows = |count: u32| {
        let all = format!("WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {count})");
        format!("CREATE TABLE t{count} AS {all} SELECT sum(i) AS s FROM n")
    };
    let error = failed(&dev.sql(&["--budget", "1000"], &rows(1000)));
    assert!(
        error.contains("needs more steps than its budget has; do less at once, or ask for more (--budget)"),
        "{error}"
    );
    succeeded(&dev.sql(&[], &rows(1000)));
    failed(&dev.sql(&[], &rows(4_000_000)));
    succeeded(&dev.sql(&["--budget", "1000000000"], &rows(4_000_000)));
}

/// A client that does not read its large result.
struct Stalled(Child);

impl Stalled {
    fn start(dev: &Dev) -> Self {
        let mut command = Command::new(QUORATE);
        command.args(dev.sql_options(&["--level", "local", "--format", "list", ENDLESS_ROWS]));
        Self(command.stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null()).spawn().unwrap())
    }

    /// Waits until the first bytes have arrived.
    fn begun(mut self) -> Self {
        let mut bytes = [0; 16];
        self.0.stdout.as_mut().unwrap().read_exact(&mut bytes).unwrap();
        self
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn stalled_readers_keep_nobody_else_from_reading() {
    let dev = Dev::start(1);
    let stalled: Vec<Stalled> = (0..SNAPSHOTS).map(|_| Stalled::start(&dev).begun()).collect();
    let _waiting = Stalled::start(&dev);
    let begun = Instant::now();
    assert_eq!(dev.value(None, "SELECT 6 * 7"), "42");
    succeeded(&dev.sql(&[], ".tables"));
    assert!(begun.elapsed() < Duration::from_secs(30));
    drop(stalled);
}

#[test]
fn a_result_that_is_too_large_is_streamed() {
    let dev = Dev::start(1);
    let rows = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 120000)
                SELECT i, 'a text that makes the row larger than it would be' FROM n";
    let printed = succeeded(&dev.sql(&["--format", "csv"], rows));
    assert_eq!(printed.lines().count(), 120_001);
    assert!(printed.lines().last().unwrap().starts_with("120000,"));
}
