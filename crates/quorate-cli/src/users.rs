//! `quorate users`: lists and changes the users of a cluster.
//!
//! A password comes from the terminal, or from the first line of standard input; never from an argument, which other
//! processes could see. A token is printed once, alone on standard output.

use std::fmt::Write as _;

use clap::{Args, Subcommand, ValueEnum};
use quorate::admin::{AdminError, Login};
use quorate::users::{TokenId, TokenInfo, UserInfo, UserRole};
use quorate_shell::format;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::members::connect;
use crate::options::{AccessArgs, ListArgs};
use crate::{output, password, utc};

/// Options of `quorate users`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  quorate users add ann --role admin       the first user is an administrator; it closes the cluster's doors
  quorate users add app --role write --token
  quorate users list
  quorate users token app
  quorate users token app --remove 00d1e2f3a4b5c6d7
  quorate users passwd ann
  quorate users role app read
  quorate users remove app")]
pub struct UsersArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: UsersCommand,
}

/// The commands for users.
#[derive(Debug, Subcommand)]
pub enum UsersCommand {
    /// Show the users, their roles and their tokens
    #[command(after_help = "Examples:\n  quorate users list\n  quorate users list --json")]
    List(ListArgs),
    /// Add a user; asks for the password, or makes a token with --token
    #[command(
        after_help = "Examples:\n  quorate users add ann --role admin\n  quorate users add app --role write --token"
    )]
    Add(AddArgs),
    /// Remove a user; its password and tokens are refused from then on
    #[command(after_help = "Example:\n  quorate users remove app")]
    Remove(NameArgs),
    /// Set what a user may do
    #[command(after_help = "Example:\n  quorate users role app read")]
    Role(RoleArgs),
    /// Set the password of a user, or take it away with --remove
    #[command(after_help = "Examples:\n  quorate users passwd ann\n  quorate users passwd ann < file\n  \
                            quorate users passwd ann --remove")]
    Passwd(PasswdArgs),
    /// Make a token for a user and print it, which is possible only now; or remove one with --remove
    #[command(after_help = "Examples:\n  quorate users token app\n  quorate users token app --remove 00d1e2f3a4b5c6d7")]
    Token(TokenArgs),
}

/// What a user may do.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Role {
    /// Read
    Read,
    /// Read, write, and change the schema
    Write,
    /// Everything: users, members, backups too
    Admin,
}

impl From<Role> for UserRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Read => Self::Read,
            Role::Write => Self::Write,
            Role::Admin => Self::Admin,
        }
    }
}

/// Options of `quorate users add`.
#[derive(Args, Debug)]
pub struct AddArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// The user's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// What the user may do
    #[arg(long, value_enum)]
    pub role: Role,
    /// Make a token and print it, instead of asking for a password
    #[arg(long)]
    pub token: bool,
    /// Print the token as JSON, with its id
    #[arg(long, requires = "token")]
    pub json: bool,
}

/// Options of a command that needs only a user's name.
#[derive(Args, Debug)]
pub struct NameArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// The user's name
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// Options of `quorate users role`.
#[derive(Args, Debug)]
pub struct RoleArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// The user's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// What the user may do
    #[arg(value_enum, value_name = "ROLE")]
    pub role: Role,
}

/// Options of `quorate users passwd`.
#[derive(Args, Debug)]
pub struct PasswdArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// The user's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Take the password away; the user can then log in only with a token
    #[arg(long)]
    pub remove: bool,
}

/// Options of `quorate users token`.
#[derive(Args, Debug)]
pub struct TokenArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// The user's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Remove the token with this id
    #[arg(long, value_name = "ID", value_parser = token_id, conflicts_with = "json")]
    pub remove: Option<TokenId>,
    /// Print the token as JSON, with its id
    #[arg(long)]
    pub json: bool,
}

fn token_id(text: &str) -> Result<TokenId, String> {
    let is_id = text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let id = u64::from_str_radix(text, 16).ok().filter(|_| is_id);
    id.map(TokenId).ok_or_else(|| "expected 16 hexadecimal digits, as `quorate users list` shows them".to_owned())
}

/// Runs the command.
pub async fn run(args: &UsersArgs) -> Result<()> {
    match &args.command {
        UsersCommand::List(args) => list(args).await,
        UsersCommand::Add(args) => add(args).await,
        UsersCommand::Remove(NameArgs { access, name }) => {
            let removed = connect(access).await?.remove_user(name).await;
            removed.map_err(|error| failed(&format!("'{name}' was not removed"), error))?;
            output::print(&format!("'{name}' is removed\n"))
        }
        UsersCommand::Role(RoleArgs { access, name, role }) => {
            let role = UserRole::from(*role);
            let set = connect(access).await?.set_role(name, role).await;
            set.map_err(|error| failed(&format!("the role of '{name}' was not set"), error))?;
            output::print(&format!("'{name}' has the role '{role}'\n"))
        }
        UsersCommand::Passwd(args) => passwd(args).await,
        UsersCommand::Token(args) => token(args).await,
    }
}

/// Describes why a change was not made.
fn failed(what: &str, error: AdminError) -> Error {
    let hint = if matches!(error, AdminError::Unconfirmed(_)) { "; check with `quorate users list`" } else { "" };
    Error::caused(format!("{what}: {error}{hint}"), error)
}

async fn list(args: &ListArgs) -> Result<()> {
    let users = connect(&args.access).await?.users().await.map_err(Error::of)?;
    if args.json {
        let users: Vec<Listed> = users.iter().map(Listed::of).collect();
        let text = serde_json::to_string_pretty(&users).map_err(Error::of)?;
        return output::print(&(text + "\n"));
    }
    output::print(&text_of(&users))
}

async fn add(args: &AddArgs) -> Result<()> {
    let AddArgs { access, name, role, token, json } = args;
    let login = if *token { Login::Token } else { Login::Password(password::read_new(name)?) };
    let added = connect(access).await?.add_user(name, (*role).into(), login).await;
    let token = added.map_err(|error| failed(&format!("'{name}' was not added"), error))?;
    match token {
        Some(token) => show(name, token.text(), token.hash().id(), *json),
        None => output::print(&format!("'{name}' is added\n")),
    }
}

async fn passwd(PasswdArgs { access, name, remove }: &PasswdArgs) -> Result<()> {
    let password = if *remove { None } else { Some(password::read_new(name)?) };
    let set = connect(access).await?.set_password(name, password.as_deref()).await;
    set.map_err(|error| failed(&format!("the password of '{name}' was not changed"), error))?;
    let now = if *remove { "has no password any more" } else { "has a new password" };
    output::print(&format!("'{name}' {now}\n"))
}

async fn token(TokenArgs { access, name, remove, json }: &TokenArgs) -> Result<()> {
    let admin = connect(access).await?;
    if let Some(id) = remove {
        let removed = admin.remove_token(name, *id).await;
        removed.map_err(|error| failed(&format!("the token {id} was not removed"), error))?;
        return output::print(&format!("the token {id} of '{name}' is removed\n"));
    }
    let token = admin.add_token(name).await.map_err(|error| failed(&format!("'{name}' has no new token"), error))?;
    show(name, token.text(), token.hash().id(), *json)
}

/// Prints a token. The explanation goes to standard error, so that a script gets the token alone.
fn show(name: &str, token: &str, id: TokenId, json: bool) -> Result<()> {
    if json {
        let shown = serde_json::json!({ "user": name, "id": id.to_string(), "token": token });
        return output::print(&format!("{shown}\n"));
    }
    eprintln!("a token for '{name}', with the id {id}; it is not shown again:");
    output::print(&format!("{token}\n"))
}

/// A user, as printed in JSON.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    role: &'static str,
    password: bool,
    tokens: Vec<ListedToken>,
}

/// A token of a user.
#[derive(Debug, Serialize)]
struct ListedToken {
    id: String,
    /// When it was made, in UTC.
    created: String,
}

impl Listed {
    fn of(user: &UserInfo) -> Self {
        let token = |token: &TokenInfo| ListedToken { id: token.id.to_string(), created: utc::text(token.created) };
        Self {
            name: user.name.clone(),
            role: user.role.name(),
            password: user.has_password,
            tokens: user.tokens.iter().map(token).collect(),
        }
    }
}

fn text_of(users: &[UserInfo]) -> String {
    if users.is_empty() {
        return "the cluster has no users: everyone who knows its secret is an administrator, and HTTP asks for no \
                login; add the first user with `quorate users add NAME --role admin`\n"
            .to_owned();
    }
    let row = |user: &UserInfo| {
        let mut tokens = String::new();
        for token in &user.tokens {
            let gap = if tokens.is_empty() { "" } else { ", " };
            let _ = write!(tokens, "{gap}{}", token.id);
        }
        let password = if user.has_password { "yes" } else { "no" };
        vec![user.name.clone(), user.role.name().to_owned(), password.to_owned(), tokens]
    };
    format::aligned(&["name", "role", "password", "tokens"], &users.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_tokens_are_read_as_they_are_shown() {
        let id = TokenId(0x00d1_e2f3_a4b5_c6d7);
        assert_eq!(token_id(&id.to_string()), Ok(id));
        for wrong in ["", "d1e2f3a4b5c6d7", "+0d1e2f3a4b5c6d7", "00d1e2f3a4b5c6dx", "00d1e2f3a4b5c6d700"] {
            assert!(token_id(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_cluster_without_users_is_explained() {
        assert!(text_of(&[]).starts_with("the cluster has no users: everyone who knows its secret"));
    }
}
