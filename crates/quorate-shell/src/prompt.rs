//! The prompt: lines with a history, completion by Tab, an editor and a pager, and Ctrl-C, which cancels the running
//! statement but not the shell.

use std::path::PathBuf;

use futures_util::FutureExt as _;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::command::{self, Command};
use crate::complete::Completion;
use crate::edit::edit;
use crate::error::{Context as _, Error, Result};
use crate::format::visible;
use crate::hint::{hint, place};
use crate::kind::Kind;
use crate::names::KnownNames;
use crate::output::print;
use crate::pager::Pager;
use crate::script::{Item, Items, Script};
use crate::shell::{Next, Shell};
use crate::statements::pieces;

/// The history file in the home directory.
const HISTORY_FILE: &str = ".quorate_history";

/// The most entries of the history.
const HISTORY_MAX: usize = 10_000;

const HELLO: &str = "end a statement with ';', or type .help\n";
const HOW_TO_LEAVE: &str = "Ctrl-D or .quit leaves; so does Ctrl-C once more\n";

/// What a user typed at the prompt.
enum Typed {
    Line(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D.
    End,
}

impl Shell {
    /// Reads and runs statements and commands until the end of the input or `.quit`. Their errors are printed.
    ///
    /// # Errors
    ///
    /// The terminal or the file of `.output` failed.
    pub async fn prompt(&mut self) -> Result<()> {
        self.is_prompt = true;
        self.output.pager = Pager::from_env();
        print(&format!("{}\n{HELLO}", visible::one_line(&self.greeting)))?;
        let names = KnownNames::new(self.client.clone());
        let mut keyboard = Keyboard::open(names.clone())?;
        let mut interrupt = signal(SignalKind::interrupt()).context(|| "cannot handle Ctrl-C")?;
        let mut typed = Pending::default();
        let mut interrupted = false;
        loop {
            let (back, line) =
                keyboard.read(typed.prompt(self.in_transaction()), typed.unfinished().to_owned()).await?;
            keyboard = back;
            let was_interrupted = std::mem::replace(&mut interrupted, false);
            match line {
                Typed::End => break,
                Typed::Interrupt if !typed.is_empty() => typed.clear(),
                Typed::Interrupt if was_interrupted => break,
                Typed::Interrupt => {
                    interrupted = true;
                    print(HOW_TO_LEAVE)?;
                }
                Typed::Line(line) => {
                    typed.take(&line).await?;
                    if let Some(text) = typed.finished() {
                        keyboard.remember(&text);
                    }
                    if run_typed(self, &mut typed, &names, &mut interrupt).await == Next::Leave {
                        break;
                    }
                }
            }
        }
        if self.in_transaction() {
            (self.transaction, self.live) = (None, None);
            eprintln!("the transaction was not committed: nothing was written");
        }
        self.output.close()
    }
}

/// Runs the complete items of what was typed. After an error or Ctrl-C the rest is dropped.
async fn run_typed(shell: &mut Shell, typed: &mut Pending, names: &KnownNames, interrupt: &mut Signal) -> Next {
    // A Ctrl-C from before this item is not meant for it.
    discard(interrupt);
    while let Some((item, _)) = typed.items.next() {
        shell.output.begin_page();
        let outcome = tokio::select! {
            outcome = run_item(shell, &item) => outcome,
            _ = interrupt.recv() => Err(Error::new(shell.cancelled())),
        };
        let was_paged = shell.output.end_page().await;
        if matches!(was_paged, Ok(true)) {
            // A Ctrl-C in the pager was meant for it.
            discard(interrupt);
        }
        let outcome = was_paged.and(outcome);
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
                let statement = match &item {
                    Item::Statement(statement) => statement,
                    Item::Command(_) => "",
                };
                tell(&error, statement, names).await;
                typed.clear();
            }
        }
    }
    Next::GoOn
}

/// Forgets each Ctrl-C up to now.
fn discard(interrupt: &mut Signal) {
    while interrupt.recv().now_or_never().is_some() {}
}

/// Prints an error, its place in the statement, and a hint, if there are any.
async fn tell(error: &Error, statement: &str, names: &KnownNames) {
    eprintln!("error: {error}");
    if let Some(place) = place(&error.to_string(), statement) {
        eprint!("{place}");
    }
    let (text, names) = (error.to_string(), names.clone());
    // Fetching names blocks the thread.
    let hinted = tokio::task::spawn_blocking(move || hint(&text, || names.get()));
    if let Ok(Some(hint)) = hinted.await {
        eprintln!("hint: {}", visible::one_line(&hint));
    }
}

async fn run_item(shell: &mut Shell, item: &Item) -> Result<Next> {
    match shell.run(item, None).await? {
        Next::Read(file) => {
            // The results of a script are shown one after the other.
            shell.output.end_page().await?;
            shell.run_script(Script::open(&file)?, &mut 0).await
        }
        next => Ok(next),
    }
}

/// Lines that were typed and have not run.
#[derive(Default)]
struct Pending {
    items: Items,
    /// The text, for the history.
    text: String,
    /// The last text of statements that was complete.
    last: String,
}

impl Pending {
    /// Takes a line. If it asks for the editor, what was saved there is taken as if it had been typed.
    async fn take(&mut self, line: &str) -> Result<()> {
        let Some(before) = self.before_edit(line) else {
            self.push(line);
            return Ok(());
        };
        let typed = format!("{}{before}", self.unfinished());
        match edit(if typed.trim().is_empty() { &self.last } else { &typed }).await {
            Ok(text) => {
                print(&format!("{}\n", visible::lines(&text)))?;
                self.clear();
                self.push(&text);
            }
            Err(error) => {
                eprintln!("note: {}", visible::one_line(&error.to_string()));
                // A semicolon would make it run.
                if !before.trim().is_empty() && !before.contains(';') {
                    self.push(before);
                }
            }
        }
        Ok(())
    }

    /// The line without the command at its end that asks for the editor, if it has one. In a literal it is none.
    fn before_edit<'a>(&self, line: &'a str) -> Option<&'a str> {
        if self.is_empty() && command::parse(line) == Ok(Command::Edit) {
            return Some("");
        }
        let before = line.trim_end().strip_suffix("\\e")?;
        let is_in_literal = pieces(&format!("{}{before}", self.unfinished())).last().is_some_and(|piece| piece.is_open);
        (!is_in_literal).then_some(before)
    }

    /// Forgets what was typed and has not run.
    fn clear(&mut self) {
        *self = Self { last: std::mem::take(&mut self.last), ..Self::default() };
    }

    fn push(&mut self, lines: &str) {
        // An empty line may be part of a literal.
        for line in lines.split('\n') {
            let line = line.strip_suffix('\r').unwrap_or(line);
            let is_bare = self.is_empty() && matches!(line.trim().trim_end_matches(';'), "exit" | "quit" | "help");
            // Bare words that psql understands too.
            self.items.push(&if is_bare { format!(".{}", line.trim().trim_end_matches(';')) } else { line.to_owned() });
            self.text.push_str(line);
            self.text.push('\n');
        }
    }

    /// The text, once it is complete.
    fn finished(&mut self) -> Option<String> {
        if !self.is_empty() {
            return None;
        }
        let text = std::mem::take(&mut self.text).trim().to_owned();
        if !text.is_empty() && !text.starts_with(['.', '\\']) {
            self.last.clone_from(&text);
        }
        Some(text).filter(|text| !text.is_empty())
    }

    /// The statement that has begun, so far; empty between statements.
    fn unfinished(&self) -> &str {
        if self.is_empty() { "" } else { self.items.unfinished() }
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

/// Reads lines from the terminal. The history is kept between sessions if there is a home directory.
struct Keyboard {
    editor: Editor<Completion, FileHistory>,
    history: Option<PathBuf>,
}

impl Keyboard {
    fn open(names: KnownNames) -> Result<Self> {
        let config = Config::builder().max_history_size(HISTORY_MAX).context(|| "cannot keep a history")?;
        let config = config.completion_type(rustyline::CompletionType::List).build();
        let mut editor = Editor::with_config(config).context(|| "cannot read from the terminal")?;
        editor.set_helper(Some(Completion::new(names)));
        let history = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(HISTORY_FILE));
        if let Some(file) = &history {
            // The first session finds no history.
            let _ = editor.load_history(file);
        }
        Ok(Self { editor, history })
    }

    /// Reads a line on a thread of its own, so that names can be fetched in the meantime.
    async fn read(mut self, prompt: String, earlier: String) -> Result<(Self, Typed)> {
        if let Some(completion) = self.editor.helper_mut() {
            completion.earlier = earlier;
        }
        let reading = tokio::task::spawn_blocking(move || {
            let line = self.editor.readline(&prompt);
            (self, line)
        });
        let (keyboard, line) = reading.await.context(|| "cannot read from the terminal")?;
        match line {
            Ok(line) => Ok((keyboard, Typed::Line(line))),
            Err(ReadlineError::Interrupted) => Ok((keyboard, Typed::Interrupt)),
            Err(ReadlineError::Eof) => Ok((keyboard, Typed::End)),
            Err(error) => Err(error).context(|| "cannot read from the terminal"),
        }
    }

    /// Adds to the history. It is written at once, so that a shell that is killed, or another one that runs, loses
    /// nothing. Errors are ignored, since the history is only a convenience.
    fn remember(&mut self, text: &str) {
        let is_new = self.editor.add_history_entry(text).unwrap_or(false);
        if let Some(file) = self.history.as_ref().filter(|_| is_new) {
            let _ = self.editor.append_history(file);
        }
    }
}
