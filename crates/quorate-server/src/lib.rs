//! Quorate as a server: its configuration ([`ServerConfig`], from a file, the environment, or code), and the interfaces
//! through which operators and their tools observe a running node, and programs use it.
//!
//! [`http::serve`] opens an HTTP port that answers `/health`, `/ready`, `/status` and `/metrics` (`docs/http.md`). The
//! module [`status`] defines the JSON, and `docs/metrics.md` lists the metrics. With the feature `otlp`, the module of
//! that name sends the same metrics, and traces of writes, to an OpenTelemetry collector.
//!
//! ```no_run
//! # async fn f(config: quorate::Config) -> Result<(), Box<dyn std::error::Error>> {
//! // The port is opened before the node starts, because the first start may have to wait for other nodes.
//! let server = quorate_server::http::serve("0.0.0.0:7002", None).await?;
//! let node = quorate::Node::start(config).await?;
//! server.show(&node);
//! // ...
//! node.stop().await;
//! server.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//!
//! - This crate holds no state: each answer is read from the node when it is requested.
//! - It does not keep a node alive and can't block it, because each interface runs on a thread of its own.

#![forbid(unsafe_code)]

mod ask;
pub mod config;
pub mod http;
pub mod metrics;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod resp;
pub mod status;

pub use config::{ArchiveConfig, BackupConfig, LogConfig, LogFormat, LogLevel, ServerConfig};
