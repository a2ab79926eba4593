//! Metrics in the Prometheus text format, version 0.0.4.

use std::fmt::{Display, Write as _};

use quorate_env::metrics::Histogram;

use super::{Family, Kind, Sample, Value, bounds};

/// Encodes metrics.
pub(crate) fn prometheus(families: &[Family]) -> String {
    let mut page = Page(String::new());
    families.iter().for_each(|family| page.family(family));
    page.0
}

struct Page(String);

impl Page {
    fn family(&mut self, Family { name, help, kind, samples }: &Family) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
        for Sample { labels, value } in samples {
            let labels: Vec<String> = labels.iter().map(|(name, value)| label(name, value)).collect();
            match value {
                Value::Count(count) => self.sample(name, "", &labels, count),
                Value::Number(number) => self.sample(name, "", &labels, number),
                Value::Times(times) => self.histogram(name, &labels, times),
            }
        }
    }

    /// Writes a histogram. Buckets are cumulative: each counts all times up to its bound.
    fn histogram(&mut self, name: &str, labels: &[String], times: &Histogram) {
        let mut sum = 0_u64;
        for (bound, count) in bounds().iter().map(f64::to_string).chain(["+Inf".to_owned()]).zip(times.counts()) {
            sum = sum.saturating_add(count);
            let labels = [labels, &[label("le", &bound)]].concat();
            self.sample(name, "_bucket", &labels, &sum);
        }
        self.sample(name, "_sum", labels, &times.sum().as_secs_f64());
        self.sample(name, "_count", labels, &sum);
    }

    fn sample(&mut self, name: &str, suffix: &str, labels: &[String], value: &dyn Display) {
        if labels.is_empty() {
            self.line(format_args!("{name}{suffix} {value}"));
        } else {
            self.line(format_args!("{name}{suffix}{{{}}} {value}", labels.join(",")));
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string can't fail.
        let _ = writeln!(self.0, "{line}");
    }
}

fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn metrics_encode_as_prometheus_text() {
        let families = [
            Family::new("a_total", "Counts.", Kind::Counter).with(&[], 7_u64),
            Family::new("b", "Quotes.", Kind::Gauge).with(&[("x", "1"), ("y", "\\ \" \n")], 0.5),
            Family::new("c", "None yet.", Kind::Gauge),
        ];
        let expected = "\
# HELP a_total Counts.
# TYPE a_total counter
a_total 7
# HELP b Quotes.
# TYPE b gauge
b{x=\"1\",y=\"\\\\ \\\" \\n\"} 0.5
# HELP c None yet.
# TYPE c gauge
";
        assert_eq!(prometheus(&families), expected);
    }

    #[test]
    fn buckets_are_cumulative() {
        let times = Histogram::default();
        [15, 15, 3_000, 20_000_000].map(Duration::from_micros).iter().for_each(|time| times.observe(*time));
        let page = prometheus(&[Family::new("t", "Times.", Kind::Histogram).with(&[("stage", "s")], &times)]);
        for line in [
            "t_bucket{stage=\"s\",le=\"0.00001\"} 0",
            "t_bucket{stage=\"s\",le=\"0.00002\"} 2",
            "t_bucket{stage=\"s\",le=\"0.002\"} 2",
            "t_bucket{stage=\"s\",le=\"0.005\"} 3",
            "t_bucket{stage=\"s\",le=\"10\"} 3",
            "t_bucket{stage=\"s\",le=\"+Inf\"} 4",
            "t_sum{stage=\"s\"} 20.00303",
            "t_count{stage=\"s\"} 4",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
        }
    }
}
