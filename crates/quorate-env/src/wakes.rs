//! Gathers the wakes of a runtime's tasks that come from other threads.
//!
//! tokio makes a system call for each task that another thread wakes, and the runtime's thread may wake and sleep as
//! often. The SQL writer answers all callers of a batch one after the other, and most of that time would go there. So
//! another thread only notes the task, and wakes the task that wakes all noted ones.
//!
//! # Invariants
//!
//! - No wake is lost: the next poll of a task sees what a thread wrote before it woke the task.
//! - A task is noted at most once at a time, and no longer than the runtime exists.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use scoped_tls::scoped_thread_local;

use crate::lock::lock;
use crate::signal::Signal;

scoped_thread_local!(static OWN: Arc<Wakes>);

/// The wakes of the tasks of one runtime.
#[derive(Debug)]
pub(crate) struct Wakes {
    /// The tasks that are to wake; none once the runtime has ended.
    noted: Mutex<Option<Vec<Arc<Task>>>>,
    signal: Signal,
}

/// The task that wakes the noted ones.
pub(crate) struct Waking(Arc<Wakes>);

/// A task, as other threads wake it.
#[derive(Debug)]
struct Task {
    waker: Waker,
    is_noted: AtomicBool,
    wakes: Arc<Wakes>,
}

/// The waker of a task that the runtime made, and the one that gathers its wakes.
#[derive(Debug, Default)]
pub(crate) struct Gathered(Option<(Waker, Waker)>);

impl Wakes {
    /// Returns no wakes, and the task that has to run on the runtime.
    pub(crate) fn new() -> (Arc<Self>, Waking) {
        let wakes = Arc::new(Self { noted: Mutex::new(Some(Vec::new())), signal: Signal::new() });
        (Arc::clone(&wakes), Waking(wakes))
    }

    /// Runs the runtime, on its thread.
    pub(crate) fn gather<T>(self: &Arc<Self>, run: impl FnOnce() -> T) -> T {
        OWN.set(self, run)
    }

    /// Returns whether the calling thread is that of the runtime.
    fn is_own_thread(&self) -> bool {
        OWN.is_set() && OWN.with(|own| std::ptr::eq(&raw const **own, self))
    }
}

impl Future for Waking {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.signal.poll_wait(cx).is_ready() {
            let noted = lock(&self.0.noted).as_mut().map(std::mem::take);
            for task in noted.unwrap_or_default() {
                // First, so that a later wake notes the task again.
                task.is_noted.swap(false, Ordering::AcqRel);
                task.waker.wake_by_ref();
            }
            // The others have their turn before more of them are woken.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for Waking {
    fn drop(&mut self) {
        let noted = lock(&self.0.noted).take();
        drop(noted);
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.wakes.is_own_thread() {
            self.waker.wake_by_ref();
        } else if !self.is_noted.swap(true, Ordering::AcqRel) {
            if let Some(noted) = lock(&self.wakes.noted).as_mut() {
                noted.push(Arc::clone(self));
            }
            self.wakes.signal.wake();
        }
    }
}

impl Gathered {
    /// Returns the waker for a poll of a task that would be polled with `waker`: that one, outside of a runtime that
    /// gathers its wakes.
    pub(crate) fn waker<'a>(&'a mut self, waker: &'a Waker) -> &'a Waker {
        if !OWN.is_set() {
            return waker;
        }
        if !self.0.as_ref().is_some_and(|(made, _)| made.will_wake(waker)) {
            let task = Task { waker: waker.clone(), is_noted: AtomicBool::new(false), wakes: OWN.with(Arc::clone) };
            self.0 = Some((waker.clone(), Arc::new(task).into()));
        }
        self.0.as_ref().map_or(waker, |(_, gathered)| gathered)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types, reason = "tests")]

    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;
    use std::thread;

    use tokio::sync::oneshot;

    use super::*;
    use crate::Env;

    #[test]
    fn no_wake_of_another_thread_is_lost() {
        const TASKS: usize = 50;
        const ROUNDS: usize = 200;
        let (env, (done, all_done)) = (Env::real(), mpsc::channel());
        let (sender, answers) = mpsc::channel::<oneshot::Sender<usize>>();
        let inside = env.clone();
        let root = async move {
            for _ in 0..TASKS {
                let (done, sender) = (done.clone(), sender.clone());
                inside.spawn(async move {
                    let mut sum = 0;
                    for _ in 0..ROUNDS {
                        let (asked, answer) = oneshot::channel();
                        sender.send(asked).unwrap();
                        sum += answer.await.unwrap();
                    }
                    done.send(sum).unwrap();
                });
            }
            drop(sender);
            std::future::pending::<()>().await;
        };
        env.start_runtime("wakes-test", root).unwrap();
        let answering = thread::spawn(move || answers.iter().for_each(|asked| asked.send(1).unwrap()));
        assert_eq!(all_done.iter().take(TASKS).sum::<usize>(), TASKS * ROUNDS);
        answering.join().unwrap();
    }

    struct Counting(AtomicUsize);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn many_wakes_are_one_for_the_runtime_and_none_once_it_has_ended() {
        let counting = || Arc::new(Counting(AtomicUsize::new(0)));
        let (of_runtime, of_tasks) = (counting(), [counting(), counting()]);
        let woken = |counting: &Arc<Counting>| counting.0.swap(0, Ordering::Relaxed);
        let (wakes, waking) = Wakes::new();
        let mut waking = Box::pin(waking);
        let waker = Waker::from(Arc::clone(&of_runtime));
        let poll = |waking: &mut Pin<Box<Waking>>| {
            assert!(waking.as_mut().poll(&mut Context::from_waker(&waker)).is_pending())
        };
        poll(&mut waking);
        let mut gathered = [Gathered::default(), Gathered::default()];
        let tasks = gathered
            .iter_mut()
            .zip(&of_tasks)
            .map(|(gathered, counting)| wakes.gather(|| gathered.waker(&Waker::from(Arc::clone(counting))).clone()));
        let tasks: Vec<Waker> = tasks.collect();

        wakes.gather(|| tasks[0].wake_by_ref());
        assert_eq!((woken(&of_runtime), woken(&of_tasks[0])), (0, 1), "its own thread wakes a task itself");
        for _ in 0..3 {
            tasks.iter().for_each(Waker::wake_by_ref);
        }
        assert_eq!((woken(&of_runtime), woken(&of_tasks[0])), (1, 0));
        poll(&mut waking);
        assert_eq!(of_tasks.each_ref().map(woken), [1, 1]);
        drop(waking);
        tasks.iter().for_each(Waker::wake_by_ref);
        assert_eq!(of_tasks.each_ref().map(woken), [0, 0]);
        drop((tasks, gathered));
        assert_eq!(Arc::strong_count(&of_tasks[0]), 1, "nothing is kept");
    }
}
