//! Random requests, and how the replies of a door to them compare with those of Redis. For tests and trials.

mod compare;
mod generate;
mod memory;
mod value;

pub use compare::{Alike, Comparison, Difference};
pub use generate::Generator;
pub use memory::MemoryDoor;
pub use value::Value;

use bytes::Bytes;

/// Returns the requests after which a server has no keys, and a client that speaks this version of the protocol.
pub fn anew(hello: &'static str) -> Vec<Vec<Bytes>> {
    // What is slow differs between servers.
    const NO_SLOW_LOG: &str = "config set slowlog-log-slower-than -1 slowlog-max-len 128";
    let requests = ["reset", NO_SLOW_LOG, "slowlog reset", "flushall"].map(|line| line.split(' ').map(Bytes::from));
    let greeting = vec![Bytes::from("hello"), Bytes::from(hello)];
    requests.map(Iterator::collect).into_iter().chain([greeting]).collect()
}
