//! `quorate sidecar`: asks a running `quorate replicate`, over its control socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use quorate_backup::store::Location;
use quorate_env::net::{Net as _, UnixNet};
use quorate_env::timeout;
use quorate_http::client::{Call, exchange};
use serde_json::{Value, json};

use crate::backups::time;
use crate::error::{Context as _, Error, Result};
use crate::output;
use crate::replicate::control::TIMEOUT_MAX;

/// Where the control socket is if nothing else is said.
const SOCKET: &str = "/run/quorate/replicate.sock";

/// How much longer than the timeout of its request a command waits for the answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Options of `quorate sidecar`.
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub struct SidecarArgs {
    #[command(subcommand)]
    command: SidecarCommand,
}

#[derive(Debug, Subcommand)]
enum SidecarCommand {
    /// Show the databases: how far each is, where it goes, and what fails
    #[command(after_help = "Examples:
  quorate sidecar list
  quorate sidecar list --socket app.sock --json")]
    List(SocketArgs),
    /// Show the version, the process and since when it runs
    #[command(after_help = "Examples:
  quorate sidecar info --socket app.sock")]
    Info(SocketArgs),
    /// Archive at once what has changed
    Sync(SyncArgs),
    /// Archive what has changed, and let go of the database
    #[command(after_help = "Examples:
  quorate sidecar stop app.db
  quorate sidecar stop app.db --timeout 2min --socket app.sock

Until it is started again, nothing is archived, and the database can be moved or deleted.")]
    Stop(TimedArgs),
    /// Archive a database again that was stopped or that fails
    #[command(after_help = "Examples:
  quorate sidecar start app.db --socket app.sock")]
    Start(NamedArgs),
    /// Archive one more database, until the process ends
    Register(RegisterArgs),
    /// Archive what has changed in a database, and forget it until the process ends
    #[command(after_help = "Examples:
  quorate sidecar unregister tenant.db --socket app.sock

Its archive stays. No configuration is changed, so the next start archives a database again that is in one.")]
    Unregister(TimedArgs),
}

#[derive(Args, Debug)]
struct SocketArgs {
    /// The socket that `quorate replicate --socket` names
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct NamedArgs {
    #[command(flatten)]
    socket: SocketArgs,
    /// The database
    database: PathBuf,
}

#[derive(Args, Debug)]
struct TimedArgs {
    #[command(flatten)]
    named: NamedArgs,
    /// How long to wait: a number with s or min, up to 5min
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = limit)]
    timeout: Duration,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  quorate sidecar sync app.db
  quorate sidecar sync app.db --wait --timeout 2min --socket app.sock

After --wait, everything is in the store that was committed before, and can be restored.")]
struct SyncArgs {
    #[command(flatten)]
    timed: TimedArgs,
    /// Wait until everything is in the store that is committed now
    #[arg(long)]
    wait: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  quorate sidecar register tenant.db 's3://my-bucket/tenant?region=eu-central-1'
  quorate sidecar register tenant.db file:///mnt/tenant --socket app.sock

No configuration is changed, so the next start does not archive it. Credentials are those of the process.")]
struct RegisterArgs {
    #[command(flatten)]
    named: NamedArgs,
    /// s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or a directory
    url: String,
}

/// Runs the command.
pub async fn run(args: &SidecarArgs) -> Result<()> {
    match &args.command {
        SidecarCommand::List(args) => args.show(args.ask("/list", None, Duration::ZERO).await?, list),
        SidecarCommand::Info(args) => args.show(args.ask("/info", None, Duration::ZERO).await?, info),
        SidecarCommand::Sync(args) => {
            let TimedArgs { named, timeout } = &args.timed;
            named.ask("/sync", json!({"wait": args.wait, "timeout": timeout.as_secs_f64()}), *timeout).await
        }
        SidecarCommand::Stop(args) => args.ask("/stop").await,
        SidecarCommand::Start(args) => args.ask("/start", json!({}), Duration::ZERO).await,
        SidecarCommand::Register(args) => {
            let url = match Location::is_url(&args.url) {
                true => args.url.clone(),
                false => absolute(Path::new(&args.url))?,
            };
            args.named.ask("/register", json!({"url": url}), Duration::ZERO).await
        }
        SidecarCommand::Unregister(args) => args.ask("/unregister").await,
    }
}

impl TimedArgs {
    async fn ask(&self, path: &str) -> Result<()> {
        self.named.ask(path, json!({"timeout": self.timeout.as_secs_f64()}), self.timeout).await
    }
}

impl NamedArgs {
    /// Asks for something about the database that takes up to `limit`, and shows the answer.
    async fn ask(&self, path: &str, mut body: Value, limit: Duration) -> Result<()> {
        if let Some(body) = body.as_object_mut() {
            body.insert("path".to_owned(), absolute(&self.database)?.into());
        }
        self.socket.show(self.socket.ask(path, Some(body), limit).await?, done)
    }
}

impl SocketArgs {
    /// Asks for something that takes up to `limit`, and returns the answer.
    async fn ask(&self, path: &str, body: Option<Value>, limit: Duration) -> Result<Value> {
        let socket = self.socket.display();
        let nobody = |error: std::io::Error| {
            let text = format!("no `quorate replicate` listens at {socket} ({error}): start it with --socket {socket}");
            Error::caused(text, error)
        };
        let asked = async {
            let stream = UnixNet::default().connect(&socket.to_string()).await.map_err(nobody)?;
            let call = Call { host: "localhost", path, json: body.map(|body| body.to_string()) };
            exchange(stream, call, ANSWER_BYTES_MAX).await.context(|| format!("{socket} does not answer"))
        };
        let limit = limit.saturating_add(ANSWER_MAX);
        let late = |_| Error::new(format!("{socket} did not answer within {limit:?}: ask again"));
        let (code, bytes) = timeout(limit, asked).await.map_err(late)??;
        let answer: Value = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        match answer.get("error").and_then(Value::as_str) {
            Some(error) if !code.is_success() => Err(Error::new(error)),
            None if code.is_success() && answer.is_object() => Ok(answer),
            _ => Err(Error::new(format!("{socket} answers {code}: is it the socket of `quorate replicate`?"))),
        }
    }

    fn show(&self, answer: Value, text: fn(&Value) -> String) -> Result<()> {
        let text = if self.json { format!("{answer:#}\n") } else { text(&answer) };
        output::print(&text)
    }
}

fn list(answer: &Value) -> String {
    let databases = answer.get("databases").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let line = |database: &Value| {
        let text = |key: &str| database.get(key).and_then(Value::as_str).unwrap_or_default();
        let lag = database.get("lag_seconds").and_then(Value::as_f64).unwrap_or_default();
        let error = database.get("error").and_then(Value::as_str);
        let error = error.map_or_else(String::new, |error| format!("  {error}\n"));
        let (path, state, at) = (text("path"), text("state"), number(database, "replicated_txid"));
        format!("{path}  {state}, boundary {at}, {lag:.1} s behind  {}\n{error}", text("url"))
    };
    databases.iter().map(line).collect()
}

fn info(answer: &Value) -> String {
    let version = answer.get("version").and_then(Value::as_str).unwrap_or_default();
    let [pid, uptime, databases] = ["pid", "uptime_seconds", "databases"].map(|key| number(answer, key));
    format!("version {version}, process {pid}, {databases} databases, up for {uptime} s\n")
}

fn done(answer: &Value) -> String {
    let status = answer.get("status").and_then(Value::as_str).unwrap_or_default();
    let at = number(answer, "replicated_txid");
    match status {
        "synced" => format!("boundary {at} is in the store\n"),
        "no_change" => format!("nothing has changed since boundary {at}, which is in the store\n"),
        "requested" => format!("asked for; boundary {at} was in the store before\n"),
        status => format!("{}\n", status.replace('_', " ")),
    }
}

fn number(answer: &Value, key: &str) -> u64 {
    answer.get(key).and_then(Value::as_u64).unwrap_or_default()
}

fn absolute(path: &Path) -> Result<String> {
    let absolute = std::path::absolute(path).context(|| format!("{} is no path", path.display()))?;
    Ok(absolute.display().to_string())
}

/// Parses how long to wait.
fn limit(text: &str) -> Result<Duration, String> {
    let limit = time(text).map_err(|error| error.to_string())?;
    match limit.is_zero() || limit > TIMEOUT_MAX {
        true => Err(format!("must be up to {TIMEOUT_MAX:?}")),
        false => Ok(limit),
    }
}
