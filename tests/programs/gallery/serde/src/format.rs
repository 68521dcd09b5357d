//! The format: a list of tokens. The thread moves as they are written and read, and in errors.

use alloc::string::String;
use core::fmt::{self, Display};

use gallery::*;
use serde::de::{self, DeserializeSeed, IntoDeserializer, Visitor};
use serde::{Deserialize, Serialize, forward_to_deserialize_any, ser};

/// A part of what was written.
#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Nothing,
    Just,
    Flag(bool),
    Signed(i128),
    Unsigned(u128),
    Single(f32),
    Double(f64),
    Letter(char),
    Text(String),
    Bytes(Vec<u8>),
    Many,
    Table,
    Variant(&'static str),
    End,
}

/// What is wrong with tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Wrong(pub String);

impl Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wrong: {}", self.0)
    }
}

impl core::error::Error for Wrong {}

impl ser::Error for Wrong {
    fn custom<T: Display>(text: T) -> Wrong {
        hop_each(3);
        Wrong(text.to_string())
    }
}

impl de::Error for Wrong {
    fn custom<T: Display>(text: T) -> Wrong {
        hop_each(3);
        Wrong(text.to_string())
    }
}

/// Tokens that go.
pub struct Sink(pub Vec<Token>);

impl Sink {
    fn add(&mut self, token: Token) -> Result<(), Wrong> {
        hop_each(41);
        self.0.push(token);
        Ok(())
    }
}

macro_rules! write {
    ($($method:ident($type:ty) $token:ident;)*) => {
        $(fn $method(self, n: $type) -> Result<(), Wrong> {
            self.add(Token::$token(n.into()))
        })*
    };
}

impl ser::Serializer for &mut Sink {
    type Ok = ();
    type Error = Wrong;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    write! {
        serialize_bool(bool) Flag;
        serialize_i8(i8) Signed;
        serialize_i16(i16) Signed;
        serialize_i32(i32) Signed;
        serialize_i64(i64) Signed;
        serialize_i128(i128) Signed;
        serialize_u8(u8) Unsigned;
        serialize_u16(u16) Unsigned;
        serialize_u32(u32) Unsigned;
        serialize_u64(u64) Unsigned;
        serialize_u128(u128) Unsigned;
        serialize_f32(f32) Single;
        serialize_f64(f64) Double;
        serialize_char(char) Letter;
        serialize_str(&str) Text;
        serialize_bytes(&[u8]) Bytes;
    }

    fn serialize_none(self) -> Result<(), Wrong> {
        self.add(Token::Nothing)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Wrong> {
        self.add(Token::Just)?;
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Wrong> {
        self.add(Token::Nothing)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Wrong> {
        self.add(Token::Nothing)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, v: &'static str) -> Result<(), Wrong> {
        self.add(Token::Variant(v))?;
        self.add(Token::Nothing)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Wrong> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        v: &'static str,
        value: &T,
    ) -> Result<(), Wrong> {
        self.add(Token::Variant(v))?;
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, Wrong> {
        self.add(Token::Many).map(|()| self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Wrong> {
        self.add(Token::Many).map(|()| self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Wrong> {
        self.add(Token::Many).map(|()| self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        v: &'static str,
        _: usize,
    ) -> Result<Self, Wrong> {
        self.add(Token::Variant(v))?;
        self.add(Token::Many).map(|()| self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, Wrong> {
        self.add(Token::Table).map(|()| self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Wrong> {
        self.add(Token::Table).map(|()| self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        v: &'static str,
        _: usize,
    ) -> Result<Self, Wrong> {
        self.add(Token::Variant(v))?;
        self.add(Token::Table).map(|()| self)
    }
}

macro_rules! elements {
    ($($of:ident $method:ident;)*) => {
        $(impl ser::$of for &mut Sink {
            type Ok = ();
            type Error = Wrong;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Wrong> {
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), Wrong> {
                self.add(Token::End)
            }
        })*
    };
}

elements! {
    SerializeSeq serialize_element;
    SerializeTuple serialize_element;
    SerializeTupleStruct serialize_field;
    SerializeTupleVariant serialize_field;
}

macro_rules! fields {
    ($($of:ident)*) => {
        $(impl ser::$of for &mut Sink {
            type Ok = ();
            type Error = Wrong;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), Wrong> {
                self.add(Token::Text(key.into()))?;
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), Wrong> {
                self.add(Token::End)
            }
        })*
    };
}

fields! { SerializeStruct SerializeStructVariant }

impl ser::SerializeMap for &mut Sink {
    type Ok = ();
    type Error = Wrong;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Wrong> {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Wrong> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), Wrong> {
        self.add(Token::End)
    }
}

/// Tokens that come.
pub struct Source<'de>(pub &'de [Token]);

impl<'de> Source<'de> {
    fn take(&mut self) -> Result<&'de Token, Wrong> {
        hop_each(41);
        let (first, rest) = self
            .0
            .split_first()
            .ok_or_else(|| Wrong("no more".into()))?;
        self.0 = rest;
        Ok(first)
    }

    fn end(&mut self) -> Result<(), Wrong> {
        match self.take()? {
            Token::End => Ok(()),
            other => Err(Wrong(format!("{other:?} instead of the end"))),
        }
    }
}

impl<'de> de::Deserializer<'de> for &mut Source<'de> {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, v: V) -> Result<V::Value, Wrong> {
        match self.take()? {
            Token::Nothing => v.visit_unit(),
            Token::Just => v.visit_some(self),
            Token::Flag(b) => v.visit_bool(*b),
            Token::Signed(n) => match i64::try_from(*n) {
                Ok(n) => v.visit_i64(n),
                Err(_) => v.visit_i128(*n),
            },
            Token::Unsigned(n) => match u64::try_from(*n) {
                Ok(n) => v.visit_u64(n),
                Err(_) => v.visit_u128(*n),
            },
            Token::Single(n) => v.visit_f32(*n),
            Token::Double(n) => v.visit_f64(*n),
            Token::Letter(c) => v.visit_char(*c),
            Token::Text(s) => v.visit_borrowed_str(s),
            Token::Bytes(b) => v.visit_borrowed_bytes(b),
            Token::Many => {
                let found = v.visit_seq(Parts(self))?;
                self.end().map(|()| found)
            }
            Token::Table => {
                let found = v.visit_map(Parts(self))?;
                self.end().map(|()| found)
            }
            Token::Variant(name) => v.visit_map(Single(Some(name), self)),
            Token::End => Err(Wrong("the end".into())),
        }
    }

    fn deserialize_i128<V: Visitor<'de>>(self, v: V) -> Result<V::Value, Wrong> {
        match self.take()? {
            Token::Signed(n) => v.visit_i128(*n),
            Token::Unsigned(n) => v.visit_u128(*n),
            other => Err(de::Error::custom(format_args!("{other:?} is no number"))),
        }
    }

    fn deserialize_u128<V: Visitor<'de>>(self, v: V) -> Result<V::Value, Wrong> {
        self.deserialize_i128(v)
    }

    fn deserialize_option<V: Visitor<'de>>(self, v: V) -> Result<V::Value, Wrong> {
        match self.take()? {
            Token::Nothing => v.visit_none(),
            Token::Just => v.visit_some(self),
            other => Err(Wrong(format!("{other:?} is no option"))),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        v: V,
    ) -> Result<V::Value, Wrong> {
        v.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        v: V,
    ) -> Result<V::Value, Wrong> {
        match self.take()? {
            Token::Variant(name) => v.visit_enum(Which(self, name.into_deserializer())),
            other => Err(de::Error::custom(format_args!("{other:?} is no variant"))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// The parts of a list or a table.
struct Parts<'a, 'de>(&'a mut Source<'de>);

impl<'de> Parts<'_, 'de> {
    fn next<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Wrong> {
        match self.0.0.first() {
            Some(Token::End) => Ok(None),
            _ => seed.deserialize(&mut *self.0).map(Some),
        }
    }
}

impl<'de> de::SeqAccess<'de> for Parts<'_, 'de> {
    type Error = Wrong;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Wrong> {
        self.next(seed)
    }
}

impl<'de> de::MapAccess<'de> for Parts<'_, 'de> {
    type Error = Wrong;

    fn next_key_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Wrong> {
        self.next(seed)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Wrong> {
        hop_each(41);
        seed.deserialize(&mut *self.0)
    }
}

/// A variant as a table of one entry.
struct Single<'a, 'de>(Option<&'static str>, &'a mut Source<'de>);

impl<'de> de::MapAccess<'de> for Single<'_, 'de> {
    type Error = Wrong;

    fn next_key_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Wrong> {
        let name = self.0.take();
        name.map(|n| seed.deserialize(n.into_deserializer()))
            .transpose()
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Wrong> {
        seed.deserialize(&mut *self.1)
    }
}

/// A variant, by its name.
struct Which<'a, 'de>(
    &'a mut Source<'de>,
    de::value::StrDeserializer<'static, Wrong>,
);

impl<'a, 'de> de::EnumAccess<'de> for Which<'a, 'de> {
    type Error = Wrong;
    type Variant = Content<'a, 'de>;

    fn variant_seed<T: DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> Result<(T::Value, Content<'a, 'de>), Wrong> {
        let which = seed.deserialize(self.1)?;
        hop_each(5);
        Ok((which, Content(self.0)))
    }
}

struct Content<'a, 'de>(&'a mut Source<'de>);

impl<'de> de::VariantAccess<'de> for Content<'_, 'de> {
    type Error = Wrong;

    fn unit_variant(self) -> Result<(), Wrong> {
        Deserialize::deserialize(self.0)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Wrong> {
        seed.deserialize(self.0)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, v: V) -> Result<V::Value, Wrong> {
        de::Deserializer::deserialize_any(self.0, v)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        v: V,
    ) -> Result<V::Value, Wrong> {
        de::Deserializer::deserialize_any(self.0, v)
    }
}
