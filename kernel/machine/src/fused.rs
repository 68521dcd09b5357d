//! The simulator's clock as this machine's: time, timer, doorbells and output by calls of the plugin. See
//! [`dyad_abi::clock`] for the protocol.
//!
//! The clock is on from the moment when the pools are mapped, if the boot parameters say so, and then for
//! good. Machines use it instead of their counters and timers, the doorbell's register and the serial line.
//! Host timing then no longer influences the kernel. All nodes read one time line, so there is nothing to
//! calibrate or exchange when a node joins.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::boot::{BootParams, ClockKind};
use dyad_abi::clock::{
    ClockCall, NO_COUNTER, SimCounter, TEXT_BYTES, guest, guest_word, plugin, plugin_word,
    text_word,
};
use dyad_abi::{CpuId, NodeId};
use dyad_shm::FusedMap;
use dyad_shm::clock::NodeClock;
use spin::Once;

use crate::Platform;

static PAGES: Once<(&'static NodeClock, NodeId)> = Once::new();

const READ: u32 = ClockCall::Read.marker().word();
const SYNC: u32 = ClockCall::Sync.marker().word();
const RING: u32 = ClockCall::Ring.marker().word();
const CONSOLE: u32 = ClockCall::Console.marker().word();
const EXIT: u32 = ClockCall::Exit.marker().word();
const COUNT: u32 = ClockCall::Count.marker().word();
const PAUSE: u32 = ClockCall::Pause.marker().word();

/// Turns the clock on if this run uses it; before other CPUs are started.
///
/// # Errors
///
/// If no plugin answers: without one, time would stand still.
pub fn attach<P: Platform>(map: &FusedMap, params: &BootParams<'_>) -> Result<(), &'static str> {
    if params.clock != ClockKind::Fused {
        return Ok(());
    }
    let pages = dyad_shm::clock::pages(map, params.node).ok_or("there is no CXL pool")?;
    PAGES.call_once(|| (pages, params.node));
    let (first, second) = (now_ns::<P>(), now_ns::<P>());
    // An instruction takes less than a nanosecond, but there are some between the two, and those
    // of the firmware and the boot code before the first.
    if first == 0 || second < first {
        return Err("the simulator's plugin does not answer");
    }
    Ok(())
}

/// Whether the simulator's clock is this machine's clock.
#[inline]
pub fn is_on() -> bool {
    PAGES.get().is_some()
}

/// This CPU's words, if the clock is on.
fn words<P: Platform>() -> Option<(&'static NodeClock, CpuId)> {
    PAGES.get().map(|(pages, _)| (*pages, P::cpu()))
}

fn word<P: Platform>(at: impl FnOnce(CpuId) -> usize) -> Option<&'static AtomicU64> {
    let (pages, cpu) = words::<P>()?;
    Some(&pages[at(cpu)])
}

/// See [`Platform::clock_ns`]. 0 with the clock off.
pub fn now_ns<P: Platform>() -> u64 {
    P::mark::<READ>();
    word::<P>(|c| plugin_word(c, plugin::NOW)).map_or(0, |w| w.load(Ordering::Relaxed))
}

/// The value of one of the simulator's counters for this CPU. `None` if the clock is off, or the simulator
/// does not count that.
pub fn count<P: Platform>(counter: SimCounter) -> Option<u64> {
    let wanted = word::<P>(|c| guest_word(c, guest::COUNTER))?;
    wanted.store(counter as u64, Ordering::Relaxed);
    P::mark::<COUNT>();
    let value = word::<P>(|c| plugin_word(c, plugin::COUNTER))?.load(Ordering::Relaxed);
    (value != NO_COUNTER).then_some(value)
}

/// See [`Platform::set_timer`]. The interrupt comes at the deadline, once, by the CPU's
/// [timer vector](dyad_abi::boot::timer_vector).
pub fn set_timer<P: Platform>(deadline: Option<u64>) {
    if let Some(w) = word::<P>(|c| guest_word(c, guest::DEADLINE)) {
        // 0 is for no deadline. The time before the first nanosecond is over for everybody.
        w.store(deadline.map_or(0, |ns| ns.max(1)), Ordering::Relaxed);
        P::mark::<SYNC>();
    }
}

/// Executes nothing for so long, before this CPU can be rung. Returns at once with the clock off.
pub fn pause<P: Platform>(ns: u64) {
    if let Some(w) = word::<P>(|c| guest_word(c, guest::PAUSE)) {
        w.store(ns, Ordering::Relaxed);
        P::mark::<PAUSE>();
    }
}

/// See [`Platform::ring`].
pub fn ring<P: Platform>(to: NodeId, cpu: CpuId) {
    if let Some(w) = word::<P>(|c| guest_word(c, guest::TARGET)) {
        w.store(dyad_abi::clock::target(to, cpu), Ordering::Relaxed);
        P::mark::<RING>();
    }
}

/// See [`Platform::doorbell_id`]: this node's number. The plugin rings doorbells, and the identifiers of
/// devices depend on which machine happened to start first.
pub fn doorbell_id() -> u64 {
    PAGES.get().map_or(0, |(_, node)| node.index() as u64)
}

/// See [`Platform::serial_write`].
pub fn write<P: Platform>(bytes: &[u8]) {
    let Some((pages, cpu)) = words::<P>() else {
        return;
    };
    let text = &pages[text_word(cpu)..][..TEXT_BYTES / 8];
    for piece in bytes.chunks(TEXT_BYTES) {
        for (word, bytes) in text.iter().zip(piece.chunks(8)) {
            let mut value = [0; 8];
            value[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(value), Ordering::Relaxed);
        }
        pages[guest_word(cpu, guest::TEXT_LEN)].store(piece.len() as u64, Ordering::Relaxed);
        P::mark::<CONSOLE>();
    }
}

/// Tells the simulator that this machine ends now: whatever it still executes takes no time, and no machine
/// waits for it.
pub fn exit<P: Platform>() {
    if is_on() {
        P::mark::<EXIT>();
    }
}
