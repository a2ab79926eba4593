//! Commands that clients send to have data saved, or code removed: there is nothing to do. Each write that was
//! acknowledged is on the disks of a majority, and there are no scripts.

use super::Call;
use super::introspect::HELP;
use super::server::timeout;
use crate::batch::Step;
use crate::error::{Refusal, text, whole_text};
use crate::frame::Frame;
use crate::table::{Access, Spec, local, sub};

/// The rows of commands that save, or remove scripts.
pub const SAVE_COMMANDS: &[Spec] = &[
    local("lastsave", 1, "1.0.0", "Returns the time: all is saved.", last_save),
    local("save", 1, "1.0.0", "Does nothing: all is saved.", save),
    local("bgsave", -1, "1.0.0", "Does nothing: all is saved.", save_beside),
    local("bgrewriteaof", 1, "1.0.0", "Does nothing: the log is shortened by itself.", rewrite),
    local("waitaof", 4, "7.2.0", "Returns that each write is on disk, and how many other members have it.", wait),
    sub("script", "2.6.0", "Scripts, of which there are none.", SCRIPT),
    sub("function", "7.0.0", "Functions, of which there are none.", FUNCTION),
];

const SCRIPT: &[Spec] = &[
    local("exists", -3, "2.6.0", "Returns 0 for each script.", scripts),
    local("flush", -2, "2.6.0", "Does nothing: there are no scripts.", flush_scripts).access(Access::Write),
    HELP,
];

const FUNCTION: &[Spec] = &[
    local("flush", -2, "7.0.0", "Does nothing: there are no functions.", flush_functions).access(Access::Write),
    local("list", -2, "7.0.0", "Returns none.", functions),
    HELP,
];

type Ran = Result<Step, Refusal>;

fn last_save(call: &mut Call) -> Ran {
    const SECOND: u64 = 1_000_000_000;
    Ok(Frame::count(call.args.moment.now / SECOND).into())
}

fn save(_: &mut Call) -> Ran {
    Ok(Frame::OK.into())
}

fn save_beside(call: &mut Call) -> Ran {
    if call.args.left() == 1 && call.args.option("CANCEL") {
        return Err(Refusal::Text("ERR Background saving is currently not in progress or scheduled"));
    }
    if call.args.left() == 1 {
        call.args.option("SCHEDULE");
    }
    call.args.end()?;
    Ok(Frame::Simple("Background saving started").into())
}

fn rewrite(_: &mut Call) -> Ran {
    Ok(Frame::Simple("Background append only file rewriting started").into())
}

fn wait(call: &mut Call) -> Ran {
    if !(0..=1).contains(&call.args.integer()?) {
        return Err(Refusal::Text("ERR value is out of range, value must between 0 and 1"));
    }
    call.args.positive()?;
    timeout(call)?;
    Ok(Frame::Array(vec![Frame::Integer(1), Frame::count(call.host.replicas())]).into())
}

fn flush_scripts(call: &mut Call) -> Ran {
    flush(call, Refusal::Text("ERR SCRIPT FLUSH only support SYNC|ASYNC option"))
}

fn flush_functions(call: &mut Call) -> Ran {
    if call.args.left() > 1 {
        return Err(Refusal::Subcommand { name: text(call.args.word), of: "function" });
    }
    flush(call, Refusal::Text("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"))
}

fn flush(call: &mut Call, refusal: Refusal) -> Ran {
    let is_right = call.args.is_empty() || call.args.choice(&[("SYNC", ()), ("ASYNC", ())]).is_some();
    if is_right && call.args.is_empty() { Ok(Frame::OK.into()) } else { Err(refusal) }
}

fn scripts(call: &mut Call) -> Ran {
    Ok(Frame::Array(call.args.rest().iter().map(|_| Frame::Integer(0)).collect()).into())
}

fn functions(call: &mut Call) -> Ran {
    let (mut has_code, mut has_name) = (false, false);
    while !call.args.is_empty() {
        if !has_code && call.args.option("WITHCODE") {
            has_code = true;
        } else if !has_name && call.args.option("LIBRARYNAME") {
            has_name = true;
            if call.args.is_empty() {
                return Err(Refusal::Text("ERR library name argument was not given"));
            }
            call.args.next()?;
        } else {
            let word = call.args.next()?;
            return Ok(Frame::error(format!("ERR Unknown argument {}", whole_text(&word))).into());
        }
    }
    Ok(Frame::Array(Vec::new()).into())
}
