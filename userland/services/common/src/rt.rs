//! How a service starts, is invoked, and says that it cannot go on.
//!
//! Services are what programs are made of, so they use none of what programs get: no heap, no
//! executor, no console service unless they say so. [`entry!`](crate::entry) makes the two
//! functions where kernels enter a service:
//!
//! | function | when | on which stack |
//! |---|---|---|
//! | `_dyad_start(arg)` | a thread of the service starts | the thread's |
//! | `dyad_invoked(words, badge, token)`, also `dyad_invoked_to_4` and so on | a program invokes it, with the caller's thread | the invocation's |
//!
//! A panic in an invocation ends the invocation with `Corrupt`; elsewhere it ends the thread. It is
//! written to the console of whatever node the service may write to.

#![allow(unsafe_code)]

use dyad_abi::service::{Info, reply, slot};
use dyad_abi::{Error, NodeId, Result};
use dyad_sys::cap::{Cap, Hardware};

/// An invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The words that the caller passed.
    pub words: [u64; 4],
    /// Badge of the capability that was invoked, which identifies the caller.
    pub badge: u64,
    /// The invocation: `thread id << 8 | depth`.
    pub token: u64,
}

/// The words of a result.
pub fn words(result: Result<u64>) -> [u64; 4] {
    let mut words = [0; 4];
    match result {
        Ok(value) => words[reply::VALUE] = value,
        Err(e) => words[reply::STATUS] = e.code(),
    }
    words
}

/// Makes the entry points of a service: `entry!(start)` or `entry!(start, invoked)`, where `start`
/// is a `fn(u64) -> !` and `invoked` a `fn(Call) -> [u64; 4]`. With `entry!(start, invoked, to 4)` an invocation that
/// is deeper than that is refused with `TooDeep` before it has a stack, so that what the threads of a client can make
/// the service spend has a bound ([`Served`](dyad_abi::service::Served)); there are doors for 4 and 6.
#[macro_export]
macro_rules! entry {
    ($start:path, $invoked:path, to 4) => {
        $crate::entry!(@ $start, dyad_invoked_to_4 $invoked);
    };
    ($start:path, $invoked:path, to 6) => {
        $crate::entry!(@ $start, dyad_invoked_to_6 $invoked);
    };
    ($start:path $(, $invoked:path)?) => {
        $crate::entry!(@ $start $(, dyad_invoked $invoked)?);
    };
    (@ $start:path $(, $name:ident $invoked:path)?) => {
        const _: () = {
            #[allow(unsafe_code)]
            #[unsafe(no_mangle)]
            extern "C" fn _dyad_start(arg: u64) -> ! {
                $start(arg)
            }

            $(
                #[allow(unsafe_code)]
                #[unsafe(no_mangle)]
                extern "C" fn $name(
                    a: u64,
                    b: u64,
                    c: u64,
                    d: u64,
                    badge: u64,
                    token: u64,
                ) {
                    let words = $invoked($crate::rt::Call {
                        words: [a, b, c, d],
                        badge,
                        token,
                    });
                    // SAFETY: 1. Kernels enter here in invocations only. 2. Nothing of this
                    // invocation is left but the words.
                    unsafe { $crate::rt::leave(words) }
                }
            )?
        };
    };
}

/// The information that the service was started with.
///
/// # Errors
///
/// `BadVersion` if the info page is of another version.
pub fn info() -> Result<&'static Info> {
    dyad_sys::info()
}

#[doc(hidden)]
pub use dyad_sys::raw::end_invocation as leave;

/// Ends the invocation that this code runs in.
///
/// # Safety
///
/// Must be called in an invocation, and nothing may refer to its stack any more.
pub unsafe fn end_invocation(words: [u64; 4]) -> ! {
    // SAFETY: 1. Same contract.
    unsafe { dyad_sys::raw::end_invocation(words) };
    // Not reached: the stub does not come back.
    loop {
        dyad_sys::raw::relax();
    }
}

/// The hardware of a node, as far as the service has it.
pub const fn hardware(node: NodeId) -> Cap<Hardware> {
    Cap::at(slot::hardware(node))
}

/// Writes a line to the first console that the service may write to itself.
pub fn write_directly(text: &str) -> Result<()> {
    let mut result = Err(Error::Denied);
    for node in NodeId::first(dyad_abi::ident::MAX_NODES) {
        result = hardware(node).write(text).map(drop);
        if result.is_ok() {
            break;
        }
    }
    result
}

/// Says why the service cannot go on, and ends the thread.
pub fn give_up(what: core::fmt::Arguments<'_>) -> ! {
    let text = crate::text::Text::<320>::of(format_args!("service: {what}\n"));
    if write_directly(text.as_str()).is_err() {
        // A service without the console's device writes as a program does; if that fails too, the text is lost.
        let _ = dyad_sys::write(text.as_str());
    }
    // SAFETY: 1. Nothing is used any more. 2. A thread in no invocation faults here, and ends.
    unsafe { end_invocation(words(Err(Error::Corrupt))) }
}

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    use core::sync::atomic::{AtomicBool, Ordering};

    static PANICKING: AtomicBool = AtomicBool::new(false);
    // A message that panics while it is formatted must not come round again.
    if PANICKING.swap(true, Ordering::Relaxed) {
        // SAFETY: 1. As in `give_up`.
        unsafe { end_invocation(words(Err(Error::Corrupt))) }
    }
    let text = crate::text::Text::<256>::of(format_args!("{info}"));
    PANICKING.store(false, Ordering::Relaxed);
    give_up(format_args!("{}", text.as_str()))
}
