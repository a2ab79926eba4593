//! The macros of Quorate; `quorate` hands them on, and its documentation has examples that run.
//!
//! Invariant: what is wrong with the code that a macro is given is a compile error at the place where it is wrong.

#![forbid(unsafe_code)]

mod case;
mod from_row;
mod migrations;

use proc_macro::TokenStream;
use syn::parse_macro_input;

/// Reads a struct from a row: a field from the column of its name, by the field's [`FromValue`], in whatever order the
/// columns are; columns that no field asks for are left out. A tuple struct is read as a tuple is, by position.
///
/// [`FromValue`]: https://docs.rs/quorate/latest/quorate/trait.FromValue.html
///
/// Of the struct, `#[quorate(...)]` takes
///
/// - `rename_all = "camelCase"`: columns are named as the fields are, in another case: `lowercase`, `UPPERCASE`,
///   `PascalCase`, `camelCase`, `SCREAMING_SNAKE_CASE` or `kebab-case`;
/// - `crate = "path"`: where `quorate` is, if not at `::quorate`.
///
/// Of a field it takes
///
/// - `rename = "name"`: the column has this name;
/// - `default`: a column that is missing or NULL gives `Default::default()`; `default = "path"`, what that function
///   returns;
/// - `try_from = "Type"`: the column is read as this type, and the field made from it by `TryFrom`;
/// - `json`: the column is a text of JSON, and the field read from it by `serde` (feature `serde_json`);
/// - `flatten`: the field is a struct of its own, read from the same row;
/// - `skip`: no column; the field is `Default::default()`.
#[proc_macro_derive(FromRow, attributes(quorate))]
pub fn from_row(input: TokenStream) -> TokenStream {
    from_row::expand(&parse_macro_input!(input)).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// The migrations of a folder, as they are when the program is compiled. The folder is counted from the one that holds
/// the `Cargo.toml` of the crate; its files whose names end in `.sql` are the migrations, and a name that is not like
/// `0001_users.sql`, or a number that is there twice, is a compile error.
///
/// Cargo looks for changes of the files that there were; so that it sees a new one too, let a `build.rs` print
/// `cargo::rerun-if-changed=migrations`.
#[proc_macro]
pub fn migrations(input: TokenStream) -> TokenStream {
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let folder = parse_macro_input!(input);
    migrations::expand(root.as_ref(), &folder).unwrap_or_else(syn::Error::into_compile_error).into()
}
