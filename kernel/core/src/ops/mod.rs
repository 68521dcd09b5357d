//! Operations on capabilities: from the words of a call to the object.
//!
//! Every call names a capability of the running component and an operation, whose number is the
//! bit of its right. The capability is looked up (two loads), its rights are compared, its guard
//! and the version of its object are checked (one load each), and only then does the operation
//! begin. What the object's capability keeps besides the object:
//!
//! | type | payload |
//! |---|---|
//! | Captbl | level |
//! | PageTable | [`TableAt`](dyad_abi::cap::TableAt) |
//! | Sinv | entry address, badge; the object is the component |
//! | Send | endpoint, bits |
//! | Receive, Time, Liveness | first entry, entries |
//! | Memory | first frame, frames; no object |
//! | Frame | first page, pages; the object is the head of the block |
//! | Hardware | node; no object |

pub mod captbl;
pub mod component;
pub mod endpoint;
pub mod hardware;
pub mod memory;
pub mod space;
pub mod thread;

use dyad_abi::cap::{
    CapIndex, CapType, CaptblOp, ComponentOp, HardwareOp, INTROSPECT, LivenessOp, MemoryOp, Rights,
    TimeOp,
};
use dyad_abi::{Error, Result};
use dyad_captbl::{Contents, Found, GuardRef, Owner, Table};
use dyad_retype::{KernelKind, Use};
use dyad_shm::FrameRef;
use dyad_shm::frame::WeakRef;

use crate::Platform;
use crate::cx::{Cx, Operand};
use crate::dispatch::{self, After};
use crate::memory::Words;
use crate::object::component::Entry;
use crate::object::kernel_kind;
use crate::view::{self, CapView, Place};

impl Cx {
    /// Capability tables, changed in the name of this node.
    #[inline]
    pub fn captbls(&self) -> Table<'static, Words> {
        Table::new(
            self.node.words,
            Owner {
                node: self.node.id(),
                incarnation: self.node.incarnation(),
            },
        )
    }

    /// Calls `f` with what the rows of capability tables need.
    #[inline]
    pub fn with_services<R>(&self, f: impl FnOnce(&Cx) -> R) -> R {
        f(self)
    }

    /// The capability of the running component at `index`, alive or not.
    ///
    /// # Errors
    ///
    /// [`Error::NoCap`].
    #[inline]
    pub fn lookup(&self, index: CapIndex) -> Result<Found> {
        Ok(self.captbls().lookup(self.local.captbl.get(), index)?)
    }

    /// The rest of a capability, if its guard is alive and its object is what it was.
    ///
    /// # Errors
    ///
    /// [`Error::Revoked`].
    #[inline]
    pub fn alive(&self, found: &Found) -> Result<Contents> {
        let contents = self.captbls().contents(found)?;
        self.check(&contents)?;
        Ok(contents)
    }

    /// Whether a capability's guard is alive and its object is what it was.
    ///
    /// # Errors
    ///
    /// [`Error::Revoked`].
    #[inline]
    pub fn check(&self, c: &Contents) -> Result<()> {
        if let Some(guard) = c.guard.filter(|_| !lacks!("ops::check::guard")) {
            self.guard(guard)?;
        }
        let Some(object) = c.object else {
            return Ok(());
        };
        let alive = match object_of(c.ty, &c.payload) {
            Some(kind) => self.frames().is_object(object, kind),
            None => self.frames().check(object, Use::User).is_ok(),
        };
        if alive || lacks!("ops::check::version") {
            Ok(())
        } else {
            Err(Error::Revoked)
        }
    }

    /// Where an invocation endpoint that has been found leads, and whether it has a guard. Its
    /// component is checked when it is entered.
    ///
    /// # Errors
    ///
    /// [`Error::Revoked`] if its guard is not alive.
    #[inline]
    pub fn sinv(&self, found: &Found) -> Result<(Entry, bool)> {
        let c = self.captbls().contents(found)?;
        if let Some(guard) = c.guard {
            self.guard(guard)?;
        }
        let to = Entry {
            component: c.object.ok_or(Error::Corrupt)?,
            address: c.payload[0],
            badge: c.payload[1],
        };
        Ok((to, c.guard.is_some()))
    }

    #[inline]
    fn guard(&self, guard: GuardRef) -> Result<()> {
        Ok(self
            .captbls()
            .guard_alive(guard, |w| self.frames().is_object(w, KernelKind::LIVENESS))?)
    }

    /// The capability of the running component at `index`, if it is of that type, permits `rights`
    /// and is alive.
    ///
    /// # Errors
    ///
    /// [`Error::NoCap`], [`Error::WrongCap`], [`Error::Denied`], [`Error::Revoked`].
    #[inline]
    pub fn operand(&self, index: CapIndex, ty: CapType, rights: Rights) -> Result<Operand> {
        if let Some(known) = view::capability(self.local, index)
            && (known.ty() == ty || lacks!("ops::operand::type"))
            && (known.rights().contains(rights) || lacks!("ops::operand::right"))
        {
            return Ok(known.operand());
        }
        self.operand_slowly(index, ty, rights)
    }

    #[cold]
    fn operand_slowly(&self, index: CapIndex, ty: CapType, rights: Rights) -> Result<Operand> {
        let found = self.lookup(index)?;
        if !lacks!("ops::operand_slowly::right") {
            found.require(ty, rights)?;
        }
        let contents = self.alive(&found)?;
        view::learn_capability(self, index, &found, &contents);
        Ok(operand(&contents))
    }
}

/// What kind of object capabilities of a type refer to; `None`: a block of user memory, or nothing.
#[inline]
pub const fn object_of(ty: CapType, payload: &[u64; 3]) -> Option<KernelKind> {
    use dyad_abi::cap::{ObjectKind, TableAt};
    match ty {
        CapType::Captbl => Some(kernel_kind(match payload[0] {
            0 => ObjectKind::CaptblLeaf,
            _ => ObjectKind::CaptblRoot,
        })),
        CapType::PageTable => match TableAt::from_bits(payload[0]) {
            Some(at) => KernelKind::page_table(at.isa, at.level - 1),
            None => None,
        },
        CapType::Space => Some(KernelKind::ADDRESS_SPACE),
        CapType::Component | CapType::Sinv => Some(KernelKind::COMPONENT),
        CapType::Thread => Some(KernelKind::THREAD),
        CapType::Send | CapType::Receive => Some(KernelKind::ENDPOINTS),
        CapType::Time => Some(KernelKind::TIME),
        CapType::Liveness => Some(KernelKind::LIVENESS),
        CapType::Memory | CapType::Frame | CapType::Hardware => None,
    }
}

/// What operations are told of a capability.
pub(crate) fn operand(c: &Contents) -> Operand {
    Operand {
        ty: c.ty,
        rights: c.rights,
        object: c.object,
        guard: c.guard,
        payload: c.payload,
    }
}

impl Operand {
    /// The object, for types that have one.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the slot names none.
    #[inline]
    pub fn object(&self) -> Result<WeakRef> {
        self.object.ok_or(Error::Corrupt)
    }

    /// For operations that note what a capability refers to for later: nobody would look at its
    /// guard then.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] if it has one.
    pub fn unguarded(self) -> Result<Operand> {
        match self.guard {
            None => Ok(self),
            Some(_) if lacks!("ops::unguarded::guard") => Ok(self),
            Some(_) => Err(Error::Denied),
        }
    }
}

/// Carries a call out.
///
/// # Errors
///
/// Why it was refused; nothing has changed, unless the operation's page says so.
#[inline]
pub fn call<P: Platform>(cx: &Cx, word: u64, a: [u64; 5]) -> Result<After> {
    let index = CapIndex::new(word & 0xffff_ffff).ok_or(Error::NoCap)?;
    let number = word >> 32;
    if number >= 32 {
        return Err(Error::BadSyscall);
    }
    if let Some(known) = view::capability(cx.local, index) {
        if known.rights().contains(Rights(1 << number)) || lacks!("ops::call::right") {
            return on_known::<P>(cx, known, number, a);
        }
        if let Place::Empty = known.place() {
            return Err(Error::NoCap);
        }
    }
    let (this, place) = look_up(cx, index, number)?;
    with::<P>(cx, &this, place, number, a)
}

/// On a capability that this CPU remembers, which permits it.
///
/// # Errors
///
/// As [`call`].
#[inline(always)]
pub fn on_known<P: Platform>(cx: &Cx, known: &CapView, number: u64, a: [u64; 5]) -> Result<After> {
    if number != INTROSPECT as u64 {
        match (known.ty(), known.place()) {
            (CapType::Thread, Place::Thread(t)) => {
                return thread::dispatch::<P>(cx, t, number, a);
            }
            (CapType::Send, Place::Endpoints(e)) => {
                let [line, bits, _] = known.operand().payload;
                return endpoint::send::<P>(cx, e, line, bits, number);
            }
            (CapType::Space, Place::Space(s)) => {
                let object = known.operand().object()?;
                return space::dispatch::<P>(cx, s, object, number, a).map(After::Value);
            }
            (CapType::Captbl | CapType::Memory | CapType::Liveness, _) => {
                return on::<P>(cx, &known.operand(), number, a).map(After::Value);
            }
            _ => {}
        }
    }
    with::<P>(cx, &known.operand(), known.place(), number, a)
}

#[inline(never)]
fn with<P: Platform>(
    cx: &Cx,
    this: &Operand,
    place: Place,
    number: u64,
    a: [u64; 5],
) -> Result<After> {
    match (this.ty, place) {
        (_, _) if number == INTROSPECT as u64 => Ok(After::Value(captbl::describe(this))),
        (CapType::Thread, Place::Thread(t)) => thread::dispatch::<P>(cx, t, number, a),
        (CapType::Send, Place::Endpoints(e)) => {
            let [line, bits, _] = this.payload;
            endpoint::send::<P>(cx, e, line, bits, number)
        }
        (CapType::Receive, Place::Endpoints(e)) => endpoint::receive::<P>(cx, e, this, number, a),
        (CapType::Space, Place::Space(s)) => {
            space::dispatch::<P>(cx, s, this.object()?, number, a).map(After::Value)
        }
        // Rounds look at what this CPU is in.
        (CapType::Hardware, _) => {
            on::<P>(cx, this, number, a).map(|value| dispatch::still_here::<P>(cx, value))
        }
        _ => on::<P>(cx, this, number, a).map(After::Value),
    }
}

#[cold]
fn look_up(cx: &Cx, index: CapIndex, number: u64) -> Result<(Operand, Place)> {
    let found = match cx.lookup(index) {
        Ok(found) => found,
        Err(e) => {
            view::learn_empty(cx, index);
            return Err(e);
        }
    };
    if !found.rights.contains(Rights(1 << number)) && !lacks!("ops::look_up::right") {
        return Err(Error::Denied);
    }
    let contents = cx.alive(&found)?;
    view::learn_capability(cx, index, &found, &contents);
    let this = operand(&contents);
    Ok((this, Place::of(cx, &this)))
}

/// Carries an operation out on a capability that permits it and is alive, of the types that need no
/// thread switch.
#[inline(never)]
fn on<P: Platform>(cx: &Cx, this: &Operand, number: u64, a: [u64; 5]) -> Result<u64> {
    let bad = Error::BadSyscall;
    match this.ty {
        CapType::Captbl => {
            let op = CaptblOp::from_number(number).ok_or(bad)?;
            captbl::dispatch(cx, this, op, a)
        }
        CapType::Memory => {
            let op = MemoryOp::from_number(number).ok_or(bad)?;
            memory::dispatch::<P>(cx, this, op, a)
        }
        CapType::Component => {
            let op = ComponentOp::from_number(number).ok_or(bad)?;
            component::dispatch(cx, this, op, a)
        }
        CapType::Hardware => {
            let op = HardwareOp::from_number(number).ok_or(bad)?;
            hardware::dispatch::<P>(cx, this, op, a)
        }
        CapType::Liveness => {
            let op = LivenessOp::from_number(number).ok_or(bad)?;
            captbl::liveness(cx, this, op, a)
        }
        CapType::Time => {
            let op = TimeOp::from_number(number).ok_or(bad)?;
            thread::time(cx, this, op, a)
        }
        CapType::Thread | CapType::Send | CapType::Receive | CapType::Space => Err(Error::Corrupt),
        // Their rights are for other operations; invocations go another way.
        CapType::PageTable | CapType::Frame | CapType::Sinv => Err(bad),
    }
}

/// Where an invocation endpoint leads.
///
/// # Errors
///
/// [`Error::Corrupt`] if the slot names no component.
#[inline]
pub fn sinv_entry(sinv: &Operand) -> Result<Entry> {
    Ok(Entry {
        component: sinv.object()?,
        address: sinv.payload[0],
        badge: sinv.payload[1],
    })
}

/// The frame at an offset of a Memory capability.
///
/// # Errors
///
/// [`Error::BadArgument`] beyond its end.
pub fn frame_at(memory: &Operand, at: u64) -> Result<FrameRef> {
    dyad_captbl::FrameRange::from_payload(memory.payload)
        .ok_or(Error::Corrupt)?
        .get(at)
        .ok_or(Error::BadArgument)
}
