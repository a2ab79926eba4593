//! What the fields of messages hold, and the lists that say which fields a message has.

use bytes::Bytes;

use crate::codec::decode::Field::{self, Bytes as Content, Double, Number};
use crate::codec::decode::{Decode, Fields, Flaw, Part, empty, push, small, unzigzag};
use crate::codec::encode::{Message, Out, zigzag};
use crate::keys::limits::ARGUMENTS_MAX;
use crate::keys::{Page, Version};
use crate::locks::Token;

/// What one field holds.
pub(super) trait Single: Sized {
    /// Puts the field, also if it holds what an absent one stands for.
    fn put(&self, tag: u32, out: &mut impl Out);

    fn take(field: Field<'_>) -> Result<Self, Flaw>;

    /// Returns what an absent field stands for; a flaw if the field may not be absent.
    fn absent() -> Result<Self, Flaw> {
        Err(Flaw::Unknown)
    }

    fn is_absent(&self) -> bool {
        false
    }
}

/// What the fields with one tag hold together.
pub(super) trait Tagged: Sized {
    fn put(&self, tag: u32, out: &mut impl Out);

    /// Adds what a field holds to what those before it held.
    fn take(found: &mut Option<Self>, field: Field<'_>) -> Result<(), Flaw>;

    fn end(found: Option<Self>) -> Result<Self, Flaw>;
}

impl<T: Single> Tagged for T {
    fn put(&self, tag: u32, out: &mut impl Out) {
        if !self.is_absent() {
            Single::put(self, tag, out);
        }
    }

    fn take(found: &mut Option<Self>, field: Field<'_>) -> Result<(), Flaw> {
        *found = Some(Single::take(field)?);
        Ok(())
    }

    fn end(found: Option<Self>) -> Result<Self, Flaw> {
        found.map_or_else(Self::absent, Ok)
    }
}

impl<T: Single> Tagged for Option<T> {
    fn put(&self, tag: u32, out: &mut impl Out) {
        self.iter().for_each(|value| value.put(tag, out));
    }

    fn take(found: &mut Option<Self>, field: Field<'_>) -> Result<(), Flaw> {
        *found = Some(Some(T::take(field)?));
        Ok(())
    }

    fn end(found: Option<Self>) -> Result<Self, Flaw> {
        Ok(found.flatten())
    }
}

impl<T: Single> Tagged for Vec<T> {
    fn put(&self, tag: u32, out: &mut impl Out) {
        self.iter().for_each(|value| value.put(tag, out));
    }

    fn take(found: &mut Option<Self>, field: Field<'_>) -> Result<(), Flaw> {
        push(found.get_or_insert_default(), ARGUMENTS_MAX, T::take(field)?)
    }

    fn end(found: Option<Self>) -> Result<Self, Flaw> {
        Ok(found.unwrap_or_default())
    }
}

/// Each is a message with one field, or none.
impl<T: Single> Tagged for Vec<Option<T>> {
    fn put(&self, tag: u32, out: &mut impl Out) {
        self.iter().for_each(|value| out.message(tag, &(value,)));
    }

    fn take(found: &mut Option<Self>, field: Field<'_>) -> Result<(), Flaw> {
        let (value,) = message(field)?;
        push(found.get_or_insert_default(), ARGUMENTS_MAX, value)
    }

    fn end(found: Option<Self>) -> Result<Self, Flaw> {
        Ok(found.unwrap_or_default())
    }
}

/// Decodes the message that a field holds.
pub(super) fn message<M: Decode>(field: Field<'_>) -> Result<M, Flaw> {
    match field {
        Content(part) => M::decode(part),
        Number(_) | Double(_) => Err(Flaw::Unknown),
    }
}

impl Single for Bytes {
    fn put(&self, tag: u32, out: &mut impl Out) {
        out.bytes(tag, self);
    }

    fn take(field: Field<'_>) -> Result<Self, Flaw> {
        match field {
            Content(part) => Ok(part.slice()),
            Number(_) | Double(_) => Err(Flaw::Unknown),
        }
    }

    fn absent() -> Result<Self, Flaw> {
        Ok(Self::new())
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl Single for f64 {
    fn put(&self, tag: u32, out: &mut impl Out) {
        out.double(tag, *self);
    }

    fn take(field: Field<'_>) -> Result<Self, Flaw> {
        match field {
            Double(number) => Ok(number),
            Number(_) | Content(_) => Err(Flaw::Unknown),
        }
    }
}

/// Numbers: how one is put as 64 bits, and got back; it is absent if these are 0.
macro_rules! whole_numbers {
    ($($type:ty: $put:expr, $take:expr;)*) => {$(
        impl Single for $type {
            fn put(&self, tag: u32, out: &mut impl Out) {
                out.number(tag, $put(*self));
            }

            fn take(field: Field<'_>) -> Result<Self, Flaw> {
                match field {
                    Number(number) => $take(number),
                    Double(_) | Content(_) => Err(Flaw::Unknown),
                }
            }

            fn absent() -> Result<Self, Flaw> {
                $take(0)
            }

            fn is_absent(&self) -> bool {
                $put(*self) == 0
            }
        }
    )*};
}

whole_numbers! {
    u64: u64::from, Ok;
    u32: u64::from, small;
    u8: u64::from, small;
    i64: zigzag, |number| Ok(unzigzag(number));
    Version: |version: Self| version.0, |number| Ok(Self(number));
    Token: |token: Self| token.0, |number| Ok(Self(number));
    bool: u64::from, flag;
}

fn flag(number: u64) -> Result<bool, Flaw> {
    match number {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Flaw::Unknown),
    }
}

impl<A: Tagged, B: Tagged> Single for (A, B) {
    fn put(&self, tag: u32, out: &mut impl Out) {
        out.message(tag, &(&self.0, &self.1));
    }

    fn take(field: Field<'_>) -> Result<Self, Flaw> {
        message(field)
    }
}

impl<T: Single> Single for Page<T> {
    fn put(&self, tag: u32, out: &mut impl Out) {
        out.message(tag, &(&self.rows, &self.next));
    }

    fn take(field: Field<'_>) -> Result<Self, Flaw> {
        let (rows, next) = message(field)?;
        Ok(Self { rows, next })
    }
}

impl Message for () {
    fn put(&self, _: &mut impl Out) {}
}

impl Decode for () {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        empty(part, ())
    }
}

/// Tuples as messages: the fields have the tags 1, 2, ...
macro_rules! tuples {
    ($($($tag:literal $part:ident)+;)*) => {$(
        #[expect(non_snake_case, reason = "a variable for each type")]
        impl<$($part: Tagged),+> Message for ($(&$part,)+) {
            fn put(&self, out: &mut impl Out) {
                let ($($part,)+) = self;
                $($part.put($tag, out);)+
            }
        }

        #[expect(non_snake_case, reason = "a variable for each type")]
        impl<$($part: Tagged),+> Decode for ($($part,)+) {
            fn decode(part: Part<'_>) -> Result<Self, Flaw> {
                $(let mut $part = None;)+
                for field in Fields::of(part) {
                    match field? {
                        $(($tag, field) => Tagged::take(&mut $part, field)?,)+
                        _ => return Err(Flaw::Unknown),
                    }
                }
                Ok(($(Tagged::end($part)?,)+))
            }
        }
    )*};
}

tuples! {
    1 A;
    1 A 2 B;
    1 A 2 B 3 C;
    1 A 2 B 3 C 4 D;
    1 A 2 B 3 C 4 D 5 E;
    1 A 2 B 3 C 4 D 5 E 6 F;
}

/// A structure as a message: its fields, in the order of their tags.
macro_rules! record {
    ($type:ty { $($field:ident),* }) => {
        impl $crate::codec::encode::Message for $type {
            fn put(&self, out: &mut impl $crate::codec::encode::Out) {
                $crate::codec::encode::Message::put(&($(&self.$field,)*), out);
            }
        }

        impl $crate::codec::decode::Decode for $type {
            fn decode(part: $crate::codec::decode::Part<'_>) -> Result<Self, $crate::codec::decode::Flaw> {
                let ($($field,)*) = $crate::codec::decode::Decode::decode(part)?;
                Ok(Self { $($field),* })
            }
        }

        $crate::codec::fields::as_message!($type {});
    };
}

/// An enumeration as a message with one field: `tag: Variant { fields of its message }`, `tag: Variant(the field)` or
/// `tag: Variant(repeated field of its message) list`. The variant behind `=` is a message without fields, and may be
/// absent.
macro_rules! one_of {
    ($type:ty $(= $absent:ident)? { $($tag:literal: $variant:ident $shape:tt $($list:ident)?),* $(,)? }) => {
        impl $crate::codec::encode::Message for $type {
            fn put(&self, out: &mut impl $crate::codec::encode::Out) {
                match self {
                    $(Self::$absent => {})?
                    $(Self::$variant $shape => $crate::codec::fields::variant!(put out $tag $shape $($list)?),)*
                }
            }
        }

        impl $crate::codec::decode::Decode for $type {
            fn decode(part: $crate::codec::decode::Part<'_>) -> Result<Self, $crate::codec::decode::Flaw> {
                $(if part.bytes().is_empty() {
                    return Ok(Self::$absent);
                })?
                Ok(match $crate::codec::decode::only_field(part)? {
                    $(($tag, field) => {
                        $crate::codec::fields::variant!(take field $shape $($list)?);
                        Self::$variant $shape
                    })*
                    _ => return Err($crate::codec::decode::Flaw::Unknown),
                })
            }
        }

        $crate::codec::fields::as_message!($type {
            $(fn absent() -> Result<Self, $crate::codec::decode::Flaw> {
                Ok(Self::$absent)
            }

            fn is_absent(&self) -> bool {
                matches!(self, Self::$absent)
            })?
        });
    };
}

/// Puts the fields of a variant, or takes them into variables of their names.
macro_rules! variant {
    (put $out:ident $tag:literal ($field:ident)) => { $crate::codec::fields::Single::put($field, $tag, $out) };
    (put $out:ident $tag:literal ($($field:ident),*) $(list)?) => { $out.message($tag, &($($field,)*)) };
    (put $out:ident $tag:literal { $($field:ident),* }) => { $out.message($tag, &($($field,)*)) };
    (take $from:ident ($field:ident)) => { let $field = $crate::codec::fields::Single::take($from)?; };
    (take $from:ident ($($field:ident),*) $(list)?) => {
        let ($($field,)*) = $crate::codec::fields::message($from)?;
    };
    (take $from:ident { $($field:ident),* }) => {
        let ($($field,)*) = $crate::codec::fields::message($from)?;
    };
}

/// A message as what a field holds.
macro_rules! as_message {
    ($type:ty { $($absent:tt)* }) => {
        impl $crate::codec::fields::Single for $type {
            fn put(&self, tag: u32, out: &mut impl $crate::codec::encode::Out) {
                out.message(tag, self);
            }

            fn take(field: $crate::codec::decode::Field<'_>) -> Result<Self, $crate::codec::decode::Flaw> {
                $crate::codec::fields::message(field)
            }

            $($absent)*
        }
    };
}

/// An enumeration as a number; the variant behind `=` is 0, and may be absent.
macro_rules! numbers {
    ($type:ty = $absent:ident { $($number:literal: $variant:ident),* }) => {
        impl $crate::codec::fields::Single for $type {
            fn put(&self, tag: u32, out: &mut impl $crate::codec::encode::Out) {
                out.number(tag, match self {
                    Self::$absent => 0,
                    $(Self::$variant => $number,)*
                });
            }

            fn take(field: $crate::codec::decode::Field<'_>) -> Result<Self, $crate::codec::decode::Flaw> {
                match field {
                    $crate::codec::decode::Field::Number(0) => Ok(Self::$absent),
                    $($crate::codec::decode::Field::Number($number) => Ok(Self::$variant),)*
                    _ => Err($crate::codec::decode::Flaw::Unknown),
                }
            }

            fn absent() -> Result<Self, $crate::codec::decode::Flaw> {
                Ok(Self::$absent)
            }

            fn is_absent(&self) -> bool {
                matches!(self, Self::$absent)
            }
        }
    };
}

pub(super) use {as_message, numbers, one_of, record, variant};
