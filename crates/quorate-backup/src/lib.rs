//! Backups of Quorate in object stores: S3 and what is compatible with it, Google Cloud Storage, Azure Blob Storage,
//! or a directory.
//!
//! A [`Location`](store::Location) names a place in a store, and a [`Store`](store::Store) puts objects there and gets
//! them back. [`backups`] makes, lists, prunes and fetches backups of a cluster; each is one object, compressed and, if
//! asked, encrypted. [`schedule`] makes them at set times from a running node; [`rehearsals`] restores from an archive
//! at set times. `docs/backups.md` says what this
//! promises.
//!
//! ```no_run
//! # async fn f(client: quorate::Client) -> Result<(), quorate_backup::Error> {
//! use quorate_backup::Encryption;
//! use quorate_backup::backups::{self, Options};
//! use quorate_backup::store::{Location, Store};
//!
//! let location: Location = "s3://my-bucket/backups?region=eu-central-1".parse()?;
//! let store = Store::open(&location, None)?;
//! let recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p";
//! let options = Options { encryption: Encryption::to([recipient])?, ..Options::default() };
//! let made = backups::make(&client.admin(), &store, &options).await?;
//! println!("{}: {} bytes, up to {}", made.name, made.bytes, made.name.position);
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//!
//! - Memory does not grow with the size of a database, up to [`store::OBJECT_BYTES_USUAL`].
//! - Credentials, passphrases and identities are in no error and in no `Debug`.
//! - A constant bounds each request, each retry and each wait.
//!
//! Requests to stores go through the crate `object_store`, not through an [`Env`](quorate_env::Env), so the simulator
//! does not run this crate. Its futures need a runtime of tokio with I/O and time.

#![forbid(unsafe_code)]

pub mod backups;
mod crypt;
mod error;
pub mod rehearsals;
pub mod schedule;
pub mod states;
pub mod store;

pub use crypt::{Encryption, Keys};
pub use error::Error;
