//! Reads replies of both versions of the protocol.

/// A reply, as it was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// One line, its type in front.
    Line(String),
    /// Bytes with a length, and their type.
    Bulk(char, Vec<u8>),
    /// Parts, and their type.
    Parts(char, Vec<Value>),
}

impl Value {
    /// Reads a reply; how many bytes it has, too. None if it is not whole.
    ///
    /// # Errors
    ///
    /// The bytes are not a reply.
    pub fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, String> {
        let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
        let line = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned();
        let end = end + 2;
        let kind = line.chars().next().ok_or("an empty line")?;
        let length = || line.get(1..).and_then(|text| text.parse::<i64>().ok()).ok_or(format!("no length: {line}"));
        match kind {
            '+' | '-' | ':' | '_' | ',' | '#' | '(' => Ok(Some((Self::Line(line), end))),
            '$' | '*' if length()? < 0 => Ok(Some((Self::Line(line), end))),
            '$' | '=' => {
                let length = usize::try_from(length()?).map_err(|error| error.to_string())?;
                let found = bytes.get(end..end + length).filter(|_| bytes.len() >= end + length + 2);
                Ok(found.map(|found| (Self::Bulk(kind, found.to_vec()), end + length + 2)))
            }
            '*' | '~' | '>' | '%' => {
                let count = length()? * if kind == '%' { 2 } else { 1 };
                Self::read_parts(bytes, kind, count, end)
            }
            _ => Err(format!("no reply: {line}")),
        }
    }

    fn read_parts(bytes: &[u8], kind: char, count: i64, mut end: usize) -> Result<Option<(Self, usize)>, String> {
        let mut parts = Vec::new();
        for _ in 0..count {
            let Some((part, read)) = Self::read(bytes.get(end..).unwrap_or_default())? else { return Ok(None) };
            parts.push(part);
            end += read;
        }
        Ok(Some((Self::Parts(kind, parts), end)))
    }

    /// Returns the number that it is.
    pub fn number(&self) -> Option<i64> {
        if let Self::Line(line) = self { line.strip_prefix(':')?.parse().ok() } else { None }
    }

    /// Returns whether it is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Line(line) if line.starts_with('-'))
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Line(line) => f.write_str(line),
            Self::Bulk(kind, bytes) => write!(f, "{kind}\"{}\"", bytes.escape_ascii()),
            Self::Parts(kind, parts) => {
                write!(f, "{kind}[")?;
                for (place, part) in parts.iter().enumerate() {
                    write!(f, "{}{part}", if place > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
        }
    }
}
