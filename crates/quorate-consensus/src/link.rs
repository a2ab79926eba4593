//! One call to a node, with a deadline that covers connecting.

use std::time::Duration;

use bytes::Bytes;
use quorate_env::{Instant, timeout_at};
use quorate_wire::{CallError, Dialer, NotSent};

/// A connection attempt with its handshake takes at most this long.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(2);

/// The connection to one node for one purpose, made when it is first used and made again when it broke.
#[derive(Clone, Debug)]
pub(crate) struct Link(pub(crate) Dialer);

impl Link {
    /// One call, connecting included.
    pub(crate) async fn call(&self, method: u16, body: Bytes, limit: Duration) -> Result<Bytes, CallError> {
        self.call_with(method, || body, limit).await
    }

    /// The same with a body that is made once there is a connection.
    pub(crate) async fn call_with(
        &self,
        method: u16,
        body: impl FnOnce() -> Bytes,
        limit: Duration,
    ) -> Result<Bytes, CallError> {
        let deadline = Instant::now() + limit;
        match timeout_at(deadline, self.0.client()).await {
            Ok(Ok(client)) => client.call(method, body(), deadline).await,
            Ok(Err(_)) => Err(CallError::NotSent(NotSent::Closed)),
            Err(_) => Err(CallError::NotSent(NotSent::TimedOut)),
        }
    }
}
