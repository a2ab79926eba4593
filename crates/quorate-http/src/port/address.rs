//! Addresses that ports listen on.

use std::net::SocketAddr;

/// Returns whether only this machine can reach an address.
pub fn is_loopback(addr: &str) -> bool {
    addr.parse::<SocketAddr>().is_ok_and(|addr| addr.ip().is_loopback())
}
