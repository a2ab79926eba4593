//! Where side-cars put their archives: a directory on the measured disk, or a bucket of an S3 server that does not
//! check signatures, such as `moto_server`.
//!
//! All side-cars write LTX files (`*.ltx`), so their objects are counted in the same way.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use quorate_bench_harness::Result;

/// The credentials that such a server accepts, as any others.
pub const CREDENTIALS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "bench"), ("AWS_SECRET_ACCESS_KEY", "bench")];
/// The bucket. It is created.
const BUCKET: &str = "quorate-bench";
/// The maximum bytes of an answer.
const ANSWER_MAX: u64 = 16 << 20;

/// The place of the archives of one run.
pub enum Place {
    /// A directory.
    Directory(PathBuf),
    /// A prefix of the bucket, on the server at `HOST:PORT`.
    Bucket { server: String, prefix: String },
}

impl Place {
    /// Returns a new place: a directory below `dir`, or a prefix that no other run has.
    pub fn new(s3: Option<&str>, dir: &Path) -> Result<Self> {
        let Some(url) = s3 else {
            let archive = dir.join("archive");
            fs::create_dir(&archive)?;
            return Ok(Self::Directory(archive));
        };
        let server = url.strip_prefix("http://").ok_or_else(|| format!("{url} is not http://HOST:PORT"))?;
        let server = server.trim_end_matches('/').to_owned();
        request(&server, "PUT", &format!("/{BUCKET}"))?;
        let prefix = format!("{}", SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos());
        Ok(Self::Bucket { server, prefix })
    }

    /// Returns the URL of an archive, or of all of them if the name is empty.
    pub fn url(&self, name: &str) -> String {
        match self {
            Self::Directory(dir) => format!("file://{}", dir.join(name).display()),
            Self::Bucket { server, prefix } => {
                let path = format!("{prefix}/{name}");
                let path = path.trim_end_matches('/');
                format!("s3://{BUCKET}/{path}?endpoint=http://{server}&region=us-east-1")
            }
        }
    }

    /// Counts the LTX files.
    pub fn objects(&self) -> Result<usize> {
        match self {
            Self::Directory(dir) => files_below(dir),
            Self::Bucket { server, prefix } => objects_below(server, prefix),
        }
    }
}

fn files_below(dir: &Path) -> Result<usize> {
    let mut count = 0;
    for item in fs::read_dir(dir)? {
        let path = item?.path();
        if path.is_dir() {
            count += files_below(&path)?;
        } else {
            count += usize::from(path.extension().is_some_and(|end| end == "ltx"));
        }
    }
    Ok(count)
}

/// Lists the objects below a prefix, page by page.
fn objects_below(server: &str, prefix: &str) -> Result<usize> {
    let (mut count, mut after) = (0, String::new());
    loop {
        let page = request(server, "GET", &format!("/{BUCKET}?list-type=2&prefix={prefix}/&start-after={after}"))?;
        for object in page.split("<Contents>").skip(1) {
            text(object, "Key")?.clone_into(&mut after);
            count += usize::from(after.ends_with(".ltx"));
        }
        if text(&page, "IsTruncated")? != "true" {
            return Ok(count);
        }
    }
}

/// Returns the text of the first element with this name.
fn text<'a>(xml: &'a str, name: &str) -> Result<&'a str> {
    let found = xml.split_once(&format!("<{name}>")).and_then(|(_, rest)| rest.split_once("</"));
    Ok(found.ok_or_else(|| format!("the server's list has no {name}"))?.0)
}

/// Sends a request without a body, and returns the body of the answer.
fn request(server: &str, method: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(server)?;
    let head = format!("{method} {path} HTTP/1.0\r\nhost: {server}\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(body.to_owned()),
        _ => Err(format!("{method} {path}: the server answers {}", answer.lines().next().unwrap_or("nothing")).into()),
    }
}
