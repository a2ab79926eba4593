//! Random numbers.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex};

use crate::lock;
use rand::rngs::StdRng;
use rand::{SeedableRng, TryRng};

/// A random number generator, shared by all clones. Seeded by the operating system, it is suitable for nonces and
/// identities. Seeded with a number, it produces the same sequence each time.
#[derive(Clone)]
pub struct Rng(Arc<Mutex<StdRng>>);

impl Rng {
    /// A generator seeded by the operating system.
    #[expect(clippy::disallowed_methods, reason = "the one place that draws from the operating system")]
    pub fn from_os() -> Self {
        Self(Arc::new(Mutex::new(rand::make_rng())))
    }

    /// A generator seeded with a number: equal seeds give equal sequences.
    pub fn from_seed(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    /// A new generator, seeded with the next number of this one.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::from_seed(self.next_u64())
    }

    /// 64 random bits.
    pub fn next_u64(&self) -> u64 {
        self.with(|rng| match rng.try_next_u64() {
            Ok(bits) => bits,
        })
    }

    /// A number from 0 to `bound - 1`; 0 for a bound of 0. The bias is below `bound / 2^64`.
    pub fn below(&self, bound: u64) -> u64 {
        let wide = u128::from(self.next_u64()).wrapping_mul(u128::from(bound));
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// Whether an event of the given probability happens.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are all that a probability needs")]
    pub fn chance(&self, probability: f64) -> bool {
        ((self.next_u64() >> 11) as f64) < probability * (1_u64 << 53) as f64
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&self, bytes: &mut [u8]) {
        self.with(|rng| match rng.try_fill_bytes(bytes) {
            Ok(()) => {}
        });
    }

    fn with<T>(&self, f: impl FnOnce(&mut StdRng) -> T) -> T {
        f(&mut lock(&self.0))
    }
}

/// Lets generic code in other crates draw from this generator.
impl TryRng for Rng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.with(StdRng::try_next_u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.with(StdRng::try_next_u64)
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.with(|rng| rng.try_fill_bytes(bytes))
    }
}

impl fmt::Debug for Rng {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rng")
    }
}
