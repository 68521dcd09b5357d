//! First word of an invocation of init's process service.

/// `(code)`: the program ends, with all its threads; the caller's thread does not come back. `BadArgument` if the
/// code has more than 32 bits.
pub const EXIT: u64 = 1;
/// `FAULTED | program << 8 | kind << 16` as the first word, then `(address, pc)`: a program has
/// made an error and its thread is about to be ended. From the pager only. The kind is what fault
/// handlers are told, with [`FAULT_NO_MEMORY`](super::super::user::FAULT_NO_MEMORY) and the node whose
/// supply it is, and with the reason why a call did not cross
/// ([`FAULT_CROSSING_SHIFT`](super::super::user::FAULT_CROSSING_SHIFT)).
pub const FAULTED: u64 = 2;
/// The bits of a kind in [`FAULTED`].
pub const FAULT_KIND: u64 = 0xff_ffff;
/// `MEMORY | program << 8 | node << 16`: faults of the program find no memory any more in the supply of
/// a node, 1 and its number; 0: this one. Value: 0; the thread is to try again. From the pager only.
pub const MEMORY: u64 = 32;
/// `(a [`Question`](super::memory::Question), node)`: what the block allocator knows. Value: the answer.
pub const MEMORY_STATE: u64 = 33;
/// `(n, node | cpu << 8)`: thread `n` of the caller's program begins there, at the program's
/// entry with the argument `INFO_BASE | n`. Value: its id.
pub const START: u64 = 3;
/// The caller's thread, which is not the program's first, ends; it does not come back.
pub const END_THREAD: u64 = 4;
/// `(n, node, fused time)`: at that time, 0 now, thread `n` of the caller's program is stopped wherever it
/// is and continues on the node, interpreted until it can run natively. Value: 0, when that has been noted;
/// what becomes of it is in the thread's [`Page`](crate::emulation::Page). `BadArgument` if the time is
/// more than 10 s away; `Full` if the program has 8 requests. Of node `u64::MAX`: only has all that mapped
/// which that takes.
pub const EMULATE: u64 = 16;
/// `(n, old, new)`: changes what thread `n` of the caller's program is asked to do at its next
/// migration point from `old` to `new`, words of [`user::request`](crate::user::request). Value:
/// what it was; changed only if that is `old`.
pub const REQUEST: u64 = 6;
/// `MOVE | node << 8`, then program counter, stack pointer and frame pointer: of a process of a [group](super::peer),
/// from its peer. The caller's thread goes on with these on the node; with a program counter of 0, where the thread
/// last was there: in its own `MOVE`, or at the program's entry. The call comes back when the thread does: status,
/// and how it goes on here (program counter 0: as if the call had returned).
pub const MOVE: u64 = 7;
/// A bit of the first word of [`MOVE`]: the pages of the program that this node has go to that node before the thread does.
pub const AHEAD: u64 = 1 << 16;
/// `()`: of a process of a [group](super::peer), from its peer: where the thread that begins here goes on, as the answer
/// of [`MOVE`]. Elsewhere than on the first node it waits until the thread comes.
pub const ARRIVED: u64 = 8;
/// `(n)`: of a process of a [group](super::peer), from its peer: wakes thread `n` of the program where it waits, or lets its
/// next wait be none. Value: 0, also if it has ended.
pub const WAKE: u64 = 9;
/// `(address)`: of a process of a [group](super::peer), from its peer: the calling thread is about to wait for the word
/// there. Value: 0; it looks at the word then.
pub const FUTEX_BEGIN: u64 = 10;
/// `(address)`: of a process of a [group](super::peer), from its peer: the calling thread does not wait any more. Value: 1
/// if another thread has taken it to wake it, else 0.
pub const FUTEX_END: u64 = 11;
/// `(address, n)`: of a process of a [group](super::peer), from its peer: wakes up to `n` threads that wait for the word
/// there. Value: how many.
pub const FUTEX_WAKE: u64 = 12;
/// `(a [`Counted`](super::peer::Counted))`: of a process of a [group](super::peer), from its peer: what that has counted so
/// far. Value: the number.
pub const COUNTED: u64 = 13;
/// A bit of the program counter in [`MOVE`]: the fourth word is the argument of a function that is called there, not
/// a frame pointer.
pub const WITH_ARGUMENT: u64 = 1 << 63;
/// `(threads)`: these threads of the program, by bit, are lost: with a node that died, or for want of a page that was there only.
/// None: nothing more is lost with the last node that died. Value: 0. From peers only.
pub const LOST: u64 = 14;
/// Exit code of a program that was ended because of a fault.
pub const FAULT_CODE: u64 = 102;
/// Exit code of a program whose thread was lost with a node that died.
pub const LOST_CODE: u64 = 103;
