//! The prompt: lines with a history, Tab, and Ctrl-C, which ends what runs and not the shell.

use std::path::PathBuf;

use futures_util::FutureExt as _;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::complete::Completion;
use super::hint::hint;
use super::kind::Kind;
use super::names::KnownNames;
use super::script::{Item, Items};
use super::{Next, Shell};
use crate::error::{Error, Result, Told as _};
use crate::format::visible;
use crate::output;

/// The file in the home directory that keeps what was typed.
const HISTORY_FILE: &str = ".quorate_history";

/// Entries of it.
const HISTORY_MAX: usize = 10_000;

const HELLO: &str = "Quorate: end a statement with ';', or type .help\n";
const HOW_TO_LEAVE: &str = "Ctrl-D or .quit leaves; so does Ctrl-C once more\n";

/// What was typed at the prompt.
enum Typed {
    Line(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D.
    End,
}

/// Reads and runs until the end of the input or `.quit`. Errors are told and forgotten.
pub async fn run(shell: &mut Shell) -> Result<()> {
    shell.is_prompt = true;
    output::print(HELLO)?;
    let names = KnownNames::new(shell.client.clone());
    let mut keyboard = Keyboard::open(names.clone())?;
    let mut interrupt = signal(SignalKind::interrupt()).told(|| "cannot handle Ctrl-C")?;
    let mut typed = Pending::default();
    let mut interrupted = false;
    loop {
        let (back, line) = keyboard.read(typed.prompt(shell.transaction.is_some()), !typed.is_empty()).await?;
        keyboard = back;
        let was_interrupted = std::mem::replace(&mut interrupted, false);
        match line {
            Typed::End => break,
            Typed::Interrupt if !typed.is_empty() => typed = Pending::default(),
            Typed::Interrupt if was_interrupted => break,
            Typed::Interrupt => {
                interrupted = true;
                output::print(HOW_TO_LEAVE)?;
            }
            Typed::Line(line) => {
                typed.push(&line);
                if let Some(text) = typed.finished() {
                    keyboard.remember(&text);
                }
                if run_typed(shell, &mut typed, &names, &mut interrupt).await == Next::Leave {
                    break;
                }
            }
        }
    }
    if shell.transaction.take().is_some() {
        eprintln!("the transaction was not committed: nothing of it was written");
    }
    shell.output.close()
}

/// Runs what is complete of what was typed. After an error or Ctrl-C the rest of it is forgotten.
async fn run_typed(shell: &mut Shell, typed: &mut Pending, names: &KnownNames, interrupt: &mut Signal) -> Next {
    // One that came while nothing ran means nothing now.
    while interrupt.recv().now_or_never().is_some() {}
    while let Some((item, _)) = typed.items.next() {
        let outcome = tokio::select! {
            outcome = run_item(shell, &item) => outcome,
            _ = interrupt.recv() => Err(Error::new(shell.cancelled())),
        };
        let changes_names = match &item {
            Item::Statement(statement) => Kind::of(statement).may_change_names(),
            Item::Command(_) => true,
        };
        if changes_names {
            names.forget();
        }
        match outcome {
            Ok(Next::Leave) => return Next::Leave,
            Ok(_) => {}
            Err(error) => {
                tell(&error, names).await;
                *typed = Pending::default();
            }
        }
    }
    Next::GoOn
}

/// Tells an error, and what to do about it if that is known.
async fn tell(error: &Error, names: &KnownNames) {
    eprintln!("error: {error}");
    let (text, names) = (error.to_string(), names.clone());
    // Whoever asks for names waits, and not on this thread.
    let asked = tokio::task::spawn_blocking(move || hint(&text, || names.get()));
    if let Ok(Some(hint)) = asked.await {
        eprintln!("hint: {}", visible::one_line(&hint));
    }
}

async fn run_item(shell: &mut Shell, item: &Item) -> Result<Next> {
    match shell.run(item, None).await? {
        Next::Read(file) => shell.run_script(super::Script::open(&file)?, &mut 0).await,
        next => Ok(next),
    }
}

/// What was typed and has not run.
#[derive(Default)]
struct Pending {
    items: Items,
    /// All of it, for the history.
    text: String,
}

impl Pending {
    fn push(&mut self, lines: &str) {
        // An empty line may stand in a literal.
        for line in lines.split('\n') {
            let line = line.strip_suffix('\r').unwrap_or(line);
            let is_bare = self.is_empty() && matches!(line.trim().trim_end_matches(';'), "exit" | "quit" | "help");
            // As psql understands them.
            self.items.push(&if is_bare { format!(".{}", line.trim().trim_end_matches(';')) } else { line.to_owned() });
            self.text.push_str(line);
            self.text.push('\n');
        }
    }

    /// The text, once it is complete.
    fn finished(&mut self) -> Option<String> {
        self.items
            .is_between()
            .then(|| std::mem::take(&mut self.text).trim().to_owned())
            .filter(|text| !text.is_empty())
    }

    fn is_empty(&self) -> bool {
        self.items.is_between()
    }

    fn prompt(&self, in_transaction: bool) -> String {
        if self.is_empty() {
            return if in_transaction { "quorate*> " } else { "quorate> " }.to_owned();
        }
        format!("{:>7}> ", format!("{}...", self.items.open().unwrap_or_default()))
    }
}

/// Reads lines from the terminal, with a history that is kept between sessions where there is a home to keep it in.
struct Keyboard {
    editor: Editor<Completion, FileHistory>,
    history: Option<PathBuf>,
}

impl Keyboard {
    fn open(names: KnownNames) -> Result<Self> {
        let config = Config::builder().max_history_size(HISTORY_MAX).told(|| "cannot keep a history")?;
        let config = config.completion_type(rustyline::CompletionType::List).build();
        let mut editor = Editor::with_config(config).told(|| "cannot read from the terminal")?;
        editor.set_helper(Some(Completion::new(names)));
        let history = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(HISTORY_FILE));
        if let Some(file) = &history {
            // There is none before the first time.
            let _ = editor.load_history(file);
        }
        Ok(Self { editor, history })
    }

    /// Reads a line on a thread of its own, so that names can be asked for meanwhile.
    async fn read(mut self, prompt: String, in_statement: bool) -> Result<(Self, Typed)> {
        if let Some(completion) = self.editor.helper_mut() {
            completion.in_statement = in_statement;
        }
        let reading = tokio::task::spawn_blocking(move || {
            let line = self.editor.readline(&prompt);
            (self, line)
        });
        let (keyboard, line) = reading.await.told(|| "cannot read from the terminal")?;
        match line {
            Ok(line) => Ok((keyboard, Typed::Line(line))),
            Err(ReadlineError::Interrupted) => Ok((keyboard, Typed::Interrupt)),
            Err(ReadlineError::Eof) => Ok((keyboard, Typed::End)),
            Err(error) => Err(error).told(|| "cannot read from the terminal"),
        }
    }

    /// A history is a convenience: nothing is said when it can't be had. It is written at once, so that a shell that
    /// is killed, or another one that runs, loses nothing.
    fn remember(&mut self, text: &str) {
        let is_new = self.editor.add_history_entry(text).unwrap_or(false);
        if let Some(file) = self.history.as_ref().filter(|_| is_new) {
            let _ = self.editor.append_history(file);
        }
    }
}
