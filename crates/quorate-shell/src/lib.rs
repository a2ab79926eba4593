//! The shell of `quorate sql`: runs statements and dot commands, from scripts or from a prompt, and prints results.
//!
//! The caller connects a [`Connection`], begins a [`Shell`] with it, and runs [`Script`]s or the prompt. What other
//! commands print shares the module [`mod@format`] and the writer [`Stdout`].
//!
//! ```no_run
//! # async fn f() -> quorate_shell::Result<()> {
//! use quorate::{ClientConfig, SecretSource};
//! use quorate_shell::{Connection, Options, Script, Shell};
//!
//! let config = ClientConfig::new(["10.0.0.1:7001"], SecretSource::File("secret".into()));
//! let client = Connection::connect(config, None).await?;
//! let mut shell = Shell::new(client.clone(), Options::default());
//! let outcome = shell.run_scripts(vec![Script::text("SELECT count(*) FROM users")]).await;
//! client.close().await;
//! # outcome
//! # }
//! ```
//!
//! # Invariants
//!
//! - Text from the database never moves the cursor of a terminal or changes its colours.
//! - Every statement and command may be dropped while it runs. If a write was sent by then, the shell says that it may
//!   have been done.
//! - Results of any size are printed in bounded memory.

#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "part of a binary, which runs on the real machine, never in the simulator"
)]

mod catalog;
mod client;
mod command;
mod complete;
mod dump;
mod edit;
mod error;
pub mod format;
#[doc(hidden)]
pub mod fuzzing;
mod hint;
mod import;
pub mod keys;
mod keywords;
mod kind;
mod live;
pub mod locks;
mod names;
mod output;
mod pager;
mod parameters;
mod plan;
mod program;
mod prompt;
mod run;
mod script;
mod shell;
mod statements;
mod transaction;
mod values;

pub use client::{ACCEPT_MAX, Connection, Level};
pub use error::{Error, Result};
pub use output::Stdout;
pub use script::Script;
pub use shell::{Options, Shell};
