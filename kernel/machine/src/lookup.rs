//! Capabilities of the running component, from their index to their object.
//!
//! A capability is looked up (two loads), its rights are compared, its guard and the version of its
//! object are checked (one load each). Only then may an operation begin.

use dyad_abi::cap::{CapIndex, CapType, FrameOp, Rights};
use dyad_abi::{Error, Result};
use dyad_captbl::{Contents, Found, GuardRef, Owner, Table};
use dyad_pgtbl::Perms;
use dyad_retype::{KernelKind, Use};
use dyad_shm::frame::WeakRef;

use crate::capcache;
use crate::kernel_ctx::{KernelCtx, Operand};
use crate::memory::Words;
use crate::object::component::Entry;
use crate::object::kinds;

impl KernelCtx {
    /// The capability tables, with this node as the owner of changes.
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

    /// The capability of the running component at `index`, alive or not.
    ///
    /// # Errors
    ///
    /// [`Error::NoCap`].
    #[inline]
    pub fn lookup(&self, index: CapIndex) -> Result<Found> {
        Ok(self.captbls().lookup(self.local.captbl.get(), index)?)
    }

    /// The contents of a capability, if its guard is alive and its object unchanged.
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

    /// Checks that a capability's guard is alive and its object unchanged.
    ///
    /// # Errors
    ///
    /// [`Error::Revoked`].
    #[inline]
    pub fn check(&self, c: &Contents) -> Result<()> {
        if let Some(guard) = c.guard.filter(|_| !lacks!("lookup::check::guard")) {
            self.guard(guard)?;
        }
        let Some(object) = c.object else {
            return Ok(());
        };
        let alive = match kinds::referred(c.ty, &c.payload) {
            Some(kind) => self.frames().is_object(object, kind),
            None => self.frames().check(object, Use::User).is_ok(),
        };
        if alive || lacks!("lookup::check::version") {
            Ok(())
        } else {
            Err(Error::Revoked)
        }
    }

    /// The target of an invocation endpoint that has been found, and whether the endpoint has a guard. The
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
        if let Some(cached) = capcache::capability(self.local, index)
            && (cached.ty() == ty || lacks!("lookup::operand::type"))
            && (cached.rights().contains(rights) || lacks!("lookup::operand::right"))
        {
            return Ok(cached.operand());
        }
        self.operand_slowpath(index, ty, rights)
    }

    #[cold]
    fn operand_slowpath(&self, index: CapIndex, ty: CapType, rights: Rights) -> Result<Operand> {
        let found = self.lookup(index)?;
        if !lacks!("lookup::operand_slowpath::right") {
            found.require(ty, rights)?;
        }
        let contents = self.alive(&found)?;
        capcache::fill_capability(self, index, &found, &contents);
        Ok(operand(&contents))
    }
}

/// The operand of a capability.
pub fn operand(c: &Contents) -> Operand {
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

    /// Refuses a guarded capability. Operations that store the object for later use this, because they could
    /// not check the guard then.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] if it has a guard.
    pub fn unguarded(self) -> Result<Operand> {
        match self.guard {
            None => Ok(self),
            Some(_) if lacks!("lookup::unguarded::guard") => Ok(self),
            Some(_) => Err(Error::Denied),
        }
    }
}

/// The permissions that a page may get later, by the rights of its capability.
pub const fn noted(rights: Rights) -> Perms {
    let mut noted = Perms::empty();
    if rights.contains(FrameOp::Write.right()) {
        noted = noted.union(Perms::MAY_WRITE);
    }
    if rights.contains(FrameOp::Execute.right()) {
        noted = noted.union(Perms::MAY_EXECUTE);
    }
    noted
}
