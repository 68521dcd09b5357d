//! Operations on asynchronous endpoints.
//!
//! An endpoints object has [`LINES`] lines; a line has a word of bits, a list of threads that have become
//! ready, and at most one waiter ([`dyad_object::endpoint`]). Sending sets bits and never waits, so a
//! receiver cannot block a sender, and a sender cannot fill anything up.
//!
//! | thread | does | then |
//! |---|---|---|
//! | sender | sets its bits; fence | takes the waiter off by an exchange, wakes it |
//! | receiver | becomes the waiter; fence | reads the bits once more |
//!
//! Either the sender finds the waiter or the receiver finds the bits.
//!
//! | operation | needs besides its right |
//! |---|---|
//! | `Send` | nothing: the capability has the line and the bits |
//! | `MakeSend` | the table for the sending end, with the right to put capabilities there |
//! | `Bind` | nothing: a CPU that is notified in vain finds nothing, and continues |
//!
//! Bits are or-ed: two sends before a receive have the effect of one. A program that needs counts keeps them
//! in shared memory, and uses the bit only as a notification.

use dyad_abi::cap::{CapType, ReceiveOp, Rights, SendOp};
use dyad_abi::{CpuId, Error, NodeId, Result};
use dyad_captbl::{Contents, Span};

use super::captbl::{activate, destination};
use crate::sched::dispatch::{self, Endpoint, OpOutcome, current};
use dyad_machine::Platform;
use dyad_machine::kernel_ctx::{KernelCtx, Operand};
use dyad_object::endpoint::{Endpoints, LINES, Line};

/// The deadline of a `Receive` that does not wait.
pub const NOW: u64 = 1;

/// `Send`: sets the capability's bits at the endpoint, and wakes its waiter.
///
/// # Errors
///
/// [`Error::BadSyscall`] for any other operation; the errors of [`sent`].
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

/// The second half of `Send`, once the bits are set and before anything later is read: wakes the waiter.
///
/// # Errors
///
/// The errors of [`dispatch::wake_receiver`].
pub fn sent<P: Platform>(cx: &KernelCtx, to: Endpoint) -> Result<OpOutcome> {
    match to.line.take_waiter(cx.node) {
        // The bits stay until a thread receives there.
        None => Ok(dispatch::notify_bound::<P>(cx, to.line)),
        // No other sender wakes it: it has been taken off. It may run at once, in the sender's place.
        Some(waiter) => dispatch::wake_receiver::<P>(cx, waiter, to),
    }
}

/// The line that an operation is about: number `index` of the capability's range. A capability for some lines
/// can therefore not name the other lines of the frame.
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

/// `Receive` at an endpoint, line `at` of an object. Takes what is pending, or waits for something until
/// `deadline`; with [`NOW`] it does not wait.
///
/// # Errors
///
/// The errors of [`dispatch::block`].
#[inline]
pub fn receive_at<P: Platform>(
    cx: &KernelCtx,
    object: u64,
    (line, at): (&'static Line, u64),
    deadline: u64,
) -> Result<OpOutcome> {
    let news = dispatch::take_pending::<P>(cx, line);
    if news != 0 || deadline == NOW {
        // Only a thread under all others can be a root thread. Schedulers look often, and at the same endpoint.
        let noted = || cx.local.root_line.get().map(|(_, at)| at);
        if cx.local.chain.is_empty() && !noted().is_some_and(|at| core::ptr::eq(at, line)) {
            dispatch::listens(cx, current(cx), object, line)?;
        }
        return Ok(OpOutcome::Value(news));
    }
    dispatch::block::<P>(cx, object, at, line, deadline)
}

/// Carries out an operation on the receiving end.
///
/// `Receive` takes all pending bits, or the event of one thread. With [`NOW`] it never waits; any other
/// deadline but 0 is a point in fused time after which it returns, with the value 0 if nothing has come.
///
/// # Errors
///
/// [`Error::BadArgument`] if there is no such line; `Receive`: [`Error::Exists`] if another thread waits
/// there; `MakeSend`: the errors of [`destination`] and [`activate`]; `Bind`: [`Error::NoSuchNode`].
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
            // A message without bits would wake no thread.
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
