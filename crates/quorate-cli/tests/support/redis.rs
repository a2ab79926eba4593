//! A client of Redis' protocol that shows replies as they are.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use quorate_resp::differential::Value;
use quorate_resp::{Frame, Protocol};

use super::wait_until;

/// How long a reply may take.
const REPLY_TIME_MAX: Duration = Duration::from_secs(60);

/// A connection.
pub struct Redis {
    pub stream: TcpStream,
    read: BytesMut,
}

impl Redis {
    /// Connects to a node. One that has just started opens this port last.
    pub fn connect(addr: &str) -> Self {
        let mut client = None;
        wait_until("a port for the clients of Redis", || {
            client = Self::try_connect(addr).ok();
            client.is_some()
        });
        client.unwrap()
    }

    /// Connects to a node, and waits until the cluster has keys, which follows its founding.
    pub fn connect_ready(addr: &str) -> Self {
        let mut client = Self::connect(addr);
        wait_until("keys", || client.ask("SET ready 1") == "+OK");
        client
    }

    pub fn try_connect(addr: &str) -> std::io::Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_read_timeout(Some(REPLY_TIME_MAX))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: BytesMut::new() })
    }

    /// Sends requests, written as lines of words, without waiting for the replies.
    pub fn send(&mut self, requests: &str) -> std::io::Result<()> {
        let mut bytes = BytesMut::new();
        for line in requests.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes()));
            Frame::bulks(words).write(Protocol::Two, &mut bytes);
        }
        self.stream.write_all(&bytes)
    }

    /// Sends one request, whose words may have spaces, and returns its reply.
    pub fn call(&mut self, words: &[&str]) -> String {
        self.try_call(words).unwrap().to_string()
    }

    pub fn try_call(&mut self, words: &[&str]) -> std::io::Result<Value> {
        let mut bytes = BytesMut::new();
        Frame::bulks(words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes()))).write(Protocol::Two, &mut bytes);
        self.stream.write_all(&bytes)?;
        self.reply()
    }

    /// Returns the next reply; an error if the connection has ended.
    pub fn reply(&mut self) -> std::io::Result<Value> {
        loop {
            if let Some((value, read)) = Value::read(&self.read).unwrap() {
                drop(self.read.split_to(read));
                return Ok(value);
            }
            let mut buffer = [0; 16 << 10];
            let read = self.stream.read(&mut buffer)?;
            if read == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            self.read.extend_from_slice(&buffer[..read]);
        }
    }

    /// Sends requests together, and returns their replies, with spaces between them.
    pub fn ask(&mut self, requests: &str) -> String {
        self.send(requests).unwrap();
        let count = requests.lines().filter(|line| !line.trim().is_empty()).count();
        let replies: Vec<String> = (0..count).map(|_| self.reply().unwrap().to_string()).collect();
        replies.join(" ")
    }
}
