//! The clients that are run unmodified, and the command that runs each: a module of all that runs them, by `#[path]`.
//!
//! A script or program gets an URL and, if the server has users, a login. It prints `passed`, or fails and says why.
//! `.ci/clients` installs what it needs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The password of the user `app`, for clients that can't send a token.
pub const PASSWORD: &str = "correct horse";

/// A client with one of its protocols.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// A script in this directory, or a program that was built from it.
    pub name: &'static str,
    /// The package of the client; none for a program, which contains it.
    package: &'static str,
    /// The scheme of its URL without TLS.
    scheme: &'static str,
}

/// All runs.
pub const RUNS: [Run; 15] = [
    Run { name: "libsql.cjs", package: "@libsql/client", scheme: "http" },
    Run { name: "libsql.cjs", package: "@libsql/client", scheme: "ws" },
    Run { name: "serverless.cjs", package: "@tursodatabase/serverless", scheme: "http" },
    Run { name: "drizzle.cjs", package: "drizzle-orm", scheme: "http" },
    Run { name: "drizzle.cjs", package: "drizzle-orm", scheme: "ws" },
    Run { name: "kysely.cjs", package: "@libsql/kysely-libsql", scheme: "http" },
    Run { name: "rqlite.cjs", package: "rqlite-js", scheme: "http" },
    Run { name: "libsql.py", package: "libsql_client", scheme: "http" },
    Run { name: "libsql.py", package: "libsql_client", scheme: "ws" },
    Run { name: "orm.py", package: "sqlalchemy_libsql", scheme: "http" },
    Run { name: "rqlite.py", package: "pyrqlite", scheme: "http" },
    Run { name: "go/libsql", package: "", scheme: "http" },
    Run { name: "go/libsql", package: "", scheme: "ws" },
    Run { name: "go/rqlite", package: "", scheme: "http" },
    Run { name: "rust/debug/libsql-client", package: "", scheme: "http" },
];

/// The tables that the clients create, each before those to which it refers.
pub const TABLES: [&str; 9] = [
    "orders",
    "users",
    "blobs",
    "log",
    "foo",
    "migrated",
    "__drizzle_migrations",
    "kysely_migration",
    "kysely_migration_lock",
];

/// Where a client connects to.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// `host:port`.
    pub addr: &'a str,
    /// The certificates to trust, if the port has TLS.
    pub ca: Option<&'a Path>,
    /// A token of the user `app`, if there are users.
    pub token: Option<&'a str>,
}

impl Run {
    /// Returns the URL by which the client reaches a port.
    pub fn url(&self, target: Target<'_>) -> String {
        let secure = if target.ca.is_some() { "s" } else { "" };
        format!("{}{secure}://{}", self.scheme, target.addr)
    }

    /// Returns the command that runs the client, which is installed in this directory; `None` if it is not.
    pub fn command(&self, installed: &Path, target: Target<'_>) -> Option<Command> {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../quorate-http/tests/clients");
        let modules = installed.join("npm/node_modules");
        let mut command = if self.name.ends_with(".cjs") {
            modules.join(self.package).exists().then(|| Command::new("node"))?
        } else if self.name.ends_with(".py") {
            let mut versions = installed.join("python/lib").read_dir().ok()?.flatten();
            let has_package = |python: PathBuf| python.join("site-packages").join(self.package).exists();
            versions
                .any(|entry| has_package(entry.path()))
                .then(|| Command::new(installed.join("python/bin/python")))?
        } else {
            Some(installed.join(self.name)).filter(|program| program.exists()).map(Command::new)?
        };
        if !self.package.is_empty() {
            command.arg(scripts.join(self.name)).env("NODE_PATH", modules);
        }
        command.arg(self.url(target));
        // pyrqlite breaks the line of the header after 57 letters, so a token is too long for it.
        let by_password = format!("app:{PASSWORD}");
        command.args(target.token.map(|token| if self.name == "rqlite.py" { &by_password } else { token }));
        if let Some(ca) = target.ca {
            command.env("NODE_EXTRA_CA_CERTS", ca).env("SSL_CERT_FILE", ca);
        }
        Some(command)
    }
}
