//! A stand-in for S3, and what its clients need: credentials, and keys of age.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::servers::free_ports;
use super::{quorate, wait_until};

/// An identity of age, and its recipient. They protect nothing.
pub const IDENTITY: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
pub const RECIPIENT: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";

pub const BUCKET: &str = "quorate-tests";
pub const SECRET: &str = "hush-hush";

/// The stand-in for S3, as a process.
pub struct Moto {
    process: Child,
    pub port: u16,
}

impl Moto {
    /// Starts it with a bucket; `None` if it is not installed.
    pub fn start() -> Option<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let installed = std::env::var_os("QUORATE_STORES").map_or_else(|| target.join("stores"), PathBuf::from);
        let program = installed.join("bin/moto_server");
        if !program.exists() {
            assert!(std::env::var_os("CI").is_none(), "{} is missing: run .ci/stores", program.display());
            eprintln!("skipped: the stand-in for S3 is not installed; .ci/stores installs it");
            return None;
        }
        let port = free_ports(1)[0];
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        let moto = Self { process: command.spawn().unwrap(), port };
        wait_until("the stand-in for S3", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let created = http(port, &format!("PUT /{BUCKET} HTTP/1.1"), "content-length: 0\r\n");
        assert!(created.starts_with("HTTP/1.1 200"), "{created}");
        Some(moto)
    }

    pub fn url(&self, bucket: &str) -> String {
        url(bucket, self.port)
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the URL of a bucket in a store at this port.
pub fn url(bucket: &str, port: u16) -> String {
    format!("s3://{bucket}/nightly?endpoint=http://127.0.0.1:{port}&region=us-east-1")
}

/// Sends a request, and returns the whole answer.
pub fn http(port: u16, request: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "{request}\r\nhost: 127.0.0.1\r\nconnection: close\r\n{headers}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A directory with keys and credentials.
pub struct Kit {
    pub dir: TempDir,
}

impl Kit {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("identity"), format!("{IDENTITY}\n")).unwrap();
        let credentials = format!("# of nobody\nAWS_ACCESS_KEY_ID=someone\nAWS_SECRET_ACCESS_KEY={SECRET}\n");
        std::fs::write(dir.path().join("credentials"), credentials).unwrap();
        Self { dir }
    }

    pub fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// Returns what the doctor says of a node with these keys of `[backup]`, each finding in one line.
    pub fn doctor(&self, keys: &str) -> String {
        let config = self.path("node.toml");
        std::fs::write(&config, format!("data_dir = 'data'\n[backup]\n{keys}\n")).unwrap();
        let output = quorate(&["doctor", "--config", &config]);
        String::from_utf8(output.stdout).unwrap().replace(&format!("\n{:24}", ""), " ")
    }
}
