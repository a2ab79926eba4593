//! The runtime for openraft, implemented with `quorate-env`.
//!
//! The functions of openraft's trait have no receiver, so they get the node's environment from [`Env::current`]: every
//! task of openraft descends from a task that an `Env` started. Outside of such a task (there is none in the product)
//! openraft's randomness would come from the operating system.

use std::fmt;
use std::future::Future;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use openraft_rt::{AsyncRuntime, OptionalSend};
use openraft_rt_tokio::{TokioMpsc, TokioMutex, TokioOneshot, TokioRuntime, TokioWatch};
use quorate_env::{Elapsed, Env, JoinHandle, Rng, Sleep, Timeout};

/// Sleeps shorter than this only yield to other tasks. Timers have a resolution of a millisecond, and openraft sleeps
/// for a microsecond between two notices of flushed appends, which would cost each write a millisecond.
const SHORTEST_SLEEP: Duration = Duration::from_micros(500);

/// The runtime in the form that openraft needs.
pub(crate) struct RaftRuntime(TokioRuntime);

impl fmt::Debug for RaftRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RaftRuntime")
    }
}

/// A sleep: a timer, or one turn of the scheduler.
pub(crate) enum RaftSleep {
    Timer(Pin<Box<Sleep>>),
    Turn { taken: bool },
}

impl RaftSleep {
    /// Returns a sleep that may end too early. Only for callers that do not check the clock afterwards.
    fn for_time(time: Duration) -> Self {
        if time < SHORTEST_SLEEP {
            Self::Turn { taken: false }
        } else {
            Self::Timer(Box::pin(quorate_env::sleep(time)))
        }
    }

    /// Returns a sleep that never ends too early: openraft's tick sleeps again until the same instant, and would spin.
    fn until(deadline: quorate_env::Instant) -> Self {
        Self::Timer(Box::pin(quorate_env::sleep_until(deadline)))
    }
}

impl Future for RaftSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.get_mut() {
            Self::Timer(sleep) => sleep.as_mut().poll(cx),
            Self::Turn { taken: true } => Poll::Ready(()),
            Self::Turn { taken } => {
                *taken = true;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

/// The monotonic clock in the form that openraft needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RaftInstant(quorate_env::Instant);

impl openraft_rt::Instant for RaftInstant {
    fn now() -> Self {
        Self(quorate_env::Instant::now())
    }
}

impl Add<Duration> for RaftInstant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0 + time)
    }
}

impl AddAssign<Duration> for RaftInstant {
    fn add_assign(&mut self, time: Duration) {
        self.0 += time;
    }
}

impl Sub<Duration> for RaftInstant {
    type Output = Self;

    fn sub(self, time: Duration) -> Self {
        Self(self.0 - time)
    }
}

impl SubAssign<Duration> for RaftInstant {
    fn sub_assign(&mut self, time: Duration) {
        self.0 -= time;
    }
}

impl Sub for RaftInstant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }
}

impl AsyncRuntime for RaftRuntime {
    type JoinError = tokio::task::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = JoinHandle<T>;
    type Sleep = RaftSleep;
    type Instant = RaftInstant;
    type TimeoutError = Elapsed;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = Timeout<T>;
    type ThreadLocalRng = Rng;
    type Mpsc = TokioMpsc;
    type Watch = TokioWatch;
    type Oneshot = TokioOneshot;
    type Mutex<T: OptionalSend + 'static> = TokioMutex<T>;

    #[track_caller]
    fn spawn<T>(future: T) -> JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        match Env::current() {
            Some(env) => env.spawn(future),
            None => TokioRuntime::spawn(future),
        }
    }

    fn sleep(duration: Duration) -> RaftSleep {
        RaftSleep::for_time(duration)
    }

    fn sleep_until(deadline: RaftInstant) -> RaftSleep {
        RaftSleep::until(deadline.0)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(duration: Duration, future: F) -> Timeout<F> {
        quorate_env::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(deadline: RaftInstant, future: F) -> Timeout<F> {
        quorate_env::timeout_at(deadline.0, future)
    }

    fn is_panic(join_error: &tokio::task::JoinError) -> bool {
        join_error.is_panic()
    }

    fn thread_rng() -> Rng {
        Env::current().map_or_else(Rng::from_os, |env| env.rng().clone())
    }

    fn new(threads: usize) -> Self {
        Self(TokioRuntime::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }
}
