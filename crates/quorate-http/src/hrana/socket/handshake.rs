//! The handshake by which a request of HTTP becomes a WebSocket.

use hyper::header::{HeaderValue, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use hyper::{HeaderMap, Method};
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;

use crate::error::Problem;
use crate::message::{Answer, whole};

/// The subprotocols that are spoken, the best first. All have the same messages in JSON; the later versions have more
/// kinds of them.
const SUBPROTOCOLS: [&str; 3] = ["hrana3", "hrana2", "hrana1"];

/// Returns whether a request asks for a WebSocket.
pub(crate) fn is_asked_for<B>(request: &hyper::Request<B>) -> bool {
    let upgrade = request.headers().get(UPGRADE);
    request.method() == Method::GET && upgrade.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Returns the answer that makes a request a WebSocket.
pub(super) fn accept<B>(request: &hyper::Request<B>) -> Result<Answer, Problem> {
    let subprotocol = subprotocol(request.headers())?;
    let mut answer = create_response_with_body(request, || whole("")).map_err(|error| match error {
        Error::Protocol(ProtocolError::MissingSecWebSocketVersionHeader) => Problem::WebSocketVersion,
        error => Problem::malformed(error.to_string()),
    })?;
    if let Some(subprotocol) = subprotocol {
        answer.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(subprotocol));
    }
    Ok(answer)
}

/// Chooses a subprotocol. A client that names none gets none, and is taken to speak one of these.
fn subprotocol(headers: &HeaderMap) -> Result<Option<&'static str>, Problem> {
    let named = || headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let offers = |spoken: &str| named().flat_map(|names| names.split(',')).any(|name| name.trim() == spoken);
    match SUBPROTOCOLS.into_iter().find(|spoken| offers(spoken)) {
        None if headers.contains_key(SEC_WEBSOCKET_PROTOCOL) => {
            let text = format!("the subprotocols are {}, with JSON", SUBPROTOCOLS.join(", "));
            Err(Problem::malformed(text))
        }
        found => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use super::*;

    #[test]
    fn the_best_subprotocol_is_chosen() {
        for (named, chosen) in [
            (&[][..], Some(None)),
            (&["hrana2"], Some(Some("hrana2"))),
            (&["hrana3-protobuf, hrana1,hrana3 ,hrana2"], Some(Some("hrana3"))),
            (&["chat", "hrana1"], Some(Some("hrana1"))),
            (&["hrana3-protobuf"], None),
            (&[""], None),
        ] {
            let values = named.iter().map(|value| (SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_str(value).unwrap()));
            let mut headers = HeaderMap::new();
            values.for_each(|(name, value)| {
                headers.append(name, value);
            });
            assert_eq!(subprotocol(&headers).ok(), chosen, "{named:?}");
        }
    }
}
