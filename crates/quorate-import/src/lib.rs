//! Bulk loading: the rows of a CSV, TSV, NDJSON or SQLite file go into one table of a cluster.
//!
//! [`run`] is the whole interface: it takes a handle to the cluster and [`Options`], and returns a [`Summary`].
//! `quorate import` and the shell's `.import` call it; `docs/import.md` describes it for users. Messages of [`Error`]
//! name options as `quorate import` spells them.
//!
//! A thread reads the file and packs its rows into chunks (`chunk`). Several chunks are written at a time, each as one
//! atomic entry (`load`), and the entry itself records that its chunk is written (`progress`).
//!
//! ```no_run
//! # async fn f() -> Result<(), Box<dyn std::error::Error>> {
//! use quorate::{Client, ClientConfig, SecretSource};
//! use quorate_import::Options;
//!
//! let secret = SecretSource::File("secret".into());
//! let client = Client::connect(ClientConfig::new(["10.0.0.1:7001"], secret)).await?;
//! let options = Options::new("flights.csv", "flights");
//! let summary = quorate_import::run(&client.sql(), &options, &mut std::io::stdout()).await?;
//! assert_eq!(summary.bad, 0);
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//!
//! - However often an import is interrupted and run again, each row of the file is inserted once.
//! - No bytes of a file make a reader panic: a bad line is reported, and the next line is read.
//! - Memory is bounded, whatever the size of the file: one record, one sample, and a few chunks.

#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "part of a binary: it reads files of the machine, not of the simulated world"
)]

mod bad;
mod bar;
mod chunk;
mod columns;
mod csv;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod identity;
mod import;
mod infer;
mod line;
mod load;
mod ndjson;
mod number;
mod options;
mod progress;
mod source;
mod sqlite;
mod summary;
mod window;

pub use error::{Error, Result};
pub use import::run;
pub use options::{Format, OnConflict, Options, delimiter};
pub use summary::Summary;
