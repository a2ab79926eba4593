//! The runtime in which a handle's calls run, whoever polls them.
//!
//! A handle may be used from any executor, also from one without timers. So each of its futures is polled inside of the
//! runtime that the node, or the client, runs on: timers, tasks and blocking calls go there, while the polling itself
//! stays on the caller's thread.
//!
//! Invariant: that runtime does not end during a poll. Between two polls it may; the next poll says so.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;

use quorate_env::Env;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// See the module. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    env: Env,
    handle: Handle,
    open: Weak<Open>,
}

/// Dropped after the last poll.
#[derive(Debug)]
struct Open(#[expect(dead_code, reason = "its drop is the message")] oneshot::Sender<()>);

/// The task at the root of the runtime holds this as long as calls may run.
#[derive(Debug)]
pub(crate) struct Doors {
    open: Arc<Open>,
    left: oneshot::Receiver<()>,
}

/// The runtime has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gone;

impl Runtime {
    /// The runtime of the calling task.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    pub(crate) fn here(env: &Env) -> (Self, Doors) {
        let (sender, left) = oneshot::channel();
        let open = Arc::new(Open(sender));
        (Self { env: env.clone(), handle: Handle::current(), open: Arc::downgrade(&open) }, Doors { open, left })
    }

    /// The world of the runtime.
    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// Runs something short inside of this runtime, on the calling thread.
    pub(crate) fn inside<T>(&self, f: impl FnOnce() -> T) -> Result<T, Gone> {
        let Some(_open) = self.open.upgrade() else { return Err(Gone) };
        let _inside = self.handle.enter();
        Ok(self.env.enter(f))
    }

    /// Runs a future on the calling task, inside of this runtime. Only what happens during its polls is inside.
    pub(crate) async fn run<T>(&self, future: impl Future<Output = T>) -> Result<T, Gone> {
        let mut future = pin!(future);
        poll_fn(|cx| match self.inside(|| future.as_mut().poll(cx)) {
            Ok(poll) => poll.map(Ok),
            Err(gone) => Poll::Ready(Err(gone)),
        })
        .await
    }
}

impl Doors {
    /// Lets no more polls begin and waits for those under way.
    pub(crate) async fn close(self) {
        drop(self.open);
        // The sender is only ever dropped.
        let _ = self.left.await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests stop at the first surprise")]

    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;

    /// Runs a runtime on a thread of its own until told to end.
    fn start() -> (Runtime, oneshot::Sender<()>) {
        let env = Env::real();
        let ((out, started), (stop, stopped)) = (std::sync::mpsc::channel(), oneshot::channel());
        let inside = env.clone();
        env.start_runtime("test", async move {
            let (runtime, doors) = Runtime::here(&inside);
            out.send(runtime).unwrap();
            let _ = stopped.await;
            doors.close().await;
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
