//! Services: programs that other programs invoke.
//!
//! A service is a program with a function that runs when a client invokes one of its entry capabilities. The
//! thread of the client does the work: it arrives with four words and returns with up to four, so any number
//! of invocations can be under way at once, on any node, on both ISAs. Shared data of invocations is in
//! statics behind a [`Lock`]; data of one thread is in a [`PerThread`]. Each invocation has a stack of its
//! own, found by its [`Token`].
//!
//! ```no_run
//! #![no_std]
//! #![no_main]
//! use dyad::prelude::task::*;
//! use dyad::service::{Call, Lock, Reply};
//!
//! static SUM: Lock<u64> = Lock::new(0);
//!
//! /// Adds what it is told; the badge says who asks.
//! fn add(call: Call) -> Reply {
//!     let mut sum = SUM.lock();
//!     *sum = sum.checked_add(call.words[0]).ok_or(dyad::sys::Error::TooLarge)?;
//!     Ok(*sum)
//! }
//!
//! dyad::service!(add);
//!
//! #[dyad::task]
//! async fn main() {
//!     // What it does by itself, if anything: services live on after this.
//! }
//! ```
//!
//! # What differs from a task
//!
//! | | |
//! |---|---|
//! | stack | [`INVOKE_STACK_SIZE`](dyad_abi::service::INVOKE_STACK_SIZE) bytes |
//! | executor, `async`, [`program_local!`](dyad_rt::program_local) | belong to the program's own thread: using them here panics |
//! | heap, `println!` | work |
//! | thread pointer | that of the caller: it must not be relied on |
//! | floating point | works; registers are zero at the start |
//! | [`sync`](crate::sync) | [refused](dyad_rt::sync#in-invocations) |
//! | blocking | blocks only the caller's thread |
//! | a panic | ends the invocation with `Corrupt`; locks that it held stay closed |

use dyad_abi::service::reply;
use dyad_sys as sys;

pub use dyad_rt::{Lock, LockGuard};

/// An invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The badge with which the invoked capability was made: it identifies the client, or the purpose.
    pub badge: u64,
    /// The thread that came, and its invocation depth.
    pub token: Token,
    /// The words that the caller passed.
    pub words: [u64; 4],
}

/// The name of an invocation while it is under way; it also selects the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub u64);

impl Token {
    /// The id of the thread that came.
    pub const fn thread(self) -> u64 {
        self.0 >> 8
    }

    /// The number of invocations that the thread is within.
    pub const fn depth(self) -> u64 {
        self.0 & 0xff
    }
}

/// A value for each thread that may come, kept between the invocations of that thread.
///
/// ```
/// use dyad::service::{Lock, PerThread, Token};
///
/// static COUNTS: PerThread<u64, 64> = PerThread::new([const { Lock::new(0) }; 64]);
///
/// fn count(token: Token) -> dyad::service::Reply {
///     let mut count = COUNTS.of(token)?;
///     *count += 1;
///     Ok(*count)
/// }
///
/// let token = Token(5 << 8 | 1);
/// assert_eq!(count(token), Ok(1));
/// assert_eq!(count(token), Ok(2));
/// assert_eq!(count(Token(6 << 8 | 1)), Ok(1));
/// ```
pub struct PerThread<T, const N: usize> {
    values: [Lock<T>; N],
}

impl<T, const N: usize> PerThread<T, N> {
    /// Sets the initial values of threads 0 to `N - 1`.
    pub const fn new(values: [Lock<T>; N]) -> PerThread<T, N> {
        PerThread { values }
    }

    /// The value of the thread that came with `token`.
    ///
    /// # Errors
    ///
    /// `TooLarge` if the thread's id is `N` or more; `Again` if the thread has come back through another
    /// service while it holds the value.
    pub fn of(&self, token: Token) -> sys::Result<LockGuard<'_, T>> {
        let value = usize::try_from(token.thread()).ok();
        let value = value.and_then(|t| self.values.get(t));
        value
            .ok_or(sys::Error::TooLarge)?
            .try_lock()
            .ok_or(sys::Error::Again)
    }
}

/// The reply of most services: a value or an error, in two words.
pub type Reply = sys::Result<u64>;

/// The types that a service may reply with.
pub trait IntoReply {
    /// The four words of the reply.
    fn words(self) -> [u64; 4];
}

impl IntoReply for Reply {
    fn words(self) -> [u64; 4] {
        let mut words = [0; 4];
        match self {
            Ok(value) => words[reply::VALUE] = value,
            Err(e) => words[reply::STATUS] = e.code(),
        }
        words
    }
}

/// A reply of four words, for protocols of a service's own.
impl IntoReply for [u64; 4] {
    fn words(self) -> [u64; 4] {
        self
    }
}

/// Makes a function of this program the entry of its invocations: `fn(`[`Call`]`) -> `[`Reply`] or `-> [u64;
/// 4]`. Once per program.
#[macro_export]
macro_rules! service {
    ($function:path) => {
        const _: () = {
            #[cfg(target_os = "none")]
            #[allow(unsafe_code)]
            #[unsafe(no_mangle)]
            extern "C" fn dyad_invoked(
                word0: u64,
                word1: u64,
                word2: u64,
                word3: u64,
                badge: u64,
                token: u64,
            ) {
                let call = $crate::service::Call {
                    badge,
                    token: $crate::service::Token(token),
                    words: [word0, word1, word2, word3],
                };
                let words = $crate::service::IntoReply::words($function(call));
                // SAFETY: 1. Kernels start this function in an invocation, and nothing else names
                // it. 2. All values of the service are gone but the words.
                unsafe { $crate::sys::raw::end_invocation(words) }
            }

            // On the host nothing enters it; its type is checked all the same.
            #[cfg(not(target_os = "none"))]
            const _: fn($crate::service::Call) -> [u64; 4] =
                |call| $crate::service::IntoReply::words($function(call));
        };
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_words() {
        assert_eq!(Reply::Ok(7).words(), [0, 7, 0, 0]);
        let denied = sys::Error::Denied;
        assert_eq!(Reply::Err(denied).words(), [denied.code(), 0, 0, 0]);
        assert_eq!([1, 2, 3, 4].words(), [1, 2, 3, 4]);
    }

    #[test]
    fn a_thread_that_comes_back_while_it_has_its_value_is_told() {
        let values = PerThread::new([const { Lock::new(0) }; 4]);
        let outer = values.of(Token(3 << 8 | 1)).unwrap();
        let again = values.of(Token(3 << 8 | 2)).map(|v| *v);
        assert_eq!(again, Err(sys::Error::Again));
        drop(outer);
        assert_eq!(values.of(Token(3 << 8 | 2)).map(|v| *v), Ok(0));
        let beyond = values.of(Token(4 << 8)).map(|v| *v);
        assert_eq!(beyond, Err(sys::Error::TooLarge));
    }

    fn answer(call: Call) -> Reply {
        Ok(call.words[0] + call.badge + call.token.depth())
    }

    // The type of what a service is made of is checked here too.
    crate::service!(answer);
}
