//! Steps of the protocol, and checks, that tests on the host can take away: each must be missed by one of them.
//!
//! `lacks!("module::function::what")` is where a step is taken. In a crate `dyad-x` it is true in a test that runs with
//! `DYAD_MUTANT=check/x::module::function::what`, or within `without!`; it is the constant `false` in
//! every build without the feature `host`: nothing of it is in a kernel. `tests/mutants` lists all names.
//!
//! A protocol function has no other switches, so all its instantiations (models, memory with caches, the kernel's fast
//! path) lack the same step under the same name.

/// Whether a step is not to be taken: see [`lacks`](mod@crate::lacks).
#[cfg(any(test, feature = "host"))]
#[macro_export]
macro_rules! lacks {
    ($what:literal) => {
        $crate::lacks::is_lacking(env!("CARGO_PKG_NAME"), $what)
    };
}

/// Whether a step is not to be taken: see [`lacks`](mod@crate::lacks).
#[cfg(not(any(test, feature = "host")))]
#[macro_export]
macro_rules! lacks {
    ($what:literal) => {
        false
    };
}

/// Evaluates an expression without a step of this package: for tests that show that the step is needed. The
/// effect is limited to this thread (models with loom have only one) and to tasks of memory with caches that
/// it runs.
#[cfg(any(test, feature = "host"))]
#[macro_export]
macro_rules! without {
    ($what:expr, $run:expr) => {
        $crate::lacks::without(env!("CARGO_PKG_NAME"), $what, || $run)
    };
}

#[cfg(any(test, feature = "host"))]
pub use host::{here, is_lacking, without};

#[cfg(any(test, feature = "host"))]
mod host {
    use std::cell::Cell;
    use std::sync::LazyLock;

    use crate::mutants;

    std::thread_local! {
        /// Package and step that this thread does without.
        static WITHOUT: Cell<Option<(&'static str, &'static str)>> = const { Cell::new(None) };
    }

    /// The step that the variable selects for the process.
    static SELECTED: LazyLock<Option<&'static str>> = LazyLock::new(|| mutants::selected("check"));

    /// The step that a thread omits.
    #[derive(Clone, Copy, Debug)]
    pub struct Lacking(Option<(&'static str, &'static str)>);

    /// The steps that this thread leaves out.
    pub fn here() -> Lacking {
        Lacking(WITHOUT.get())
    }

    impl Lacking {
        /// Makes this thread omit the step that its starter omits.
        pub fn take_over(self) {
            WITHOUT.set(self.0);
        }
    }

    /// Whether a step of a package is not to be taken.
    pub fn is_lacking(package: &str, what: &str) -> bool {
        let here = || {
            let without = WITHOUT.get();
            without.is_some_and(|(p, w)| p == package && w == what)
        };
        let selected = || {
            let rest = SELECTED.as_ref()?;
            let name = package.strip_prefix("dyad-").unwrap_or(package);
            rest.strip_prefix(name)?.strip_prefix("::")
        };
        here() || selected() == Some(what)
    }

    /// See `without!`.
    pub fn without<T>(package: &'static str, what: &'static str, run: impl FnOnce() -> T) -> T {
        struct Back(Option<(&'static str, &'static str)>);
        impl Drop for Back {
            fn drop(&mut self) {
                WITHOUT.set(self.0);
            }
        }
        let _back = Back(WITHOUT.replace(Some((package, what))));
        run()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    fn second() -> bool {
        lacks!("tests::second")
    }

    #[test]
    fn a_step_is_lacking_only_where_it_was_taken_away() {
        assert!(!second());
        assert!(without!("tests::second", second()));
        assert!(!without!("tests::first", second()));
        let unwound = catch_unwind(|| without!("tests::second", panic!("as models do")));
        assert!(unwound.is_err() && !second());
    }
}
