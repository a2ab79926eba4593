//! A connection to a port for Redis' clients, which shows replies as they are.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use quorate_resp::differential::Value;
use quorate_resp::{Frame, Protocol};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Result;

/// How long a reply may take.
const REPLY_MAX: Duration = Duration::from_secs(60);

/// An open connection. After an error, or after a call that was dropped, it must not be used again: replies may be
/// missing, or may still come.
pub struct Connection {
    stream: TcpStream,
    read: BytesMut,
}

impl Connection {
    /// Connects to the port at this address.
    pub async fn to(addr: &str) -> Result<Self> {
        Ok(Self { stream: TcpStream::connect(addr).await?, read: BytesMut::new() })
    }

    /// Sends requests together, and returns their replies.
    pub async fn ask(&mut self, requests: &[Vec<Bytes>]) -> Result<Vec<Value>> {
        let mut bytes = BytesMut::new();
        for request in requests {
            Frame::bulks(request.iter().cloned()).write(Protocol::Two, &mut bytes);
        }
        self.stream.write_all(&bytes).await?;
        let mut values = Vec::new();
        while values.len() < requests.len() {
            if let Some((value, read)) = Value::read(&self.read)? {
                values.push(value);
                drop(self.read.split_to(read));
            } else if timeout(REPLY_MAX, self.stream.read_buf(&mut self.read)).await?? == 0 {
                return Err(format!("the connection ended after {} of {} replies", values.len(), requests.len()).into());
            }
        }
        Ok(values)
    }
}

/// Returns a request with these words.
pub fn request(text: &str) -> Vec<Bytes> {
    text.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
}
