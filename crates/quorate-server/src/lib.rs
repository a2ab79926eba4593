//! Quorate as a server: what it is told ([`ServerConfig`], from a file, the environment, or in code), and the front
//! doors of its running node beside the one for SQL: what operators and their tools look at.
//!
//! [`http::serve`] opens an HTTP port that answers `/health`, `/ready`, `/status` and `/metrics` (`docs/http.md`); the
//! shapes of the JSON are in [`status`], the names of the metrics in `docs/metrics.md`. With the feature `otlp`, the
//! module of that name sends the same metrics, and traces of writes, to an OpenTelemetry collector.
//!
//! ```no_run
//! # async fn f(config: quorate::Config) -> Result<(), Box<dyn std::error::Error>> {
//! // The port is open before the node is: the first start may have to wait for other nodes.
//! let server = quorate_server::http::serve("0.0.0.0:7002").await?;
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
//! - Nothing here holds state: what is shown is read from the node when it is asked for.
//! - Nothing here keeps a node alive, or can keep it from working: it runs on a thread of its own.
//! - Whoever can connect may read all of this. It holds no data of the database and no secrets.

#![forbid(unsafe_code)]

mod ask;
pub mod config;
pub mod http;
mod metrics;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod status;

pub use config::{LogConfig, LogFormat, LogLevel, ServerConfig};
