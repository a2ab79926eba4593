//! Random requests, and how the replies of a door to them compare with those of Redis. For tests and trials.

mod compare;
mod generate;
mod memory;
mod value;

pub use compare::{Alike, Comparison, Difference};
pub use generate::Generator;
pub use memory::MemoryDoor;
pub use value::Value;
