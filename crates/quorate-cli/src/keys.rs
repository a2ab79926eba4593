//! `quorate keys`: reads and changes keys by hand. The printing is that of `quorate-shell`.

use std::ffi::OsString;
use std::io::{Read as _, stdin};
use std::os::unix::ffi::OsStringExt as _;
use std::time::Duration;

use clap::{Args, Subcommand, value_parser};
use quorate::keys::{Condition, Kind, Space, Version, limits};
use quorate_shell::keys::Action;
use quorate_shell::{Connection, Options, Shell};

use crate::access::Access;
use crate::error::{Context as _, Error, Result};
use crate::options::{AccessArgs, PrintArgs, time};

/// Options of `quorate keys`.
#[derive(Args, Debug)]
pub struct KeysArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: KeysCommand,
}

/// What to do with keys.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// List keys in the order of their bytes
    #[command(
        visible_alias = "list",
        after_help = "Examples:
  quorate keys ls                       all keys of space 0
  quorate keys ls user: --type hash     the hashes whose names start with 'user:'"
    )]
    Ls(LsArgs),
    /// Print what a key holds: a string, or the elements of a hash, a set, a sorted set or a list
    #[command(after_help = "Examples:
  quorate keys get user:7               a table of its fields and values
  quorate keys get logo --raw > l.png   the bytes of a string as they are
  quorate keys get queue --json         the items of a list as JSON")]
    Get(GetArgs),
    /// Set a key to a string, whatever it holds
    #[command(after_help = "Examples:
  quorate keys set greeting hello --ttl 1h
  quorate keys set leader a --if-missing    it fails if the key exists
  quorate keys set logo - < l.png           the bytes of standard input")]
    Set(SetArgs),
    /// Remove keys, whatever they hold
    #[command(
        visible_alias = "rm",
        after_help = "Example:
  quorate keys del greeting user:7"
    )]
    Del(DelArgs),
    /// Show the type, the version and the expiry of a key, or change its expiry
    #[command(after_help = "Examples:
  quorate keys ttl greeting             type, version, and the seconds until it expires
  quorate keys ttl greeting 5m          it expires in five minutes
  quorate keys ttl greeting never       it no longer expires")]
    Ttl(TtlArgs),
}

/// Options that all commands share.
#[derive(Args, Debug)]
pub struct CommonArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// The space, from 0 to 7: a "database" in the words of Redis
    #[arg(long, default_value_t = 0, value_parser = value_parser!(u32).range(0..i64::from(limits::SPACES)))]
    pub space: Space,
}

/// Options of commands that read.
#[derive(Args, Debug)]
pub struct ReadArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(flatten)]
    pub print: PrintArgs,
}

/// Options of `quorate keys ls`.
#[derive(Args, Debug)]
pub struct LsArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Only keys that hold this: string, hash, set, 'sorted set' or list
    #[arg(long = "type", value_name = "TYPE", value_parser = kind)]
    pub kind: Option<Kind>,
    /// Only keys that start with this
    #[arg(value_name = "PREFIX", default_value = "")]
    pub prefix: OsString,
}

/// Options of `quorate keys get`.
#[derive(Args, Debug)]
pub struct GetArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Write the bytes of a string as they are
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
    /// The key
    #[arg(value_name = "KEY")]
    pub key: OsString,
}

/// Options of `quorate keys set`.
#[derive(Args, Debug)]
pub struct SetArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// After which time it expires, such as 5m, 1h30m, or a number of seconds [default: never]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub ttl: Option<Duration>,
    /// Fail if the key exists
    #[arg(long, conflicts_with_all = ["if_exists", "if_version"])]
    pub if_missing: bool,
    /// Fail unless the key exists
    #[arg(long, conflicts_with = "if_version")]
    pub if_exists: bool,
    /// Fail unless the key has this version, which `quorate keys ttl` shows
    #[arg(long, value_name = "VERSION")]
    pub if_version: Option<u64>,
    /// The key
    #[arg(value_name = "KEY")]
    pub key: OsString,
    /// The string; `-` is standard input
    #[arg(value_name = "VALUE")]
    pub value: OsString,
}

/// Options of `quorate keys del`.
#[derive(Args, Debug)]
pub struct DelArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// The keys
    #[arg(value_name = "KEY", required = true)]
    pub keys: Vec<OsString>,
}

/// Options of `quorate keys ttl`.
#[derive(Args, Debug)]
pub struct TtlArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// The key
    #[arg(value_name = "KEY")]
    pub key: OsString,
    /// After which time it expires, such as 5m; or never
    #[arg(value_name = "TIME", value_parser = expiry)]
    pub expiry: Option<Expiry>,
}

/// When a key expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    After(Duration),
    Never,
}

/// Runs the command.
pub async fn run(args: &KeysArgs) -> Result<()> {
    match &args.command {
        KeysCommand::Ls(ls) => {
            let list = Action::List { prefix: bytes(&ls.prefix), kind: ls.kind };
            read(&ls.read, list).await
        }
        KeysCommand::Get(get) if get.raw => read(&get.read, Action::Raw(bytes(&get.key))).await,
        KeysCommand::Get(get) => read(&get.read, Action::Get(bytes(&get.key))).await,
        KeysCommand::Set(set) => {
            let (key, value) = (bytes(&set.key), value(&set.value)?);
            write(&set.common, Action::Set { key, value, ttl: set.ttl, condition: set.condition() }).await
        }
        KeysCommand::Del(del) => write(&del.common, Action::Delete(del.keys.iter().map(bytes).collect())).await,
        KeysCommand::Ttl(ttl) => match ttl.expiry {
            None => read(&ttl.read, Action::Describe(bytes(&ttl.key))).await,
            Some(Expiry::Never) => write(&ttl.read.common, Action::Expire(bytes(&ttl.key), None)).await,
            Some(Expiry::After(time)) => write(&ttl.read.common, Action::Expire(bytes(&ttl.key), Some(time))).await,
        },
    }
}

impl SetArgs {
    fn condition(&self) -> Condition {
        match self.if_version {
            Some(version) => Condition::Version(Version(version)),
            None if self.if_missing => Condition::Missing,
            None if self.if_exists => Condition::Exists,
            None => Condition::Always,
        }
    }
}

async fn read(args: &ReadArgs, action: Action) -> Result<()> {
    act(&args.common, args.print.shell(), action).await
}

async fn write(args: &CommonArgs, action: Action) -> Result<()> {
    act(args, Options::default(), action).await
}

async fn act(args: &CommonArgs, options: Options, action: Action) -> Result<()> {
    let access = Access::find(&args.access).map_err(Error::of_connection)?;
    let client = Connection::connect(access.remote(), None).await?;
    let outcome = Shell::new(client.clone(), options).keys(args.space, action).await;
    client.close().await;
    Ok(outcome?)
}

fn bytes(text: &OsString) -> Vec<u8> {
    text.clone().into_vec()
}

/// Returns a value of the command line, or what standard input has.
fn value(text: &OsString) -> Result<Vec<u8>> {
    if text != "-" {
        return Ok(bytes(text));
    }
    let mut value = Vec::new();
    // One byte more than allowed, so that a longer one is refused and not cut.
    let most = u64::try_from(limits::VALUE_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    stdin().take(most).read_to_end(&mut value).context(|| "cannot read standard input")?;
    Ok(value)
}

fn kind(text: &str) -> Result<Kind, String> {
    match text {
        "string" => Ok(Kind::String),
        "hash" => Ok(Kind::Hash),
        "set" => Ok(Kind::Set),
        "sorted set" | "sorted-set" => Ok(Kind::SortedSet),
        "list" => Ok(Kind::List),
        _ => Err("expected string, hash, set, 'sorted set' or list".to_owned()),
    }
}

fn expiry(text: &str) -> Result<Expiry, String> {
    if text == "never" { Ok(Expiry::Never) } else { time(text).map(Expiry::After) }
}
