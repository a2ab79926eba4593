//! The life of a server: it accepts connections until it stops, and then lets those that are open end their work.
//!
//! Invariant: the tasks of a server end at once when its [`Orders`] are dropped.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::watch;

use crate::net::{BoxStream, Listener};
use crate::task::sleep;

mod places;
mod port;

pub use places::{Place, Places, Usage, Work};
pub use port::{OpenError, Port, PortOptions, Service};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serve,
    Drain,
}

/// Gives orders to the tasks of a server. Dropping it ends them at once.
#[derive(Debug)]
pub struct Orders(watch::Sender<Phase>);

/// The order in force. Each task of a server holds one.
#[derive(Clone, Debug)]
pub struct Order(watch::Receiver<Phase>);

impl Orders {
    /// Creates the order to serve.
    pub fn new() -> (Self, Order) {
        let (orders, order) = watch::channel(Phase::Serve);
        (Self(orders), Order(order))
    }

    /// Orders the tasks to end their work and begin no more.
    pub fn drain(&self) {
        self.0.send_replace(Phase::Drain);
    }

    /// Waits until all tasks have dropped their [`Order`].
    pub async fn all_ended(&self) {
        self.0.closed().await;
    }
}

impl Order {
    /// Returns whether the order is to end the work that was begun.
    pub fn is_to_drain(&self) -> bool {
        *self.0.borrow() == Phase::Drain
    }

    /// Returns the output of a future; `None` if the server stops or is dropped first.
    pub async fn until_stopped<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        let stopped = pin!(self.0.wait_for(|phase| *phase != Phase::Serve));
        match select(stopped, pin!(future)).await {
            Either::Left(_) => None,
            Either::Right((output, _)) => Some(output),
        }
    }

    /// Returns the output of a future; `None` if the server is dropped first.
    pub async fn until_dropped<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        let dropped = pin!(async { while self.0.changed().await.is_ok() {} });
        match select(dropped, pin!(future)).await {
            Either::Left(_) => None,
            Either::Right((output, _)) => Some(output),
        }
    }

    /// Accepts connections until the server stops or is dropped, and passes on each with the address of the peer.
    /// After an error, which `failed` gets, it pauses: the cause may be that no file descriptor was left.
    pub async fn accept(
        &mut self,
        listener: &dyn Listener,
        pause: Duration,
        mut start: impl FnMut(BoxStream, String),
        failed: impl Fn(io::Error),
    ) {
        let accepting = async {
            loop {
                match listener.accept().await {
                    Ok((stream, from)) => start(stream, from),
                    Err(error) => {
                        failed(error);
                        sleep(pause).await;
                    }
                }
            }
        };
        let _: Option<()> = self.until_stopped(accepting).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt as _;
    use futures_util::future::{BoxFuture, join, pending, ready};
    use tokio::sync::Notify;

    use super::*;
    use crate::task::timeout;

    const LIMIT: Duration = Duration::from_secs(60);

    /// Fails twice, then never has another connection.
    #[derive(Debug, Default)]
    struct Failing {
        calls: AtomicUsize,
        waits: Notify,
    }

    impl Listener for Failing {
        fn accept(&self) -> BoxFuture<'_, io::Result<(BoxStream, String)>> {
            if self.calls.fetch_add(1, Ordering::Relaxed) < 2 {
                return ready(Err(io::ErrorKind::OutOfMemory.into())).boxed();
            }
            self.waits.notify_one();
            pending().boxed()
        }

        fn local_addr(&self) -> String {
            String::new()
        }
    }

    #[tokio::test]
    async fn accepting_goes_on_after_errors_and_ends_with_the_server() {
        for is_dropped in [false, true] {
            let ((orders, mut order), listener) = (Orders::new(), Failing::default());
            let failures = AtomicUsize::new(0);
            let failed = |_| {
                failures.fetch_add(1, Ordering::Relaxed);
            };
            let accepting = order.accept(&listener, Duration::from_millis(1), |_, _| {}, failed);
            let ending = async {
                listener.waits.notified().await;
                let orders = Some(orders).filter(|_| !is_dropped);
                orders.iter().for_each(Orders::drain);
                orders
            };
            let ended = timeout(LIMIT, join(accepting, ending)).await;
            assert!(ended.is_ok(), "it ends with the server");
            assert_eq!(failures.into_inner(), 2);
            assert_eq!(order.is_to_drain(), !is_dropped);
        }
    }

    #[tokio::test]
    async fn work_goes_on_while_a_server_drains_but_not_when_it_is_dropped() {
        let (orders, mut order) = Orders::new();
        assert_eq!(order.until_stopped(ready(1)).await, Some(1));
        orders.drain();
        assert_eq!(order.until_stopped(pending::<()>()).await, None);
        let mut other = order.clone();
        assert!(order.until_dropped(pending::<()>()).now_or_never().is_none(), "it is not dropped yet");
        assert!(orders.all_ended().now_or_never().is_none(), "two tasks hold the order");
        drop(orders);
        assert_eq!(other.until_dropped(pending::<()>()).await, None);
        assert_eq!(order.until_dropped(pending::<()>()).await, None);
    }
}
