//! The metrics of a process, with the names in `docs/metrics.md`.
//!
//! Invariant: names, labels and meanings of those of a node are defined once, in `families`. The Prometheus text and
//! OTLP are two encodings of that list.

use std::time::Duration;

use quorate_env::metrics::{BOUNDS_MICROS, Histogram};

mod families;
mod parts;
mod prometheus;

pub(crate) use families::families;
pub(crate) use prometheus::prometheus;

/// A metric: all samples with one name.
#[derive(Clone, Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What it says, in a sentence.
    pub help: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its samples.
    pub samples: Vec<Sample>,
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that only increases.
    Counter,
    /// A number that can increase and decrease.
    Gauge,
    /// How long things took.
    Histogram,
}

/// Returns the bucket bounds of histograms, in seconds.
pub(crate) fn bounds() -> [f64; BOUNDS_MICROS.len()] {
    BOUNDS_MICROS.map(|micros| Duration::from_micros(micros).as_secs_f64())
}

/// One measurement with its labels.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Names and values of its labels.
    pub labels: Vec<(&'static str, String)>,
    /// Its value.
    pub value: Value,
}

/// The value of a measurement.
#[derive(Clone, Debug)]
pub enum Value {
    /// A count.
    Count(u64),
    /// A number.
    Number(f64),
    /// How long things took.
    Times(Histogram),
}

impl Family {
    /// Returns a metric without samples.
    pub fn new(name: &'static str, help: &'static str, kind: Kind) -> Self {
        Self { name, help, kind, samples: Vec::new() }
    }

    /// Adds a sample.
    #[must_use]
    pub fn with(mut self, labels: &[(&'static str, &str)], value: impl Into<Value>) -> Self {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.samples.push(Sample { labels, value: value.into() });
        self
    }

    /// Adds samples that share `labels` and differ in the value of `label`.
    #[must_use]
    pub fn with_each<V: Into<Value>>(
        self,
        labels: &[(&'static str, &str)],
        label: &'static str,
        samples: impl IntoIterator<Item = (impl AsRef<str>, V)>,
    ) -> Self {
        samples.into_iter().fold(self, |family, (value, sample)| {
            let labels: Vec<_> = labels.iter().copied().chain([(label, value.as_ref())]).collect();
            family.with(&labels, sample)
        })
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Count(value)
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::Count(value as u64)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Count(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

impl From<&Histogram> for Value {
    fn from(value: &Histogram) -> Self {
        Self::Times(value.clone())
    }
}
