//! Types of settings: each reads and writes its value in one way, on command lines and in files.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use dyad_abi::Isa;
use dyad_abi::boot::{MIN_POOL, OnDeath, POOL_GRANULE};
use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::Grant;
use dyad_abi::service::memory::{MAX_BLOCK, MIN_BLOCK, is_block_size};
use dyad_abi::service::peer::{Kernels, RingPlace, Transport};
use dyad_sim_model::config::{Coherence, MemoryModel};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use super::Sim;
use crate::{size, suggest};

/// A type with a fixed list of named values. [`names!`](crate::names!) implements it.
pub trait Names: Copy + Send + Sync + 'static {
    /// What a value is, for messages.
    const WHAT: &'static str;
    /// All values.
    const VARIANTS: &'static [Named<Self>];

    /// The name of a value.
    fn name(self) -> &'static str;
}

/// Implements [`Names`] for types with `ALL` and `name`.
#[macro_export]
macro_rules! names {
    ($($what:literal: $type:ty;)*) => {$(
        impl $crate::config::Names for $type {
            const WHAT: &'static str = $what;
            const VARIANTS: &'static [$crate::config::Named<$type>] = &{
                let mut all = [$crate::config::Named(<$type>::ALL[0]); <$type>::ALL.len()];
                let mut i = 0;
                while i < all.len() {
                    all[i] = $crate::config::Named(<$type>::ALL[i]);
                    i += 1;
                }
                all
            };

            fn name(self) -> &'static str {
                <$type>::name(self)
            }
        }
    )*};
}

names! {
    "ISA": Isa;
    "grant": Grant;
    "way of working together": Kernels;
    "transport": Transport;
    "place of rings": RingPlace;
    "policy": OnDeath;
    "level of simulation": Sim;
    "memory model": MemoryModel;
    "mode of caches": Coherence;
    "order": OrderName;
    "code that the sanitizer watches": Sanitized;
}

/// A value of a type with named values, as a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named<T>(pub T);

impl<T: Names> ValueEnum for Named<T> {
    fn value_variants<'a>() -> &'a [Named<T>] {
        T::VARIANTS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()))
    }
}

impl<T: Names> FromStr for Named<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Named<T>, String> {
        let found = T::VARIANTS.iter().find(|v| v.0.name() == text);
        found.copied().ok_or_else(|| {
            let names: Vec<&str> = T::VARIANTS.iter().map(|v| v.0.name()).collect();
            suggest::not_one_of(T::WHAT, text, &names)
        })
    }
}

impl<T: Names> fmt::Display for Named<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

/// Whose accesses to memory without coherent caches are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sanitized {
    /// Those of kernels.
    Kernel,
    /// Those of programs, too, to memory that they keep coherent by themselves.
    User,
}

impl Sanitized {
    /// Both.
    pub const ALL: [Sanitized; 2] = [Sanitized::Kernel, Sanitized::User];

    /// Name on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Sanitized::Kernel => "kernel",
            Sanitized::User => "user",
        }
    }
}

/// In which order nodes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderName {
    /// All at once.
    Parallel,
    /// In turns that follow from a seed.
    Strict,
}

impl OrderName {
    /// Both.
    pub const ALL: [OrderName; 2] = [OrderName::Parallel, OrderName::Strict];

    /// Name on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            OrderName::Parallel => "parallel",
            OrderName::Strict => "strict",
        }
    }
}

/// The ISAs of the nodes of a system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes(pub Vec<Isa>);

impl FromStr for Nodes {
    type Err = String;

    fn from_str(text: &str) -> Result<Nodes, String> {
        let words = text.split(',').map(str::trim);
        let list: Vec<Isa> = words
            .map(|w| w.parse().map(|Named(isa)| isa))
            .collect::<Result<_, String>>()?;
        if !(2..=MAX_NODES).contains(&list.len()) {
            return Err(format!(
                "{} node{} given; a system has 2 to {MAX_NODES}, such as x86_64,aarch64",
                list.len(),
                if list.len() == 1 { "" } else { "s" }
            ));
        }
        Ok(Nodes(list))
    }
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|isa| isa.name()).collect();
        f.write_str(&names.join(","))
    }
}

/// A whole number within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole<const LEAST: u64, const MOST: u64>(pub u64);

impl<const LEAST: u64, const MOST: u64> FromStr for Whole<LEAST, MOST> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.parse().ok().filter(|n| (LEAST..=MOST).contains(n));
        let possible = || format!("{text:?} is not a whole number from {LEAST} to {MOST}");
        number.map(Whole).ok_or_else(possible)
    }
}

impl<const LEAST: u64, const MOST: u64> fmt::Display for Whole<LEAST, MOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The bytes of a pool of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSize<const MOST: u64>(pub u64);

impl<const MOST: u64> FromStr for PoolSize<MOST> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = size::parse(text)?;
        if !(MIN_POOL..=MOST).contains(&bytes) || bytes % POOL_GRANULE != 0 {
            return Err(format!(
                "a pool of {}; possible are multiples of {} from {} to {}",
                size::show(bytes),
                size::show(POOL_GRANULE),
                size::show(MIN_POOL),
                size::show(MOST)
            ));
        }
        Ok(PoolSize(bytes))
    }
}

impl<const MOST: u64> fmt::Display for PoolSize<MOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        size::parse(text).map(Bytes)
    }
}

/// The bytes of the blocks in which nodes are given memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize(pub u64);

impl FromStr for BlockSize {
    type Err = String;

    fn from_str(text: &str) -> Result<BlockSize, String> {
        let bytes = size::parse(text)?;
        match is_block_size(bytes) {
            true => Ok(BlockSize(bytes)),
            false => Err(format!(
                "blocks of {}; possible are powers of two from {} to {}",
                size::show(bytes),
                size::show(MIN_BLOCK),
                size::show(MAX_BLOCK)
            )),
        }
    }
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Has types that are read and shown as text read and written as text in files, too.
macro_rules! as_text {
    ($([$($generics:tt)*] $type:ty;)*) => {$(
        impl<'de, $($generics)*> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                words(from)?.join(",").parse().map_err(de::Error::custom)
            }
        }

        impl<$($generics)*> Serialize for $type {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
    )*};
}

as_text! {
    [T: Names] Named<T>;
    [] Nodes;
    [] BlockSize;
    [const LEAST: u64, const MOST: u64] Whole<LEAST, MOST>;
    [const MOST: u64] PoolSize<MOST>;
}

/// Reads a string, a number or a list of strings as words.
pub(super) fn words<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    struct Words;

    impl<'de> Visitor<'de> for Words {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string, a number or a list of strings")
        }

        fn visit_str<E: de::Error>(self, v: &str) -> Result<Vec<String>, E> {
            Ok(vec![v.into()])
        }

        fn visit_i64<E: de::Error>(self, v: i64) -> Result<Vec<String>, E> {
            Ok(vec![v.to_string()])
        }

        fn visit_u64<E: de::Error>(self, v: u64) -> Result<Vec<String>, E> {
            Ok(vec![v.to_string()])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<String>, A::Error> {
            let mut all = Vec::new();
            while let Some(word) = list.next_element()? {
                all.push(word);
            }
            Ok(all)
        }
    }

    from.deserialize_any(Words)
}

/// Reads a string or a number as text.
pub(super) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Some(words(from)?.join(",")))
}
