//! Waits until another program has reached a state.

use std::time::{Duration, Instant};

use quorate_bench_harness::Result;

/// How often the state is checked.
const STEP: Duration = Duration::from_millis(20);

/// Repeats `step` until it returns a value. Fails with the text `late` after the time `max`.
pub fn until<T>(max: Duration, late: &str, mut step: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let end = Instant::now() + max;
    loop {
        if let Some(reached) = step()? {
            return Ok(reached);
        }
        if Instant::now() > end {
            return Err(format!("{late} within {max:?}").into());
        }
        std::thread::sleep(STEP);
    }
}
