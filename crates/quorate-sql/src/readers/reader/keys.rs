//! Commands on keys that only read.

use quorate_keys::{Context, Keys, Version};
use quorate_model::Failure;
use quorate_model::codec::keys_reply_len;
use quorate_model::keys::{KeysReply, SpaceCommand};

use super::super::error::ReadError;
use super::super::guard::Allowance;
use super::Reader;
use crate::keys::{Ended, KeyTables};

/// What the log of slow queries says of commands on keys.
const KEYS: &str = "commands on keys";

impl Reader {
    /// Runs commands on keys that only read, on one state and at the time of the cluster. They end after the one whose reply
    /// brings the bytes of all replies to `bytes_max`. Returns `None` if a first try reached its limit.
    pub(in crate::readers) fn keys(
        &mut self,
        commands: &[SpaceCommand],
        bytes_max: usize,
        allowance: Allowance,
    ) -> Result<Option<Vec<Result<KeysReply, Failure>>>, ReadError> {
        // The limits of the commands and the guard bound their work. A transaction that an error leaves open ends with
        // the use of the reader.
        let mut context = Context::new(self.time.now(), Version::default(), u64::MAX);
        let answers = self.guarded(KEYS, allowance, |reader| {
            reader.end_paused();
            reader.own(|database| {
                let is_alone = database.connection().is_autocommit();
                if is_alone {
                    database.execute("BEGIN", [])?;
                }
                let (mut answers, mut bytes) = (Vec::with_capacity(commands.len()), 0_usize);
                for SpaceCommand { space, command } in commands {
                    let ran = Keys::new(&mut KeyTables::of(database), &mut context, *space).run(command);
                    let answer = match ran {
                        Err(Ended::Failed(error)) => Err(Failure::from(error)),
                        ran => Ok(ran?),
                    };
                    bytes = bytes.saturating_add(answer.as_ref().map_or(0, keys_reply_len));
                    answers.push(answer);
                    if bytes >= bytes_max {
                        break;
                    }
                }
                if is_alone {
                    database.execute("COMMIT", [])?;
                }
                Ok::<_, Ended>(answers)
            })
        });
        answers.inspect_err(|error| self.suspicions.note(&self.generation, error, None))
    }
}
