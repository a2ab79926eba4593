//! What the trials share: a cluster of real processes, a load with many writes in flight, and figures.

pub mod cluster;
pub mod dice;
pub mod figures;
pub mod load;
pub mod options;
pub mod resp;
pub mod servers;

/// A result whose errors end the trial.
pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Waits until `ask` returns a value, and calls it every few milliseconds.
pub async fn until<T>(what: &str, limit: std::time::Duration, mut ask: impl AsyncFnMut() -> Option<T>) -> Result<T> {
    let deadline = tokio::time::Instant::now() + limit;
    loop {
        if let Some(found) = ask().await {
            return Ok(found);
        }
        if tokio::time::Instant::now() >= deadline {
            return Err(format!("waited {} s in vain for {what}", limit.as_secs()).into());
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
