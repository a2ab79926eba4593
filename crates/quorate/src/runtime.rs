//! The runtime inside which the calls of a handle run, whichever executor polls them.
//!
//! A handle may be used from any executor, including one without timers. Therefore each of its futures is polled inside
//! the runtime of the node or the client: timers, tasks and blocking calls use that runtime, while the polling itself
//! stays on the caller's thread.
//!
//! Invariant: that runtime does not end during a poll. It may end between two polls; the next poll then returns an
//! error.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;

use quorate_env::Env;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// A reference to a runtime; see the module. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    env: Env,
    handle: Handle,
    polls: Weak<PollGuard>,
}

/// Held by the owner and by each poll; dropped after the last poll.
#[derive(Debug)]
struct PollGuard(#[expect(dead_code, reason = "its drop is the message")] oneshot::Sender<()>);

/// Keeps the runtime open. The runtime's root task holds it as long as calls may run.
#[derive(Debug)]
pub(crate) struct RuntimeOwner {
    polls: Arc<PollGuard>,
    all_dropped: oneshot::Receiver<()>,
}

/// The error of a call whose runtime has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuntimeEnded;

impl Runtime {
    /// Returns the runtime of the calling task, and its owner.
    ///
    /// # Panics
    ///
    /// Panics outside of a runtime.
    pub(crate) fn here(env: &Env) -> (Self, RuntimeOwner) {
        let (sender, all_dropped) = oneshot::channel();
        let polls = Arc::new(PollGuard(sender));
        (
            Self { env: env.clone(), handle: Handle::current(), polls: Arc::downgrade(&polls) },
            RuntimeOwner { polls, all_dropped },
        )
    }

    /// Returns the environment of the runtime.
    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// Runs a short function inside this runtime, on the calling thread.
    pub(crate) fn inside<T>(&self, f: impl FnOnce() -> T) -> Result<T, RuntimeEnded> {
        let Some(_guard) = self.polls.upgrade() else { return Err(RuntimeEnded) };
        let _inside = self.handle.enter();
        Ok(self.env.enter(f))
    }

    /// Runs a future on the calling task, with each of its polls inside this runtime.
    pub(crate) async fn run<T>(&self, future: impl Future<Output = T>) -> Result<T, RuntimeEnded> {
        let mut future = pin!(future);
        poll_fn(|cx| match self.inside(|| future.as_mut().poll(cx)) {
            Ok(poll) => poll.map(Ok),
            Err(ended) => Poll::Ready(Err(ended)),
        })
        .await
    }
}

impl RuntimeOwner {
    /// Refuses new polls and waits for those that are running.
    pub(crate) async fn close(self) {
        drop(self.polls);
        // The channel carries no message: it closes when the last holder is dropped.
        let _ = self.all_dropped.await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests stop at the first surprise")]

    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;

    /// Runs a runtime on a separate thread until the returned sender is used.
    fn start() -> (Runtime, oneshot::Sender<()>) {
        let env = Env::real();
        let ((out, started), (stop, stopped)) = (std::sync::mpsc::channel(), oneshot::channel());
        let inside = env.clone();
        env.start_runtime("test", async move {
            let (runtime, owner) = Runtime::here(&inside);
            out.send(runtime).unwrap();
            let _ = stopped.await;
            owner.close().await;
        })
        .unwrap();
        (started.recv().unwrap(), stop)
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let thread = std::thread::current();
        let waker = futures_util::task::waker(Arc::new(Unpark(thread)));
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
                return output;
            }
            std::thread::park();
        }
    }

    struct Unpark(std::thread::Thread);

    impl futures_util::task::ArcWake for Unpark {
        fn wake_by_ref(this: &Arc<Self>) {
            this.0.unpark();
        }
    }

    #[test]
    fn timers_work_without_a_runtime_of_the_caller() {
        let (runtime, _stop) = start();
        let wait = runtime.run(async { quorate_env::sleep(Duration::from_millis(1)).await });
        assert!(block_on(wait).is_ok());
        let blocking = runtime.run(runtime.env().blocking(|| 7));
        assert_eq!(block_on(blocking).ok(), Some(Some(7)));
    }

    #[test]
    fn calls_under_way_end_with_the_runtime() {
        let (runtime, stop) = start();
        let mut wait = Box::pin(runtime.run(async { quorate_env::sleep(Duration::from_secs(3600)).await }));
        assert!((&mut wait).now_or_never().is_none());
        stop.send(()).unwrap();
        assert!(block_on(wait).is_err(), "the runtime's end wakes it");
        assert!(block_on(runtime.run(async {})).is_err());
    }
}
