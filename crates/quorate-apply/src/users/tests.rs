//! Users against a model, and the rules that hold whatever the commands are.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use proptest::collection::vec;
use proptest::prelude::*;
use quorate_model::Verifier;

use super::*;
use crate::suite::a_user_command;

fn add(name: &str, role: UserRole, token: Option<u8>) -> UserCommand {
    let token = token.map(hash);
    UserCommand::Add { name: name.to_owned(), role, verifier: None, token }
}

fn hash(byte: u8) -> TokenHash {
    TokenHash::new([byte; TokenHash::BYTES])
}

/// Runs a command on a plain list of users; `None` if it fails.
fn expected(users: &[User], command: &UserCommand, now: u64) -> Option<Vec<User>> {
    let mut users = users.to_vec();
    let is_taken = |users: &[User], hash: TokenHash| {
        users.iter().flat_map(|user| &user.tokens).any(|token| token.hash.id() == hash.id())
    };
    let find = |users: &[User]| users.iter().position(|user| user.name == command.name());
    match (command.clone(), find(&users)) {
        (UserCommand::Add { name, role, verifier, token }, None) => {
            if token.is_some_and(|hash| is_taken(&users, hash)) {
                return None;
            }
            let tokens = token.map(|hash| UserToken { hash, created: now }).into_iter().collect();
            users.push(User { name, role, verifier, tokens });
        }
        (UserCommand::Remove(_), Some(at)) => drop(users.remove(at)),
        (UserCommand::SetRole { role, .. }, Some(at)) => users[at].role = role,
        (UserCommand::SetVerifier { verifier, .. }, Some(at)) => users[at].verifier = verifier,
        (UserCommand::AddToken { hash, .. }, Some(at)) => {
            if is_taken(&users, hash) {
                return None;
            }
            users[at].tokens.push(UserToken { hash, created: now });
        }
        (UserCommand::RemoveToken { id, .. }, Some(at)) => {
            let place = users[at].tokens.iter().position(|token| token.hash.id() == id)?;
            users[at].tokens.remove(place);
        }
        _ => return None,
    }
    let is_admin = |user: &User| user.role == UserRole::Admin && (user.verifier.is_some() || !user.tokens.is_empty());
    users.sort_by(|a, b| a.name.cmp(&b.name));
    users.iter().any(is_admin).then_some(users)
}

proptest! {
    #[test]
    fn users_behave_as_a_list(commands in vec(a_user_command(), 1..40)) {
        let (mut users, mut list) = (Users::default(), Vec::new());
        for (now, command) in (1..).zip(&commands) {
            let before = users.clone();
            match (users.change(command, now), expected(&list, command, now)) {
                (Ok(()), Some(after)) => list = after,
                (Err(_), None) => prop_assert_eq!(&users, &before),
                (done, after) => prop_assert!(false, "{:?}: {:?}, expected {:?}", command, done, after),
            }
            prop_assert_eq!(&users.iter().map(|user| User::clone(user)).collect::<Vec<_>>(), &list);
            // Each token leads to its owner as the owner is now, and no other token leads anywhere.
            let owners =
                users.iter().flat_map(|user| user.tokens.iter().map(move |token| (token.hash.id(), Arc::clone(user))));
            prop_assert_eq!(&owners.collect::<BTreeMap<_, _>>(), &users.tokens);
        }
    }

    /// Changes of two operators to one user do not depend on their order.
    #[test]
    fn changes_of_different_facts_commute(order in any::<bool>(), role in 0..3_usize) {
        let mut users = Users::default();
        users.change(&add("root", UserRole::Admin, Some(1)), 1).unwrap();
        users.change(&add("ann", UserRole::Write, Some(2)), 1).unwrap();
        let name = || "ann".to_owned();
        let verifier = Some(Verifier::new("$argon2id$v=19$m=1,t=1,p=1$$"));
        let mut commands = [
            UserCommand::SetRole { name: name(), role: UserRole::ALL[role] },
            UserCommand::SetVerifier { name: name(), verifier: verifier.clone() },
            UserCommand::AddToken { name: name(), hash: hash(3) },
            UserCommand::RemoveToken { name: name(), id: hash(2).id() },
        ];
        if order {
            commands.reverse();
        }
        commands.iter().for_each(|command| users.change(command, 2).unwrap());
        let tokens = vec![UserToken { hash: hash(3), created: 2 }];
        let ann = User { name: name(), role: UserRole::ALL[role], verifier, tokens };
        prop_assert_eq!(&**users.get("ann").unwrap(), &ann);
    }
}

fn failure(users: &mut Users, command: &UserCommand) -> (FailureKind, String) {
    let failure = users.change(command, 9).unwrap_err();
    (failure.kind, failure.message)
}

#[test]
fn the_last_administrator_stays() {
    let mut users = Users::default();
    // The first user must be able to add the others.
    for first in [add("ann", UserRole::Write, Some(1)), add("ann", UserRole::Admin, None)] {
        assert_eq!(failure(&mut users, &first).0, FailureKind::NoAdmin);
    }
    users.change(&add("ann", UserRole::Admin, Some(1)), 1).unwrap();
    users.change(&add("bob", UserRole::Admin, None), 1).unwrap();
    let name = || "ann".to_owned();
    let last = [
        UserCommand::Remove(name()),
        UserCommand::SetRole { name: name(), role: UserRole::Write },
        UserCommand::RemoveToken { name: name(), id: hash(1).id() },
    ];
    let text = "no administrator who can log in would be left; give another user the role admin and a password or a \
                token first, then change 'ann'";
    for command in &last {
        assert_eq!(failure(&mut users, command), (FailureKind::NoAdmin, text.to_owned()));
    }
    users.change(&UserCommand::AddToken { name: "bob".to_owned(), hash: hash(2) }, 1).unwrap();
    users.change(&last[0], 1).unwrap();
    assert_eq!(failure(&mut users, &UserCommand::Remove("bob".to_owned())).0, FailureKind::NoAdmin);
}

#[test]
fn failures_say_what_to_do() {
    let mut users = Users::default();
    users.change(&add("ann", UserRole::Admin, Some(1)), 1).unwrap();
    let unknown = "there is no user 'bob'; list the users, or add this one";
    assert_eq!(
        failure(&mut users, &UserCommand::Remove("bob".to_owned())),
        (FailureKind::UserUnknown, unknown.to_owned())
    );
    let exists = "there is a user 'ann' already; choose another name, or change that user";
    assert_eq!(failure(&mut users, &add("ann", UserRole::Read, None)), (FailureKind::UserExists, exists.to_owned()));
    let token = "there is a token 0101010101010101 already; make another one";
    assert_eq!(failure(&mut users, &add("bob", UserRole::Read, Some(1))), (FailureKind::UserExists, token.to_owned()));
    for byte in 2..=USER_TOKENS_MAX as u8 {
        users.change(&UserCommand::AddToken { name: "ann".to_owned(), hash: hash(byte) }, 1).unwrap();
    }
    let one_more = UserCommand::AddToken { name: "ann".to_owned(), hash: hash(99) };
    let many = "'ann' has 16 tokens, which is the limit; remove one of them";
    assert_eq!(failure(&mut users, &one_more), (FailureKind::TooBig, many.to_owned()));
    for number in 1..USERS_MAX {
        users.change(&add(&format!("u{number}"), UserRole::Read, None), 1).unwrap();
    }
    let many = "there are 1000 users, which is the limit; remove one that is no longer needed";
    assert_eq!(failure(&mut users, &add("bob", UserRole::Read, None)), (FailureKind::TooBig, many.to_owned()));
}
