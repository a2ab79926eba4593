//! `#[derive(FromRow)]`.

use proc_macro2::TokenStream;
use quote::{ToTokens as _, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned as _;
use syn::{Attribute, Data, DeriveInput, Error, Field, Fields, Lifetime, LitStr, Path, Result, Type, parse_quote};

use crate::case::Case;

/// The options of a struct.
#[derive(Default)]
struct Container {
    rename_all: Option<Case>,
    path: Option<Path>,
}

/// The options of a field.
#[derive(Default)]
struct Options {
    rename: Option<String>,
    default: Option<Option<Path>>,
    try_from: Option<Type>,
    json: bool,
    flatten: bool,
    skip: bool,
}

/// The implementation of `FromRow` for a struct.
pub fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, "FromRow can be derived only for structs; implement it by hand"));
    };
    let container = Container::parse(&input.attrs)?;
    let path = container.path.clone().unwrap_or_else(|| parse_quote!(::quorate));
    let lifetime = lifetime(input)?;
    let mut bounds = Vec::new();
    let body = match &data.fields {
        Fields::Named(fields) => {
            let mut made = Vec::new();
            for field in &fields.named {
                let options = Options::parse(field)?;
                bounds.extend(options.bound(field, &path, &lifetime));
                let (name, value) = (&field.ident, options.value(field, &container, &path)?);
                made.push(quote!(#name: #value));
            }
            quote!(Ok(Self { #(#made),* }))
        }
        Fields::Unnamed(fields) => {
            let count = fields.unnamed.len();
            let mut made = Vec::new();
            for (number, field) in fields.unnamed.iter().enumerate() {
                reject_attributes(field)?;
                bounds.extend(Options::default().bound(field, &path, &lifetime));
                let ty = &field.ty;
                made.push(quote_spanned!(ty.span()=> row.get::<#ty>(#number)?));
            }
            quote!(row.expect_columns(#count)?; Ok(Self(#(#made),*)))
        }
        Fields::Unit => {
            return Err(Error::new_spanned(
                &input.ident,
                "a struct without fields can't be read from a row; add a field",
            ));
        }
    };
    let mut generics = input.generics.clone();
    if generics.type_params().next().is_some() {
        generics.make_where_clause().predicates.extend(bounds);
    }
    let (_, types, wheres) = generics.split_for_impl();
    let mut all = input.generics.clone();
    if all.lifetimes().next().is_none() {
        all.params.insert(0, parse_quote!(#lifetime));
    }
    let ((parameters, ..), name) = (all.split_for_impl(), &input.ident);
    Ok(quote! {
        #[automatically_derived]
        impl #parameters #path::FromRow<#lifetime> for #name #types #wheres {
            fn from_row(row: #path::sql::RowRef<#lifetime>) -> ::core::result::Result<Self, #path::sql::RowError> {
                #body
            }
        }
    })
}

/// The lifetime of the row, from which the struct borrows.
fn lifetime(input: &DeriveInput) -> Result<Lifetime> {
    let mut lifetimes = input.generics.lifetimes();
    let first = lifetimes.next().map(|parameter| parameter.lifetime.clone());
    match lifetimes.next() {
        Some(second) => {
            Err(Error::new_spanned(second, "a row has one lifetime; use the same one for all borrowed fields"))
        }
        None => Ok(first.unwrap_or_else(|| parse_quote!('quorate))),
    }
}

fn reject_attributes(field: &Field) -> Result<()> {
    match field.attrs.iter().find(|attribute| attribute.path().is_ident("quorate")) {
        Some(attribute) => {
            Err(Error::new_spanned(attribute, "a tuple struct is read by position; name its fields to use options"))
        }
        None => Ok(()),
    }
}

/// Calls `take` for each option of all `#[quorate(...)]` attributes.
fn options(attributes: &[Attribute], mut take: impl FnMut(&str, &ParseNestedMeta<'_>) -> Result<()>) -> Result<()> {
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("quorate")) {
        attribute.parse_nested_meta(|meta| take(&meta.path.to_token_stream().to_string(), &meta))?;
    }
    Ok(())
}

/// Stores an option that may be given only once.
fn once<T>(place: &mut Option<T>, value: T, meta: &ParseNestedMeta<'_>) -> Result<()> {
    if place.replace(value).is_some() { Err(meta.error("duplicate option")) } else { Ok(()) }
}

fn text(meta: &ParseNestedMeta<'_>) -> Result<LitStr> {
    meta.value()?.parse()
}

impl Container {
    fn parse(attributes: &[Attribute]) -> Result<Self> {
        let mut container = Self::default();
        options(attributes, |name, meta| match name {
            "rename_all" => {
                let value = text(meta)?;
                let case = Case::ALL.iter().find(|(name, _)| *name == value.value());
                let names = || Case::ALL.map(|(name, _)| name).join(", ");
                let (_, case) =
                    case.ok_or_else(|| Error::new_spanned(&value, format!("unknown case; use one of {}", names())))?;
                once(&mut container.rename_all, *case, meta)
            }
            "crate" => once(&mut container.path, text(meta)?.parse()?, meta),
            _ => Err(meta.error("unknown option; a struct accepts rename_all and crate")),
        })?;
        Ok(container)
    }
}

impl Options {
    fn parse(field: &Field) -> Result<Self> {
        let mut options = Self::default();
        let (mut json, mut flatten, mut skip) = (None, None, None);
        self::options(&field.attrs, |name, meta| match name {
            "rename" => once(&mut options.rename, text(meta)?.value(), meta),
            "default" if meta.input.peek(syn::Token![=]) => {
                once(&mut options.default, Some(text(meta)?.parse()?), meta)
            }
            "default" => once(&mut options.default, None, meta),
            "try_from" => once(&mut options.try_from, text(meta)?.parse()?, meta),
            "json" => once(&mut json, (), meta),
            "flatten" => once(&mut flatten, (), meta),
            "skip" => once(&mut skip, (), meta),
            _ => Err(meta.error("unknown option; a field accepts rename, default, try_from, json, flatten and skip")),
        })?;
        (options.json, options.flatten, options.skip) = (json.is_some(), flatten.is_some(), skip.is_some());
        let is_converted = options.json || options.try_from.is_some();
        let of_column = options.rename.is_some() || options.default.is_some() || is_converted;
        if (options.flatten || options.skip) && of_column || options.flatten && options.skip {
            let what = if options.skip { "skip" } else { "flatten" };
            return Err(Error::new_spanned(
                field,
                format!("{what} can't have other options beside it, because the field has no column of its own"),
            ));
        }
        if options.json && options.try_from.is_some() {
            return Err(Error::new_spanned(
                field,
                "a field is read as JSON or by try_from, not both; remove one option",
            ));
        }
        Ok(options)
    }

    /// The bound on the field's type that reading the struct requires. Used only if the struct has type parameters.
    fn bound(&self, field: &Field, path: &Path, lifetime: &Lifetime) -> Option<syn::WherePredicate> {
        let read = self.try_from.as_ref().unwrap_or(&field.ty);
        match (self.skip || self.json, self.flatten) {
            (true, _) => None,
            (_, true) => Some(parse_quote!(#read: #path::FromRow<#lifetime>)),
            _ => Some(parse_quote!(#read: #path::sql::FromValue<#lifetime>)),
        }
    }

    /// The expression that produces the field's value.
    fn value(&self, field: &Field, container: &Container, path: &Path) -> Result<TokenStream> {
        let (ty, span) = (&field.ty, field.ty.span());
        if self.skip {
            return Ok(quote_spanned!(span=> ::core::default::Default::default()));
        }
        if self.flatten {
            return Ok(quote_spanned!(span=> <#ty as #path::FromRow>::from_row(row)?));
        }
        let ident = field.ident.as_ref().ok_or_else(|| Error::new_spanned(field, "a field without a name"))?;
        let name = ident.unraw().to_string();
        let name =
            self.rename.clone().unwrap_or_else(|| container.rename_all.map_or(name.clone(), |case| case.of(&name)));
        let read = self.try_from.as_ref().unwrap_or(ty);
        let convert = self.try_from.as_ref().map(|_| quote_spanned!(span=> row.convert::<_, #ty>(#name, value)?));
        let convert = convert.unwrap_or_else(|| quote!(value));
        Ok(match &self.default {
            None if self.json => quote_spanned!(span=> row.get_json::<#ty>(#name)?),
            None => quote_spanned!(span=> { let value = row.get_by_name::<#read>(#name)?; #convert }),
            Some(default) => {
                let default = default.as_ref().map_or_else(
                    || quote_spanned!(span=> ::core::default::Default::default()),
                    |path| quote_spanned!(path.span()=> #path()),
                );
                let found = if self.json {
                    quote_spanned!(span=> row.find_json::<#ty>(#name)?)
                } else {
                    quote_spanned!(span=> row.find::<#read>(#name)?)
                };
                quote_spanned!(span=> match #found {
                    ::core::option::Option::Some(value) => #convert,
                    ::core::option::Option::None => #default,
                })
            }
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use super::*;

    /// Checks that expansion fails with `expected`, at the place marked by `«` and `»`.
    #[track_caller]
    fn refused(marked: &str, expected: &str) {
        let input = marked.replace(['«', '»'], "");
        let error = expand(&syn::parse_str(&input).unwrap()).map(|tokens| tokens.to_string()).unwrap_err();
        assert_eq!(error.to_string(), expected, "{input}");
        let chars = |text: &str| text.chars().count();
        let (before, rest) = marked.split_once('«').unwrap();
        let (what, _) = rest.split_once('»').unwrap();
        let (begin, end) = (error.span().start(), error.span().end());
        assert_eq!((begin.line, begin.column, end.column), (1, chars(before), chars(before) + chars(what)), "{marked}");
    }

    #[test]
    fn unreadable_structs_are_errors_at_their_place() {
        refused("enum «E» { A }", "FromRow can be derived only for structs; implement it by hand");
        refused("struct «S»;", "a struct without fields can't be read from a row; add a field");
        let lifetimes = "a row has one lifetime; use the same one for all borrowed fields";
        refused("struct S<'a, «'b»> { a: &'a str, b: &'b str }", lifetimes);
        let tuple = "a tuple struct is read by position; name its fields to use options";
        refused("struct S(i64, «#[quorate(rename = \"b\")]» i64);", tuple);
    }

    #[test]
    fn wrong_field_options_are_errors_at_their_place() {
        let field = |options: &str| format!("struct S {{ a: i64, #[quorate({options})] b: i64 }}");
        let known = "unknown option; a field accepts rename, default, try_from, json, flatten and skip";
        refused(&field("«renam» = \"x\""), known);
        refused(&field("json, «unheard»"), known);
        for (first, again) in [
            ("skip", "«skip»"),
            ("json", "«json»"),
            ("flatten", "«flatten»"),
            ("default", "«default = \"f\"»"),
            ("rename = \"x\"", "«rename = \"y\"»"),
            ("try_from = \"i64\"", "«try_from = \"i32\"»"),
        ] {
            refused(&field(&format!("{first}, {again}")), "duplicate option");
        }
        for text in ["rename", "try_from", "default"] {
            refused(&field(&format!("{text} = «1»")), "expected string literal");
        }
        refused(&field("default = «\"1\"»"), "expected identifier");
        let alone = "can't have other options beside it, because the field has no column of its own";
        let whole = |options: &str| format!("struct S {{ a: i64, «#[quorate({options})] b: i64» }}");
        for (options, what) in [
            ("skip, rename = \"b\"", "skip"),
            ("skip, json", "skip"),
            ("skip, flatten", "skip"),
            ("flatten, default", "flatten"),
            ("flatten, try_from = \"i64\"", "flatten"),
        ] {
            refused(&whole(options), &format!("{what} {alone}"));
        }
        let both = "a field is read as JSON or by try_from, not both; remove one option";
        refused(&whole("json, try_from = \"i64\""), both);
    }

    #[test]
    fn wrong_struct_options_are_errors_at_their_place() {
        let of = |options: &str| format!("#[quorate({options})] struct S {{ a: i64 }}");
        refused(&of("«rename» = \"x\""), "unknown option; a struct accepts rename_all and crate");
        let cases =
            "unknown case; use one of lowercase, UPPERCASE, PascalCase, camelCase, SCREAMING_SNAKE_CASE, kebab-case";
        refused(&of("rename_all = «\"Camel\"»"), cases);
        let again = "duplicate option";
        refused(&of("rename_all = \"lowercase\", «rename_all = \"lowercase\"»"), again);
        refused(&of("crate = \"a\", «crate = \"b\"»"), again);
        refused(&of("crate = «\"1\"»"), "expected identifier");
    }
}
