//! The macros of Quorate. The crate `quorate` re-exports them, and its documentation has tested examples.
//!
//! Invariant: an error in the input of a macro is a compile error that points at the wrong part of the input.

#![forbid(unsafe_code)]

mod case;
mod from_row;
mod migrations;

use proc_macro::TokenStream;
use syn::parse_macro_input;

/// Implements `FromRow` for a struct. Each field is read from the column with its name, by the [`FromValue`] of its
/// type, whatever the order of the columns; other columns are ignored. A tuple struct is read by position, like a
/// tuple.
///
/// [`FromValue`]: https://docs.rs/quorate/latest/quorate/sql/trait.FromValue.html
///
/// On the struct, `#[quorate(...)]` accepts
///
/// - `rename_all = "camelCase"`: the columns have the fields' names in another case: `lowercase`, `UPPERCASE`,
///   `PascalCase`, `camelCase`, `SCREAMING_SNAKE_CASE` or `kebab-case`;
/// - `crate = "path"`: the path of `quorate`, if it is not `::quorate`.
///
/// On a field it accepts
///
/// - `rename = "name"`: the column has this name;
/// - `default`: if the column is missing or NULL, the field is `Default::default()`; with `default = "path"`, it is the
///   result of that function;
/// - `try_from = "Type"`: the column is read as this type and converted to the field's type by `TryFrom`;
/// - `json`: the column holds JSON text, from which `serde` reads the field (feature `serde_json`);
/// - `flatten`: the field is itself a struct, read from the same row;
/// - `skip`: the field has no column and is `Default::default()`.
#[proc_macro_derive(FromRow, attributes(quorate))]
pub fn from_row(input: TokenStream) -> TokenStream {
    from_row::expand(&parse_macro_input!(input)).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Embeds the migrations of a folder, as they are when the program is compiled. The folder is relative to the directory
/// that holds the crate's `Cargo.toml`. Its files whose names end in `.sql` are the migrations. A name that does not
/// have the form `0001_users.sql`, or a duplicate number, is a compile error.
///
/// Cargo detects changes only to files that existed at the last build. To make it detect new files too, let a
/// `build.rs` print `cargo::rerun-if-changed=migrations`.
#[proc_macro]
pub fn migrations(input: TokenStream) -> TokenStream {
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let folder = parse_macro_input!(input);
    migrations::expand(root.as_ref(), &folder).unwrap_or_else(syn::Error::into_compile_error).into()
}
