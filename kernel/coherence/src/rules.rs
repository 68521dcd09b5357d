//! Rules of the protocol that a test can take away one by one.

/// Declares the rules of a crate: `Rule`, an enum of them; `Rules`, a trait that says which are followed;
/// and `Protocol`, which follows all. Code that has `Rules` for a type parameter knows when it is compiled
/// which rules it follows: what is not taken away costs nothing.
///
/// ```
/// dyad_coherence::rules! {
///     /// Who takes looks first.
///     LooksFirst,
///     /// Who has taken tells.
///     Tells,
/// }
///
/// struct Silent;
///
/// impl Rules for Silent {
///     fn follow(rule: Rule) -> bool {
///         rule != Rule::Tells
///     }
/// }
///
/// fn main() {
///     assert!(Protocol::follow(Rule::Tells) && !Silent::follow(Rule::Tells));
///     assert_eq!(Rule::ALL, [Rule::LooksFirst, Rule::Tells]);
/// }
/// ```
#[macro_export]
macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident,)*) => {
        /// A rule. The names in parentheses are those of the protocol's traces.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Rule {
            $($(#[$doc])* $rule,)*
        }

        impl Rule {
            /// All of them.
            pub const ALL: &[Rule] = &[$(Rule::$rule,)*];
        }

        /// Which rules are followed.
        pub trait Rules {
            /// Whether this one is. Always the same for the same type.
            #[inline(always)]
            #[must_use]
            fn follow(_rule: Rule) -> bool {
                true
            }
        }

        /// All of them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Protocol;

        impl Rules for Protocol {}
    };
}

/// Declares, for tests of a crate that has [`rules!`]: `Selected`, which follows all of them unless
/// `DYAD_MUTANT=rule/CRATE::RULE` selects one that it lacks, and mutants that always lack one.
#[cfg(any(test, feature = "host"))]
#[macro_export]
macro_rules! rule_mutants {
    ($of:literal; $($name:ident lacks $rule:ident;)*) => {
        #[doc = concat!("The whole protocol, unless `DYAD_MUTANT=rule/", $of, "::RULE` selects a rule that it lacks.")]
        #[derive(Debug)]
        pub struct Selected;

        impl Rules for Selected {
            fn follow(rule: Rule) -> bool {
                static LACKS: std::sync::LazyLock<Option<Rule>> =
                    std::sync::LazyLock::new(|| $crate::mutants::selected_rule($of, Rule::ALL));
                *LACKS != Some(rule)
            }
        }

        $(
            #[derive(Debug)]
            pub struct $name;

            impl Rules for $name {
                fn follow(rule: Rule) -> bool {
                    rule != Rule::$rule
                }
            }
        )*
    };
}
