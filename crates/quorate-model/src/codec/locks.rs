//! The family of locks: see `docs/model-format.md`. The invariants of [`super::keys`] hold here too.

use super::fields::{one_of, record};
use crate::locks::{Claim, Lease, LockInfo, LocksCommand, LocksReply, Wait};

one_of!(LocksCommand {
    1: Acquire { name, holder, ttl, permits, wait, note },
    2: Renew { name, holder, token, ttl },
    3: Release { name, holder },
    4: Withdraw { name, holder },
    5: Force { name, token },
    6: Expect { name, token },
    7: Inspect { name },
    8: List { names, limit },
});

one_of!(LocksReply {
    1: Held(lease),
    2: Waiting(wait),
    3: Busy(lease),
    4: Full(lease),
    5: OtherPermits(permits),
    6: Released(lease),
    7: Withdrawn {},
    8: Forced(tokens) list,
    9: Missing {},
    10: Lock(lock),
    11: Locks(page),
});

record!(Lease { token, left });
record!(Wait { ahead, left });
record!(LockInfo { name, permits, holders, waiters });
record!(Claim { holder, token, left, note });
