//! The results of a run, with the same names and values as text and as JSON.

use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::Value;

use crate::args::Measure;
use crate::histogram::Summary;
use crate::machine::Disk;
use crate::{Error, Result};

/// The figures with their names, in the order in which they are printed.
#[derive(Clone, Debug, Default)]
pub struct Report(Vec<(String, Value)>);

impl Report {
    /// Adds a figure.
    pub fn add(&mut self, name: impl Into<String>, value: impl Into<Value>) -> &mut Self {
        self.0.push((name.into(), value.into()));
        self
    }

    /// Adds a number, rounded to three decimals if it is below 10, else to one.
    pub fn number(&mut self, name: impl Into<String>, value: f64) -> &mut Self {
        let decimals = if value.abs() < 10.0 { 1000.0 } else { 10.0 };
        self.add(name, (value * decimals).round() / decimals)
    }

    /// Adds percentiles, whose names get this prefix.
    pub fn times(&mut self, prefix: &str, times: &Summary) -> &mut Self {
        let Summary { p50_us, p90_us, p99_us, max_us, .. } = *times;
        for (name, value) in [("p50_us", p50_us), ("p90_us", p90_us), ("p99_us", p99_us), ("max_us", max_us)] {
            self.number(format!("{prefix}{name}"), value);
        }
        self
    }

    /// Adds the times of the disk.
    pub fn disk(&mut self, disk: &Disk) -> &mut Self {
        self.number("fdatasync_p50_us", disk.sync.p50_us).number("fdatasync_p99_us", disk.sync.p99_us);
        if disk.in_memory {
            self.add(
                "warning",
                "the data are in memory, where a sync costs nothing: choose a directory on a disk with --dir",
            );
        }
        self
    }

    /// Prints the report, as text or as one line of JSON.
    ///
    /// # Errors
    ///
    /// If standard output is closed.
    pub fn print(&self, json: bool) -> Result<()> {
        use std::io::Write as _;
        let mut out = std::io::stdout().lock();
        if json {
            writeln!(out, "{}", serde_json::to_string(self)?)?;
            return Ok(());
        }
        for (name, value) in &self.0 {
            match value {
                Value::String(text) => writeln!(out, "{name:<24}{text}")?,
                other => writeln!(out, "{name:<24}{other}")?,
            }
        }
        Ok(())
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Reports the error of a measurement that did not finish. Returns whether it finished.
pub fn finish(measure: &Measure, done: Result<(), Error>) -> bool {
    let Err(error) = done else { return true };
    eprintln!("{} of {}: {error}", measure.name(), measure.system().name());
    if measure.options().is_some_and(|options| options.json) {
        let mut report = Report::default();
        report.add("bench", measure.name()).add("system", measure.system().name());
        report.add("finished", false).add("error", error.to_string());
        // Standard output may be what failed.
        let _ = report.print(true);
    }
    false
}
