//! Error codes: the same numbers with the same meaning on both ISAs.

use core::fmt;

/// Result of a kernel operation.
pub type Result<T> = core::result::Result<T, Error>;

macro_rules! errors {
    ($($(#[$m:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// The reasons why an operation was refused. Codes are stable within an [ABI
        /// version](crate::ABI_VERSION).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Error {
            $(#[doc = $text] $(#[$m])* $name = $code,)*
        }

        impl Error {
            /// All errors, in code order.
            pub const ALL: &'static [Error] = &[$(Error::$name),*];

            /// The code returned in the status register; never 0.
            pub const fn code(self) -> u64 {
                self as u64
            }

            /// The error with this code.
            pub const fn from_code(code: u64) -> Option<Error> {
                match code {
                    $($code => Some(Error::$name),)*
                    _ => None,
                }
            }

            /// One sentence for people.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Error::$name => $text,)*
                }
            }
        }
    };
}

errors! {
    BadSyscall = 1, "no such system call";
    BadArgument = 2, "an argument is out of range";
    BadAddress = 3, "a user address is not mapped, or not with the access needed";
    NoMemory = 4, "no free frame left in the pool";
    Exists = 5, "the address range is already in use";
    NotFound = 6, "no such object";
    Again = 7, "not now: try again";
    NodeDead = 8, "the node is dead";
    NoSuchNode = 9, "the system has no such node";
    TimedOut = 10, "the bounded wait ran out";
    TooLarge = 11, "larger than the limit of this operation";
    Corrupt = 12, "a shared structure does not have the form it must have";
    BadBundle = 13, "the program bundle is truncated, corrupted or malformed";
    BadVersion = 14, "built for another ABI version";
    LayoutMismatch = 15, "the nodes disagree about the layout of shared structures";
    Denied = 16, "this caller may not do that";
    Full = 17, "the queue or table has no room for it";
    NoIsa = 18, "no live node has the instruction set asked for";
    NoCap = 19, "there is no capability in that slot";
    WrongCap = 20, "the capability is of another type";
    Revoked = 21, "what the capability referred to has been taken away";
    TooDeep = 22, "the invocation stack is full, or empty";
    NotReady = 23, "the thread is not ready to run here";
    NoTime = 24, "the time budget is used up";
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::Error;

    #[test]
    fn codes_round_trip_and_zero_is_success() {
        for &e in Error::ALL {
            assert_ne!(e.code(), 0);
            assert_eq!(Error::from_code(e.code()), Some(e));
        }
        assert_eq!(Error::from_code(0), None);
    }
}
