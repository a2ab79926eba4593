//! A port: a listener and its connections, on a thread of its own, so that it answers regardless of what the rest of
//! the process does.
//!
//! Invariant: a new connection always gets a place. If all are taken, the address with the most loses the one that has
//! been idle longest ([`Places`]).

use std::future::{Future, pending};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use tokio::sync::oneshot;

use super::{Order, Orders, Place, Places};
use crate::Env;
use crate::net::{BoxStream, Listener};
use crate::task::timeout;

/// The pause after a listener failed to accept a connection, for example because no file descriptor was left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What is served on a port. All connections share clones of it.
pub trait Service: Clone + Send + Sync + 'static {
    /// Serves a connection from an address (`host:port`) until it ends or has lost its place.
    fn serve(&self, stream: BoxStream, order: Order, place: Place, from: &str) -> impl Future<Output = ()> + Send;

    /// Runs beside the connections, until the port is closed. It never returns.
    fn beside(self) -> impl Future<Output = ()> + Send {
        pending()
    }
}

/// What is known of a port before it is opened.
#[derive(Clone, Copy, Debug)]
pub struct PortOptions {
    /// The name of its thread.
    pub thread: &'static str,
    /// The most connections.
    pub connections_max: usize,
    /// The time in which connections end once the port is stopped.
    pub stop_time_max: Duration,
    /// Reports that a connection could not be accepted.
    pub failed: fn(io::Error),
}

/// Why a port could not be opened.
#[derive(Debug)]
pub enum OpenError<E> {
    /// The address can't be used.
    Listen(io::Error),
    /// The operating system could not start a thread.
    Thread(io::Error),
    /// It is not served there.
    Refused(E),
}

/// An open port. Dropping it closes it at once, with all its connections.
#[derive(Debug)]
pub struct Port {
    addr: String,
    orders: Orders,
    /// Its sender sends nothing. It is dropped when the port's thread has ended.
    ended: oneshot::Receiver<()>,
}

impl Port {
    /// Opens a port on `host:port`; port 0 means any free one. `service` makes what is served from the address that was
    /// bound, or refuses to serve there. May be called from any executor.
    ///
    /// # Errors
    ///
    /// If the address is in use, or does not belong to this machine, or if `service` refuses.
    pub async fn open<S: Service, E: Send + 'static>(
        env: &Env,
        listen: &str,
        options: PortOptions,
        service: impl FnOnce(&str) -> Result<S, E> + Send + 'static,
    ) -> Result<Self, OpenError<E>> {
        let (orders, order) = Orders::new();
        let (started, starting) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        let (addr, env_of_port) = (listen.to_owned(), env.clone());
        let root = async move {
            let opened = match env_of_port.net().listen(&addr).await {
                Ok(listener) => service(&listener.local_addr()).map(|service| (listener, service)),
                Err(error) => {
                    drop(started.send(Err(OpenError::Listen(error))));
                    return end;
                }
            };
            match opened {
                Err(refusal) => drop(started.send(Err(OpenError::Refused(refusal)))),
                Ok((listener, service)) => {
                    // If the caller has stopped waiting, the orders are gone, too, which ends the port.
                    let _ = started.send(Ok(listener.local_addr()));
                    run(&env_of_port, service, listener, order, options).await;
                }
            }
            end
        };
        env.start_runtime(options.thread, root).map_err(OpenError::Thread)?;
        let gone = || OpenError::Thread(io::Error::other("the thread ended at once"));
        let addr = starting.await.map_err(|_| gone())??;
        Ok(Self { addr, orders, ended })
    }

    /// Returns the address that the port listens on.
    pub fn local_addr(&self) -> &str {
        &self.addr
    }

    /// Closes the port cleanly: connections end within the time that the options give them.
    pub async fn stop(self) {
        self.orders.drain();
        // Nothing is ever sent: this waits until the sender is dropped.
        let _ = self.ended.await;
    }
}

/// Accepts connections until the port is stopped, then waits until they have ended.
async fn run<S: Service>(
    env: &Env,
    service: S,
    listener: Arc<dyn Listener>,
    mut order: Order,
    PortOptions { connections_max, stop_time_max, failed, .. }: PortOptions,
) {
    let (of_connections, places) = (order.clone(), Arc::new(Places::new(connections_max)));
    let start = |stream, from: String| {
        let (service, order, place) = (service.clone(), of_connections.clone(), places.take(&from));
        env.spawn(async move { service.serve(stream, order, place, &from).await });
    };
    let accepting = order.accept(&*listener, ACCEPT_PAUSE, start, failed);
    select(pin!(accepting), pin!(service.clone().beside())).await;
    if order.is_to_drain() {
        let _ = order.until_dropped(timeout(stop_time_max, places.all_free())).await;
    }
}
