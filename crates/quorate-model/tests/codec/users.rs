//! Tests of the encodings of users and of the commands about them.

use proptest::collection::vec;
use proptest::prelude::*;
use quorate_model::{
    ControlCommand, DecodeError, FailureKind, Proposal, TokenHash, TokenId, User, UserCommand, UserRole, UserToken,
    Verifier, codec,
};

use super::{golden, golden_proposal_of};

fn any_hash() -> impl Strategy<Value = TokenHash> {
    any::<[u8; TokenHash::BYTES]>().prop_map(TokenHash::new)
}

fn any_role() -> impl Strategy<Value = UserRole> {
    (0..UserRole::ALL.len()).prop_map(|role| UserRole::ALL[role])
}

fn any_verifier() -> impl Strategy<Value = Option<Verifier>> {
    proptest::option::of(".{0,20}".prop_map(Verifier::new))
}

pub fn any_command() -> impl Strategy<Value = UserCommand> {
    let name = || ".{0,9}".prop_map(String::from);
    let token = proptest::option::of(any_hash());
    prop_oneof![
        (name(), any_role(), any_verifier(), token).prop_map(|(name, role, verifier, token)| UserCommand::Add {
            name,
            role,
            verifier,
            token
        }),
        name().prop_map(UserCommand::Remove),
        (name(), any_role()).prop_map(|(name, role)| UserCommand::SetRole { name, role }),
        (name(), any_verifier()).prop_map(|(name, verifier)| UserCommand::SetVerifier { name, verifier }),
        (name(), any_hash()).prop_map(|(name, hash)| UserCommand::AddToken { name, hash }),
        (name(), any::<u64>()).prop_map(|(name, id)| UserCommand::RemoveToken { name, id: TokenId(id) }),
    ]
}

fn any_user() -> impl Strategy<Value = User> {
    let token = (any_hash(), any::<u64>()).prop_map(|(hash, created)| UserToken { hash, created });
    (".{0,9}", any_role(), any_verifier(), vec(token, 0..4)).prop_map(|(name, role, verifier, tokens)| User {
        name,
        role,
        verifier,
        tokens,
    })
}

proptest! {
    #[test]
    fn a_user_comes_back(user in any_user()) {
        prop_assert_eq!(codec::decode_user(&codec::encode_user(&user)).unwrap(), user);
    }
}

/// One command of each kind about users.
fn golden_users() -> Proposal {
    let (name, hash) = ("ann".to_owned(), TokenHash::new([7; TokenHash::BYTES]));
    let verifier = Verifier::new("$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA");
    let add = |verifier, token| UserCommand::Add { name: name.clone(), role: UserRole::Admin, verifier, token };
    let commands = [
        add(Some(verifier.clone()), Some(hash)),
        add(None, None),
        UserCommand::Remove(name.clone()),
        UserCommand::SetRole { name: name.clone(), role: UserRole::Read },
        UserCommand::SetVerifier { name: name.clone(), verifier: Some(verifier) },
        UserCommand::SetVerifier { name: name.clone(), verifier: None },
        UserCommand::AddToken { name: name.clone(), hash },
        UserCommand::RemoveToken { name, id: hash.id() },
    ];
    golden_proposal_of(commands.map(|command| ControlCommand::User(command).into()).into())
}

#[test]
fn the_bytes_of_level_3_never_change() {
    golden("proposal-users-3.hex", &codec::encode_proposal(&golden_users()).unwrap());
    let verifier = Some(Verifier::new("$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA"));
    let token = |byte, created| UserToken { hash: TokenHash::new([byte; TokenHash::BYTES]), created };
    let tokens = vec![token(7, 1_700_000_000_000_000_000), token(8, 0)];
    let user = User { name: "ann".to_owned(), role: UserRole::Write, verifier, tokens };
    golden("user-3.hex", &codec::encode_user(&user));
    for (kind, number) in [(FailureKind::UserExists, 17), (FailureKind::UserUnknown, 18), (FailureKind::NoAdmin, 19)] {
        assert_eq!(FailureKind::from_number(number), Some(kind));
    }
}

#[test]
fn a_command_about_a_user_has_the_fields_that_it_needs_and_no_others() {
    let proposal = |command: &[u8]| {
        let field = |tag: u8, bytes: &[u8]| [&[tag << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat();
        let command = field(4, &field(1, &field(6, command)));
        codec::decode_proposal(&[&[0x08, 3], command.as_slice()].concat().into())
    };
    // To remove "a"; to remove "a", with a role; to set the role of "a"; the same without a role.
    let remove = UserCommand::Remove("a".to_owned());
    let read = proposal(&[0x12, 3, 0x0a, 1, b'a']).unwrap();
    assert_eq!(read.commands, [ControlCommand::User(remove).into()]);
    assert_eq!(proposal(&[0x12, 5, 0x0a, 1, b'a', 0x10, 1]), Err(DecodeError::Unknown));
    assert!(proposal(&[0x1a, 5, 0x0a, 1, b'a', 0x10, 3]).is_ok());
    assert_eq!(proposal(&[0x1a, 3, 0x0a, 1, b'a']), Err(DecodeError::Unknown));
    // A role that does not exist.
    assert_eq!(proposal(&[0x1a, 5, 0x0a, 1, b'a', 0x10, 4]), Err(DecodeError::Unknown));
}
