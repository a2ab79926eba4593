//! Calls to a node, with a deadline that includes connecting.

use std::time::Duration;

use bytes::Bytes;
use quorate_env::{Instant, timeout_at};
use quorate_wire::{CallError, Dialer, NotSent};

/// The connection to one node for one purpose. It is made at its first use, and again after it broke.
#[derive(Clone, Debug)]
pub(crate) struct Link(pub(crate) Dialer);

impl Link {
    /// Makes a call, and connects first if necessary.
    pub(crate) async fn call(&self, method: u16, body: Bytes, limit: Duration) -> Result<Bytes, CallError> {
        self.call_with(method, || body, limit).await
    }

    /// Makes a call whose body is computed once there is a connection.
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
