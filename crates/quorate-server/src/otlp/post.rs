//! Sends requests to the collector, one at a time. Each has a connection of its own, because requests are rare.

use std::fmt;
use std::time::Duration;

use hyper::{StatusCode, Uri};
use quorate_env::{Env, timeout};
use quorate_http::client::{Call, ExchangeError, exchange};
use serde_json::Value;

use super::OtlpError;

/// The default port for OTLP over HTTP.
const PORT_DEFAULT: u16 = 4318;

/// The time limit for one request, including connecting.
const POST_TIME_MAX: Duration = Duration::from_secs(5);

/// The maximum size of an answer's body that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The address of a collector.
pub(super) struct Collector {
    env: Env,
    addr: String,
    /// The path that precedes the paths of OTLP.
    path: String,
}

/// Why a delivery failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum PostError {
    #[error("the collector can't be reached: {0}")]
    Connect(#[from] std::io::Error),
    #[error(transparent)]
    Http(#[from] ExchangeError),
    #[error("the collector did not answer in time")]
    Slow(#[from] quorate_env::Elapsed),
    #[error("the collector answered {0}")]
    Refused(StatusCode),
}

impl Collector {
    pub(super) fn new(env: &Env, endpoint: &str) -> Result<Self, OtlpError> {
        let wrong = |why| OtlpError::Endpoint { endpoint: endpoint.to_owned(), why };
        let uri: Uri = endpoint.parse().map_err(|_| wrong("is not a URL"))?;
        if uri.scheme_str() != Some("http") {
            return Err(wrong("does not use the scheme http"));
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("has no host"))?;
        let addr = format!("{host}:{}", uri.port_u16().unwrap_or(PORT_DEFAULT));
        Ok(Self { env: env.clone(), addr, path: uri.path().trim_end_matches('/').to_owned() })
    }

    /// Delivers a message to a path of OTLP.
    pub(super) async fn post(&self, path: &str, message: Value) -> Result<(), PostError> {
        let path = format!("{}{path}", self.path);
        let call = Call { host: &self.addr, path: &path, json: Some(message.to_string()) };
        let code = timeout(POST_TIME_MAX, self.exchange(call)).await??;
        if code.is_success() { Ok(()) } else { Err(PostError::Refused(code)) }
    }

    async fn exchange(&self, call: Call<'_>) -> Result<StatusCode, PostError> {
        let stream = self.env.net().connect(&self.addr).await?;
        // The body has no use; it is only read to complete the exchange. An oversized body is not an error either.
        Ok(exchange(stream, call, ANSWER_BYTES_MAX).await?.0)
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.addr, self.path)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use super::*;

    #[test]
    fn an_endpoint_has_a_host_and_optional_port_and_path() {
        let shown = |endpoint| Collector::new(&Env::real(), endpoint).map(|collector| collector.to_string());
        assert_eq!(shown("http://collector").unwrap(), "http://collector:4318");
        assert_eq!(shown("http://10.0.0.1:9/otlp/").unwrap(), "http://10.0.0.1:9/otlp");
        assert_eq!(shown("http://[::1]:9").unwrap(), "http://[::1]:9");
        for wrong in ["", "collector:4318", "https://collector:4318", "http://", "http:///v1", "a b"] {
            let error = shown(wrong).unwrap_err();
            assert!(error.to_string().contains("http://host:port") && !error.is_retryable(), "{error}");
        }
    }
}
