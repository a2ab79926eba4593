//! Asynchronous tasks and the monotonic clock. Both are tokio's, so a runtime with a paused clock simulates time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::env::Env;
use crate::wakes::Gathered;

pub use tokio::task::{JoinHandle, yield_now};
pub use tokio::time::error::Elapsed;
/// The monotonic clock: the machine's, or the simulator's virtual one.
pub use tokio::time::{Instant, Sleep, Timeout};

/// Waits for a duration, with a resolution of a millisecond.
#[expect(clippy::disallowed_methods, reason = "the one place that makes timers")]
pub fn sleep(time: Duration) -> Sleep {
    tokio::time::sleep(time)
}

/// Waits until an instant, with a resolution of a millisecond.
#[expect(clippy::disallowed_methods, reason = "the one place that makes timers")]
pub fn sleep_until(deadline: Instant) -> Sleep {
    tokio::time::sleep_until(deadline)
}

/// Gives `future` a time limit.
#[expect(clippy::disallowed_methods, reason = "the one place that makes timers")]
pub fn timeout<F: Future>(limit: Duration, future: F) -> Timeout<F> {
    tokio::time::timeout(limit, future)
}

/// Gives `future` a deadline.
#[expect(clippy::disallowed_methods, reason = "the one place that makes timers")]
pub fn timeout_at<F: Future>(deadline: Instant, future: F) -> Timeout<F> {
    tokio::time::timeout_at(deadline, future)
}

/// Starts `future` as a task with `env` as its environment.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "the one place that starts tasks")]
pub(crate) fn spawn<F>(env: &Env, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let handle = tokio::spawn(Scoped::new(env, future));
    env.host().started(handle.abort_handle());
    handle
}

/// A future that is polled with an [`Env`] as the current one, and that the host may postpone.
pub(crate) struct Scoped<F> {
    env: Env,
    gathered: Gathered,
    future: Pin<Box<F>>,
}

impl<F> Scoped<F> {
    pub(crate) fn new(env: &Env, future: F) -> Self {
        Self { env: env.clone(), gathered: Gathered::default(), future: Box::pin(future) }
    }
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        if this.env.host().postpones(cx.waker()) {
            return Poll::Pending;
        }
        let cx = &mut Context::from_waker(this.gathered.waker(cx.waker()));
        this.env.enter(|| this.future.as_mut().poll(cx))
    }
}
