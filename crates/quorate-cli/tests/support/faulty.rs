//! A proxy in front of a store, through which requests go wrong.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const HEAD_BYTES_MAX: usize = 64 << 10;
/// A slow answer comes in so many pieces, with a pause before each.
const PIECES: usize = 8;
const PAUSE: Duration = Duration::from_millis(100);

/// What happens to each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is carried out and answered.
    None,
    /// Its connection is closed before it is carried out.
    Closed,
    /// It is not carried out, and answered with this status and code of S3.
    Refused(u16, &'static str),
    /// It is carried out, and answered with this status and code of S3.
    Disowned(u16, &'static str),
    /// It is carried out, and never answered.
    Unanswered,
    /// It is carried out, and the answer ends in the middle.
    Cut,
    /// It is carried out, and the answer takes its time.
    Slow,
}

/// The running proxy. Its threads end with the test.
pub struct Faulty {
    pub port: u16,
    shared: Arc<Shared>,
}

/// What the threads of the proxy share.
struct Shared {
    fault: Mutex<Fault>,
    /// The connections that are served.
    served: AtomicUsize,
    /// How many requests have gone wrong.
    spoiled: AtomicUsize,
    /// The bytes of the answers that were sent as a whole.
    sent: AtomicU64,
}

impl Faulty {
    /// Starts it in front of the store at this port.
    pub fn start(store: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (served, spoiled, sent) = Default::default();
        let shared = Arc::new(Shared { fault: Mutex::new(Fault::None), served, spoiled, sent });
        let faulty = Self { port, shared: Arc::clone(&shared) };
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                shared.served.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    // The client may close its connection at any moment.
                    let _ = serve(client, store, &shared);
                    shared.served.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        faulty
    }

    /// What happens to requests that arrive from now on.
    pub fn set(&self, fault: Fault) {
        *self.shared.fault.lock().unwrap() = fault;
    }

    /// Returns how many bytes of whole answers were sent so far.
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::SeqCst)
    }

    /// Whether no connection is served.
    pub fn is_idle(&self) -> bool {
        self.shared.served.load(Ordering::SeqCst) == 0
    }

    /// Returns how many requests have gone wrong so far.
    pub fn spoiled(&self) -> usize {
        self.shared.spoiled.load(Ordering::SeqCst)
    }
}

/// Serves one request of a client, and closes the connection.
fn serve(mut client: TcpStream, store: u16, shared: &Shared) -> io::Result<()> {
    let Some(request) = read_request(&mut client)? else { return Ok(()) };
    let fault = *shared.fault.lock().unwrap();
    if fault != Fault::None {
        shared.spoiled.fetch_add(1, Ordering::SeqCst);
    }
    let answer = match fault {
        Fault::Closed => return client.shutdown(Shutdown::Both),
        Fault::Refused(..) => Vec::new(),
        _ => forward(store, &request)?,
    };
    match fault {
        Fault::None | Fault::Closed => client.write_all(&answer)?,
        Fault::Refused(status, code) | Fault::Disowned(status, code) => client.write_all(&error(status, code))?,
        // Until the client gives up.
        Fault::Unanswered => drop(client.read(&mut [0])?),
        Fault::Cut => client.write_all(&answer[..answer.len() / 2])?,
        Fault::Slow => {
            for piece in answer.chunks(answer.len().div_ceil(PIECES)) {
                thread::sleep(PAUSE);
                client.write_all(piece)?;
            }
        }
    }
    shared.sent.fetch_add(answer.len() as u64, Ordering::SeqCst);
    client.shutdown(Shutdown::Both)
}

/// Reads a request with its body. `None` if the client ends before one.
fn read_request(client: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let (mut request, mut buffer) = (Vec::new(), [0; 16 << 10]);
    let mut length = None;
    while length.is_none_or(|length| request.len() < length) {
        let read = client.read(&mut buffer)?;
        if read == 0 {
            return Ok(None);
        }
        request.extend_from_slice(&buffer[..read]);
        if length.is_none()
            && let Some(head) = request.windows(4).position(|window| window == b"\r\n\r\n")
        {
            let text = String::from_utf8_lossy(&request[..head]).to_lowercase();
            let body = text.lines().find_map(|line| line.strip_prefix("content-length:"));
            length = Some(head + 4 + body.map_or(0, |body| body.trim().parse().unwrap()));
        }
        assert!(length.is_some() || request.len() < HEAD_BYTES_MAX, "no end of the request's head");
    }
    Ok(Some(request))
}

/// Sends a request to the store, and returns its answer.
fn forward(store: u16, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", store))?;
    let line = request.windows(2).position(|window| window == b"\r\n").unwrap() + 2;
    stream.write_all(&request[..line])?;
    stream.write_all(b"connection: close\r\n")?;
    stream.write_all(&request[line..])?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

fn error(status: u16, code: &str) -> Vec<u8> {
    let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>as told</Message></Error>");
    let head = format!("HTTP/1.1 {status} as told\r\nconnection: close\r\ncontent-type: application/xml\r\n");
    format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}
