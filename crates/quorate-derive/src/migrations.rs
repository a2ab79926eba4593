//! `migrations!`.

use std::path::Path;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, LitStr, Result};

/// The form of a migration's file name.
const NAME: &str = "the name of a migration is a number, an underscore and a text, as in 0001_users.sql";

/// An explanation of where the folder is searched for.
const RELATIVE: &str = "the folder is relative to the directory that holds the Cargo.toml";

/// The migrations of a folder below `root`, in order of their numbers.
pub fn expand(root: &Path, folder: &LitStr) -> Result<TokenStream> {
    let path = root.join(folder.value());
    let failed = |what: String| Error::new(folder.span(), what);
    let unreadable = |error: std::io::Error| failed(format!("{}: {error}; {RELATIVE}", path.display()));
    let mut files = Vec::new();
    for name in names(&path).map_err(unreadable)?.into_iter().filter(|name| name.ends_with(".sql")) {
        files.push((number(&name).ok_or_else(|| failed(format!("{name}: {NAME}")))?, name));
    }
    files.sort_unstable();
    if let Some(((_, one), (_, next))) = files.iter().zip(files.iter().skip(1)).find(|((a, _), (b, _))| a == b) {
        return Err(failed(format!("{one} and {next} have the same number: give the newer one a higher number")));
    }
    let all = files.into_iter().map(|(number, name)| {
        let file = path.join(&name).display().to_string();
        quote!((#number, #name, ::core::include_str!(#file)))
    });
    Ok(quote!(::quorate::Migrations::embedded(&[#(#all),*])))
}

#[expect(clippy::disallowed_methods, reason = "a macro reads real files at compile time")]
fn names(path: &Path) -> std::io::Result<Vec<String>> {
    std::fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// The number in a file name, by the same rule as in `quorate::sql::Migration`.
fn number(file: &str) -> Option<i64> {
    let (digits, name) = file.strip_suffix(".sql")?.split_once('_')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number && !name.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests stop at the first surprise")]

    use syn::parse_quote;

    use super::*;

    #[test]
    fn files_are_sorted_by_number() {
        let root = tempfile::TempDir::new().unwrap();
        let put = |name: &str| std::fs::write(root.path().join(name), "SELECT 1").unwrap();
        let expanded = || expand(root.path(), &parse_quote!(".")).map(|tokens| tokens.to_string());
        ["10_c.sql", "9_b.sql", "README.md"].into_iter().for_each(put);
        let tokens = expanded().unwrap();
        assert!(tokens.find("9_b.sql") < tokens.find("10_c.sql") && !tokens.contains("README"), "{tokens}");
    }

    #[test]
    fn folder_errors_point_at_the_folder_argument() {
        let root = tempfile::TempDir::new().unwrap();
        let put = |name: &str| std::fs::write(root.path().join(name), "SELECT 1").unwrap();
        let error_of = |folder: &str| {
            let folder: LitStr = syn::parse_str(&format!("\n  {folder:?}")).unwrap();
            let error = expand(root.path(), &folder).map(|tokens| tokens.to_string()).unwrap_err();
            assert_eq!((error.span().start().line, error.span().start().column), (2, 2));
            error.to_string()
        };
        let missing = root.path().join("missing");
        let why = std::fs::read_dir(&missing).unwrap_err();
        assert_eq!(error_of("missing"), format!("{}: {why}; {RELATIVE}", missing.display()));
        put("9_b.sql");
        put("09_d.sql");
        let same = "09_d.sql and 9_b.sql have the same number: give the newer one a higher number";
        assert_eq!(error_of("."), same);
        put("users.sql");
        assert_eq!(error_of("."), format!("users.sql: {NAME}"));
    }
}
