//! The calling thread's control block, which its thread pointer points to.

use core::sync::atomic::AtomicU64;

/// The thread's control block ([`Tcb`](dyad_abi::user::Tcb)).
#[derive(Debug)]
#[repr(C)]
pub struct Block {
    this: u64,
    /// The thread's id.
    pub thread: u64,
    /// The data stack's pointer. Only code that uses data stacks changes it.
    pub data_sp: AtomicU64,
    /// See [`migrate_word`](dyad_abi::user::migrate_word).
    pub migrate: [AtomicU64; 7],
    /// Slots of the runtime.
    pub slots: [AtomicU64; 20],
    /// What the thread waits for ([`waiting`](dyad_abi::user::waiting)).
    pub waiting: AtomicU64,
    /// See [`Tcb::local`](dyad_abi::user::Tcb::local).
    pub local: AtomicU64,
}

const _: () = {
    use dyad_abi::user::Tcb;
    assert!(size_of::<Block>() == size_of::<Tcb>());
    assert!(core::mem::offset_of!(Block, local) == core::mem::offset_of!(Tcb, local));
    assert!(core::mem::offset_of!(Block, waiting) == core::mem::offset_of!(Tcb, waiting));
};

impl Block {
    /// A block in which nothing has happened yet.
    #[cfg(not(target_os = "none"))]
    pub const fn blank() -> Block {
        Block {
            this: 0,
            thread: 0,
            data_sp: AtomicU64::new(0),
            migrate: [const { AtomicU64::new(0) }; 7],
            slots: [const { AtomicU64::new(0) }; 20],
            waiting: AtomicU64::new(0),
            local: AtomicU64::new(0),
        }
    }
}

#[cfg(target_os = "none")]
unsafe extern "C" {
    safe fn dyad_tcb() -> *const Block;
}

#[cfg(not(target_os = "none"))]
std::thread_local! {
    static BLOCK: &'static Block = std::boxed::Box::leak(std::boxed::Box::new(Block::blank()));
}

/// The calling thread's control block.
///
/// In an invocation it is that of the thread that is served.
#[inline(always)]
pub fn block() -> &'static Block {
    #[cfg(target_os = "none")]
    // SAFETY: 1. The thread pointer is the address of the thread's control block, which is mapped as
    // long as the thread lives. 2. Its words are either constant or atomic.
    let block = unsafe { &*dyad_tcb() };
    #[cfg(not(target_os = "none"))]
    let block = BLOCK.with(|b| *b);
    block
}
