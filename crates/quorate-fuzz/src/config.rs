//! The configuration of a server, from a file and from environment variables.

use quorate::SecretSource;
use quorate::config::{Sources, print, template};
use quorate_server::ServerConfig;

/// Separates the file from the variables, and the variables from each other.
const SEPARATOR: char = '\0';

/// Checks that a valid configuration, printed or as a template, reads back as itself.
pub fn server(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut parts = text.split(SEPARATOR);
    let Ok(sources) = Sources::new().text(parts.next().unwrap_or_default()) else { return };
    let variables = parts.filter_map(|part| part.split_once('='));
    let sources = sources.variables(variables);
    let Ok(config) = sources.read::<ServerConfig>() else { return };
    // A secret in the file itself is never printed, so the text would not read back as the same configuration.
    if matches!(config.node.secret, SecretSource::Inline(_)) {
        return;
    }
    for text in [print(&config, |_| None), template(&config)] {
        let again = Sources::new().text(&text).and_then(|sources| sources.read::<ServerConfig>());
        assert_eq!(again.as_ref().ok(), Some(&config), "{text}\n{again:?}");
    }
}
