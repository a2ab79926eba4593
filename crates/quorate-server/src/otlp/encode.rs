//! The JSON encoding of OTLP messages. 64-bit numbers are strings, and ids are hexadecimal.

use std::time::Duration;

use quorate::metrics::{Metrics, WriteTrace};
use quorate_env::Rng;
use quorate_env::metrics::Histogram;
use serde_json::{Value as Json, json};

use crate::metrics::{Family, Kind, Sample, Value, bounds};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u8 = 2;

/// `SPAN_KIND_INTERNAL` and `SPAN_KIND_SERVER`.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;

/// The attributes of the node that sends.
pub(super) struct Resource(Json);

impl Resource {
    pub(super) fn of(metrics: &Metrics) -> Self {
        let status = &metrics.status;
        Self(json!({ "attributes": [
            text("service.name", "quorate"),
            text("service.version", metrics.version),
            text("service.instance.id", &status.node.to_string()),
            text("quorate.node", &status.name),
            text("quorate.cluster", &status.cluster.to_string()),
        ]}))
    }
}

fn text(key: &str, value: &str) -> Json {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn number(key: &str, value: u64) -> Json {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

fn scope() -> Json {
    json!({ "name": "quorate", "version": env!("CARGO_PKG_VERSION") })
}

/// Encodes all metrics, which count from `began`.
pub(super) fn metrics(resource: &Resource, families: &[Family], began: u64, now: u64) -> Json {
    let metrics: Vec<Json> = families.iter().map(|family| metric(family, began, now)).collect();
    json!({ "resourceMetrics": [{
        "resource": resource.0,
        "scopeMetrics": [{ "scope": scope(), "metrics": metrics }],
    }]})
}

fn metric(family: &Family, began: u64, now: u64) -> Json {
    let points: Vec<Json> = family.samples.iter().map(|sample| point(sample, began, now)).collect();
    let (name, data) = match family.kind {
        Kind::Gauge => ("gauge", json!({ "dataPoints": points })),
        Kind::Counter => {
            ("sum", json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true }))
        }
        Kind::Histogram => ("histogram", json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE })),
    };
    json!({ "name": family.name, "description": family.help, "unit": unit(family.name), name: data })
}

/// Derives the unit from the name of a metric.
fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    if name.ends_with("_seconds") {
        "s"
    } else if name.ends_with("_bytes") {
        "By"
    } else {
        "1"
    }
}

fn point(Sample { labels, value }: &Sample, began: u64, now: u64) -> Json {
    let attributes: Vec<Json> = labels.iter().map(|(name, value)| text(name, value)).collect();
    let mut point = json!({
        "attributes": attributes, "startTimeUnixNano": began.to_string(), "timeUnixNano": now.to_string(),
    });
    let measured = match value {
        Value::Count(count) => json!({ "asInt": count.to_string() }),
        Value::Number(number) => json!({ "asDouble": number }),
        Value::Times(times) => distribution(times),
    };
    if let (Some(point), Json::Object(measured)) = (point.as_object_mut(), measured) {
        point.extend(measured);
    }
    point
}

fn distribution(times: &Histogram) -> Json {
    json!({
        "count": times.count().to_string(),
        "sum": times.sum().as_secs_f64(),
        "bucketCounts": times.counts().map(|count| count.to_string()),
        "explicitBounds": bounds(),
    })
}

/// Encodes a span for each write, with a child span for each of its stages.
pub(super) fn traces<'a>(resource: &Resource, traces: impl IntoIterator<Item = &'a WriteTrace>, rng: &Rng) -> Json {
    let spans: Vec<Json> = traces.into_iter().flat_map(|trace| spans(trace, rng)).collect();
    json!({ "resourceSpans": [{
        "resource": resource.0,
        "scopeSpans": [{ "scope": scope(), "spans": spans }],
    }]})
}

fn spans(trace: &WriteTrace, rng: &Rng) -> Vec<Json> {
    let WriteTrace { queue, append, fsync, replicate, apply, .. } = *trace;
    let before = |end: u64, time: Duration| end.saturating_sub(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let end = trace.ended_unix_nanos;
    let committed = before(end, apply);
    let handed = before(committed, replicate);
    let proposed = before(handed, append);
    let arrived = before(proposed, queue);
    let synced = fsync.map(|time| handed.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)));

    let trace_id = format!("{:016x}{:016x}", rng.next_u64().max(1), rng.next_u64());
    let root = span_id(rng);
    let span = |id: &str, parent: &str, name: &str, kind: u8, (from, to): (u64, u64), attributes: Json| {
        json!({
            "traceId": trace_id, "spanId": id, "parentSpanId": parent, "name": name, "kind": kind,
            "startTimeUnixNano": from.to_string(), "endTimeUnixNano": to.to_string(), "attributes": attributes,
            "status": {},
        })
    };
    let about = json!([
        text("quorate.group", "main"),
        number("quorate.index", trace.index),
        number("quorate.batch", trace.batch),
    ]);
    let stages = [
        ("queue", Some((arrived, proposed))),
        ("append", Some((proposed, handed))),
        ("fsync", synced.map(|synced| (handed, synced))),
        ("replicate", Some((handed, committed))),
        ("apply", Some((committed, end))),
    ];
    let children = stages.into_iter().filter_map(|(name, times)| {
        Some(span(&span_id(rng), &root, &format!("quorate.write.{name}"), INTERNAL, times?, json!([])))
    });
    let children: Vec<Json> = children.collect();
    [span(&root, "", "quorate.write", SERVER, (arrived, end), about)].into_iter().chain(children).collect()
}

/// Draws the id of a span. An id of all zeros would be invalid.
fn span_id(rng: &Rng) -> String {
    format!("{:016x}", rng.next_u64().max(1))
}
