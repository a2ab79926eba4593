//! Tests of the generator: it leaves out no command.

use super::TEMPLATES;
use crate::table::{Run, all};

/// Commands that no template has, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    ("quit", "it closes the connection"),
    ("subscribe", "its replies are more than one, and the client may not send other commands after it"),
    ("psubscribe", "the same"),
    ("unsubscribe", "its replies are more than one"),
    ("punsubscribe", "the same"),
    ("ssubscribe", "as subscribe"),
    ("sunsubscribe", "as unsubscribe"),
    ("save", "its reply depends on what is being saved"),
    ("bgsave", "the same"),
    ("bgrewriteaof", "the same"),
];

/// Returns whether a template has this command, with this second word if there is one.
fn has_template(name: &str, second: Option<&str>) -> bool {
    TEMPLATES.iter().any(|(_, template)| {
        let mut words = template.split(' ').map(|token| token.split('|'));
        let is_it = words.next().is_some_and(|mut names| names.any(|word| word == name));
        is_it && second.is_none_or(|second| words.next().is_some_and(|mut names| names.any(|word| word == second)))
    })
}

#[test]
fn all_commands_have_templates_but_those_that_can_not() {
    let mut missing = Vec::new();
    for (group, spec) in all() {
        // Redis has none of our own commands.
        if group == "quorate" {
            continue;
        }
        let is_left_out = LEFT_OUT.iter().any(|(name, _)| *name == spec.name);
        if has_template(spec.name, None) == is_left_out {
            missing.push(spec.name.to_owned());
        }
        if let Run::Sub(subs, _) = spec.run {
            let without = subs.iter().filter(|sub| !has_template(spec.name, Some(sub.name)));
            missing.extend(without.map(|sub| format!("{} {}", spec.name, sub.name)));
        }
    }
    assert!(missing.is_empty(), "without a template, or left out in vain: {missing:?}");
}
