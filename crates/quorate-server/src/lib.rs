//! Quorate as a server: a [`quorate::Node`] and what stands around it.
//!
//! # Principal types
//!
//! - [`ServerConfig`]: what a server is told, by a file, the environment, or in code.
//!
//! # Invariants
//!
//! - Holds no state of its own: whatever is lost with the process, the node's directory has.

#![forbid(unsafe_code)]

pub mod config;

pub use config::{LogConfig, LogFormat, LogLevel, ServerConfig};
