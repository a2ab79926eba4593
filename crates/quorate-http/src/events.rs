//! Events: `POST /v1/events` adds one, `GET /v1/events` sends them as they come, as Server-Sent Events.
//!
//! Invariants:
//! - A listener gets each event once and in order. One that connects again with the id of the last event that it got
//!   (`Last-Event-ID`, as browsers do) misses nothing; if the store has removed some of them, it gets a message `gap`.
//! - An answer asks for events only as fast as its client reads. A client that does not read loses its connection.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, Either, StreamBody};
use hyper::body::Frame;
use hyper::{Method, StatusCode};
use quorate::events::{Event, EventId, ListenError, Listener};
use quorate_env::{sleep, timeout};
use serde_json::json;

use crate::error::Problem;
use crate::json::BASE64;
use crate::message::{Answer, AnswerBody, Content, Request, answer, answer_with, with_position};
use crate::work::Work;

/// The path of the endpoint.
pub(crate) const PATH: &str = "/v1/events";

/// How often something is sent while there are no events, so that neither end takes the connection for broken.
const BEAT: Duration = Duration::from_secs(15);

/// The pause before the cluster is asked again after it could not answer.
const PAUSE: Duration = Duration::from_millis(500);

/// The header by which a client that connects again says which event it got last.
const LAST_EVENT_ID: &str = "last-event-id";

/// Answers a request.
pub(crate) async fn serve(mut work: Work, request: &Request) -> Result<Answer, Problem> {
    if request.method == Method::POST {
        let (id, position) = work.notify(channel(request)?, request.body.clone()).await?;
        let body = json!({ "id": id.to_string() }).to_string();
        return Ok(with_position(answer(StatusCode::OK, Content::Json, body), Some(position)));
    }
    let mut listener = listener(&work, request)?;
    let begun = listener.begin().await?;
    Ok(answer_with(StatusCode::OK, Content::Events, messages(listener, begun)))
}

fn channel(request: &Request) -> Result<String, Problem> {
    let mut channels = request.parameters().filter(|(name, _)| name == "channel");
    match (channels.next(), channels.next()) {
        (Some((_, channel)), None) => Ok(channel),
        _ => Err(Problem::malformed("name one channel, as in ?channel=orders")),
    }
}

fn listener(work: &Work, request: &Request) -> Result<Listener, Problem> {
    let (mut channels, mut patterns, mut after) = (Vec::new(), Vec::new(), None);
    for (name, value) in request.parameters() {
        match name.as_str() {
            "channel" => channels.push(value),
            "pattern" => patterns.push(value),
            "after" => after = Some(value),
            _ => return Err(Problem::malformed(format!("{name}: the parameters are channel, pattern and after"))),
        }
    }
    if channels.is_empty() && patterns.is_empty() {
        return Err(Problem::malformed("name channels or patterns, as in ?channel=orders or ?pattern=*"));
    }
    if let Some(last) = request.headers.get(LAST_EVENT_ID) {
        after = Some(String::from_utf8_lossy(last.as_bytes()).into_owned());
    }
    let listener = work.sql().events().listen(channels).patterns(patterns);
    let Some(after) = after.filter(|after| !after.is_empty()) else { return Ok(listener) };
    let after: EventId = after.parse().map_err(|error| Problem::malformed(format!("{after}: {error}")))?;
    Ok(listener.after(after))
}

/// The messages to a listener, each asked for when the one before it was sent.
fn messages(listener: Listener, begun: EventId) -> AnswerBody {
    let messages = stream::unfold((listener, Some(begun)), |(mut listener, begun)| async move {
        let message = match begun {
            // So that a client that connects again goes on here, though it got no event.
            Some(begun) => format!("id: {begun}\n\n"),
            None => next(&mut listener).await?,
        };
        Some((Ok::<_, io::Error>(Frame::data(Bytes::from(message))), (listener, None)))
    });
    Either::Right(StreamBody::new(messages).boxed_unsync())
}

/// Returns the next message; none if the listener has to connect again.
async fn next(listener: &mut Listener) -> Option<String> {
    loop {
        match timeout(BEAT, listener.next()).await {
            Ok(Ok(event)) => return Some(message(&event)),
            Ok(Err(ListenError::Gap { oldest })) => {
                return Some(format!("event: gap\ndata: {}\n\n", json!({ "oldest": oldest.to_string() })));
            }
            Ok(Err(error)) if error.is_retryable() => sleep(PAUSE).await,
            Ok(Err(_)) => return None,
            Err(_) => {
                let position = listener.position().unwrap_or_default();
                return Some(format!("id: {position}\n\n"));
            }
        }
    }
}

/// Returns the message of an event. What is not UTF-8 is in base64.
fn message(event: &Event) -> String {
    use base64::Engine as _;
    let data = match std::str::from_utf8(&event.payload) {
        Ok(payload) => json!({ "channel": event.channel, "payload": payload }),
        Err(_) => json!({ "channel": event.channel, "base64": BASE64.encode(&event.payload) }),
    };
    format!("id: {}\ndata: {data}\n\n", event.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_event_of_a_browser() {
        let event = |payload: &'static [u8]| Event {
            id: EventId::new(7, 1),
            channel: "a\"b".to_owned(),
            payload: Bytes::from_static(payload),
        };
        let text = message(&event(b"two\nlines"));
        assert_eq!(text, "id: 7-1\ndata: {\"channel\":\"a\\\"b\",\"payload\":\"two\\nlines\"}\n\n");
        let blob = message(&event(&[0, 255]));
        assert_eq!(blob, "id: 7-1\ndata: {\"base64\":\"AP8\",\"channel\":\"a\\\"b\"}\n\n");
    }
}
