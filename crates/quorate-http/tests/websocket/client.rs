//! A plain client of Hrana over WebSocket.

use futures_util::{SinkExt as _, StreamExt as _};
use quorate_http::Port;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::common::PATIENCE;

/// A plain client.
pub struct Client {
    pub socket: WebSocketStream<TcpStream>,
    pub subprotocol: Option<String>,
    pub last_id: i32,
}

/// A message from the server.
#[derive(Debug, PartialEq)]
pub enum Heard {
    Said(Value),
    Closed(CloseCode, String),
    Gone,
}

impl Client {
    /// Connects; returns the status if the server refuses.
    pub async fn try_connect(port: &Port, path: &str, headers: &[(&'static str, &str)]) -> Result<Self, u16> {
        let mut request = format!("ws://{}{path}", port.local_addr()).into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let stream = TcpStream::connect(port.local_addr()).await.unwrap();
        match client_async(request, stream).await {
            Ok((socket, answer)) => {
                let subprotocol = answer.headers().get("sec-websocket-protocol");
                let subprotocol = subprotocol.map(|name| name.to_str().unwrap().to_owned());
                Ok(Self { socket, subprotocol, last_id: 0 })
            }
            Err(Error::Http(answer)) => Err(answer.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    pub async fn connect(port: &Port) -> Self {
        Self::try_connect(port, "/", &[("sec-websocket-protocol", "hrana3")]).await.unwrap()
    }

    /// Connects and says hello.
    pub async fn greeted(port: &Port, token: Option<&str>) -> Self {
        let mut client = Self::connect(port).await;
        assert_eq!(client.hello(token).await, Heard::Said(json!({ "type": "hello_ok" })));
        client
    }

    /// Connects, says hello, and opens the stream 1.
    pub async fn with_stream(port: &Port, token: Option<&str>) -> Self {
        let mut client = Self::greeted(port, token).await;
        client.ok(json!({ "type": "open_stream", "stream_id": 1 })).await;
        client
    }

    pub async fn say(&mut self, message: impl Into<Message>) {
        self.socket.send(message.into()).await.unwrap();
    }

    pub async fn hear(&mut self) -> Heard {
        loop {
            let heard = tokio::time::timeout(PATIENCE, self.socket.next()).await.unwrap();
            return match heard {
                Some(Ok(Message::Text(text))) => Heard::Said(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(Some(frame)))) => Heard::Closed(frame.code, frame.reason.to_string()),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                Some(Ok(other)) => panic!("{other}"),
                Some(Err(_)) | None => Heard::Gone,
            };
        }
    }

    pub async fn hello(&mut self, token: Option<&str>) -> Heard {
        self.say(json!({ "type": "hello", "jwt": token }).to_string()).await;
        self.hear().await
    }

    /// Sends a request; returns its id.
    pub async fn ask(&mut self, request: &Value) -> i32 {
        self.last_id += 1;
        self.say(json!({ "type": "request", "request_id": self.last_id, "request": request }).to_string()).await;
        self.last_id
    }

    /// Returns the next answer: its id, and the response or the code of the error.
    pub async fn answer(&mut self) -> (i64, Result<Value, String>) {
        let Heard::Said(said) = self.hear().await else { panic!("no answer") };
        let answer = match said["type"].as_str().unwrap() {
            "response_ok" => Ok(said["response"].clone()),
            "response_error" => Err(said["error"]["code"].as_str().unwrap().to_owned()),
            other => panic!("{other}"),
        };
        (said["request_id"].as_i64().unwrap(), answer)
    }

    /// Sends a request and waits for its answer.
    pub async fn get(&mut self, request: Value) -> Result<Value, String> {
        let id = self.ask(&request).await;
        let (found, answer) = self.answer().await;
        assert_eq!(found, i64::from(id));
        answer
    }

    pub async fn ok(&mut self, request: Value) -> Value {
        let kind = request["type"].clone();
        let response = self.get(request).await.unwrap();
        assert_eq!(response["type"], kind);
        response
    }

    /// Runs a statement on the stream 1.
    pub async fn run(&mut self, sql: &str) -> Result<Value, String> {
        self.get(execute(1, sql)).await.map(|mut response| response["result"]["rows"].take())
    }
}

/// A request to execute a statement on a stream.
pub fn execute(stream_id: i32, sql: &str) -> Value {
    json!({ "type": "execute", "stream_id": stream_id, "stmt": { "sql": sql } })
}
