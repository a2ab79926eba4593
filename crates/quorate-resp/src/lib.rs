//! The door of Quorate for the clients of Redis: RESP 2 and 3.
//!
//! # Invariants
//!
//! - Nothing here does I/O: bytes come in, and work for the store and replies come out.
//! - No input causes a panic. What is held for a client is limited by named constants.

#![forbid(unsafe_code)]

mod frame;
pub mod limits;
mod number;
mod request;

pub use frame::{Frame, Protocol};
pub use request::{ProtocolError, Reader};
