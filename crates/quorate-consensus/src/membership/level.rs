//! Which nodes are too old to be admitted.

use std::sync::atomic::Ordering;

use openraft::rt::WatchReceiver;
use quorate_model::limits::BASE_LEVEL;

use crate::group::Group;
use crate::peer_service::PeerService;

/// Says why a node that understands the format up to `level` can't become a member now, if that is so.
pub(super) fn too_old(service: &PeerService, main: &Group, name: &str, level: u32) -> Option<String> {
    let metrics = main.raft.metrics();
    let term = metrics.borrow_watched().current_term;
    let applied = main.store.applied();
    // A raise that an earlier leader has proposed may still have to be applied.
    let is_behind = applied.log_id.is_none_or(|id| id.term < term);
    let level = level.max(BASE_LEVEL);
    if is_behind && level < service.config.level {
        return Some("the leader has to apply what earlier leaders have proposed".to_owned());
    }
    refusal_of_level(name, level, applied.level.max(service.raising.load(Ordering::Acquire)))
}

/// Says why a node that understands the format up to `level` can't be a member of a cluster that uses `used`.
fn refusal_of_level(name: &str, level: u32, used: u32) -> Option<String> {
    (level < used).then(|| {
        format!(
            "'{name}' understands format levels up to {level}, and the cluster uses {used}: install a newer version"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_does_not_know_the_level_is_not_admitted() {
        let text = "'c' understands format levels up to 1, and the cluster uses 2: install a newer version";
        assert_eq!(refusal_of_level("c", 1, 2).as_deref(), Some(text));
        assert_eq!((refusal_of_level("c", 2, 2), refusal_of_level("c", 3, 2)), (None, None));
    }
}
