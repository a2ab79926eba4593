//! What a server is told by a file and by its environment.

use quorate::SecretSource;
use quorate::config::{Sources, print, template};
use quorate_server::ServerConfig;

/// Between a file and the variables, and between these.
const SEPARATOR: char = '\0';

/// What is told is an error or a configuration, which reads as itself when it is printed.
pub fn server(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut parts = text.split(SEPARATOR);
    let Ok(sources) = Sources::new().text(parts.next().unwrap_or_default()) else { return };
    let variables = parts.filter_map(|part| part.split_once('=').map(|(name, value)| (name.into(), value.into())));
    let sources = sources.variables(variables);
    let Ok(config) = sources.read::<ServerConfig>() else { return };
    // A secret that stands in the file itself is never printed.
    if matches!(config.node.secret, SecretSource::Inline(_)) {
        return;
    }
    for text in [print(&config, |_| None), template(&config)] {
        let again = Sources::new().text(&text).and_then(|sources| sources.read::<ServerConfig>());
        assert_eq!(again.as_ref().ok(), Some(&config), "{text}\n{again:?}");
    }
}
