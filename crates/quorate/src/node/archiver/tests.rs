//! The decision about the archiver: a table of cases, and what holds in all of them.

use proptest::prelude::*;

use super::*;

const ABLE: Option<bool> = Some(true);
const UNABLE: Option<bool> = Some(false);
const SILENT: Option<bool> = None;

/// A follower that votes. It has answered just now, or was silent for as long as an archiver may be.
fn follower(id: u64, can_archive: Option<bool>) -> Seen {
    Seen { id: NodeId(id), is_voter: true, is_leader: false, can_archive, is_silent: can_archive.is_none() }
}

fn leader(id: u64, can_archive: Option<bool>) -> Seen {
    Seen { is_leader: true, ..follower(id, can_archive) }
}

fn learner(id: u64, can_archive: Option<bool>) -> Seen {
    Seen { is_voter: false, ..follower(id, can_archive) }
}

fn decision(members: &[Seen], present: u64) -> Decision {
    decide(members, (present > 0).then_some(NodeId(present)))
}

fn appoint(id: u64) -> Decision {
    Decision::Appoint(Some(NodeId(id)))
}

#[test]
fn without_an_archiver_the_best_member_is_appointed() {
    let cases: [(&[Seen], Decision); 8] = [
        (&[leader(1, ABLE)], appoint(1)),
        (&[leader(1, UNABLE)], Decision::Keep),
        (&[leader(1, ABLE), follower(2, ABLE), follower(3, ABLE)], appoint(2)),
        (&[follower(1, UNABLE), leader(2, ABLE), follower(3, ABLE)], appoint(3)),
        (&[follower(1, SILENT), leader(2, ABLE), follower(3, UNABLE)], appoint(2)),
        (&[learner(1, ABLE), leader(2, ABLE), follower(3, SILENT)], appoint(2)),
        (&[learner(1, ABLE), leader(2, UNABLE), follower(3, UNABLE)], appoint(1)),
        (&[leader(1, UNABLE), follower(2, UNABLE), follower(3, SILENT)], Decision::Keep),
    ];
    for (members, expected) in cases {
        assert_eq!(decision(members, 0), expected, "{members:?}");
    }
}

#[test]
fn an_archiver_stays_as_long_as_it_can() {
    let quiet = Seen { is_silent: false, ..follower(3, SILENT) };
    let cases: [(&str, &[Seen], Decision); 9] = [
        ("better ones", &[leader(1, ABLE), follower(2, ABLE), follower(3, ABLE)], Decision::Keep),
        ("it leads now", &[follower(1, ABLE), leader(3, ABLE)], Decision::Keep),
        ("a learner", &[leader(1, ABLE), learner(3, ABLE)], Decision::Keep),
        ("silent for a moment", &[leader(1, ABLE), follower(2, ABLE), quiet], Decision::Keep),
        ("silent", &[leader(1, ABLE), follower(2, ABLE), follower(3, SILENT)], appoint(2)),
        ("silent, and nobody else", &[leader(1, UNABLE), follower(3, SILENT)], Decision::Keep),
        ("no longer able", &[leader(1, ABLE), follower(3, UNABLE)], appoint(1)),
        ("no longer able, and nobody else", &[leader(1, UNABLE), follower(3, UNABLE)], Decision::Appoint(None)),
        ("no member, and nobody else", &[leader(1, UNABLE), follower(2, SILENT)], Decision::Appoint(None)),
    ];
    for (what, members, expected) in cases {
        assert_eq!(decision(members, 3), expected, "{what}");
    }
    assert_eq!(decision(&[leader(1, ABLE), follower(2, ABLE)], 3), appoint(2), "no member");
}

fn a_cluster() -> impl Strategy<Value = Vec<Seen>> {
    let can_archive = prop_oneof![Just(ABLE), Just(UNABLE), Just(SILENT)];
    let member = (any::<bool>(), can_archive, any::<bool>());
    (prop::collection::vec(member, 1..6), any::<prop::sample::Index>()).prop_map(|(members, leads)| {
        let leads = leads.index(members.len());
        let member = |(at, (is_voter, can_archive, is_silent)): (usize, (bool, Option<bool>, bool))| Seen {
            id: NodeId(at as u64 + 1),
            is_voter: is_voter || at == leads,
            is_leader: at == leads,
            can_archive: if at == leads { Some(can_archive == ABLE) } else { can_archive },
            is_silent: is_silent && can_archive.is_none(),
        };
        members.into_iter().enumerate().map(member).collect()
    })
}

proptest! {
    /// Whoever is appointed can archive and answers, and then stays; a decision needs no second one.
    #[test]
    fn a_decision_settles_the_matter(members in a_cluster(), present in 0..8_u64) {
        let holder = match decision(&members, present) {
            Decision::Keep => present,
            Decision::Appoint(node) => {
                prop_assert_ne!(node, (present > 0).then_some(NodeId(present)));
                let is_able = |id| members.iter().any(|member| member.id == id && member.can_archive == ABLE);
                prop_assert!(node.is_none_or(is_able));
                node.map_or(0, |node| node.0)
            }
        };
        prop_assert_eq!(decision(&members, holder), Decision::Keep);
    }

    #[test]
    fn where_nobody_can_archive_nobody_is_appointed(members in a_cluster()) {
        let cannot = |member| Seen { can_archive: Some(false), ..member };
        let members: Vec<Seen> = members.into_iter().map(cannot).collect();
        prop_assert_eq!(decision(&members, 0), Decision::Keep);
    }
}
