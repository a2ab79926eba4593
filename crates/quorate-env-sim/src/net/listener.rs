//! Listeners and their backlogs.

use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use quorate_env::net::{BoxStream, Listener};

use super::SimNet;
use super::stream::SimStream;

/// The maximum number of connections that wait to be accepted.
const BACKLOG_MAX: usize = 128;

/// The network's state of a listener.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) node: String,
    life: u64,
    backlog: VecDeque<(SimStream, String)>,
    waker: Option<Waker>,
}

impl Port {
    pub(super) fn new(node: &str, life: u64) -> Self {
        Self { node: node.to_owned(), life, backlog: VecDeque::new(), waker: None }
    }

    pub(super) fn has_room(&self) -> bool {
        self.backlog.len() < BACKLOG_MAX
    }

    pub(super) fn arrive(&mut self, stream: SimStream, from: String) {
        self.backlog.push_back((stream, from));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// A listener of one life of a node.
#[derive(Debug)]
pub(super) struct SimListener {
    net: SimNet,
    addr: String,
    life: u64,
}

impl SimListener {
    pub(super) fn new(net: SimNet, addr: String, life: u64) -> Self {
        Self { net, addr, life }
    }

    fn poll_accept(&self, cx: &Context<'_>) -> Poll<io::Result<(BoxStream, String)>> {
        let mut state = self.net.state();
        let Some(port) = state.ports.get_mut(&self.addr).filter(|port| port.life == self.life) else {
            return Poll::Ready(Err(io::ErrorKind::NetworkDown.into()));
        };
        match port.backlog.pop_front() {
            Some((stream, from)) => Poll::Ready(Ok((Box::new(stream), from))),
            None => {
                port.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Listener for SimListener {
    fn accept(&self) -> BoxFuture<'_, io::Result<(BoxStream, String)>> {
        std::future::poll_fn(|cx| self.poll_accept(cx)).boxed()
    }

    fn local_addr(&self) -> String {
        self.addr.clone()
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        let mut state = self.net.state();
        let is_mine = state.ports.get(&self.addr).is_some_and(|port| port.life == self.life);
        let port = is_mine.then(|| state.ports.remove(&self.addr));
        drop(state);
        // Dropping the connections that were not accepted locks the state.
        drop(port);
    }
}
