//! Operations on asynchronous endpoints.
//!
//! An endpoints object has [`LINES`] lines; a line has a word of bits, a list of threads that have
//! become ready, and at most one waiter ([`dyad_object::endpoint`]). Sending sets bits and never
//! waits, so a sender can neither be blocked by a receiver nor fill anything up.
//!
//! | who | does | then |
//! |---|---|---|
//! | sender | sets its bits; fence | takes the waiter off by an exchange, wakes it |
//! | receiver | becomes the waiter; fence | looks at the bits once more |
//!
//! Either the sender finds the waiter or the receiver finds the bits.
//!
//! | operation | needs besides its right |
//! |---|---|
//! | `Send` | nothing: which line, and which bits, is the capability's |
//! | `MakeSend` | the table that the sending end goes to, with the right to put capabilities there |
//! | `Bind` | nothing: a CPU that is notified in vain looks, and goes on |
//!
//! Bits are or-ed: sending twice before anybody receives is sending once. What has to be counted is
//! counted in memory that both share, and the bit says that there is something to look for.

use dyad_abi::cap::{CapType, ReceiveOp, Rights, SendOp};
use dyad_abi::{CpuId, Error, NodeId, Result};
use dyad_captbl::{Contents, Span};

use super::captbl::{activate, destination};
use crate::sched::dispatch::{self, Endpoint, OpOutcome};
use dyad_machine::Platform;
use dyad_machine::kernel_ctx::{KernelCtx, Operand};
use dyad_object::endpoint::{Endpoints, LINES, Line};

/// In `Receive`: do not wait.
pub const NOW: u64 = 1;

/// Sends: sets the capability's bits at the endpoint, wakes who waits there.
///
/// # Errors
///
/// [`Error::BadSyscall`]: there is no other operation.
#[inline(never)]
pub fn send<P: Platform>(
    cx: &KernelCtx,
    to: Endpoint,
    bits: u64,
    number: u64,
) -> Result<OpOutcome> {
    if number != SendOp::Send as u64 {
        return Err(Error::BadSyscall);
    }
    to.line.set(cx.node, bits);
    sent::<P>(cx, to)
}

/// The rest of it, once the bits are set and nothing later has been looked at: wakes who waits there.
///
/// # Errors
///
/// As [`dispatch::wake_receiver`].
pub fn sent<P: Platform>(cx: &KernelCtx, to: Endpoint) -> Result<OpOutcome> {
    match to.line.take_waiter(cx.node) {
        // The bits stay until somebody receives there.
        None => Ok(dispatch::notify_bound::<P>(cx, to.line)),
        // Nobody else wakes it: it has been taken off. It may run at once, in the sender's place.
        Some(waiter) => dispatch::wake_receiver::<P>(cx, waiter, to),
    }
}

/// The line that an operation is about: number `index` of those that the capability is for, so that
/// whoever has been given some lines cannot name the others of the frame.
#[inline]
fn line_at(
    endpoints: &'static Endpoints,
    this: &Operand,
    index: u64,
) -> Result<(&'static Line, u64)> {
    let at = Span::new(this.payload[0], this.payload[1], LINES as u64)
        .ok_or(Error::Corrupt)?
        .get(index)
        .ok_or(Error::BadArgument)?;
    Ok((endpoints.line(at)?, at))
}

/// `Receive` at an endpoint: line `at` of an object. Takes what there is, or waits for something until
/// `deadline`; [`NOW`]: does not wait.
///
/// # Errors
///
/// As [`dispatch::block`].
#[inline]
pub fn receive_at<P: Platform>(
    cx: &KernelCtx,
    object: u64,
    (line, at): (&'static Line, u64),
    deadline: u64,
) -> Result<OpOutcome> {
    let news = dispatch::take_pending::<P>(cx, line);
    if news != 0 || deadline == NOW {
        return Ok(OpOutcome::Value(news));
    }
    dispatch::block::<P>(cx, object, at, line, deadline)
}

/// Carries an operation on the receiving end out.
///
/// `Receive` takes all that has come at once: bits, or the news of one thread. With [`NOW`] it never
/// waits; with another number that is not 0, it waits until that point in fused time at most, and its
/// value is 0 if nothing has come.
///
/// # Errors
///
/// [`Error::BadArgument`] if there is no such line; `Receive`: [`Error::Exists`] if another thread
/// waits there; `MakeSend`: as [`destination`] and [`activate`]; `Bind`: [`Error::NoSuchNode`].
#[inline(never)]
pub fn receive<P: Platform>(
    cx: &KernelCtx,
    endpoints: &'static Endpoints,
    this: &Operand,
    number: u64,
    a: [u64; 5],
) -> Result<OpOutcome> {
    let op = ReceiveOp::from_number(number).ok_or(Error::BadSyscall)?;
    let (line, at) = line_at(endpoints, this, a[0])?;
    match op {
        ReceiveOp::Receive => receive_at::<P>(cx, this.object()?.bits(), (line, at), a[1]),
        ReceiveOp::MakeSend => {
            let place = destination(cx, a[1])?;
            // A message without bits would wake nobody.
            if a[2] == 0 {
                return Err(Error::BadArgument);
            }
            let contents = Contents {
                ty: CapType::Send,
                rights: SendOp::Send.right().or(Rights::COPY).or(Rights::INTROSPECT),
                object: this.object,
                guard: this.guard,
                payload: [at, a[2], 0],
            };
            activate(cx, place, &contents)?;
            Ok(OpOutcome::Value(0))
        }
        ReceiveOp::Bind => {
            let node = NodeId::new(a[1] & 0xff)
                .filter(|n| n.index() < cx.node.params.node_count)
                .ok_or(Error::NoSuchNode)?;
            let cpu = CpuId::new(a[1] >> 8 & 0xff)
                .filter(|c| c.index() < cx.node.params.cpus)
                .ok_or(Error::BadArgument)?;
            // One word: a sender finds the old CPU or the new one. Who is notified in vain looks
            // and finds nothing; what was sent before stays at the line.
            let word = node.index() as u64 | (cpu.index() as u64) << 8 | 1 << 63;
            cx.words().replace(&line.bound, word);
            Ok(OpOutcome::Value(0))
        }
    }
}
