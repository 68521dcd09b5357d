//! Components, threads, invocation, endpoints, time.

use dyad_abi::cap::{
    ComponentOp, Event, ReceiveOp, Rights, SendOp, SinvOp, StopOutcome, Stopped, ThreadOp, TimeOp,
    call_word,
};
use dyad_abi::emulation::{Registers, WORDS};
use dyad_abi::{CpuId, Error, Isa, NodeId, Result, service};

use super::{
    Cap, Captbl, Component, Place, Receive, Send, Sinv, Space, Thread, ThreadIds, Time, result,
};
use crate::raw;

impl Cap<Component> {
    /// Sets what the component consists of: the root of its capability table and its address space.
    /// Needs the right `Configure`.
    ///
    /// # Errors
    ///
    /// `Exists` if it has been done, `WrongCap` if `table` is not a root, and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn configure(self, table: Cap<Captbl>, space: Cap<Space>) -> Result<()> {
        let args = [table.number(), space.number(), 0, 0, 0];
        self.call(ComponentOp::Configure as u32, args).map(drop)
    }

    /// Sets where faults of threads in the component go; nowhere with `None`: such a thread stops.
    /// Needs the right `SetFaultHandler`.
    ///
    /// # Errors
    ///
    /// Those of [every operation](super#errors-of-every-operation).
    pub fn set_fault_handler(self, handler: Option<Cap<Sinv>>) -> Result<()> {
        let handler = handler.map_or(0, Cap::number);
        self.call(ComponentOp::SetFaultHandler as u32, [handler, 0, 0, 0, 0])
            .map(drop)
    }

    /// Sets the nodes on which the component's code may run; all nodes if `nodes` is empty. Invocations from
    /// other nodes cross to one of them. Needs the right `SetHome`.
    ///
    /// # Errors
    ///
    /// Those of [every operation](super#errors-of-every-operation).
    pub fn set_home(self, nodes: impl IntoIterator<Item = NodeId>) -> Result<()> {
        let nodes = nodes.into_iter().fold(0, |bits, n| bits | 1 << n.index());
        self.call(ComponentOp::SetHome as u32, [nodes, 0, 0, 0, 0])
            .map(drop)
    }

    /// Makes a capability that invokes the component at `entry`, which is
    /// [`Bundle::invoked`](dyad_abi::bundle::Bundle::invoked) of its program; the service gets
    /// `badge` with each invocation. Needs the right `MakeSinv`.
    ///
    /// # Errors
    ///
    /// `Exists` if the slot is in use, `Again` if it was in use a moment ago, and those of
    /// [every operation](super#errors-of-every-operation).
    ///
    /// # Safety
    ///
    /// If this is the caller's own component, `entry` must be the entry of invocations.
    pub unsafe fn make_sinv(
        self,
        place: Place,
        entry: u64,
        badge: u64,
        rights: Rights,
    ) -> Result<Cap<Sinv>> {
        let args = [place.bits(), entry, badge, rights.0.into(), 0];
        self.call(ComponentOp::MakeSinv as u32, args)?;
        Ok(Cap::at(place.index))
    }
}

/// Configuration of a thread.
#[derive(Clone, Copy, Debug)]
pub struct ThreadSetup {
    /// The component that the thread runs in.
    pub component: Cap<Component>,
    /// The address that the thread starts at.
    pub entry: u64,
    /// The argument that the entry gets.
    pub arg: u64,
    /// The thread's id, which determines the stacks of its invocations. No other live thread of the system may have
    /// it.
    pub id: u32,
    /// The id that determines its own stacks and control block, which threads of other components may have, too;
    /// 0: `id`.
    pub layout: u32,
    /// The range that the id is in; needs the right `Use`.
    pub ids: Cap<ThreadIds>,
    /// The tag by which the scheduler identifies the thread, as in [`Event::tag`].
    pub tag: u32,
    /// The scheduler's endpoints, if it has a scheduler: all lines of the object, with the right `Bind`.
    pub scheduler: Option<Cap<Receive>>,
}

/// The reason for which a dispatched thread has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The reason.
    pub why: Stopped,
    /// `Blocked`: the fused time in nanoseconds until which it waits, 0 for ever. `Exited`: its exit
    /// code. Otherwise 0.
    pub detail: u64,
}

impl Cap<Thread> {
    /// Sets the thread to begin at its entry, whatever it did before; [`resume`](Cap::resume) makes it ready.
    /// Needs the right `Configure`, also on the component.
    ///
    /// # Errors
    ///
    /// `NotReady` if the thread is neither new nor stopped; `Exists` if another live thread has the id;
    /// `Again` if another thread had the id until just now; and those of [every
    /// operation](super#errors-of-every-operation).
    ///
    /// # Safety
    ///
    /// If the component is the caller's own, `entry` must be code that takes `arg`.
    pub unsafe fn configure(self, setup: &ThreadSetup) -> Result<()> {
        // What is wider than its field is refused by the kernel, not cut.
        let id = u64::from(setup.id.min(0xffff));
        let layout = u64::from(setup.layout.min(0xffff)) << 16;
        let names = id | layout | u64::from(setup.tag) << 32;
        let args = [
            setup.component.number(),
            setup.entry,
            setup.arg,
            names,
            setup.scheduler.map_or(0, Cap::number) | setup.ids.number() << 32,
        ];
        self.call(ThreadOp::Configure as u32, args).map(drop)
    }

    /// Runs the thread on this CPU for at most `slice_ns` (up to 2^56 - 1), on the budget `time` if
    /// there is one. Comes back when it has stopped, or when something comes in for the caller. Needs
    /// the right `Dispatch`, and `Use` on `time`.
    ///
    /// # Errors
    ///
    /// `NotReady` if the thread cannot run here now, `NoTime` if the budget is used up, and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn dispatch(self, slice_ns: u64, priority: u8, time: Option<Cap<Time>>) -> Result<Stop> {
        if slice_ns >> 56 != 0 {
            return Err(Error::BadArgument);
        }
        let how = slice_ns | u64::from(priority) << 56;
        let args = [how, time.map_or(0, Cap::number), 0, 0, 0];
        let v = self.call(ThreadOp::Dispatch as u32, args)?;
        let why = Stopped::from_number(v & 0xff).ok_or(Error::Corrupt)?;
        Ok(Stop {
            why,
            detail: v >> service::sched::DEADLINE_SHIFT,
        })
    }

    /// Reads register `register` of the stopped thread's side on `isa`. Needs the right
    /// `ReadRegister`.
    ///
    /// # Errors
    ///
    /// `NotReady` if it is not stopped, and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn read_register(self, isa: Isa, register: u32) -> Result<u64> {
        let args = [isa as u64, register.into(), 0, 0, 0];
        self.call(ThreadOp::ReadRegister as u32, args)
    }

    /// Writes register `register` of the stopped thread's side on `isa`. Needs the right
    /// `WriteRegister`.
    ///
    /// # Errors
    ///
    /// As [`read_register`](Cap::read_register).
    ///
    /// # Safety
    ///
    /// If the thread runs in the caller's own component, it must be able to go on like that.
    pub unsafe fn write_register(self, isa: Isa, register: u32, value: u64) -> Result<()> {
        let args = [isa as u64, register.into(), value, 0, 0];
        self.call(ThreadOp::WriteRegister as u32, args).map(drop)
    }

    /// Moves the calling thread to `node`; the capability must be for that thread. See
    /// [`migrate`](crate::migrate) for what that means when the node has another ISA. Needs the right
    /// `Migrate`.
    ///
    /// Gives the node it is on when the call returns.
    ///
    /// # Errors
    ///
    /// `NoSuchNode`, `NodeDead`; `TooDeep` in an invocation; `NotReady` if the thread has no scheduler; `Denied` if
    /// its component may not run there, or the capability is for another thread; and those of [every operation](super#errors-of-every-operation).
    pub fn migrate(self, node: NodeId) -> Result<NodeId> {
        let v = self.call(ThreadOp::Migrate as u32, [node.index() as u64, 0, 0, 0, 0])?;
        NodeId::new(v).ok_or(Error::Corrupt)
    }

    /// Moves the calling thread, which must be the one that the capability refers to, to `node` and continues
    /// it at `pc`, with these stack and frame pointers, `arg` in argument register 0 and zeros elsewhere. Its
    /// thread pointer stays. All other state of the thread is discarded, on both ISAs. Returns only if the
    /// move is refused. Needs the right `Jump`.
    ///
    /// # Safety
    ///
    /// The code at `pc` on that node's ISA must be able to continue in this state, and all that is on the
    /// native stacks must be unused from then on, except by that code.
    pub unsafe fn jump(self, node: NodeId, pc: u64, [sp, fp]: [u64; 2], arg: u64) -> Error {
        let args = [node.index() as u64, pc, sp, fp, arg];
        match self.call(ThreadOp::Jump as u32, args) {
            Ok(_) => Error::Corrupt,
            Err(e) => e,
        }
    }

    /// Reads all registers of the stopped thread's side on `isa`, and where it was stopped. Needs the right
    /// `Unload`.
    ///
    /// # Errors
    ///
    /// `NotReady` if it is not stopped, or was stopped while it waited; `TooDeep` within an invocation;
    /// `NoIsa` if this runs on a node of another ISA, or the thread is not on that one; `NodeDead`; and
    /// those of [every operation](super#errors-of-every-operation).
    pub fn unload(self, isa: Isa) -> Result<(Registers, NodeId)> {
        let mut words = [0; WORDS];
        let to = words.as_mut_ptr().expose_provenance() as u64;
        let word = call_word(self.index(), ThreadOp::Unload as u32);
        // SAFETY: 1. The kernel writes as many words at the address.
        let node = result(unsafe { raw::call_raw(word, [isa as u64, to, 0, 0, 0]) })?;
        let node = NodeId::new(node).ok_or(Error::Corrupt)?;
        Ok((Registers::from_words(&words), node))
    }

    /// Moves the calling thread, which must be the one that the capability refers to, to `node` with other
    /// registers, which are those of that node's ISA. Returns only if the move is refused. Needs the right
    /// `Load`.
    ///
    /// # Safety
    ///
    /// The thread must be able to continue with these registers: all other state is discarded, on both ISAs,
    /// and no destructor runs.
    pub unsafe fn load(self, registers: &Registers, node: NodeId) -> Error {
        let words = registers.to_words();
        let args = [words.as_ptr() as u64, node.index() as u64, 0, 0, 0];
        match self.call(ThreadOp::Load as u32, args) {
            Ok(_) => Error::Corrupt,
            Err(e) => e,
        }
    }

    /// Takes the thread out of scheduling; its dispatch is refused. Needs the right `Stop`.
    ///
    /// # Errors
    ///
    /// `NotReady` if it runs elsewhere; `Again` if it is within an invocation: it stops when it leaves that, or by a
    /// call that comes [`STOP_GRACE_NS`](dyad_abi::cap::STOP_GRACE_NS) after the first one; and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn stop(self) -> Result<()> {
        match self.stops()? {
            StopOutcome::WhenItLeaves => Err(Error::Again),
            _ => Ok(()),
        }
    }

    /// Stops the thread, as [`stop`](Cap::stop) does, and tells the outcome.
    ///
    /// # Errors
    ///
    /// `NotReady` if it runs elsewhere, and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn stops(self) -> Result<StopOutcome> {
        let outcome = self.call(ThreadOp::Stop as u32, [0; 5])?;
        StopOutcome::from_number(outcome).ok_or(Error::Corrupt)
    }

    /// Makes the stopped thread ready again on its CPU. A blocked thread continues as if its deadline had
    /// passed. Needs the right `Resume`.
    ///
    /// # Errors
    ///
    /// `NotReady` if the thread is neither stopped nor blocked, and those of [every
    /// operation](super#errors-of-every-operation).
    pub fn resume(self) -> Result<()> {
        self.call(ThreadOp::Resume as u32, [0; 5]).map(drop)
    }

    /// Like [`resume`](Cap::resume), for a stopped thread, on a CPU that the caller selects.
    ///
    /// # Errors
    ///
    /// Those of [`resume`](Cap::resume); `NoSuchNode`; `NoIsa` if the thread is in the middle of something on
    /// the other ISA.
    pub fn resume_on(self, node: NodeId, cpu: CpuId) -> Result<()> {
        let place = 1 << 63 | (cpu.index() as u64) << 8 | node.index() as u64;
        self.call(ThreadOp::Resume as u32, [place, 0, 0, 0, 0])
            .map(drop)
    }

    /// Fused time until which the thread waits; `None` if it does not wait, or for ever. Needs the
    /// right `Deadline`.
    ///
    /// # Errors
    ///
    /// Those of [every operation](super#errors-of-every-operation).
    pub fn deadline(self) -> Result<Option<u64>> {
        let v = self.call(ThreadOp::Deadline as u32, [0; 5])?;
        Ok((v != 0).then_some(v))
    }

    /// Gives the CPU back to the thread that dispatched the calling thread; the capability must be for the
    /// calling thread. Needs the right `Yield`.
    ///
    /// # Errors
    ///
    /// Those of [every operation](super#errors-of-every-operation).
    pub fn yield_now(self) -> Result<()> {
        self.call(ThreadOp::Yield as u32, [0; 5]).map(drop)
    }

    /// The calling thread, which this must be, ends. Returns only if that is refused. Needs the right
    /// `Exit`.
    pub fn exit(self, code: u32) -> Error {
        match self.call(ThreadOp::Exit as u32, [code.into(), 0, 0, 0, 0]) {
            Ok(_) => Error::Corrupt,
            Err(e) => e,
        }
    }
}

/// Floating-point and vector registers do not take part in an invocation: they are zero, and the control
/// words have their initial values, when a service is entered and when its caller continues.
impl Cap<Sinv> {
    /// Calls the service with four words and returns the first word of its reply. Needs the right `Invoke`.
    ///
    /// The thread itself enters the service and comes back with the reply. It may have been on another node
    /// in between.
    ///
    /// # Errors
    ///
    /// `TooDeep` if invocations are nested too deeply, `NodeDead` if the service's node died, and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn invoke(self, words: [u64; 4]) -> Result<u64> {
        result(raw::invoke1(
            call_word(self.index(), SinvOp::Invoke as u32),
            words,
        ))
    }

    /// Like [`invoke`](Cap::invoke), but returns all four words of the reply.
    ///
    /// # Errors
    ///
    /// Those of [`invoke`](Cap::invoke).
    pub fn invoke_all(self, words: [u64; 4]) -> Result<[u64; 4]> {
        let mut reply = [0; 4];
        let word = call_word(self.index(), SinvOp::Invoke as u32);
        let status = raw::invoke(word, words, &mut reply);
        result(raw::SyscallReturn { status, value: 0 }).map(|_| reply)
    }

    /// As [`invoke`](Cap::invoke), of a service whose reply is a status and a value, as
    /// [`service::reply`] has them: gives the value.
    ///
    /// ```
    /// use dyad_abi::service::{pager, slot};
    /// use dyad_sys::Error;
    /// use dyad_sys::cap::{Cap, Sinv};
    ///
    /// let pager = Cap::<Sinv>::at(slot::PAGER);
    /// let address = pager.request([pager::MAP_ANON, 8192, 0, 0])?;
    /// assert_eq!(address % 4096, 0);
    /// // The service's own error, and the kernel's.
    /// assert_eq!(pager.request([pager::MAP_ANON, 0, 0, 0]), Err(Error::BadArgument));
    /// let nobody = Cap::<Sinv>::at(slot::FIRST_FREE);
    /// assert_eq!(nobody.request([0; 4]), Err(Error::NoCap));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`invoke`](Cap::invoke), and those of the service.
    pub fn request(self, words: [u64; 4]) -> Result<u64> {
        result(raw::request(
            call_word(self.index(), SinvOp::Invoke as u32),
            words,
        ))
    }
}

impl Cap<Send> {
    /// Sets the capability's bits at the endpoint and wakes who waits there. Needs the right `Send`.
    ///
    /// # Errors
    ///
    /// `NodeDead` if the receiver's node is dead, and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn send(self) -> Result<()> {
        self.call(SendOp::Send as u32, [0; 5]).map(drop)
    }
}

/// How long [`receive`](Cap::receive) waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// It does not wait.
    Now,
    /// It waits until fused time reaches this many nanoseconds.
    Deadline(u64),
    /// It waits without a limit.
    Never,
}

impl Until {
    const fn word(self) -> u64 {
        match self {
            Until::Never => 0,
            Until::Now | Until::Deadline(0 | 1) => 1,
            Until::Deadline(ns) => ns,
        }
    }
}

/// `index` is the endpoint, if the capability is for several.
impl Cap<Receive> {
    /// Takes the bits that have been set at the endpoint; if there are none, waits for some. Returns 0 if
    /// there are still none at the deadline. Needs the right `Receive`.
    ///
    /// # Errors
    ///
    /// `Exists` if another thread waits at the endpoint, and those of [every
    /// operation](super#errors-of-every-operation).
    pub fn receive(self, index: u64, until: Until) -> Result<u64> {
        self.call(ReceiveOp::Receive as u32, [index, until.word(), 0, 0, 0])
    }

    /// Takes an event of one of a scheduler's threads, by [`receive`](Cap::receive) at the scheduler's
    /// endpoint.
    ///
    /// # Errors
    ///
    /// Those of [`receive`](Cap::receive); `TimedOut` if there is no event.
    pub fn event(self, index: u64, until: Until) -> Result<Event> {
        match self.receive(index, until)? {
            0 => Err(Error::TimedOut),
            v => Event::from_bits(v).ok_or(Error::Corrupt),
        }
    }

    /// Makes a sending end that sets the bits `badge`. Needs the right `MakeSend`.
    ///
    /// # Errors
    ///
    /// `Exists` if the slot is in use, `Again` if it was in use a moment ago, and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn make_send(self, index: u64, place: Place, badge: u64) -> Result<Cap<Send>> {
        let args = [index, place.bits(), badge, 0, 0];
        self.call(ReceiveOp::MakeSend as u32, args)?;
        Ok(Cap::at(place.index))
    }

    /// Says where the endpoint is received, and with which priority. Needs the right `Bind`.
    ///
    /// # Errors
    ///
    /// `NoSuchNode`, and those of [every operation](super#errors-of-every-operation).
    pub fn bind(self, index: u64, node: NodeId, cpu: CpuId, priority: u8) -> Result<()> {
        let home = node.index() as u64 | (cpu.index() as u64) << 8 | u64::from(priority) << 16;
        self.call(ReceiveOp::Bind as u32, [index, home, 0, 0, 0])
            .map(drop)
    }
}

impl Cap<Time> {
    /// Moves `ns` nanoseconds of budget to `to`. Needs the right `Transfer`.
    ///
    /// # Errors
    ///
    /// `NoTime` if there are not that many, and those of
    /// [every operation](super#errors-of-every-operation).
    pub fn transfer(self, to: Cap<Time>, ns: u64) -> Result<()> {
        self.call(TimeOp::Transfer as u32, [to.number(), ns, 0, 0, 0])
            .map(drop)
    }

    /// Nanoseconds that are left. Needs the right `Read`.
    ///
    /// # Errors
    ///
    /// Those of [every operation](super#errors-of-every-operation).
    pub fn left(self) -> Result<u64> {
        self.call(TimeOp::Read as u32, [0; 5])
    }
}
