//! `console`: the text of all programs, in whole lines, on one device.
//!
//! The device belongs to one node, the console node of the info page, and that is the home of this
//! component: invocations from other nodes cross to it. It has no thread of its own. A client puts
//! text into the buffer that it shares with the console, a page per thread, and invokes it.
//!
//! | invocation | words | reply |
//! |---|---|---|
//! | `console::WRITE` | offset, length (at most a page) | bytes taken: all |
//! | `console::REPORT` | offset of a [`ReportText`](dyad_abi::service::ReportText) | 0 |
//! | `console::END` | program (from init only) | 0 |
//!
//! | error | why |
//! |---|---|
//! | `BadArgument` | no such operation; not all of the text is inside the client's buffer; no such kind of report; a name that is empty, or has something else than visible ASCII characters |
//! | `TooLarge` | more than a page, or a name or detail beyond its limit |
//! | `Again` | the client has written more than it may, or another thread of it is in the middle of a write: later |
//! | `Denied` | only init may do that; a [name](dyad_abi::record::name) of the kernel, init or the launcher |
//!
//! Text comes in pieces; the beginning of a line waits, per client and page, for its end, and only
//! whole lines are written, so lines of different clients and threads do not mix. A client can
//! change its buffer at any time: it is copied once and then looked at. What is not UTF-8 comes out
//! as question marks. A client that never ends a line takes no more than one line of memory.
//!
//! A client that writes without end gets `Again` once it has written more than its
//! [`Budget`](dyad_services::budget::Budget): 256 KiB at once, 64 KiB per second in the long run,
//! with 32 bytes for each line and 96 for each report. The work of writing is done on the client's thread,
//! in the client's time.
//!
//! A report carries the number of the client in its record, so that what programs report can be told apart.
//! The names of the kernel, init and the launcher are not for clients.
//!
//! | lock | who takes it | a holder that has ended leaves |
//! |---|---|---|
//! | the line of a page of a client | threads of that client; init when the client has ended | the beginning of a line: its length is one word, and the text below it is the client's |
//! | the budget of a client | threads of that client | a budget that is off by one write or report at most |
//!
//! No lock is for several clients.
//!
//! | capability | for |
//! |---|---|
//! | `slot::hardware(console node)`: write, report | the device |
//!
//! If the console's node dies, invocations return `NodeDead` and there is no text any more; nothing
//! else depends on it.
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(target_os = "none")]
mod service;

#[cfg(not(target_os = "none"))]
fn main() {
    println!("a service of Dyad: it runs on nothing else");
}
